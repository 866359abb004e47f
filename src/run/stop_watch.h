/* SPDX-License-Identifier: BSD-3-Clause */
/** Watches for reasons to stop a fit in good order: a signal, a stop file, the time limit, another
 *  rank.
 *
 *  A thread of each rank looks a few times a second, notes the reason (src/system/stop_signal.h)
 *  and tells the other ranks, so that a rank that is busy with something else, or already done,
 *  hears of it and passes it on.  Only rank 0 looks for the stop file, every
 *  MILL_STOP_FILE_S; a file system that hangs there blocks nothing else.
 *
 *  The time limit is reached when the time left is that needed to stop in good order: see
 *  mill_stop_margin.
 */
#ifndef MILL_STOP_WATCH_H
#define MILL_STOP_WATCH_H

#include "src/ranks/mpi_context.h"

enum { MILL_STOP_FILE_S = 2 };

typedef struct mill_stop_watch mill_stop_watch;

/** Start the thread.  mpi and file are borrowed until mill_stop_watch_end; file: NULL none.
 *  limit_s: of this process, from start_s on (mill_wall_s); 0: none.  MILL_ERR_MEMORY,
 *  MILL_ERR_INTERNAL. */
int mill_stop_watch_start(mill_mpi *mpi, const char *file, double limit_s, double start_s,
                          mill_stop_watch **out);

/** Measured times that a stop depends on, in seconds: the longest time that a star of this rank was
 *  under way, and the longest that writing has taken so far.  Any thread; watch NULL is allowed. */
void mill_stop_watch_star(mill_stop_watch *watch, double s);
void mill_stop_watch_write(mill_stop_watch *watch, double s);

/** Time to end in good order: the stars under way (twice as long as any took so far), two
 *  writes of which one may have just begun and the close of the file, two seconds for all else.
 *  Five seconds are assumed before a first star is done. */
double mill_stop_margin(double star_s, double write_s);

/** Why this job stops, as a clause for the log ("signal 10"), into out [size]. */
void mill_stop_watch_text(const mill_stop_watch *watch, char *out, size_t size);

/** Is the stop file there?  One rank asks before the start.  MILL_ERR_STOPPED says so. */
int mill_stop_file_absent(const char *file);

/** End the thread.  After it mpi is not used any more.  NULL is allowed. */
void mill_stop_watch_end(mill_stop_watch *watch);

#endif
