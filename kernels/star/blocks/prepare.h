/* SPDX-License-Identifier: BSD-3-Clause */
/** Pixel preparation: raw flux, ivar, mask and resolution to what the
 *  likelihood reads.  Conventions of rvspecfit's DESI reader, so that results
 *  can be compared; every rule is listed in docs/science/numerics.md.
 */
#ifndef MILL_PREPARE_H
#define MILL_PREPARE_H

#include <float.h>

#include "kernels/math/select.h"
#include "kernels/math/vector.h"
#include "kernels/star/blocks/lsf.h"

/** Templates are called too broad where sigma is below this times theirs, and FIT_INFO reports it
 *  when at least the second fraction of the pixels is concerned. */
#define MILL_LSF_NARROW   0.99
#define MILL_LSF_SIZEABLE 0.1

/** Rows of a matrix are scaled to the median of their sums where the largest sum exceeds the least
 *  by more than the first; a row whose sum is off by more than the second factor is no row. */
#define MILL_ROW_SPREAD 0.01
#define MILL_ROW_LOST   2.0

/** Largest (flux / sigma)^2 of a usable pixel: float64 sums have 16 digits, and 10^4 pixels about 10^4
 *  of chi-square. */
#define MILL_MOST_SQUARE 1e20

/** Rows of the solver for the template's own resolution that go over the pixels at once. */
enum { MILL_DECONV_STEP = 4 };

/** How many of x [n] lie below a limit, ignoring NaN. */
MILL_BLOCK_FN int mill_block_count_below(mill_block *b, int n, const float *x, float limit)
{
  int part = 0;
  MILL_GLOBAL(x);
  MILL_FOR(b, i, n)
  {
    part += x[i] < limit;
  }
  return (int)mill_block_sum(b, (double)part);
}

/** The two middle ones of x [n] in order, NaN passed over; the same one twice for an odd
 *  count, NaN when there is none.  Exact: up to 32 rounds of counting, so that it runs in
 *  parallel without sorting. */
MILL_BLOCK_FN void mill_block_middle(mill_block *b, int n, const float *x, float *low, float *high)
{
  int part = 0;
  MILL_FOR(b, i, n)
  {
    part += x[i] == x[i];
  }
  const int count = (int)mill_block_sum(b, (double)part);
  *low = *high = NAN;
  if (count < 1)
    return;
  /* largest key with at most (count - 1) / 2 values below it */
  const int rank = (count - 1) / 2;
  uint32_t key = 0;
  for (int bit = 31; bit >= 0; bit--) {
    const uint32_t probe = key | (1u << bit);
    const float limit = mill_float_from_key(probe);
    /* beyond the keys of both infinities there are NaN only: all, or none, lie below */
    const int n_below =
        limit == limit ? mill_block_count_below(b, n, x, limit) : (probe & 0x80000000u ? count : 0);
    if (n_below <= rank)
      key = probe;
  }
  /* a zero of either sign: counted alike, so the key is that of the positive one */
  *low = *high = mill_float_from_key(key);
  if (count % 2 != 0)
    return;
  /* the next one: the same value when it occurs often enough, else the least above */
  float least = INFINITY;
  int n_above = 0;
  MILL_FOR_MIN(b, i, n, least, n_above)
  {
    const float above = x[i] > *low ? x[i] : INFINITY;
    n_above += x[i] > *low;
    least = above < least ? above : least;
  }
  if (count - (int)mill_block_sum(b, (double)n_above) > rank + 1)
    return;
  if (least == FLT_MAX) /* where clang's reduction begins: there are infinities only */
    least = INFINITY;
  *high = (float)-mill_block_max(b, -(double)least);
}

/** Median of x [n], NaN passed over (numpy.nanmedian: the mean of the two middle ones
 *  for an even count); NaN when there is none. */
MILL_BLOCK_FN double mill_block_median(mill_block *b, int n, const float *x)
{
  float low, high;
  mill_block_middle(b, n, x, &low, &high);
  return 0.5 * ((double)low + (double)high);
}

/** A row of the resolution matrix that has no numbers, or zeros: the pixel alone.  The pixel is not
 *  good, but its template must be finite, and hold continuum functions of bad pixels alone; its sum
 *  counts nowhere. */
