/* The fit's state machine on functions with known minima: no spectra, no emulator. */
#include "tests/mill_test.h"

#include <string.h>

#include "kernels/fit.h"

enum { NP = 5, N_LABEL = 3 };

static mill_model model;
static mill_slot slot;
static double centre[NP], hess[NP * NP];
/* the function's own: a second valley, and derivatives that lie */
static double second_centre[NP], second_depth;
static int has_second, lies, fails_at_end;
static int n_request[MILL_REQ_FINAL + 1];

static void make(int optimizer)
{
  memset(&model, 0, sizeof model);
  memset(&slot, 0, sizeof slot);
  memset(n_request, 0, sizeof n_request);
  has_second = lies = fails_at_end = 0;
  model.n_label = N_LABEL;
  model.n_par = NP;
  model.set.min_vel_km_s = -1000;
  model.set.max_vel_km_s = 1000;
  model.set.max_vsini_km_s = 500;
  model.set.rotation = MILL_ROT_LINEAR;
  model.set.optimizer = optimizer;
  model.set.n_simplex_round = 40;
  model.set.max_eval = 2000;
  for (int l = 0; l < N_LABEL; l++) {
    model.label[l].std = 1;
    model.label[l].scale = 0.1;
  }
  static const double at[NP] = {12, 60, 0.4, -0.3, 0.2};
  static const double sigma[NP] = {2, 8, 0.1, 0.2, 0.05};
  memcpy(centre, at, sizeof at);
  for (int i = 0; i < NP; i++)
    for (int j = 0; j < NP; j++)
      hess[i * NP + j] = (i == j ? 1 : 0.4) / (sigma[i] * sigma[j]);
}

/** The lower of two paraboloids in the inner parameters, slightly bent in label 1. */
static double value(const double *theta, double *grad)
{
  double best = INFINITY;
  for (int v = 0; v <= has_second; v++) {
    const double *c = v ? second_centre : centre;
    double d[NP], g[NP], f = v ? second_depth : 0;
    for (int i = 0; i < NP; i++)
      d[i] = mill_par_inner(&model, i, theta[i]) - mill_par_inner(&model, i, c[i]);
    for (int i = 0; i < NP; i++) {
      g[i] = 0;
      for (int j = 0; j < NP; j++) {
        f += d[i] * hess[i * NP + j] * d[j];
        g[i] += 2 * hess[i * NP + j] * d[j];
      }
    }
    f += 100 * pow(d[3], 4);
    g[3] += 400 * pow(d[3], 3);
    if (f < best) {
      best = f;
      if (grad)
        memcpy(grad, g, sizeof g);
    }
  }
  return best;
}

static void answer(void)
{
  mill_eval *e = &slot.eval;
  memset(e, 0, sizeof *e);
  n_request[slot.request]++;
  if (slot.request == MILL_REQ_PROFILE) {
    for (int i = 0; i < MILL_N_PROFILE; i++) {
      double theta[NP];
      memcpy(theta, slot.theta, sizeof theta);
      theta[0] = slot.profile_vel[i];
      if (isfinite(theta[0]))
        e->profile[i] = value(theta, NULL);
    }
    return;
  }
  e->f = value(slot.theta, e->grad);
  memcpy(e->hess, hess, sizeof hess);
  if (lies)
    for (int j = 0; j < NP; j++)
      e->grad[j] *= -30;
  if (slot.request == MILL_REQ_FINAL && fails_at_end-- > 0)
    e->f += 1;
}

static void fit(int n_start, const double *start0, const double *start1)
{
  memcpy(slot.start[0], start0, NP * sizeof *start0);
  if (start1)
    memcpy(slot.start[1], start1, NP * sizeof *start1);
  slot.n_start = n_start;
  for (int j = 0; j < NP; j++)
    if (!model.set.fixed[j])
      slot.free_par[slot.n_free++] = j;
  mill_start_begin(&model, &slot);
  for (int i = 0; i < 5000 && slot.stage != MILL_STAGE_DONE; i++) {
    answer();
    mill_fit_digest(&model, &slot);
  }
  assert_int_equal(slot.stage, MILL_STAGE_DONE);
  assert_int_equal(slot.result.status, MILL_STATUS_FITTED);
}

/** Of parameter j, which is `expected`, in errors of the function. */
static double off(int j, double expected)
{
  return (mill_par_inner(&model, j, slot.best_end[j]) - mill_par_inner(&model, j, expected)) *
         sqrt(hess[j * NP + j]);
}

