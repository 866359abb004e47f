/* SPDX-License-Identifier: BSD-3-Clause */
/** `starmill library`: make and inspect libraries. */
#ifndef MILL_JOB_LIBRARY_H
#define MILL_JOB_LIBRARY_H

#include "jobs/options/option_table.h"

/** argv[0] is the job, argv[1] the sub-command, its options and files follow.  Starts MPI where the
 *  sub-command needs it; then collective, and the exit status is the same on every rank. */
int mill_job_library(int argc, char **argv);

extern const mill_option_help mill_library_train_help; /**< the others are in Python */

#endif
