/* SPDX-License-Identifier: BSD-3-Clause */
/* Continuum functions against NumPy (tests/reference). */
#include "tests/mill_test.h"

#include "kernels/math/continuum.h"
#include "reference/blocks.h" /* made in the build folder by tests/reference/make_blocks.py */

static double x_of(int i)
{
  const double *w = ref_continuum_wave;
  return 2 * (w[i] - w[0]) / (w[REF_CONTINUUM_N - 1] - w[0]) - 1;
}

static void compare(int kind, int n, const double *expected)
{
  for (int k = 0; k < n; k++)
    for (int i = 0; i < REF_CONTINUUM_N; i++)
      /* values of size 1; a Gaussian's argument up to 100 loses as many roundings */
      assert_close(mill_continuum(kind, n, k, x_of(i)), expected[k * REF_CONTINUUM_N + i], 2e-14);
}

MILL_TEST(polynomials_and_gaussians_match_numpy)
{
  compare(MILL_CONT_RBF, 1, ref_continuum_rbf_1);
  compare(MILL_CONT_RBF, 3, ref_continuum_rbf_3);
  compare(MILL_CONT_RBF, 4, ref_continuum_rbf_4);
  compare(MILL_CONT_RBF, 10, ref_continuum_rbf_10);
}

MILL_TEST(chebyshev_matches_numpy)
{
  compare(MILL_CONT_CHEBYSHEV, 6, ref_continuum_chebyshev_6);
}

/* By width where that is more than npoly, within half the pixels and the most there are. */
MILL_TEST(number_of_functions)
{
  mill_fit_settings set = {.n_cont = 10};
  assert_int_equal(mill_continuum_count(&set, 3000, 3400.0), 10);
  set.n_cont_per_1000aa = 6.0;
  assert_int_equal(mill_continuum_count(&set, 3000, 3400.0), 21); /* 20.4 */
  assert_int_equal(mill_continuum_count(&set, 3000, 2000.0), 12);
  assert_int_equal(mill_continuum_count(&set, 3000, 500.0), 10);
  assert_int_equal(mill_continuum_count(&set, 3000, 5000.0), MILL_MAX_CONT);
  assert_int_equal(mill_continuum_count(&set, 3000, 1e12), MILL_MAX_CONT);
  assert_int_equal(mill_continuum_count(&set, 31, 3400.0), 15);
  assert_int_equal(mill_continuum_count(&set, 8, 3400.0), 10); /* the caller refuses it */
}

MILL_TEST_MAIN(NULL, NULL)
