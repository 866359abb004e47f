/* SPDX-License-Identifier: BSD-3-Clause */
/** Model error: errors of a star's templates as a part of the covariance.
 *
 *  The sigma in s->d and s->is includes the uncorrelated part, a fraction of each pixel's flux.  In
 *  units of this sigma the covariance of a segment's pixels is 1 + C C^T.  The columns of C are
 *   - components: patterns over pixels whose amplitudes have unit variance;
 *   - two for an error of the line-spread function's width (mill_block_draw_width);
 *   - residuals of the sky.
 *  The inverse covariance is 1 - E^T E, where E = L^-1 C^T and L L^T = 1 + C^T C.  F is a Gaussian
 *  likelihood, since the covariance is fixed at one template, velocity and continuum. */
#pragma once

#include "kernels/math/activation.h"
#include "kernels/math/block.h"
#include "kernels/math/linalg.h"
#include "kernels/star/blocks/prepare.h"
#include "kernels/star/blocks/template.h"
#include MILL_PRIMITIVES_PIXEL_SUMS

/** Take the model error out of a segment: the first call saves d and is (own_d, own_is), later
 *  calls restore them.  The segment then has a fixed model error of 0 rows (error_fixed 1). */
MILL_BLOCK_FN void mill_block_release_error(mill_block *b, mill_segment *s)
{
  const int was_fixed = s->error_fixed;
  MILL_BARRIER(b); /* all threads have read error_fixed */
  MILL_FOR_SIMD(b, i, s->n_pix)
  {
    if (was_fixed) {
      s->d[i] = s->own_d[i];
      s->is[i] = s->own_is[i];
    } else {
      s->own_d[i] = s->d[i];
      s->own_is[i] = s->is[i];
    }
  }
  MILL_SERIAL(b)
  {
    if (was_fixed) {
      s->sum_ln_var = s->own_sum_ln_var;
      s->dd = s->own_dd;
    } else {
      s->own_sum_ln_var = s->sum_ln_var;
      s->own_dd = s->dd;
    }
    s->error_fixed = 1;
    s->n_share = 1.0;
    s->n_error = 0;
  }
  MILL_BARRIER(b);
}

/** Return the index of the model error's grid point to the left of pixel i; *u: fraction of the way
 *  to the next point.  The grid divides each step of the templates' grid by error->finer.
 *  index, frac  in  each pixel's place on the templates' grid (mill_block_locate) */
MILL_HD static inline int mill_model_error_at(const mill_model_error *error, const int *index,
                                              const float *frac, int i, float *u)
{
  const int finer = error->finer > 1 ? error->finer : 1;
  const float at = frac[i] * (float)finer;
  int k = (int)at;
  k = k < 0 ? 0 : (k < finer ? k : finer - 1);
  *u = at - (float)k;
  return index[i] * finer + k;
}

/** Write to row j of s->error: component j at the pixels (by the cubic through four points), times
 *  its sigma, sqrt(n_share) and the template before the resolution matrix (level plus row 0 of
 *  mill_sharp_rows).  Without a matrix also times continuum (s->scratch) / the pixel's sigma. */
