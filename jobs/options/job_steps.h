/* SPDX-License-Identifier: BSD-3-Clause */
/** Steps common to several jobs. */
#ifndef MILL_JOB_STEPS_H
#define MILL_JOB_STEPS_H

/** Flush standard output.  MILL_ERR_OUTPUT if the text, what: "the summary", could not be
 *  written. */
int mill_job_flush(const char *what);

/** Print the failure err of a job without other ranks; returns its exit status. */
int mill_job_end(const char *name, int err);

#endif
