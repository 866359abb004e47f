/* SPDX-License-Identifier: BSD-3-Clause */
/* Fitting splines through a full grid: SciPy's values, refusals. */
#include "tests/mill_test.h"

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/math/hull.h"
#include "src/libraries/emulator.h"
#include "src/libraries/spline_grid.h"
#include "reference/spline_grid.h"
#include "tests/spline_reference.h"
#include "tests/test_library.h"

enum { SEED = 515 };

/* --- SciPy --- */

static void compare_scipy(int n_axis, const double *const *node, const int *n_node,
                          const double *value, const double *point, const double *result)
{
  mill_spline_grid grid;
  double *used = NULL;
  size_t size = REF_N_OUT;
  double worst = 0, span[MILL_MAX_GRID_AXIS];
  for (int l = 0; l < n_axis; l++) {
    size *= (size_t)n_node[l];
    span[l] = node[l][n_node[l] - 1] - node[l][0];
  }
  assert_ok(MILL_ALLOC(size, &used));
  memcpy(used, value, size * sizeof *used);
  assert_ok(mill_spline_grid_fit(n_axis, n_node, node, REF_N_OUT, used, &grid));
  assert_int_equal(grid.n_axis, n_axis);
  assert_int_equal(grid.n_out, REF_N_OUT);
  double largest = 0;
  for (size_t i = 0; i < size; i++) {
    assert_close((double)grid.coef[i], used[i], 6e-8 * fabs(used[i]));
    largest = fmax(largest, fabs(used[i]));
  }
  for (int p = 0; p < REF_N_POINT; p++) {
    const double *x = point + p * n_axis;
    double h[REF_N_OUT], growth = 1;
    mill_spline_grid_eval(&grid, x, h);
    /* float32 coefficients, 6e-8 of the largest; beyond the grid the weights are no longer
     * 0..1, by up to the slope of a basis function, 30 intervals of the narrowest node a span */
    for (int l = 0; l < n_axis; l++)
      growth *= 1 + 60 * fmax(0, fmax(node[l][0] - x[l], x[l] - node[l][0] - span[l]) / span[l]);
    for (int k = 0; k < REF_N_OUT; k++) {
      assert_close(h[k], result[p * REF_N_OUT + k], 1e-7 * largest * growth);
      worst = fmax(worst, fabs(h[k] - result[p * REF_N_OUT + k]) / growth);
    }
  }
  printf("%d labels: largest difference from SciPy %.2g (coefficients up to %.3g)\n", n_axis, worst,
         largest);
  mill_free(used);
  mill_spline_grid_clear(&grid);
}

/* Linear interpolation against SciPy's, and its values at the nodes. */
static void compare_linear(int n_axis, const double *const *node, const int *n_node,
                           const double *value, const double *point, const double *result)
{
  mill_spline_grid grid;
  double h[REF_N_OUT];
  size_t n_point = 1;
  assert_ok(mill_spline_grid_linear(n_axis, n_node, node, REF_N_OUT, value, &grid));
  for (int l = 0; l < n_axis; l++)
    n_point *= (size_t)n_node[l];
  for (int p = 0; p < REF_N_POINT; p++) {
    mill_spline_grid_eval(&grid, point + p * n_axis, h);
    for (int k = 0; k < REF_N_OUT; k++) {
      const double expected = result[p * REF_N_OUT + k];
      /* the values are exact in float32; sums of 16 terms, of order 100 beyond the grid */
      assert_close(h[k], expected, 1e-13 * (1 + fabs(expected)));
    }
  }
  for (size_t p = 0; p < n_point; p++) {
    double x[MILL_MAX_GRID_AXIS];
    size_t rest = p;
    for (int l = n_axis - 1; l >= 0; l--) {
      x[l] = node[l][rest % (size_t)n_node[l]];
      rest /= (size_t)n_node[l];
    }
    mill_spline_grid_eval(&grid, x, h);
    for (int k = 0; k < REF_N_OUT; k++)
      assert_true(h[k] == value[p * REF_N_OUT + (size_t)k]);
  }
  mill_spline_grid_clear(&grid);
}

MILL_TEST(grids_match_scipy)
{
  static const struct {
    int n_axis, n_node[5];
    const double *node[5], *value, *point, *cubic, *linear;
  } c[] = {REF_CASES};
  for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
    compare_scipy(c[i].n_axis, c[i].node, c[i].n_node, c[i].value, c[i].point, c[i].cubic);
    compare_linear(c[i].n_axis, c[i].node, c[i].n_node, c[i].value, c[i].point, c[i].linear);
  }
}

