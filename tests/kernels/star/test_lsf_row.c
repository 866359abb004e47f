/* SPDX-License-Identifier: BSD-3-Clause */
/* One row of a line-spread function of given sigma: its response to waves, and its moments. */
#include "tests/mill_test.h"

#include "kernels/star/blocks/lsf.h"
#include "tests/test_library.h"

enum { N_LSF = 60, H_LSF = 15 };

/** Smooth grid, uniform in ln wavelength as many surveys have it, or in wavelength. */
static void lsf_grid(int log_grid, double *wave)
{
  for (int i = 0; i < N_LSF; i++)
    wave[i] = log_grid ? 5000 * exp(2.3e-4 * i) : 5000 + 0.8 * i;
}

/** Compare a row's response to exp(i k x), x in pixels, with the Gaussian's. */
static void check_response(const double *wave, int i, double s_pix, double k)
{
  double row[2 * H_LSF + 1], re = 0, im = 0;
  const double pixel = (wave[i + 1] - wave[i - 1]) / 2;
  mill_lsf_row(N_LSF, wave, i, s_pix * pixel, H_LSF, row);
  for (int q = 0; q <= 2 * H_LSF; q++) {
    const double x = (wave[i - H_LSF + q] - wave[i]) / pixel;
    re += row[q] * cos(k * x);
    im += row[q] * sin(k * x);
  }
  /* Sampling by pixels repeats the Gaussian's response at every 2 pi in k; the repeats add to the
   * response and to the norm.  1e-6 covers rounding, uneven pixels and the cut at 5 sigma. */
  const double nearest = 2 * acos(-1.0) - k;
  const double samples = 4 * exp(-0.5 * s_pix * s_pix * nearest * nearest) + 1e-6;
  const double tolerance = s_pix < 0.8 ? 3e-4 : samples;
  assert_close(re, exp(-0.5 * k * k * s_pix * s_pix), tolerance);
  assert_close(im, 0, tolerance);
}

MILL_TEST(lsf_rows_act_as_a_gaussian)
{
  double wave[N_LSF];
  for (int grid = 0; grid < 2; grid++) {
    lsf_grid(grid, wave);
    for (double s = 0.01; s < 3; s += 0.03)
      for (double k = 0.1; k < 1.6; k += 0.2)
        check_response(wave, 30, s, k);
  }
}

MILL_TEST(lsf_rows_have_no_step)
{
  double wave[N_LSF], row[2][2 * H_LSF + 1];
  lsf_grid(1, wave);
  const double pixel = (wave[31] - wave[29]) / 2;
  mill_lsf_row(N_LSF, wave, 30, 0, H_LSF, row[0]);
  for (int k = 0; k <= 2 * H_LSF; k++)
    assert_close(row[0][k], k == H_LSF, 0);
  for (int i = 1; i < 4000; i++) {
    mill_lsf_row(N_LSF, wave, 30, 1e-3 * i * pixel, H_LSF, row[i % 2]);
    /* A step of 1e-3 in sigma changes the peak by 1.2e-3 at most.  At MILL_LSF_SAMPLES the row
     * begins to sample the Gaussian, and weights jump by 3.5e-3. */
    for (int k = 0; k <= 2 * H_LSF; k++)
      assert_close(row[0][k], row[1][k], 4e-3);
  }
}

MILL_TEST(lsf_moments_are_exact_on_any_grid_without_gaps)
{
  uint64_t random = 4711;
  for (int trial = 0; trial < 200; trial++) {
    double wave[N_LSF] = {4000}, row[2 * H_LSF + 1];
    for (int i = 1; i < N_LSF; i++)
      wave[i] = wave[i - 1] + 1 + 0.15 * test_library_random(&random);
    const double s = 0.25 * (1.01 + test_library_random(&random));
    mill_lsf_row(N_LSF, wave, 20, s, H_LSF, row);
    static const double gauss[5] = {1, 0, 1, 0, 3};
    for (int power = 0; power < 5; power++) {
      double sum = 0;
      for (int k = 0; k <= 2 * H_LSF; k++)
        sum += row[k] * pow(wave[20 - H_LSF + k] - wave[20], power);
      assert_close(sum, gauss[power] * pow(s, power), 1e-10); /* of wavelengths near 4000 */
    }
  }
}

MILL_TEST_MAIN(NULL, NULL)
