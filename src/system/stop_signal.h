/* SPDX-License-Identifier: BSD-3-Clause */
/** Reasons to stop a job in good order, checked between steps of work.
 *
 *  SIGTERM, SIGINT and SIGUSR1 (Slurm's warning before the time limit) are noted as reasons;
 *  callers note others.  A signal at least a second after the first ends the process at once with
 *  status 128 + its number; earlier signals are ignored, as launchers often send two. */
#pragma once

enum mill_stop_reason {
  MILL_STOP_NONE,
  MILL_STOP_SIGNAL, /**< a signal to this process */
  MILL_STOP_FILE,   /**< a stop file */
  MILL_STOP_LIMIT,  /**< the time limit */
  MILL_STOP_OTHER   /**< another rank asked */
};

/** Note SIGTERM, SIGINT and SIGUSR1 instead of being killed by them.  MILL_ERR_INTERNAL. */
int mill_stop_signal_catch(void);

/** Note a pending signal in place of the main thread, whose handler cannot run while a call to a
 *  file system hangs.  Call it from a thread that blocks these signals. */
void mill_stop_signal_take_waiting(void);

/** Block stop signals in this thread, also after exec, until the new program unblocks them. */
void mill_stop_signal_hold(void);

/** Number of the first signal noted; 0: none yet. */
int mill_stop_signal_seen(void);

/** Note a reason; only the first counts.  Any thread. */
void mill_stop_note(enum mill_stop_reason why);

/** Return the first reason noted: one atomic read. */
enum mill_stop_reason mill_stop_reason(void);
