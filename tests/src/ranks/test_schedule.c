/* SPDX-License-Identifier: BSD-3-Clause */
/* Each wanted row is in exactly one chunk, chunks become smaller, and a file stays whole where that
 * costs nothing.  Other tests model how long runs take with these chunks. */
#include "tests/mill_test.h"

#include "src/system/random.h"
#include "tests/src/ranks/schedule_model.h"

enum { MAX_FILE = 1 << 16, MAX_ROW = 1 << 20 };

static mill_schedule_file file[MAX_FILE];
static uint8_t wanted[MAX_ROW / 8 + 1];
static int n_seen[MAX_ROW];

/* n files with the given rows, and the cost of opening each. */
static void make_files(int n, const int64_t *n_row, const double *open_cost)
{
  int64_t at = 0;
  for (int i = 0; i < n; i++) {
    file[i] = (mill_schedule_file){
        .row_start = at, .n_row = n_row[i], .row_cost = 1.0, .open_cost = open_cost[i]};
    at += n_row[i];
  }
}

static int is_plain; /* no file is compressed */

/* Make files of 1 to most rows, uniform in their logarithm; every seventh is slow to open. */
static int make_uneven(int64_t n_row, int most, double rate, uint64_t seed)
{
  mill_random random;
  int n = 0;
  mill_random_begin(&random, seed, 0, 1);
  for (int64_t at = 0; at < n_row; n++) {
    int64_t rows = (int64_t)exp(mill_random_uniform(&random) * log(most + 1.0));
    rows = rows > n_row - at ? n_row - at : rows;
    assert_true(n < MAX_FILE);
    file[n] = (mill_schedule_file){
        .row_start = at,
        .n_row = rows,
        .row_cost = n % 5 == 0 ? 1.6 : 1.0,
        .open_cost = mill_schedule_open_cost(135000 * rows, n % 7 == 0 && !is_plain, rate)};
    at += rows;
  }
  return n;
}

static mill_schedule_sum sum; /* of the schedule made last */

static mill_schedule *make(const mill_schedule_plan *plan)
{
  mill_schedule *schedule = NULL;
  assert_ok(mill_schedule_make(plan, &schedule));
  mill_schedule_sums(schedule, &sum);
  return schedule;
}

/* All rows of the files, at one core's rate. */
static mill_schedule_plan plan_of(int n_file, int n_rank)
{
  return (mill_schedule_plan){
      .n_file = n_file, .file = file, .n_rank = n_rank, .rate = 127, .n_held = 80};
}

static int is_wanted(const mill_schedule_plan *plan, int64_t row)
{
  if (plan->n_row_limit > 0 && row >= plan->n_row_limit)
    return 0;
  return !plan->wanted || (plan->wanted[row / 8] >> (row % 8) & 1);
}

/* Check that each wanted row is in one chunk; return the cost of each chunk [n_chunk]. */
static double *check_whole(const mill_schedule_plan *plan, const mill_schedule *schedule)
{
  const int n_file = plan->n_file;
  const int64_t n_row = n_file > 0 ? file[n_file - 1].row_start + file[n_file - 1].n_row : 0;
  int64_t n_wanted = 0;
  double *cost = NULL;
  mill_schedule_walk walk;
  mill_schedule_rows piece;
  assert_int_equal(MILL_ALLOC(sum.n_chunk, &cost), MILL_OK);
  memset(n_seen, 0, (size_t)n_row * sizeof *n_seen);
  for (int64_t k = 0; k < sum.n_chunk; k++) {
    int n_piece = 0;
    mill_schedule_begin(schedule, k, 1, &walk);
    for (; mill_schedule_next(schedule, &walk, &piece); n_piece++) {
      assert_true(piece.file >= 0 && piece.file < plan->n_file);
      assert_true(piece.first >= 0 && piece.first < piece.end &&
                  piece.end <= plan->file[piece.file].n_row);
      for (int64_t row = piece.first; row < piece.end; row++) {
        const int64_t at = plan->file[piece.file].row_start + row;
        n_seen[at]++;
        assert_int_equal(mill_schedule_wanted(schedule, at), is_wanted(plan, at));
        if (is_wanted(plan, at))
          cost[k] += plan->file[piece.file].row_cost;
      }
    }
    assert_true(n_piece > 0 && cost[k] > 0);
  }
  for (int64_t row = 0; row < n_row; row++) {
    n_wanted += is_wanted(plan, row);
    assert_true(n_seen[row] <= 1 && (n_seen[row] == 1 || !is_wanted(plan, row)));
  }
  assert_true(sum.n_row == n_wanted);
  /* beyond the end there is nothing */
  for (int64_t k = -1; k <= sum.n_chunk; k += sum.n_chunk + 1) {
    mill_schedule_begin(schedule, k, 1, &walk);
    assert_int_equal(mill_schedule_next(schedule, &walk, &piece), 0);
  }
  return cost;
}

