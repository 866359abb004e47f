/* SPDX-License-Identifier: BSD-3-Clause */
/** Prepare pixels: convert raw flux, ivar, mask and resolution to the arrays of the likelihood.
 *  The rules follow rvspecfit's DESI reader, so that results compare (docs/science/numerics.md). */
#pragma once

#include "kernels/star/blocks/lsf.h"
#include "kernels/star/blocks/resolution.h"

/** Replace the flux of unusable pixels in [first, first + len) by linear interpolation between the
 *  nearest usable pixels.  At an end the flux is constant.  If no pixel is usable, flux stays. */
MILL_HD static inline void mill_fill_pixels(const mill_segment *s, uint32_t ignore, int first,
                                            int len, double *flux)
{
  const int n = s->n_pix;
  for (int i = first; i < first + len; i++) {
    if (mill_pixel_usable(s, ignore, i))
      continue;
    int l = i - 1, r = i + 1;
    while (l >= 0 && !mill_pixel_usable(s, ignore, l))
      l--;
    while (r < n && !mill_pixel_usable(s, ignore, r))
      r++;
    if (l < 0 && r >= n)
      return;
    const double fl = (double)s->raw_flux[l >= 0 ? l : r], fr = (double)s->raw_flux[r < n ? r : l];
    const double slope = l >= 0 && r < n ? (fr - fl) / (double)(r - l) : 0.0;
    for (; i < r && i < first + len; i++) /* ends at the usable pixel r */
      flux[i - first] = fl + slope * (double)(i - l);
  }
}

/** Split a normal number x > 0 into m 2^e with 1 <= m < 2.  Set *e and return m. */
MILL_HD static inline double mill_mantissa(double x, int64_t *e)
{
  union {
    double f;
    uint64_t u;
  } v;
  v.f = x;
  *e = (int64_t)(v.u >> 52) - 1023;
  v.u = (v.u & 0xfffffffffffffu) | 0x3ff0000000000000u;
  return v.f;
}

/** Sum the logarithms of x [n], n <= 64, by one logarithm of the product of all mantissas. */
MILL_INLINE double mill_sum_of_logs(int n, const double *x)
{
  double product = 1.0;
  int64_t exponent = 0;
  MILL_SIMD_PRODUCT(product, exponent)
  for (int i = 0; i < n; i++) {
    int64_t e;
    product *= mill_mantissa(x[i], &e);
    exponent += e;
  }
  return log(product) + (double)exponent * 0.69314718055994530942; /* ln 2 */
}

/** Compute S/N, and the flux scale: the sigma of bad pixels is in proportion to it.  Returns the
 *  number of pixels without a mask bit. */
MILL_BLOCK_FN int mill_block_flux_level(mill_block *b, uint32_t ignore, mill_segment *s, double *sn,
                                        double *scale)
{
  const int n = s->n_pix;
  int part = 0;
  /* S/N is the median over usable pixels; a median ignores NaN */
  MILL_FOR_SIMD(b, i, n)
  {
    s->scratch[i] = s->raw_flux[i] * sqrtf(mill_pixel_usable(s, ignore, i) ? s->raw_ivar[i] : NAN);
  }
  MILL_FOR(b, i, n)
  {
    part += mill_mask_clear(s->raw_mask[i], ignore);
  }
  MILL_BARRIER(b);
  *sn = mill_block_median(b, n, s->scratch);
  /* median flux; if 0, that of unmasked pixels with flux > 0; without such pixels, of |flux| */
  *scale = mill_block_median(b, n, s->raw_flux);
  if (*scale == 0.0) {
    MILL_FOR_SIMD(b, i, n)
    {
      const int keep = mill_mask_clear(s->raw_mask[i], ignore) & (s->raw_flux[i] > 0.0f);
      s->scratch[i] = keep ? s->raw_flux[i] : NAN;
    }
    MILL_BARRIER(b);
    *scale = mill_block_median(b, n, s->scratch);
    if (!isfinite(*scale)) {
      MILL_FOR_SIMD(b, i, n)
      {
        s->scratch[i] = fabsf(s->raw_flux[i]);
      }
      MILL_BARRIER(b);
      *scale = mill_block_median(b, n, s->scratch);
    }
  }
  return (int)mill_block_sum(b, (double)part);
}

/** Set s->good [n_pix]: is the pixel usable, outside masked wavelengths, and at least edge_pix from
 *  the ends of a resolution matrix?  Pixels that mill_block_prepare_resolution found bad stay bad.
 *  Returns the number of good pixels, and the median of their sigma in *median_sigma. */
MILL_BLOCK_FN int mill_block_good(mill_block *b, const mill_model *m, mill_segment *s,
                                  double *median_sigma)
{
  const int n = s->n_pix, has_no_rows = s->raw_res == NULL;
  const int edge = has_no_rows ? 0 : m->set.edge_pix; /* matrix rows are cut at the ends */
  const uint32_t ignore = m->set.mask_ignore;
  const float *lsf_aa = s->lsf_aa, *flux = s->raw_flux, *ivar = s->raw_ivar;
  /* compilers suspect that writing good changes s: read its pointers before the loop */
  const int32_t *mask = s->raw_mask;
  const unsigned char *masked = s->ws->masked;
  unsigned char *good = s->good;
  int part = 0;
  MILL_FOR_SIMD(b, i, n)
  {
    good[i] = (unsigned char)((good[i] | has_no_rows) & mill_mask_clear(mask[i], ignore) &
                              mill_value_usable(flux[i], ivar[i]) & !masked[i] & (i >= edge) &
                              (i < n - edge));
  }
  if (lsf_aa) {
    MILL_FOR(b, i, n)
    {
      s->good[i] &= lsf_aa[i] == lsf_aa[i]; /* not NaN */
    }
  }
  MILL_FOR_SIMD(b, i, n)
  {
    s->scratch[i] = s->good[i] ? s->raw_ivar[i] : NAN;
  }
  MILL_FOR(b, i, n)
  {
    part += s->good[i];
  }
  const int n_good = (int)mill_block_sum(b, (double)part);
  /* pixels with the middle values of ivar have the middle values of sigma (float32) too */
  float low, high;
  mill_block_middle(b, n, s->scratch, &low, &high);
  *median_sigma =
      0.5 * ((double)(float)(1.0 / sqrt((double)low)) + (double)(float)(1.0 / sqrt((double)high)));
  return n_good;
}