/* More right-hand sides than are solved together, on uneven nodes: the values come back. */
MILL_TEST(fit_passes_through_its_values)
{
  enum { N0 = 5, N1 = 9, N_OUT = 700 };
  static const double node0[N0] = {3.5, 3.52, 3.6, 3.8, 3.81},
                      node1[N1] = {-4, -3, -2.9, -1, 0, 0.1, 0.2, 1, 5};
  const double *const node[] = {node0, node1};
  const int n_node[] = {N0, N1};
  uint64_t random = SEED;
  double *value = NULL, *used = NULL, h[N_OUT];
  mill_spline_grid grid;
  assert_ok(MILL_ALLOC(N0 * N1 * N_OUT, &value));
  assert_ok(MILL_ALLOC(N0 * N1 * N_OUT, &used));
  for (int i = 0; i < N0 * N1 * N_OUT; i++)
    used[i] = value[i] = test_library_random(&random);
  assert_ok(mill_spline_grid_fit(2, n_node, node, N_OUT, used, &grid));
  double largest = 0;
  for (int i = 0; i < N0 * N1 * N_OUT; i++)
    largest = fmax(largest, fabs(used[i]));
  for (int i = 0; i < N0; i++)
    for (int j = 0; j < N1; j++) {
      const double x[2] = {node0[i], node1[j]};
      mill_spline_grid_eval(&grid, x, h);
      for (int k = 0; k < N_OUT; k++) /* float32 coefficients, weights that add up to 1 */
        assert_close(h[k], value[(i * N1 + j) * N_OUT + k], 6e-8 * largest);
    }
  mill_free(value);
  mill_free(used);
  mill_spline_grid_clear(&grid);
}

/* --- a library's emulator --- */

MILL_TEST(emulator_of_a_grid_library)
{
  static mill_library lib;
  uint64_t random = SEED;
  memset(&lib, 0, sizeof lib);
  assert_ok(test_library_make(4, 2, 3, &lib));
  assert_ok(test_library_to_grid(&lib));
  for (int a = 0; a < lib.n_arm; a++) {
    const mill_arm *arm = &lib.arm[a];
    const mill_emulator *net = &arm->emulator;
    for (int trial = 0; trial < 20; trial++) {
      double x[MILL_MAX_LABEL], label[MILL_MAX_LABEL], h[MILL_MAX_WIDTH], flux[1024];
      for (int l = 0; l < lib.n_label; l++) {
        x[l] = 1.6 * test_library_random(&random);
        label[l] = mill_label_unmap(&lib.label[l], x[l]);
      }
      assert_ok(mill_emulator_eval(&lib, a, label, flux));
      ref_spline_grid(&net->grid, x, -1, h);
      for (int i = 0; i < arm->n_pix; i++) {
        double y = (double)net->bias[0][i];
        for (int k = 0; k < net->grid.n_out; k++)
          y += (double)net->weight[0][i * net->grid.n_out + k] * h[k];
        /* mapping a label there and back, 1e-15, and sums of 256 terms */
        assert_close(flux[i] / exp(y), 1, 1e-12);
      }
    }
  }
  mill_library_clear(&lib);
  assert_null(lib.arm[0].emulator.grid.coef);
}

/* --- refusals --- */

static void refused(int n_axis, const int *n_node, const double *const *node, int n_out,
                    double *value, const char *text)
{
  mill_spline_grid grid;
  memset(&grid, 0x5a, sizeof grid);
  mill_error_clear();
  assert_fails(mill_spline_grid_fit(n_axis, n_node, node, n_out, value, &grid), MILL_ERR_RANGE,
               text);
  assert_null(grid.coef);
  assert_null(grid.knot[0]);
  assert_int_equal(grid.n_axis, 0);
}

MILL_TEST(fit_refuses)
{
  double good[5] = {0, 1, 2, 3, 4}, bad[5] = {0, 1, 1, 3, 4}, value[25] = {0};
  const double *const node[] = {good, good, good, good, good, good, good};
  const double *const broken[] = {good, bad};
  const int n_node[] = {5, 5, 5, 5, 5, 5, 5}, few[] = {5, 3}, many[] = {5, 257};
  const int huge[] = {256, 256, 256, 256, 256, 256};
  refused(0, n_node, node, 1, value, "labels of a grid: expected 1 to 6, got 0");
  refused(7, n_node, node, 1, value, "labels of a grid: expected 1 to 6, got 7");
  refused(2, n_node, node, 0, value, "components of a grid: expected 1 to 1024, got 0");
  refused(2, n_node, node, 1025, value, "expected 1 to 1024, got 1025");
  refused(2, few, node, 1, value, "axis 1 of a grid has 3 nodes");
  refused(2, many, node, 1, value, "axis 1 of a grid has 257 nodes");
  refused(2, n_node, broken, 1, value, "node 2 of axis 1");
  bad[2] = NAN;
  refused(2, n_node, broken, 1, value, "node 2 of axis 1");
  bad[2] = 2;
  bad[4] = INFINITY;
  refused(2, n_node, broken, 1, value, "node 4 of axis 1");
  static double long_axis[256];
  for (int i = 0; i < 256; i++)
    long_axis[i] = i;
  const double *const wide[] = {long_axis, long_axis, long_axis, long_axis, long_axis, long_axis};
  refused(6, huge, wide, 1, value, "use fewer nodes");
  value[7] = NAN;
  refused(2, n_node, node, 1, value, "must be finite");
  memset(value, 0, sizeof value);
  value[7] = 1e39;
  refused(2, n_node, node, 1, value, "within float32");
}

int main(void)
{
  printf("seed %d\n", SEED);
  return MILL_RUN_TESTS(NULL, NULL);
}