MILL_TEST(every_wanted_row_is_in_one_chunk)
{
  static const int n_rank[] = {1, 2, 3, 16, 100, 5000};
  for (int k = 0; k < 60; k++) {
    mill_random random;
    mill_random_begin(&random, (uint64_t)k, 1, 2);
    const int64_t n_row = 1 + (int64_t)(mill_random_uniform(&random) * 20000);
    const double rate = k % 2 ? 127.0 : 10000.0;
    const int n_file = make_uneven(n_row, k % 3 ? 5000 : 3, rate, (uint64_t)k);
    for (int64_t i = 0; i <= n_row / 8; i++)
      wanted[i] =
          k % 4 == 0 ? (uint8_t)(mill_random_word(&random) & mill_random_word(&random)) : 0xff;
    mill_schedule_plan plan = plan_of(n_file, n_rank[k % 6]);
    plan.wanted = k % 4 == 1 ? NULL : wanted;
    plan.n_row_limit = k % 5 == 0 ? n_row / 2 : 0;
    plan.rate = rate;
    MILL_AT_END(mill_schedule_free_at) mill_schedule *schedule = make(&plan);
    mill_free(check_whole(&plan, schedule));
  }
}

MILL_TEST(nothing_to_do)
{
  for (int n_file = 0; n_file <= 3; n_file++) {
    make_files(n_file, (const int64_t[]){0, 0, 5}, (const double[]){1, 1, 1});
    memset(wanted, 0, sizeof wanted);
    mill_schedule_plan plan = plan_of(n_file, 2);
    plan.wanted = wanted;
    MILL_AT_END(mill_schedule_free_at) mill_schedule *schedule = make(&plan);
    assert_true(sum.n_chunk == 0 && sum.n_row == 0);
    mill_free(check_whole(&plan, schedule));
  }
  mill_schedule_free(NULL);
}

MILL_TEST(one_rank_takes_files_as_they_come)
{
  static const int64_t n_row[] = {10, 0, 700, 3};
  mill_schedule_walk walk;
  mill_schedule_rows piece;
  make_files(4, n_row, (const double[]){1, 1, 300, 1});
  const mill_schedule_plan plan = plan_of(4, 1);
  MILL_AT_END(mill_schedule_free_at) mill_schedule *schedule = make(&plan);
  assert_true(sum.n_chunk == 1 && sum.n_row == 713 && sum.row_cost == 713 && sum.open_cost == 302);
  mill_schedule_begin(schedule, 0, 1, &walk);
  int n_piece = 0;
  while (mill_schedule_next(schedule, &walk, &piece)) {
    n_piece++;
    assert_true(piece.first == 0 && piece.end == n_row[piece.file]);
  }
  assert_int_equal(n_piece, 3);
}

