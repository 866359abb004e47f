/* SPDX-License-Identifier: BSD-3-Clause */
/** Splines by their definition: the Cox-de Boor recurrence, function by function, and
 *  sums over a whole grid.  Slow, and shares nothing with kernels/math/spline_grid.h. */
#ifndef SPLINE_REFERENCE_H
#define SPLINE_REFERENCE_H

#include <math.h>
#include <string.h>

#include "kernels/data/library.h"

/** Function i of degree p at x, the last interval with its end. */
static inline double ref_bspline(int n_knot, const double *t, int p, int i, double x)
{
  if (p == 0) {
    const double end = t[n_knot - 1];
    return (t[i] <= x && x < t[i + 1]) || (x == end && t[i] < end && t[i + 1] == end);
  }
  double sum = 0;
  if (t[i + p] > t[i])
    sum += (x - t[i]) / (t[i + p] - t[i]) * ref_bspline(n_knot, t, p - 1, i, x);
  if (t[i + p + 1] > t[i + 1])
    sum += (t[i + p + 1] - x) / (t[i + p + 1] - t[i + 1]) * ref_bspline(n_knot, t, p - 1, i + 1, x);
  return sum;
}

static inline double ref_bspline_slope(int n_knot, const double *t, int p, int i, double x)
{
  double sum = 0;
  if (t[i + p] > t[i])
    sum += p / (t[i + p] - t[i]) * ref_bspline(n_knot, t, p - 1, i, x);
  if (t[i + p + 1] > t[i + 1])
    sum -= p / (t[i + p + 1] - t[i + 1]) * ref_bspline(n_knot, t, p - 1, i + 1, x);
  return sum;
}

/** Basis function i of degree p, linear beyond the knots, and its slope. */
static inline double ref_basis(int n_node, const double *knot, int p, int i, double x,
                               double *slope)
{
  const int n_knot = n_node + p + 1;
  const double edge = fmin(fmax(x, knot[0]), knot[n_knot - 1]);
  *slope = ref_bspline_slope(n_knot, knot, p, i, edge);
  return ref_bspline(n_knot, knot, p, i, edge) + *slope * (x - edge);
}

/** h [n_out] at x, or its derivative by label i_slope (-1: none), over all grid points. */
static inline void ref_spline_grid(const mill_spline_grid *grid, const double *x, int i_slope,
                                   double *h)
{
  double basis[MILL_MAX_GRID_AXIS][MILL_MAX_GRID_NODE], slope;
  size_t n_point = 1;
  for (int l = 0; l < grid->n_axis; l++) {
    for (int i = 0; i < grid->n_node[l]; i++) {
      basis[l][i] =
          ref_basis(grid->n_node[l], grid->knot[l], grid->linear ? 1 : 3, i, x[l], &slope);
      if (l == i_slope)
        basis[l][i] = slope;
    }
    n_point *= (size_t)grid->n_node[l];
  }
  memset(h, 0, (size_t)grid->n_out * sizeof *h);
  for (size_t p = 0; p < n_point; p++) {
    double product = 1;
    size_t rest = p;
    for (int l = grid->n_axis - 1; l >= 0; l--) {
      product *= basis[l][rest % (size_t)grid->n_node[l]];
      rest /= (size_t)grid->n_node[l];
    }
    for (int k = 0; k < grid->n_out && product != 0; k++)
      h[k] += product * (double)grid->coef[p * (size_t)grid->n_out + (size_t)k];
  }
}

#endif
