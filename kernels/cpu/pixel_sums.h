/** What the sums over pixels of a CPU are made of (pixel_sums_impl.h): rows of chunks of pixels
 *  as vectors, small matrices by one thread. */
#ifndef MILL_CPU_PIXEL_SUMS_H
#define MILL_CPU_PIXEL_SUMS_H

#include "kernels/cpu/gram.h"
#include "kernels/math/linalg.h"
#include "kernels/star/slot.h"

/** out = p t, a chunk of len pixels, zeros up to a whole vector. */
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

/** copy = p and sum += a p, the same way. */
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

/** |L^-1 p|^2 for every pixel of a chunk.
 *
 *  chol [nk][nk]             in      L in its lower triangle
 *  p [nk][MILL_PIXEL_CHUNK]  in/out  len numbers of each row, a whole number of vectors; then L^-1
 * p quad [len]                out */
MILL_BLOCK_FN void mill_pixel_quadratic(int nk, const double *chol, int len, double *p,
                                        double *quad)
{
  enum {
    N_VEC = MILL_PIXEL_CHUNK / MILL_VEC_N_F64 % 4 == 0 ? 4 : 1,
    N_TILE = N_VEC * MILL_VEC_N_F64
  };
  const mill_vec_f64 zero = {0};
  for (int i = 0; i < len; i += N_TILE) {
    mill_vec_f64 total[N_VEC];
    for (int v = 0; v < N_VEC; v++)
      total[v] = zero;
    for (int k = 0; k < nk; k++) {
      double *at = p + (ptrdiff_t)k * MILL_PIXEL_CHUNK + i;
      mill_vec_f64 z[N_VEC];
      for (int v = 0; v < N_VEC; v++)
        z[v] = *(const mill_vec_f64 *)(at + v * MILL_VEC_N_F64);
      for (int l = 0; l < k; l++) {
        const double w = chol[k * nk + l];
        const double *below = p + (ptrdiff_t)l * MILL_PIXEL_CHUNK + i;
        for (int v = 0; v < N_VEC; v++)
          z[v] -= w * *(const mill_vec_f64 *)(below + v * MILL_VEC_N_F64);
      }
      const double inv = 1.0 / chol[k * nk + k];
      for (int v = 0; v < N_VEC; v++) {
        z[v] *= inv;
        total[v] += z[v] * z[v];
        *(mill_vec_f64 *)(at + v * MILL_VEC_N_F64) = z[v];
      }
    }
    for (int v = 0; v < N_VEC; v++)
      *(mill_vec_f64 *)(quad + i + v * MILL_VEC_N_F64) = total[v];
  }
}

/** Factor a normal matrix a [n][n] (lower triangle) and solve for v [n].  out: [0] ln det,
 *  [1] |L^-1 v|^2.  0, or what mill_cholesky returns; the same on all threads. */
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

/** A block's share of work that has no order: velocities first, first + step, ... */
typedef struct mill_team {
  mill_block block;
  mill_workspace *work;
  int first, step;
} mill_team;

/** The team of the calling thread, for likelihoods of a segment: all threads.  row_bytes: of a row
 *  over pixels. */
MILL_BLOCK_FN void mill_block_team(mill_block *b, const mill_segment *s, size_t row_bytes,
                                   mill_workspace *work, mill_team *team)
{
  (void)s;
  (void)row_bytes;
  team->block = *b;
  team->work = work;
  team->first = 0;
  team->step = 1;
}

#endif