MILL_BLOCK_FN void mill_block_locate_error(mill_block *b, const mill_model_arm *arm,
                                           mill_segment *s, double level, double n_share,
                                           const mill_workspace *work)
{
  const int n_pix = s->n_pix;
  const int last = mill_error_points(&arm->error, arm->n_pix) - 1;
  const mill_real *value = mill_sharp_rows(s, work);
  const int has_matrix = s->res != NULL;
  MILL_FOR(b, c, mill_chunks(n_pix, MILL_PIXEL_CHUNK))
  {
    const int first = c * MILL_PIXEL_CHUNK, len = mill_chunk_len(n_pix, first, MILL_PIXEL_CHUNK);
    const float *cont = s->scratch + first, *is = s->is + first;
    int from[MILL_PIXEL_CHUNK];
    float at[MILL_PIXEL_CHUNK], weight[4][MILL_PIXEL_CHUNK], point[4][MILL_PIXEL_CHUNK];
    MILL_SIMD
    for (int i = 0; i < len; i++)
      from[i] =
          mill_model_error_at(&arm->error, work->index + first, work->frac + first, i, &at[i]) - 1;
    MILL_SIMD
    for (int i = 0; i < len; i++) {
      const int k = from[i] < 0 ? 0 : (from[i] < last - 3 ? from[i] : last - 3);
      const float u = at[i] + (float)(from[i] - k); /* at the ends use the four nearest points */
      const float scale = has_matrix ? 1.0f : cont[i] * is[i];
      const float g = (float)(level + (double)value[first + i]) * scale;
      const float left = u + 1.0f, right = u - 1.0f, far = u - 2.0f; /* from points -1, 1, 2 */
      from[i] = k;
      weight[0][i] = -g * u * right * far * (float)(1.0 / 6.0);
      weight[1][i] = g * left * right * far * 0.5f;
      weight[2][i] = -g * left * u * far * 0.5f;
      weight[3][i] = g * left * u * right * (float)(1.0 / 6.0);
    }
    for (int j = 0; j < arm->error.n_component; j++) {
      const float *row = arm->error.component + (size_t)j * (size_t)arm->error.pitch;
      const float scale = (float)(arm->error.sigma[j] * sqrt(n_share));
      float *to = s->error + (size_t)j * mill_row_pitch(n_pix) + first;
      mill_load_pairs_f32(len, row, from, point[0], point[1]);
      mill_load_pairs_f32(len, row + 2, from, point[2], point[3]);
      MILL_SIMD
      for (int i = 0; i < len; i++)
        to[i] = scale * (weight[0][i] * point[0][i] + weight[1][i] * point[1][i] +
                         weight[2][i] * point[2][i] + weight[3][i] * point[3][i]);
    }
  }
  MILL_BARRIER(b);
}

/** Pixels to each side that a second derivative uses. */
enum { MILL_BEND_REACH = 4 };

/** Write the Cholesky factor of 1 + C^T C to work->normal [n][n] and its ln det to work->sums[0];
 *  s->error has the n columns of C.  Returns nonzero if the matrix is not positive definite. */
MILL_BLOCK_FN int mill_block_factor_error(mill_block *b, const mill_segment *s, int n,
                                          mill_workspace *work)
{
  double acc[MILL_MAX_ERROR * (MILL_MAX_ERROR + 1) / 2];
  const int n_pair = n * (n + 1) / 2;
  mill_error_pairs(b, s, n, acc);
  mill_block_sum_n(b, acc, n_pair, acc);
  MILL_BARRIER(b);
  double *a = work->normal;
  MILL_SERIAL(b)
  {
    for (int j = 0, k = 0; j < n; j++)
      for (int l = 0; l <= j; l++, k++)
        a[j * n + l] = acc[k] + (j == l ? 1.0 : 0.0);
    const int failed = mill_cholesky(n, a, n);
    work->sums[0] = failed ? 0.0 : mill_cholesky_logdet(n, a, n);
    work->sums[1] = (double)failed;
  }
  MILL_BARRIER(b);
  return (int)work->sums[1];
}

/** Replace the n columns of C in s->error by E = L^-1 C^T, with L L^T = 1 + C^T C.  Set *ln_det to
 *  ln det(1 + C^T C) and *taken to |E D|^2, with the data D in s->d.  Return n.  If n is 0 or the
 *  factorisation fails, all three are 0. */
