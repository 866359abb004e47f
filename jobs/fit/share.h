/* SPDX-License-Identifier: BSD-3-Clause */
/** A rank's share of the fits. */
#ifndef MILL_FIT_SHARE_H
#define MILL_FIT_SHARE_H

#include "jobs/fit/task.h"

/** Fit this rank's share of the rows.  Not collective: a failure here reaches the other ranks as
 *  a request to stop. */
int mill_fit_share(const mill_fit_task *task);

#endif
