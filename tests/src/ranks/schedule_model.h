/* SPDX-License-Identifier: BSD-3-Clause */
/** A run in time: the schedule's own code with given costs and any number of ranks.
 *
 *  A rank has a reader, which draws a chunk when it has read the last one, opens files and reads
 *  row after row, and a pipeline, which works on as many rows at once as it has slots and finishes
 *  them at its rate, first in, first out; the reader is at most n_ahead rows ahead of it.  Rank 0
 *  answers one request after the other.
 */
#ifndef MILL_SCHEDULE_MODEL_H
#define MILL_SCHEDULE_MODEL_H

#include "src/ranks/schedule.h"

typedef struct mill_schedule_model {
  const mill_schedule *schedule;
  const mill_schedule_file *file; /**< [n_file] that the schedule was made from */
  int n_rank;
  double rate;          /**< usual rows a second of a rank of speed 1 */
  const double *speed;  /**< [n_rank] NULL: all 1 */
  const int *n_at_once; /**< [n_rank] chunks that a rank draws at a time; NULL: all 1 */
  const float *cost;    /**< [n_cost] of rows, again and again, with mean 1; the file's row_cost
                             comes on top */
  int64_t n_cost;
  double read_s;   /**< of the reader, a row */
  double alone_s;  /**< from slot to result of a usual row that is alone */
  int shares_core; /**< opening a file takes time of the pipeline */
  double answer_s; /**< of rank 0, a request */
  double travel_s; /**< of a request and its answer */
  int64_t n_slot, n_ahead;
  const int64_t *slots; /**< [n_rank] of ranks that have fewer than n_slot; NULL: none */
} mill_schedule_model;

typedef struct mill_schedule_outcome {
  double end_s;      /**< of the last rank */
  double idle_tail;  /**< 1 - mean end of all ranks / end_s */
  double efficiency; /**< against the work without opening, reading and waiting */
} mill_schedule_outcome;

/** MILL_ERR_MEMORY, MILL_ERR_RANGE (a setting that cannot be). */
int mill_schedule_model_run(const mill_schedule_model *model, mill_schedule_outcome *outcome);

#endif
