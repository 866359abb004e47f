/* SPDX-License-Identifier: BSD-3-Clause */
/* Random numbers by counter: Philox against its published words, and distributions made from it.
 *
 * Statistical limits are 5 sigma: with a fixed seed a test passes always or never.  The tests of
 * src/system/random.c look at the distributions of the same float32 functions closely. */
#include "tests/mill_test.h"

#include "kernels/math/counter_random.h"

enum { SEED = 20261123, N = 1 << 18 };

/* Random123 1.14 (Salmon et al. 2011, SC'11), file kat_vectors, lines "philox4x32 10" */
MILL_TEST(philox_gives_the_published_words)
{
  static const struct {
    uint32_t counter[4];
    mill_counter_key key;
    uint32_t word[4];
  } known[] = {{{0, 0, 0, 0}, {{0, 0}}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
               {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                {{0xffffffff, 0xffffffff}},
                {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
               {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                {{0xa4093822, 0x299f31d0}},
                {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    const uint32_t *c = known[i].counter;
    const mill_counter_words words = mill_philox(c[0], c[1], c[2], c[3], known[i].key);
    for (int k = 0; k < 4; k++)
      assert_int_equal(words.v[k], known[i].word[k]);
  }
}

/* Each argument, its upper half too, changes every word. */
MILL_TEST(words_depend_on_all_arguments)
{
  static const uint64_t high = 1ull << 32;
  const struct {
    uint64_t seed, problem;
    uint32_t purpose, particle, step, draw;
  } at[] = {{7, 3, 1, 5, 9, 0}, {8, 3, 1, 5, 9, 0},        {7 + high, 3, 1, 5, 9, 0},
            {7, 4, 1, 5, 9, 0}, {7, 3 + high, 1, 5, 9, 0}, {7, 3, 2, 5, 9, 0},
            {7, 3, 1, 6, 9, 0}, {7, 3, 1, 5, 10, 0},       {7, 3, 1, 5, 9, 1},
            {7, 3, 1, 9, 5, 0}};
  enum { N_AT = sizeof at / sizeof *at };
  mill_counter_words words[N_AT];
  for (int i = 0; i < N_AT; i++) {
    words[i] = mill_counter_at(mill_counter_key_of(at[i].seed, at[i].problem, at[i].purpose),
                               at[i].particle, at[i].step, at[i].draw);
    for (int j = 0; j < i; j++)
      for (int k = 0; k < 4; k++)
        assert_int_not_equal(words[i].v[k], words[j].v[k]);
  }
}

MILL_TEST(uniform)
{
  double sum = 0, square = 0;
  for (uint32_t i = 0; i < N; i++) {
    const mill_counter_words words = mill_counter_at(mill_counter_key_of(SEED, 1, 0), i, 0, 0);
    const double u = mill_counter_uniform(words.v[0], words.v[1]);
    sum += u;
    square += u * u;
  }
  assert_close(sum / N, 0.5, 5 * sqrt(1.0 / 12 / N));
  assert_close(square / N, 1.0 / 3, 5 * sqrt(4.0 / 45 / N));
  assert_true(mill_counter_uniform(0, 0) > 0);
  assert_true(mill_counter_uniform(0xffffffffu, 0xffffffffu) < 1);
}

/* x^k has the mean (k - 1)!! for even k, 0 for odd k, and the variance <x^2k> - <x^k>^2.  Numbers
 * of a pair are uncorrelated, and so are numbers of neighbouring particles or steps. */
static void check_normals(int n, const double *x)
{
  static const double even[] = {1, 1, 3, 15, 105, 945, 10395};
  for (int k = 1; k <= 6; k++) {
    const double mean = k % 2 ? 0 : even[k / 2];
    double sum = 0;
    for (int i = 0; i < n; i++)
      sum += pow(x[i], k);
    assert_close(sum / n, mean, 5 * sqrt((even[k] - mean * mean) / n));
  }
  for (int lag = 1; lag <= 4; lag++) {
    double product = 0;
    for (int i = lag; i < n; i++)
      product += x[i] * x[i - lag];
    assert_close(product / (n - lag), 0, 5 / sqrt(n - lag));
  }
}

MILL_TEST(normals)
{
  static double x[2 * N], fast[2 * N];
  const mill_counter_key key = mill_counter_key_of(SEED, 2, 0);
  for (int steps = 0; steps < 2; steps++) {
    for (uint32_t i = 0; i < N; i++) {
      float pair[2];
      const mill_counter_words words =
          steps ? mill_counter_at(key, 17, i, 0) : mill_counter_at(key, i, 17, 0);
      mill_counter_normals(&words, &x[2 * i], &x[2 * i + 1]);
      mill_counter_pair(words.v[0], words.v[1], &pair[0], &pair[1]);
      fast[2 * i] = (double)pair[0];
      fast[2 * i + 1] = (double)pair[1];
    }
    check_normals(2 * N, x);
    check_normals(2 * N, fast);
  }
}

MILL_TEST(tails_of_the_fast_normals)
{
  enum { N_PAIR = 1 << 24 };
  static const double edge[] = {3, 3.5, 4, 4.5, 5};
  double count[5] = {0};
  for (uint32_t i = 0; i < N_PAIR / 2; i++) {
    float x[4];
    const mill_counter_words words = mill_counter_at(mill_counter_key_of(SEED, 3, 0), i, 0, 0);
    mill_counter_pair(words.v[0], words.v[1], &x[0], &x[1]);
    mill_counter_pair(words.v[2], words.v[3], &x[2], &x[3]);
    for (int j = 0; j < 4; j++)
      for (int k = 0; k < 5 && fabs((double)x[j]) > edge[k]; k++)
        count[k]++;
  }
  for (int k = 0; k < 5; k++) {
    const double expected = erfc(edge[k] / sqrt(2)) * 2.0 * N_PAIR;
    assert_close(count[k], expected, 5 * sqrt(expected));
  }
}

MILL_SEEDED_TEST_MAIN(SEED, NULL, NULL)