MILL_HD static inline void mill_lose_row(mill_segment *s, int i)
{
  for (int k = 0; k < s->n_diag; k++)
    s->res[(size_t)k * mill_row_pitch(s->n_pix) + i] = k == s->n_diag / 2 ? 1.0f : 0.0f;
  s->base[i] = 1.0;
  s->scratch[i] = NAN;
}

/** Weights of row i, by an edge, that sum to mult without those off the arm. */
MILL_HD static inline void mill_rescale_row(mill_segment *s, int i, double mult)
{
  const int n = s->n_pix, nd = s->n_diag, h = nd / 2, pitch = mill_row_pitch(n);
  double sum = 0.0;
  for (int k = 0; k < nd; k++) {
    const int j = i - h + k;
    if (j >= 0 && j < n)
      sum += (double)s->res[(size_t)k * pitch + i];
  }
  const double factor = mult / (sum != 0.0 ? sum : 1.0);
  double base = 0.0;
  for (int k = 0; k < nd; k++) {
    const int j = i - h + k;
    const size_t at = (size_t)k * pitch + i;
    s->res[at] = j >= 0 && j < n ? (float)(factor * (double)s->res[at]) : 0.0f;
    base += (double)s->res[at];
  }
  s->base[i] = base;
}

/** Rows of the resolution matrix of len pixels from first on, from the diagonals as stored; zeros
 *  beyond len. */
MILL_BLOCK_FN void mill_read_rows(const mill_segment *s, int first, int len,
                                  double (*row)[MILL_CHUNK])
{
  const int n = s->n_pix, nd = s->n_diag, h = nd / 2;
  for (int k = 0; k < nd; k++) {
    const float *raw = s->raw_res + (size_t)(nd - 1 - k) * n;
    const int shift = first - h + k;
    if (shift >= 0 && shift + MILL_CHUNK <= n && len == MILL_CHUNK) {
      MILL_SIMD
      for (int i = 0; i < MILL_CHUNK; i++)
        row[k][i] = (double)raw[shift + i];
    } else {
      for (int i = 0; i < MILL_CHUNK; i++)
        row[k][i] = i < len && shift + i >= 0 && shift + i < n ? (double)raw[shift + i] : 0.0;
    }
  }
}

/** Rows k0 ... k0 + MILL_DECONV_STEP - 1 of weight [nd][nd] times row; those beyond nd are the last
 *  one again. */
MILL_BLOCK_FN void mill_deconvolve(int nd, int k0, const double *weight,
                                   const double (*row)[MILL_CHUNK], double (*x)[MILL_CHUNK])
{
  enum { N_VEC = MILL_CHUNK < 2 * MILL_VEC_N_F64 ? 1 : 2 };
  const double *w[MILL_DECONV_STEP];
  MILL_UNROLL
  for (int q = 0; q < MILL_DECONV_STEP; q++)
    w[q] = weight + (ptrdiff_t)(k0 + q < nd ? k0 + q : nd - 1) * nd;
  for (int i = 0; i < MILL_CHUNK; i += N_VEC * MILL_VEC_N_F64) {
    mill_vec_f64 sum[MILL_DECONV_STEP][N_VEC];
    MILL_UNROLL
    for (int q = 0; q < MILL_DECONV_STEP; q++)
      for (int v = 0; v < N_VEC; v++)
        sum[q][v] = mill_vec_zero_f64();
    for (int l = 0; l < nd; l++) {
      const mill_vec_f64 *at = (const mill_vec_f64 *)(const void *)&row[l][i];
      MILL_UNROLL
      for (int q = 0; q < MILL_DECONV_STEP; q++)
        for (int v = 0; v < N_VEC; v++)
          sum[q][v] += w[q][l] * at[v];
    }
    MILL_UNROLL
    for (int q = 0; q < MILL_DECONV_STEP; q++)
      for (int v = 0; v < N_VEC; v++)
        ((mill_vec_f64 *)(void *)&x[q][i])[v] = sum[q][v];
  }
}

