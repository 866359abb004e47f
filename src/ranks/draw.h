/* SPDX-License-Identifier: BSD-3-Clause */
/** Distribution of the numbers 0, 1, 2, ... to the threads of all ranks, each once, one or more at
 *  a time.
 *
 *  Rank 0 keeps the counter and a thread there answers the others by messages: what every MPI
 *  does, on any network, without the help of the rank's other threads (one-sided operations do
 *  not: Open MPI 4.1 has none over TCP with MPI_THREAD_MULTIPLE).  The first numbers of a
 *  rank follow those of the rank before, without a message, so that ranks which begin together do
 *  not queue.
 *
 *  No rank waits for another that does not ask: a rank that fails or stops just draws no more, and
 *  a wait for an answer can be cancelled at any time.
 */
#ifndef MILL_DRAW_H
#define MILL_DRAW_H

#include <stdint.h>

#include "src/ranks/mpi_context.h"

typedef struct mill_draw mill_draw;

/** Collective.  The same code on every rank.  patience_s: for this time, s, a rank that asks
 *  still has work; rank 0 looks ten times as often, which costs it some 10 us each time.
 *  n_at_once: numbers that this rank takes at a time, at least 1.
 *  MILL_ERR_MEMORY, MILL_ERR_MPI, MILL_ERR_INTERNAL. */
int mill_draw_open(const mill_mpi *mpi, double patience_s, int n_at_once, mill_draw **out);

/** The next numbers of this rank, of which *number is the first; one thread at a time, not
 * collective.
 *
 *  gives_up(context) is asked while the answer is awaited: when it says 1, *number is -1, and
 *  the answer comes to the next call.  NULL: wait.  The watchdog (src/system/watchdog.h) ends the
 *  job when rank 0 does not answer.  MILL_ERR_MPI. */
int mill_draw_next(mill_draw *draw, int (*gives_up)(void *context), void *context, int64_t *number);

/** Messages answered by this rank, and seconds that this rank has waited for answers. */
void mill_draw_stats(const mill_draw *draw, int64_t *n_answered, double *wait_s);

/** Collective, when no thread of any rank draws any more: take answers that came after a rank gave
 * up, and end rank 0's thread.  MILL_ERR_MPI. */
int mill_draw_settle(mill_draw *draw);

/** Free.  Collective after mill_draw_settle; without it, where the ranks cannot talk to each
 *  other any more, the communicator is left.  NULL is allowed. */
void mill_draw_free(mill_draw *draw);

#endif
