/* SPDX-License-Identifier: BSD-3-Clause */
/* Rotation weights and slopes against numerical integrals (tests/reference). */
#include "tests/mill_test.h"

#include "kernels/math/rotation.h"
#include "reference/blocks.h" /* made in the build folder by tests/reference/make_blocks.py */

static const int kinds[2] = {MILL_ROT_LINEAR, MILL_ROT_SPLINE};

static void compare(int kind, const int *n, const double *expected, const double *expected_slope)
{
  int at = 0;
  for (int i = 0; i < REF_ROTATION_N; i++)
    for (int k = 0; k < n[i]; k++, at++) {
      const double r = ref_rotation_r[i];
      double weight, slope;
      mill_rotation_weight(kind, r, k, &weight, &slope);
      /* 1e-13 of the reference's quadrature, whose smooth slopes are divided by r, and
       * roundings: a linear weight is a difference of numbers of size k + 1 and r, a smooth
       * one a sum of weights below one of L(k - r x), which rounds with its argument */
      assert_close(weight, expected[at], 1e-13 + 4e-16 * (k + 1 + r));
      assert_close(slope, expected_slope[at], 1e-13 * (kind == MILL_ROT_SPLINE ? 1 + 1 / r : 1));
    }
}

MILL_TEST(weights_match_numerical_integrals)
{
  compare(MILL_ROT_LINEAR, ref_linear_n, ref_linear_weight, ref_linear_slope);
  compare(MILL_ROT_SPLINE, ref_smooth_n, ref_smooth_weight, ref_smooth_slope);
}

MILL_TEST(weights_sum_to_one_and_slopes_to_zero)
{
  for (int i = 0; i < 2; i++)
    for (double r = 0; r < 500; r = r * 1.37 + 0.013) {
      const int kind = kinds[i], half = mill_rotation_half_width(kind, r);
      double sum = 0, slopes = 0, weight, slope;
      for (int k = 0; k <= mill_rotation_slope_half_width(kind, r); k++) {
        mill_rotation_weight(kind, r, k, &weight, &slope);
        if (kind == MILL_ROT_LINEAR)
          assert_true(weight >= -1e-15);
        if (k <= half)
          sum += k ? 2 * weight : weight;
        slopes += k ? 2 * slope : slope;
      }
      /* half + 1 weights, each from numbers of size half: half^2 roundings at most; and the
       * smooth ones' quadrature */
      const double tolerance = 1e-13 + 2.3e-16 * half * half;
      assert_close(sum, 1, tolerance);
      assert_close(slopes, 0, tolerance);
      /* beyond the half width there is nothing */
      mill_rotation_weight(kind, r, half + 1, &weight, &slope);
      if (half > 0)
        assert_close(weight, 0, 1e-15 + 4e-16 * half);
    }
}

MILL_TEST(no_rotation_is_the_identity_with_a_slope_from_above)
{
  double weight, slope, near_weight, near_slope;
  for (int i = 0; i < 2; i++) {
    const int kind = kinds[i], reach = kind == MILL_ROT_LINEAR ? 1 : 3;
    assert_int_equal(mill_rotation_half_width(kind, 0), 0);
    assert_int_equal(mill_rotation_slope_half_width(kind, 0), reach);
    for (int k = 0; k < 5; k++) {
      /* below one grid point the linear kernel is linear in r; the smooth one is in r^2 / 2
       * but for m4 r^4 / 24 times a fourth difference, whose largest weight is 28/3 */
      const double r = 1e-3, by = kind == MILL_ROT_LINEAR ? r : 0.5 * r * r;
      const double next = kind == MILL_ROT_LINEAR ? 0 : 0.05 * pow(r, 4);
      mill_rotation_weight(kind, 0, k, &weight, &slope);
      assert_close(weight, k == 0, 0);
      assert_true((slope != 0) == (k <= reach));
      mill_rotation_weight(kind, r, k, &near_weight, &near_slope);
      assert_close(slope, near_slope, 1e-12 + 4 * next / (r * r));
      assert_close(weight + by * slope, near_weight, 1e-15 + next);
    }
  }
}

/** Where one way of making the smooth weights hands over to another. */
MILL_TEST(smooth_weights_have_no_steps)
{
  static const double join[] = {MILL_ROTATION_MOMENTS, MILL_ROTATION_QUINTIC};
  for (int i = 0; i < 2; i++)
    for (int k = 0; k <= 6; k++) {
      double below, above, slope_below, slope_above;
      mill_rotation_weight(MILL_ROT_SPLINE, join[i] * (1 - 1e-13), k, &below, &slope_below);
      mill_rotation_weight(MILL_ROT_SPLINE, join[i] * (1 + 1e-13), k, &above, &slope_above);
      assert_close(below, above, 1e-12);
      assert_close(slope_below, slope_above, 1e-12);
    }
}

MILL_TEST(inner_parameter_of_rotation)
{
  for (int i = 0; i < 2; i++) {
    const int kind = kinds[i];
    assert_close(mill_vsini_inner(kind, 0), 0, 0);
    assert_close(mill_vsini_outer(kind, 0), 0, 0);
    for (double v = 1e-6; v < 1000; v *= 1.7) {
      const double u = mill_vsini_inner(kind, v), h = 1e-4 * u;
      assert_close(mill_vsini_outer(kind, u) / v, 1, 1e-14);
      const double slope =
          (mill_vsini_outer(kind, u + h) - mill_vsini_outer(kind, u - h)) / (2 * h);
      /* h^2 of a third derivative, which is 3/8 of the slope in units of u below the
       * softening, and rounding / h */
      assert_close(mill_vsini_outer_slope(kind, u) / slope, 1, 1e-8);
      /* the chain rule that the Jacobian uses */
      const double per = 0.06, r = v * per, e = 1e-5;
      double weight, slope_r, up, down, unused;
      mill_rotation_weight(kind, r, 0, &weight, &slope_r);
      if (v < 1 || fabs(r - floor(r + 0.5)) < 0.01)
        continue;
      mill_rotation_weight(kind, mill_vsini_outer(kind, u * (1 + e)) * per, 0, &up, &unused);
      mill_rotation_weight(kind, mill_vsini_outer(kind, u * (1 - e)) * per, 0, &down, &unused);
      assert_close(slope_r * mill_rotation_slope_scale(kind, v, per) * u, (up - down) / (2 * e),
                   1e-8);
    }
  }
  assert_close(mill_vsini_outer_slope(MILL_ROT_LINEAR, 0), 1, 0);
  assert_true(isinf(mill_vsini_outer_slope(MILL_ROT_SPLINE, 0)));
}

MILL_TEST_MAIN(NULL, NULL)