/** The same for pixels of different widths, each by the two solvers whose sigma is next to its own. */
MILL_BLOCK_FN void mill_deconvolve_uneven(const mill_segment *s, int first, int len, int k0,
                                          const double (*row)[MILL_CHUNK], double (*x)[MILL_CHUNK])
{
  const int nd = s->n_diag;
  const float *at = s->deconv.at + first;
  float low = at[0], high = at[0];
  for (int i = 1; i < len; i++) {
    low = at[i] < low ? at[i] : low;
    high = at[i] > high ? at[i] : high;
  }
  for (int q = 0; q < MILL_DECONV_STEP; q++)
    for (int i = 0; i < len; i++)
      x[q][i] = 0.0;
  for (int m = (int)low; (float)m < high + 1.0f; m++) {
    double part[MILL_DECONV_STEP][MILL_CHUNK];
    mill_deconvolve(nd, k0, s->deconv.solve + (ptrdiff_t)m * nd * nd, row, part);
    for (int q = 0; q < MILL_DECONV_STEP; q++)
      for (int i = 0; i < len; i++) {
        const double share = 1.0 - fabs((double)at[i] - (double)m);
        x[q][i] += share > 0.0 ? share * part[q][i] : 0.0;
      }
  }
}

/** Sum of the elements of a whole row i of a resolution matrix as stored, and of their squares. */
MILL_HD static inline void mill_sum_row(int n_diag, int n_pix, const float *resolution, int i,
                                        double *sum, double *square)
{
  *sum = *square = 0.0;
  for (int k = 0; k < n_diag; k++) {
    const double x =
        (double)resolution[(size_t)(n_diag - 1 - k) * (size_t)n_pix + (size_t)(i - n_diag / 2 + k)];
    *sum += x;
    *square += x * x;
  }
}

/** Rows of len pixels from first on that are narrower than the templates: narrow [len] is their
 *  sum there, else 0.  A row is as wide as the Gaussian with its sum of squares, (sum)^2 / (2
 *  sqrt(pi) sum of squares), which wings and a shift within the pixel hardly move.  A row that is
 *  cut at an end of the arm is judged by the nearest whole one.  Returns how many rows are below
 *  MILL_LSF_NARROW. */
MILL_BLOCK_FN int mill_find_narrow(const mill_segment *s, int first, int len,
                                   const double (*row)[MILL_CHUNK], double *narrow)
{
  const int n = s->n_pix, nd = s->n_diag, h = nd / 2;
  const float *at = s->deconv.at;
  double sum[MILL_CHUNK], square[MILL_CHUNK];
  int n_narrow = 0;
  for (int i = 0; i < MILL_CHUNK; i += MILL_VEC_N_F64) {
    mill_vec_f64 a = mill_vec_zero_f64(), q = mill_vec_zero_f64();
    for (int k = 0; k < nd; k++) {
      const mill_vec_f64 x = *(const mill_vec_f64 *)(const void *)&row[k][i];
      a += x;
      q += x * x;
    }
    *(mill_vec_f64 *)(void *)&sum[i] = a;
    *(mill_vec_f64 *)(void *)&square[i] = q;
  }
  for (int i = 0; i < len && n > 2 * h; i++) {
    const int whole = first + i < h ? h : (first + i >= n - h ? n - 1 - h : first + i);
    if (whole == first + i)
      continue;
    mill_sum_row(nd, n, s->raw_res, whole, &sum[i], &square[i]);
  }
  MILL_SIMD_SUM(n_narrow)
  for (int i = 0; i < len; i++) {
    const double templ =
        at ? s->deconv.sigma_pix + s->deconv.step_pix * (double)at[first + i] : s->deconv.sigma_pix;
    /* 2 sqrt(pi); sigma / templ is sum^2 / limit; NaN: not narrow */
    const double limit = 3.5449077018110318 * templ * square[i];
    n_narrow += sum[i] * sum[i] < MILL_LSF_NARROW * limit;
    narrow[i] = sum[i] * sum[i] <= limit && limit > 0.0 ? sum[i] : 0.0;
  }
  return n_narrow;
}

/** Resolution matrix: diagonals as stored (offsets +h..-h, scipy dia layout) to
 *  row form, the template's own resolution taken out, edge rows rescaled.  Where templates are
 *  broader than the row nothing can be taken out: the row becomes the pixel alone.
 *  Sets good: 0 where an element of the pixel's row is not finite or its sum not positive, and the
 *  row then that of the pixel alone; sets narrow. */
