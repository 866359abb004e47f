/* SPDX-License-Identifier: BSD-3-Clause */
/** Second differences and short filters, from which mill_block_spline makes spline coefficients.
 *
 *  Each backend's spline_tile.h (kernels/math/primitives.h) defines mill_spline_differences and
 *  mill_spline_filter_row.  The first filter needs 3 differences beyond each end of a tile; a
 *  backend computes MILL_SPLINE_NEAR >= 3. */
#pragma once

#include "kernels/math/real.h"

/** Second difference of y about a grid point: right-hand side of the spline's equations, with
 *  e = exp(step in ln wavelength) - 1 (mill_block_spline). */
MILL_INLINE mill_real mill_spline_difference(mill_real e, const mill_real *y)
{
  const mill_real left = y[0] - y[-1], right = y[1] - y[0];
  return (mill_real)6 * ((right - left) - e * left);
}

/** Filter x with seven taps w, `apart` grid points apart. */
MILL_INLINE mill_real mill_spline_filtered(const mill_real *w, int apart, const mill_real *x)
{
  return w[0] * x[0] + w[1] * x[apart] + w[2] * x[2 * apart] + w[3] * x[3 * apart] +
         w[4] * x[4 * apart] + w[5] * x[5 * apart] + w[6] * x[6 * apart];
}

#include MILL_PRIMITIVES_SPLINE