static const double start[NP] = {60, 100, 1, 0.6, -0.3};

static void test_every_method_finds_the_minimum(void **state)
{
  (void)state;
  static const int optimizer[3] = {MILL_OPT_LM, MILL_OPT_HYBRID, MILL_OPT_NELDER_MEAD};
  for (int o = 0; o < 3; o++) {
    make(optimizer[o]);
    fit(1, start, NULL);
    assert_close(slot.result.m2ll, 0, 2e-3);
    for (int j = 0; j < NP; j++)
      assert_close(off(j, centre[j]), 0, 0.06);
    assert_int_equal(slot.result.warn & MILL_WARN_NOT_CONVERGED, 0);
    assert_int_equal(slot.result.info & MILL_INFO_FALLBACK, 0);
    /* a whitened simplex of 5 dimensions; an unscaled one takes several hundred */
    assert_true(n_request[MILL_REQ_VALUE] <= 160);
    assert_int_equal(n_request[MILL_REQ_VALUE] > 0, optimizer[o] == MILL_OPT_NELDER_MEAD);
    assert_true(n_request[MILL_REQ_JACOBIAN] <= 8);
  }
}

/* Derivatives of the wrong sign, and steep: no step ever falls, so every polish fails, and
 * the simplexes, which look at values alone, find the minimum. */
static void test_a_failing_method_falls_to_the_next(void **state)
{
  (void)state;
  static const int optimizer[3] = {MILL_OPT_LM, MILL_OPT_HYBRID, MILL_OPT_NELDER_MEAD};
  for (int o = 0; o < 3; o++) {
    make(optimizer[o]);
    lies = 1;
    fit(1, start, NULL);
    assert_true(slot.result.info & MILL_INFO_FALLBACK);
    assert_true(slot.result.warn & MILL_WARN_NOT_CONVERGED);
    assert_int_equal(slot.method, MILL_OPT_NELDER_MEAD);
    for (int j = 0; j < NP; j++)
      assert_close(off(j, centre[j]), 0, 0.5);
  }
  make(MILL_OPT_LM);
  lies = 1;
  model.set.max_eval = 150; /* for all methods together, but for the polish at hand */
  fit(1, start, NULL);
  assert_true(slot.result.n_eval <= 150 + MILL_POLISH_MAX_JAC + 2);
}

static void test_a_second_start_that_repeats_the_first_ends_early(void **state)
{
  (void)state;
  make(MILL_OPT_LM);
  memcpy(slot.best.theta, centre, sizeof centre);
  memcpy(slot.best.hess, hess, sizeof hess);
  memcpy(slot.polish.at.theta, centre, sizeof centre);
  slot.have_best = slot.best_converged = slot.polish.have = 1;
  slot.best.f = 10;
  slot.polish.at.f = 10.1;
  slot.polish.at.theta[0] += 0.3 / sqrt(hess[0]);
  assert_true(mill_start_repeats(&model, &slot));
  slot.polish.at.f = 10.5; /* still falling */
  assert_false(mill_start_repeats(&model, &slot));
  slot.polish.at.f = 9.5; /* better than the first one */
  assert_false(mill_start_repeats(&model, &slot));
  slot.polish.at.f = 10.1;
  slot.polish.at.theta[0] += 0.7 / sqrt(hess[0]); /* as low, elsewhere */
  assert_false(mill_start_repeats(&model, &slot));
  slot.polish.at.theta[0] = centre[0];
  slot.best_converged = 0;
  assert_false(mill_start_repeats(&model, &slot));
  /* and the fit of two starts to one minimum */
  const double other[NP] = {-30, 30, 0, 0, 0};
  make(MILL_OPT_LM);
  fit(2, start, other);
  assert_close(slot.result.m2ll, 0, 2e-3);
  assert_int_equal(slot.result.info & MILL_INFO_TWO_MINIMA, 0);
}

static void test_two_minima_are_told(void **state)
{
  (void)state;
  const double other[NP] = {-290, 60, 0.4, -0.3, 0.2};
  for (int lower = 0; lower < 2; lower++)
    for (int tie = 0; tie < 2; tie++) {
      make(MILL_OPT_LM);
      has_second = 1;
      memcpy(second_centre, centre, sizeof centre);
      second_centre[0] = -300;
      second_depth = (lower ? -1 : 1) * (tie ? 3 : 5);
      fit(2, start, other);
      assert_int_equal((slot.result.info & MILL_INFO_TWO_MINIMA) != 0, tie);
      assert_close(off(0, lower ? -300 : 12), 0, 0.06);
    }
}