MILL_BLOCK_FN void mill_block_prepare_resolution(mill_block *b, mill_segment *s)
{
  const int n = s->n_pix, nd = s->n_diag, h = nd / 2;
  const int n_chunk = (n + MILL_CHUNK - 1) / MILL_CHUNK;
  const double most = 1e300; /* a sum of floats that is finite is below */
  int part = 0;
  MILL_FOR(b, c, n_chunk)
  {
    const int first = c * MILL_CHUNK;
    const int len = n - first < MILL_CHUNK ? n - first : MILL_CHUNK;
    double row[MILL_MAX_DIAG][MILL_CHUNK], solved[MILL_DECONV_STEP][MILL_CHUNK];
    double sum[MILL_CHUNK], base[MILL_CHUNK], narrow[MILL_CHUNK];
    mill_read_rows(s, first, len, row);
    if (s->deconv.solve)
      part += mill_find_narrow(s, first, len, (const double(*)[MILL_CHUNK])row, narrow);
    MILL_SIMD
    for (int i = 0; i < len; i++)
      sum[i] = base[i] = 0.0;
    for (int k = 0; k < nd; k++) {
      const double *from = row[k];
      if (s->deconv.solve) {
        double *x = solved[k % MILL_DECONV_STEP];
        if (k % MILL_DECONV_STEP == 0 && s->deconv.at)
          mill_deconvolve_uneven(s, first, len, k, (const double(*)[MILL_CHUNK])row, solved);
        else if (k % MILL_DECONV_STEP == 0)
          mill_deconvolve(nd, k, s->deconv.solve, (const double(*)[MILL_CHUNK])row, solved);
        MILL_SIMD
        for (int i = 0; i < len; i++)
          x[i] = narrow[i] == 0.0 ? x[i] : (k == h ? narrow[i] : 0.0);
        from = x;
      }
      float *to = s->res + (size_t)k * mill_row_pitch(n) + first;
      MILL_SIMD
      for (int i = 0; i < len; i++) {
        const float rounded = (float)from[i];
        to[i] = rounded;
        sum[i] += from[i];
        base[i] += (double)rounded;
      }
    }
    int n_lost = 0;
    MILL_SIMD_SUM(n_lost)
    for (int i = 0; i < len; i++) {
      s->scratch[first + i] = (float)sum[i];
      s->base[first + i] = base[i];
      s->good[first + i] = (unsigned char)((sum[i] > 0.0) & (base[i] <= most));
      n_lost += !((sum[i] > 0.0) & (base[i] <= most));
    }
    for (int i = first; n_lost > 0 && i < first + len; i++)
      if (!s->good[i])
        mill_lose_row(s, i);
  }
  const int n_narrow = (int)mill_block_sum(b, (double)part);
  MILL_SERIAL(b)
  {
    s->narrow = (double)n_narrow >= MILL_LSF_SIZEABLE * (double)n;
  }
  MILL_BARRIER(b);
  double mult = mill_block_median(b, n, s->scratch);
  if (!isfinite(mult) || mult == 0.0)
    mult = 1.0;
  MILL_FOR(b, e, 2 * h < n ? 2 * h : n)
  {
    mill_rescale_row(s, e < h || n <= 2 * h ? e : n - 2 * h + e, mult);
  }
  MILL_BARRIER(b);
}

/** No mask bit that makes a pixel bad. */
MILL_HD static inline int mill_mask_clear(int32_t mask, uint32_t ignore)
{
  return ((uint32_t)mask & ~ignore) == 0;
}

/** Flux and inverse variance are usable: finite, positive ivar, and not so large together that sums
 *  of squares keep no digit of the other pixels.  Without branches, so that loops over it
 *  vectorise. */
MILL_HD static inline int mill_value_usable(float flux, float ivar)
{
  return (ivar > 0.0f) & ((double)flux * (double)flux * (double)ivar <= MILL_MOST_SQUARE);
}

/** Value is usable and not masked. */
MILL_HD static inline int mill_pixel_usable(const mill_segment *s, uint32_t ignore, int i)
{
  return mill_mask_clear(s->raw_mask[i], ignore) &
         mill_value_usable(s->raw_flux[i], s->raw_ivar[i]);
}

/** Flux of the unusable ones among the pixels [first, first + len), linearly interpolated
 *  over a run of them; a run at an edge takes its neighbour; with no usable pixel the flux
 *  as it is. */
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
    for (; i < r && i < first + len; i++)
      flux[i - first] = fl + slope * (double)(i - l);
  }
}

