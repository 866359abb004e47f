/* SPDX-License-Identifier: BSD-3-Clause */
/** Simulates how long a run takes: the schedule's own code with given costs, for any n_rank.
 *
 *  A rank has a reader and a pipeline.  The reader draws a chunk when it has read the last one,
 *  opens files and reads row after row, at most n_ahead rows ahead of the pipeline.  The pipeline
 *  works on as many rows at once as it has slots, first in, first out, at its rate.  Rank 0
 *  answers one request after the other. */
#pragma once

#include <math.h>
#include <string.h>

#include "src/ranks/schedule.h"

typedef struct mill_schedule_model {
  const mill_schedule *schedule;
  const mill_schedule_file *file; /**< [n_file] that the schedule was made from */
  int n_rank;
  double rate;          /**< usual rows a second of a rank of speed 1 */
  const double *speed;  /**< [n_rank] NULL: all 1 */
  const int *n_at_once; /**< [n_rank] chunks that a rank draws at a time; NULL: all 1 */
  const float *cost;    /**< [n_cost] costs of rows 0, 1 ..., repeated.  Their mean is 1;
                             their unit is the file's row_cost. */
  int64_t n_cost;
  double read_s;   /**< time to read a row */
  double alone_s;  /**< from slot to result of a usual row that is alone */
  int shares_core; /**< opening a file takes time of the pipeline */
  double answer_s; /**< time of rank 0 for a request */
  double travel_s; /**< of a request and its answer */
  int64_t n_slot, n_ahead;
  const int64_t *slots; /**< [n_rank] slots of each rank, at most n_slot; NULL: all n_slot */
} mill_schedule_model;

typedef struct mill_schedule_outcome {
  double end_s;      /**< of the last rank */
  double idle_tail;  /**< 1 - mean end of all ranks / end_s */
  double efficiency; /**< against the work without opening, reading and waiting */
} mill_schedule_outcome;

/* A rank on its way. */
typedef struct actor {
  double asks_s;        /* when it draws next */
  double read_s, fit_s; /* reader and pipeline are busy until then */
  double end_s;         /* its last row is finished */
  int64_t n_row;        /* so far */
  int64_t n_slot;
  int file;                /* open; -1: none */
  int is_done;             /* has drawn the last chunk */
  double *finish, *enters; /* [n_slot], [n_ahead] of its last rows */
} actor;

typedef struct run {
  const mill_schedule_model *m;
  actor *actor;     /* [n_rank] */
  double *memory;   /* of the actors' lists */
  double answers_s; /* rank 0 is busy until then */
  double work;      /* done, in usual rows */
} run;

/* The rank that draws next; -1: all have drawn their last chunk. */
static int next_rank(const run *r)
{
  int first = -1;
  for (int i = 0; i < r->m->n_rank; i++)
    if (!r->actor[i].is_done && (first < 0 || r->actor[i].asks_s < r->actor[first].asks_s))
      first = i;
  return first;
}

static void do_row(run *r, actor *a, double speed, int64_t row, double row_cost)
{
  const mill_schedule_model *m = r->m;
  const double cost = row_cost * (double)m->cost[row % m->n_cost];
  /* room for another row ahead */
  if (a->n_row >= m->n_ahead)
    a->read_s = fmax(a->read_s, a->enters[a->n_row % m->n_ahead]);
  a->read_s += m->read_s * row_cost;
  double enters = a->read_s;
  if (a->n_row >= a->n_slot)
    enters = fmax(enters, a->finish[a->n_row % a->n_slot]);
  a->enters[a->n_row % m->n_ahead] = enters;
  a->fit_s = fmax(a->fit_s, enters) + cost / (m->rate * speed);
  a->finish[a->n_row % a->n_slot] = a->fit_s;
  a->end_s = fmax(a->end_s, fmax(a->fit_s, enters + m->alone_s * cost / speed));
  a->n_row++;
  r->work += cost;
}

