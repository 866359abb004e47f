/* Maps against sums over all rows, one by one in float64, for every instruction set that runs here.
 * 1e-11: rounding, and the products along a line of cells.  The other forms keep the bound that
 * they state. */
#include "tests/mill_test.h"

#include <string.h>

#include "kernels/base/error.h"
#include "kernels/particles/map.h"

enum { N_ROW = 200, NY = 18, NX = 37, N_CELL = NX * NY };

static double row[2][N_ROW], scale[N_ROW];

/* The same rows in any order of calls: places that fill a plane, or a sphere with its poles. */
static mill_map_plan make_plan(int is_sphere, int n_column)
{
  mill_map_plan p = {.is_sphere = is_sphere, .n_cell = {NY, n_column}, .n_thread = 2};
  for (int i = 0; i < N_ROW; i++) {
    const double u = fmod(0.5 + 0.7548776662466927 * i, 1.0);
    const double v = fmod(0.5 + 0.5698402909980532 * i, 1.0);
    row[0][i] = is_sphere ? asin(2 * u - 1) : 4 * u - 2;
    row[1][i] = is_sphere ? 2 * M_PI * v : 10 * v * v;
    scale[i] = 0.5 + u;
  }
  for (int a = 0; a < 2; a++) {
    const double half = is_sphere ? 0.5 * M_PI / NY : 0.0;
    p.low[a] = is_sphere ? (a == 0 ? half - 0.5 * M_PI : 0.1) : -1.5;
    p.high[a] = is_sphere ? (a == 0 ? 0.5 * M_PI - half : 0.1 + 2 * M_PI * (NX - 1) / NX) : 6.0;
    p.covariance[a][a] = is_sphere ? 0.04 : 0.09;
  }
  return p;
}

static double kernel(const mill_map_plan *p, double y, double x, int i, double local)
{
  const double h2 = p->covariance[0][0] * local * local;
  if (!p->is_sphere)
    return exp(-0.5 * (pow(y - row[0][i], 2) + pow(x - row[1][i], 2)) / h2) / (2 * M_PI * h2);
  const double cosine = sin(y) * sin(row[0][i]) + cos(y) * cos(row[0][i]) * cos(x - row[1][i]);
  return exp((cosine - 1) / h2) / (2 * M_PI * h2 * (1 - exp(-2 / h2)));
}

static void sum(const mill_map_plan *p, int is_local, double *out)
{
  for (int c = 0; c < p->n_cell[0] * p->n_cell[1]; c++) {
    const int i = c / p->n_cell[1], j = c % p->n_cell[1];
    const double y = p->low[0] + i * (p->high[0] - p->low[0]) / (p->n_cell[0] - 1);
    const double x = p->low[1] + j * (p->high[1] - p->low[1]) / (p->n_cell[1] - 1);
    out[c] = 0;
    for (int k = 0; k < N_ROW; k++)
      out[c] += kernel(p, y, x, k, is_local ? scale[k] : 1) / N_ROW;
  }
}

/* In blocks of different sizes; the bound. */
static double map_of(const mill_map_ops *ops, const mill_map_plan *p, int is_local, double *out)
{
  mill_map *map;
  double bound;
  assert_int_equal(ops->open(p, &map), MILL_OK);
  for (int first = 0, n = 1; first < N_ROW; first += n, n = 2 * n + 1) {
    n = n < N_ROW - first ? n : N_ROW - first;
    const double *const x[2] = {row[0] + first, row[1] + first};
    ops->add(map, n, x, is_local ? scale + first : NULL);
  }
  ops->total(map, out, &bound);
  ops->close(map);
  return bound;
}

static void check(const mill_map_ops *ops, int is_sphere, int n_column)
{
  static double truth[N_CELL], found[N_CELL];
  mill_map_plan p = make_plan(is_sphere, n_column);
  assert_true(mill_map_nodes(&p));
  for (int is_local = 0; is_local < 2; is_local++) {
    double peak = 0;
    sum(&p, is_local, truth);
    for (int c = 0; c < NY * n_column; c++)
      peak = fmax(peak, truth[c]);
    for (p.form = is_local ? MILL_MAP_CUT : MILL_MAP_EXACT; p.form <= MILL_MAP_CUT; p.form++) {
      double worst = 0;
      const double bound = map_of(ops, &p, is_local, found);
      for (int c = 0; c < NY * n_column; c++)
        worst = fmax(worst, fabs(found[c] - truth[c]));
      assert_true(worst <= bound + 1e-11 * peak);
      assert_true(bound < 1e-2 * peak);
      assert_true((bound > 0) == (p.form != MILL_MAP_EXACT));
      if (p.form == MILL_MAP_NODES)
        assert_true(worst > 1e-5 * bound); /* else it would say nothing */
    }
  }
}

static void test_forms_against_sums(void **state)
{
  (void)state;
  static const char *const isa[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4", "generic"};
  int n = 0;
  for (int k = 0; k < 4; k++) {
    const mill_map_ops *ops = mill_map_ops_cpu(isa[k]);
    if (!ops)
      continue;
    n++;
    check(ops, 0, NX);
    check(ops, 1, NX);
    check(ops, 1, NX - 2); /* columns that divide no turn */
  }
  assert_true(n > 0);
}

/* A map of the whole sphere, looked up at rows: the kernel between its cells to 2e-3 of the peak,
 * its cells being half a width and the interpolation cubic. */
static void test_map_is_looked_up(void **state)
{
  (void)state;
  enum { N0 = 60, N1 = 120 };
  static double density[N0 * N1], found[N_ROW];
  mill_map_plan p = make_plan(1, NX);
  p.n_cell[0] = N0;
  p.n_cell[1] = N1;
  p.low[0] = M_PI * (0.5 / N0 - 0.5);
  p.high[0] = -p.low[0];
  p.low[1] = 0;
  p.high[1] = 2 * M_PI * (1 - 1.0 / N1);
  p.covariance[0][0] = p.covariance[1][1] = 0.01;
  map_of(mill_map_ops_cpu(NULL), &p, 0, density);
  const double *const x[2] = {row[0], row[1]};
  mill_map_at(&p, density, N_ROW, x, found);
  for (int i = 0; i < N_ROW; i++) {
    double truth = 0;
    for (int k = 0; k < N_ROW; k++)
      truth += kernel(&p, row[0][i], row[1][i], k, 1) / N_ROW;
    assert_close(found[i], truth, 1e-2 * truth);
  }
}

static void test_no_kernel_is_refused(void **state)
{
  (void)state;
  mill_map *map;
  mill_map_plan p = make_plan(0, NX);
  p.covariance[0][1] = p.covariance[1][0] = 0.09;
  assert_int_equal(mill_map_ops_cpu(NULL)->open(&p, &map), MILL_ERR_RANGE);
  assert_null(map);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_forms_against_sums),
      cmocka_unit_test(test_map_is_looked_up),
      cmocka_unit_test(test_no_kernel_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