static void test_a_fast_rotator_is_started_faster(void **state)
{
  (void)state;
  for (int lower = 0; lower < 2; lower++) {
    make(MILL_OPT_LM);
    const double other[NP] = {-20, 130, 0, 0, 0};
    centre[1] = 120;
    has_second = lower;
    memcpy(second_centre, centre, sizeof centre);
    second_centre[1] = 200;
    second_depth = -1;
    fit(2, start, other);
    assert_int_equal(slot.n_start, 3);
    assert_close(off(1, lower ? 200 : 120), 0, 0.06);
  }
}

static void test_a_last_step_uphill_is_taken_back(void **state)
{
  (void)state;
  make(MILL_OPT_LM);
  fails_at_end = 1;
  fit(1, start, NULL);
  assert_int_equal(n_request[MILL_REQ_FINAL], 2);
  assert_memory_equal(slot.best_end, slot.best.theta, sizeof slot.best_end);
  assert_close(slot.result.m2ll, slot.best.f, 0);
}

/** Profile of F = x^2 + skew x^3 + kurt x^4, x = (v - v0) / sigma, by the state machine. */
static void profile(double sigma, double skew, double kurt, int n, int *n_grid)
{
  const double v0 = 37;
  memset(&slot, 0, sizeof slot);
  slot.best_end[0] = v0;
  slot.best.hess[0] = 1 / (sigma * sigma);
  mill_profile_begin(&model, &slot, n);
  *n_grid = 0;
  do {
    for (int i = 0; i < MILL_N_PROFILE; i++) {
      const double x = (slot.profile_vel[i] - v0) / sigma;
      slot.eval.profile[i] = isfinite(x) ? x * x * (1 + x * (skew + x * kurt)) : 0;
    }
    ++*n_grid;
  } while (!mill_profile_digest(&model, &slot));
}

/* 13 velocities give what 41 give, or are not taken */
static void test_few_velocities_suffice_or_are_not_taken(void **state)
{
  (void)state;
  make(MILL_OPT_LM);
  int n_few = 0, n_full = 0;
  double worst = 0;
  for (int s = 0; s <= 20; s++)
    for (int k = 0; k <= 20; k++) {
      const double skew = 0.005 * s - 0.05, kurt = 0.002 * k + 0.3 * skew * skew;
      int n_grid;
      profile(3, skew, kurt, MILL_N_PROFILE, &n_grid);
      const mill_fit_result full = slot.result;
      profile(3, skew, kurt, MILL_N_PROFILE_FEW, &n_grid);
      const mill_fit_result *few = &slot.result;
      if (slot.n_profile == MILL_N_PROFILE_FEW)
        n_few++;
      else
        n_full++;
      assert_int_equal(slot.n_profile == MILL_N_PROFILE_FEW, n_grid == 1);
      const double tol = 1e-4;
      assert_close(few->vrad_err_km_s / full.vrad_err_km_s, 1, tol);
      assert_close(few->vrad_skew, full.vrad_skew, tol);
      assert_close(few->vrad_kurt / full.vrad_kurt, 1, tol);
      worst = fmax(worst, fabs(few->vrad_kurt / full.vrad_kurt - 1));
    }
  printf("%d profiles of 13 velocities, %d of 41; kurtosis off by %.1e at most\n", n_few, n_full,
         worst);
  assert_true(n_few > 50 && n_full > 50);
  /* near a limit of the velocity, and where values are missing, the full grid */
  int n_grid;
  model.set.max_vel_km_s = 40;
  profile(3, 0, 0, MILL_N_PROFILE_FEW, &n_grid);
  assert_int_equal(slot.n_profile, MILL_N_PROFILE);
}

static double vsini_err(double vsini, double sigma_u, int kind)
{
  make(MILL_OPT_LM);
  model.set.rotation = kind;
  slot.best_end[1] = slot.best.theta[1] = vsini;
  for (int i = 0; i < NP; i++)
    for (int j = 0; j < NP; j++)
      slot.best.hess[i * NP + j] = i == j ? 1 / (i == 1 ? sigma_u * sigma_u : 1) : 0;
  assert_true(mill_fit_covariance(&model, &slot));
  /* COVAR has it too: row VSINI begins after NP elements */
  if (!slot.best_pinned[1])
    assert_close(slot.result.covar[NP], pow(slot.result.vsini_err_km_s, 2), 1e-9);
  return slot.result.vsini_err_km_s;
}

