/* SPDX-License-Identifier: BSD-3-Clause */
/* Moments of the profile over velocity, of functions with known ones. */
#include "tests/mill_test.h"

#include "kernels/star/logic/fit_star.h"
#include "tests/kernels/star/paraboloid.h"

/** Profile of F = x^2 + skew x^3 + kurt x^4 by the fit, x = (v - v0) / sigma - shift. */
static void profile(double sigma, double shift, double skew, double kurt, int n, int *n_grid)
{
  const double v0 = 37;
  memset(&slot, 0, sizeof slot);
  slot.best.end[0] = v0;
  slot.best.at.hess[0] = 1 / (sigma * sigma);
  mill_profile_begin(&model, &slot, n);
  *n_grid = 0;
  do {
    mill_curve *c = &slot.profile.curve;
    for (int i = 0; i < c->n; i++) {
      const double x = (mill_curve_velocity(c, i) - v0) / sigma - shift;
      c->f[i] = x * x * (1 + x * (skew + x * kurt));
    }
    ++*n_grid;
  } while (mill_profile_digest(&model, &slot));
}

/* A profile at 5 velocities has the moments of one at 41.  Otherwise the fit computes all 41. */
MILL_TEST(few_velocities_suffice_or_are_not_taken)
{
  paraboloid(60, 8);
  int n_few = 0, n_full = 0;
  double worst = 0;
  for (int s = 0; s <= 20; s++)
    for (int k = 0; k <= 20; k++) {
      const double skew = 0.003 * s - 0.03, kurt = 0.0006 * k + 0.3 * skew * skew;
      int n_grid;
      profile(3, 0, skew, kurt, MILL_N_PROFILE, &n_grid);
      const mill_fit_result full = slot.result;
      profile(3, 0, skew, kurt, MILL_N_PROFILE_FEW, &n_grid);
      const mill_fit_result *few = &slot.result;
      if (slot.profile.curve.n < MILL_N_PROFILE)
        n_few++;
      else
        n_full++;
      assert_int_equal(slot.profile.curve.n < MILL_N_PROFILE, n_grid == 1);
      const double tol = 1e-4; /* the windows end at 6 and at 10 widths */
      assert_close(few->vrad_err_km_s / full.vrad_err_km_s, 1, tol);
      assert_close(few->vrad_skew, full.vrad_skew, tol);
      assert_close(few->vrad_kurt / full.vrad_kurt, 1, tol);
      worst = fmax(worst, fabs(few->vrad_kurt / full.vrad_kurt - 1));
    }
  printf("%d profiles of 5 velocities, %d of 41; kurtosis off by %.1e at most\n", n_few, n_full,
         worst);
  assert_true(n_few > 50 && n_full > 50);
  /* a profile that begins off the minimum, or near a velocity limit, takes the full grid */
  int n_grid;
  profile(3, 0.4, 0, 0, MILL_N_PROFILE_FEW, &n_grid);
  assert_int_equal(n_grid, 1);
  profile(3, 0.6, 0, 0, MILL_N_PROFILE_FEW, &n_grid);
  assert_int_equal(slot.profile.curve.n, MILL_N_PROFILE);
  model.set.max_vel_km_s = 40;
  profile(3, 0, 0, 0, MILL_N_PROFILE_FEW, &n_grid);
  assert_int_equal(slot.profile.curve.n, MILL_N_PROFILE);
}

/* Return F of a profile that is far from Gaussian.  Its search must end.  If a velocity grid can
 * hold the profile, its moments must be those of a dense integral. */
static double bad_profile(int kind, double x)
{
  switch (kind) {
  case 0: /* says nothing */
    return 3;
  case 1: /* a thousand times narrower than the curvature said */
    return fmin(1e6 * x * x, 1e5);
  case 2: /* a hundred times wider */
    return 1e-4 * x * x;
  case 3: /* two peaks */
    return fmin(4 * (x - 2) * (x - 2), 1 + 4 * (x + 2) * (x + 2));
  case 4: /* one-sided */
    return x < 0 ? 30 * x * x : x * x;
  case 5: /* every other value is missing */
    return fmod(fabs(floor(x + 0.5)), 2) == 1 ? (double)NAN : x * x;
  default: /* none at all */
    return (double)NAN;
  }
}

