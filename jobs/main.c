/* starmill: one executable, one job per call. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "io/hdf5/hdf5_probe.h"
#include "jobs/bench/bench.h"
#include "jobs/density/density.h"
#include "jobs/doctor/doctor.h"
#include "jobs/export/export.h"
#include "jobs/fit/fit.h"
#include "jobs/library/library.h"
#include "jobs/merge/merge.h"
#include "jobs/particles/particles.h"
#include "jobs/sample/sample.h"
#include "jobs/simulate/simulate.h"
#include "jobs/status/status.h"
#include "jobs/doctor/version.h"
#include "kernels/base/error.h"
#include "kernels/base/nvtx.h"
#include "src/config/config.h"
#include "src/ranks/mpi_context.h"

typedef struct job_entry {
  const char *name, *summary;
  int (*run)(int argc, char **argv);
} job_entry;

/* Its functions see the sub-command first, and MPI running. */
static int run_library(int argc, char **argv)
{
  mill_mpi mpi;
  int status;
  const int err = mill_mpi_start(&mpi);
  if (err == MILL_OK) {
    status = mill_job_library(argc - 1, argv + 1);
  } else {
    status = mill_error_exit_status(err);
    fprintf(stderr, "starmill library: %s\n", mill_error_message());
  }
  mill_mpi_end(&mpi);
  return status;
}

static const job_entry job[] = {
    {"fit", "fit stellar spectra: FITS files in, one HDF5 table out", mill_job_fit},
    {"sample", "sample the posteriors of fitted stars", mill_job_sample},
    {"library", "make, import and inspect template libraries", run_library},
    {"simulate", "make a mock survey: DESI-like FITS files and their truth", mill_job_simulate},
    {"particles", "move particles in a potential, and write their densities", mill_job_particles},
    {"density", "map catalogs by kernel density: Kiel diagram, velocities, sky", mill_job_density},
    {"status", "say how a fit is going, or how it ended", mill_job_status},
    {"export", "write a result as FITS (rvtab, rvmod or all columns), CSV or HDF5 table",
     mill_job_export},
    {"merge", "join the results of a survey's parts to one", mill_job_merge},
    {"doctor", "check machine, GPUs, MPI and output folder, and say what to fix", mill_job_doctor},
    {"bench", "measure rate, evaluations and time of a fit by stage", mill_job_bench},
};

enum { N_JOB = sizeof job / sizeof job[0], EXIT_USAGE = 2 };

static const job_entry *find_job(const char *name)
{
  for (int i = 0; i < N_JOB; i++)
    if (strcmp(job[i].name, name) == 0)
      return &job[i];
  return NULL;
}

static void print_help(FILE *out)
{
  fputs("usage: starmill JOB [options]\n\njobs\n", out);
  for (int i = 0; i < N_JOB; i++)
    fprintf(out, "  %-10s %s\n", job[i].name, job[i].summary);
  fputs("\n"
        "starmill help JOB, starmill JOB --help: what a job takes\n"
        "starmill help config: every key of the configuration (Markdown)\n"
        "starmill --version: what this program was built with\n",
        out);
}

static int help(int argc, char **argv)
{
  static char option[] = "--help";
  if (argc < 3) {
    print_help(stdout);
    return 0;
  }
  if (strcmp(argv[2], "config") == 0)
    return mill_error_exit_status(mill_config_print_keys(stdout));
  const job_entry *entry = find_job(argv[2]);
  if (!entry) {
    fprintf(stderr, "starmill: no job '%s'; see starmill --help\n", argv[2]);
    return EXIT_USAGE;
  }
  char *job_argv[] = {argv[2], option, NULL};
  return entry->run(2, job_argv);
}

int main(int argc, char **argv)
{
  mill_h5_probe_main(argc, argv);
  /* a file at the limit on sizes is a failed write with a message, not a silent death */
  signal(SIGXFSZ, SIG_IGN);
  mill_nvtx_start();
  if (argc < 2) {
    print_help(stderr);
    return EXIT_USAGE;
  }
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
    return help(argc, argv);
  if (strcmp(argv[1], "--version") == 0)
    return mill_error_exit_status(mill_version_print(stdout));
  const job_entry *entry = find_job(argv[1]);
  if (!entry) {
    fprintf(stderr, "starmill: no job '%s'; see starmill --help\n", argv[1]);
    return EXIT_USAGE;
  }
  return entry->run(argc - 1, argv + 1);
}
