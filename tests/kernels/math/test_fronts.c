/* SPDX-License-Identifier: BSD-3-Clause */
/* The fronts of emulators against their definitions: splines over a grid of labels, radial
 * functions around scattered labels. */
#include "tests/mill_test.h"

#include "kernels/math/spline_grid.h"
#include "tests/emulator_reference.h"
#include "tests/test_library.h"

enum { SEED = 6021, MAX_NODE = 9, MAX_OUT = 130 };

static uint64_t seed_state;
static mill_block block;

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
  const double middle = knot[order - 1 + (n_node - order + 1) / 2];
  const double place[] = {low, high, low - 0.7, high + 1.3, middle};
  return kind < 5 ? place[kind]
                  : 0.5 * (low + high) + 0.499 * (high - low) * test_library_random(&seed_state);
}

static void make_rbf(int n_axis, int n_center, int degree, int n_out, mill_rbf *rbf)
{
  memset(rbf, 0, sizeof *rbf);
  rbf->n_axis = n_axis;
  rbf->n_center = n_center;
  rbf->degree = degree;
  rbf->n_poly = mill_rbf_n_poly(n_axis, degree);
  rbf->n_out = n_out;
  const int n_coef = (n_center + rbf->n_poly) * n_out;
  assert_int_equal(MILL_ALLOC(n_center * n_axis, &rbf->center), MILL_OK);
  assert_int_equal(MILL_ALLOC(n_coef, &rbf->coef), MILL_OK);
  for (int l = 0; l < n_axis; l++)
    rbf->length[l] = 1 + 0.5 * test_library_random(&seed_state);
  for (int i = 0; i < n_center * n_axis; i++)
    rbf->center[i] = 2 * test_library_random(&seed_state);
  for (int i = 0; i < n_coef; i++)
    rbf->coef[i] = (float)test_library_random(&seed_state);
}

