/* Gridded potentials: slopes against derivatives of SciPy's splines (1e-10 of the largest: both are
 * float64), and evolutions in them. */
#include "tests/kernels/particles/evolution.h"

#include "kernels/math/block.h"
#include "kernels/particles/potential.h"
#include "tests/reference/particles.h"

enum { N_AT = 12 };

static mill_particle_field field_of(int n_dim, int n_time, const int *n_node)
{
  mill_particle_field f;
  memset(&f, 0, sizeof f);
  f.n_dim = n_dim;
  f.n_time = n_time;
  for (int a = 0; a < MILL_PARTICLE_DIM; a++)
    f.n_node[a] = a < n_dim ? n_node[a] : 1;
  return f;
}

static double *fit(mill_particle_field *f, const double *value)
{
  double *coef = calloc(mill_particle_n_coef(f), sizeof *coef);
  assert_non_null(coef);
  if (mill_particle_field_fit(f, value, coef) != MILL_OK)
    fail_msg("%s", mill_error_message());
  f->coef = coef;
  return coef;
}

static void slopes(const mill_particle_field *f, double time, int n, const double *at, int stride,
                   double out[][MILL_CHUNK])
{
  mill_particle_problem p = {.potential = MILL_GRIDDED, .field = f};
  double x[MILL_PARTICLE_DIM][MILL_CHUNK];
  for (int i = 0; i < n; i++)
    for (int a = 0; a < f->n_dim; a++)
      x[a][i] = at[i * stride + a];
  mill_particle_slope(&p, f->n_dim, time, n, x, out);
}

static void test_slopes_are_scipys(void **state)
{
  (void)state;
  static const int n_node[] = {7, 5, 6};
  static const double low[] = {-2, 0, -1}, high[] = {2, 3, 1};
  static const struct {
    int n_dim, periodic;
    const double *slope;
  } known[] = {{1, 0, ref_slope_1}, {2, 0, ref_slope_2}, {3, 0, ref_slope_3}, {3, 1, ref_slope_3p}};
  for (int k = 0; k < 4; k++) {
    const int n_dim = known[k].n_dim;
    double value[7 * 5 * 6], slope[MILL_PARTICLE_DIM][MILL_CHUNK];
    mill_particle_field f = field_of(n_dim, 1, n_node);
    int n = 0;
    for (int i = 0; i < 7 * 5 * 6; i++)
      if ((n_dim > 2 || i % 6 == 0) && (n_dim > 1 || i / 6 % 5 == 0))
        value[n++] = ref_field_value[i];
    for (int a = 0; a < n_dim; a++) {
      f.low[a] = low[a];
      f.spacing[a] = (high[a] - low[a]) / (n_node[a] - 1);
    }
    f.periodic[0] = known[k].periodic;
    double *coef = fit(&f, value);
    slopes(&f, 0, N_AT, ref_field_at, 3, slope);
    for (int i = 0; i < N_AT; i++)
      for (int a = 0; a < n_dim; a++)
        assert_close(slope[a][i], known[k].slope[i * n_dim + a], 1e-9);
    free(coef);
  }
}

/* Beyond the grid the slope is that of the edge; between two times it is linear. */
static void test_edges_and_times(void **state)
{
  (void)state;
  static const int n_node[] = {9};
  static const double time[] = {1, 3};
  double value[18], slope[MILL_PARTICLE_DIM][MILL_CHUNK];
  static const double at[] = {-9, -1, 1, 9, NAN};
  mill_particle_field f = field_of(1, 2, n_node);
  f.low[0] = -1;
  f.spacing[0] = 0.25;
  f.time = time;
  for (int i = 0; i < 9; i++) {
    const double x = -1 + 0.25 * i;
    value[i] = x * x * x;
    value[9 + i] = 5 * x;
  }
  double *coef = fit(&f, value);
  static const struct {
    double time, edge;
  } known[] = {{0, 3}, {1, 3}, {1.5, 3.5}, {3, 5}, {7, 5}};
  for (int k = 0; k < 5; k++) {
    slopes(&f, known[k].time, 5, at, 1, slope);
    for (int i = 0; i < 4; i++)
      assert_close(slope[0][i], known[k].edge, 1e-12);
  }
  free(coef);
}

/* Splines are parabolas where the values are: the same particles as in the named potential. */
static void test_parabola_is_the_named_one(void **state)
{
  (void)state;
  static const int n_node[] = {33, 33};
  static double value[33 * 33];
  evolution named, gridded;
  evolution_init(&named, 2, 5000, 20, 0.05);
  named.problem[0].potential = MILL_HARMONIC;
  named.problem[0].rate[0] = 2;
  named.problem[0].rate[1] = 1;
  named.problem[0].centre[0] = 0.5;
  named.s.scheme = MILL_HEUN;
  gridded = named;
  mill_particle_field f = field_of(2, 1, n_node);
  for (int a = 0; a < 2; a++) {
    f.low[a] = -8;
    f.spacing[a] = 0.5;
  }
  for (int i = 0; i < 33; i++)
    for (int j = 0; j < 33; j++)
      value[33 * i + j] = pow(-8.5 + 0.5 * i, 2) + 0.5 * pow(-8 + 0.5 * j, 2);
  double *coef = fit(&f, value);
  gridded.problem[0].potential = MILL_GRIDDED;
  gridded.problem[0].field = &f;
  evolution_run(&named);
  evolution_run(&gridded);
  for (int i = 0; i < 10000; i++)
    assert_close(gridded.result[0].position[i], named.result[0].position[i], 1e-11);
  /* and as steep for the check of the step */
  gridded.s.step = 0.6;
  assert_int_equal(mill_particle_check_problem(&gridded.s, &gridded.problem[0]), MILL_ERR_CONFIG);
  assert_non_null(strstr(mill_error_message(), "give a step of 0.5 or less"));
  evolution_end(&named);
  evolution_end(&gridded);
  free(coef);
}

static void test_values_that_are_no_numbers_are_named(void **state)
{
  (void)state;
  static const int n_node[] = {4, 5};
  double value[20] = {0}, coef[42];
  mill_particle_field f = field_of(2, 1, n_node);
  f.spacing[0] = f.spacing[1] = 1;
  value[13] = NAN;
  assert_int_equal(mill_particle_field_fit(&f, value, coef), MILL_ERR_CONFIG);
  assert_non_null(strstr(mill_error_message(), "value 13 of the potential"));
  value[13] = 0;
  f.n_node[0] = 3;
  assert_int_equal(mill_particle_field_fit(&f, value, coef), MILL_ERR_CONFIG);
  assert_non_null(strstr(mill_error_message(), "3 points along axis 1"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_slopes_are_scipys),
      cmocka_unit_test(test_edges_and_times),
      cmocka_unit_test(test_parabola_is_the_named_one),
      cmocka_unit_test(test_values_that_are_no_numbers_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
