/* SPDX-License-Identifier: BSD-3-Clause */
/* Philox against its published vectors, and the distributions made of its words.
 *
 * Statistical limits are 5 sigma: with a fixed seed a test passes always or never, and a
 * right generator would fail one seed in some hundred thousand. */
#include "tests/mill_test.h"

#include "src/system/random.h"

enum { SEED = 20210514, N = 1 << 20 };

static float sample[N];

static int setup(void **state)
{
  (void)state;
  mill_random r;
  mill_random_begin(&r, SEED, 0, 1);
  mill_random_normals(&r, N, sample);
  return 0;
}

/* Random123 1.14 (Salmon et al. 2011, SC'11), file kat_vectors, lines "philox4x32 10" */
MILL_TEST(philox_gives_the_published_words)
{
  static const struct {
    uint32_t counter[4], key[2], word[4];
  } known[] = {{{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
               {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                {0xffffffff, 0xffffffff},
                {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
               {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                {0xa4093822, 0x299f31d0},
                {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    mill_random r;
    memset(&r, 0, sizeof r);
    memcpy(r.counter, known[i].counter, sizeof r.counter);
    memcpy(r.key, known[i].key, sizeof r.key);
    for (int k = 0; k < 4; k++)
      assert_int_equal(mill_random_word(&r), known[i].word[k]);
  }
}

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
  const float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

/* Kolmogorov and Smirnov: P(D sqrt(n) > k) = 2 exp(-2 k^2), 5.7e-7 (5 sigma) at 2.745.
 * Both the fast normals and the plain ones against the error function of libm. */
static void check_distribution(int n, float *x)
{
  double worst = 0;
  qsort(x, (size_t)n, sizeof *x, ascending);
  for (int i = 0; i < n; i++) {
    const double p = 0.5 * erfc(-(double)x[i] / sqrt(2));
    worst = fmax(worst, fmax(p - (double)i / n, (i + 1.0) / n - p));
  }
  assert_true(worst * sqrt(n) < 2.745);
  assert_true(worst * sqrt(n) > 0.2); /* too even would not be random: P < 1e-10 */
}

MILL_TEST(distribution)
{
  mill_random r;
  float *x = malloc(N * sizeof *x);
  assert_non_null(x);
  memcpy(x, sample, sizeof sample);
  check_distribution(N, x);
  mill_random_begin(&r, SEED, 3, 1);
  for (int i = 0; i < N; i++)
    x[i] = (float)mill_random_normal(&r);
  check_distribution(N, x);
  free(x);
}

/* Box and Muller's method makes pairs; the layout of a batch must not show them. */
MILL_TEST(neighbours_are_independent)
{
  static const int lag[] = {1, 2, 3, 4, 63, 64, 65, 128, 192, 255, 256, 257};
  for (size_t l = 0; l < sizeof lag / sizeof *lag; l++) {
    double product = 0, square = 0;
    const int n = N - lag[l];
    for (int i = 0; i < n; i++) {
      const double x = (double)sample[i], y = (double)sample[i + lag[l]];
      product += x * y;
      square += (x * x - 1) * (y * y - 1);
    }
    assert_close(product / n, 0, 5 * sqrt(1.0 / n));
    assert_close(square / n, 0, 5 * sqrt(4.0 / n));
  }
}

MILL_TEST(tails)
{
  enum { BLOCK = 1 << 16, N_BLOCK = 1600 };
  static const double edge[] = {3, 3.5, 4, 4.5, 5};
  static float x[BLOCK];
  double count[2][5] = {{0}};
  float least = 0, most = 0;
  mill_random r;
  mill_random_begin(&r, SEED, 4, 1);
  for (int b = 0; b < N_BLOCK; b++) {
    mill_random_normals(&r, BLOCK, x);
    for (int i = 0; i < BLOCK; i++) {
      if (x[i] > -3 && x[i] < 3)
        continue;
      for (int k = 0; k < 5; k++)
        count[x[i] > 0][k] += fabs((double)x[i]) > edge[k];
      least = x[i] < least ? x[i] : least;
      most = x[i] > most ? x[i] : most;
    }
  }
  for (int side = 0; side < 2; side++)
    for (int k = 0; k < 5; k++) {
      const double expected = 0.5 * erfc(edge[k] / sqrt(2)) * BLOCK * N_BLOCK;
      assert_close(count[side][k], expected, 5 * sqrt(expected));
    }
  /* one in 5e7 lies beyond 5.5 on a side; 1e8 are drawn */
  assert_true(most > 5.3f && least < -5.3f);
  assert_true(most > 5.5f || least < -5.5f);
}

MILL_TEST(numbers_do_not_depend_on_how_many_are_asked_for)
{
  static const int n[] = {0, 1, 31, 255, 256, 257, 1000};
  float x[1001];
  for (size_t k = 0; k < sizeof n / sizeof *n; k++) {
    mill_random r;
    mill_random_begin(&r, SEED, 0, 1);
    x[n[k]] = -77;
    mill_random_normals(&r, n[k], x);
    assert_memory_equal(x, sample, (size_t)n[k] * sizeof *x);
    assert_true(x[n[k]] == -77); /* and nothing is written behind them */
  }
}

MILL_TEST(normals_go_on_where_the_last_ones_ended)
{
  mill_random r;
  float x[512];
  mill_random_begin(&r, SEED, 0, 1);
  mill_random_normals(&r, 256, x);
  mill_random_normals(&r, 256, x + 256);
  assert_memory_equal(x, sample, sizeof x);
  /* words that were left of a block are not used twice */
  mill_random_begin(&r, SEED, 0, 1);
  mill_random_word(&r);
  mill_random_normals(&r, 256, x);
  for (int i = 0; i < 256; i++)
    for (int k = 0; k < 4; k++)
      assert_true(x[i] != sample[64 * k]);
}

int main(void)
{
  printf("seed %d\n", SEED);
  return MILL_RUN_TESTS(setup, NULL);
}
