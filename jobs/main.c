/* SPDX-License-Identifier: BSD-3-Clause */
/* starmill: one executable, one job per call. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "io/hdf5/hdf5_crash.h"
#include "jobs/options/job_steps.h"
#include "jobs/jobs.h"
#include "kernels/base/nvtx.h"
#include "src/config/text.h"
#include "src/particles/particle_config.h"
#include "src/system/blas_threads.h"
#include "src/system/watchdog.h"

/* A job of the program.  run gets the job's name as argv[0] and returns the exit status. */
typedef struct {
  const char *name, *summary;
  int (*run)(int argc, char **argv);
  /* option tables of the job's command lines; NULL ends the list.  A job in Python has no list. */
  const mill_option_help *const *help;
} job_row;

#define HELP(...) ((const mill_option_help *const[]){__VA_ARGS__, NULL})
#define PYTHON    mill_python_job, NULL

static const job_row job[] = {
    {"fit", "fit stellar spectra: FITS files in, one HDF5 table out", mill_job_fit,
     HELP(&mill_fit_help)},
    {"sample", "sample the posteriors of fitted stars", mill_job_sample, HELP(&mill_sample_help)},
    {"library", "make, import and inspect template libraries", mill_job_library,
     HELP(&mill_library_train_help)},
    {"grid", "compute a grid of synthetic spectra, for library build", PYTHON},
    {"simulate", "make a mock survey: DESI-like FITS files and their truth", PYTHON},
    {"convert", "put spectra of any origin into a table that fit reads", PYTHON},
    {"particles", "move particles in a potential, and write their densities", mill_job_particles,
     HELP(&mill_particles_help)},
    {"status", "show the progress of a fit, or how it ended", PYTHON},
    {"report", "make one HTML page of a result: numbers, maps, spectra", PYTHON},
    {"plot", "draw stars of a result: spectra, models, residuals", PYTHON},
    {"show", "print everything that a result holds about a star", PYTHON},
    {"select", "list the stars of a result for which an expression is true", PYTHON},
    {"compare", "compare two results of starmill or rvspecfit star by star", PYTHON},
    {"export", "write a result as FITS: rvspecfit's rvtab and rvmod, or all columns", PYTHON},
    {"merge", "join the results of a survey's parts into one", PYTHON},
    {"doctor", "check machine, GPUs, MPI and output folder, and say what to fix", mill_job_doctor,
     HELP(&mill_doctor_help)},
    {"bench", "measure the speed of fits, and above how many stars a GPU is faster", mill_job_bench,
     HELP(&mill_bench_help)},
    {0}};

enum { EXIT_USAGE = 2, STACK_BYTES = 512 << 10 /* fits have needed 256 KiB of stack */ };

static const job_row *find_job(const char *name)
{
  mill_near near = {0};
  for (const job_row *row = job; row->name; row++) {
    if (strcmp(row->name, name) == 0)
      return row;
    mill_text_nearer(name, row->name, &near);
  }
  fprintf(stderr, "starmill: no job '%s'%s%s%s; see starmill --help\n", name,
          near.name ? "; did you mean " : "", near.name ? near.name : "", near.name ? "?" : "");
  return NULL;
}

static const char more_help[] =
    "starmill help JOB, starmill JOB --help: options of a job\n"
    "starmill help config: keys of the configuration (Markdown)\n"
    "starmill help config particles: keys of the configuration of particles\n"
    "starmill help man, starmill help man JOB: the same as man pages (roff)\n"
    "starmill help completion: bash completion script\n"
    "starmill --version: versions of the program and its libraries\n";

static void print_help(FILE *out)
{
  fputs("usage: starmill JOB [options]\n\njobs\n", out);
  for (const job_row *row = job; row->name; row++)
    fprintf(out, "  %-10s %s\n", row->name, row->summary);
  fprintf(out, "\n%s", more_help);
}

/* Return the exit status after printing a page: not 0 if the page is truncated. */
static int printed(void)
{
  if (fflush(stdout) == 0 && !ferror(stdout))
    return 0;
  fprintf(stderr, "starmill: cannot print the page: %s\n", strerror(errno));
  return mill_error_exit_status(MILL_ERR_OUTPUT);
}

/* If asked, print `starmill JOB [SUB-COMMAND] --help` without starting the job, and return 1. */
static int print_job_help(const job_row *row, int argc, char **argv)
{
  char command[64];
  int n_printed = 0;
  if (argc < 2 || argc > 3 ||
      (strcmp(argv[argc - 1], "--help") != 0 && strcmp(argv[argc - 1], "-h") != 0))
    return 0;
  snprintf(command, sizeof command, "starmill %s%s%s", argv[0], argc > 2 ? " " : "",
           argc > 2 ? argv[1] : "");
  for (const mill_option_help *const *help = row->help; help && *help; help++)
    if (strcmp((*help)->table->command, command) == 0) {
      fputs(n_printed++ > 0 ? "\n" : "", stdout);
      mill_option_print_help((*help)->table, (*help)->usual, stdout);
    }
  return n_printed > 0;
}

