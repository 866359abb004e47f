/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "src/config/config_internal.h"

enum { REACH = 12 }; /* half width of the low-pass filter, in coarse grid steps */

/* Ends of the low-pass filter's pass band and stop band, in cycles per coarse step.  Thinning makes
 * aliases of frequencies from 1/2 to STOP; the line-spread function removes these aliases. */
static const double PASS = 0.42, STOP = 0.62;

/* Return the modified Bessel function I_0(x), by its power series. */
static double bessel(double x)
{
  double sum = 1.0, term = 1.0;
  for (int k = 1; term > 1e-17 * sum; k++) {
    term *= 0.25 * x * x / ((double)k * k);
    sum += term;
  }
  return sum;
}

/* Compute weights [half + 1] of one side of a symmetric low-pass filter: sinc times a Kaiser
 * window with 80 dB stop-band attenuation (Kaiser 1974, IEEE ISCAS, 20). */
static void make_filter(int factor, int half, double *weight)
{
  const double beta = 7.857, cut = (PASS + STOP) / factor; /* twice the cut-off frequency */
  double sum = 0.0;
  for (int k = 0; k <= half; k++) {
    const double u = (double)k / half, x = M_PI * cut * k;
    weight[k] = (k == 0 ? 1.0 : sin(x) / x) * bessel(beta * sqrt(1.0 - u * u));
    sum += k == 0 ? weight[k] : 2.0 * weight[k];
  }
  for (int k = 0; k <= half; k++)
    weight[k] /= sum;
}

/* Low-pass filter *x [n][n_in] along its first axis and keep every factor-th row.  Beyond an
 * end, continue the rows by point reflection about the end row. */
static int thin_rows(int factor, int n, int n_in, float **x)
{
  const int half = REACH * factor, n_out = (n - 1) / factor + 1;
  const size_t pitch = (size_t)n_in;
  MILL_OWNED float *to = NULL;
  double weight[REACH * MILL_MAX_SAMPLING + 1];
  MILL_OWNED double *sum = NULL;
  make_filter(factor, half, weight);
  MILL_CHECK(MILL_ALLOC((size_t)n_out * pitch, &to));
  MILL_CHECK(MILL_ALLOC(n_in, &sum));
  for (int i = 0; i < n_out; i++) {
    memset(sum, 0, pitch * sizeof *sum);
    for (int j = -half; j <= half; j++) {
      /* a row p beyond the row `end` is 2 * (row end) - (row mirrored at end) */
      const int p = i * factor + j, end = p < 0 ? 0 : n - 1, is_beyond = p < 0 || p >= n;
      const double w = weight[j < 0 ? -j : j], sign = is_beyond ? -1.0 : 1.0;
      const float *row = *x + (size_t)(is_beyond ? 2 * end - p : p) * pitch;
      const float *end_row = *x + (size_t)end * pitch;
      for (int k = 0; k < n_in; k++)
        sum[k] += w * (sign * (double)row[k] + (1.0 - sign) * (double)end_row[k]);
    }
    for (int k = 0; k < n_in; k++)
      to[(size_t)i * pitch + (size_t)k] = (float)sum[k];
  }
  mill_free(*x);
  return MILL_GIVE(&to, x);
}

int mill_arm_thin(int factor, mill_arm *arm)
{
  mill_emulator *e = &arm->emulator;
  mill_model_error *error = &arm->error;
  const int last = e->n_layer - 1, n_whole = arm->n_pix; /* the last layer's outputs */
  const int n = factor > 1 ? (n_whole - 1) / factor + 1 : 0;
  if (n < MILL_THINNED_POINTS) /* too few, or 0: no thinning is wanted */
    return MILL_OK;
  MILL_CHECK(thin_rows(factor, n_whole, e->n_in[last], &e->weight[last]));
  MILL_CHECK(thin_rows(factor, n_whole, 1, &e->bias[last]));
  for (int i = 0; i < n; i++)
    arm->wave_aa[i] = arm->wave_aa[(size_t)i * (size_t)factor];
  /* the model error stays on the fine grid, up to the last coarse point: move its rows together */
  const size_t n_fine = (size_t)(n - 1) * (size_t)factor + 1;
  for (int k = 1; k < error->n_component; k++)
    memmove(error->component + (size_t)k * n_fine, error->component + (size_t)k * (size_t)n_whole,
            n_fine * sizeof(float));
  error->finer = factor;
  e->n_out[last] = arm->n_pix = n;
  arm->ln_step *= factor;
  arm->sampling = factor;
  return MILL_OK;
}
