/* SPDX-License-Identifier: BSD-3-Clause */
/** Rows to be fitted, in chunks that the ranks draw: the schedule (src/ranks/schedule.h) and the
 *  drawing (src/ranks/draw.h). */
#ifndef MILL_WORK_H
#define MILL_WORK_H

#include "io/result/result_file.h"
#include "io/stars/inputs.h"
#include "src/ranks/mpi_context.h"
#include "src/ranks/schedule.h"

/** Plan of the work, equal on all ranks except rate and n_held; inputs and result are borrowed for
 *  the call. */
typedef struct mill_work_plan {
  const mill_inputs *inputs;
  const mill_result_file *result; /**< which rows are wanted; NULL: all */
  int64_t n_row_limit;            /**< only rows of /fits below it; 0: all */
  double rate;                    /**< expected stars/s; fast ranks draw several chunks at once */
  int64_t n_held;                 /**< rows that this rank takes before it finishes one */
  int64_t n_ahead;                /**< of these, rows that its reader holds */
} mill_work_plan;

typedef struct mill_work mill_work;

/** Make the schedule of a plan for n_rank ranks, which all have its rate and n_held.  Not
 *  collective. MILL_ERR_MEMORY. */
int mill_work_schedule(const mill_work_plan *plan, int n_rank, mill_schedule **out);

/** Open the work, before any row is finished.  Collective, with the same code on every rank:
 *  MILL_ERR_MEMORY, MILL_ERR_MPI, MILL_ERR_INTERNAL. */
int mill_work_open(const mill_mpi *mpi, const mill_work_plan *plan, mill_work **out);

/** Get the next rows of this rank's chunk, or of a new chunk: rows of one file, of which
 *  mill_work_wanted says which to fit.  *there 0: there are no more, or gives_up(context) returned
 *  1 while this call waited.  One thread at a time, not collective.  MILL_ERR_MPI. */
int mill_work_next(mill_work *work, int (*gives_up)(void *context), void *context,
                   mill_schedule_rows *piece, int *there);

/** Was the row of /fits to be fitted when the work was opened? */
int mill_work_wanted(const mill_work *work, int64_t row);

/** Counts of the work. */
typedef struct mill_work_stats {
  mill_schedule_sum sum;
  int64_t n_taken;    /**< chunks that this rank has taken */
  int64_t n_answered; /**< messages that it has answered */
  double wait_s;      /**< seconds that it has waited for answers */
} mill_work_stats;
void mill_work_get_stats(const mill_work *work, mill_work_stats *stats);

/** End the drawing, when no rank draws any more.  Collective.  MILL_ERR_MPI. */
int mill_work_settle(mill_work *work);

/** Free the work.  Collective if mill_work_settle was called; NULL is allowed. */
void mill_work_free(mill_work *work);

#endif
