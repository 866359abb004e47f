/* SPDX-License-Identifier: BSD-3-Clause */
/** Watchdog: a thread that ends the job if a call hangs.
 *
 *  - A call that may hang (file system, collective call, device) is announced before it starts and
 *    withdrawn when it returns.
 *  - If the call exceeds its bound, the watchdog logs the reason and aborts the whole job with the
 *    status of an internal error.  The process ends even if the log or MPI also hangs.
 *  - If the call lasts for some seconds after a stop request (src/system/stop_signal.h), the
 *    watchdog ends the job with the status of a stop.
 *  - Only time in which the process ran counts, not suspension.
 *  - The watchdog runs at least from mill_mpi_start to mill_mpi_end. */
#pragma once

#include "kernels/base/memory.h"

/** Kind of an announced call, which sets the seconds that the call may take after a stop request:
 *  less than Slurm's 30 s between SIGTERM and SIGKILL. */
enum mill_watch_kind {
  MILL_WATCH_WORK,  /**< computes: no limit */
  MILL_WATCH_START, /**< before the first fit, when no work can be lost: 5 s after any request */
  MILL_WATCH_FILE,  /**< reads, writes or closes: 20 s after SIGTERM or SIGINT */
  MILL_WATCH_RANKS  /**< waits for other ranks: 25 s after SIGTERM or SIGINT, else no limit */
};

/** Start the watchdog unless it runs; calls announced before are not watched.  A call's bound is
 *  600 s, or the seconds in the environment variable STARMILL_WATCHDOG_S.
 *
 *  log  receives the reason of an abort, on a separate thread; if it hangs or is NULL, the reason
 *       goes to standard error
 *
 *  MILL_ERR_INTERNAL; MILL_ERR_USAGE if the variable is not a positive number. */
int mill_watchdog_start(void (*log)(const char *text));

/** Undo one mill_watchdog_start; the watchdog stops when all starts are undone. */
void mill_watchdog_stop(void);

/** Announce a call that must end (mill_watch_end) within the bound plus extra_s seconds.
 *
 *  what  printf format of the subject in "SUBJECT has not returned"
 *
 *  Any thread.  Takes less than a microsecond, plus printing the text.  Returns a token for
 *  mill_watch_end; -1: the call is not watched. */
int mill_watch_begin(enum mill_watch_kind kind, double extra_s, const char *what, ...)
    __attribute__((format(printf, 3, 4)));

/** The calling thread makes progress: restart the clocks of all calls that it has announced. */
void mill_watch_again(void);

/** Withdraw an announced call; any thread; token -1 is allowed. */
void mill_watch_end(int token);

/** Announce a call until the block ends. */
#define MILL_WATCHED(...)                                                                          \
  MILL_AT_END(mill_watch_end_at) const int watch_ = mill_watch_begin(__VA_ARGS__)
static inline void mill_watch_end_at(const int *token)
{
  mill_watch_end(*token);
}
