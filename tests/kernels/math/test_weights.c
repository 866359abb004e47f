/* SPDX-License-Identifier: BSD-3-Clause */
/* Statistics of weights against NumPy (tests/reference/make_weights.py), and what has no value. */
#include "tests/mill_test.h"

#include <string.h>

#include "kernels/math/weights.h"

enum { MAX = 8192 };

static float ln_w[MAX], space[MAX];

static double uniform(uint64_t *state)
{
  uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/** Weights of Pareto's distribution with k = power. */
static void make(uint64_t seed, int n, double power)
{
  static double ln[MAX];
  double most = 0;
  for (int i = 0; i < n; i++)
    most = fmax(most, ln[i] = -power * log(1 - uniform(&seed)));
  for (int i = 0; i < n; i++)
    ln_w[i] = (float)(ln[i] - most);
}

MILL_TEST(statistics_are_those_of_numpy)
{
  static const struct {
    uint64_t seed;
    int n;
    double power, size, k, quantile[5];
  } set[] = {
      {1,
       1200,
       0.1,
       1186.96526115,
       0.0893307302853,
       {-0.615196746588, -0.600636863708, -0.554130077362, -0.449768894911, -0.267939312756}},
      {2,
       1200,
       0.5,
       638.73832566,
       0.500454831351,
       {-3.5218552351, -3.44203625679, -3.18011009693, -2.62190577507, -1.81391082108}},
      {3,
       5000,
       0.9,
       102.815062068,
       0.779417969134,
       {-7.62855104208, -7.49565965652, -7.02514457703, -6.02497049332, -4.46702634096}},
      {4,
       60,
       0.3,
       53.5263791571,
       0.406671261848,
       {-1.25844352245, -1.20755011559, -1.01085168123, -0.632652056217, -0.176434306055}}};
  static const double q[5] = {0.025, 0.16, 0.5, 0.84, 0.975};
  for (size_t i = 0; i < sizeof set / sizeof set[0]; i++) {
    const int n = set[i].n;
    make(set[i].seed, n, set[i].power);
    assert_close(mill_weights_size(n, ln_w, 1) / set[i].size, 1, 1e-10);
    /* excesses are float32 */
    assert_close(mill_weights_pareto(n, ln_w, space), set[i].k, 1e-5);
    mill_sort(n, ln_w);
    for (int k = 0; k < 5; k++)
      assert_close(mill_sorted_quantile(n, ln_w, q[k]), set[i].quantile[k], 1e-11);
  }
}

MILL_TEST(weights_that_say_nothing)
{
  for (int i = 0; i < 1000; i++)
    ln_w[i] = 0; /* all the same */
  assert_close(mill_weights_size(1000, ln_w, 1), 1000, 1e-9);
  assert_close(mill_weights_pareto(1000, ln_w, space), 0, 0);
  for (int i = 1; i < 1000; i++)
    ln_w[i] = -INFINITY; /* one has all */
  assert_close(mill_weights_size(1000, ln_w, 1), 1, 0);
  assert_true(isinf(mill_weights_pareto(1000, ln_w, space)));
  assert_true(isinf(mill_weights_pareto(20, ln_w, space)));
}

MILL_TEST(sorting)
{
  uint64_t seed = 9;
  for (int n = 0; n < 70; n++) {
    double sum = 0, sorted_sum = 0;
    for (int i = 0; i < n; i++)
      sum += (double)(space[i] = floorf((float)(20 * uniform(&seed)))); /* with repetitions */
    mill_sort(n, space);
    for (int i = 0; i < n; i++) {
      assert_true(i == 0 || space[i - 1] <= space[i]);
      sorted_sum += (double)space[i];
    }
    assert_close(sorted_sum, sum, 0);
  }
  space[0] = 3;
  assert_close(mill_sorted_quantile(1, space, 0.975), 3, 0);
}

MILL_TEST_MAIN(NULL, NULL)
