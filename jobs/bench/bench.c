/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* sched_getaffinity, CPU_COUNT */

#include <sched.h>
#include <stdlib.h>

#include "io/hdf5/output_file.h"
#include "jobs/bench/bench_job.h"
#include "jobs/jobs.h"
#include "kernels/base/clock.h"
#include "src/config/text.h"
#include "src/system/shipped_file.h"
#include "src/system/version.h"

/* ---- the command line ---- */

enum { FIT = 1, CROSSOVER = 2, WRITE = 4 };

static const struct {
  const char *name;
  unsigned bit;
  int (*task)(mill_bench *job);
} tasks[] = {{"fit", FIT, mill_bench_task_fit},
             {"crossover", CROSSOVER, mill_bench_task_crossover},
             {"write", WRITE, mill_bench_task_write}};

#define AT(member)          MILL_AT(mill_bench_options, member)
#define KEY(member, of_key) MILL_OPTION_TEXT, AT(fit.member), .key = of_key

/* .tasks: bits of the tasks that use the option. */
static const mill_option rows[] = {
    {"library", MILL_OPTION_OTHER, .take = mill_fit_take_library,
     .offset = offsetof(mill_bench_options, fit), .argument = "FILE", .tasks = FIT | CROSSOVER,
     .help = "template library (default: template_lib of the configuration, else the shipped one)"},
    {"config", MILL_OPTION_TEXT, AT(fit.config), .once = 1, .tasks = FIT | CROSSOVER | WRITE,
     .help = "YAML configuration"},
    {"catalog", MILL_OPTION_TEXT, AT(fit.catalog), .tasks = FIT | CROSSOVER,
     .help = "text file with one input path per line"},
    {"optimizer", KEY(optimizer, "optimizer"), .tasks = FIT | CROSSOVER},
    {"backend", KEY(backend, "backend"), .tasks = FIT},
    {"threads", KEY(threads, "threads"), .tasks = FIT | CROSSOVER},
    {"readers", KEY(readers, "readers"), .tasks = FIT},
    {"slots", KEY(slots, "slots"), .tasks = FIT | CROSSOVER},
    {"stars", MILL_OPTION_INTEGER, AT(n_star), .min = 1, .max = 0x1p62, .tasks = FIT,
     .help = "fit the first N rows only (default: all)"},
    {"repeat", MILL_OPTION_COUNT, AT(n_repeat), .min = 1, .max = 1000, .tasks = FIT | CROSSOVER,
     .help = "number of runs; fit shows the run with the median CPU time, crossover takes the "
             "shortest run"},
    {"rows", MILL_OPTION_INTEGER, AT(n_star), .min = 1, .max = 1e9, .tasks = WRITE,
     .help = "rows to write (default: 100000)"},
    {"output", MILL_OPTION_TEXT, AT(output), .tasks = FIT | WRITE, .argument = "DIR",
     .help = "folder for the temporary result (default: $TMPDIR, or /tmp)"},
    {"work", MILL_OPTION_CHOICE, AT(work), .words = MILL_WORDS("all", "fit", "train", "particles"),
     .tasks = CROSSOVER,
     .help = "what to measure; fit needs inputs; without inputs `all` leaves out fit"},
    {"most", MILL_OPTION_INTEGER, AT(n_most), .min = 1, .max = 0x1p30, .tasks = CROSSOVER,
     .help = "largest size: stars (fit), million operations of a step (train), or particles"},
    {"limit", MILL_OPTION_REAL, AT(limit_s), .min = 1, .max = 1000000, .argument = "S",
     .tasks = CROSSOVER, .help = "skip measurements that would take longer than S seconds"},
    {"keep", MILL_OPTION_FLAG, AT(keep), .tasks = CROSSOVER,
     .help = "store the crossovers of fit and train for --backend auto"},
    {"help", MILL_OPTION_FLAG, 'h', AT(fit.help), .help = "this text"},
    {0}};

static const mill_option_table table = {
    "starmill bench",
    "usage: starmill bench fit [options] INPUT.fits...\n"
    "       starmill bench crossover [options] [INPUT.fits...]\n"
    "       mpirun -n RANKS starmill bench write [options]\n"
    "\n"
    "Measure the speed of one rank.  'fit' fits the inputs like `starmill fit`, into a temporary\n"
    "file, and prints the rate, and the time and evaluations of a star by stage.  'crossover'\n"
    "times fits of the first 1, 4, 16, ... rows of the inputs, training steps of growing size and\n"
    "growing numbers of particles, on CPU and GPU.  It prints from which size the GPU is faster.\n"
    "'write' writes a result of made-up rows by any number of ranks, and a plain file of as many\n"
    "bytes.  docs/develop/performance.md and scaling.md explain the tables.\n"
    "\n",
    "\n"
    "Exit status: 0: done; 2: usage, configuration or library; 3: some input was unreadable;\n"
    "4: output or disk; 70: internal error; 75: stopped by a signal.\n",
    rows};

static const mill_bench_options usual = {
    .n_repeat = 3, .n_most = 1000000, .limit_s = 60, .fit = {.quiet = 1}};

