/* SPDX-License-Identifier: BSD-3-Clause */
/* Value, gradient and curvature of the fit in float64 against a dense second
 * implementation (made_star.h) and against differences. */
#include "tests/mill_test.h"

#include "tests/fit/one_star.h"

enum { SEED = 20240607 };

static void begin(int kind, int n_label, int n_exposure, int with_matrix, double sn)
{
  clear();
  assert_ok(test_library_make(n_label, n_label == 3 ? 2 : 3, 5, &fx.lib));
  assert_ok(test_library_to(&fx.lib, kind));
  one_star_make(SEED + 17 * (uint64_t)n_label + (uint64_t)with_matrix, n_exposure, with_matrix, sn);
  for (int i = 0; i < fx.star.n_segment; i++) {
    made_segment *s = &fx.star.segment[i];
    s->mask[20] = s->mask[21] = 8;
    s->flux[20] = 1e4f;
    s->ivar[40] = 0;
    s->flux[41] = NAN;
    s->ivar[50] = 1e3f;
  }
}

/** One emulator of every kind.  tests/src/pipeline compares made_template's splines and radial
 *  functions with their definitions. */
static const int emulators[] = {MILL_EMULATOR_MLP, MILL_EMULATOR_GRID, MILL_EMULATOR_RBF};

/** Each arm but the first with a velocity of its own. */
static void with_offsets(void)
{
  fx.set.velocity_offsets = 1;
  fx.set.velocity_offset_sigma_km_s = 15;
  for (int a = 1; a < fx.lib.n_arm; a++)
    fx.truth[fx.lib.n_label + 1 + a] = a == 1 ? 9.3 : -14.2;
}

static int n_par(void)
{
  return fx.lib.n_label + 2 + (fx.set.velocity_offsets ? fx.lib.n_arm - 1 : 0);
}

static void evaluate(int request, int n, const double *theta, mill_evaluation *eval)
{
  mill_fit_result prepared;
  made_ask(fx.pipeline, &fx.raw, request, n, theta, eval, &prepared);
  assert_int_equal(prepared.status, MILL_STATUS_NOT_DONE);
}

static double value(const double *theta)
{
  mill_evaluation eval;
  evaluate(MILL_REQ_VALUES, 1, theta, &eval);
  return eval.f;
}

static void compare_value(void)
{
  static made_answer expected;
  const int np = n_par();
  for (int trial = 0; trial < 4; trial++) {
    double theta[MAX_PAR];
    memcpy(theta, fx.truth, sizeof theta);
    if (trial > 0)
      made_theta(&fx.lib, trial == 3 ? 1.6 : 0.9, 300, 150, &fx.random, theta);
    if (trial == 2)
      theta[1] = 0;
    made_evaluate(&fx.lib, &fx.set, &fx.star, theta, &expected);
    expected.f += made_penalty(&fx.lib, &fx.set, &fx.star, theta);
    mill_evaluation final, jacobian;
    evaluate(MILL_REQ_MODELS, 1, theta, &final);
    evaluate(MILL_REQ_TANGENTS, 1, theta, &jacobian);
    /* flux / sigma and 1 / sigma are float32: at S/N 40 each changes a pixel's residual r by a
     * random dr of 1.1e-6 rms, so F changes by the sum of 2 r dr.  The tolerance is four standard
     * deviations of that sum, and the rounding of sums. */
    double chisq = 0;
    for (int a = 0; a < fx.lib.n_arm; a++)
      chisq += expected.chisq[a];
    const double tolerance = 4 * 2 * sqrt(2 * chisq) * 1.1e-6 + 1e-9 * fabs(expected.f);
    assert_close(final.f, expected.f, tolerance);
    assert_close(jacobian.f, expected.f, tolerance);
    assert_close(value(theta), expected.f, tolerance);
    for (int a = 0; a < fx.lib.n_arm; a++) {
      /* float32 rounds flux / sigma by a relative 6e-8, which changes the residuals */
      assert_close(final.chisq[a], expected.chisq[a], 1e-4 + 1e-6 * expected.chisq[a]);
      assert_close(final.chisq_c[a], expected.chisq_c[a], 1e-4 + 1e-6 * expected.chisq_c[a]);
    }
    for (int j = 0; j < np; j++)
      assert_true(isfinite(jacobian.grad[j]));
  }
}

