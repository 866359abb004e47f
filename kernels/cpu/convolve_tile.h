/* SPDX-License-Identifier: BSD-3-Clause */
/** Tiles of convolutions on a CPU: vectors of numbers.  Included by kernels/math/convolve_tile.h, which
 *  explains the names. */
#ifndef MILL_CPU_CONVOLVE_TILE_H
#define MILL_CPU_CONVOLVE_TILE_H

#include "kernels/math/rotation.h"

enum {
  MILL_ROTATE_ANYWHERE = 1,
  MILL_ROTATE_VECS = 4, /**< vectors that a rotation sums at a time */
  MILL_ROTATE_TILE = MILL_ROTATE_VECS * MILL_VEC_N,
  MILL_RESOLVE_TILE = MILL_VEC_N
};

MILL_INLINE int mill_tiles_first(int half)
{
  return half;
}

MILL_INLINE int mill_resolve_most(int n, int n_diag, int first)
{
  (void)n_diag;
  return n > 2 * first ? (n - 2 * first) / MILL_RESOLVE_TILE : 0;
}

MILL_INLINE int mill_resolve_shift(int n_diag)
{
  (void)n_diag;
  return 0;
}

MILL_INLINE void mill_rotate_tile(int half, const double *kernel, const mill_real *x, mill_real *to)
{
  typedef mill_vec_real vec;
  vec sum[MILL_ROTATE_VECS];
  const mill_real w0 = (mill_real)kernel[0];
  for (int v = 0; v < MILL_ROTATE_VECS; v++)
    sum[v] = w0 * *(const vec *)(x + v * MILL_VEC_N);
  for (int k = 1; k <= half; k++) {
    const mill_real w = (mill_real)kernel[k];
    for (int v = 0; v < MILL_ROTATE_VECS; v++)
      sum[v] +=
          w * (*(const vec *)(x + v * MILL_VEC_N - k) + *(const vec *)(x + v * MILL_VEC_N + k));
  }
  for (int v = 0; v < MILL_ROTATE_VECS; v++)
    *(vec *)(to + v * MILL_VEC_N) = sum[v];
}

/** How far the kernel of a spline's coefficients may reach beyond the row's own, and the weight, as
 *  a part of the largest, below which it ends: flux has 0.08 of a coefficient at most. */
enum { MILL_BEND_MORE = 6, MILL_BEND_MOST = MILL_MAX_ROTATION + MILL_BEND_MORE };
#define MILL_BEND_LEAST 1e-5

/** Weights that make the coefficients of the spline through a row of which a kernel [half + 1]
 *  makes the values: on equal intervals Z_{k-1} + 4 Z_k + Z_{k+1} = 6 (K_{k-1} - 2 K_k + K_{k+1}),
 *  solved by an exponential to both sides.  Those of a template are equal to 1e-4.  Returns the
 *  half width, 0 where it is beyond MILL_BEND_MORE. */
MILL_INLINE int mill_bend_kernel(int half, const double *kernel, mill_real *weight)
{
  const double fall = -0.26794919243112270,
               scale = 0.28867513459481288; /* sqrt(3) - 2, 3^-1/2 / 2 */
  double from[MILL_BEND_MOST + 2], at[2 * MILL_BEND_MOST + 1], bend[MILL_BEND_MOST + 1], last = 0.0;
  int most = half + MILL_BEND_MORE;
  for (int k = 0; k <= most + 1; k++)
    from[k] = k <= half ? kernel[k] : 0.0;
  for (int k = 0; k <= most; k++)
    bend[k] = 6.0 * (from[k > 0 ? k - 1 : 1] - 2.0 * from[k] + from[k + 1]);
  for (int k = -most; k <= most; k++)
    at[most + k] = last = bend[k < 0 ? -k : k] + fall * last;
  for (int k = 0; k <= most; k++)
    bend[k] = scale * (at[most + k] + at[most - k] - bend[k]);
  double largest = 0.0;
  for (int k = 0; k <= most; k++)
    largest = fmax(largest, fabs(bend[k]));
  if (!(fabs(bend[most]) <= MILL_BEND_LEAST * largest))
    return 0;
  while (most > half && fabs(bend[most]) <= MILL_BEND_LEAST * largest)
    most--;
  for (int k = 0; k <= most; k++)
    weight[k] = (mill_real)bend[k];
  return most;
}

