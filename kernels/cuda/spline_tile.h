/* SPDX-License-Identifier: BSD-3-Clause */
/** Tiles of a spline on a GPU: a thread computes four neighbouring outputs and loads four numbers
 *  at a time.  Included by kernels/math/spline_tile.h, which explains the names. */
#pragma once

#include "kernels/cuda/quad.h"

enum { MILL_SPLINE_NEAR = 4 /**< tiles begin at multiples of four */ };

/** Compute the second differences of y [n] about grid points origin + i, i < len.  They are zero at
 *  the ends of the grid and beyond.  origin and len: multiples of four; e: exp(grid step) - 1. */
MILL_INLINE void mill_spline_differences(mill_block *b, int n, int origin, int len, mill_real e,
                                         const mill_real *y, mill_real *second)
{
  const int lane = b->thread & 31;
  if (origin <= 0 || origin + len >= n) {
    MILL_PRAGMA(unroll 1)
    for (int i = lane; i < len; i += 32) {
      const int g = origin + i;
      second[i] = g > 0 && g < n - 1 ? mill_spline_difference(e, y + g) : 0;
    }
    return;
  }
  y += origin;
  MILL_UNROLL
  for (int i = 4 * lane; i < len; i += 4 * 32) {
    const mill_quad q = mill_quad_at(y + i);
    const mill_real x[6] = {y[i - 1], q.v[0], q.v[1], q.v[2], q.v[3], y[i + 4]};
    mill_quad d;
    MILL_UNROLL
    for (int k = 0; k < 4; k++)
      d.v[k] = mill_spline_difference(e, x + 1 + k);
    mill_quad_put(&d, second + i);
  }
}

/** Filter x with seven taps w, which are `apart` points apart; write the result to `to` [len].
 *  `to` is aligned to four numbers.  With apart 4, x is aligned to four; with apart 1, x - 1 is. */
MILL_INLINE void mill_spline_filter_row(mill_block *b, int len, const mill_real *w, const int apart,
                                        const mill_real *x, mill_real *to)
{
  enum { MOST = 28 }; /* four outputs need 4 + 6 apart inputs: 10, loaded as 12, or 28 */
  const int n_load = apart == 1 ? 12 : MOST, skip = apart == 1 ? 1 : 0; /* x - skip is aligned */
  const int lane = b->thread & 31, n_rest = len & 3;
  MILL_PRAGMA(unroll 1)
  for (int i = 4 * lane; i < len - n_rest; i += 4 * 32) {
    mill_real at[MOST];
    mill_quad sum;
    MILL_UNROLL
    for (int k = 0; k < n_load; k += 4)
      *(mill_quad *)(void *)(at + k) = mill_quad_at(x - skip + i + k);
    MILL_UNROLL
    for (int k = 0; k < 4; k++)
      sum.v[k] = mill_spline_filtered(w, apart, at + skip + k);
    if (apart == 1 || MILL_WIDE) /* into shared memory */
      mill_quad_put(&sum, to + i);
    else
      mill_quad_put_global(&sum, to + i);
  }
  if (lane < n_rest)
    to[len - n_rest + lane] = mill_spline_filtered(w, apart, x + len - n_rest + lane);
}
