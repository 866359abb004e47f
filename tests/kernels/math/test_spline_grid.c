/* The front of a grid emulator against splines by their definition. */
#include "tests/mill_test.h"

#include <string.h>

#include "kernels/math/spline_grid.h"
#include "tests/spline_reference.h"
#include "tests/test_library.h"
#include "kernels/base/memory.h"

enum { SEED = 6021, MAX_NODE = 9, MAX_OUT = 130 };

static uint64_t seed_state;

/** Uneven clamped knots of n functions over about [-2, 2]. */
static void make_knots(int n, int order, double *knot)
{
  double at = -2 + 0.2 * test_library_random(&seed_state);
  for (int i = 0; i < n + order; i++) {
    if (i >= order && i <= n)
      at += (4.0 + 3.6 * test_library_random(&seed_state)) / (n - order + 1);
    knot[i] = at;
  }
}

/** Random coefficients of order 1; cleared with mill_spline_grid_clear. */
static void make_grid(int n_axis, int n_out, int linear, mill_spline_grid *grid)
{
  size_t size = (size_t)n_out;
  memset(grid, 0, sizeof *grid);
  grid->n_axis = n_axis;
  grid->n_out = n_out;
  grid->linear = linear;
  const int order = mill_spline_grid_order(grid);
  for (int l = 0; l < n_axis; l++) {
    grid->n_node[l] = n_axis > 4 ? order + l % 2 : order + (3 * l + n_out) % 5;
    assert_int_equal(MILL_ALLOC(grid->n_node[l] + order, &grid->knot[l]), MILL_OK);
    make_knots(grid->n_node[l], order, grid->knot[l]);
    size *= (size_t)grid->n_node[l];
  }
  assert_int_equal(MILL_ALLOC(size, &grid->coef), MILL_OK);
  for (size_t i = 0; i < size; i++)
    grid->coef[i] = (float)test_library_random(&seed_state);
}

/** One place: inside, on a knot, at an end or beyond. */
static double make_place(int n_node, int order, const double *knot, int kind)
{
  const double low = knot[0], high = knot[n_node];
  switch (kind) {
  case 0:
    return low;
  case 1:
    return high;
  case 2:
    return low - 0.7;
  case 3:
    return high + 1.3;
  case 4:
    return knot[order - 1 + (n_node - order + 1) / 2];
  default:
    return 0.5 * (low + high) + 0.499 * (high - low) * test_library_random(&seed_state);
  }
}

/* --- basis --- */

static void test_basis_matches_the_recurrence(void **state)
{
  (void)state;
  double worst = 0;
  for (int n = 4; n <= MAX_NODE; n++)
    for (int trial = 0; trial < 200; trial++) {
      double knot[MAX_NODE + 4], weight[4], slope[4];
      make_knots(n, 4, knot);
      const double x = make_place(n, 4, knot, trial % 40);
      const int first = mill_spline_basis(n, knot, x, weight, slope);
      assert_in_range(first, 0, n - 4);
      double sum = 0, rise = 0, size = 1;
      for (int i = 0; i < 4; i++)
        size = fmax(size, fabs(slope[i]));
      for (int i = 0; i < n; i++) {
        double expected_slope;
        const double expected = ref_basis(n, knot, 3, i, x, &expected_slope);
        const int at = i - first;
        const double w = at >= 0 && at < 4 ? weight[at] : 0, s = at >= 0 && at < 4 ? slope[at] : 0;
        /* sums of a few terms of order 1 and of the slopes: some 1e-16 of them */
        assert_close(w, expected, 1e-14 * size);
        assert_close(s, expected_slope, 1e-14 * size);
        worst = fmax(worst, fabs(w - expected) / size);
        sum += w;
        rise += s;
      }
      assert_close(sum, 1, 1e-14 * size);
      assert_close(rise, 0, 1e-14 * size);
    }
  printf("largest difference %.2g\n", worst);
}

static void test_basis_survives_any_number(void **state)
{
  (void)state;
  static const double wild[] = {NAN, INFINITY, -INFINITY, 1e300, -1e300, 0};
  double knot[MAX_NODE + 4], weight[4], slope[4];
  make_knots(7, 4, knot);
  for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
    const int first = mill_spline_basis(7, knot, wild[i], weight, slope);
    assert_in_range(first, 0, 3);
    for (int k = 0; k < 4; k++) {
      if (isnan(wild[i]))
        assert_true(isnan(weight[k]));
      else if (isfinite(wild[i]))
        assert_true(isfinite(weight[k]) && isfinite(slope[k]));
    }
  }
}

