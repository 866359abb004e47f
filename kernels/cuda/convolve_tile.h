/* SPDX-License-Identifier: BSD-3-Clause */
/** Tiles of convolutions on a GPU: a thread computes four neighbouring outputs and loads four
 *  numbers at a time.  Included by kernels/math/convolve_tile.h, which explains the names. */
#pragma once

#include "kernels/cuda/quad.h"

enum { MILL_ROTATE_TILE = 4, MILL_ROTATE_ANYWHERE = 0, MILL_RESOLVE_TILE = 4 };

MILL_INLINE int mill_tiles_first(int half)
{
  return (half + 3) / 4 * 4;
}

/** Count the tiles of a row [n] from output `first` on.  Their loads stay within the row, so n_diag
 *  / 2 outputs or more remain after the last tile. */
MILL_INLINE int mill_resolve_most(int n, int n_diag, int first)
{
  const int half = n_diag / 2, loaded = (n_diag + 3) / 4 * 4 + 4 - half;
  const int after = loaded > half + 4
                        ? loaded
                        : half + 4; /* numbers of the row needed from a tile's first output on */
  return n >= first + after ? (n - first - after) / 4 + 1 : 0;
}

MILL_INLINE int mill_resolve_shift(int n_diag)
{
  return n_diag / 2 % 4;
}

/** Write MILL_ROTATE_TILE outputs: the row at x convolved with a symmetric kernel [half + 1]. */
MILL_INLINE void mill_rotate_tile(int half, const double *kernel, const mill_real *x, mill_real *to)
{
  /* left and right: inputs at distance k0 to either side; before and after: at k0 + 4 */
  mill_quad left = mill_quad_at(x), right = left, sum;
  const mill_real w0 = (mill_real)kernel[0];
  MILL_UNROLL
  for (int p = 0; p < 4; p++)
    sum.v[p] = w0 * left.v[p];
  MILL_PRAGMA(unroll 1)
  for (int k0 = 0; k0 < half; k0 += 4) {
    const mill_quad before = mill_quad_at(x - k0 - 4), after = mill_quad_at(x + k0 + 4);
    mill_real weight[5];
    MILL_UNROLL
    for (int k = 1; k <= 4; k++) /* zeros beyond the last weight: no branch between the loads */
      weight[k] = k0 + k <= half ? (mill_real)kernel[k0 + k] : 0;
    MILL_UNROLL
    for (int k = 1; k <= 4; k++) {
      const mill_real w = weight[k];
      MILL_UNROLL
      for (int p = 0; p < 4; p++)
        sum.v[p] += w * ((p < k ? before.v[p - k + 4] : left.v[p - k]) +
                         (p + k < 4 ? right.v[p + k] : after.v[p + k - 4]));
    }
    left = before;
    right = after;
  }
  mill_quad_put_global(&sum, to);
}

/** Multiply nr <= MILL_RESOLVE_ROWS rows by the resolution matrix for four outputs.  res: the four
 *  outputs' elements of the first diagonal; `in`: that diagonal's input for the first output. */
MILL_INLINE void mill_resolve_tile(const int nr, int n_diag, ptrdiff_t pitch_res, const float *res,
                                   ptrdiff_t pitch, const mill_real *in, mill_real *out)
{
  mill_quad x[MILL_RESOLVE_ROWS], sum[MILL_RESOLVE_ROWS];
  MILL_UNROLL
  for (int r = 0; r < nr; r++) {
    x[r] = mill_quad_at(in + r * pitch);
    MILL_UNROLL
    for (int p = 0; p < 4; p++)
      sum[r].v[p] = 0;
  }
  MILL_PRAGMA(unroll 1)
  for (; n_diag > 0; n_diag -= 4) { /* four diagonals take their inputs from x and `after` */
    mill_quad after[MILL_RESOLVE_ROWS];
    float4 weight[4];
    in += 4;
    MILL_UNROLL
    for (int r = 0; r < nr; r++)
      after[r] = mill_quad_at(in + r * pitch);
    MILL_UNROLL
    for (int k = 0; k < 4; k++)
      if (k < n_diag)
        weight[k] = *(const float4 *)(const void *)(res + k * pitch_res);
    res += 4 * pitch_res;
    MILL_UNROLL
    for (int k = 0; k < 4; k++) {
      if (k >= n_diag)
        break;
      const mill_real w[4] = {(mill_real)weight[k].x, (mill_real)weight[k].y,
                              (mill_real)weight[k].z, (mill_real)weight[k].w};
      MILL_UNROLL
      for (int r = 0; r < nr; r++)
        MILL_UNROLL
      for (int p = 0; p < 4; p++)
        sum[r].v[p] += w[p] * (p + k < 4 ? x[r].v[p + k] : after[r].v[p + k - 4]);
    }
    MILL_UNROLL
    for (int r = 0; r < nr; r++)
      x[r] = after[r];
  }
  MILL_UNROLL
  for (int r = 0; r < nr; r++)
    mill_quad_put_global(&sum[r], out + r * pitch);
}