/** x = m 2^e with 1 <= m < 2, for a normal x above 0. */
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

/** Sum of the logarithms of x [n], n <= 64: one of the product of the mantissas, which stays below
 *  2^64. */
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

/** Sums of a matrix' rows as stored into scratch; NaN where the pixel cannot be good, the row is cut
 *  at an end of the arm, or the sum is not positive. */
MILL_BLOCK_FN void mill_block_sum_rows(mill_block *b, uint32_t ignore, mill_segment *s)
{
  const int n = s->n_pix, h = s->n_diag / 2, n_chunk = (n + MILL_CHUNK - 1) / MILL_CHUNK;
  MILL_FOR(b, c, n_chunk)
  {
    const int first = c * MILL_CHUNK;
    const int len = n - first < MILL_CHUNK ? n - first : MILL_CHUNK;
    double row[MILL_MAX_DIAG][MILL_CHUNK];
    mill_read_rows(s, first, len, row);
    MILL_SIMD
    for (int i = 0; i < len; i++) {
      const int at = first + i;
      double sum = 0.0;
      for (int k = 0; k < s->n_diag; k++)
        sum += row[k][i];
      const int has = (at >= h) & (at < n - h) & !s->ws->masked[at] &
                      mill_pixel_usable(s, ignore, at) & (sum > 0.0);
      s->scratch[at] = has ? (float)sum : NAN;
    }
  }
  MILL_BARRIER(b);
}

/** Coadds may lack columns of their matrix, or have them too large, where exposures are masked; the
 *  rows next to them then do not take a constant to a constant.  Scale the rows of raw_res to the
 *  median of their sums; a row without much of its weights becomes 0.  Sets scaled. */
MILL_BLOCK_FN void mill_block_scale_rows(mill_block *b, uint32_t ignore, mill_segment *s)
{
  const int n = s->n_pix, nd = s->n_diag, h = nd / 2;
  double most = 0.0, least = INFINITY;
  mill_block_sum_rows(b, ignore, s);
  MILL_FOR(b, i, n)
  {
    const double sum = (double)s->scratch[i];
    most = sum > most ? sum : most;
    least = sum < least ? sum : least;
  }
  most = mill_block_max(b, most);
  least = -mill_block_max(b, -least);
  const int is_off = most > (1.0 + MILL_ROW_SPREAD) * least;
  MILL_SERIAL(b)
  {
    s->scaled = is_off;
  }
  if (!is_off)
    return;
  const double middle = mill_block_median(b, n, s->scratch);
  MILL_FOR(b, i, n)
  {
    const double factor = middle / (double)s->scratch[i];
    const int is_lost = factor > MILL_ROW_LOST || factor * MILL_ROW_LOST < 1.0;
    for (int k = 0; k < nd && isfinite(factor); k++) {
      float *x = s->raw_res + (size_t)(nd - 1 - k) * (size_t)n + (size_t)(i - h + k);
      *x = is_lost ? 0.0f : (float)(factor * (double)*x);
    }
  }
  MILL_BARRIER(b);
}

/** S/N and the flux scale that bad pixels' errors are made of; returns the number of pixels
 *  without a mask bit. */
