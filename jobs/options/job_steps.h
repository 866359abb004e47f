/* SPDX-License-Identifier: BSD-3-Clause */
/** Steps common to several jobs. */
#pragma once

#include "src/ranks/mpi_context.h"

/** Print the failure err of a job without other ranks; returns the job's exit status. */
int mill_job_end(const char *name, int err);

/** Start MPI, run a job, print its failure (mill_mpi_tell) and end MPI; returns the exit status.
 *  mill_output_leave_if_broken may end the program first.  Collective over MPI_COMM_WORLD.
 *
 *  run  does the job; frees the job's memory even on failure; sets the error message last; returns
 *       the same code on all ranks, except for MILL_ERR_MPI */
int mill_mpi_job(const char *name, int (*run)(const mill_mpi *mpi, int argc, char **argv), int argc,
                 char **argv);

/** Did an MPI launcher start this process as a rank other than 0? */
int mill_python_is_other_rank(void);

/** Replace the program by Python, which runs job argv[0] of the package python/starmill.  Returns
 *  the exit status of a failure.  Python runs on rank 0; other ranks only say so, and return 0. */
int mill_python_job(int argc, char **argv);