static int at_once(const mill_schedule_model *m, int rank)
{
  return m->n_at_once ? m->n_at_once[rank] : 1;
}

static void do_chunks(run *r, int rank, int64_t number)
{
  const mill_schedule_model *m = r->m;
  actor *a = &r->actor[rank];
  const double speed = m->speed ? m->speed[rank] : 1.0;
  mill_schedule_walk walk;
  mill_schedule_rows piece;
  mill_schedule_begin(m->schedule, number, at_once(m, rank), &walk);
  while (mill_schedule_next(m->schedule, &walk, &piece)) {
    const mill_schedule_file *file = &m->file[piece.file];
    if (a->file != piece.file) {
      const double open_s = file->open_cost / m->rate;
      a->file = piece.file;
      a->read_s += open_s;
      if (m->shares_core)
        a->fit_s += open_s;
    }
    for (int64_t row = piece.first; row < piece.end; row++)
      if (mill_schedule_wanted(m->schedule, file->row_start + row))
        do_row(r, a, speed, file->row_start + row, file->row_cost);
  }
  a->asks_s = a->read_s;
}

/* When the answer arrives to who asks at asks_s. */
static double answer(run *r, int rank, double asks_s)
{
  if (rank == 0)
    return asks_s;
  r->answers_s = fmax(r->answers_s, asks_s + 0.5 * r->m->travel_s) + r->m->answer_s;
  return r->answers_s + 0.5 * r->m->travel_s;
}

static int set_up(run *r, const mill_schedule_model *m)
{
  const size_t n = (size_t)(m->n_slot + m->n_ahead);
  MILL_CHECK(MILL_ALLOC(m->n_rank, &r->actor));
  MILL_CHECK(MILL_ALLOC((size_t)m->n_rank * n, &r->memory));
  for (int i = 0; i < m->n_rank; i++) {
    r->actor[i].finish = r->memory + (size_t)i * n;
    r->actor[i].enters = r->actor[i].finish + m->n_slot;
    r->actor[i].file = -1;
    r->actor[i].n_slot = m->slots ? m->slots[i] : m->n_slot;
  }
  return MILL_OK;
}

/** MILL_ERR_MEMORY, MILL_ERR_RANGE (a setting that cannot be). */
static int mill_schedule_model_run(const mill_schedule_model *m, mill_schedule_outcome *outcome)
{
  int err = MILL_OK;
  run r = {.m = m};
  mill_schedule_sum sum;
  double speed = 0, sum_end_s = 0;
  int64_t number = 0;
  memset(outcome, 0, sizeof *outcome);
  if (m->n_rank < 1 || m->n_slot < 1 || m->n_ahead < 1 || m->n_cost < 1 || !(m->rate > 0))
    MILL_FAIL(MILL_ERR_RANGE, "a schedule needs at least one rank, slot, row ahead and cost");
  MILL_TRY(set_up(&r, m));
  mill_schedule_sums(m->schedule, &sum);
  for (int i = 0; i < m->n_rank; i++) {
    do_chunks(&r, i, number);
    number += at_once(m, i);
    speed += m->speed ? m->speed[i] : 1.0;
  }
  for (int rank; (rank = next_rank(&r)) >= 0;) {
    actor *a = &r.actor[rank];
    a->read_s = answer(&r, rank, a->asks_s);
    a->is_done = number >= sum.n_chunk;
    if (a->is_done)
      continue;
    do_chunks(&r, rank, number);
    number += at_once(m, rank);
  }
  for (int i = 0; i < m->n_rank; i++) {
    sum_end_s += r.actor[i].end_s;
    outcome->end_s = fmax(outcome->end_s, r.actor[i].end_s);
  }
  if (outcome->end_s > 0) {
    outcome->idle_tail = 1.0 - sum_end_s / m->n_rank / outcome->end_s;
    outcome->efficiency = r.work / (m->rate * speed) / outcome->end_s;
  }
done:
  MILL_FREE(r.actor, r.memory);
  return err;
}
