/* SPDX-License-Identifier: BSD-3-Clause */
/** Pixel preparation written a second time, plainly and in float64, for tests.
 *
 *  It follows docs/science/numerics.md, and takes medians by qsort.  Numbers that the fit stores as
 *  float32 (flux / sigma, 1 / sigma) are rounded at the end. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { REF_MAX_PIX = 2048 };

typedef struct ref_raw {
  int n;
  const float *flux, *ivar;
  const int32_t *mask;         /**< NULL: none */
  const unsigned char *masked; /**< excluded by wavelength; NULL: none */
  uint32_t ignore;
  int edge;
  double sigma_floor, bad_factor;
} ref_raw;

typedef struct ref_prepared {
  int used, n_good;
  double sn;
  int good[REF_MAX_PIX];
  double flux[REF_MAX_PIX], sigma[REF_MAX_PIX];
} ref_prepared;

static int ref_order(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/** Return the median of the values of x [n] except NaN; NaN if all are NaN.  Overwrites x. */
static double ref_median(int n, double *x)
{
  int m = 0;
  for (int i = 0; i < n; i++)
    if (!isnan(x[i]))
      x[m++] = x[i];
  if (m == 0)
    return NAN;
  qsort(x, (size_t)m, sizeof *x, ref_order);
  return m % 2 ? x[m / 2] : 0.5 * (x[m / 2 - 1] + x[m / 2]);
}

static void ref_prepare(const ref_raw *raw, ref_prepared *out)
{
  const int n = raw->n;
  static double list[REF_MAX_PIX];
  static int clear[REF_MAX_PIX], usable[REF_MAX_PIX];
  int m = 0, n_clear = 0;
  memset(out, 0, sizeof *out);
  for (int i = 0; i < n; i++) {
    clear[i] = !raw->mask || ((uint32_t)raw->mask[i] & ~raw->ignore) == 0;
    n_clear += clear[i];
    usable[i] = clear[i] && isfinite(raw->flux[i]) && isfinite(raw->ivar[i]) && raw->ivar[i] > 0 &&
                fabs((double)raw->flux[i]) * sqrt((double)raw->ivar[i]) <= 1e10;
    if (usable[i])
      list[m++] = (double)raw->flux[i] * sqrt((double)raw->ivar[i]);
  }
  out->sn = ref_median(m, list);
  if (!isfinite(out->sn))
    out->sn = -1e9;
  for (int i = 0; i < n; i++)
    list[i] = (double)raw->flux[i];
  double scale = ref_median(n, list);
  if (scale == 0) {
    m = 0;
    for (int i = 0; i < n; i++)
      if (clear[i] && raw->flux[i] > 0)
        list[m++] = (double)raw->flux[i];
    scale = ref_median(m, list);
    if (!isfinite(scale)) {
      for (int i = 0; i < n; i++)
        list[i] = fabs((double)raw->flux[i]);
      scale = ref_median(n, list);
    }
  }
  if (n_clear == 0 || !isfinite(scale) || scale == 0)
    return;
  m = 0;
  for (int i = 0; i < n; i++) {
    out->good[i] =
        usable[i] && !(raw->masked && raw->masked[i]) && i >= raw->edge && i < n - raw->edge;
    if (out->good[i])
      list[m++] = 1 / sqrt((double)raw->ivar[i]);
  }
  out->n_good = m;
  const double floor = m ? raw->sigma_floor * ref_median(m, list) : 0;
  out->used = 1;
  for (int i = 0; i < n; i++) {
    out->sigma[i] = raw->bad_factor * fabs(scale);
    if (out->good[i])
      out->sigma[i] =
          fmax(fmax(1 / sqrt((double)raw->ivar[i]), floor), 1e-4 * fabs((double)raw->flux[i]));
    int left = i, right = i;
    while (left >= 0 && !usable[left])
      left--;
    while (right < n && !usable[right])
      right++;
    if (left < 0 && right >= n)
      out->flux[i] = (double)raw->flux[i];
    else if (left < 0)
      out->flux[i] = (double)raw->flux[right];
    else if (right >= n || left == right)
      out->flux[i] = (double)raw->flux[left];
    else
      out->flux[i] =
          ((double)raw->flux[left] * (right - i) + (double)raw->flux[right] * (i - left)) /
          (right - left);
    if (!isfinite((float)(out->flux[i] / out->sigma[i])) || !isfinite((float)(1 / out->sigma[i])) ||
        (float)(1 / out->sigma[i]) <= 0)
      out->used = 0;
  }
  if (!out->used)
    out->n_good = 0;
}
