/* SPDX-License-Identifier: BSD-3-Clause */
/** Sums of products over pixels on a CPU.  A thread computes the rows of a chunk of pixels in the
 *  cache, and sums their products.
 *
 *  Symbols (kernels/star/blocks/likelihood.h): P: continuum functions; p: the same at one pixel; a:
 *  their coefficients; t: template / sigma; D: flux / sigma; r: residual / sigma; N: normal matrix;
 *  E: rows of model error; F: -2 ln L. */
#pragma once

#include <string.h>

#include "kernels/cpu/cell_sums.h"
#include "kernels/cpu/gram.h"
#include "kernels/cpu/pixel_taps.h"
#include "kernels/math/linalg.h"
#include "kernels/math/real.h"
#include "kernels/star/blocks/pixel.h"

/** out = p * t for a chunk of len pixels, padded with zeros to a whole vector. */
MILL_BLOCK_FN void mill_pixel_product(int len, const float *p, const double *t, double *out)
{
  int i = 0;
  for (; i + MILL_VEC_N_F64 <= len; i += MILL_VEC_N_F64)
    *(mill_vec_f64 *)(out + i) = mill_vec_load_f64(p + i) * *(const mill_vec_f64 *)(t + i);
  for (; i < len; i++)
    out[i] = (double)p[i] * t[i];
  for (; i % MILL_VEC_N_F64 != 0; i++)
    out[i] = 0.0;
}

/** Copy p [len] to `copy`, padded with zeros to a whole vector, and add a * p to sum [len]. */
MILL_BLOCK_FN void mill_pixel_add(int len, double a, const float *p, double *copy, double *sum)
{
  int i = 0;
  for (; i + MILL_VEC_N_F64 <= len; i += MILL_VEC_N_F64) {
    const mill_vec_f64 x = mill_vec_load_f64(p + i);
    *(mill_vec_f64 *)(copy + i) = x;
    *(mill_vec_f64 *)(sum + i) += a * x;
  }
  for (; i < len; i++) {
    copy[i] = (double)p[i];
    sum[i] += a * copy[i];
  }
  for (; i % MILL_VEC_N_F64 != 0; i++)
    copy[i] = 0.0;
}

/** Write the indices of the continuum functions that are not 0 in pixels [first, first + len) to
 *  `which`; returns how many. */
MILL_BLOCK_FN int mill_pixel_functions(const mill_segment *s, int first, int len, int *which)
{
  int n = 0, low, end;
  const int nk = s->ws->n_cont;
  mill_reach_of(s->ws->reach, nk, first, len, &low, &end);
  for (int k = 0; k < nk && k < MILL_BROAD_CONT; k++)
    which[n++] = k;
  for (int k = low; k < end; k++)
    which[n++] = k;
  return n;
}

/** Compute the inverse of L L^T; chol [nk][nk] has L in its lower triangle. */
MILL_BLOCK_FN void mill_normal_inverse(int nk, const double *chol, double (*inverse)[MILL_MAX_CONT])
{
  double row[MILL_MAX_CONT][MILL_MAX_CONT]; /* rows of L^-1 */
  for (int k = 0; k < nk; k++) {
    for (int i = 0; i < nk; i++) {
      row[k][i] = i == k ? 1.0 : 0.0;
      inverse[k][i] = 0.0;
    }
    for (int l = 0; l < k; l++) {
      MILL_SIMD
      for (int i = 0; i < nk; i++)
        row[k][i] -= chol[k * nk + l] * row[l][i];
    }
    const double scale = 1.0 / chol[k * nk + k];
    MILL_SIMD
    for (int i = 0; i < nk; i++)
      row[k][i] *= scale;
  }
  for (int k = 0; k < nk; k++)
    for (int l = 0; l <= k; l++) {
      MILL_SIMD
      for (int i = 0; i < nk; i++)
        inverse[l][i] += row[k][l] * row[k][i];
    }
}

/** Vectors of pixels that a loop sums together: 4, or 1 if 4 do not divide a chunk. */
enum { MILL_PIXEL_VECS = MILL_PIXEL_CHUNK / MILL_VEC_N_F64 % 4 == 0 ? 4 : 1 };

/** Compute quad = p^T N^-1 p at every pixel of a chunk (symbols: head of this file).
 *
 *  inverse                  in   N^-1
 *  which [n]                in   indices of the continuum functions that are not 0 in the chunk
 *  p [n][MILL_PIXEL_CHUNK]  in   values of these functions
 *  quad [len]               out  may be written up to the end of the chunk */