MILL_TEST(chunks_become_smaller)
{
  /* a chunk costs 1/4 of a rank's share of the rows left, but at least 12.7 and at most 635 */
  make_files(1, (const int64_t[]){100000}, (const double[]){0.3});
  const mill_schedule_plan plan = plan_of(1, 4);
  MILL_AT_END(mill_schedule_free_at) mill_schedule *schedule = make(&plan);
  MILL_OWNED double *cost = check_whole(&plan, schedule);
  assert_true(fabs(sum.least_cost - 12.7) < 1e-9);
  double left = 100000;
  for (int64_t k = 0; k < sum.n_chunk - 1; k++) {
    const double share = left / 16 > 635 ? 635 : left / 16 > 12.7 ? left / 16 : 12.7;
    assert_true(fabs(cost[k] - share) < 2.5);
    left -= cost[k];
  }
  assert_true(cost[sum.n_chunk - 1] <= 2 * 12.7 + 1);
  /* Chunks have 635 rows until 16 such are left.  16 ln(635 / 12.7) + 16 chunks follow. */
  assert_true(sum.n_chunk > 210 && sum.n_chunk < 230);
}

MILL_TEST(first_chunks_are_even_where_ranks_hold_all)
{
  /* else the first rank would take all rows into its slots */
  make_files(3, (const int64_t[]){40, 40, 40}, (const double[]){0.3, 0.3, 0.3});
  const mill_schedule_plan plan = plan_of(3, 4);
  MILL_AT_END(mill_schedule_free_at) mill_schedule *schedule = make(&plan);
  MILL_OWNED double *cost = check_whole(&plan, schedule);
  assert_true(sum.n_chunk == 4);
  for (int k = 0; k < 4; k++)
    assert_true(fabs(cost[k] - 30) <= 4);
}

MILL_TEST(files_stay_whole_where_they_can)
{
  mill_schedule_walk walk;
  mill_schedule_rows piece;
  int64_t n_piece = 0;
  const int n_file = make_uneven(200000, 500, 127, 3);
  const mill_schedule_plan plan = plan_of(n_file, 16);
  MILL_AT_END(mill_schedule_free_at) mill_schedule *schedule = make(&plan);
  int is_dear = 1;
  for (int64_t k = 0; k < sum.n_chunk; k++) {
    mill_schedule_begin(schedule, k, 1, &walk);
    while (mill_schedule_next(schedule, &walk, &piece)) {
      const mill_schedule_file *f = &file[piece.file];
      n_piece++;
      /* slow files first, and in chunks that are worth opening them */
      const int dear_now = f->open_cost > sum.least_cost;
      assert_true(is_dear || !dear_now);
      is_dear = dear_now;
      const double cost = (double)(piece.end - piece.first) * f->row_cost;
      if (piece.end - piece.first < f->n_row)
        assert_true(cost >= (dear_now ? f->open_cost : sum.least_cost) - 2 * f->row_cost);
    }
  }
  assert_false(is_dear);
  /* Each cut of a file makes one piece more.  A chunk needs one cut at most. */
  assert_true(n_piece < n_file + sum.n_chunk);
  assert_true((double)n_piece < 1.5 * n_file);
}

MILL_TEST(costs)
{
  assert_true(mill_schedule_row_cost(0) == 1 && mill_schedule_row_cost(1) == 1);
  assert_true(mill_schedule_row_cost(3) > mill_schedule_row_cost(2));
  assert_true(mill_schedule_row_cost(3) < 3);
  const double plain = mill_schedule_open_cost(90000000, 0, 127);
  assert_true(plain > 0 && plain < 1);
  assert_true(mill_schedule_open_cost(27000000, 1, 127) > 50 * plain);
  assert_true(mill_schedule_open_cost(27000000, 1, 254) >
              1.99 * mill_schedule_open_cost(27000000, 1, 127));
}