MILL_BLOCK_FN int mill_block_whiten_error(mill_block *b, mill_segment *s, int n,
                                          mill_workspace *work, double *ln_det, double *taken)
{
  double acc[MILL_MAX_ERROR];
  const double *chol = work->normal;
  const int n_pix = s->n_pix;
  *ln_det = *taken = 0.0;
  if (n == 0 || mill_block_factor_error(b, s, n, work) != 0)
    return 0;
  *ln_det = work->sums[0];
  for (int j = 0; j < n; j++)
    acc[j] = 0.0;
  MILL_FOR(b, c, mill_chunks(n_pix, MILL_PIXEL_CHUNK))
  {
    const int first = c * MILL_PIXEL_CHUNK, len = mill_chunk_len(n_pix, first, MILL_PIXEL_CHUNK);
    const float *d = s->d + first;
    double z[MILL_MAX_ERROR][MILL_PIXEL_CHUNK];
    for (int j = 0; j < n; j++) {
      const float *row = s->error + (size_t)j * mill_row_pitch(n_pix) + first;
      const double inverse = 1.0 / chol[j * n + j];
      /* forward substitution: row j of L z = C^T */
      MILL_SIMD
      for (int i = 0; i < len; i++)
        z[j][i] = inverse * (double)row[i];
      for (int l = 0; l < j; l++) {
        const double w = inverse * chol[j * n + l];
        MILL_SIMD
        for (int i = 0; i < len; i++)
          z[j][i] -= w * z[l][i];
      }
    }
    for (int j = 0; j < n; j++) {
      float *row = s->error + (size_t)j * mill_row_pitch(n_pix) + first;
      double sum = 0.0;
      MILL_SIMD_SUM(sum)
      for (int i = 0; i < len; i++) {
        row[i] = (float)z[j][i];
        sum += (double)row[i] * (double)d[i];
      }
      acc[j] += sum;
    }
  }
  mill_block_sum_n(b, acc, n, acc);
  for (int j = 0; j < n; j++)
    *taken += acc[j] * acc[j];
  return n;
}

/** After mill_block_release_error, include the uncorrelated model error in s->is and s->d.
 *  n_share             in   factor of the model error's variance
 *  s->scratch [n_pix]  in   the segment's continuum
 *  total [2]           out  sum of ln(1 + model variance / data variance), and |s->d|^2 */
MILL_BLOCK_FN void mill_block_weigh_error(mill_block *b, const mill_model_arm *arm, mill_segment *s,
                                          const mill_real *templ, double level, double n_share,
                                          const mill_workspace *work, double *total)
{
  const mill_model_error *e = &arm->error;
  /* a pixel averages errors: their variance falls as correlation length / pixel width */
  const double scale =
      n_share * e->correlation * arm->ln_step / (e->finer > 1 ? (double)e->finer : 1.0);
  double part[2] = {0.0, 0.0};
  if (!e->fraction) {
    total[0] = 0.0;
    total[1] = s->own_dd;
    return;
  }
  const int n = s->n_pix;
  MILL_FOR(b, c, mill_chunks(n, MILL_CHUNK))
  {
    const int first = c * MILL_CHUNK, len = mill_chunk_len(n, first, MILL_CHUNK);
    const float *own_is = s->own_is + first, *own_d = s->own_d + first;
    float *is = s->is + first, *d = s->d + first;
    int index[MILL_CHUNK];
    float u[MILL_CHUNK], left[MILL_CHUNK], right[MILL_CHUNK];
    double more[MILL_CHUNK], dd = 0.0;
    MILL_SIMD
    for (int i = 0; i < len; i++)
      index[i] = mill_model_error_at(e, work->index + first, work->frac + first, i, &u[i]);
    mill_load_pairs_f32(len, e->fraction, index, left, right);
    MILL_SIMD
    for (int i = 0; i < len; i++) {
      const int p = first + i;
      const double fraction = (double)(left[i] + u[i] * (right[i] - left[i]));
      const double flux = (double)s->scratch[p] * (level * s->base[p] + (double)templ[p]);
      const double x = fraction * flux * (double)own_is[i];
      more[i] = 1.0 + x * x * scale / mill_pixel_width(s->n_pix, s->ws->ln_wave, p);
    }
    MILL_SIMD_SUM(dd)
    for (int i = 0; i < len; i++) {
      const float ratio = 1.0f / sqrtf((float)more[i]);
      is[i] = own_is[i] * ratio;
      d[i] = own_d[i] * ratio;
      dd += (double)d[i] * (double)d[i] + (more[i] - more[i]); /* NaN if more is infinite */
    }
    part[0] += mill_sum_of_logs(len, more);
    part[1] += dd;
  }
  mill_block_sum_n(b, part, 2, total);
  MILL_BARRIER(b);
}

