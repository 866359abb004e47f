/* SPDX-License-Identifier: BSD-3-Clause */
/** Radial functions by their definition; splines by the Cox-de Boor recurrence, one basis function
 *  at a time, summed over the whole grid.  Slow, and independent of kernels/math/rbf.h and
 *  spline_grid.h. */
#pragma once

#include <string.h>

#include "kernels/data/library.h"

/** The monomials of n variables up to a degree, power [..][n], in the order of the library file's
 *  format, by plain loops; returns their number. */
static inline int ref_monomials(int n, int degree, int (*power)[MILL_MAX_GRID_AXIS])
{
  int n_term = 0;
  memset(power[n_term++], 0, sizeof *power);
  for (int a = 0; a < n && degree >= 1; a++) {
    memset(power[n_term], 0, sizeof *power);
    power[n_term++][a] = 1;
  }
  for (int a = 0; a < n && degree >= 2; a++)
    for (int b = a; b < n; b++) {
      memset(power[n_term], 0, sizeof *power);
      power[n_term][a]++;
      power[n_term++][b]++;
    }
  for (int a = 0; a < n && degree >= 3; a++)
    for (int b = a; b < n; b++)
      for (int c = b; c < n; c++) {
        memset(power[n_term], 0, sizeof *power);
        power[n_term][a]++;
        power[n_term][b]++;
        power[n_term++][c]++;
      }
  return n_term;
}

/** h [n_out] at x, or its derivative by label i_slope (-1: none). */
static inline void ref_rbf(const mill_rbf *rbf, const double *x, int i_slope, double *h)
{
  int power[84][MILL_MAX_GRID_AXIS];
  const int n_axis = rbf->n_axis, n_term = ref_monomials(n_axis, rbf->degree, power);
  memset(h, 0, (size_t)rbf->n_out * sizeof *h);
  for (int i = 0; i < rbf->n_center + n_term; i++) {
    double value = 1;
    if (i < rbf->n_center) {
      double r2 = 0;
      const double *c = rbf->center + i * n_axis;
      for (int l = 0; l < n_axis; l++)
        r2 += pow((x[l] - c[l]) / rbf->length[l], 2);
      value = i_slope < 0 ? pow(r2, 1.5)
                          : 3 * sqrt(r2) * (x[i_slope] - c[i_slope]) / pow(rbf->length[i_slope], 2);
    } else {
      const int *p = power[i - rbf->n_center];
      for (int l = 0; l < n_axis; l++) {
        const double u = x[l] / rbf->length[l];
        if (l != i_slope)
          value *= pow(u, p[l]);
        else
          value *= p[l] == 0 ? 0 : p[l] * pow(u, p[l] - 1) / rbf->length[l];
      }
    }
    for (int k = 0; k < rbf->n_out; k++)
      h[k] += value * (double)rbf->coef[i * rbf->n_out + k];
  }
}

/** B-spline i of degree p at x; t: knots.  The last interval includes its end. */
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

/** Outputs h [n_out] at x, or their derivatives by label i_slope (-1: none), summed over all grid
 *  points. */
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
