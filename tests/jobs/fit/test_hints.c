/* SPDX-License-Identifier: BSD-3-Clause */
/* Hints about a fit's input: segments with a narrow line-spread function, and velocities shifted
 * by the refraction of air. */
#include "tests/mill_test.h"

#include "jobs/fit/hints.h"
#include "src/stars/line_spread.h"

/* --- the width of a line-spread function --- */

enum { N = 400, N_DIAG = 11, HALF = N_DIAG / 2 };
static const double PIXEL_AA = 0.8;
static double wave_aa[N];
static float sigma_aa[N], matrix[N_DIAG * N], flux[N], ivar[N];
static const mill_fit_settings set;
static const mill_raw_segment plain = {.n_pix = N, .wave_aa = wave_aa, .flux = flux, .ivar = ivar};

static void fill_wave(void)
{
  for (int i = 0; i < N; i++) {
    wave_aa[i] = 4000.0 + PIXEL_AA * i;
    ivar[i] = 1;
  }
}

/* Gaussian rows of this sigma in pixels, as DESI stores them: row i, column c = i - HALF + k is in
 * diagonal N_DIAG - 1 - k at c. */
static void fill_matrix(double sigma)
{
  memset(matrix, 0, sizeof matrix);
  for (int i = 0; i < N; i++)
    for (int k = 0; k < N_DIAG; k++)
      if (i - HALF + k >= 0 && i - HALF + k < N)
        matrix[(N_DIAG - 1 - k) * N + i - HALF + k] =
            (float)exp(-0.5 * (k - HALF) * (k - HALF) / (sigma * sigma));
}

MILL_TEST(rows_of_a_matrix)
{
  mill_raw_segment s = plain;
  s.n_diag = N_DIAG;
  s.resolution = matrix;
  fill_wave();
  /* the sum of a Gaussian over pixels is off by 1e-4 for sigma 1 and more; 5 pixels lose 3e-4 of
   * it for sigma 1.3 */
  for (double sigma = 1.0; sigma < 1.35; sigma += 0.1) {
    fill_matrix(sigma);
    assert_true(fabs(mill_lsf_width(&set, &s) / (PIXEL_AA * sigma) - 1.0) < 1e-3);
  }
  memset(matrix, 0, sizeof matrix);
  assert_true(isnan(mill_lsf_width(&set, &s)));
}

MILL_TEST(the_narrowest_tenth)
{
  mill_raw_segment s = plain;
  s.sigma_aa = sigma_aa;
  fill_wave();
  for (int i = 0; i < N; i++)
    sigma_aa[i] = 1.0f + (float)i / (float)(N - 1);
  for (int i = 0; i < N; i++) { /* the first pixel of the third twentieth; one is not fitted */
    ivar[i] = 0;
    assert_true(fabs(mill_lsf_width(&set, &s) - (1.0 + 2.0 / 20.0)) < 2.0 / N);
    ivar[i] = 1;
  }
  for (int i = 0; i < N / 20; i++) /* less than a tenth do not count */
    sigma_aa[i] = 0.01f;
  assert_true(mill_lsf_width(&set, &s) > 1.0);
  for (int i = 0; i < N / 2; i++) /* nor do pixels that are not fitted */
    sigma_aa[i] = ivar[i] = 0;
  assert_true(mill_lsf_width(&set, &s) > 1.5);
  for (int i = 0; i < N; i++)
    sigma_aa[i] = NAN;
  assert_true(isnan(mill_lsf_width(&set, &s)));
  assert_true(isnan(mill_lsf_width(&set, &plain)));
}

MILL_TEST(what_counts)
{
  mill_library lib;
  mill_narrow_widths widths = {.n_seen = 0};
  memset(&lib, 0, sizeof lib);
  lib.n_arm = 2;
  lib.arm[0].template_sigma_aa = -1; /* the instrument's own */
  lib.arm[1].template_sigma_aa = 1.2;
  fill_wave();
  for (int a = 0; a < 2; a++)
    for (int k = 0; k < 4; k++) {
      mill_raw_segment s = plain;
      s.arm = a;
      s.sigma_aa = sigma_aa;
      for (int i = 0; i < N; i++)
        sigma_aa[i] = 0.9f + 0.1f * (float)k;
      mill_narrow_note(&widths, &set, &lib, &s);
    }
  assert_true(widths.n[0] == 0 && widths.n[1] == 3); /* 1.2 is no narrower than 1.2 */
  assert_true(fabs(widths.sum_aa[1] - (0.9 + 1.0 + 1.1)) < 1e-6);
}

/* --- a median of +-83 km/s shows a mistaken medium, other medians do not --- */

/* Return mill_medium_shift of n velocities.  They are the quantiles (i + 1/2) / n of a logistic
 * distribution with the quartiles of a normal distribution: ln(3) scale = 0.6745 sigma. */
static int sign_of(int n, double mean, double sigma)
{
  const double scale = 0.6744897501960817 * sigma / log(3.0);
  mill_velocity_counts counts = {{0}};
  double median;
  int64_t n_row;
  for (int i = 0; i < n; i++) {
    const double p = (i + 0.5) / n;
    mill_fit_result result = {.status = MILL_STATUS_FITTED};
    result.vrad_km_s = mean + scale * log(p / (1.0 - p));
    mill_velocity_count(&counts, &result);
  }
  const int sign = mill_medium_shift(&counts, &median, &n_row);
  assert_int_equal(n_row, n);
  /* the median of an odd number of quantiles is the mean, within a bin of 1 km/s */
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
  /* no sign if the median's error, 1.253 sigma / sqrt(n), is above 10 km/s, or n below 10 */
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
      {.status = MILL_STATUS_FITTED, .vrad_km_s = 1, .warn = MILL_WARN_CHISQ}};
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