MILL_TEST(value_matches_least_squares)
{
  for (int e = 0; e < 3; e++)
    for (int n_label = 3; n_label <= 4; n_label++)
      for (int with_matrix = 0; with_matrix < 2; with_matrix++) {
        begin(emulators[e], n_label, 2, with_matrix, 40);
        if (e == 0) /* each kind with and without a matrix */
          fx.set.rotation = with_matrix == n_label % 2;
        open_pipeline();
        compare_value();
      }
}

MILL_TEST(value_without_the_determinant_and_with_chebyshev)
{
  begin(MILL_EMULATOR_MLP, 4, 1, 1, 40);
  fx.set.likelihood = MILL_LIKE_PROFILE;
  fx.set.continuum = MILL_CONT_CHEBYSHEV;
  fx.set.n_cont = 6;
  fx.set.n_wave_mask = 1;
  fx.set.wave_mask[0].min_aa = fx.star.segment[0].wave_aa[60] - 1;
  fx.set.wave_mask[0].max_aa = fx.star.segment[0].wave_aa[70] + 1;
  open_pipeline();
  compare_value();
}

MILL_TEST(priors_are_added_to_the_value)
{
  begin(MILL_EMULATOR_MLP, 3, 1, 0, 40);
  fx.set.prior_mean[2] = 5300;
  fx.set.prior_sigma[2] = 40;
  fx.set.prior_mean[0] = 12;
  fx.set.prior_sigma[0] = 3;
  open_pipeline();
  compare_value();
}

/** From above: three-point forward differences, extrapolated. */
static double forward(const double *theta, int j, double step)
{
  double d[4];
  const double f0 = value(theta);
  for (int i = 0; i < 4; i++) {
    double x[MAX_PAR];
    const double h = step / (1 << i);
    moved(theta, j, h, x);
    d[i] = (value(x) - f0) / h;
  }
  for (int level = 1; level < 4; level++)
    for (int i = 3; i >= level; i--)
      d[i] += (d[i] - d[i - 1]) / ((1 << level) - 1);
  return d[3];
}

static void compare_gradient(int at_zero)
{
  double worst = 0;
  const int np = n_par();
  for (int trial = 0; trial < 3; trial++) {
    double theta[MAX_PAR];
    mill_evaluation eval;
    memcpy(theta, fx.truth, sizeof theta);
    if (trial > 0)
      made_theta(&fx.lib, 0.8, 200, 120, &fx.random, theta);
    if (at_zero)
      theta[1] = 0;
    else if (theta[1] < 10)
      theta[1] += 15;
    evaluate(MILL_REQ_TANGENTS, 1, theta, &eval);
    for (int j = 0; j < np; j++) {
      const double sigma = 1 / sqrt(eval.hess[j * np + j]);
      /* A step is a part of one error.  F of the linear kernel has corners where v sin i is a
       * whole number of grid points; no step may reach a corner.  A step from v sin i = 0 stays
       * below 0.2 grid points, where a single formula gives the smooth kernel. */
      const double grid = MILL_C_KM_S * fx.lib.arm[0].ln_step;
      double step = 0.2 * sigma, found;
      if (j == 1) {
        const int kind = fx.set.rotation;
        const double to_corner = fabs(theta[1] / grid - round(theta[1] / grid)) * grid;
        const double u = mill_vsini_inner(kind, theta[1]);
        step = fmin(step, at_zero ? mill_vsini_inner(kind, 0.2 * grid)
                                  : 0.5 * to_corner / mill_vsini_outer_slope(kind, u));
      }
      found = at_zero && j == 1 ? forward(theta, j, step) : richardson(value, theta, j, step);
      if (j >= fx.lib.n_label + 2) /* priors are no part of a Jacobian's answer */
        found -= 2 * theta[j] / pow(fx.set.velocity_offset_sigma_km_s, 2);
      /* Differences have the noise 1e-9 |F| / step.  A pixel's position in a grid interval is
       * rounded to float32 (6e-8), which adds noise to both derivatives by velocity. */
      const double unit = fmax(sqrt(eval.hess[j * np + j]), fabs(eval.grad[j]));
      worst = fmax(worst, fabs(eval.grad[j] - found) / unit);
      assert_close(eval.grad[j] / unit, found / unit, 2e-5);
    }
  }
  printf("largest difference, in units of the gradient or 1/sigma: %.2g\n", worst);
}