MILL_TEST(profiles_of_any_shape_end)
{
  for (int kind = 0; kind <= 6; kind++)
    for (int at_limit = 0; at_limit < 2; at_limit++) {
      paraboloid(60, 8);
      const double v0 = at_limit ? 1000 : 37, sigma = 3;
      slot.best.end[0] = v0;
      slot.best.at.hess[0] = 1 / (sigma * sigma);
      mill_profile_begin(&model, &slot, MILL_N_PROFILE_FEW);
      int n_grid = 0, go = 1;
      while (go) {
        mill_curve *c = &slot.profile.curve;
        for (int i = 0; i < c->n; i++)
          c->f[i] = bad_profile(kind, (mill_curve_velocity(c, i) - v0) / sigma);
        go = mill_profile_digest(&model, &slot);
        assert_true(++n_grid <= 1 + MILL_MAX_PROFILE_ROUND);
      }
      const mill_fit_result *r = &slot.result;
      if (kind == 6) {
        assert_true(slot.nonfinite);
        continue;
      }
      assert_int_equal(slot.nonfinite, 0);
      assert_true(isfinite(r->vrad_err_km_s) && r->vrad_err_km_s > 0);
      assert_true(isfinite(r->vrad_skew) && r->vrad_kurt >= 1);
      if (kind == 5)
        continue;
      double sum = 0, mean = 0, m2 = 0;
      const double step = kind == 1 ? 1e-5 : 1e-2;
      for (int pass = 0; pass < 2; pass++) {
        for (int i = -200000; i <= 200000; i++) {
          const double v = v0 + step * i;
          if (fabs(v) > 1000)
            continue;
          const double w = exp(-0.5 * bad_profile(kind, (v - v0) / sigma));
          if (pass == 0) {
            sum += w;
            mean += w * v;
          } else {
            m2 += w * (v - mean) * (v - mean) / sum;
          }
        }
        if (pass == 0)
          mean /= sum;
      }
      /* The grid of velocities has steps of half the profile's width, and a limit may fall between
       * two of them.  A flat profile (kind 0) has steps of a twentieth of the velocity range. */
      const double tol = at_limit || kind == 0 ? 0.35 : (kind == 4 ? 0.02 : 0.01);
      assert_close(r->vrad_err_km_s / sqrt(m2), 1, tol);
    }
}

/* Waves are reported when they are more than noise and a good part of chi-square. */
MILL_TEST(waves_of_residuals_are_reported)
{
  static const struct {
    double chisq, gain, stiff;
    int is_stiff;
  } arm[] = {
      {960, 0, -40.0 / 960, 0},     /* white noise has gain 40 of 1000 */
      {1000, 40, 0, 0},             /* of it nothing is left */
      {1300, 340, 300.0 / 1300, 1}, /* 33 standard deviations, 23 % */
      {1150, 190, 150.0 / 1150, 0}, /* 13 % */
  };
  for (size_t i = 0; i < sizeof arm / sizeof arm[0]; i++) {
    paraboloid(60, 8);
    slot.result.n_pix[0] = 1000;
    slot.result.chisq[0] = arm[i].chisq;
    answers[MILL_ANSWER_GAIN] = arm[i].gain;
    answers[MILL_ANSWER_BLOCKS] = 40;
    mill_fit_stiffness(&model, &slot);
    assert_close(slot.result.stiff[0], arm[i].stiff, 1e-14);
    assert_int_equal((slot.result.info & MILL_INFO_STIFF) != 0, arm[i].is_stiff);
  }
  /* A gain of 18, less 4 by noise in 4 blocks, is 41 % of chi-square, but only 5 sigma. */
  slot.result.info = 0;
  slot.result.n_pix[0] = 20;
  slot.result.chisq[0] = 34;
  answers[MILL_ANSWER_GAIN] = 18;
  answers[MILL_ANSWER_BLOCKS] = 4;
  mill_fit_stiffness(&model, &slot);
  assert_close(slot.result.stiff[0], 14.0 / 34, 1e-14);
  assert_int_equal(slot.result.info, 0);
}

MILL_TEST_MAIN(NULL, NULL)