MILL_BLOCK_FN void mill_pixel_quadratic(const double (*inverse)[MILL_MAX_CONT], int n,
                                        const int *which, int len, const double *p, double *quad)
{
  enum { N_VEC = MILL_PIXEL_VECS, N_TILE = N_VEC * MILL_VEC_N_F64 };
  for (int i = 0; i < len; i += N_TILE) {
    mill_vec_f64 total[N_VEC];
    for (int v = 0; v < N_VEC; v++)
      total[v] = mill_vec_zero_f64();
    for (int k = 0; k < n; k++) {
      const double *row = inverse[which[k]], *at = p + (ptrdiff_t)k * MILL_PIXEL_CHUNK + i;
      mill_vec_f64 z[N_VEC];
      /* quad = sum_k 2 z_k p_k, where z_k = N^-1_kk p_k / 2 + sum_{l < k} N^-1_kl p_l */
      for (int v = 0; v < N_VEC; v++)
        z[v] = 0.5 * row[which[k]] * *(const mill_vec_f64 *)(at + v * MILL_VEC_N_F64);
      for (int l = 0; l < k; l++) {
        const double w = row[which[l]];
        const double *below = p + (ptrdiff_t)l * MILL_PIXEL_CHUNK + i;
        for (int v = 0; v < N_VEC; v++)
          z[v] += w * *(const mill_vec_f64 *)(below + v * MILL_VEC_N_F64);
      }
      for (int v = 0; v < N_VEC; v++)
        total[v] += 2.0 * z[v] * *(const mill_vec_f64 *)(at + v * MILL_VEC_N_F64);
    }
    for (int v = 0; v < N_VEC; v++)
      *(mill_vec_f64 *)(quad + i + v * MILL_VEC_N_F64) = total[v];
  }
}

/** Factor the normal matrix a [n][n] (lower triangle) as L L^T, and replace the right-hand side
 *  v [n] by the solution.  out [3]: ln det a, |L^-1 v|^2, result of mill_cholesky (0: no failure).
 *  Returns this result on all threads. */
MILL_BLOCK_FN int mill_block_normal(mill_block *b, int n, double *a, double *v, double *out)
{
  MILL_SERIAL(b)
  {
    const int failed = mill_cholesky(n, a, n);
    if (!failed) {
      double vv = 0.0;
      out[0] = mill_cholesky_logdet(n, a, n);
      mill_cholesky_forward(n, a, n, v);
      for (int k = 0; k < n; k++)
        vv += v[k] * v[k];
      out[1] = vv;
      mill_cholesky_backward(n, a, n, v);
    }
    out[2] = (double)failed;
  }
  MILL_BARRIER(b);
  return (int)out[2];
}

/** Compute a segment's normal equations, with the n_error rows E of model error eliminated.
 *
 *  sums                     in   from mill_normal_sums
 *  a [nk][nk], v [nk]       out  normal matrix (lower triangle), right-hand side
 *  with_s [n_error][nk]     out  products of E with P t (continuum functions times template)
 *  with_residual [n_error]  out  products of E with the data D; the caller makes them E r
 *
 *  No barrier at the end: mill_block_normal has the next one. */
MILL_BLOCK_FN void mill_block_normal_matrix(mill_block *b, int nk, int n_error, const double *sums,
                                            double *a, double *v, double *with_s,
                                            double *with_residual)
{
  const int q = n_error, origin = mill_gram_at(q, 0);
  const double *with_d = sums + mill_gram_at(q + nk, 0) - origin;
  (void)b; /* a CPU has no use for it */
  MILL_SERIAL(b)
  {
    for (int k = 0; k < nk; k++) {
      const double *row = sums + mill_gram_at(q + k, 0) - origin;
      for (int e = 0; e < q; e++)
        with_s[e * nk + k] = row[e];
      for (int l = 0; l <= k; l++)
        a[k * nk + l] = row[q + l];
      v[k] = with_d[q + k];
    }
    /* a -= S^T E^T E S, v -= S^T E^T E D by rows of E, to vectorise; S = P t, see head of file */
    for (int e = 0; e < q; e++) {
      const double *at = with_s + (ptrdiff_t)e * nk;
      with_residual[e] = with_d[e];
      for (int k = 0; k < nk; k++) {
        double *to = a + (ptrdiff_t)k * nk;
        const double by = at[k];
        MILL_SIMD
        for (int l = 0; l <= k; l++)
          to[l] -= by * at[l];
      }
      MILL_SIMD
      for (int k = 0; k < nk; k++)
        v[k] -= at[k] * with_d[e];
    }
  }
}

