/* SPDX-License-Identifier: BSD-3-Clause */
/* Statistics of weights against NumPy (tests/reference/make_weights.py), and what has no value. */
#include "tests/mill_test.h"

#include "kernels/math/weights.h"

enum { MAX = 8192 };

static mill_block block;
static float ln_w[MAX], tail[MILL_PARETO_TAIL];
static double like[MILL_PARETO_GRID];

static double pareto(int n)
{
  return mill_block_weights_pareto(&block, n, ln_w, tail, like);
}

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
    assert_close(mill_block_weights_size(&block, n, ln_w, 1) / set[i].size, 1, 1e-10);
    /* excesses are float32 */
    assert_close(pareto(n), set[i].k, 1e-5);
    double at[5];
    mill_block_quantiles(&block, n, ln_w, NULL, n, 5, q, at);
    for (int k = 0; k < 5; k++)
      assert_close(at[k], set[i].quantile[k], 1e-11);
  }
}

MILL_TEST(weights_that_say_nothing)
{
  for (int i = 0; i < 1000; i++)
    ln_w[i] = 0; /* all the same */
  assert_close(mill_block_weights_size(&block, 1000, ln_w, 1), 1000, 1e-9);
  assert_close(pareto(1000), 0, 0);
  for (int i = 1; i < 1000; i++)
    ln_w[i] = -INFINITY; /* one has all */
  assert_close(mill_block_weights_size(&block, 1000, ln_w, 1), 1, 0);
  assert_true(isinf(pareto(1000)));
  assert_true(isinf(pareto(20)));
}

/** Against a sorted list in which each value is there as often as it counts. */
MILL_TEST(values_are_those_of_a_sorted_list)
{
  enum { N = 70, MOST = 3 };
  static float x[N], count[N], all[N * MOST];
  uint64_t seed = 9;
  for (int n = 1; n < N; n++) {
    int n_all = 0;
    for (int i = 0; i < n; i++) {
      x[i] = floorf((float)(20 * uniform(&seed))) - 7; /* with repetitions */
      count[i] = i == 0 ? 1 : floorf((float)(MOST * uniform(&seed)));
      for (int c = 0; c < (int)count[i]; c++)
        all[n_all++] = x[i];
    }
    mill_sort(n_all, all);
    for (int i = 0; i < n_all; i++) {
      const double k[2] = {i, n_all - 1}, last = (double)all[n_all - 1], one = 1;
      double value[2][2], at;
      assert_true(i == 0 || all[i - 1] <= all[i]);
      mill_block_select(&block, n, x, count, 2, k, value);
      assert_close(value[0][0], (double)all[i], 0);
      assert_close(value[0][1], (double)all[i + 1 < n_all ? i + 1 : i], 0);
      assert_close(value[1][0], last, 0);
      mill_block_quantiles(&block, n, x, count, n_all, 1, &one, &at);
      assert_close(at, last, 0);
    }
  }
}

MILL_TEST_MAIN(NULL, NULL)