MILL_BLOCK_FN int mill_block_flux_level(mill_block *b, uint32_t ignore, mill_segment *s, double *sn,
                                        double *scale)
{
  const int n = s->n_pix;
  int part = 0;
  /* S/N: over pixels with no mask bit and positive ivar */
  MILL_FOR_SIMD(b, i, n)
  {
    const float iv = s->raw_ivar[i];
    const int keep = mill_mask_clear(s->raw_mask[i], ignore) & (iv > 0.0f);
    s->scratch[i] = keep ? s->raw_flux[i] * sqrtf(iv > 0.0f ? iv : 0.0f) : NAN;
  }
  MILL_FOR(b, i, n)
  {
    part += mill_mask_clear(s->raw_mask[i], ignore);
  }
  MILL_BARRIER(b);
  *sn = mill_block_median(b, n, s->scratch);
  /* of all pixels, else of positive ones without a mask bit, else of absolute values */
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

/** Set good, of those pixels that mill_block_prepare_resolution left where there is a matrix;
 *  returns the number of good pixels and the median of their sigma. */
MILL_BLOCK_FN int mill_block_good(mill_block *b, const mill_model *m, mill_segment *s,
                                  double *median_sigma)
{
  const int n = s->n_pix, has_no_rows = s->raw_res == NULL;
  const int edge = has_no_rows ? 0 : m->set.edge_pix;
  const uint32_t ignore = m->set.mask_ignore;
  const float *lsf_aa = s->lsf_aa, *flux = s->raw_flux, *ivar = s->raw_ivar;
  /* bytes could be anything, also the pointers of s: these are read before */
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
      s->good[i] &= lsf_aa[i] == lsf_aa[i];
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
  /* the middle ones of ivar are those of sigma, which as a float falls with it */
  float low, high;
  mill_block_middle(b, n, s->scratch, &low, &high);
  *median_sigma =
      0.5 * ((double)(float)(1.0 / sqrt((double)low)) + (double)(float)(1.0 / sqrt((double)high)));
  return n_good;
}

/** Flux over sigma and 1 / sigma into d and is.
 *
 *  bad, most  in   1 / sigma of bad pixels, and at most of good ones
 *  total [3]  out  sum of ln (1 / sigma), sum of d^2, pixels whose numbers are not usable */
MILL_BLOCK_FN void mill_block_scale_pixels(mill_block *b, uint32_t ignore, mill_segment *s,
                                           double bad, double most, double *total)
{
  const int n = s->n_pix;
  double acc[3] = {0.0, 0.0, 0.0};
  const int n_chunk = (n + MILL_CHUNK - 1) / MILL_CHUNK;
  MILL_FOR(b, c, n_chunk)
  {
    const int first = c * MILL_CHUNK;
    const int len = n - first < MILL_CHUNK ? n - first : MILL_CHUNK;
    double flux[MILL_CHUNK], inverse[MILL_CHUNK];
    int n_left = 0;
    MILL_SIMD_SUM(n_left)
    for (int i = 0; i < len; i++) {
      const double weight = sqrt((double)s->raw_ivar[first + i]);
      const int good = s->good[first + i];
      flux[i] = (double)s->raw_flux[first + i];
      inverse[i] = good ? (weight < most ? weight : most) : bad;
      n_left += !good;
    }
    if (n_left > 0)
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

/** Prepare one segment.  Sets used, n_good, sn, d, is, good, res, sums. */
MILL_BLOCK_FN void mill_block_prepare(mill_block *b, const mill_model *m, mill_segment *s)
{
  const int n = s->n_pix, pitch = mill_row_pitch(n);
  const int n_error = mill_n_error(&m->arm[s->arm], s->width_error);
  const uint32_t ignore = m->set.mask_ignore;

  /* what a GPU loads with a row's last pixels */
  MILL_FOR(b, r, 1 + n_error)
  {
    float *row = r == 0 ? s->d : s->error + (ptrdiff_t)(r - 1) * pitch;
    for (int i = n; i < pitch; i++)
      row[i] = 0.0f;
  }
  if (s->raw_res) {
    mill_block_scale_rows(b, ignore, s);
    mill_block_prepare_resolution(b, s);
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
    s->sn = isfinite(sn) ? sn : -1e9;
    s->n_good = 0;
    s->used = 0;
    s->sum_ln_var = 0.0;
    s->dd = 0.0;
  }
  MILL_BARRIER(b);
  if (n_clear < 1 || !isfinite(scale) || scale == 0.0)
    return;

  const int n_good = mill_block_good(b, m, s, &median_sigma);
  /* 1 / sigma of bad pixels, and at most of good ones */
  const double bad = 1.0 / (m->set.bad_sigma_factor * fabs(scale));
  const double most = n_good > 0 ? 1.0 / (m->set.sigma_floor * median_sigma) : 0.0;
  double total[3];
  mill_block_scale_pixels(b, ignore, s, bad, most, total);
  MILL_SERIAL(b)
  {
    s->sum_ln_var = -2.0 * total[0];
    s->dd = total[1];
    /* left over: no usable pixel to interpolate from, or values beyond float32 */
    s->used = total[2] == 0.0;
    s->n_good = s->used ? n_good : 0;
  }
  MILL_BARRIER(b);
}

#endif