/** Write the columns of C, one for each component, to the rows of s->error.  A column is resolution
 *  matrix times (sqrt(n_share) * component * template), times continuum (s->scratch) / sigma.
 *  Level plus row 0 of mill_sharp_rows is the template; rows 1 to 3 are overwritten. */
MILL_BLOCK_FN void mill_block_draw_error(mill_block *b, const mill_model *m, mill_segment *s,
                                         double level, double n_share, mill_workspace *work)
{
  const mill_model_arm *arm = &m->arm[s->arm];
  const size_t pitch = (size_t)m->max_seg_pix;
  mill_real *sharp = mill_sharp_rows(s, work) + pitch, *seen = (mill_real *)work->pixel + 3 * pitch;
  mill_block_locate_error(b, arm, s, level, n_share, work);
  for (int j = 0; j < arm->error.n_component && s->res; j++) { /* without a matrix: done */
    float *to = s->error + (size_t)j * mill_row_pitch(s->n_pix);
    MILL_FOR_SIMD(b, i, s->n_pix)
    {
      sharp[i] = (mill_real)to[i];
    }
    MILL_BARRIER(b);
    mill_block_resolve(b, s, 1, m->max_seg_pix, sharp, seen);
    MILL_FOR_SIMD(b, i, s->n_pix)
    {
      to[i] = s->scratch[i] * s->is[i] * (float)seen[i];
    }
    MILL_BARRIER(b);
  }
}

/** Return sigma^2 of the line-spread function at pixel i (not at an end), converted to pixels^2:
 *  lsf_aa^2 + (templates' sigma)^2 + (blur_ln * wavelength)^2.  Return 0 if NaN or too large. */
MILL_HD static inline double mill_lsf_width2(const mill_model_arm *arm, const mill_segment *s,
                                             int i)
{
  const double *ln_wave = s->ws->ln_wave, pixel = mill_pixel_width(s->n_pix, ln_wave, i);
  const double per_aa = mill_exp_negative(-ln_wave[i]), templ = arm->template_sigma_aa;
  const double lack = (double)s->lsf_aa[i], n2 = (double)s->n_pix * (double)s->n_pix;
  const double width2 =
      ((lack * lack + templ * templ) * (per_aa * per_aa) + s->blur_ln * s->blur_ln) /
      (pixel * pixel);
  return width2 < n2 ? width2 : 0.0;
}

/** Return sigma^2, in pixels^2, of the Gaussian with the same sum and sum of squares as row i of
 *  the resolution matrix; near an end, of the nearest whole row.  Return 0 if there is no whole row
 *  or the width exceeds the segment. */
MILL_HD static inline double mill_matrix_width2(const mill_segment *s, int i)
{
  const int n = s->n_pix, h = s->n_diag / 2;
  double sum, square;
  if (n <= 2 * h)
    return 0.0;
  mill_sum_row(s->n_diag, n, s->raw_res, i < h ? h : (i >= n - h ? n - 1 - h : i), &sum, &square);
  const double width = sum * sum / (3.5449077018110318 * square); /* 2 sqrt(pi) */
  return width < (double)n ? width * width : 0.0;
}

/** Is a pixel's template unblurred, because its line-spread function is unknown? */
MILL_HD static inline int mill_lacks_width(const mill_segment *s, int i)
{
  if (s->lsf_aa)
    return s->lsf_aa[i] != s->lsf_aa[i];
  return !s->good[i] && s->res[(ptrdiff_t)(s->n_diag / 2) * mill_row_pitch(s->n_pix) + i] == 1.0f;
}

