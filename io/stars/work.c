/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/stars/work.h"

#include <string.h>

#include "src/ranks/draw.h"
#include "src/system/regular_file.h"

struct mill_work {
  mill_schedule *schedule;
  mill_draw *draw;
  mill_schedule_walk walk; /* position in the current chunk */
  int n_at_once;           /* chunks that this rank draws together */
  int64_t n_taken;
  int ended;
};

int mill_work_schedule(const mill_work_plan *plan, int n_rank, mill_schedule **out)
{
  MILL_OWNED mill_schedule_file *file = NULL;
  MILL_OWNED uint8_t *wanted = NULL;
  int64_t n_row = 0;
  *out = NULL;
  MILL_CHECK(MILL_ALLOC(plan->inputs->n_file, &file));
  for (int i = 0; i < plan->inputs->n_file; i++) {
    const mill_input_file *from = &plan->inputs->file[i];
    const double n_exposure =
        from->n_row > 0 ? (double)plan->inputs->n_exposure[i] / (double)from->n_row : 1.0;
    file[i] = (mill_schedule_file){
        .row_start = from->row_start,
        .n_row = from->n_row,
        .row_cost = mill_schedule_row_cost(n_exposure),
        .open_cost = mill_schedule_open_cost(from->size, mill_is_gz(from->path), plan->rate)};
    n_row += from->n_row;
  }
  if (plan->result) {
    MILL_CHECK(mill_alloc_bytes((size_t)n_row / 8 + 1, 1, (void **)&wanted));
    mill_result_wanted_bits(plan->result, wanted);
  }
  const mill_schedule_plan what = {.n_file = plan->inputs->n_file,
                                   .file = file,
                                   .wanted = wanted,
                                   .n_row_limit = plan->n_row_limit,
                                   .n_rank = n_rank,
                                   .rate = plan->rate,
                                   .n_held = plan->n_held};
  return mill_schedule_make(&what, out);
}

int mill_work_open(const mill_mpi *mpi, const mill_work_plan *plan, mill_work **out)
{
  MILL_AT_END(mill_work_free_at) mill_work *work = NULL;
  mill_work_plan agreed = *plan;
  double patience_s = (double)plan->n_ahead / plan->rate; /* s of work left when a rank asks */
  int n_rank = 0;
  *out = NULL;
  /* a rank n times as fast as the slowest counts as n ranks: it draws n chunks together */
  MILL_CHECK_MPI(MPI_Allreduce(&plan->rate, &agreed.rate, 1, MPI_DOUBLE, MPI_MIN, mpi->comm));
  const int n_mine = (int)fmax(1.0, round(plan->rate / agreed.rate));
  const int64_t n_held = plan->n_held / n_mine; /* of each of these n_mine */
  MILL_CHECK_MPI(MPI_Allreduce(&n_mine, &n_rank, 1, MPI_INT, MPI_SUM, mpi->comm));
  MILL_CHECK_MPI(MPI_Allreduce(&n_held, &agreed.n_held, 1, MPI_INT64_T, MPI_MIN, mpi->comm));
  MILL_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, &patience_s, 1, MPI_DOUBLE, MPI_MIN, mpi->comm));
  int code = MILL_ALLOC(1, &work);
  if (code == MILL_OK)
    code = mill_work_schedule(&agreed, n_rank, &work->schedule);
  MILL_CHECK(mill_mpi_agree(mpi, code));
  work->n_at_once = n_mine;
  MILL_CHECK(mill_draw_open(mpi, patience_s, n_mine, &work->draw));
  return MILL_GIVE(&work, out);
}

/* Get the next rows of the chunks drawn so far; if none are left, draw new chunks. */
int mill_work_next(mill_work *work, int (*gives_up)(void *context), void *context,
                   mill_schedule_rows *piece, int *there)
{
  *there = 0;
  while (!work->ended) {
    int64_t first_chunk = -1;
    mill_schedule_sum sum;
    *there = mill_schedule_next(work->schedule, &work->walk, piece);
    if (*there)
      break;
    MILL_CHECK(mill_draw_next(work->draw, gives_up, context, &first_chunk));
    if (first_chunk < 0)
      break;
    mill_schedule_sums(work->schedule, &sum);
    work->ended = first_chunk >= sum.n_chunk;
    if (work->ended)
      break;
    const int64_t n_left = sum.n_chunk - first_chunk;
    work->n_taken += n_left < work->n_at_once ? n_left : work->n_at_once;
    mill_schedule_begin(work->schedule, first_chunk, work->n_at_once, &work->walk);
  }
  return MILL_OK;
}

int mill_work_wanted(const mill_work *work, int64_t row)
{
  return mill_schedule_wanted(work->schedule, row);
}

void mill_work_get_stats(const mill_work *work, mill_work_stats *stats)
{
  memset(stats, 0, sizeof *stats);
  mill_schedule_sums(work->schedule, &stats->sum);
  stats->n_taken = work->n_taken;
  mill_draw_stats(work->draw, &stats->n_answered, &stats->wait_s);
}

int mill_work_settle(mill_work *work)
{
  return work ? mill_draw_settle(work->draw) : MILL_OK;
}

void mill_work_free(mill_work *work)
{
  if (!work)
    return;
  mill_draw_free(work->draw);
  mill_schedule_free(work->schedule);
  mill_free(work);
}