MILL_TEST(several_chunks_at_a_time)
{
  const mill_schedule_plan plan = plan_of(make_uneven(5000, 500, 127, 3), 7);
  MILL_AT_END(mill_schedule_free_at) mill_schedule *schedule = make(&plan);
  assert_true(sum.n_chunk > 20);
  /* draws of 1, 2, ... chunks, the last one beyond the end, give all rows once and in order */
  memset(n_seen, 0, sizeof n_seen);
  int64_t n = 0;
  for (int64_t number = 0, n_next = 1; number < sum.n_chunk; number += n_next++) {
    mill_schedule_walk walk, single;
    mill_schedule_rows piece, part;
    int64_t n_row = 0, n_single = 0;
    mill_schedule_begin(schedule, number, (int)n_next, &walk);
    for (int last = -1; mill_schedule_next(schedule, &walk, &piece); last = piece.file) {
      assert_int_not_equal(piece.file, last); /* a file is in one piece */
      n_row += piece.end - piece.first;
      for (int64_t row = piece.first; row < piece.end; row++)
        n_seen[file[piece.file].row_start + row]++;
    }
    for (int64_t k = number; k < number + n_next; k++) {
      mill_schedule_begin(schedule, k, 1, &single);
      while (mill_schedule_next(schedule, &single, &part))
        n_single += part.end - part.first;
    }
    assert_true(n_row == n_single);
    n += n_row;
  }
  assert_true(n == 5000);
  for (int row = 0; row < 5000; row++)
    assert_int_equal(n_seen[row], 1);
}

MILL_TEST(a_run_by_hand)
{
  /* one rank, 4 rows at 2 rows a second, opened in 1 s, read in 0.1 s each, nothing else */
  const float cost[] = {1};
  mill_schedule_outcome outcome;
  make_files(1, (const int64_t[]){4}, (const double[]){2});
  const mill_schedule_plan plan = {.n_file = 1, .file = file, .n_rank = 1, .rate = 2, .n_held = 2};
  MILL_AT_END(mill_schedule_free_at) mill_schedule *schedule = make(&plan);
  mill_schedule_model model = {.schedule = schedule,
                               .file = file,
                               .n_rank = 1,
                               .rate = 2,
                               .cost = cost,
                               .n_cost = 1,
                               .read_s = 0.1,
                               .alone_s = 0.5,
                               .n_slot = 1,
                               .n_ahead = 1};
  assert_int_equal(mill_schedule_model_run(&model, &outcome), MILL_OK);
  /* 1 + 0.1, then 4 times 0.5; the reader is never late again */
  assert_true(fabs(outcome.end_s - 3.1) < 1e-12);
  assert_true(outcome.idle_tail == 0);
  assert_true(fabs(outcome.efficiency - 2.0 / 3.1) < 1e-12);
  /* a row that takes long alone */
  model.alone_s = 5;
  assert_int_equal(mill_schedule_model_run(&model, &outcome), MILL_OK);
  assert_true(fabs(outcome.end_s - (1.1 + 3 * 0.5 + 5)) < 1e-12);
  model.n_slot = 0;
  assert_int_equal(mill_schedule_model_run(&model, &outcome), MILL_ERR_RANGE);
}

/** Model a run of this plan, with a cluster's message times and 48 rows read ahead. */
static mill_schedule_outcome run_of(const mill_schedule_plan *plan, mill_schedule_model model)
{
  mill_schedule_outcome outcome;
  MILL_AT_END(mill_schedule_free_at) mill_schedule *schedule = make(plan);
  model.schedule = schedule;
  model.file = file;
  model.rate = plan->rate;
  model.alone_s = 0.008;
  model.answer_s = 1e-5;
  model.travel_s = 2e-3;
  model.n_ahead = 48;
  assert_int_equal(mill_schedule_model_run(&model, &outcome), MILL_OK);
  return outcome;
}

static mill_schedule_outcome run_uneven(int n_rank, int rows, double spread, const double *speed)
{
  static float cost[997];
  mill_random random;
  const double rate = 127;
  const int n_file = make_uneven((int64_t)n_rank * rows, 5000, rate, 5);
  mill_random_begin(&random, 9, 9, 9);
  MILL_OWNED double *own = NULL;
  assert_int_equal(MILL_ALLOC(n_rank, &own), MILL_OK);
  for (int i = 0; i < n_rank; i++)
    own[i] = speed ? speed[i] : 1.0 + spread * (2 * mill_random_uniform(&random) - 1);
  for (int i = 0; i < 997; i++)
    cost[i] = (float)(0.7 + 0.6 * mill_random_uniform(&random));
  const mill_schedule_plan plan = plan_of(n_file, n_rank);
  return run_of(&plan, (mill_schedule_model){.n_rank = n_rank,
                                             .speed = own,
                                             .cost = cost,
                                             .n_cost = 997,
                                             .read_s = 0.0003,
                                             .shares_core = 1,
                                             .n_slot = 32});
}