/** Fill two columns of C (head of this file), after those of the components, with the change of
 *  flux / sigma if the line-spread function is wider.  In the first column it is wider by the
 *  fraction s->width_error at all pixels, in the second by -1 to 1 times this along the pixels.
 *
 *  A width that grows by the fraction x adds x width^2 times the template's second derivative to
 *  the template (heat equation).  Columns are 0 where the derivative would need a pixel outside the
 *  segment, or one of unknown width.  s->scratch holds the continuum. */
MILL_BLOCK_FN void mill_block_draw_width(mill_block *b, const mill_model_arm *arm, mill_segment *s,
                                         const mill_real *templ, double n_share)
{
  /* weights of a second derivative, fitted by least squares: 2 sum_j a_j (1 - cos jk) is close to
   * k^2 at the wavenumbers k of Gaussian lines whose sigma is one pixel or more */
  const double a[MILL_BEND_REACH] = {1.874581, -0.375873, 0.102466, -0.018330};
  const double scale = s->width_error * sqrt(n_share);
  const int n = s->n_pix, n_inside = n > 2 * MILL_BEND_REACH ? n - 2 * MILL_BEND_REACH : 0;
  float *even = s->error + (size_t)arm->error.n_component * mill_row_pitch(n);
  float *sloped = even + mill_row_pitch(n);
  MILL_FOR(b, e, n - n_inside)
  {
    const int i = n_inside > 0 && e >= MILL_BEND_REACH ? n_inside + e : e;
    even[i] = sloped[i] = 0.0f;
  }
  /* `even` first holds width^2; a thread reads only elements that it has written: no barrier */
  MILL_FOR(b, e, s->lsf_aa ? 0 : n_inside)
  {
    even[MILL_BEND_REACH + e] = (float)mill_matrix_width2(s, MILL_BEND_REACH + e);
  }
  MILL_FOR_SIMD(b, e, s->lsf_aa ? n_inside : 0)
  {
    even[MILL_BEND_REACH + e] = (float)mill_lsf_width2(arm, s, MILL_BEND_REACH + e);
  }
  MILL_FOR_SIMD(b, e, n_inside)
  {
    const int i = MILL_BEND_REACH + e;
    double bend = 0.0;
    int is_known = 1;
    for (int j = 1; j <= MILL_BEND_REACH; j++) {
      bend += a[j - 1] * ((double)templ[i - j] - 2.0 * (double)templ[i] + (double)templ[i + j]);
      is_known &= !mill_lacks_width(s, i - j) & !mill_lacks_width(s, i + j);
    }
    const double x =
        !is_known ? 0.0 : scale * (double)even[i] * bend * (double)s->scratch[i] * (double)s->is[i];
    even[i] = (float)x;
    sloped[i] = (float)(x * (2.0 * (double)i / (double)(n - 1) - 1.0));
  }
  MILL_BARRIER(b);
}

/** Write the sky's n_sky residuals divided by sigma, which are columns of C, to rows of s->error
 *  from row `first` on.  Exposures share no residual, so n_share does not multiply the variance. */
MILL_BLOCK_FN void mill_block_draw_sky(mill_block *b, int n_sky, const mill_segment *s, int first)
{
  const int pitch = mill_row_pitch(s->n_pix);
  const float *sky = s->ws->sky;
  float *to = s->error + (ptrdiff_t)first * pitch;
  for (int j = 0; j < n_sky; j++) {
    MILL_FOR_SIMD(b, i, s->n_pix)
    {
      to[j * pitch + i] = sky[j * pitch + i] * s->is[i];
    }
  }
  MILL_BARRIER(b);
}