/* Value, slope and curvature do not jump at a knot; beyond the ends the slope stays. */
static void test_basis_is_smooth(void **state)
{
  (void)state;
  const double step = 1e-6;
  for (int n = 5; n <= MAX_NODE; n++) {
    double knot[MAX_NODE + 4], coef[MAX_NODE];
    make_knots(n, 4, knot);
    for (int i = 0; i < n; i++)
      coef[i] = test_library_random(&seed_state);
    for (int k = 3; k <= n; k++) {
      double value[3], slope[3];
      for (int i = 0; i < 3; i++) {
        double w[4], d[4];
        const int first = mill_spline_basis(n, knot, knot[k] + (i - 1) * step, w, d);
        value[i] = slope[i] = 0;
        for (int j = 0; j < 4; j++) {
          value[i] += w[j] * coef[first + j];
          slope[i] += d[j] * coef[first + j];
        }
      }
      const double before = (slope[1] - slope[0]) / step, after = (slope[2] - slope[1]) / step;
      const double size = 1 + fabs(slope[1]) + fabs(before) + fabs(after);
      /* steps of 1e-6 times the next derivative; knots as near as 0.06 make that 1e3 sizes */
      assert_close(value[2] - value[1], step * slope[1], 1e-9 * size);
      assert_close(value[1] - value[0], step * slope[1], 1e-9 * size);
      assert_close(slope[2], slope[0], 1e-5 * size);
      if (k > 3 && k < n)
        assert_close(after, before, 2e-3 * size);
      else
        assert_close(k == 3 ? before : after, 0, 1e-8 * size);
    }
  }
}

/* --- sums over the grid --- */

static void compare(int n_axis, int n_out, int kind, int linear)
{
  enum { PITCH = MAX_OUT + 3 };
  mill_spline_grid grid;
  mill_block block;
  double x[1 + MILL_MAX_GRID_AXIS][MILL_MAX_LABEL], out[1 + MILL_MAX_GRID_AXIS][PITCH];
  double alone[PITCH], expected[PITCH];
  memset(&block, 0, sizeof block);
  memset(x, 0, sizeof x);
  make_grid(n_axis, n_out, linear, &grid);
  for (int l = 0; l < n_axis; l++) {
    x[0][l] = make_place(grid.n_node[l], mill_spline_grid_order(&grid), grid.knot[l],
                         kind < 5 ? kind : (kind * 7 + l) % 23);
    x[1 + l][l] = 0.3 + l; /* as the slope of a mapping */
  }
  for (int t = 0; t <= n_axis; t++)
    for (int k = 0; k < PITCH; k++)
      out[t][k] = alone[k] = -77;
  mill_block_spline_grid(&block, &grid, n_axis, x[0], MILL_MAX_LABEL, out[0], PITCH);
  mill_block_spline_grid(&block, &grid, 0, x[0], MILL_MAX_LABEL, alone, PITCH);
  for (int t = 0; t <= n_axis; t++) {
    ref_spline_grid(&grid, x[0], t - 1, expected);
    const double factor = t > 0 ? x[t][t - 1] : 1;
    double size = 1;
    for (int k = 0; k < n_out; k++)
      size = fmax(size, fabs(expected[k]) * factor);
    for (int k = 0; k < n_out; k++) {
      /* float64 sums of up to 4096 terms, which far beyond the ends cancel */
      assert_close(out[t][k], factor * expected[k], 1e-11 * size);
      if (t == 0)
        assert_true(alone[k] == out[0][k]); /* the value has the same bits without tangents */
    }
    assert_close(out[t][n_out], -77, 0); /* nothing written past the end */
  }
  assert_close(alone[n_out], -77, 0);
  mill_spline_grid_clear(&grid);
  assert_null(grid.coef);
}

static void test_sums_match_the_definition(void **state)
{
  (void)state;
  /* around a chunk and a warp */
  static const int n_out[] = {1, 15, 16, 31, 33, 63, 64, 65, 128, 130};
  for (int n_axis = 1; n_axis <= 4; n_axis++)
    for (size_t i = 0; i < sizeof n_out / sizeof *n_out; i++)
      for (int kind = 0; kind < 8; kind++)
        for (int linear = 0; linear < 2; linear++)
          compare(n_axis, n_out[i], kind, linear);
  for (int kind = 3; kind < 7; kind++)
    for (int linear = 0; linear < 2; linear++) {
      compare(5, 7, kind, linear);
      compare(MILL_MAX_GRID_AXIS, 5, kind, linear);
    }
}

/* NaN labels give NaN rows and touch no memory that is not theirs. */
static void test_sums_survive_nan(void **state)
{
  (void)state;
  mill_spline_grid grid;
  mill_block block;
  double x[4][3] = {{0.3, NAN, 1e9}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}}, out[4][8];
  memset(&block, 0, sizeof block);
  for (int linear = 0; linear < 2; linear++) {
    make_grid(3, 8, linear, &grid);
    mill_block_spline_grid(&block, &grid, 3, x[0], 3, out[0], 8);
    for (int k = 0; k < 8; k++)
      assert_true(isnan(out[0][k]));
    mill_spline_grid_clear(&grid);
  }
}

static int seed(void **state)
{
  (void)state;
  seed_state = SEED;
  return 0;
}

int main(void)
{
  printf("seed %d\n", SEED);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_basis_matches_the_recurrence, seed),
      cmocka_unit_test_setup(test_basis_survives_any_number, seed),
      cmocka_unit_test_setup(test_basis_is_smooth, seed),
      cmocka_unit_test_setup(test_sums_match_the_definition, seed),
      cmocka_unit_test_setup(test_sums_survive_nan, seed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
