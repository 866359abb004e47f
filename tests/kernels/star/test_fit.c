/* SPDX-License-Identifier: BSD-3-Clause */
/* The fit of a star on functions with known minima: no spectra, no emulator. */
#include "tests/mill_test.h"

#include <limits.h>

#include "kernels/star/logic/fit_star.h"
#include "tests/kernels/star/paraboloid.h"

static double second_centre[NP], second_depth; /* of the second minimum of F */
/* how many coming Jacobians have wrong derivatives; how many requests of models get F + 1 */
static int lies, fails_at_end;
static mill_waveset all_waves;
/* values of one velocity, of several; other kinds */
enum { VALUE, PROFILE, N_KIND = MILL_REQ_MODELS + 1 };
static int n_request[N_KIND], n_kept[N_KIND];

static void make(int optimizer)
{
  paraboloid(60, 8);
  memset(n_request, 0, sizeof n_request);
  memset(n_kept, 0, sizeof n_kept);
  lies = fails_at_end = 0;
  second_depth = INFINITY;
  memcpy(second_centre, centre, sizeof centre);
  model.set.optimizer = optimizer;
  model.set.n_simplex_round = 40;
  model.set.max_eval = 2000;
  model.set.max_starts = MILL_MAX_GUESS_START;
  segment[0] = (mill_segment){.used = 1, .n_pix = 1000, .n_good = 1000, .ws = &all_waves};
  for (int i = 0; i < MILL_MAX_GUESS_START; i++)
    slot.starts.chisq[i] = -1e3; /* a star's */
  slot.result.n_pix_tot = 1000;
  slot.kept.flux = &slot; /* there is room for a template */
}

