/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/spline_grid.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include <lapacke.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/math/spline_grid.h"
#include "src/libraries/limits.h"

enum {
  BAND = MILL_SPLINE_ORDER - 1, /**< of the collocation matrix, on either side */
  ROWS = 3 * BAND + 1,          /**< of its band as LAPACK keeps and factors it */
  COLUMNS = 512                 /**< right-hand sides solved together */
};

/** Knots of the not-a-knot spline: the second node and the last but one are none. */
static void make_knots(int n, const double *node, double *knot)
{
  for (int i = 0; i < n + MILL_SPLINE_ORDER; i++) {
    const int at = i - MILL_SPLINE_ORDER / 2;
    knot[i] = i < MILL_SPLINE_ORDER ? node[0] : (i >= n ? node[n - 1] : node[at]);
  }
}

/** Knots of linear interpolation: the nodes, both ends twice. */
static void make_linear_knots(int n, const double *node, double *knot)
{
  for (int i = 0; i < n + 2; i++)
    knot[i] = node[i < 1 ? 0 : (i > n ? n - 1 : i - 1)];
}

/** LAPACK's factors of the matrix of basis functions at the nodes, band [ROWS][n], pivot [n]. */
static int factor(int n, const double *node, const double *knot, double *band, lapack_int *pivot)
{
  memset(band, 0, ROWS * (size_t)n * sizeof *band);
  for (int i = 0; i < n; i++) {
    double weight[MILL_SPLINE_ORDER], slope[MILL_SPLINE_ORDER];
    const int first = mill_spline_basis(n, knot, node[i], weight, slope);
    for (int k = 0; k < MILL_SPLINE_ORDER; k++)
      band[(2 * BAND + i - first - k) * n + first + k] = weight[k];
  }
  const lapack_int info = LAPACKE_dgbtrf(LAPACK_ROW_MAJOR, n, n, BAND, BAND, band, n, pivot);
  if (info != 0)
    return MILL_ERROR(info < 0 ? MILL_ERR_MEMORY : MILL_ERR_RANGE,
                      "LAPACK's factors of the splines of a grid ended with %d", (int)info);
  return MILL_OK;
}

/** Solve for the columns of value [n][n_column], in place, a few at a time; NaN stays NaN. */
static int solve(int n, const double *band, const lapack_int *pivot, size_t n_column, double *value)
{
  for (size_t at = 0; at < n_column; at += COLUMNS) {
    const size_t n_here = n_column - at < COLUMNS ? n_column - at : COLUMNS;
    const lapack_int info =
        LAPACKE_dgbtrs_work(LAPACK_ROW_MAJOR, 'N', n, BAND, BAND, (lapack_int)n_here, band, n,
                            pivot, value + at, (lapack_int)n_column);
    if (info != 0)
      return MILL_ERROR(MILL_ERR_MEMORY, "LAPACK's splines of a grid ended with %d", (int)info);
  }
  return MILL_OK;
}

static int check(int n_axis, const int *n_node, const double *const *node, int n_out, int n_least)
{
  MILL_CHECK(mill_expect_within(MILL_ERR_RANGE, "labels of a grid", n_axis, 1, MILL_MAX_GRID_AXIS));
  MILL_CHECK(mill_expect_within(MILL_ERR_RANGE, "components of a grid", n_out, 1, MILL_MAX_WIDTH));
  double size = n_out;
  for (int l = 0; l < n_axis; l++) {
    if (n_node[l] < n_least || n_node[l] > MILL_MAX_GRID_NODE)
      return MILL_ERROR(MILL_ERR_RANGE, "axis %d of a grid has %d nodes, expected %d to %d", l,
                        n_node[l], n_least, MILL_MAX_GRID_NODE);
    size *= n_node[l];
    for (int i = 0; i < n_node[l]; i++)
      if (!isfinite(node[l][i]) || (i > 0 && !(node[l][i] > node[l][i - 1])))
        return MILL_ERROR(MILL_ERR_RANGE,
                          "node %d of axis %d of a grid is %g; nodes must be finite and ascend", i,
                          l, node[l][i]);
  }
  if (size > MILL_MAX_GRID_COEF)
    return MILL_ERROR(MILL_ERR_RANGE,
                      "a grid of %.3g numbers, at most %d: use fewer nodes or components", size,
                      MILL_MAX_GRID_COEF);
  return MILL_OK;
}

