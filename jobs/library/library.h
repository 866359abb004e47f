/* SPDX-License-Identifier: BSD-3-Clause */
/** `starmill library`: make and inspect libraries. */
#ifndef MILL_JOB_LIBRARY_H
#define MILL_JOB_LIBRARY_H

#include "jobs/options/option_table.h"

/** argv[0] is the sub-command (import, spectra, train, info), its options and files follow.
 *  Collective over MPI_COMM_WORLD, with equal arguments: rank 0 does the work but
 *  for train, which all share.
 *  Returns the exit status, the same on every rank. */
int mill_job_library(int argc, char **argv);

extern const mill_option_help *const mill_library_help[]; /**< of its sub-commands */

#endif
