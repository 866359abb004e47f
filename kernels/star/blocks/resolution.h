/* SPDX-License-Identifier: BSD-3-Clause */
/** Prepare a segment's resolution matrix, and multiply templates by it. */
#pragma once

#include "kernels/math/convolve_tile.h"
#include "kernels/math/median.h"
#include "kernels/math/vector.h"
#include "kernels/star/slot.h"

/** A flag is set if at least the fraction SIZEABLE of matrix rows has a fault.  LSF_NARROW: sigma
 *  is below NARROW times the templates'.  LSF_UNUSABLE: the row of a usable pixel is invalid. */
#define MILL_LSF_NARROW   0.99
#define MILL_LSF_SIZEABLE 0.1

/** Rows of a matrix are scaled to the median of their sums if the largest sum exceeds the least by
 *  the fraction SPREAD.  A row is dropped if its factor is above LOST or below 1 / LOST. */
#define MILL_ROW_SPREAD 0.01
#define MILL_ROW_LOST   2.0

/** A pixel with (flux / sigma)^2 above this is bad: in float64 the sum would lose the chi-square of
 *  the other pixels, about 10^4. */
#define MILL_MOST_SQUARE 1e20

/** Rows of a solver (mill_deconv) that are multiplied in one pass over the pixels. */
enum { MILL_DECONV_STEP = 4 };

/** Are all bits of the mask 0, except bits of `ignore`? */
MILL_HD static inline int mill_mask_clear(int32_t mask, uint32_t ignore)
{
  return ((uint32_t)mask & ~ignore) == 0;
}

/** Is a pixel's flux finite, ivar positive, and flux^2 ivar at most MILL_MOST_SQUARE?  The function
 *  has no branches, so that loops vectorise. */
MILL_HD static inline int mill_value_usable(float flux, float ivar)
{
  return (ivar > 0.0f) & ((double)flux * (double)flux * (double)ivar <= MILL_MOST_SQUARE);
}

MILL_HD static inline int mill_pixel_usable(const mill_segment *s, uint32_t ignore, int i)
{
  return mill_mask_clear(s->raw_mask[i], ignore) &
         mill_value_usable(s->raw_flux[i], s->raw_ivar[i]);
}

/** Replace the unusable row i of the matrix by the identity's row: the pixel is bad, but its
 *  template must be finite.  Returns 1 if the pixel is otherwise usable. */
MILL_HD static inline int mill_lose_row(mill_segment *s, uint32_t ignore, int i)
{
  for (int k = 0; k < s->n_diag; k++)
    s->res[(size_t)k * mill_row_pitch(s->n_pix) + i] = k == s->n_diag / 2 ? 1.0f : 0.0f;
  s->base[i] = 1.0;
  s->scratch[i] = NAN;
  return mill_pixel_usable(s, ignore, i);
}

/** Clear the elements of row i outside the arm, scale the row's sum to mult, and set s->base[i]. */
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

/** Copy the matrix rows of pixels [first, first + len) from the stored diagonals to row
 *  [n_diag][MILL_CHUNK]; zeros beyond len. */
