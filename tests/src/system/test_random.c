/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams and distributions made of the words of kernels/math/counter_random.h.
 *
 * Statistical limits are 5 sigma: with a fixed seed a test passes always or never, and a
 * right generator would fail one seed in some hundred thousand. */
#include "tests/mill_test.h"

#include "src/system/random.h"

enum { SEED = 20210514, N = 1 << 20 };

MILL_TEST(streams_depend_on_seed_index_and_purpose)
{
  /* the last ones differ from the first in the upper halves only */
  static const uint64_t seed[] = {7, 8, 7, 7, 7 + (1ull << 32), 7};
  static const uint64_t index[] = {3, 3, 4, 3, 3, 3 + (1ull << 32)};
  static const uint32_t purpose[] = {1, 1, 1, 2, 1, 1};
  uint32_t word[6][32];
  for (int s = 0; s < 6; s++) {
    mill_random r, again;
    mill_random_begin(&r, seed[s], index[s], purpose[s]);
    mill_random_begin(&again, seed[s], index[s], purpose[s]);
    for (int i = 0; i < 32; i++) {
      word[s][i] = mill_random_word(&r);
      assert_int_equal(mill_random_word(&again), word[s][i]);
      for (int k = 0; k < i; k++)
        assert_int_not_equal(word[s][i], word[s][k]);
    }
    for (int t = 0; t < s; t++)
      for (int i = 0; i < 32; i++)
        for (int k = 0; k < 32; k++)
          assert_int_not_equal(word[s][i], word[t][k]);
  }
}

MILL_TEST(uniform_never_reaches_its_ends)
{
  mill_random r;
  memset(&r, 0, sizeof r);
  r.n_left = 4;
  memset(r.block, 0, 2 * sizeof *r.block);
  memset(r.block + 2, 0xff, 2 * sizeof *r.block);
  assert_true(mill_random_uniform(&r) > 0);
  assert_true(mill_random_uniform(&r) < 1);
}

static int ascending(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Kolmogorov and Smirnov: P(D sqrt(n) > k) = 2 exp(-2 k^2), 5.7e-7 (5 sigma) at 2.745. */
MILL_TEST(distribution)
{
  static double x[N];
  double worst = 0;
  mill_random r;
  mill_random_begin(&r, SEED, 3, 1);
  for (int i = 0; i < N; i++)
    x[i] = mill_random_normal(&r);
  qsort(x, N, sizeof *x, ascending);
  for (int i = 0; i < N; i++) {
    const double p = 0.5 * erfc(-x[i] / sqrt(2));
    worst = fmax(worst, fmax(p - (double)i / N, (i + 1.0) / N - p));
  }
  assert_true(worst * sqrt(N) < 2.745);
  assert_true(worst * sqrt(N) > 0.2); /* too even would not be random: P < 1e-10 */
}

int main(void)
{
  printf("seed %d\n", SEED);
  return MILL_RUN_TESTS(NULL, NULL);
}
