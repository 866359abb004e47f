/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/options/job_steps.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/hdf5/output_file.h"
#include "src/system/shipped_file.h"

int mill_job_end(const char *name, int err)
{
  if (err != MILL_OK)
    fprintf(stderr, "starmill %s: %s\n", name, mill_error_message());
  return mill_error_exit_status(err);
}

int mill_mpi_job(const char *name, int (*run)(const mill_mpi *mpi, int argc, char **argv), int argc,
                 char **argv)
{
  mill_mpi mpi;
  int err = mill_mpi_start(&mpi);
  MILL_STEP(run(&mpi, argc, argv));
  const int exit_status = mill_mpi_tell(&mpi, name, err);
  mill_output_leave_if_broken(&mpi, err, exit_status);
  mill_mpi_end(&mpi);
  return exit_status;
}

/* ---- Python ---- */

/* Open MPI, MPICH or Slurm sets one of these variables to the rank.  Return 1 if one is not 0. */
int mill_python_is_other_rank(void)
{
  static const char *const name[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                                     "SLURM_PROCID"};
  for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
    const char *rank = getenv(name[i]);
    if (rank && strcmp(rank, "0") != 0)
      return 1;
  }
  return 0;
}

/* Replace this process by Python, which runs the shipped package; returns only on failure. */
static int become(int argc, char **argv)
{
  int n = 0;
  char starter[PATH_MAX], program[PATH_MAX];
  MILL_OWNED char **line = NULL;
  mill_shipped_file("python/starmill/__main__.py", starter, sizeof starter);
  if (!starter[0]) /* in a wheel, the program is inside the package */
    mill_shipped_file("starmill/__main__.py", starter, sizeof starter);
  if (!starter[0])
    return MILL_ERROR(MILL_ERR_USAGE,
                      "starmill's Python files are missing: install starmill again, so that "
                      "share/starmill/python is next to the program's bin folder");
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  program[length > 0 ? length : 0] = '\0';
  if (setenv("STARMILL_PROGRAM", program, 1) != 0)
    return MILL_ERROR(MILL_ERR_MEMORY, "cannot set an environment variable: %s", strerror(errno));
  char *python = getenv("STARMILL_PYTHON");
  if (!python || !python[0])
    python = (char *)"python3";
  /* -B: write no .pyc files; -E: ignore PYTHON... variables, which may be meant for another Python;
   * -s: leave out the user's packages if PYTHONNOUSERSITE is set, a variable that -E ignores */
  const char *user_site = getenv("PYTHONNOUSERSITE");
  char *const first[] = {python, (char *)(user_site && *user_site ? "-BEs" : "-BE"), starter};
  MILL_CHECK(MILL_ALLOC(sizeof first / sizeof *first + (size_t)argc + 1, &line));
  for (size_t i = 0; i < sizeof first / sizeof *first; i++)
    line[n++] = first[i];
  memcpy(line + n, argv, (size_t)argc * sizeof *argv);
  fflush(stdout);
  execvp(python, line);
  return MILL_ERROR(MILL_ERR_USAGE,
                    "cannot start Python as %s: %s; install python3, or name it in the environment "
                    "variable STARMILL_PYTHON",
                    python, strerror(errno));
}

int mill_python_job(int argc, char **argv)
{
  if (!mill_python_is_other_rank())
    return mill_job_end(argv[0], become(argc, argv));
  fprintf(stderr,
          "starmill %s: nothing done, as only rank 0 runs this job; to run it in each task, unset "
          "OMPI_COMM_WORLD_RANK, PMI_RANK, PMIX_RANK and SLURM_PROCID\n",
          argv[0]);
  return 0;
}
