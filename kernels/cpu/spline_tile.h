/* SPDX-License-Identifier: BSD-3-Clause */
/** Tiles of a spline on a CPU, as loops that the compiler vectorises.  Included by
 *  kernels/math/spline_tile.h, which explains the names. */
#pragma once

enum { MILL_SPLINE_NEAR = 3 };

/** Compute the second differences of y [n] about grid points origin + i, i < len, for the spline's
 *  equations.  They are 0 at the ends of the grid and beyond.  e: arm->expm1_step. */
MILL_INLINE void mill_spline_differences(mill_block *b, int n, int origin, int len, mill_real e,
                                         const mill_real *y, mill_real *second)
{
  const int lo = origin < 1 ? 1 - origin : 0;
  const int hi = origin + len > n - 1 ? n - 1 - origin : len;
  (void)b; /* a CPU's loop has no use for it */
  MILL_FOR_TILE(b, i, 0, lo)
  {
    second[i] = 0;
  }
  MILL_FOR_TILE(b, i, hi, len)
  {
    second[i] = 0;
  }
  MILL_FOR_TILE(b, i, lo, hi)
  {
    second[i] = mill_spline_difference(e, &y[origin + i]);
  }
}

/** Filter len numbers of a tile. */
MILL_INLINE void mill_spline_filter_row(mill_block *b, int len, const mill_real *w, int apart,
                                        const mill_real *x, mill_real *to)
{
  (void)b; /* a CPU's loop has no use for it */
  MILL_FOR_TILE(b, i, 0, len)
  {
    to[i] = mill_spline_filtered(w, apart, x + i);
  }
}
