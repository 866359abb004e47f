/* SPDX-License-Identifier: BSD-3-Clause */
/** Fitting and evaluating tensor products of splines (kernels/data/library.h). */
#ifndef MILL_SPLINE_GRID_H
#define MILL_SPLINE_GRID_H

#include "kernels/data/library.h"

/** Interpolating splines (not-a-knot) through values on a full grid.
 *
 *  n_axis                          1 .. MILL_MAX_GRID_AXIS
 *  n_node [n_axis]                 nodes of each axis, 4 .. MILL_MAX_GRID_NODE
 *  node [n_axis][n_node]           ascending, mapped coordinates
 *  n_out                           1 .. MILL_MAX_WIDTH
 *  value [n_node[0]]..[n_out]  in  last axis fastest but for the n_out values;
 *                                  used up (becomes the coefficients)
 *  grid                        out knots and coefficients, owned by the caller;
 *                                  mill_spline_grid_clear frees them
 *  MILL_ERR_RANGE, MILL_ERR_MEMORY; grid is then left cleared. */
int mill_spline_grid_fit(int n_axis, const int *n_node, const double *const *node, int n_out,
                         double *value, mill_spline_grid *grid);

/** Linear interpolation between values on a full grid: as above, but for 2 nodes of an axis or
 *  more, and value stays as it is. */
int mill_spline_grid_linear(int n_axis, const int *n_node, const double *const *node, int n_out,
                            const double *value, mill_spline_grid *grid);

/** h [n_out] at mapped labels x [n_axis]; float64 sums. The host's reference of
 *  kernels/math/spline_grid.h. */
void mill_spline_grid_eval(const mill_spline_grid *grid, const double *x, double *h);

#endif