MILL_BLOCK_FN void mill_read_rows(const mill_segment *s, int first, int len,
                                  double (*row)[MILL_CHUNK])
{
  const int n = s->n_pix, nd = s->n_diag, h = nd / 2;
  /* element k of pixel i's row is stored in diagonal nd - 1 - k, at column i - h + k */
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

/** Compute elements [k0, k0 + MILL_DECONV_STEP) of weight [nd][nd] times row [nd][MILL_CHUNK], the
 *  matrix rows of MILL_CHUNK pixels, into x.  Elements beyond nd repeat the last one. */
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

/** mill_deconvolve for pixels of unequal width: interpolate x between the two nearest solvers. */
MILL_BLOCK_FN void mill_deconvolve_uneven(const mill_segment *s, int first, int len, int k0,
                                          const double (*row)[MILL_CHUNK], double (*x)[MILL_CHUNK])
{
  const int nd = s->n_diag;
  const float *at = s->deconv.at + first; /* fractional index of each pixel's solver */
  float low = at[0], high = at[0];
  for (int i = 1; i < len; i++) {
    low = at[i] < low ? at[i] : low;
    high = at[i] > high ? at[i] : high;
  }
  for (int q = 0; q < MILL_DECONV_STEP; q++)
    for (int i = 0; i < len; i++)
      x[q][i] = 0.0;
  for (int solver = (int)low; (float)solver < high + 1.0f; solver++) {
    double part[MILL_DECONV_STEP][MILL_CHUNK];
    mill_deconvolve(nd, k0, s->deconv.solve + (ptrdiff_t)solver * nd * nd, row, part);
    for (int q = 0; q < MILL_DECONV_STEP; q++)
      for (int i = 0; i < len; i++) {
        const double share = 1.0 - fabs((double)at[i] - (double)solver);
        x[q][i] += share > 0.0 ? share * part[q][i] : 0.0;
      }
  }
}

/** Sum the stored elements of row i, and their squares; the row must not be cut at an end. */
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

/** Find the matrix rows of pixels [first, first + len) that are narrower than the templates.  The
 *  caller replaces such a row by three elements -shift, narrow, +shift.
 *  narrow [len]  out  the row's sum; 0 for rows that are not narrow
 *  shift [len]   out  half of the row's first moment (pixels)
 *
 *  A row's sigma is sum^2 / (2 sqrt(pi) sum of squares), as for a Gaussian.  A row cut at an end of
 *  the arm has shift 0 and the nearest whole row's sigma; no row is whole if n <= 2 h.
 *  Returns how many sigmas are below MILL_LSF_NARROW times the templates'. */
MILL_BLOCK_FN int mill_find_narrow(const mill_segment *s, int first, int len,
                                   const double (*row)[MILL_CHUNK], double *narrow, double *shift)
{
  const int n = s->n_pix, nd = s->n_diag, h = nd / 2;
  const float *at = s->deconv.at;
  double sum[MILL_CHUNK], square[MILL_CHUNK];
  int n_narrow = 0;
  for (int i = 0; i < MILL_CHUNK; i += MILL_VEC_N_F64) {
    mill_vec_f64 a = mill_vec_zero_f64(), q = mill_vec_zero_f64(), m = mill_vec_zero_f64();
    for (int k = 0; k < nd; k++) {
      const mill_vec_f64 x = *(const mill_vec_f64 *)(const void *)&row[k][i];
      a += x;
      q += x * x;
      m += (0.5 * (double)(k - h)) * x;
    }
    *(mill_vec_f64 *)(void *)&shift[i] = m;
    *(mill_vec_f64 *)(void *)&sum[i] = a;
    *(mill_vec_f64 *)(void *)&square[i] = q;
  }
  for (int i = 0; i < len && n > 2 * h; i++) {
    const int whole = first + i < h ? h : (first + i >= n - h ? n - 1 - h : first + i);
    if (whole == first + i)
      continue;
    mill_sum_row(nd, n, s->raw_res, whole, &sum[i], &square[i]);
    shift[i] = 0.0;
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

/** Convert the stored diagonals (offsets +h..-h, scipy dia layout) to s->res; set s->base, s->good
 *  and the flags in s->info.  Treatment of rows:
 *   - all: deconvolved by the templates' own resolution
 *   - cut at an end of the arm: scaled to the median sum
 *   - narrower than the templates: three pixels, with the row's sum and first moment
 *   - with an element not finite, or a sum not positive: the identity's row, and s->good is 0 */
MILL_BLOCK_FN void mill_block_prepare_resolution(mill_block *b, uint32_t ignore, mill_segment *s)
{
  const int n = s->n_pix, nd = s->n_diag, h = nd / 2;
  const double most = 1e300;             /* above any finite sum of floats */
  double part[2] = {0.0, 0.0}, total[2]; /* narrow rows; invalid rows of usable pixels */
  MILL_FOR(b, c, mill_chunks(n, MILL_CHUNK))
  {
    const int first = c * MILL_CHUNK, len = mill_chunk_len(n, first, MILL_CHUNK);
    double row[MILL_MAX_DIAG][MILL_CHUNK], solved[MILL_DECONV_STEP][MILL_CHUNK];
    double sum[MILL_CHUNK], base[MILL_CHUNK], narrow[MILL_CHUNK], shift[MILL_CHUNK];
    mill_read_rows(s, first, len, row);
    if (s->deconv.solve)
      part[0] += mill_find_narrow(s, first, len, (const double(*)[MILL_CHUNK])row, narrow, shift);
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
        const double centre = k == h, side = (double)((k == h + 1) - (k == h - 1));
        MILL_SIMD
        for (int i = 0; i < len; i++)
          x[i] = narrow[i] == 0.0 ? x[i] : centre * narrow[i] + side * shift[i];
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
      part[1] += s->good[i] ? 0 : mill_lose_row(s, ignore, i);
  }
  mill_block_sum_n(b, part, 2, total);
  MILL_SERIAL(b)
  {
    s->info |= (total[0] >= MILL_LSF_SIZEABLE * (double)n ? MILL_INFO_LSF_NARROW : 0) |
               (total[1] >= MILL_LSF_SIZEABLE * (double)n ? MILL_INFO_LSF_UNUSABLE : 0);
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

/** Write the sums of the stored rows to s->scratch.  NaN: the row is cut at an end of the arm, its
 *  sum is not positive, or the pixel is masked or unusable. */
MILL_BLOCK_FN void mill_block_sum_rows(mill_block *b, uint32_t ignore, mill_segment *s)
{
  const int n = s->n_pix, h = s->n_diag / 2;
  MILL_FOR(b, c, mill_chunks(n, MILL_CHUNK))
  {
    const int first = c * MILL_CHUNK, len = mill_chunk_len(n, first, MILL_CHUNK);
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

/** If the sums of the rows of raw_res differ, scale the rows to the median sum, and clear rows
 *  whose sum is far from the median.  Rows cut at an end of the arm stay, as mill_block_sum_rows
 *  gives NaN for them.  Sets s->info.  The sums differ in coadds with masked exposures, where
 *  matrix columns are missing or too large. */
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
    s->info = is_off ? MILL_INFO_LSF_SCALED : 0;
  }
  if (!is_off)
    return;
  const double middle = mill_block_median(b, n, s->scratch);
  MILL_FOR(b, i, n)
  {
    const double factor = middle / (double)s->scratch[i];
    const int is_lost = factor > MILL_ROW_LOST || factor * MILL_ROW_LOST < 1.0;
    /* a finite factor: row i is not cut at an end, so that column i - h + k exists */
    for (int k = 0; k < nd && isfinite(factor); k++) {
      float *x = s->raw_res + (size_t)(nd - 1 - k) * (size_t)n + (size_t)(i - h + k);
      *x = is_lost ? 0.0f : (float)(factor * (double)*x);
    }
  }
  MILL_BARRIER(b);
}

/** Return a segment's templates at the pixels, before the resolution matrix: rows in work->pixel,
 *  aligned as mill_block_resolve needs them. */
MILL_INLINE mill_real *mill_sharp_rows(const mill_segment *s, const mill_workspace *work)
{
  return (mill_real *)work->pixel + mill_resolve_shift(s->n_diag);
}

/** Multiply each of n_row rows of `in` [n_row][pitch] by the resolution matrix, if any, to out. */
MILL_BLOCK_FN void mill_block_resolve(mill_block *b, const mill_segment *s, int n_row, int pitch,
                                      const mill_real *in, mill_real *out)
{
  enum { N_TILE = MILL_RESOLVE_TILE };
  const int n = s->n_pix, pitch_res = mill_row_pitch(n);
  const float *const res = s->res;
  MILL_GLOBAL(in);
  /* clear the padding that a GPU loads with a row's last pixels */
  MILL_FOR(b, r, n_row)
  {
    for (int i = n; i < mill_row_pitch(n); i++)
      out[(ptrdiff_t)r * pitch + i] = 0;
  }
  if (!res) {
    for (int r = 0; r < n_row; r++) {
      const mill_real *from = in + (ptrdiff_t)r * pitch;
      mill_real *to = out + (ptrdiff_t)r * pitch;
      MILL_FOR_BATCHES(b, first, n)
      {
        const int len = MILL_BATCH_LEN(first, n);
        mill_real x[MILL_BATCH];
        for (int i = 0; i < len; i++)
          x[i] = from[MILL_BATCH_AT(b, first, i, n)];
        mill_put_batch(b, first, n, x, to);
      }
    }
    MILL_BARRIER(b);
    return;
  }
  MILL_GLOBAL(res);
  const int nd = s->n_diag, h = nd / 2;
  const int first = mill_tiles_first(h), n_tile = mill_resolve_most(n, nd, first);
  const int first_edge = n_tile > 0 ? first : 0;
  const int n_edge = n - n_tile * N_TILE;
  /* pixels before the first tile and after the last */
  MILL_FOR(b, e, n_edge)
  {
    const int i = e < first_edge ? e : n_tile * N_TILE + e;
    for (int r = 0; r < n_row; r++) {
      const mill_real *from = in + (ptrdiff_t)r * pitch;
      mill_real sum = 0;
      for (int k = i < h ? h - i : 0; k < nd && i - h + k < n; k++)
        sum += (mill_real)res[(ptrdiff_t)k * pitch_res + i] * from[i - h + k];
      out[(ptrdiff_t)r * pitch + i] = sum;
    }
  }
  MILL_FOR(b, c, n_tile)
  {
    const int i = first + c * N_TILE;
    for (int r = 0; r < n_row; r += MILL_RESOLVE_ROWS) {
      const mill_real *from = in + (ptrdiff_t)r * pitch + i - h;
      mill_real *to = out + (ptrdiff_t)r * pitch + i;
      switch (n_row - r) {
      case 1:
        mill_resolve_tile(1, nd, pitch_res, res + i, pitch, from, to);
        break;
      case 2:
        mill_resolve_tile(2, nd, pitch_res, res + i, pitch, from, to);
        break;
      case 3:
        mill_resolve_tile(3, nd, pitch_res, res + i, pitch, from, to);
        break;
      default:
        mill_resolve_tile(MILL_RESOLVE_ROWS, nd, pitch_res, res + i, pitch, from, to);
        break;
      }
    }
  }
  MILL_BARRIER(b);
}