/** Fix the model error of a segment after mill_block_release_error.  The error's variance is
 *  multiplied by n_share, so that segments that share one template error count it once.
 *
 *  templ [max_seg_pix]       in   the template after the resolution matrix
 *  row 0 of mill_sharp_rows  in   the template before the matrix
 *  work                      in   solve: continuum coefficients; index, frac: pixels on the grid
 *                            out  normal, sums and error are overwritten */
MILL_BLOCK_FN void mill_block_fix_error(mill_block *b, const mill_model *m, mill_segment *s,
                                        const mill_real *templ, double level, double n_share,
                                        mill_workspace *work)
{
  const mill_model_arm *arm = &m->arm[s->arm];
  const int n = s->n_pix, n_error = mill_n_error(arm, s->width_error);
  MILL_FOR(b, c, mill_chunks(n, MILL_CHUNK))
  {
    const int first = c * MILL_CHUNK, len = mill_chunk_len(n, first, MILL_CHUNK);
    double sum[MILL_CHUNK];
    mill_continuum_of(s, s->ws->n_cont, work->solve, first, len, sum);
    MILL_SIMD
    for (int i = 0; i < len; i++)
      s->scratch[first + i] = (float)sum[i];
  }
  MILL_BARRIER(b);
  double weighed[2], ln_det, taken; /* weighed: sum of ln(variance ratios), |s->d|^2 */
  mill_block_weigh_error(b, arm, s, templ, level, n_share, work, weighed);
  mill_block_draw_error(b, m, s, level, n_share, work);
  if (s->width_error > 0.0)
    mill_block_draw_width(b, arm, s, templ, n_share);
  if (arm->n_sky > 0)
    mill_block_draw_sky(b, arm->n_sky, s, n_error - arm->n_sky);
  /* if the factorisation fails, F is not finite either */
  const int n_done = mill_block_whiten_error(b, s, n_error, work, &ln_det, &taken);
  MILL_SERIAL(b)
  {
    s->n_share = n_share;
    s->n_error = n_done;
    s->sum_ln_var = s->own_sum_ln_var + weighed[0] + ln_det;
    s->dd = weighed[1] - taken;
  }
  MILL_BARRIER(b);
}

/** Set each row of solved [n_error][nk] to N^-1 times the same row of with_s.  chol is the Cholesky
 *  factor of the normal matrix N of the continuum's nk coefficients. */
MILL_BLOCK_FN void mill_block_solve_error(mill_block *b, int nk, int n_error, const double *chol,
                                          const double *with_s, double *solved)
{
  MILL_FOR(b, e, n_error)
  {
    double *x = solved + (ptrdiff_t)e * nk;
    for (int k = 0; k < nk; k++)
      x[k] = with_s[e * nk + k];
    mill_cholesky_solve(nk, chol, nk, x);
  }
  MILL_BARRIER(b);
}

/** Compute solve [n_row][nk] = L^-1 (S^T V - (E S)^T (E V)) from the sums of mill_jacobian_sums.
 *  L, S and V are those of mill_block_jacobian.  A barrier must follow. */
MILL_BLOCK_FN void mill_block_whiten_rows(mill_block *b, int nk, int n_error, int n_row,
                                          const mill_workspace *work, double *solve)
{
  const int q = n_error, origin = mill_gram_at(q + nk, 0);
  const double *with_s = work->error;
  (void)b; /* a CPU's loop has no use for it */
  MILL_FOR(b, j, n_row)
  {
    /* E V_j [q], then S^T V_j [nk]; with_s holds E S */
    const double *from = work->sums + mill_gram_at(q + nk + j, 0) - origin;
    MILL_SIMD
    for (int k = 0; k < nk; k++) {
      double x = from[q + k];
      for (int e = 0; e < q; e++)
        x -= from[e] * with_s[e * nk + k];
      solve[j * nk + k] = x;
    }
    mill_cholesky_forward(nk, work->normal, nk, solve + (ptrdiff_t)j * nk);
  }
}
