#include "src/libraries/spline_grid.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/base/error.h"
#include "src/libraries/limits.h"
#include "kernels/math/spline_grid.h"

enum {
  BAND = MILL_SPLINE_ORDER - 1, /**< of the collocation matrix, on either side */
  WIDTH = 2 * BAND + 1,
  COLUMNS = 512 /**< right-hand sides solved together: 4 KiB of each node */
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

/** LU of the matrix of basis functions at the nodes, [n][WIDTH], diagonal at BAND.
 *
 *  It is totally positive, so that elimination without exchanges is stable (de Boor and
 *  Pinkus 1977, Numerische Mathematik 27, 485). */
static void factor(int n, const double *node, const double *knot, double *lu)
{
  memset(lu, 0, (size_t)n * WIDTH * sizeof *lu);
  for (int i = 0; i < n; i++) {
    double weight[MILL_SPLINE_ORDER], slope[MILL_SPLINE_ORDER];
    const int first = mill_spline_basis(n, knot, node[i], weight, slope);
    /* the functions at node i begin with number i - 3 at the least and i at the most */
    for (int k = 0; k < MILL_SPLINE_ORDER; k++)
      lu[i * WIDTH + first + k - i + BAND] = weight[k];
  }
  for (int k = 0; k < n; k++)
    for (int i = k + 1; i <= k + BAND && i < n; i++) {
      const double ratio = lu[i * WIDTH + k - i + BAND] / lu[k * WIDTH + BAND];
      lu[i * WIDTH + k - i + BAND] = ratio;
      for (int j = k + 1; j <= k + BAND && j < n; j++)
        lu[i * WIDTH + j - i + BAND] -= ratio * lu[k * WIDTH + j - k + BAND];
    }
}

/** Subtract ratio times row `from` from row `to`. */
static void eliminate(size_t n, double ratio, const double *from, double *to)
{
  if (ratio == 0.0)
    return;
  for (size_t i = 0; i < n; i++)
    to[i] -= ratio * from[i];
}

/** Solve for the columns of value [n][pitch], n_column of them, in place. */
static void solve(int n, const double *lu, size_t n_column, size_t pitch, double *value)
{
  for (int i = 0; i < n; i++)
    for (int k = i > BAND ? i - BAND : 0; k < i; k++)
      eliminate(n_column, lu[i * WIDTH + k - i + BAND], value + (size_t)k * pitch,
                value + (size_t)i * pitch);
  for (int i = n - 1; i >= 0; i--) {
    double *row = value + (size_t)i * pitch;
    for (int k = i + 1; k <= i + BAND && k < n; k++)
      eliminate(n_column, lu[i * WIDTH + k - i + BAND], value + (size_t)k * pitch, row);
    for (size_t j = 0; j < n_column; j++)
      row[j] /= lu[i * WIDTH + BAND];
  }
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
                      "a grid of %.3g numbers, at most %d: take fewer nodes or components", size,
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
  double *lu = NULL;
  size_t size = 0, n_inner = (size_t)n_out;
  MILL_TRY(begin(n_axis, n_node, node, n_out, 0, grid, &size));
  MILL_TRY(MILL_ALLOC(MILL_MAX_GRID_NODE * WIDTH, &lu));
  for (int l = n_axis - 1; l >= 0; l--) {
    const size_t n_block = (size_t)n_node[l] * n_inner;
    factor(n_node[l], node[l], grid->knot[l], lu);
    for (size_t block = 0; block < size; block += n_block)
      for (size_t at = 0; at < n_inner; at += COLUMNS)
        solve(n_node[l], lu, n_inner - at < COLUMNS ? n_inner - at : COLUMNS, n_inner,
              value + block + at);
    n_inner = n_block;
  }
  MILL_TRY(take_coefficients(size, value, grid));
done:
  mill_free(lu);
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
