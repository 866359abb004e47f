/* SPDX-License-Identifier: BSD-3-Clause */
/** The rows that a run has to fit, in chunks that the ranks draw: the schedule
 *  (src/ranks/schedule.h) and the numbers drawn from it (src/ranks/draw.h). */
#ifndef MILL_WORK_H
#define MILL_WORK_H

#include "io/result/result_file.h"
#include "io/stars/inputs.h"
#include "src/ranks/mpi_context.h"
#include "src/ranks/schedule.h"

/** Work to draw.  All but rate and n_held are equal on every rank; inputs and result are borrowed
 *  for the call. */
typedef struct mill_work_plan {
  const mill_inputs *inputs;
  const mill_result_file *result; /**< which rows are wanted; NULL: all */
  int64_t n_row_limit;            /**< only rows of /fits below it; 0: all */
  double rate;                    /**< stars a second that this rank may be expected to fit; one of
                                       several times the slowest takes several chunks at a time */
  int64_t n_held;                 /**< rows that it takes before it has finished any */
  int64_t n_ahead;                /**< of them, rows that its reader has at hand */
} mill_work_plan;

typedef struct mill_work mill_work;

/** The schedule of a plan for n_rank ranks; rate and n_held are those of the plan.  Not
 *  collective.  MILL_ERR_MEMORY. */
int mill_work_schedule(const mill_work_plan *plan, int n_rank, mill_schedule **out);

/** Collective, before any row is finished; the same code on every rank.  MILL_ERR_MEMORY,
 *  MILL_ERR_MPI, MILL_ERR_INTERNAL. */
int mill_work_open(const mill_mpi *mpi, const mill_work_plan *plan, mill_work **out);

/** The next rows of this rank's chunk, or of a new one: rows of one file, those to be fitted that
 *  mill_work_wanted tells.  *there 0: there is no more, or gives_up(context) said 1 while it
 *  was awaited.  One thread at a time, not collective.  MILL_ERR_MPI. */
int mill_work_next(mill_work *work, int (*gives_up)(void *context), void *context,
                   mill_schedule_rows *piece, int *there);

/** Has the row of /fits to be fitted in this run?  (What is finished meanwhile counts too.) */
int mill_work_wanted(const mill_work *work, int64_t row);

/** Counts of the work: chunks that this rank has taken, messages that it has answered, seconds that
 *  it has waited for answers. */
typedef struct mill_work_stats {
  mill_schedule_sum sum;
  int64_t n_taken, n_answered;
  double wait_s;
} mill_work_stats;
void mill_work_get_stats(const mill_work *work, mill_work_stats *stats);

/** Collective, when no rank draws any more.  MILL_ERR_MPI. */
int mill_work_settle(mill_work *work);

/** Free.  Collective after mill_work_settle, else not; NULL is allowed. */
void mill_work_free(mill_work *work);

#endif
