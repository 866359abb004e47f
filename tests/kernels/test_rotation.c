/* Rotation weights and slopes against numerical integrals (tests/reference). */
#include "tests/mill_test.h"

#include "kernels/rotation.h"
#include "tests/reference/blocks.h"

static void test_weights_match_numerical_integrals(void **state)
{
  (void)state;
  int at = 0;
  for (int i = 0; i < REF_ROTATION_N; i++)
    for (int k = 0; k < ref_rotation_n[i]; k++, at++) {
      double weight, slope;
      mill_rotation_weight(ref_rotation_r[i], k, &weight, &slope);
      /* a weight is a difference of numbers of size k + 1 and r: their rounding, and
       * 1e-13 of the reference's quadrature */
      const double tolerance = 1e-13 + 4e-16 * (k + 1 + ref_rotation_r[i]);
      assert_close(weight, ref_rotation_weight[at], tolerance);
      assert_close(slope, ref_rotation_slope[at], 1e-13);
    }
}

static void test_weights_sum_to_one_and_slopes_to_zero(void **state)
{
  (void)state;
  for (double r = 0; r < 500; r = r * 1.37 + 0.013) {
    const int half = mill_rotation_half_width(r);
    double sum = 0, slopes = 0, weight, slope;
    for (int k = 0; k <= half; k++) {
      mill_rotation_weight(r, k, &weight, &slope);
      assert_true(weight >= -1e-15);
      sum += k ? 2 * weight : weight;
      slopes += k ? 2 * slope : slope;
    }
    /* half + 1 weights, each from numbers of size half: half^2 roundings at most */
    const double tolerance = 1e-14 + 2.3e-16 * half * half;
    assert_close(sum, 1, tolerance);
    if (half > 0)
      assert_close(slopes, 0, tolerance);
    /* beyond the half width there is nothing */
    mill_rotation_weight(r, half + 1, &weight, &slope);
    if (half > 0)
      assert_close(weight, 0, 1e-15 + 4e-16 * half);
  }
}

static void test_no_rotation_is_the_identity_with_a_slope_from_above(void **state)
{
  (void)state;
  double weight, slope, near_weight, near_slope;
  assert_int_equal(mill_rotation_half_width(0), 0);
  for (int k = 0; k < 3; k++) {
    mill_rotation_weight(0, k, &weight, &slope);
    assert_close(weight, k == 0, 0);
    /* below one grid point the kernel is linear in r */
    mill_rotation_weight(1e-3, k, &near_weight, &near_slope);
    assert_close(slope, near_slope, 1e-12);
    assert_close(weight + 1e-3 * slope, near_weight, 1e-14);
  }
}

static void test_slope_is_the_derivative_of_the_weight(void **state)
{
  (void)state;
  for (double r = 0.31; r < 40; r *= 1.3)
    for (int k = 0; k <= mill_rotation_half_width(r); k++) {
      /* the weight has corners where a leg meets the kernel's end, r integer */
      if (fabs(r - floor(r + 0.5)) < 0.02)
        continue;
      const double h = 1e-4;
      double up, down, weight, slope, unused;
      mill_rotation_weight(r + h, k, &up, &unused);
      mill_rotation_weight(r - h, k, &down, &unused);
      mill_rotation_weight(r, k, &weight, &slope);
      /* h^2 times the third derivative (r > 0.02 from a corner) + rounding / h */
      assert_close((up - down) / (2 * h), slope, 2e-7);
    }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_weights_match_numerical_integrals),
      cmocka_unit_test(test_weights_sum_to_one_and_slopes_to_zero),
      cmocka_unit_test(test_no_rotation_is_the_identity_with_a_slope_from_above),
      cmocka_unit_test(test_slope_is_the_derivative_of_the_weight),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