/** Upper limit of a good pixel's S/N.  Templates and model-error rows are float32; at higher S/N
 *  their rounding would dominate F. */
#define MILL_MOST_SN 1e4

/** Write flux / sigma to s->d and 1 / sigma to s->is; interpolate flux over unusable pixels.
 *  ignore     in   mask bits that leave a pixel usable
 *  bad, most  in   1 / sigma to give to bad pixels; upper limit of 1 / sigma for good pixels
 *  total [3]  out  sum of ln(1 / sigma), sum of d^2, number of pixels with an unusable d or is */
MILL_BLOCK_FN void mill_block_scale_pixels(mill_block *b, uint32_t ignore, mill_segment *s,
                                           double bad, double most, double *total)
{
  const int n = s->n_pix;
  double acc[3] = {0.0, 0.0, 0.0};
  MILL_FOR(b, c, mill_chunks(n, MILL_CHUNK))
  {
    const int first = c * MILL_CHUNK, len = mill_chunk_len(n, first, MILL_CHUNK);
    double flux[MILL_CHUNK], inverse[MILL_CHUNK];
    int n_bad = 0;
    MILL_SIMD_SUM(n_bad)
    for (int i = 0; i < len; i++) {
      const double raw = sqrt((double)s->raw_ivar[first + i]);
      const int good = s->good[first + i];
      flux[i] = (double)s->raw_flux[first + i];
      const double capped = raw < most ? raw : most, limit = MILL_MOST_SN / fabs(flux[i]);
      inverse[i] = good ? (capped < limit ? capped : limit) : bad;
      n_bad += !good;
    }
    if (n_bad > 0)
      mill_fill_pixels(s, ignore, first, len, flux);
    double dd = 0.0;
    int n_off = 0;
    MILL_SIMD_SUM(dd, n_off)
    for (int i = 0; i < len; i++) {
      const float d = (float)(flux[i] * inverse[i]), is = (float)inverse[i];
      s->d[first + i] = d;
      s->is[first + i] = is;
      dd += (double)d * (double)d;
      n_off += !(isfinite(d) && isfinite(is) && is > 0.0f);
    }
    acc[0] += mill_sum_of_logs(len, inverse);
    acc[1] += dd;
    acc[2] += (double)n_off;
  }
  mill_block_sum_n(b, acc, 3, total);
}

/** Prepare one segment.  Sets used, n_good, sn, d, is, good, res, base, sum_ln_var and dd. */
MILL_BLOCK_FN void mill_block_prepare(mill_block *b, const mill_model *m, mill_segment *s)
{
  const int n = s->n_pix, pitch = mill_row_pitch(n);
  const int n_error = mill_n_error(&m->arm[s->arm], s->width_error) + m->arm[s->arm].n_sky;
  const uint32_t ignore = m->set.mask_ignore;
  /* clear the padding that a GPU loads with a row's last pixels */
  MILL_FOR(b, r, 1 + n_error)
  {
    float *row = r == 0 ? s->d : s->error + (ptrdiff_t)(r - 1) * pitch;
    for (int i = n; i < pitch; i++)
      row[i] = 0.0f;
  }
  if (s->raw_res) {
    mill_block_scale_rows(b, ignore, s);
    mill_block_prepare_resolution(b, ignore, s);
  } else if (s->res) {
    mill_block_prepare_lsf(b, s);
  } else {
    MILL_FOR(b, i, n)
    {
      s->base[i] = 1.0;
    }
    MILL_BARRIER(b);
  }
  double sn, scale, median_sigma;
  const int n_clear = mill_block_flux_level(b, ignore, s, &sn, &scale);
  MILL_SERIAL(b)
  {
    s->sn = isfinite(sn) ? sn : -1e9; /* -1e9: no usable pixel */
    s->n_good = s->used = 0;
    s->sum_ln_var = s->dd = 0.0;
  }
  MILL_BARRIER(b);
  if (n_clear < 1 || !isfinite(scale) || scale == 0.0)
    return;
  const int n_good = mill_block_good(b, m, s, &median_sigma);
  const double bad = 1.0 / (m->set.bad_sigma_factor * fabs(scale)); /* bad, most: 1 / sigma */
  const double most = n_good > 0 ? 1.0 / (m->set.sigma_floor * median_sigma) : 0.0;
  double total[3];
  mill_block_scale_pixels(b, ignore, s, bad, most, total);
  MILL_SERIAL(b)
  {
    s->sum_ln_var = -2.0 * total[0];
    s->dd = total[1];
    /* total[2] > 0: there was no usable pixel to interpolate from, or values exceed float32 */
    s->used = total[2] == 0.0;
    s->n_good = s->used ? n_good : 0;
  }
  MILL_BARRIER(b);
}