/* starmill help [config | man | completion | JOB] */
static int help(int argc, char **argv)
{
  static char option[] = "--help";
  if (argc < 3) {
    print_help(stdout);
    return printed();
  }
  if (strcmp(argv[2], "config") == 0 && argc > 3 && strcmp(argv[3], "particles") == 0) {
    mill_particle_config_print_keys(stdout);
    return printed();
  }
  if (strcmp(argv[2], "config") == 0)
    return mill_error_exit_status(mill_config_print_keys(stdout));
  if (strcmp(argv[2], "man") == 0 || strcmp(argv[2], "completion") == 0)
    return mill_python_job(argc - 1, argv + 1);
  const job_row *row = find_job(argv[2]);
  if (!row)
    return EXIT_USAGE;
  char *line[] = {argv[2], option};
  return print_job_help(row, 2, line) ? printed() : mill_python_job(2, line);
}

/* Restart with an environment variable that libraries read before main; returns only on failure. */
static void begin_again(const char *name, const char *value, char **argv)
{
  char program[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
  if (n <= 0)
    return;
  program[n] = '\0';
  if (setenv(name, value, 1) == 0)
    execv(program, argv);
}

/* Restart with one thread of OpenBLAS, which would otherwise start a thread for each core. */
static void use_one_blas_thread(char **argv)
{
  const char *n_thread = getenv("OPENBLAS_NUM_THREADS");
  if (!n_thread || strcmp(n_thread, "1") != 0)
    begin_again("OPENBLAS_NUM_THREADS", "1", argv);
}

/* Replace the C library's exit, which OpenMP calls if it gets no thread.  End without the exit
 * handlers of libraries, which would crash or wait forever for running threads. */
__attribute__((visibility("default"))) void exit(int status)
{
  if (status == EXIT_FAILURE) {
    dprintf(STDERR_FILENO,
            "starmill: a software library (MPI, HDF5, BLAS) ended the program, probably for lack "
            "of memory or threads%s: give the job more\n",
            mill_memory_limit());
    status = mill_error_exit_status(MILL_ERR_MEMORY);
  }
  _exit(status);
}

/* Run a job under the watchdog, which stays on: exit handlers of libraries may wait forever. */
static int run_watched(const job_row *row, int argc, char **argv)
{
  /* a fit goes on after the reader of its output has ended, as in `starmill fit ... | head -1` */
  signal(SIGPIPE, SIG_IGN);
  const int is_watched = mill_watchdog_start(NULL) == MILL_OK; /* mill_mpi_start reports failure */
  const int status = row->run(argc, argv);
  if (status != 0) { /* skip exit handlers, as memory may have run out */
    fflush(NULL);
    _exit(status);
  }
  if (is_watched)
    mill_watch_begin(MILL_WATCH_START, 0, "the end of the program");
  return status;
}

int main(int argc, char **argv)
{
  /* open /dev/null in place of closed standard streams, whose numbers the next files would get;
   * standard output for reading only, so that writing to it still fails */
  for (int i = 0; i < 3; i++)
    if (fcntl(i, F_GETFD) < 0)
      (void)!open("/dev/null", i == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  /* under a limit on address space (ulimit -v), use one arena of malloc and one thread of OpenBLAS:
   * else both reserve 128 MiB for each thread, and OpenBLAS retries forever to get them */
  if (*mill_memory_limit()) {
    mallopt(M_ARENA_MAX, 1);
    use_one_blas_thread(argv);
  }
  mill_h5_name_crashes();
  /* HDF5's locks would keep ranks from reading a file that another writes; starmill has its own */
  (void)setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
  /* make a write beyond the file size limit fail with a message: the signal would kill silently */
  signal(SIGXFSZ, SIG_IGN);
  mill_nvtx_start();
  if (argc < 2) {
    print_help(stderr);
    return EXIT_USAGE;
  }
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
    return help(argc, argv);
  if (strcmp(argv[1], "--version") == 0)
    return mill_job_end("--version", mill_version_print(stdout));
  const job_row *row = find_job(argv[1]);
  if (!row)
    return EXIT_USAGE;
  if (print_job_help(row, argc - 1, argv + 1))
    return printed();
  /* jobs in Python print their own help */
  const int is_in_c = row->help != NULL, is_library = row->run == mill_job_library;
  /* a fit calls no BLAS */
  const char *core = is_library || row->run == mill_job_bench ? mill_blas_core() : NULL;
  if (core)
    begin_again("OPENBLAS_CORETYPE", core, argv);
  /* OpenBLAS's threads would idle for 0.1 s of CPU time each */
  if (is_in_c && !is_library)
    use_one_blas_thread(argv);
  struct rlimit stack; /* threads' stacks have this size, and a fit needs 256 KiB */
  if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur < STACK_BYTES) {
    fprintf(stderr,
            "starmill: stacks are limited to %llu KiB (ulimit -s): raise it to %d or more\n",
            (unsigned long long)stack.rlim_cur / 1024, STACK_BYTES / 1024);
    return EXIT_USAGE;
  }
  return is_in_c ? run_watched(row, argc - 1, argv + 1) : row->run(argc - 1, argv + 1);
}