/** A team's share of independent velocities: first, first + step, ... */
typedef struct mill_team {
  mill_block block;
  mill_workspace *work;
  int first, step;
} mill_team;

/** Choose the team of threads that computes a segment's likelihoods: on a CPU the whole block. */
MILL_BLOCK_FN void mill_block_team(mill_block *b, int n, const mill_segment *s, size_t row_bytes,
                                   mill_workspace *work, mill_team *team)
{
  (void)n;
  (void)s;
  (void)row_bytes;
  team->block = *b;
  team->work = work;
  team->first = 0;
  team->step = 1;
}

MILL_BLOCK_FN void mill_block_team_end(const mill_team *team)
{
  (void)team;
}

/** Load n rows of model error at pixels [first, first + len); zeros fill up the last vector. */
MILL_INLINE void mill_error_rows(const mill_segment *s, int n, int first, int len,
                                 double (*row)[MILL_PIXEL_CHUNK])
{
  const int padded = mill_vec_padded_f64(len);
  for (int e = 0; e < n; e++) {
    const float *from = s->error + (size_t)e * mill_row_pitch(s->n_pix) + first;
    MILL_SIMD
    for (int i = 0; i < len; i++)
      row[e][i] = (double)from[i];
    for (int i = len; i < padded; i++)
      row[e][i] = 0.0;
  }
}

/** A segment has n_error rows of model error, then n_cont continuum functions, then n_last other
 *  rows.  A chunk of pixels has the same rows, but only the n continuum functions in `which`.
 *  For each row i of the chunk, set of[i] to the row's number in the segment. */
MILL_INLINE void mill_pixel_rows(int n_error, int n, const int *which, int n_cont, int n_last,
                                 int *of)
{
  for (int e = 0; e < n_error; e++)
    of[e] = e;
  for (int k = 0; k < n; k++)
    of[n_error + k] = n_error + which[k];
  for (int j = 0; j < n_last; j++)
    of[n_error + n + j] = n_error + n_cont + j;
}

/** Sum products of n rows of model error over this thread's pixels, in acc [mill_gram_at(r, c)]. */
MILL_BLOCK_FN void mill_error_pairs(mill_block *b, const mill_segment *s, int n, double *acc)
{
  const int n_pix = s->n_pix;
  mill_vec_f64 sum[MILL_MAX_ERROR * (MILL_MAX_ERROR + 1) / 2];
  int of[MILL_MAX_ERROR];
  (void)b;                               /* a CPU's loop has no use for it */
  mill_pixel_rows(n, 0, NULL, 0, 0, of); /* no rows but those of model error */
  for (int k = 0; k < mill_gram_at(n, 0); k++)
    sum[k] = mill_vec_zero_f64();
  MILL_FOR(b, c, mill_chunks(n_pix, MILL_PIXEL_CHUNK))
  {
    const int first = c * MILL_PIXEL_CHUNK, len = mill_chunk_len(n_pix, first, MILL_PIXEL_CHUNK);
    double row[MILL_MAX_ERROR][MILL_PIXEL_CHUNK];
    mill_error_rows(s, n, first, len, row);
    mill_gram_add(0, n, mill_vec_padded_f64(len), MILL_PIXEL_CHUNK, row[0], of, 0, sum);
  }
  mill_vec_sums_f64(mill_gram_at(n, 0), sum, acc);
}

/** Do the work of mill_normal_sums for a segment without model error.  In a cell of pixels the
 *  continuum functions are polynomials (`coef`), so all sums follow from moments of t^2 and t D. */
