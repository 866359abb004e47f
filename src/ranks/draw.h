/* SPDX-License-Identifier: BSD-3-Clause */
/** Shared counter: ranks draw the numbers 0, 1, 2, ...; each number is drawn once, and a rank draws
 *  one or more at a time.
 *
 *  A thread of rank 0 keeps the counter and answers requests by messages, since Open MPI 4.1 has no
 *  one-sided operations over TCP with MPI_THREAD_MULTIPLE.  Each rank's first numbers are fixed and
 *  need no message, so ranks do not queue at the start.
 *
 *  No rank waits for another rank to draw: a rank that fails or stops draws no more.  A rank may
 *  give up waiting for an answer at any time. */
#pragma once

#include "src/ranks/mpi_context.h"

typedef struct mill_draw mill_draw;

/** Open the counter.  Collective; returns the same code on every rank.
 *
 *  patience_s  seconds of work that a rank still has when it asks; rank 0 looks for requests about
 *              ten times in that time
 *  n_at_once   numbers that this rank draws at a time, 1 or more
 *
 *  MILL_ERR_MEMORY, MILL_ERR_MPI, MILL_ERR_INTERNAL. */
int mill_draw_open(const mill_mpi *mpi, double patience_s, int n_at_once, mill_draw **out);

/** Draw n_at_once numbers; *number is the first of them.  Not collective; one thread at a time.
 *
 *  gives_up  called repeatedly while waiting; if it returns 1, *number is -1, and the next call
 *            gets the numbers that this call has asked for.  NULL: always wait
 *
 *  The watchdog (src/system/watchdog.h) ends the job if rank 0 does not answer.  MILL_ERR_MPI. */
int mill_draw_next(mill_draw *draw, int (*gives_up)(void *context), void *context, int64_t *number);

/** Return the number of messages that this rank answered, and the seconds it waited for answers. */
void mill_draw_stats(const mill_draw *draw, int64_t *n_answered, double *wait_s);

/** Receive the answers that ranks gave up waiting for, and end rank 0's thread.  Collective,
 *  when no thread of any rank draws any more.  MILL_ERR_MPI. */
int mill_draw_settle(mill_draw *draw);

/** Free the counter; NULL is allowed.  Collective if mill_draw_settle has succeeded.  Otherwise the
 *  communicator is not freed, as ranks may be unable to communicate. */
void mill_draw_free(mill_draw *draw);
