/* SPDX-License-Identifier: BSD-3-Clause */
/** Rows to fit: src/ranks/schedule.h cuts them into chunks, src/ranks/draw.h deals these out. */
#pragma once

#include "io/stars/inputs.h"
#include "src/ranks/schedule.h"

/** Plan of the work; only rate, n_held and n_ahead may differ between ranks. */
typedef struct mill_work_plan {
  const mill_inputs *inputs;      /**< borrowed during a call; so is result */
  const mill_result_file *result; /**< tells which rows are not done; NULL: fit all rows */
  int64_t n_row_limit;            /**< fit only the first n_row_limit rows of /fits; 0: all */
  double rate;                    /**< expected stars/s; fast ranks draw several chunks together */
  int64_t n_held;                 /**< rows that this rank takes before it finishes the first */
  int64_t n_ahead;                /**< how many of the n_held rows are in this rank's reader */
} mill_work_plan;

typedef struct mill_work mill_work;

/** Make the schedule of n_rank ranks that all have this plan.  MILL_ERR_MEMORY. */
int mill_work_schedule(const mill_work_plan *plan, int n_rank, mill_schedule **out);

/** Prepare to share the rows to fit among ranks.  Call it before the first row is fitted.
 *  Collective; the same code on every rank: MILL_ERR_MEMORY, MILL_ERR_MPI, MILL_ERR_INTERNAL. */
int mill_work_open(const mill_mpi *mpi, const mill_work_plan *plan, mill_work **out);

/** Get this rank's next rows, all of one file; mill_work_wanted tells which of them to fit.
 *  *there 0: no rows are left, or gives_up(context) returned 1 while this call waited.
 *  One thread at a time; not collective.  MILL_ERR_MPI. */
int mill_work_next(mill_work *work, int (*gives_up)(void *context), void *context,
                   mill_schedule_rows *piece, int *there);

/** Was this row of /fits not yet done when the work was opened? */
int mill_work_wanted(const mill_work *work, int64_t row);

/** Counts of the work. */
typedef struct mill_work_stats {
  mill_schedule_sum sum;
  int64_t n_taken;    /**< chunks taken by this rank */
  int64_t n_answered; /**< messages answered by this rank */
  double wait_s;      /**< seconds that this rank waited for answers */
} mill_work_stats;
void mill_work_get_stats(const mill_work *work, mill_work_stats *stats);

/** End the drawing; no rank may draw any more.  Collective.  MILL_ERR_MPI. */
int mill_work_settle(mill_work *work);

/** Free the work.  Collective if mill_work_settle was called; NULL is allowed. */
void mill_work_free(mill_work *work);
MILL_CLOSER(mill_work, mill_work_free)
