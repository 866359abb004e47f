/* SPDX-License-Identifier: BSD-3-Clause */
/** Steps common to several jobs. */
#ifndef MILL_JOB_STEPS_H
#define MILL_JOB_STEPS_H

/** Flush standard output.  MILL_ERR_OUTPUT if the text, what: "the summary", could not be
 *  written. */
int mill_job_flush(const char *what);

/** Print the failure err of a job without other ranks; returns its exit status. */
int mill_job_end(const char *name, int err);

/** Does a launcher of MPI say that this process is not rank 0? */
int mill_python_is_other_rank(void);

/** Run a job written in Python: the program becomes Python with the package python/starmill, which
 *  reads the job's options; argv[0] is its name.  Returns only on failure, with the exit status,
 *  and (0) on ranks other than 0 of an MPI run, which have nothing to do. */
int mill_python_job(int argc, char **argv);

#endif
