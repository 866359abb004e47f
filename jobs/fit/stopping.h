/* SPDX-License-Identifier: BSD-3-Clause */
/** Reasons to stop a fit, and its failures, among the ranks. */
#ifndef MILL_FIT_STOPPING_H
#define MILL_FIT_STOPPING_H

#include "jobs/fit/call.h"

/** From now on the job reacts to reasons to stop. */
int mill_fit_watch_stops(const mill_fit_call *call, mill_fit_setup *setup);

/** Between the steps before the first fit: MILL_ERR_STOPPED where a reason to stop came up. */
int mill_fit_agree_to_go_on(const mill_fit_call *call, const mill_fit_setup *setup,
                            const char *step);

/** Log a failure of this rank and tell the other ranks at once, since they may take long to finish.
 *  The failure stays this thread's last one.  Not collective. */
void mill_fit_tell_failure(const mill_fit_call *call, int err);

/** Pass on that this rank's share has ended early, by err or a signal; err stays this thread's
 *  last failure.  Not collective. */
void mill_fit_stop_others(const mill_fit_call *call, int err);

/** After a failure err too: MPI must not end with a message under way. */
int mill_fit_settle_stop(const mill_fit_call *call, mill_fit_setup *setup, int err);

#endif
