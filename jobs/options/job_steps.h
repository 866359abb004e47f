/* SPDX-License-Identifier: BSD-3-Clause */
/** Steps common to several jobs. */
#pragma once

/** Flush standard output.  MILL_ERR_OUTPUT if the text, named by what ("the summary"), is lost. */
int mill_job_flush(const char *what);

/** Print the failure err of a job without other ranks; returns the job's exit status. */
int mill_job_end(const char *name, int err);

/** Did an MPI launcher start this process as a rank other than 0? */
int mill_python_is_other_rank(void);

/** Replace the program by Python, which runs job argv[0] of the package python/starmill.  Returns
 *  the exit status of a failure.  Ranks other than 0 only say that they do nothing: 0. */
int mill_python_job(int argc, char **argv);
