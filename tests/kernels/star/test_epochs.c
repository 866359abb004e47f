/* SPDX-License-Identifier: BSD-3-Clause */
/* The searches for the velocities of epochs and arms, on likelihoods with known minima. */
#include "tests/mill_test.h"

#include "kernels/star/logic/fit_star.h"
#include "tests/kernels/star/paraboloid.h"

MILL_TEST(probabilities_of_chi_squares)
{
  static const struct {
    double x;
    int n;
    double expected; /* scipy.stats.chi2.sf */
  } of[] = {
      {0.3, 1, 0.58388242077036501},       {12.5, 1, 0.00040695201744495946},
      {0.7, 2, 0.70468808971871355},       {25.0, 2, 3.7266531720786718e-06},
      {4.2, 3, 0.24066188520961462},       {9.9, 8, 0.27211490927929194},
      {60.0, 13, 5.2534798527057241e-08},  {1.0, 40, 1},
      {900.0, 6, 3.7567160194821417e-191}, {3.0, 0, 1},
      {1600.0, 1601, 0.50235112452095168}, {3300.0, 3000, 8.5138497072716679e-05},
  };
  for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) /* sums of terms */
    assert_close(mill_chisq_pval(of[i].x, of[i].n), of[i].expected, 1e-13 * of[i].expected);
}

/** Epochs with minima at these velocities, of width 20 km/s and a depth of 400; NaN: flat. */
static int search_epochs(int n, const double *minimum, mill_epoch *epoch)
{
  int n_round = 0;
  paraboloid(60, 8);
  model.set.max_vel_km_s = 251;
  memset(epoch, 0, (size_t)n * sizeof *epoch);
  slot.n_epoch = slot.n_segment = n;
  slot.epoch = epoch;
  slot.best.end[MILL_PAR_VRAD] = 0.0;
  slot.result.vrad_err_km_s = 1.0;
  slot.result.err_scale = 1.0;
  slot.lead.signal[0] = 400.0;
  for (int i = 0; i < n; i++) {
    segment[i].epoch = i;
    segment[i].used = segment[i].n_good = 1;
    segment[i].sn = 10.0 + i;
  }
  segment[0].n_good = 0;
  for (; mill_epochs_search(&model, &slot, slot.place) == MILL_IS_ASKING; n_round++) {
    assert_true(n_round < 40 && slot.request == MILL_REQ_VALUES && slot.data_only);
    for (int i = 0; i < n; i++)
      for (int k = 0; k < slot.n_vel; k++) {
        const double u = (mill_velocities_of(&slot, i)[k] - minimum[i]) / 20.0;
        mill_answer_of(&model, &slot, i)[k] = isnan(minimum[i]) ? 7.0 : -400.0 * exp(-0.5 * u * u);
      }
  }
  return n_round;
}

MILL_TEST(epochs_are_found_far_away)
{
  /* without data, near, beyond the lines, flat, near a limit */
  static const double minimum[] = {0, 1.5, 120, NAN, 250};
  enum { N = sizeof minimum / sizeof minimum[0] };
  static const int flag[N] = {MILL_EPOCH_NO_DATA, 0, 0, MILL_EPOCH_NO_MINIMUM, MILL_EPOCH_LIMIT};
  static mill_epoch epoch[N];
  search_epochs(N, minimum, epoch);
  assert_true(mill_epochs_shift(&model, &slot));
  mill_epochs_row(&model, &slot);
  for (int i = 0; i < N; i++) {
    const mill_epoch_result *r = &epoch[i].result;
    assert_int_equal(r->flag, flag[i]);
    assert_int_equal(r->epoch, i);
    assert_close(r->sn, 10.0 + i, 0.0);
    /* a parabola through two errors of a Gaussian of 20 */
    assert_true(flag[i] ? isnan(r->vrad_km_s) : fabs(r->vrad_km_s - minimum[i]) < 0.1);
    assert_true(flag[i] ? isnan(r->vrad_err_km_s) : fabs(r->vrad_err_km_s - sqrt(2.0)) < 0.05);
  }
  assert_int_equal(slot.result.n_epoch, 2);
  assert_close(slot.result.vrad_range_km_s, 118.5, 0.2);
  /* their mean by weights that differ by a hundredth */
  assert_close(slot.best.end[MILL_PAR_VRAD], 60.75, 0.4);
  assert_close(epoch[2].shift[0], 120 - slot.best.end[MILL_PAR_VRAD], 0.1);
  assert_close(epoch[3].shift[0], 0.0, 0.0);
  assert_true(slot.result.info & MILL_INFO_EPOCHS);
  assert_false(mill_epochs_shift(&model, &slot)); /* only once */
}