MILL_BLOCK_FN void mill_cell_normal_sums(mill_block *b, int nk, const mill_segment *s,
                                         const mill_real *templ, double level, double *sums)
{
  const int n = s->n_pix, cell = s->ws->cell, pitch = mill_cell_pitch(nk);
  const double *power = s->ws->cell_power;
  double pairs[MILL_MAX_CONT * MILL_CELL_MAX_PITCH], with_d[MILL_CELL_MAX_PITCH];
  for (int e = 0; e < nk * pitch; e++)
    pairs[e] = 0.0;
  for (int k = 0; k < pitch; k++)
    with_d[k] = 0.0;
  MILL_FOR(b, c, mill_cell_count(n, cell))
  {
    const int first = c * cell, len = n - first < cell ? n - first : cell;
    const double *coef = s->ws->cell_coef + (ptrdiff_t)c * MILL_CELL_COEF * pitch;
    double square[MILL_CELL_MOST], cross[MILL_CELL_MOST], moment[MILL_CELL_MOMENTS];
    MILL_SIMD
    for (int i = 0; i < len; i++) {
      const double t = mill_pixel_template(
          level, s->base[first + i], templ ? (double)templ[first + i] : 0.0, s->is[first + i]);
      square[i] = t * t;                      /* weight of P_k P_l */
      cross[i] = t * (double)s->d[first + i]; /* weight of P_k */
    }
    for (int i = len; i < cell; i++)
      square[i] = cross[i] = 0.0;
    mill_cell_moments(MILL_CELL_MOMENTS, cell, power, square, moment);
    mill_cell_add_pairs(nk, pitch, coef, moment, pairs);
    mill_cell_moments(MILL_CELL_COEF, cell, power, cross, moment);
    mill_cell_add(nk, pitch, coef, moment, with_d);
  }
  double part[MILL_BLOCK_MAX_SUM];
  for (int k = 0; k < nk; k++) {
    for (int l = 0; l <= k; l++)
      part[mill_gram_at(k, l)] = pairs[k * pitch + l];
    part[mill_gram_at(nk, k)] = with_d[k];
  }
  mill_block_sum_n(b, part, mill_gram_at(nk, nk), sums);
}

/** Sum products of rows over a segment's pixels.
 *
 *  - Rows: n_error rows E of model error, P_k t for k < nk (continuum function times template /
 *    sigma), the data D.
 *  - Products: each row P_k t with itself and all rows before it, D with all rows before it.  The
 *    product of rows r and c is at sums [mill_gram_at(r, c) - mill_gram_at(n_error, 0)].
 *  - The template is level * s->base + templ (NULL: zeros). */
MILL_BLOCK_FN void mill_normal_sums(mill_block *b, int nk, const mill_segment *s,
                                    const mill_real *templ, double level, double *sums)
{
  const int n = s->n_pix, ne = s->n_error;
  const float *cont = s->ws->cont;
  if (!MILL_WIDE && ne == 0 && s->ws->cell > 0) { /* cells are accurate to float32 only */
    mill_cell_normal_sums(b, nk, s, templ, level, sums);
    return;
  }
  enum { MAX_ROW = MILL_MAX_ERROR + MILL_MAX_CONT + 1, MAX_SUM = MILL_BLOCK_MAX_SUM };
  const int n_sum = mill_gram_at(ne + nk, 0) - mill_gram_at(ne, 0) + ne + nk;
  mill_vec_f64 acc[MAX_SUM];
  for (int q = 0; q <= n_sum; q++) /* acc[n_sum]: D with itself, which mill_gram_add also adds */
    acc[q] = mill_vec_zero_f64();
  MILL_FOR(b, c, mill_chunks(n, MILL_PIXEL_CHUNK))
  {
    const int first = c * MILL_PIXEL_CHUNK, len = mill_chunk_len(n, first, MILL_PIXEL_CHUNK);
    const int padded = mill_vec_padded_f64(len);
    double row[MAX_ROW][MILL_PIXEL_CHUNK], t[MILL_PIXEL_CHUNK];
    int which[MILL_MAX_CONT], of[MAX_ROW]; /* functions in the chunk; numbers of its rows */
    const int n_here = mill_pixel_functions(s, first, len, which), at_d = ne + n_here;
    mill_error_rows(s, ne, first, len, row);
    MILL_SIMD
    for (int i = 0; i < len; i++) {
      row[at_d][i] = (double)s->d[first + i];
      t[i] = level * s->base[first + i];
    }
    if (templ) {
      MILL_SIMD
      for (int i = 0; i < len; i++)
        t[i] += (double)templ[first + i];
    }
    MILL_SIMD
    for (int i = 0; i < len; i++)
      t[i] *= (double)s->is[first + i];
    for (int k = 0; k < n_here; k++)
      mill_pixel_product(len, cont + (size_t)which[k] * mill_row_pitch(n) + first, t, row[ne + k]);
    for (int i = len; i < padded; i++)
      row[at_d][i] = 0.0;
    mill_pixel_rows(ne, n_here, which, nk, 1, of);
    mill_gram_add(ne, at_d + 1, padded, MILL_PIXEL_CHUNK, row[0], of, mill_gram_at(ne, 0), acc);
  }
  double part[MAX_SUM];
  mill_vec_sums_f64(n_sum, acc, part);
  mill_block_sum_n(b, part, n_sum, sums);
}