/** Sizes and knots; size: numbers of the coefficients. */
static int begin(int n_axis, const int *n_node, const double *const *node, int n_out, int linear,
                 mill_spline_grid *grid, size_t *size)
{
  memset(grid, 0, sizeof *grid);
  grid->linear = linear;
  const int order = mill_spline_grid_order(grid);
  MILL_CHECK(check(n_axis, n_node, node, n_out, order));
  grid->n_axis = n_axis;
  grid->n_out = n_out;
  *size = (size_t)n_out;
  for (int l = 0; l < n_axis; l++) {
    grid->n_node[l] = n_node[l];
    MILL_CHECK(MILL_ALLOC(n_node[l] + order, &grid->knot[l]));
    if (linear)
      make_linear_knots(n_node[l], node[l], grid->knot[l]);
    else
      make_knots(n_node[l], node[l], grid->knot[l]);
    *size *= (size_t)n_node[l];
  }
  return MILL_OK;
}

/** The coefficients in float32. */
static int take_coefficients(size_t size, const double *value, mill_spline_grid *grid)
{
  MILL_CHECK(MILL_ALLOC(size, &grid->coef));
  for (size_t i = 0; i < size; i++) {
    /* written so that NaN fails */
    if (!(fabs(value[i]) <= (double)FLT_MAX))
      return MILL_ERROR(
          MILL_ERR_RANGE,
          "component %zu of a grid has the coefficient %g; its values must be finite and "
          "within float32",
          i % (size_t)grid->n_out, value[i]);
    grid->coef[i] = (float)value[i];
  }
  return MILL_OK;
}

int mill_spline_grid_fit(int n_axis, const int *n_node, const double *const *node, int n_out,
                         double *value, mill_spline_grid *grid)
{
  int err = MILL_OK;
  double *band = NULL;
  lapack_int pivot[MILL_MAX_GRID_NODE];
  size_t size = 0, n_inner = (size_t)n_out;
  MILL_TRY(begin(n_axis, n_node, node, n_out, 0, grid, &size));
  MILL_TRY(MILL_ALLOC(ROWS * MILL_MAX_GRID_NODE, &band));
  for (int l = n_axis - 1; l >= 0; l--) {
    const size_t n_block = (size_t)n_node[l] * n_inner;
    MILL_TRY(factor(n_node[l], node[l], grid->knot[l], band, pivot));
    for (size_t block = 0; block < size; block += n_block)
      MILL_TRY(solve(n_node[l], band, pivot, n_inner, value + block));
    n_inner = n_block;
  }
  MILL_TRY(take_coefficients(size, value, grid));
done:
  mill_free(band);
  if (err != MILL_OK)
    mill_spline_grid_clear(grid);
  return err;
}

int mill_spline_grid_linear(int n_axis, const int *n_node, const double *const *node, int n_out,
                            const double *value, mill_spline_grid *grid)
{
  int err = MILL_OK;
  size_t size = 0;
  MILL_TRY(begin(n_axis, n_node, node, n_out, 1, grid, &size));
  MILL_TRY(take_coefficients(size, value, grid));
done:
  if (err != MILL_OK)
    mill_spline_grid_clear(grid);
  return err;
}

void mill_spline_grid_eval(const mill_spline_grid *grid, const double *x, double *h)
{
  double weight[MILL_MAX_GRID_AXIS][MILL_SPLINE_ORDER], slope[MILL_SPLINE_ORDER];
  const int order = mill_spline_grid_order(grid);
  int first[MILL_MAX_GRID_AXIS], n_term = 1;
  for (int l = 0; l < grid->n_axis; l++) {
    first[l] = mill_grid_basis(grid, l, x[l], weight[l], slope);
    n_term *= order;
  }
  memset(h, 0, (size_t)grid->n_out * sizeof *h);
  for (int i_term = 0; i_term < n_term; i_term++) {
    double product = 1.0;
    size_t at = 0;
    int rest = i_term;
    for (int l = 0; l < grid->n_axis; l++) {
      const int i = rest % order;
      rest /= order;
      product *= weight[l][i];
      at = at * (size_t)grid->n_node[l] + (size_t)(first[l] + i);
    }
    const float *coef = grid->coef + at * (size_t)grid->n_out;
    for (int k = 0; k < grid->n_out; k++)
      h[k] += product * (double)coef[k];
  }
}