MILL_TEST(gradient_matches_differences)
{
  for (int n_label = 3; n_label <= 4; n_label++)
    for (int with_matrix = 0; with_matrix < 2; with_matrix++)
      for (int likelihood = 0; likelihood < 2; likelihood++)
        for (int rotation = 0; rotation < 2; rotation++) {
          begin(MILL_EMULATOR_MLP, n_label, 1 + likelihood, with_matrix, 30);
          fx.set.likelihood = likelihood;
          fx.set.rotation = rotation;
          open_pipeline();
          compare_gradient(0);
        }
}

/* The splines' third derivatives jump at their knots, so extrapolated differences across a knot
 * are worse.  If other seeds fail, look there first. */
MILL_TEST(gradient_of_other_emulators)
{
  for (int e = 1; e < 3; e++)
    for (int n_label = 3; n_label <= 4; n_label++)
      for (int with_matrix = 0; with_matrix < 2; with_matrix++) {
        begin(emulators[e], n_label, 1 + with_matrix, with_matrix, 30);
        open_pipeline();
        compare_gradient(0);
      }
}

MILL_TEST(value_and_gradient_with_velocity_offsets)
{
  for (int n_label = 3; n_label <= 4; n_label++)
    for (int with_matrix = 0; with_matrix < 2; with_matrix++) {
      begin(MILL_EMULATOR_MLP, n_label, 1 + with_matrix, with_matrix, 30);
      with_offsets();
      open_pipeline();
      compare_value();
      compare_gradient(0);
    }
}

MILL_TEST(gradient_is_one_sided_at_zero_rotation)
{
  for (int rotation = 0; rotation < 2; rotation++) {
    begin(MILL_EMULATOR_MLP, 4, 2, 1, 30);
    fx.set.rotation = rotation;
    open_pipeline();
    compare_gradient(1);
  }
}