static void test_error_of_vsini(void **state)
{
  (void)state;
  assert_close(vsini_err(80, 3, MILL_ROT_LINEAR), 3, 1e-12);
  assert_int_equal(slot.result.info & MILL_INFO_VSINI_ZERO, 0);
  /* far from 0: sigma_u dv/du, but for the third order, (sigma / v)^2 */
  const double slope =
      mill_vsini_outer_slope(MILL_ROT_SPLINE, mill_vsini_inner(MILL_ROT_SPLINE, 80));
  assert_close(vsini_err(80, 2, MILL_ROT_SPLINE) / (2 * slope), 1, 1e-3);
  assert_int_equal(slot.result.info & MILL_INFO_VSINI_ZERO, 0);
  /* one sigma includes 0: half the interval from 0 to where u is one sigma higher */
  const double u = mill_vsini_inner(MILL_ROT_SPLINE, 8);
  assert_close(vsini_err(8, 2, MILL_ROT_SPLINE), 0.5 * mill_vsini_outer(MILL_ROT_SPLINE, u + 2),
               1e-12);
  assert_true(slot.result.info & MILL_INFO_VSINI_ZERO);
}

/* pinned at 0: F rises by 1 at the limit, the others at their best */
static void test_upper_limit_of_vsini(void **state)
{
  (void)state;
  static const int kinds[2] = {MILL_ROT_LINEAR, MILL_ROT_SPLINE};
  for (int k = 0; k < 2; k++) {
    make(MILL_OPT_LM);
    model.set.rotation = kinds[k];
    memcpy(slot.best.hess, hess, sizeof hess);
    slot.best_pinned[1] = 1;
    slot.best.grad[1] = 0.3;
    assert_true(mill_fit_covariance(&model, &slot));
    assert_true(slot.result.info & MILL_INFO_VSINI_ZERO);
    const double u = mill_vsini_inner(kinds[k], slot.result.vsini_err_km_s);
    /* least of grad u + d H d over the others: Schur's complement by elimination */
    static const int idx[4] = {0, 2, 3, 4};
    double a[16], rhs[4];
    for (int i = 0; i < 4; i++) {
      rhs[i] = -hess[idx[i] * NP + 1] * u;
      for (int j = 0; j < 4; j++)
        a[i * 4 + j] = hess[idx[i] * NP + idx[j]];
    }
    assert_int_equal(mill_cholesky(4, a, 4), 0);
    mill_cholesky_solve(4, a, 4, rhs);
    double d[NP] = {rhs[0], u, rhs[1], rhs[2], rhs[3]}, rise = 0.3 * u;
    for (int i = 0; i < NP; i++)
      for (int j = 0; j < NP; j++)
        rise += d[i] * hess[i * NP + j] * d[j];
    assert_close(rise, 1, 1e-9);
  }
}

/* a facet at label 0 = 1: seen from within two errors, not from beyond */
static void test_near_hull(void **state)
{
  (void)state;
  static double facet[2 * 2] = {1, -1, -1, -50};
  for (int k = 0; k < 2; k++) {
    make(MILL_OPT_LM);
    model.n_hull = 1;
    model.hull[0].n_label = 1;
    model.hull[0].label[0] = 0;
    model.hull[0].n_facet = 2;
    model.hull[0].facet = facet;
    for (int j = 0; j < NP; j++)
      slot.best.hess[j * NP + j] = 1 / (0.1 * 0.1);
    slot.best_end[2] = k ? 0.81 : 0.79;
    assert_true(mill_fit_covariance(&model, &slot));
    assert_int_equal((slot.result.info & MILL_INFO_NEAR_HULL) != 0, k);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_method_finds_the_minimum),
      cmocka_unit_test(test_a_failing_method_falls_to_the_next),
      cmocka_unit_test(test_a_second_start_that_repeats_the_first_ends_early),
      cmocka_unit_test(test_two_minima_are_told),
      cmocka_unit_test(test_a_fast_rotator_is_started_faster),
      cmocka_unit_test(test_a_last_step_uphill_is_taken_back),
      cmocka_unit_test(test_few_velocities_suffice_or_are_not_taken),
      cmocka_unit_test(test_error_of_vsini),
      cmocka_unit_test(test_upper_limit_of_vsini),
      cmocka_unit_test(test_near_hull),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