/** A tile of a row and of its spline's coefficients. */
MILL_INLINE void mill_bend_tile(int half, const mill_real *weight, int half_bend,
                                const mill_real *weight_bend, const mill_real *x, mill_real *to,
                                mill_real *bend)
{
  typedef mill_vec_real vec;
  enum { N_VEC = MILL_ROTATE_VECS };
  vec sum[N_VEC], sum_bend[N_VEC];
  for (int v = 0; v < N_VEC; v++) {
    sum[v] = weight[0] * *(const vec *)(x + v * MILL_VEC_N);
    sum_bend[v] = weight_bend[0] * *(const vec *)(x + v * MILL_VEC_N);
  }
  for (int k = 1; k <= half; k++) {
    for (int v = 0; v < N_VEC; v++) {
      const mill_real *at = x + v * MILL_VEC_N;
      const vec both = *(const vec *)(at - k) + *(const vec *)(at + k);
      sum[v] += weight[k] * both;
      sum_bend[v] += weight_bend[k] * both;
    }
  }
  for (int k = half + 1; k <= half_bend; k++) {
    for (int v = 0; v < N_VEC; v++) {
      const mill_real *at = x + v * MILL_VEC_N;
      sum_bend[v] += weight_bend[k] * (*(const vec *)(at - k) + *(const vec *)(at + k));
    }
  }
  for (int v = 0; v < N_VEC; v++) {
    *(vec *)(to + v * MILL_VEC_N) = sum[v];
    *(vec *)(bend + v * MILL_VEC_N) = sum_bend[v];
  }
}

MILL_BLOCK_FN int mill_block_rotate_bend(mill_block *b, int n, int half, const double *kernel,
                                         const mill_real *in, mill_real *out, mill_real *bend)
{
  enum { TILE = MILL_ROTATE_TILE };
  mill_real weight[MILL_MAX_ROTATION + 1], weight_bend[MILL_BEND_MOST + 1];
  const int reach = MILL_WIDE ? 0 : mill_bend_kernel(half, kernel, weight_bend);
  const int n_tile = (n + TILE - 1) / TILE;
  if (reach == 0 || n < TILE)
    return 0;
  for (int k = 0; k <= half; k++)
    weight[k] = (mill_real)kernel[k];
  MILL_FOR(b, c, n_tile)
  {
    const int first = c < n_tile - 1 ? c * TILE : n - TILE;
    mill_real padded[TILE + 2 * MILL_BEND_MOST];
    const mill_real *x = in + first;
    if (first < reach || first + TILE + reach > n) {
      for (int i = 0; i < TILE + 2 * reach; i++) {
        const int p = first - reach + i;
        padded[i] = p >= 0 && p < n ? in[p] : 0;
      }
      x = padded + reach;
    }
    mill_bend_tile(half, weight, reach, weight_bend, x, out + first, bend + first);
  }
  MILL_BARRIER(b);
  return 1;
}

/** Sums are separate variables, since compilers would keep an array of them in memory. */
MILL_INLINE void mill_resolve_tile(const int nr, int n_diag, ptrdiff_t pitch_res, const float *res,
                                   ptrdiff_t pitch, const mill_real *in, mill_real *out)
{
  typedef mill_vec_real vec;
  const vec zero = {0};
  vec s0 = zero, s1 = zero, s2 = zero, s3 = zero;
  for (; n_diag > 0; n_diag--) {
    const vec w = mill_vec_load_real(res);
    s0 += w * *(const vec *)in;
    if (nr > 1)
      s1 += w * *(const vec *)(in + pitch);
    if (nr > 2)
      s2 += w * *(const vec *)(in + 2 * pitch);
    if (nr > 3)
      s3 += w * *(const vec *)(in + 3 * pitch);
    res += pitch_res;
    in++;
  }
  *(vec *)out = s0;
  if (nr > 1)
    *(vec *)(out + pitch) = s1;
  if (nr > 2)
    *(vec *)(out + 2 * pitch) = s2;
  if (nr > 3)
    *(vec *)(out + 3 * pitch) = s3;
}

#endif