MILL_TEST(basis_matches_the_recurrence)
{
  seed_state = SEED;
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
        /* A sum of a few terms (each 1 or a slope at most) is off by some 1e-16 of the terms. */
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

MILL_TEST(monomials_are_all_there_in_order)
{
  for (int n_axis = 1; n_axis <= MILL_MAX_GRID_AXIS; n_axis++)
    for (int degree = 0; degree <= MILL_MAX_RBF_DEGREE; degree++) {
      int expected[84][MILL_MAX_GRID_AXIS], exponent[MILL_MAX_GRID_AXIS] = {0};
      const int n = ref_monomials(n_axis, degree, expected);
      assert_int_equal(mill_rbf_n_poly(n_axis, degree), n);
      for (int i = 0; i < n; i++) {
        assert_memory_equal(exponent, expected[i], (size_t)n_axis * sizeof *exponent);
        mill_rbf_next_monomial(n_axis, exponent);
      }
    }
  assert_int_equal(mill_rbf_n_poly(3, 2), 10); /* (5 choose 2) */
}

/** Either of them. */
typedef struct front {
  mill_spline_grid *grid;
  mill_rbf *rbf;
} front;

static void sums(const front *f, int n_tangent, const double *x, int x_pitch, double *out,
                 int pitch)
{
  if (f->grid)
    mill_block_spline_grid(&block, f->grid, n_tangent, x, x_pitch, out, pitch);
  else
    mill_block_rbf(&block, f->rbf, n_tangent, x, x_pitch, out, pitch);
}

/** Compare value and derivatives at place [n_axis] with the reference's.  rounding: tolerance; for
 *  a grid it is in units of the largest expected output (at least 1). */
static void compare(const front *f, int n_axis, int n_out, const double *place, double rounding)
{
  enum { PITCH = MAX_OUT + 3 };
  double x[1 + MILL_MAX_GRID_AXIS][MILL_MAX_LABEL], out[1 + MILL_MAX_GRID_AXIS][PITCH];
  double alone[PITCH], expected[PITCH];
  memset(x, 0, sizeof x);
  memcpy(x[0], place, (size_t)n_axis * sizeof *place);
  for (int l = 0; l < n_axis; l++)
    x[1 + l][l] = 0.3 + l; /* as the slope of a mapping */
  for (int t = 0; t <= n_axis; t++)
    for (int k = 0; k < PITCH; k++)
      out[t][k] = alone[k] = -77;
  sums(f, n_axis, x[0], MILL_MAX_LABEL, out[0], PITCH);
  sums(f, 0, x[0], MILL_MAX_LABEL, alone, PITCH);
  for (int t = 0; t <= n_axis; t++) {
    const double factor = t > 0 ? x[t][t - 1] : 1;
    double size = 1;
    if (f->grid)
      ref_spline_grid(f->grid, x[0], t - 1, expected);
    else
      ref_rbf(f->rbf, x[0], t - 1, expected);
    for (int k = 0; k < n_out && f->grid; k++)
      size = fmax(size, fabs(expected[k]) * factor);
    for (int k = 0; k < n_out; k++) {
      assert_close(out[t][k], factor * expected[k], rounding * size);
      if (t == 0)
        assert_true(alone[k] == out[0][k]); /* the value has the same bits without tangents */
    }
    assert_close(out[t][n_out], -77, 0); /* nothing written past the end */
  }
  assert_close(alone[n_out], -77, 0);
}

static void compare_grid(int n_axis, int n_out, int kind, int linear)
{
  mill_spline_grid grid;
  double x[MILL_MAX_GRID_AXIS];
  make_grid(n_axis, n_out, linear, &grid);
  for (int l = 0; l < n_axis; l++)
    x[l] = make_place(grid.n_node[l], mill_spline_grid_order(&grid), grid.knot[l],
                      kind < 5 ? kind : (kind * 7 + l) % 23);
  /* float64 sums of up to 4096 terms, which far beyond the ends cancel */
  compare(&(front){.grid = &grid}, n_axis, n_out, x, 1e-11);
  mill_spline_grid_clear(&grid);
  assert_null(grid.coef);
}

/* Compare at one place x.  where 0: anywhere; 1: on a center; 2: far outside; 3: at the origin. */
static void compare_rbf(int n_axis, int n_center, int degree, int n_out, int where)
{
  mill_rbf rbf;
  double x[MILL_MAX_GRID_AXIS];
  make_rbf(n_axis, n_center, degree, n_out, &rbf);
  for (int l = 0; l < n_axis; l++) {
    const double random = 2 * test_library_random(&seed_state);
    x[l] = where == 1 ? rbf.center[l] : (where == 3 ? 0 : (where == 2 ? 9 + random : random));
  }
  /* sums of n_center terms up to the distance's cube */
  const double size = (where == 2 ? 1e5 : 500) * (n_center + rbf.n_poly);
  compare(&(front){.rbf = &rbf}, n_axis, n_out, x, 1e-14 * size);
  mill_rbf_clear(&rbf);
  assert_null(rbf.coef);
  assert_null(rbf.center);
}

MILL_TEST(sums_match_the_definition)
{
  seed_state = SEED;
  /* around a chunk and a warp */
  static const int n_out[] = {1, 15, 16, 31, 33, 63, 64, 65, 128, 130};
  for (int i = 0; i < (int)(sizeof n_out / sizeof *n_out); i++) {
    for (int n_axis = 1; n_axis <= 4; n_axis++)
      for (int kind = 0; kind < 8; kind++)
        for (int linear = 0; linear < 2; linear++)
          compare_grid(n_axis, n_out[i], kind, linear);
    for (int n_axis = 1; n_axis <= MILL_MAX_GRID_AXIS; n_axis++)
      for (int where = 0; where < 4; where++)
        compare_rbf(n_axis, 1 + 7 * i, i % 4, n_out[i], where);
  }
  for (int kind = 3; kind < 7; kind++)
    for (int linear = 0; linear < 2; linear++) {
      compare_grid(5, 7, kind, linear);
      compare_grid(MILL_MAX_GRID_AXIS, 5, kind, linear);
    }
}

/* NaN labels give NaN rows and touch no memory that is not theirs. */
MILL_TEST(sums_survive_nan)
{
  mill_spline_grid grid;
  mill_rbf rbf;
  const double x[4][3] = {{0.3, NAN, 1e9}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
  double out[4][8];
  seed_state = SEED;
  for (int kind = 0; kind < 3; kind++) { /* cubic, linear, radial */
    if (kind < 2)
      make_grid(3, 8, kind, &grid);
    else
      make_rbf(3, 11, 2, 8, &rbf);
    sums(kind < 2 ? &(front){.grid = &grid} : &(front){.rbf = &rbf}, 3, x[0], 3, out[0], 8);
    for (int k = 0; k < 8; k++)
      assert_true(isnan(out[0][k]));
    if (kind < 2)
      mill_spline_grid_clear(&grid);
    else
      mill_rbf_clear(&rbf);
  }
}

MILL_SEEDED_TEST_MAIN(SEED, NULL, NULL)
