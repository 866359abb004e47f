/** Ends a job in which something that must return does not.
 *
 *  What may hang (a file system, a collective call, a device) is announced before and taken
 *  back after; a thread looks on.  When something takes longer than its bound, the reason goes
 *  to the log and to standard error and the whole job is aborted with the status of an internal
 *  error, for the same command continues it; neither a log that hangs as well nor an MPI that
 *  does not abort can keep the process.
 *
 *  A wish to stop (src/system/stop_signal.h) cannot be heard inside such a call, so the watchdog
 * hears it: what waits for something outside ends the job some seconds after the wish, with the
 *  status of a stop.
 *
 *  Only time in which this process ran counts: a job that was suspended is not ended on waking.
 *  It runs as long as MPI does: see mill_mpi_start.
 */
#ifndef MILL_WATCHDOG_H
#define MILL_WATCHDOG_H

/** What waits, and so how long it may still take after a wish to stop.  All of it is less than
 *  the 30 s that Slurm leaves between SIGTERM and SIGKILL. */
enum mill_watch_kind {
  MILL_WATCH_WORK,  /**< computes: comes to its end, whatever is asked */
  MILL_WATCH_START, /**< before the first fit, where nothing is lost: 5 s after any wish */
  MILL_WATCH_FILE,  /**< reads, writes or closes: 20 s after SIGTERM or SIGINT */
  MILL_WATCH_RANKS  /**< for other ranks, which have announced why, so without a bound of its
                         own: 25 s after SIGTERM or SIGINT */
};

/** Start the thread.  The bound is 600 s, or the environment variable STARMILL_WATCHDOG_S.
 *  Announcements before are not watched.
 *  MILL_ERR_INTERNAL; MILL_ERR_USAGE when the variable is no positive number. */
int mill_watchdog_start(void);

/** Stop looking; not started is fine. */
void mill_watchdog_stop(void);

/** From now on until mill_watch_end it must not take longer than the bound and extra_s more.
 *  what: as a subject for "... has not returned"; longer texts are cut.  Any thread.  Costs less
 *  than a microsecond beside the text.  Gives a token; -1 (nothing is watched) is fine for
 *  mill_watch_end and mill_watch_again. */
int mill_watch_begin(enum mill_watch_kind kind, double extra_s, const char *what, ...)
    __attribute__((format(printf, 3, 4)));

/** It goes on: its time begins anew. */
void mill_watch_again(int token);
void mill_watch_end(int token);

#endif