/** Add the terms of model error to slope [len], half of dF/dt at each pixel:
 *
 *    poly E^T (E r) - weight p^T N^-1 U^T E
 *
 *  error: the rows E; p [n]: the continuum functions of index which [n]; poly [len]: P a; weight:
 *  mill_det_weight; U: products of the rows E with the rows P_k t.  work->error holds E r and
 *  N^-1 U^T (`solved`).  The head of this file explains the other symbols. */
MILL_INLINE void mill_error_slopes(const mill_segment *s, double weight, int len,
                                   const mill_workspace *work, double (*error)[MILL_PIXEL_CHUNK],
                                   int n, const int *which, double (*p)[MILL_PIXEL_CHUNK],
                                   const double *poly, double *slope)
{
  enum { N_VEC = MILL_PIXEL_VECS, N_TILE = N_VEC * MILL_VEC_N_F64 };
  const int nk = s->ws->n_cont, q = s->n_error;
  const double *with_residual = work->error + MILL_ERROR_RESIDUAL;
  const double *solved = work->error + MILL_ERROR_SOLVED;
  for (int i = 0; i < len; i += N_TILE) {
    mill_vec_f64 total[N_VEC];
    for (int v = 0; v < N_VEC; v++)
      total[v] = *(const mill_vec_f64 *)(slope + i + v * MILL_VEC_N_F64);
    for (int e = 0; e < q; e++)
      for (int v = 0; v < N_VEC; v++)
        total[v] += with_residual[e] * *(const mill_vec_f64 *)(error[e] + i + v * MILL_VEC_N_F64) *
                    *(const mill_vec_f64 *)(poly + i + v * MILL_VEC_N_F64);
    for (int k = 0; k < n && weight > 0.0; k++) {
      mill_vec_f64 sum[N_VEC];
      for (int v = 0; v < N_VEC; v++)
        sum[v] = mill_vec_zero_f64();
      for (int e = 0; e < q; e++)
        for (int v = 0; v < N_VEC; v++)
          sum[v] += solved[e * nk + which[k]] *
                    *(const mill_vec_f64 *)(error[e] + i + v * MILL_VEC_N_F64);
      for (int v = 0; v < N_VEC; v++)
        total[v] -= *(const mill_vec_f64 *)(p[k] + i + v * MILL_VEC_N_F64) * (weight * sum[v]);
    }
    for (int v = 0; v < N_VEC; v++)
      *(mill_vec_f64 *)(slope + i + v * MILL_VEC_N_F64) = total[v];
  }
}

/** Compute at pixels [first, first + len), padded with zeros to a whole vector:
 *
 *  row    rows of model error, then P_k t of the n continuum functions P_k in `which`
 *  poly   the continuum P a
 *  slope  half of dF/dt: weight t p^T N^-1 p - poly r, plus the terms of mill_error_slopes
 *         (weight: mill_det_weight; other symbols: head of this file) */
MILL_INLINE void mill_jacobian_slopes(const mill_model *m, const mill_segment *s, int first,
                                      int len, const mill_real *templ, double level,
                                      const mill_workspace *work,
                                      const double (*inverse)[MILL_MAX_CONT], int n,
                                      const int *which, double (*row)[MILL_PIXEL_CHUNK],
                                      double *poly, double *slope)
{
  const int q = s->n_error, padded = mill_vec_padded_f64(len);
  double p[MILL_MAX_CONT][MILL_PIXEL_CHUNK], t[MILL_PIXEL_CHUNK];
  const double weight = mill_det_weight(m, s);
  const float *is = s->is + first, *d = s->d + first;
  MILL_SIMD
  for (int i = 0; i < len; i++)
    t[i] = mill_pixel_template(level, s->base[first + i], (double)templ[first + i], is[i]);
  for (int i = 0; i < padded; i++)
    poly[i] = 0.0;
  mill_error_rows(s, q, first, len, row);
  for (int k = 0; k < n; k++) {
    const float *pk = s->ws->cont + (size_t)which[k] * mill_row_pitch(s->n_pix) + first;
    mill_pixel_product(len, pk, t, row[q + k]);
    mill_pixel_add(len, work->solve[which[k]], pk, p[k], poly);
  }
  MILL_SIMD
  for (int i = 0; i < len; i++)
    slope[i] = mill_pixel_slope(poly[i], d[i], t[i]);
  if (q > 0)
    mill_error_slopes(s, weight, len, work, row, n, which, p, poly, slope);
  if (weight > 0.0) {
    double quad[MILL_PIXEL_CHUNK];
    mill_pixel_quadratic(inverse, n, which, padded, p[0], quad);
    MILL_SIMD
    for (int i = 0; i < len; i++)
      slope[i] += weight * t[i] * quad[i];
  }
  for (int i = len; i < padded; i++)
    slope[i] = 0.0;
}

