/* SPDX-License-Identifier: BSD-3-Clause */
/* The width of a segment's line-spread function, and which segments count as narrow. */
#include "tests/mill_test.h"

#include "jobs/fit/lsf_hint.h"

enum { N = 400, N_DIAG = 11, HALF = N_DIAG / 2 };
static const double PIXEL_AA = 0.8;
static double wave_aa[N];
static float sigma_aa[N], matrix[N_DIAG * N];

static void fill_wave(void)
{
  for (int i = 0; i < N; i++)
    wave_aa[i] = 4000.0 + PIXEL_AA * i;
}

/* Gaussian rows of this sigma in pixels, as DESI stores them: element of row i and column i - HALF
   + k in diagonal N_DIAG - 1 - k at that column. */
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
  const mill_raw_segment s = {
      .n_pix = N, .wave_aa = wave_aa, .n_diag = N_DIAG, .resolution = matrix};
  fill_wave();
  /* the sum over pixels of a Gaussian of sigma 1 or more is its integral to 1e-4; 5 pixels hold
     all but 3e-4 of one of 1.3 */
  for (double sigma = 1.0; sigma < 1.35; sigma += 0.1) {
    fill_matrix(sigma);
    assert_true(fabs(mill_lsf_width(&s) / (PIXEL_AA * sigma) - 1.0) < 1e-3);
  }
  memset(matrix, 0, sizeof matrix);
  assert_true(isnan(mill_lsf_width(&s)));
}

MILL_TEST(the_narrowest_tenth)
{
  const mill_raw_segment s = {.n_pix = N, .wave_aa = wave_aa, .sigma_aa = sigma_aa};
  const mill_raw_segment none = {.n_pix = N};
  fill_wave();
  for (int i = 0; i < N; i++)
    sigma_aa[i] = 1.0f + (float)i / (float)(N - 1);
  /* the third of 20 pixels at even distances */
  assert_true(fabs(mill_lsf_width(&s) - (1.0 + 2.0 / 19.0)) < 2.0 / N);
  for (int i = 0; i < N / 20; i++) /* less than a tenth do not count */
    sigma_aa[i] = 0.01f;
  assert_true(mill_lsf_width(&s) > 1.0);
  for (int i = 0; i < N; i++)
    sigma_aa[i] = NAN;
  assert_true(isnan(mill_lsf_width(&s)));
  assert_true(isnan(mill_lsf_width(&none)));
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
      const mill_raw_segment s = {.n_pix = N, .arm = a, .wave_aa = wave_aa, .sigma_aa = sigma_aa};
      for (int i = 0; i < N; i++)
        sigma_aa[i] = 0.9f + 0.1f * (float)k;
      mill_narrow_note(&widths, &lib, &s);
    }
  assert_true(widths.n[0] == 0 && widths.n[1] == 3); /* 1.2 is no narrower than 1.2 */
  assert_true(fabs(widths.sum_aa[1] - (0.9 + 1.0 + 1.1)) < 1e-6);
}

MILL_TEST_MAIN(NULL, NULL)