/** Return the lower of two paraboloids in the inner parameters.  Label 1 adds a quartic term. */
static double value(const double *theta, double *grad)
{
  double best = INFINITY;
  for (int v = 0; v < 2; v++) {
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

static double value_at(const double *theta)
{
  return value(theta, NULL) / slot.n_segment;
}

/** All segments alike, with their share of F. */
static void answer(void)
{
  double grad[NP], part[NP * NP];
  const int kind = slot.request != MILL_REQ_VALUES ? (int)slot.request
                   : slot.n_vel > 1                ? PROFILE
                                                   : VALUE;
  const int lying = slot.request == MILL_REQ_TANGENTS && lies > 0;
  n_request[kind]++;
  n_kept[kind] += mill_template_kept(&model, &slot);
  value(slot.theta, grad);
  lies -= lying;
  for (int j = 0; j < NP; j++)
    grad[j] *= (lying ? -30.0 : 1.0) / slot.n_segment;
  for (int e = 0; e < NP * NP; e++)
    part[e] = hess[e] / slot.n_segment;
  for (int i = 0; i < slot.n_segment; i++) {
    double *of = mill_answer_of(&model, &slot, i);
    answer_values(i, value_at);
    if (slot.request == MILL_REQ_TANGENTS)
      answer_tangents(i, NP, grad, part);
    if (slot.request == MILL_REQ_MODELS)
      memset(of + MILL_ANSWER_CHISQ, 0, (MILL_ANSWER_END - MILL_ANSWER_CHISQ) * sizeof *of);
  }
  if (slot.request == MILL_REQ_MODELS && fails_at_end-- > 0)
    answers[MILL_ANSWER_F] += 1;
}

/** Fit from the slot's starts to the end.  Call more (unless NULL) at each request of models. */
static void run(void (*more)(void))
{
  mill_fit_resume(&model, &slot);
  for (int i = 0; i < 5000 && slot.request != MILL_REQ_NONE; i++) {
    answer();
    if (more && slot.request == MILL_REQ_MODELS)
      more();
    mill_fit_resume(&model, &slot);
  }
  assert_int_equal(slot.request, MILL_REQ_NONE);
}

static void fit(int n_start, const double *start0, const double *start1)
{
  memcpy(slot.starts.theta[0], start0, NP * sizeof *start0);
  if (start1)
    memcpy(slot.starts.theta[1], start1, NP * sizeof *start1);
  slot.starts.n = n_start;
  run(NULL);
  assert_int_equal(slot.result.status, MILL_STATUS_FITTED);
  /* Only the first velocity profile runs the emulator, whatever the number of starts.  Later
   * profiles and the models use the template that was kept. */
  assert_int_equal(n_kept[VALUE] + n_kept[MILL_REQ_TANGENTS], 0);
  if (n_request[PROFILE] > 0) {
    assert_int_equal(n_kept[PROFILE], n_request[PROFILE] - 1);
    assert_int_equal(n_kept[MILL_REQ_MODELS], 1);
  }
  assert_memory_equal(slot.kept.theta + 1, slot.best.end + 1, (NP - 1) * sizeof *slot.best.end);
}

/** Deviation of parameter j from `expected`, in errors of the function. */
static double off(int j, double expected)
{
  return (mill_par_inner(&model, j, slot.best.end[j]) - mill_par_inner(&model, j, expected)) *
         sqrt(hess[j * NP + j]);
}

static const double start[NP] = {60, 100, 1, 0.6, -0.3};

MILL_TEST(every_method_finds_the_minimum)
{
  for (int o = 0; o < 3; o++) {
    make(o);
    fit(1, start, NULL);
    assert_close(slot.result.m2ll, 0, 2e-3);
    for (int j = 0; j < NP; j++)
      assert_close(off(j, centre[j]), 0, 0.06);
    assert_int_equal(slot.result.warn & MILL_WARN_NOT_CONVERGED, 0);
    assert_int_equal(slot.result.info & MILL_INFO_FALLBACK, 0);
    /* a whitened simplex of 5 dimensions; an unscaled one takes several hundred */
    assert_true(n_request[VALUE] <= 160);
    assert_int_equal(n_request[VALUE] > 0, o == MILL_OPT_NELDER_MEAD);
    assert_true(n_request[MILL_REQ_TANGENTS] <= 8);
  }
}

/* Derivatives are steep and have the wrong sign, so no step lowers F and every polish fails.  The
 * simplexes look at values alone, and find the minimum. */
MILL_TEST(a_failing_method_falls_to_the_next)
{
  for (int o = 0; o < 3; o++) {
    make(o);
    lies = INT_MAX;
    fit(1, start, NULL);
    assert_true(slot.result.info & MILL_INFO_FALLBACK);
    assert_true(slot.result.warn & MILL_WARN_NOT_CONVERGED);
    assert_int_equal(slot.method, MILL_OPT_NELDER_MEAD);
    for (int j = 0; j < NP; j++)
      assert_close(off(j, centre[j]), 0, 0.5);
  }
  make(MILL_OPT_LM);
  lies = INT_MAX;
  model.set.max_eval = 150; /* for all methods together, but for the polish at hand */
  fit(1, start, NULL);
  assert_true(slot.result.n_eval <= 150 + MILL_POLISH_MAX_JAC + 2);
}

/* Derivatives are wrong at the start, so all steps from there raise F.  MILL_OPT_HYBRID runs a
 * short simplex after the first such step, and goes on from the simplex's result.  MILL_OPT_LM
 * first uses up its steps, then falls back to the simplex. */
MILL_TEST(hybrid_looks_around_where_a_step_goes_wrong)
{
  int n_jac[3];
  for (int k = 0; k < 3; k++) {
    make(k < 2 ? MILL_OPT_HYBRID : MILL_OPT_LM);
    model.set.n_simplex_round = k == 0 ? 40 : (k == 1 ? 0 : 25);
    lies = 1;
    fit(1, start, NULL);
    assert_close(slot.result.m2ll, 0, 2e-3);
    for (int j = 0; j < NP; j++)
      assert_close(off(j, centre[j]), 0, 0.06);
    assert_int_equal(slot.result.warn & MILL_WARN_NOT_CONVERGED, 0);
    assert_int_equal((slot.result.info & MILL_INFO_FALLBACK) != 0, k > 0);
    n_jac[k] = n_request[MILL_REQ_TANGENTS];
    if (k == 0)
      assert_int_equal(n_request[VALUE], 40);
    if (k == 2) /* falls to hybrid: its simplex, then the polish */
      assert_int_equal(n_request[VALUE], 25);
  }
  assert_true(n_jac[0] < n_jac[1] && n_jac[0] < n_jac[2]);
}

/* Whatever the limit on evaluations: every method ends, and has a result. */
MILL_TEST(few_evaluations_end_with_a_result)
{
  for (int o = 0; o < 3; o++)
    for (int n = 1; n <= 3; n++)
      for (int lying = 0; lying < 2; lying++) {
        make(o);
        model.set.max_eval = n;
        lies = lying ? INT_MAX : 0;
        fit(1, start, NULL);
        assert_true(isfinite(slot.result.m2ll));
        assert_int_equal((slot.result.warn & MILL_WARN_NOT_CONVERGED) != 0, lying);
        /* at max_eval a running polish still ends by itself; a simplex makes one more evaluation */
        assert_true(slot.result.n_eval <= n + 2 * MILL_POLISH_MAX_JAC + 4);
      }
}

MILL_TEST(two_starts_to_one_minimum)
{
  const double other[NP] = {-30, 30, 0, 0, 0};
  make(MILL_OPT_LM);
  fit(2, start, other);
  assert_close(slot.result.m2ll, 0, 2e-3);
  assert_int_equal(slot.result.info & MILL_INFO_TWO_MINIMA, 0);
}

MILL_TEST(a_start_led_where_an_earlier_one_was_has_its_end)
{
  for (int lost = 0; lost < 2; lost++) {
    make(MILL_OPT_LM);
    slot.best.converged = !lost;
    memcpy(slot.theta, centre, sizeof centre);
    for (slot.starts.i = 0; slot.starts.i < 3; slot.starts.i++) {
      assert_int_equal(mill_start_merges(&model, &slot), slot.starts.i > lost ? 0 : -1);
      assert_int_equal(mill_start_merges(&model, &slot), slot.starts.i > lost ? 0 : -1);
    }
    slot.theta[2] += 1.1 * MILL_NEAR * mill_par_limit(&model, 2);
    for (int i = 0; i < MILL_MAX_TRAIL; i++) /* a start does not meet itself; and no room is left */
      assert_int_equal(mill_start_merges(&model, &slot), -1);
    slot.starts.i++;
    assert_int_equal(mill_start_merges(&model, &slot), 3);
    double *next = slot.starts.theta[slot.starts.i];
    slot.best.have = 1;
    memcpy(next, slot.best.end, sizeof start);
    next[MILL_PAR_VSINI] += 100;
    assert_int_equal(mill_start_is_idle(&model, &slot), !lost);
    next[2] += 0.8 * mill_par_limit(&model, 2);
    assert_false(mill_start_is_idle(&model, &slot));
  }
}

static void explains_much(void)
{
  answers[MILL_ANSWER_CHISQ_C_DATA] = 1e5;
}

/* A spectrum with hardly a star gets one short start, unless the fit's template lowers chi-square
 * more than the guess's template. */
MILL_TEST(a_brief_start_suffices_where_there_is_no_star)
{
  const double near[NP] = {20, 80, 0.6, 0, 0.3}, other[NP] = {-30, 30, 0, 0, 0};
  for (int star = 0; star < 3; star++) { /* none; the guess misses it; only the guess sees one */
    make(MILL_OPT_LM);
    memcpy(slot.starts.theta[0], near, sizeof near);
    memcpy(slot.starts.theta[1], other, sizeof other);
    slot.starts.n = 2;
    slot.starts.chisq[0] = star < 2 ? -24 : -26; /* the limit is 25 */
    model.set.second_start_sn = 1;
    run(star == 1 ? explains_much : NULL);
    assert_int_equal((slot.result.warn & MILL_WARN_NO_STAR) != 0, star != 1);
    assert_int_equal((slot.result.info & MILL_INFO_SECOND_START) != 0, star > 0);
    assert_int_equal(n_request[MILL_REQ_TANGENTS] > MILL_BRIEF_JAC, star == 1);
    assert_int_equal(n_request[MILL_REQ_MODELS], 1 + (star == 1));
    if (star == 1) /* only v sin i is a doubt, not the brief start's Jacobians */
      assert_int_equal(slot.starts.n_doubt, 1);
  }
}

/* Each case is just inside or outside a limit: of a doubt or of a second start (numerics.md). */
MILL_TEST(doubts_begin_at_their_limits)
{
  const double f = 1000 * (1.1 + 3 * sqrt(2 / 1000.0)); /* of 1000 pixels; labels are below 1 */
  const struct {
    int n_jac, doubts;
    double f, vsini, label;
  } c[] = {{6, 0, f - 1, 29, 0.9}, {7, 1, 0, 29, 0.9}, {8, 1, 0, 29, 0.9}, {9, 2, 0, 29, 0.9},
           {6, 1, f + 1, 29, 0.9}, {6, 1, 0, 31, 0.9}, {6, 1, 0, 29, 1},   {9, 5, f + 1, 31, 1}};
  for (int i = 0; i < 16; i++) {
    const int n = c[i / 2].doubts, is_far = i % 2;
    const double gap = (n ? 400 : 30) * fmax(c[i / 2].f / 1000, 1);
    make(MILL_OPT_LM);
    model.n_hull = 1;
    model.hull[0] = (mill_hull){.n_label = 1, .n_facet = 2, .facet = (double[]){1, -1, -1, -50}};
    slot.best.have = slot.best.converged = slot.starts.i = 1;
    slot.starts.n = 2;
    slot.result.n_jac = c[i / 2].n_jac;
    slot.best.at.f = c[i / 2].f;
    memcpy(slot.best.end + MILL_PAR_VSINI, &c[i / 2].vsini, 2 * sizeof(double)); /* and label 0 */
    slot.starts.n_doubt = mill_fit_doubts(&model, &slot);
    slot.starts.chisq[1] = slot.starts.chisq[0] + (is_far ? 1.01 : 0.99) * gap;
    assert_int_equal(slot.starts.n_doubt, n);
    assert_int_equal(mill_start_wanted(&model, &slot), n > 1 || !is_far);
  }
}

MILL_TEST(a_fast_rotator_gets_a_far_start)
{
  for (int k = 0; k < 3; k++) { /* slow; fast; fast, with a poor template */
    make(MILL_OPT_LM);
    centre[MILL_PAR_VSINI] = k > 0 ? 150 : 60;
    second_centre[2] = -3;
    second_depth = -50;
    memcpy(slot.starts.theta[2], second_centre, sizeof centre);
    slot.starts.chisq[2] = k < 2 ? -950 : -850;
    fit(3, centre, centre);
    assert_close(slot.result.m2ll, k == 1 ? -50 : 0, 2e-3);
  }
}

MILL_TEST(two_minima_are_told)
{
  const double other[NP] = {-290, 60, 0.4, -0.3, 0.2};
  for (int lower = 0; lower < 2; lower++)
    for (int tie = 0; tie < 2; tie++) {
      make(MILL_OPT_LM);
      second_centre[0] = -300;
      second_depth = (lower ? -1 : 1) * (tie ? 3 : 5);
      fit(2, start, other);
      assert_int_equal((slot.result.info & MILL_INFO_TWO_MINIMA) != 0, tie);
      assert_close(off(0, lower ? -300 : 12), 0, 0.06);
    }
}

/* Two minima tie, which sets TWO_MINIMA.  A third start that is far better unsets it. */
MILL_TEST(a_tie_that_is_beaten_is_none)
{
  for (int better = 0; better < 2; better++) {
    make(MILL_OPT_LM);
    memcpy(slot.best.at.theta, centre, sizeof centre);
    memcpy(slot.best.at.hess, hess, sizeof hess);
    slot.best.have = slot.best.converged = 1;
    slot.best.at.f = 10;
    slot.starts.n = 3;
    for (int s = 1; s < 3; s++) {
      slot.starts.i = s;
      slot.polish.have = 1;
      slot.polish.at.f = s == 1 ? 11 : (better ? 5 : 9.9);
      memcpy(slot.polish.at.hess, hess, sizeof hess);
      memcpy(slot.polish.at.theta, centre, sizeof centre);
      slot.polish.at.theta[0] += s == 1 ? 40 : 0.1;
      memcpy(slot.polish.end, slot.polish.at.theta, sizeof slot.polish.end);
      mill_best_keep(&model, &slot, 1);
      assert_int_equal((slot.result.info & MILL_INFO_TWO_MINIMA) != 0, s == 1 || !better);
    }
    assert_close(slot.best.at.f, better ? 5 : 9.9, 0);
  }
}

MILL_TEST(a_last_step_uphill_is_taken_back)
{
  make(MILL_OPT_LM);
  fails_at_end = 1;
  fit(1, start, NULL);
  assert_int_equal(n_request[MILL_REQ_MODELS], 2);
  assert_memory_equal(slot.best.end, slot.best.at.theta, sizeof slot.best.end);
  assert_close(slot.result.m2ll, slot.best.at.f, 0);
}

static double prior_km_s; /* sigma of v sin i's prior, of mean 50; 0: no prior */

static double vsini_err(double vsini, double sigma_u, int kind)
{
  double stiff;
  make(MILL_OPT_LM);
  model.set.rotation = kind;
  model.set.prior_mean[1] = 50;
  model.set.prior_sigma[1] = prior_km_s;
  (void)mill_prior_gradient(&model, &slot, 1, vsini, &stiff);
  slot.best.end[1] = slot.best.at.theta[1] = vsini;
  for (int i = 0; i < NP; i++)
    for (int j = 0; j < NP; j++)
      slot.best.at.hess[i * NP + j] = i == j ? (i == 1 ? 1 / (sigma_u * sigma_u) + stiff : 1) : 0;
  assert_true(mill_fit_covariance(&model, &slot));
  /* COVAR has it too: row VSINI begins after NP elements */
  assert_close(slot.result.covar[NP], pow(slot.result.vsini_err_km_s, 2), 1e-9);
  return slot.result.vsini_err_km_s;
}

MILL_TEST(error_of_vsini)
{
  assert_close(vsini_err(80, 3, MILL_ROT_LINEAR), 3, 1e-12);
  assert_int_equal(slot.result.info & MILL_INFO_VSINI_ZERO, 0);
  /* far from 0: sigma_u dv/du, up to a relative (sigma / v)^2 */
  const double slope =
      mill_vsini_outer_slope(MILL_ROT_SPLINE, mill_vsini_inner(MILL_ROT_SPLINE, 80));
  assert_close(vsini_err(80, 2, MILL_ROT_SPLINE) / (2 * slope), 1, 1e-3);
  assert_int_equal(slot.result.info & MILL_INFO_VSINI_ZERO, 0);
  /* v sin i = 0 lies within one sigma (2 in u): the error is half of the v sin i at u + 2 */
  const double u = mill_vsini_inner(MILL_ROT_SPLINE, 8);
  assert_close(vsini_err(8, 2, MILL_ROT_SPLINE), 0.5 * mill_vsini_outer(MILL_ROT_SPLINE, u + 2),
               1e-12);
  assert_true(slot.result.info & MILL_INFO_VSINI_ZERO);
  assert_close(vsini_err(499, 3, MILL_ROT_LINEAR), 0.5 * (1 + 3), 1e-12); /* to 500 km/s */
  /* A second difference gives the prior's curvature in u, to a relative (h / u)^2. */
  const double at = mill_vsini_inner(MILL_ROT_SPLINE, 12), h = 1e-3;
  double f[3];
  for (int k = 0; k < 3; k++)
    f[k] = pow((mill_vsini_outer(MILL_ROT_SPLINE, at + (k - 1) * h) - 50) / 10, 2);
  const double s = 1 / sqrt(1.0 / 16 + 0.5 * (f[0] - 2 * f[1] + f[2]) / (h * h));
  prior_km_s = 10;
  assert_close(
      vsini_err(12, 4, MILL_ROT_SPLINE),
      0.5 * (mill_vsini_outer(MILL_ROT_SPLINE, at + s) - mill_vsini_outer(MILL_ROT_SPLINE, at - s)),
      1e-5);
  prior_km_s = 0;
}

/* Without a positive curvature all errors are NaN: no earlier error stays, none is 0. */
MILL_TEST(errors_need_a_curvature)
{
  static const mill_point flat;
  make(MILL_OPT_LM);
  slot.result.vsini_err_km_s = slot.result.label_err[2] = 1;
  mill_pair_errors(&model, &slot, &flat, 0);
  assert_true(isnan(slot.result.vsini_err_km_s) && isnan(slot.result.label_err[2]) &&
              isnan(slot.result.vrad_err_km_s));
}

/* M2LL has the priors of both stars.  v sin i is fixed, and one of two arms has no data.  The
 * reduced chi-square is 4, so the second star's errors double; VRAD_2_ERR also has its floor. */
MILL_TEST(a_row_of_two_stars_counts_both)
{
  static mill_epoch epoch;
  make(MILL_OPT_LM);
  memset(answers, 0, sizeof answers);
  model.n_arm = 2;
  model.set.fixed[MILL_PAR_VSINI] = 1;
  model.set.prior_sigma[MILL_PAR_LABEL0] = 0.5;
  slot.result.n_pix[0] = 1000;
  slot.pair.is_fitted = 1;
  memcpy(slot.pair.theta[0], centre, sizeof centre); /* the second star's are 0, but one */
  slot.pair.theta[1][MILL_PAR_LABEL0] = 1;
  model.set.rescale_errors = 1;
  model.set.vrad_floor_km_s = 3;
  answers[MILL_ANSWER_CHISQ] = 4 * (1000 - NP);
  slot.n_epoch = 1;
  slot.epoch = &epoch;
  epoch.result.pair_vrad_err_km_s = slot.result.pair_vrad_err_km_s = 2;
  slot.result.pair_vsini_err_km_s = 0.5;
  slot.result.pair_label_err[N_LABEL - 1] = 0.1;
  mill_pair_finish(&model, &slot);
  assert_close(slot.result.pair_vrad_err_km_s, 5, 1e-12); /* 4 and 3 in quadrature */
  assert_close(slot.result.pair_vsini_err_km_s, 1, 1e-12);
  assert_close(slot.result.pair_label_err[N_LABEL - 1], 0.2, 1e-12);
  assert_close(epoch.result.pair_vrad_err_km_s, 4, 1e-12);
  assert_close(slot.result.m2ll, 0.64 + 4, 1e-12);
  assert_close(slot.result.excess, 0.64 + 4 - 1000, 1e-12);
  assert_int_equal(slot.n_free, NP - 1 + 1);
}

/* With any model error (also of the line-spread function's width) VRAD is the epochs' mean. */
MILL_TEST(epochs_keep_vrad_as_their_mean)
{
  const mill_epochs_mean mean = {.n = 1, .velocity = -2};
  make(MILL_OPT_LM);
  segment[0].own_d = (float[1]){0};
  assert_close(mill_epochs_zero(&model, &slot, &mean), 2, 0);
  model.set.prior_sigma[MILL_PAR_VRAD] = 3; /* a prior pulls VRAD alone */
  assert_close(mill_epochs_zero(&model, &slot, &mean), 0, 0);
}

/* A fit ends with v sin i at a limit.  If v sin i moves inwards by VSINI_ERR and the other
 * parameters adapt, F rises by 1.  F includes a prior's penalty, which is quadratic in v sin i, not
 * in u.  Floors of the labels' errors are no part of F. */
MILL_TEST(limit_of_vsini)
{
  static float fraction;
  static const int kinds[2] = {MILL_ROT_LINEAR, MILL_ROT_SPLINE};
  /* with the last slope F falls away from the limit, as in a fit that did not converge */
  static const double slopes[3] = {0.3, 0, -0.05};
  for (int k = 0; k < 2; k++)
    for (int upper = 0; upper < 2; upper++)
      for (int i_case = 0; i_case < 6; i_case++) {
        make(MILL_OPT_LM);
        model.set.rotation = kinds[k];
        model.set.max_vsini_km_s = 80;
        model.arm[0].error.fraction = &fraction;
        model.label[0].floor = 0.3;
        memcpy(slot.best.at.hess, hess, sizeof hess);
        const double limit = upper ? 80 : 0, inwards = upper ? -1 : 1;
        slot.best.at.theta[1] = slot.best.end[1] = limit;
        slot.n_epoch = 2 * (slot.pair.is_fitted = k); /* VRAD then becomes the epochs' mean */
        slot.best.end[0] = slot.best.at.theta[0] + 7 * k;
        double stiff;
        model.set.prior_sigma[1] = i_case < 3 ? 0 : 1 + upper;
        model.set.prior_mean[1] = limit;
        slot.best.at.grad[1] =
            inwards * slopes[i_case % 3] + mill_prior_gradient(&model, &slot, 1, limit, &stiff);
        slot.best.at.hess[NP + 1] += stiff;
        assert_true(mill_fit_covariance(&model, &slot));
        assert_int_equal((slot.result.info & MILL_INFO_VSINI_ZERO) != 0, !upper);
        for (int j = 1; j < NP; j++) /* no part of the covariance */
          assert_close(slot.result.covar[NP + j - 1], 0, 0);
        const double u = mill_vsini_inner(kinds[k], limit + inwards * slot.result.vsini_err_km_s) -
                         mill_vsini_inner(kinds[k], limit);
        /* minimise grad u + d H d over the other parameters: Schur's complement by elimination */
        static const int idx[4] = {0, 2, 3, 4};
        double a[16], rhs[4];
        for (int i = 0; i < 4; i++) {
          rhs[i] = -hess[idx[i] * NP + 1] * u;
          for (int j = 0; j < 4; j++)
            a[i * 4 + j] = hess[idx[i] * NP + idx[j]];
        }
        assert_int_equal(mill_cholesky(4, a, 4), 0);
        mill_cholesky_solve(4, a, 4, rhs);
        double d[NP] = {rhs[0], u, rhs[1], rhs[2], rhs[3]}, rise = inwards * slopes[i_case % 3] * u;
        if (i_case >= 3) /* the prior's mean is the limit */
          rise += pow(slot.result.vsini_err_km_s / model.set.prior_sigma[1], 2);
        for (int i = 0; i < NP; i++)
          for (int j = 0; j < NP; j++)
            rise += d[i] * hess[i * NP + j] * d[j];
        assert_close(rise, 1, 1e-9);
      }
}

/* The last step leads to the limit, v sin i = 0, but raises F.  It is taken back, so v sin i keeps
 * the value from before that step. */
MILL_TEST(a_step_to_a_limit_that_is_taken_back)
{
  make(MILL_OPT_LM);
  for (int i = 0; i < NP; i++)
    for (int j = 0; j < NP; j++)
      hess[i * NP + j] *= i == j;
  centre[1] = -0.1;
  double near_start[NP];
  memcpy(near_start, centre, sizeof centre);
  near_start[1] = 0.4; /* 0.06 errors: the step promises 4e-3 */
  fails_at_end = 1;
  fit(1, near_start, NULL);
  assert_int_equal(n_request[MILL_REQ_MODELS], 2);
  assert_close(slot.result.vsini_km_s, 0.4, 0);
  /* error 8, and half of 0 to 8.4 */
  assert_close(slot.result.vsini_err_km_s, 4.2, 1e-9);
  assert_close(slot.result.covar[NP], 4.2 * 4.2, 1e-9);
  assert_true(slot.result.info & MILL_INFO_VSINI_ZERO);
}

static void arms(void)
{
  for (int i = 0; i < slot.n_segment; i++)
    mill_answer_of(&model, &slot, i)[MILL_ANSWER_CHISQ] = slot.segment[i].arm == 0 ? 90 : 12;
}

/* An arm's degrees of freedom are its good pixels less its continuum functions.  Those of
 * rchisq_tot are the arms' sum less the free parameters.  With rescale_errors and rchisq_tot above
 * 1, errors grow by the root of rchisq_tot, and COVAR by rchisq_tot. */
MILL_TEST(errors_are_scaled)
{
  mill_waveset ws[3] = {{.n_cont = 10}, {.n_cont = 10}, {.n_cont = 7}};
  const mill_segment four[4] = {{.arm = 0, .used = 1, .n_good = 60, .sn = 30, .ws = &ws[0]},
                                {.arm = 0, .used = 1, .n_good = 50, .sn = 10, .ws = &ws[1]},
                                {.arm = 1, .used = 1, .n_good = 37, .ws = &ws[2]},
                                {.arm = 1, .used = 1, .n_good = 0, .ws = &ws[2]}};
  make(MILL_OPT_LM);
  fit(1, start, NULL);
  assert_close(slot.result.err_scale, 1, 0);
  for (int rescale = 0; rescale < 2; rescale++) {
    make(MILL_OPT_LM);
    model.n_arm = 2;
    model.set.rescale_errors = rescale;
    model.set.fixed[MILL_PAR_LABEL0] = 1;
    slot.n_segment = 4;
    memcpy(segment, four, sizeof four);
    mill_fit_result *r = &slot.result;
    r->rchisq_tot = NAN;
    r->vrad_offset_err_km_s[1] = 0.7;
    memcpy(slot.starts.theta[0], start, sizeof start);
    slot.starts.n = 1;
    run(arms);
    assert_close(r->sn[0], 30, 0); /* of the best exposure */
    assert_close(r->rchisq[0], 180.0 / (110 - 20), 1e-15);
    assert_close(r->rchisq[1], 24.0 / (37 - 7), 1e-15);
    assert_close(r->rchisq_tot, 204.0 / (147 - 27 - 4), 1e-15);
    const double scale = rescale ? sqrt(204.0 / 116) : 1;
    assert_close(r->err_scale, scale, 1e-15);
    assert_close(r->vrad_err_km_s, scale * r->vrad_err_formal_km_s, 1e-14);
    assert_close(r->vsini_err_km_s, scale * r->vsini_err_formal_km_s, 1e-13);
    assert_close(r->label_err[1], scale * r->label_err_formal[1], 1e-14);
    assert_close(r->vrad_offset_err_km_s[1], scale * 0.7, 1e-15);
    /* the last element of COVAR is the variance of the last label */
    assert_close(r->covar[NP * (NP + 1) / 2 - 1], r->label_err[2] * r->label_err[2], 1e-14);
    /* an arm's velocity error scales with its own chi-square, which is below 1 in the second arm */
    const double arm_err = sqrt(2 / hess[0]); /* an arm has half of F */
    assert_close(r->vrad_arm_err_km_s[0], (rescale ? sqrt(2.0) : 1) * arm_err, 1e-9 * arm_err);
    assert_close(r->vrad_arm_err_km_s[1], arm_err, 1e-9 * arm_err);
    assert_close(r->vrad_arm_km_s[1], r->vrad_km_s, 0.06 * arm_err);
    assert_true(r->vrad_err_formal_km_s > 1 && r->label_err_formal[1] > 0.05);
  }
}

MILL_TEST_MAIN(NULL, NULL)