const mill_option_help mill_bench_help = {&table, &usual};

/* Refuse options and inputs that the task does not use; require inputs for a fit. */
static int check_task(const char *name, unsigned bit, const char *const *given,
                      const mill_bench_options *options)
{
  for (size_t i = 0; rows[i].name; i++)
    if (given[i] && !(rows[i].tasks & bit))
      return MILL_ERROR(MILL_ERR_USAGE, "'%s' does not take --%s; see starmill bench --help", name,
                        rows[i].name);
  if (bit == WRITE && options->fit.n_input > 0)
    return MILL_ERROR(MILL_ERR_USAGE, "'write' takes no input, as its rows are made up");
  if ((bit == FIT || options->work == MILL_BENCH_FIT) && options->fit.n_input == 0 &&
      !options->fit.catalog)
    return MILL_ERROR(MILL_ERR_USAGE, "no input: name FITS files or give --catalog FILE");
  return MILL_OK;
}

static int parse(int argc, char **argv, mill_bench_options *options)
{
  int first = 0;
  const char *given[MILL_OPTION_MAX];
  *options = usual;
  MILL_CHECK(mill_option_parse(&table, argc, argv, options, given, &first));
  if (options->fit.help)
    return MILL_OK;
  const char *name = first < argc ? argv[first] : "";
  options->fit.input = argv + first + 1;
  options->fit.n_input = argc - first - 1;
  for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++)
    if (strcmp(name, tasks[i].name) == 0) {
      options->task = tasks[i].task;
      return check_task(name, tasks[i].bit, given, options);
    }
  return MILL_ERROR(
      MILL_ERR_USAGE,
      "bench measures 'fit', 'crossover' or 'write', not '%s'; see starmill bench --help", name);
}

/* ---- shared by the tasks ---- */

void mill_bench_print_head(const mill_bench *job, const char *backend)
{
  printf("Measured on %.10s with starmill %s, revision %s (%s), on %s, %d cores", job->date,
         mill_version(), mill_version_revision(), mill_version_compiler(), job->cpu, job->n_core);
  if (backend)
    printf(", backend %s", backend);
  printf(".\n\n```\n%s\n```\n\n", job->command);
}

void mill_bench_print_cell(int there, int n_digit, double value, const char *without)
{
  if (there)
    printf(" %.*f |", n_digit, value);
  else
    printf("%s%s |", without[0] ? " " : "", without);
}

/* ---- the job ---- */

/* Read the command line, list the inputs and make the fit's configuration.  If neither --library
 * nor the configuration names a library, take the first shipped library. */
static int prepare(mill_bench *job, int argc, char **argv)
{
  mill_fit_options *fit = &job->options.fit;
  mill_config *config = &job->config;
  MILL_CHECK(mill_command_text(argc, argv, &job->command));
  MILL_CHECK(parse(argc, argv, &job->options));
  if (fit->help)
    return MILL_OK;
  if (job->mpi.size > 1 && job->options.task != mill_bench_task_write)
    return MILL_ERROR(MILL_ERR_USAGE, "bench measures one rank, not %d: run it without mpirun",
                      job->mpi.size);
  for (int i = 0; i < fit->n_input; i++)
    MILL_CHECK(mill_path_list_add(&job->input, fit->input[i]));
  if (fit->catalog)
    MILL_CHECK(mill_catalog_list_read(fit->catalog, &job->input));
  mill_config_default(config);
  if (fit->config)
    MILL_CHECK(mill_config_read(config, fit->config));
  MILL_CHECK(mill_fit_options_apply(fit, config));
  MILL_CHECK(mill_config_check(config));
  if (config->n_template_lib > 1)
    return MILL_ERROR(MILL_ERR_USAGE, "bench measures one library, not %d: choose it by --library",
                      config->n_template_lib);
  if (config->n_template_lib == 0 &&
      mill_shipped_libraries(config->template_lib[0], sizeof config->template_lib[0], 1))
    fit->library[fit->n_library++] = config->template_lib[0]; /* the fits take it from there */
  return MILL_OK;
}

static int start(mill_bench *job, int argc, char **argv)
{
  cpu_set_t cores;
  mill_utc_text(mill_unix_s(), job->date);
  job->n_core = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 0;
  mill_cpu_model(job->cpu, sizeof job->cpu);
  MILL_CHECK(mill_mpi_agree(&job->mpi, prepare(job, argc, argv)));
  if (mill_option_helped(job->options.fit.help, job->mpi.rank, &table, &usual))
    return MILL_OK;
  return job->options.task(job);
}

int mill_job_bench(int argc, char **argv)
{
  mill_bench job = {0};
  int err = mill_mpi_start(&job.mpi);
  MILL_STEP(start(&job, argc, argv));
  if (err != MILL_OK)
    job.exit_status = mill_mpi_tell(&job.mpi, "starmill bench", err);
  mill_library_clear(&job.lib);
  mill_config_clear(&job.config);
  mill_path_list_clear(&job.input);
  free(job.command);
  mill_output_leave_if_broken(&job.mpi, err, job.exit_status);
  mill_mpi_end(&job.mpi);
  return job.exit_status;
}
