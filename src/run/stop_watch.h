/* SPDX-License-Identifier: BSD-3-Clause */
/** Thread that watches for reasons to stop a fit in good order: a signal, a stop file, the time
 *  limit, a request of another rank.
 *
 *  The thread of each rank looks several times a second, notes the reason
 *  (src/system/stop_signal.h) and tells the other ranks, even while its rank is busy or has
 *  finished.  Only rank 0 looks for the stop file, every MILL_STOP_FILE_S seconds; if the file
 *  system hangs, only this thread waits.
 *
 *  The time limit counts as reached mill_stop_margin seconds early, to stop in good order. */
#pragma once

#include "src/ranks/mpi_context.h"

enum { MILL_STOP_FILE_S = 2 };

typedef struct mill_stop_watch mill_stop_watch;

/** Start the thread.  mpi is borrowed until mill_stop_watch_end.
 *
 *  file     stop file; NULL: none
 *  limit_s  time limit in seconds after start_s (of mill_wall_s); 0: none
 *
 *  MILL_ERR_MEMORY, MILL_ERR_INTERNAL. */
int mill_stop_watch_start(mill_mpi *mpi, const char *file, double limit_s, double start_s,
                          mill_stop_watch **out);

/** Report for how many seconds a star was under way, or a write took.  The longest star and the
 *  longest write set the stop margin.  Any thread; watch NULL is allowed. */
void mill_stop_watch_star(mill_stop_watch *watch, double s);
void mill_stop_watch_write(mill_stop_watch *watch, double s);

/** Return the seconds needed to stop in good order: 2 star_s + 3 write_s + 2.
 *
 *  star_s   longest time of a star so far; 0 (no star is done) counts as 2.5
 *  write_s  longest time of a write: a write may be under way, another follows, then the closing */
double mill_stop_margin(double star_s, double write_s);

/** Write the reason why this job stops into out [size], for the log ("signal 10"). */
void mill_stop_watch_text(const mill_stop_watch *watch, char *out, size_t size);

/** MILL_ERR_STOPPED if the stop file exists; one rank calls it before the start. */
int mill_stop_file_absent(const char *file);

/** End the thread, which does not use mpi afterwards.  NULL is allowed. */
void mill_stop_watch_end(mill_stop_watch *watch);
