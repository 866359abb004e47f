/* SPDX-License-Identifier: BSD-3-Clause */
/** What a fit prints and warns of at its end. */
#ifndef MILL_FIT_SUMMARY_H
#define MILL_FIT_SUMMARY_H

#include "jobs/fit/task.h"

/** Collective: how the work was shared, and the summary on rank 0's standard output.  fit_s: wall
 *  seconds since the set-up. */
int mill_fit_print_summary(const mill_fit_task *task, double fit_s);

#endif
