/* SPDX-License-Identifier: BSD-3-Clause */
/** Watchdog: a thread that ends the job if a call hangs.
 *
 *  A call that may hang (file system, collective call, device) is announced before and withdrawn
 *  after.  If it takes longer than its bound, the watchdog logs the reason and aborts the whole
 *  job, with the status of an internal error; the same command continues the job.  The process ends
 *  even if the log or MPI hangs, too.
 *
 *  A thread in such a call cannot react to a stop request (src/system/stop_signal.h); so the
 *  watchdog ends the job some seconds after the request, with the status of a stop.
 *
 *  Only time in which the process ran counts: a job is not ended when it wakes from suspension.
 *  The watchdog runs during the whole program; in another program that uses starmill's parts, from
 *  mill_mpi_start to mill_mpi_end.
 */
#ifndef MILL_WATCHDOG_H
#define MILL_WATCHDOG_H

/** Kind of an announced call: sets how long it may take after a stop request, always less than the
 *  30 s that Slurm leaves between SIGTERM and SIGKILL. */
enum mill_watch_kind {
  MILL_WATCH_WORK,  /**< computes: no limit */
  MILL_WATCH_START, /**< before the first fit, where nothing is lost: 5 s after any request */
  MILL_WATCH_FILE,  /**< reads, writes or closes: 20 s after SIGTERM or SIGINT */
  MILL_WATCH_RANKS  /**< waits for other ranks: 25 s after SIGTERM or SIGINT.  Has no other bound:
                         the rank that hangs has announced its own call */
};

/** Start the watchdog, unless it runs; calls announced before are not watched.  The bound is 600 s,
 *  or the environment variable STARMILL_WATCHDOG_S.
 *
 *  log  gets the reason of an abort, on a thread of its own; if it hangs or is NULL, the reason
 *       goes to standard error
 *
 *  MILL_ERR_INTERNAL; MILL_ERR_USAGE if the variable is not a positive number. */
int mill_watchdog_start(void (*log)(const char *text));

/** Stop the watchdog, at the last call if it was started several times. */
void mill_watchdog_stop(void);

/** Announce a call that must end (mill_watch_end) within the bound plus extra_s seconds.
 *
 *  what  format of a subject for "... has not returned"
 *
 *  Any thread.  Takes less than a microsecond, plus printing the text.  Returns a token for
 *  mill_watch_end, which also accepts -1, for nothing watched. */
int mill_watch_begin(enum mill_watch_kind kind, double extra_s, const char *what, ...)
    __attribute__((format(printf, 3, 4)));

/** The calling thread makes progress: restart the time of all calls that it has announced. */
void mill_watch_again(void);

/** Withdraw a call; any thread. */
void mill_watch_end(int token);

#endif
