/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/simulate/simulate_options.h"

#include <string.h>

#include "jobs/simulate/simulate.h"
#include "jobs/options/option_table.h"
#include "kernels/base/error.h"
#include "src/system/thread.h"

static_assert(MILL_MOCK_ERROR_AS_FITTED == 1 && MILL_MOCK_ERROR_CORRELATED == 2, "as the words");
static const char *const error_words[] = {"false", "true", "correlated", NULL};

#define AT(member)                 MILL_AT(mill_simulate_options, member)
#define FLAG(member)               MILL_OPTION_FLAG, AT(member)
#define COUNT(member, least, most) MILL_OPTION_COUNT, AT(member), .min = least, .max = most
#define REAL(member, most)         MILL_OPTION_REAL, AT(member), .max = most
#define PAIR(low, up, least, most)                                                                 \
  MILL_OPTION_PAIR, AT(low), .offset2 = offsetof(mill_simulate_options, up), .min = least,         \
                             .max = most, .argument = "MIN,MAX"

static const mill_option rows[] = {
    {.name = "files"},
    {"output", MILL_OPTION_TEXT, AT(output), .argument = "DIR",
     .help = "folder of the survey; made if it is not there"},
    {"stars", MILL_OPTION_INTEGER, AT(mock.n_star), .min = 1, .max = 1000000000,
     .help = "rows of the survey"},
    {"per-file", COUNT(per_file, 1, MILL_SIMULATE_MAX_PER_FILE), .help = "rows per file"},
    {"redrock", FLAG(redrock), .help = "also write redrock files"},
    {"overwrite", FLAG(overwrite), .help = "remove the existing survey and start over"},
    {.name = "stars"},
    {"seed", MILL_OPTION_SEED, AT(mock.seed), .argument = "S", .help = "same seed, same bytes"},
    {"library", MILL_OPTION_TEXT, AT(library), .argument = "FILE",
     .help = "library to draw the stars from: arms b, r and z, or one arm that covers them "
             "(default: the shipped library)"},
    {"model-error", MILL_OPTION_CHOICE, AT(mock.model_error), .words = error_words,
     .help = "add a draw of the library's model error to each star, as a fit assumes it; "
             "correlated: the part outside the components is correlated, as measured"},
    {"sn", PAIR(mock.min_sn, mock.max_sn, MILL_MOCK_MIN_SN, MILL_MOCK_MAX_SN),
     .help = "median signal-to-noise of a pixel of arm r"},
    {"vel-sigma", REAL(mock.vel_sigma_km_s, MILL_MOCK_VEL_CUT),
     .help = "standard deviation of the velocities, km/s"},
    {"vsini", PAIR(mock.min_vsini, mock.max_vsini, MILL_MOCK_MIN_VSINI, MILL_MOCK_MAX_VSINI),
     .help = "v sin i, km/s, log-uniform (default: most below 10, a tail to 150)"},
    {.name = "instrument"},
    {"distortion", REAL(mock.distortion, MILL_MOCK_MAX_DISTORTION),
     .help = "rms of the smooth calibration error"},
    {"noiseless", FLAG(mock.noiseless), .help = "no noise, cosmics and calibration error"},
    {"pathological", COUNT(mock.n_pathological, 0, 1000), .help = "rows per 1000 with a defect"},
    {.name = "running"},
    {"threads", COUNT(n_thread, 0, 4096), .help = "threads per rank; 0: all cores available to it"},
    {"quiet", FLAG(quiet), .help = "no progress and no summary"},
    MILL_OPTION_HELP(mill_simulate_options),
    {0}};

static const mill_option_table table = {
    "starmill simulate",
    "usage: starmill simulate --output DIR [options]\n"
    "\n"
    "Make a mock survey: coadd files in DESI's layout and a table of the truth.  Run it\n"
    "under mpirun or srun for more ranks; the ranks share the files.  Repeat the same command\n"
    "to continue an interrupted survey; a complete one is left alone.\n"
    "\n",
    "\n"
    "SIGTERM, SIGINT and SIGUSR1 drop the file under way and stop.\n"
    "Exit status: 0 done, 2 usage or library, 4 output or disk, 70 internal error,\n"
    "75 stopped in good order.\n",
    rows};

static const mill_simulate_options usual = {.mock = MILL_MOCK_USUAL, .per_file = 500};

const mill_option_help mill_simulate_help = {&table, &usual};

/* Checks of several options. */
static int check(const mill_simulate_options *options)
{
  const mill_mock_settings *mock = &options->mock;
  if (options->help)
    return MILL_OK;
  MILL_CHECK(mill_thread_check_number(options->n_thread));
  if (!options->output)
    return MILL_ERROR(MILL_ERR_USAGE, "no output: give --output DIR; see starmill simulate --help");
  const int64_t n_file = (mock->n_star + options->per_file - 1) / options->per_file;
  if (n_file > MILL_SIMULATE_MAX_FILE)
    return MILL_ERROR(
        MILL_ERR_USAGE,
        "--stars %lld in files of --per-file %d are %lld files, more than %d: give more rows "
        "a file",
        (long long)mock->n_star, options->per_file, (long long)n_file, MILL_SIMULATE_MAX_FILE);
  return MILL_OK;
}

int mill_simulate_options_parse(int argc, char **argv, mill_simulate_options *options)
{
  int first = 0;
  *options = usual;
  MILL_CHECK(mill_option_parse(&table, argc, argv, options, NULL, &first));
  if (first < argc)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "simulate takes no files, not '%.80s'; see starmill simulate --help",
                      argv[first]);
  return check(options);
}