/** Sum products of rows over a segment's pixels, into work->sums (symbols: head of this file).
 *
 *  - Rows: n_error rows E; nk rows P_k t; model derivatives V_j = (dT/dtheta_j / sigma) (P a).
 *  - Products: each row V_j with itself and with all earlier rows.  The product of rows r and c is
 *    element mill_gram_at(r, c) - mill_gram_at(n_error + nk, 0) of work->sums.
 *  - After the products come the gradient's elements, each times 1/2.
 *
 *  templ [1 + np][max_seg_pix]  in   the template and its derivatives
 *  work->solve, work->normal    in   coefficients a; Cholesky factor of N
 *  work->pixel                  out  scratch of a GPU; a CPU leaves it alone */
MILL_BLOCK_FN void mill_jacobian_sums(mill_block *b, const mill_model *m, const mill_segment *s,
                                      int np, const mill_real *templ, double level,
                                      mill_workspace *work)
{
  const int n = s->n_pix, nk = s->ws->n_cont, nv = s->n_error + nk;
  const int origin = mill_gram_at(nv, 0); /* the rows V follow nv other rows */
  const int n_pair = mill_gram_at(nv + np, 0) - origin, n_sum = n_pair + np;
  double inverse[MILL_MAX_CONT][MILL_MAX_CONT];
  if (mill_det_weight(m, s) > 0.0)
    mill_normal_inverse(nk, work->normal, inverse);
  mill_vec_f64 acc[MILL_BLOCK_MAX_SUM];
  for (int q = 0; q < n_sum; q++)
    acc[q] = mill_vec_zero_f64();
  MILL_FOR(b, c, mill_chunks(n, MILL_PIXEL_CHUNK))
  {
    const int first = c * MILL_PIXEL_CHUNK, len = mill_chunk_len(n, first, MILL_PIXEL_CHUNK);
    const int padded = mill_vec_padded_f64(len);
    double row[MILL_MAX_ROWS][MILL_PIXEL_CHUNK];
    double poly[MILL_PIXEL_CHUNK], slope[MILL_PIXEL_CHUNK]; /* P a; half of dF/dt */
    const float *is = s->is + first;
    int which[MILL_MAX_CONT], of[MILL_MAX_ROWS]; /* functions in the chunk; numbers of its rows */
    const int n_here = mill_pixel_functions(s, first, len, which), at_v = s->n_error + n_here;
    mill_pixel_rows(s->n_error, n_here, which, nk, np, of);
    mill_jacobian_slopes(m, s, first, len, templ, level, work, inverse, n_here, which, row, poly,
                         slope);
    for (int j = 0; j < np; j++) {
      const mill_real *dt = templ + (size_t)(j + 1) * (size_t)m->max_seg_pix + first;
      double *vj = row[at_v + j];
      for (int i = len; i < padded; i++)
        vj[i] = 0.0;
      MILL_SIMD
      for (int i = 0; i < len; i++)
        vj[i] = (double)dt[i] * (double)is[i];
    }
    for (int j = 0; j < np; j++) {
      double *vj = row[at_v + j];
      mill_vec_f64 sum = acc[n_pair + j];
      for (int i = 0; i < padded; i += MILL_VEC_N_F64) {
        mill_vec_f64 *v = (mill_vec_f64 *)(vj + i);
        sum += *v * *(const mill_vec_f64 *)(slope + i);
        *v *= *(const mill_vec_f64 *)(poly + i);
      }
      acc[n_pair + j] = sum;
    }
    mill_gram_add(at_v, at_v + np, padded, MILL_PIXEL_CHUNK, row[0], of, origin, acc);
  }
  double part[MILL_BLOCK_MAX_SUM];
  mill_vec_sums_f64(n_sum, acc, part);
  mill_block_sum_n(b, part, n_sum, work->sums);
}
