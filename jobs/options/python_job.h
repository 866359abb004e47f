/* SPDX-License-Identifier: BSD-3-Clause */
/** Jobs that are written in Python: the program becomes Python with the package python/starmill,
 *  which reads their options. */
#ifndef MILL_PYTHON_JOB_H
#define MILL_PYTHON_JOB_H

/** 1: a launcher of MPI says that this process is not rank 0. */
int mill_python_is_other_rank(void);

/** argv[0] is the job's name.  On success Python replaces the process; the function returns the
 *  exit status of a failure, and of ranks other than 0 of an MPI run, which have nothing to do. */
int mill_python_job(int argc, char **argv);

#endif
