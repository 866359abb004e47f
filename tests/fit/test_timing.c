/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the time of a run goes: requests are counted once each, under their stage. */
#include "tests/mill_test.h"

#include <time.h>

enum { SEED = 4711, N_STAR = 9, N_LABEL = 4, N_ARM = 3 };

#include "tests/fit/made_survey.h"

static made_star star[N_STAR];
static mill_fit_result result[N_STAR];

/** Fit all stars and return what the pipeline has counted; *wall_s: of the whole. */
static mill_timing timed_fit(int optimizer, int n_thread, double *wall_s)
{
  uint64_t random = SEED;
  mill_pipeline *pipeline = NULL;
  mill_star raw[N_STAR];
  mill_timing timing;
  struct timespec begin, end;
  made_settings(&lib, &set);
  set.optimizer = optimizer;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  made_check(mill_pipeline_create(&lib, &set, mill_backend_cpu(NULL), 4, n_thread, 0, &pipeline));
  for (int i = 0; i < N_STAR; i++) {
    double theta[MILL_MAX_PAR];
    made_star_init(&lib, 1, 0.6, 1, &random, &star[i]);
    made_theta(&lib, 0.6, 300, 60, &random, theta);
    made_star_fill(&lib, theta, 15, 1, &random, &star[i]);
    made_star_raw(i, &star[i], &raw[i]);
  }
  memset(&timing, 0xff, sizeof timing);
  mill_pipeline_timing(pipeline, &timing);
  for (int p = 0; p < MILL_N_PHASE; p++) {
    assert_true(timing.emulate_s[p] == 0 && timing.pixel_s[p] == 0);
    assert_true(timing.n_value[p] == 0 && timing.n_jacobian[p] == 0);
  }
  made_run run = {.star = raw, .n = N_STAR, .result = result};
  made_check(mill_pipeline_run(pipeline, made_source, &run, made_sink, &run));
  mill_pipeline_timing(pipeline, &timing);
  clock_gettime(CLOCK_MONOTONIC, &end);
  mill_pipeline_destroy(pipeline);
  *wall_s = (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
  return timing;
}

static void check_counts(const mill_timing *t)
{
  int64_t n_eval = 0, n_jac = 0, n_value = 0, n_jacobian = 0;
  for (int i = 0; i < N_STAR; i++) {
    assert_int_equal(result[i].status, MILL_STATUS_FITTED);
    n_eval += result[i].n_eval;
    n_jac += result[i].n_jac;
  }
  for (int p = 0; p < MILL_N_PHASE; p++) {
    n_value += t->n_value[p];
    n_jacobian += t->n_jacobian[p];
  }
  assert_int_equal(n_value + n_jacobian, n_eval);
  assert_int_equal(n_jacobian, n_jac);
  /* each star ends with one evaluation, after one profile or more */
  assert_int_equal(t->n_value[MILL_PHASE_FINAL], N_STAR);
  assert_true(t->n_value[MILL_PHASE_PROFILE] >= N_STAR);
  assert_int_equal(t->n_jacobian[MILL_PHASE_FINAL] + t->n_jacobian[MILL_PHASE_PROFILE], 0);
  assert_true(t->n_jacobian[MILL_PHASE_POLISH] >= N_STAR);
  assert_int_equal(t->n_value[MILL_PHASE_PREPARE] + t->n_value[MILL_PHASE_GUESS], 0);
}

/** Where there were requests there is time, elsewhere none; all within the wall time.  No star's
 *  last step is taken back here: the emulator has nothing to do for the last evaluation. */
static void check_seconds(const mill_timing *t, int n_thread, double wall_s)
{
  double sum = 0;
  for (int p = 0; p < MILL_N_PHASE; p++) {
    const int asked = t->n_value[p] + t->n_jacobian[p] > 0;
    const int start = p == MILL_PHASE_PREPARE || p == MILL_PHASE_GUESS;
    assert_true(asked && p != MILL_PHASE_FINAL ? t->emulate_s[p] > 0 : t->emulate_s[p] == 0);
    assert_true(asked || start ? t->pixel_s[p] > 0 : t->pixel_s[p] == 0);
    sum += t->emulate_s[p] + t->pixel_s[p];
  }
  if (!(sum <= n_thread * wall_s))
    fail_msg("%g thread seconds in %g s of %d threads", sum, wall_s, n_thread);
}

MILL_TEST(every_request_is_counted_under_its_stage)
{
  double wall_s;
  for (int n_thread = 1; n_thread <= 2; n_thread++) {
    mill_timing t = timed_fit(MILL_OPT_LM, n_thread, &wall_s);
    check_counts(&t);
    check_seconds(&t, n_thread, wall_s);
    assert_int_equal(t.n_value[MILL_PHASE_SIMPLEX] + t.n_jacobian[MILL_PHASE_SIMPLEX], 0);

    /* not hybrid: its simplex is for stars that are misled, and these are not */
    t = timed_fit(MILL_OPT_NELDER_MEAD, n_thread, &wall_s);
    check_counts(&t);
    check_seconds(&t, n_thread, wall_s);
    assert_true(t.n_value[MILL_PHASE_SIMPLEX] > 10 * N_STAR);
  }
}

MILL_TEST_MAIN(set_up, tear_down)
