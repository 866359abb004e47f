/* SPDX-License-Identifier: BSD-3-Clause */
/** Reason to stop a job in good order, noted here and checked between steps of work.
 *
 *  SIGTERM, SIGINT and SIGUSR1 (Slurm's warning before the time limit) are such reasons; callers
 *  note other ones.  A second signal, a second or more after the first, ends the process at once,
 *  with status 128 + its number: launchers often send one request twice.
 */
#ifndef MILL_STOP_SIGNAL_H
#define MILL_STOP_SIGNAL_H

enum mill_stop_reason {
  MILL_STOP_NONE,
  MILL_STOP_SIGNAL, /**< of this process */
  MILL_STOP_FILE,   /**< a stop file */
  MILL_STOP_LIMIT,  /**< the time limit */
  MILL_STOP_OTHER   /**< another rank asked */
};

/** From now on note these signals instead of being killed by them.  MILL_ERR_INTERNAL. */
int mill_stop_signal_catch(void);

/** Note a signal that waits because the main thread cannot run its handler: a call to a file
 *  system that does not answer may hold a thread where no signal reaches it.  From a thread that
 *  blocks these signals. */
void mill_stop_signal_take_waiting(void);

/** Keep stop signals waiting in this thread, also in the program that it becomes by exec, until that
 *  takes them. */
void mill_stop_signal_hold(void);

/** Number of the first one noted, 0: none yet. */
int mill_stop_signal_seen(void);

/** Note a reason; the first counts.  Any thread. */
void mill_stop_note(enum mill_stop_reason why);

/** The first reason noted, signals included.  Costs nothing. */
enum mill_stop_reason mill_stop_reason(void);

#endif
