/* The front of an emulator of scattered labels against its definition. */
#include "tests/mill_test.h"

#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/math/rbf.h"
#include "tests/rbf_reference.h"
#include "tests/test_library.h"

enum { SEED = 733, MAX_OUT = 130 };

static uint64_t seed_state;

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

static void test_monomials_are_all_there_in_order(void **state)
{
  (void)state;
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

/* where: 0 anywhere, 1 on a center, 2 far outside, 3 at the origin */
static void compare(int n_axis, int n_center, int degree, int n_out, int where)
{
  enum { PITCH = MAX_OUT + 3 };
  mill_rbf rbf;
  mill_block block;
  double x[1 + MILL_MAX_GRID_AXIS][MILL_MAX_LABEL], out[1 + MILL_MAX_GRID_AXIS][PITCH];
  double alone[PITCH], expected[PITCH];
  memset(&block, 0, sizeof block);
  memset(x, 0, sizeof x);
  make_rbf(n_axis, n_center, degree, n_out, &rbf);
  for (int l = 0; l < n_axis; l++) {
    const double random = 2 * test_library_random(&seed_state);
    x[0][l] = where == 1 ? rbf.center[l] : (where == 3 ? 0 : (where == 2 ? 9 + random : random));
    x[1 + l][l] = 0.3 + l; /* as the slope of a mapping */
  }
  for (int t = 0; t <= n_axis; t++)
    for (int k = 0; k < PITCH; k++)
      out[t][k] = alone[k] = -77;
  mill_block_rbf(&block, &rbf, n_axis, x[0], MILL_MAX_LABEL, out[0], PITCH);
  mill_block_rbf(&block, &rbf, 0, x[0], MILL_MAX_LABEL, alone, PITCH);
  for (int t = 0; t <= n_axis; t++) {
    ref_rbf(&rbf, x[0], t - 1, expected);
    const double factor = t > 0 ? x[t][t - 1] : 1;
    /* sums of n_center terms up to the distance's cube */
    const double size = (where == 2 ? 1e5 : 500) * (n_center + rbf.n_poly);
    for (int k = 0; k < n_out; k++) {
      assert_close(out[t][k], factor * expected[k], 1e-14 * size);
      if (t == 0)
        assert_true(alone[k] == out[0][k]); /* the value has the same bits without tangents */
    }
    assert_close(out[t][n_out], -77, 0); /* nothing written past the end */
  }
  assert_close(alone[n_out], -77, 0);
  mill_rbf_clear(&rbf);
  assert_null(rbf.coef);
  assert_null(rbf.center);
}

static void test_sums_match_the_definition(void **state)
{
  (void)state;
  /* around a chunk and a warp */
  static const int n_out[] = {1, 15, 16, 31, 33, 63, 64, 65, 128, 130};
  for (int n_axis = 1; n_axis <= MILL_MAX_GRID_AXIS; n_axis++)
    for (size_t i = 0; i < sizeof n_out / sizeof *n_out; i++)
      for (int where = 0; where < 4; where++)
        compare(n_axis, 1 + 7 * (int)i, (int)i % 4, n_out[i], where);
}

/* Second derivatives exist and are continuous on a center too: one-sided differences of the
 * slope agree. */
static void test_sums_are_smooth_on_a_center(void **state)
{
  (void)state;
  enum { N_OUT = 3 };
  mill_rbf rbf;
  mill_block block;
  double x[3][2] = {{0}, {1, 0}, {0, 1}}, out[3][3][N_OUT];
  const double step = 1e-5;
  memset(&block, 0, sizeof block);
  make_rbf(2, 9, 2, N_OUT, &rbf);
  for (int i = 0; i < 3; i++) {
    x[0][0] = rbf.center[0] + (i - 1) * step;
    x[0][1] = rbf.center[1];
    mill_block_rbf(&block, &rbf, 2, x[0], 2, out[i][0], N_OUT);
  }
  for (int k = 0; k < N_OUT; k++)
    /* the third derivative, some tens, times the step */
    assert_close((out[2][1][k] - out[1][1][k]) / step, (out[1][1][k] - out[0][1][k]) / step, 1e-3);
  mill_rbf_clear(&rbf);
}

/* NaN labels give NaN rows and touch no memory that is not theirs. */
static void test_sums_survive_nan(void **state)
{
  (void)state;
  mill_rbf rbf;
  mill_block block;
  double x[4][3] = {{0.3, NAN, 1e9}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}}, out[4][8];
  memset(&block, 0, sizeof block);
  make_rbf(3, 11, 2, 8, &rbf);
  mill_block_rbf(&block, &rbf, 3, x[0], 3, out[0], 8);
  for (int k = 0; k < 8; k++)
    assert_true(isnan(out[0][k]));
  mill_rbf_clear(&rbf);
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
      cmocka_unit_test(test_monomials_are_all_there_in_order),
      cmocka_unit_test_setup(test_sums_match_the_definition, seed),
      cmocka_unit_test_setup(test_sums_are_smooth_on_a_center, seed),
      cmocka_unit_test_setup(test_sums_survive_nan, seed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