MILL_TEST(epochs_that_agree_are_not_scanned)
{
  static const double minimum[] = {0, 1.5, -1.0, 0.3};
  static mill_epoch epoch[4];
  assert_true(search_epochs(4, minimum, epoch) <= 3);
  assert_false(mill_epochs_shift(&model, &slot));
  assert_false(slot.epochs_shifted);
}

/** F of an arm whose velocity is 17 km/s off, with a line's shape: flatter than a parabola far
 *  out. */
static double line_shape(double v, double depth)
{
  return -depth * exp(-0.5 * pow((v - 37) / 60, 2));
}

/** Search from v where the models are; n_eval: evaluations, not of a profile where there is one. */
static mill_curve search(double v, double err, double depth, double noise, int has_profile,
                         int *n_eval)
{
  paraboloid(60, 8);
  slot.theta[MILL_PAR_VRAD] = v;
  slot.result.vrad_err_km_s = slot.profile.width = err;
  slot.profile.has_arm = has_profile;
  for (int i = 0; i < MILL_N_PROFILE_FEW; i++)
    slot.arm[0].f[i] =
        line_shape(v + (i - MILL_N_PROFILE_FEW / 2) * MILL_PROFILE_FEW_STEP * err, depth);
  slot.request = MILL_REQ_MODELS;
  mill_ask_point(&model, &slot);
  answers[MILL_ANSWER_F] = line_shape(v, depth);
  mill_arms_begin(&model, &slot);
  *n_eval = 0;
  while (mill_seek_run(&model, &slot, slot.place) == MILL_IS_ASKING) {
    assert_true(*n_eval < 3 * MILL_SEEK_ROUNDS);
    for (int k = 0; k < 3; k++)
      if (!isnan(velocities[k])) {
        answers[k] = line_shape(velocities[k], depth) + (1 - k) * noise;
        ++*n_eval;
      }
  }
  return slot.arm[0];
}

MILL_TEST(velocity_of_an_arm)
{
  /* F'' = depth / 60^2 is twice the curvature */
  static const double depth[] = {3e2, 1e4, 1e6}, err[] = {0.02, 1, 5};
  int n_eval, n_near;
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 6; j++) {
      const double e = err[j % 3], sigma = 60 * sqrt(2 / depth[i]);
      const mill_curve at = search(20, e, depth[i], 0, j / 3, &n_eval);
      /* within a tenth of an error, or of a step: what a parabola misses over it */
      assert_close(at.found, 37, 0.1 * fmax(sigma, e));
      assert_close(at.err, sigma, 0.05 * sigma);
      /* near its end the profile takes the place of both evaluations, and the steps are the same:
       * two errors, which its quartic has within 1e-3 of the values themselves */
      const mill_curve plain = search(37 + 0.3 * sigma, sigma, depth[i], 0, 0, &n_eval);
      const mill_curve near = search(37 + 0.3 * sigma, sigma, depth[i], 0, 1, &n_near);
      assert_int_equal(n_eval, 2);
      assert_int_equal(n_near, 0);
      assert_close(near.found, plain.found, 1e-3 * sigma);
      assert_close(near.err, plain.err, 1e-2 * sigma);
    }
  /* nothing there, or rounding alone */
  assert_true(isnan(search(20, 1, 0, 0, 0, &n_eval).found));
  assert_true(isnan(search(20, 1, 0, 0, 1, &n_eval).err));
  assert_true(isnan(search(20, 1, 1e-4, 1e-3, 0, &n_eval).found));
}

MILL_TEST_MAIN(NULL, NULL)