static void compare_curvature(int kind, int offsets)
{
  for (int trial = 0; trial < 4; trial++) {
    begin(kind, 4, 2, trial % 2, 30);
    fx.set.rotation = trial / 2;
    if (offsets)
      with_offsets();
    open_pipeline();
    const int np = n_par(), nk = fx.set.n_cont;
    mill_evaluation eval;
    double hess[MAX_PAR * MAX_PAR] = {0};
    evaluate(MILL_REQ_TANGENTS, 1, fx.truth, &eval);
    for (int i = 0; i < fx.star.n_segment; i++) {
      const made_segment *s = &fx.star.segment[i];
      static ref_prepared prepared;
      static double v[MAX_PAR][MADE_MAX_PIX], design[MADE_MAX_PIX * MILL_MAX_CONT];
      static double a[MADE_MAX_PIX * MILL_MAX_CONT], b[MADE_MAX_PIX * MAX_PAR];
      double templ[MADE_MAX_PIX], model[MADE_MAX_PIX], at[MAX_PAR];
      made_prepare(&fx.lib, &fx.set, s, &prepared);
      made_arm_theta(&fx.lib, offsets, s->arm, fx.truth, at);
      made_template(&fx.lib, fx.set.rotation, s, at, templ);
      made_project(&fx.set, s, &prepared, templ, model);
      for (int j = 0; j < np; j++) {
        /* V_j = (dt/dtheta_j) (model / t), with central differences of the template t */
        double x[MAX_PAR], up[MADE_MAX_PIX], down[MADE_MAX_PIX];
        const double h = 3e-3 / sqrt(eval.hess[j * np + j]);
        moved(fx.truth, j, h, x);
        made_arm_theta(&fx.lib, offsets, s->arm, x, at);
        made_template(&fx.lib, fx.set.rotation, s, at, up);
        moved(fx.truth, j, -h, x);
        made_arm_theta(&fx.lib, offsets, s->arm, x, at);
        made_template(&fx.lib, fx.set.rotation, s, at, down);
        for (int p = 0; p < s->n_pix; p++)
          v[j][p] = (up[p] - down[p]) / (2 * h) * model[p] / templ[p];
      }
      for (int p = 0; p < s->n_pix; p++) {
        for (int k = 0; k < nk; k++)
          design[p * nk + k] = a[p * nk + k] =
              made_continuum(&fx.set, s, k, p) * templ[p] / prepared.sigma[p];
        for (int j = 0; j < np; j++)
          b[p * np + j] = v[j][p];
      }
      /* what of each V the continuum cannot take up */
      assert_int_equal(LAPACKE_dgels(LAPACK_ROW_MAJOR, 'N', s->n_pix, nk, np, a, nk, b, np), 0);
      for (int j = 0; j < np; j++)
        for (int p = 0; p < s->n_pix; p++)
          for (int k = 0; k < nk; k++)
            v[j][p] -= design[p * nk + k] * b[k * np + j];
      for (int j = 0; j < np; j++)
        for (int l = 0; l < np; l++)
          for (int p = 0; p < s->n_pix; p++)
            hess[j * np + l] += v[j][p] * v[l][p];
    }
    for (int j = 0; j < np; j++)
      for (int l = 0; l < np; l++) {
        const double unit = sqrt(hess[j * np + j] * hess[l * np + l]);
        /* differences of the template: h^2 of a third derivative */
        assert_close(eval.hess[j * np + l] / unit, hess[j * np + l] / unit, 1e-5);
        assert_close(eval.hess[j * np + l], eval.hess[l * np + j], 0);
      }
  }
}

MILL_TEST(curvature_is_that_of_the_projected_model)
{
  for (int e = 0; e < 3; e++)
    compare_curvature(emulators[e], 0);
  compare_curvature(MILL_EMULATOR_MLP, 1);
}

MILL_TEST(float32_agrees_with_float64)
{
  for (int e = 0; e < 3; e++) {
    begin(emulators[e], 4, 2, 1, 60);
    open_pipeline();
    const int np = fx.lib.n_label + 2;
    mill_evaluation wide, narrow;
    evaluate(MILL_REQ_TANGENTS, 1, fx.truth, &wide);
    close_pipeline();
    fx.set.precision = MILL_FLOAT32;
    open_pipeline();
    evaluate(MILL_REQ_TANGENTS, 1, fx.truth, &narrow);
    /* float32 may change -2 ln L by 1e-3 at most near the optimum */
    assert_close(narrow.f, wide.f, 1e-3);
    for (int j = 0; j < np; j++) {
      /* one sigma changes this ratio by 2 */
      assert_close(narrow.grad[j] / sqrt(wide.hess[j * np + j]),
                   wide.grad[j] / sqrt(wide.hess[j * np + j]), 1e-3);
      assert_close(narrow.hess[j * np + j] / wide.hess[j * np + j], 1, 1e-5);
    }
  }
}

MILL_SEEDED_TEST_MAIN(SEED, NULL, NULL)
