/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/fit/fit.h"

#include "jobs/jobs.h"

#define TEXT(member) MILL_OPTION_TEXT, MILL_AT(mill_fit_options, member)
#define FLAG(member) MILL_OPTION_FLAG, MILL_AT(mill_fit_options, member)
#define COUNT(member, lo, up)                                                                      \
  MILL_OPTION_COUNT, MILL_AT(mill_fit_options, member), .min = lo, .max = up
#define REAL(member, lo, up)                                                                       \
  MILL_OPTION_REAL, MILL_AT(mill_fit_options, member), .min = lo, .max = up

static const mill_option rows[] = {
    {.name = "files"},
    {"fit", TEXT(fit), .may_differ = 1,
     .help = "result of starmill fit to sample; its configuration and solutions are used"},
    {"library", MILL_OPTION_OTHER, .take = mill_fit_take_library, .argument = "FILE",
     .help = "sample the stars that were fitted with this library (default: the fit's first one)"},
    {"output", TEXT(output), .help = "result file (HDF5)"},
    {"catalog", TEXT(catalog),
     .help = "text file with one input path per line, read after those of the command line"},
    {"pattern", MILL_FIT_TEXTS(pattern), .argument = "GLOB",
     .help = "inputs by a pattern of their paths with * ? and [...], quoted from the shell; may be "
             "repeated"},
    {"overwrite", FLAG(overwrite),
     .help = "start over; an old result is replaced once the new result is finished and has a "
             "sampled star"},
    {"retry-failed", FLAG(retry_failed), .help = "retry rows that failed in an earlier run"},
    {.name = "selection (default: all rows of the fit)"},
    MILL_FIT_OBJECT_ROWS,
    {"flag", TEXT(flag), .argument = "NAME,NAME...",
     .help = "only stars with one of these bits of RVS_WARN or FIT_INFO, e.g. TWO_MINIMA,HULL"},
    {"sn-range", MILL_OPTION_PAIR, .offset = offsetof(mill_fit_options, least_sn),
     .offset2 = offsetof(mill_fit_options, most_sn), .size = sizeof(double), .min = -1e9,
     .max = 1e9, .argument = "LOW,HIGH",
     .help = "only stars whose highest S/N of the arms is in this range"},
    {"fraction", REAL(part, MILL_ABOVE_0, 1),
     .help = "only this fraction of the stars, drawn by seed and TARGETID"},
    {.name = "sampling"},
    {"prior-table", TEXT(prior_table),
     .help = "table of each star's priors, instead of the fit's table"},
    {"ess", REAL(sample.least_ess, 1, 1e7),
     .help = "a star is done when the effective sample size of every parameter is at least this"},
    {"max-evaluations", COUNT(sample.max_eval, 2, 10000000),
     .help = "largest number of likelihood evaluations per star; a star that reaches it is flagged "
             "NOT_CONVERGED"},
    {"draws", COUNT(sample.n_draw, 0, MILL_MAX_DRAW), .help = "samples to store per star"},
    {"seed", MILL_OPTION_SEED, MILL_AT(mill_fit_options, sample.seed),
     .help = "seed of the random numbers"},
    {.name = "running"},
    MILL_FIT_RUNNING_ROWS("POST.h5"),
    MILL_OPTION_HELP(mill_fit_options),
    {0}};

static const mill_option_table table = {
    "starmill sample",
    "usage: starmill sample --fit OUT.h5 [--library LIB.h5] --output POST.h5 [options] "
    "INPUT.fits...\n"
    "\n"
    "Sample the posteriors of stars fitted by starmill fit, with the fit's likelihood, priors and\n"
    "limits.  Give the inputs of the fit, or some of them.  Run it under mpirun or srun for more\n"
    "ranks.  Repeat the same command to continue an interrupted run.\n"
    "\n",
    "\n"
    "SIGTERM, SIGINT and SIGUSR1 write the finished stars and stop; the same command continues\n"
    "and samples the unfinished stars from the beginning.\n"
    "Exit status: 0: done; 2: usage, configuration or library; 3: done, but an input was\n"
    "unreadable or differs from that of --fit, or no star was sampled; 4: output or disk;\n"
    "70: internal error; 75: stopped in good order.\n",
    rows};

static const mill_fit_options defaults = {
    .least_sn = -INFINITY,
    .most_sn = INFINITY,
    .part = 1.0,
    .sample = {.max_eval = 20000, .least_ess = 1000, .seed = 1}};

/* Parse argv, argv[0] being the job's name; argv is permuted.  MILL_ERR_USAGE names the option. */
static int parse(int argc, char **argv, mill_fit_options *options)
{
  int first = 0;
  const char *text[MILL_OPTION_MAX];
  *options = defaults;
  MILL_CHECK(mill_option_parse(&table, argc, argv, options, text, &first));
  options->input = argv + first;
  options->n_input = argc - first;
  if (!options->help && !options->fit)
    return MILL_ERROR(MILL_ERR_USAGE, "no fit: give --fit OUT.h5; see starmill sample --help");
  return MILL_OK;
}

const mill_option_help mill_sample_help = {&table, &defaults};

int mill_job_sample(int argc, char **argv)
{
  static const mill_fit_command_line line = {"starmill sample", parse, &mill_sample_help};
  return mill_fit_main(argc, argv, &line);
}
