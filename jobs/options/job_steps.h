/* SPDX-License-Identifier: BSD-3-Clause */
/** Steps that several jobs have. */
#ifndef MILL_JOB_STEPS_H
#define MILL_JOB_STEPS_H

/** MILL_ERR_OUTPUT where the printed text, "the summary", has not reached standard output. */
int mill_job_flush(const char *what);

/** Report the failure of the job of that name, which has no other ranks; returns its exit
 *  status. */
int mill_job_end(const char *name, int err);

#endif
