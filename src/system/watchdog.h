/* SPDX-License-Identifier: BSD-3-Clause */
/** Ends a job in which a call hangs.
 *
 *  Calls that may hang (a file system, a collective call, a device) are announced before and
 *  withdrawn after; the watchdog's thread watches them.  When a call takes longer than its bound,
 *  the thread logs the reason and aborts the whole job with the status of an internal error, for
 *  the same command continues it.  A log that hangs as well, or an MPI that does not abort, cannot
 *  keep the process.
 *
 *  A thread inside such a call cannot react to a stop request (src/system/stop_signal.h), so the
 *  watchdog does, and ends the job some seconds after the request with the status of a stop.
 *
 *  Only time in which this process ran counts: a job that was suspended is not ended on waking.
 *  The watchdog runs as long as the program does, and where another program uses starmill's parts
 *  as long as MPI does: see mill_mpi_start.
 */
#ifndef MILL_WATCHDOG_H
#define MILL_WATCHDOG_H

/** Kind of a wait, which sets how long it may still take after a stop request: always less than the
 *  30 s that Slurm leaves between SIGTERM and SIGKILL. */
enum mill_watch_kind {
  MILL_WATCH_WORK,  /**< computes: runs to its end in any case */
  MILL_WATCH_START, /**< before the first fit, where nothing is lost: 5 s after any wish */
  MILL_WATCH_FILE,  /**< reads, writes or closes: 20 s after SIGTERM or SIGINT */
  MILL_WATCH_RANKS  /**< for other ranks, which have announced why, so without a bound of its
                         own: 25 s after SIGTERM or SIGINT */
};

/** Start the thread, unless it runs.  The bound is 600 s, or the environment variable
 *  STARMILL_WATCHDOG_S. Announcements before are not watched.  log takes the reason of an abort, on
 *  a thread of its own and even when the caller's threads hang; where it does not return, or is
 *  NULL, the reason goes to standard error. MILL_ERR_INTERNAL; MILL_ERR_USAGE when the variable is
 *  no positive number. */
int mill_watchdog_start(void (*log)(const char *text));

/** Stop looking, when as often called as the start; may be called when it was not started. */
void mill_watchdog_stop(void);

/** Announce a call that must not take longer than the bound and extra_s more until
 *  mill_watch_end.  what: a subject for "... has not returned"; longer texts are cut.  Any thread.
 *  Costs less than a microsecond, and the printing of the text.  Gives a token for
 *  mill_watch_end, -1 if nothing is watched. */
int mill_watch_begin(enum mill_watch_kind kind, double extra_s, const char *what, ...)
    __attribute__((format(printf, 3, 4)));

/** The thread makes progress: restart the time of all calls that it has announced. */
void mill_watch_again(void);

/** Withdraw a call; any thread, -1 is allowed. */
void mill_watch_end(int token);

#endif