MILL_TEST(idle_tail_on_an_uneven_catalog)
{
  static const int n_rank[] = {2, 8, 64};
  for (int k = 0; k < 3; k++) {
    const mill_schedule_outcome o = run_uneven(n_rank[k], 4000, 0.05, NULL);
    if (o.idle_tail > 0.02)
      fail_msg("%d ranks: idle tail %.4f", n_rank[k], o.idle_tail);
  }
  const double speed[4] = {1, 1, 0.5, 1};
  const mill_schedule_outcome o = run_uneven(4, 4000, 0, speed);
  assert_close(o.idle_tail, 0, 0.02);
}

/* Prints the table of docs/develop/scaling.md if the environment has SCHEDULE_TABLE=1. */
MILL_TEST(idle_tail_of_many_ranks)
{
  static const int n_rank[] = {64, 1024, 8192}, n_row[] = {200, 1000, 2441};
  if (!getenv("SCHEDULE_TABLE"))
    skip();
  printf("| ranks | rows a rank | idle tail | with compressed files |\n|---|---|---|---|\n");
  for (size_t k = 0; k < 9; k++) {
    const int n = n_rank[k / 3], rows = n_row[k % 3];
    is_plain = 1;
    const mill_schedule_outcome plain = run_uneven(n, rows, 0.05, NULL);
    is_plain = 0;
    const mill_schedule_outcome packed = run_uneven(n, rows, 0.05, NULL);
    printf("| %d | %d | %.1f %% | %.1f %% |\n", n, rows, 100 * plain.idle_tail,
           100 * packed.idle_tail);
    fflush(stdout);
  }
}

/* 2 ranks are 79 times as fast as 6 others, and each draws chunks as if it were `told` ranks. */
static mill_schedule_outcome run_mixed(int64_t n_row, int told)
{
  enum { N_FAST = 2, N_RANK = 8 };
  static const double speed[N_RANK] = {79, 79, 1, 1, 1, 1, 1, 1};
  static const int64_t slots[N_RANK] = {4096, 4096, 32, 32, 32, 32, 32, 32};
  static const float cost[] = {1, 0.9F, 1.1F};
  const int n_at_once[N_RANK] = {told, told, 1, 1, 1, 1, 1, 1};
  const double rate = 127;
  const int n_file = make_uneven(n_row, 5000, rate, 5);
  /* opening a file takes all ranks the same time; no file is compressed */
  for (int i = 0; i < n_file; i++)
    file[i].open_cost = mill_schedule_open_cost(0, 0, rate);
  mill_schedule_plan plan = plan_of(n_file, N_FAST * told + N_RANK - N_FAST);
  plan.n_held = told > 1 ? 52 : 80;
  return run_of(&plan, (mill_schedule_model){.n_rank = N_RANK,
                                             .speed = speed,
                                             .n_at_once = n_at_once,
                                             .cost = cost,
                                             .n_cost = 3,
                                             .read_s = 0.00003,
                                             .n_slot = 4096,
                                             .slots = slots});
}

MILL_TEST(slow_ranks_do_not_hold_the_end)
{
  /* some 25 s of work */
  const int64_t n_row = 500000;
  const mill_schedule_outcome even = run_mixed(n_row, 1), told = run_mixed(n_row, 79),
                              unsure = run_mixed(n_row, 4 * 79);
  printf("efficiency: counted as one %.3f, as 79 %.3f, as 316 %.3f; s: %.1f, %.1f, %.1f\n",
         even.efficiency, told.efficiency, unsure.efficiency, even.end_s, told.end_s, unsure.end_s);
  fflush(stdout);
  /* a slow rank may take the last 635 rows, 5 s of its work */
  assert_true(even.efficiency < 0.95);
  assert_true(told.efficiency > 0.97);
  assert_true(unsure.efficiency > 0.97);
}

MILL_TEST_MAIN(NULL, NULL)
