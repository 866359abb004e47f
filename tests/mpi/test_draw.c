/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers drawn by all ranks at once: each comes once, and no rank has to draw. */
#include "src/ranks/draw.h"
#include "tests/mpi/ranks.h"

enum { N_NUMBER = 600 };

/* n_at_once: of this rank. */
static mill_draw *open_draw(int n_at_once)
{
  mill_draw *draw = NULL;
  if (mill_draw_open(&mpi, 0.01, n_at_once, &draw) != MILL_OK)
    fail_msg("%s", mill_error_message());
  return draw;
}

static void close_draw(mill_draw *draw)
{
  assert_int_equal(mill_draw_settle(draw), MILL_OK);
  mill_draw_free(draw);
}

MILL_TEST(every_number_comes_once)
{
  int n_seen[N_NUMBER] = {0};
  int64_t number = 0, last = -1, n_answered = 0, n_answered_all = 0, n_mine = 0, n_asked = 0;
  double wait_s = -1;
  mill_draw *draw = open_draw(1);
  for (;;) {
    assert_int_equal(mill_draw_next(draw, NULL, NULL, &number), MILL_OK);
    assert_true(number > last);
    if (last < 0)
      assert_int_equal(number, mpi.rank);
    n_mine++;
    if (number >= N_NUMBER)
      break;
    last = number;
    n_seen[number]++;
  }
  mill_draw_stats(draw, &n_answered, &wait_s);
  assert_true(wait_s >= 0);
  assert_int_equal(mill_draw_settle(draw), MILL_OK);
  mill_draw_stats(draw, &n_answered, &wait_s);
  mill_draw_free(draw);
  n_mine = mpi.rank == 0 ? 0 : n_mine - 1; /* the first needs no message */
  MPI_Allreduce(MPI_IN_PLACE, n_seen, N_NUMBER, MPI_INT, MPI_SUM, mpi.comm);
  MPI_Allreduce(&n_mine, &n_asked, 1, MPI_INT64_T, MPI_SUM, mpi.comm);
  MPI_Allreduce(&n_answered, &n_answered_all, 1, MPI_INT64_T, MPI_SUM, mpi.comm);
  for (int i = 0; i < N_NUMBER; i++)
    assert_int_equal(n_seen[i], 1);
  assert_true(n_answered_all == n_asked);
  assert_true(mpi.rank == 0 || n_answered == 0);
}

MILL_TEST(a_rank_that_does_not_draw_stops_nobody)
{
  int64_t number = -1;
  mill_draw *draw = open_draw(1);
  /* the last rank draws nothing at all: with several, rank 0 still answers */
  if (mpi.rank != mpi.size - 1 || mpi.size == 1)
    for (int i = 0; i < 20; i++)
      assert_int_equal(mill_draw_next(draw, NULL, NULL, &number), MILL_OK);
  close_draw(draw);
  /* nor does one that was never settled: the ranks have nothing under way */
  draw = open_draw(1);
  mill_draw_free(draw);
  mill_draw_free(NULL);
}

MILL_TEST(ranks_take_several_numbers_at_a_time)
{
  int n_seen[N_NUMBER] = {0};
  int64_t number = 0, before = 0;
  const int n_mine = 1 + 3 * mpi.rank;
  mill_draw *draw = open_draw(n_mine);
  for (int rank = 0; rank < mpi.rank; rank++)
    before += 1 + 3 * rank;
  for (int n = 0; number < N_NUMBER; n++) {
    assert_int_equal(mill_draw_next(draw, NULL, NULL, &number), MILL_OK);
    if (n == 0)
      assert_true(number == before);
    for (int64_t i = number; i < number + n_mine && i < N_NUMBER; i++)
      n_seen[i]++;
  }
  close_draw(draw);
  MPI_Allreduce(MPI_IN_PLACE, n_seen, N_NUMBER, MPI_INT, MPI_SUM, mpi.comm);
  for (int i = 0; i < N_NUMBER; i++)
    assert_int_equal(n_seen[i], 1);
}

static int always(void *context)
{
  ++*(int *)context;
  return 1;
}

MILL_TEST(a_wait_can_be_given_up)
{
  int64_t number = -1, first = -1, n_missing = 0;
  int n_asked = 0;
  mill_draw *draw = open_draw(1);
  assert_int_equal(mill_draw_next(draw, always, &n_asked, &first), MILL_OK);
  assert_true(first == mpi.rank && n_asked == 0);
  for (int i = 0; i < 50; i++) {
    assert_int_equal(mill_draw_next(draw, always, &n_asked, &number), MILL_OK);
    n_missing += number < 0;
  }
  /* rank 0 has its counter at hand; others may now and then find the answer there */
  assert_true(mpi.rank == 0 ? n_missing == 0 : n_missing == n_asked);
  /* the answer under way is not lost */
  if (number < 0)
    assert_int_equal(mill_draw_next(draw, NULL, NULL, &number), MILL_OK);
  assert_true(number >= mpi.size);
  mill_draw_next(draw, always, &n_asked, &number);
  /* and may be under way at the end */
  close_draw(draw);
}

MILL_RANKS_TEST_MAIN(NULL, NULL)
