/* SPDX-License-Identifier: BSD-3-Clause */
/* A shift of all velocities by the refraction of air is seen, and not that of other stars. */
#include "tests/mill_test.h"

#include "jobs/fit/medium_hint.h"

/* n velocities at the quantiles (i + 1/2) / n of a logistic distribution, whose quartiles are
   those of a normal one of this sigma: 0.6745 sigma = ln(3) s */
static void fill(mill_velocity_counts *counts, int n, double mean, double sigma)
{
  const double scale = 0.6744897501960817 * sigma / log(3.0);
  memset(counts, 0, sizeof *counts);
  for (int i = 0; i < n; i++) {
    const double p = (i + 0.5) / n;
    mill_fit_result result = {.status = MILL_STATUS_FITTED};
    result.vrad_km_s = mean + scale * log(p / (1.0 - p));
    mill_velocity_count(counts, &result);
  }
}

static int sign_of(int n, double mean, double sigma)
{
  mill_velocity_counts counts;
  double median;
  int64_t n_row;
  fill(&counts, n, mean, sigma);
  const int sign = mill_medium_shift(&counts, &median, &n_row);
  assert_int_equal(n_row, n);
  /* the median of an odd number of quantiles is the mean; bins have 1 km/s */
  if (n % 2 == 1 && fabs(mean) < 150)
    assert_true(fabs(median - mean) <= 1.0);
  return sign;
}

MILL_TEST(a_shift_is_seen)
{
  assert_int_equal(sign_of(1001, -83, 40), -1);
  assert_int_equal(sign_of(1001, 83, 40), 1);
  assert_int_equal(sign_of(1001, -75, 40), -1);
  assert_int_equal(sign_of(11, -85, 15), -1);
  assert_int_equal(sign_of(1001, 83, 0.1), 1);
}

MILL_TEST(other_stars_are_none)
{
  assert_int_equal(sign_of(1001, 0, 40), 0);
  assert_int_equal(sign_of(1001, -40, 40), 0);
  assert_int_equal(sign_of(1001, -120, 40), 0);
  assert_int_equal(sign_of(1001, 400, 40), 0);
  assert_int_equal(sign_of(0, 0, 1), 0);
  /* too few of them to tell: 1.253 sigma / sqrt(n) is above 10 km/s, or fewer than 10 */
  assert_int_equal(sign_of(21, -83, 100), 0);
  assert_int_equal(sign_of(9, -83, 5), 0);
}

MILL_TEST(only_good_velocities_count)
{
  mill_velocity_counts counts = {{0}};
  const mill_fit_result bad[] = {
      {.status = MILL_STATUS_LOW_SN, .vrad_km_s = 1},
      {.status = MILL_STATUS_FITTED, .vrad_km_s = NAN},
      {.status = MILL_STATUS_FITTED, .vrad_km_s = 1, .warn = MILL_WARN_VEL_ERR},
      {.status = MILL_STATUS_FITTED, .vrad_km_s = 1, .warn = MILL_WARN_CHISQ},
  };
  const mill_fit_result good = {
      .status = MILL_STATUS_FITTED, .vrad_km_s = 1, .warn = MILL_WARN_HULL | MILL_WARN_VSINI};
  double median;
  int64_t n;
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
    mill_velocity_count(&counts, &bad[i]);
  mill_medium_shift(&counts, &median, &n);
  assert_int_equal(n, 0);
  mill_velocity_count(&counts, &good);
  mill_medium_shift(&counts, &median, &n);
  assert_int_equal(n, 1);
}

MILL_TEST_MAIN(NULL, NULL)
