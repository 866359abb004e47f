/* SPDX-License-Identifier: BSD-3-Clause */
/* Statistics of chains against NumPy (tests/reference/make_chains.py), and what has no value. */
#include "tests/mill_test.h"

#include <string.h>

#include "kernels/math/chains.h"

enum { MAX = 4096, N_PAR = 3 };

static float x[MAX * N_PAR], flat[MAX];

static double uniform(uint64_t *state)
{
  uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/** Autoregressive chains as parameter 1 of N_PAR. */
static mill_chains make(uint64_t seed, int n_step, int n_walker, double memory, double spread)
{
  double state[MILL_MAX_WALKER] = {0};
  for (int t = 0; t < n_step; t++)
    for (int w = 0; w < n_walker; w++) {
      state[w] = memory * state[w] + uniform(&seed) - 0.5;
      float *at = x + (t * n_walker + w) * N_PAR;
      at[0] = at[2] = 1e9f;
      at[1] = flat[t * n_walker + w] = (float)(state[w] + spread * w);
    }
  return (mill_chains){.x = x + 1, .n_step = n_step, .n_walker = n_walker, .n_par = N_PAR};
}

MILL_TEST(diagnosis_and_quantiles_are_those_of_numpy)
{
  static const struct {
    uint64_t seed;
    int n_step, n_walker;
    double memory, spread, rhat, ess;
  } set[] = {{1, 200, 6, 0.8, 0.0, 1.02144921856, 167.714985186},
             {2, 101, 4, 0.5, 0.1, 1.07032038356, 62.3540056674},
             {3, 60, 16, -0.5, 0.0, 0.989361859012, 2862.98038372},
             {4, 9, 3, 0.2, 0.0, 0.99743907978, 30.3229194295}};
  static const double quantile[][5] = {
      {-0.930624192953, -0.554995455742, -0.0705567859113, 0.343560838699, 0.810321322083},
      {-0.492816568166, -0.226264485717, 0.122535541654, 0.460176421404, 0.748137538135},
      {-0.603487589955, -0.363099505901, -0.00713262241334, 0.350564677715, 0.595881739259},
      {-0.411364805698, -0.243953818083, 0.0674081593752, 0.353352231979, 0.416367031634}};
  static const double q[5] = {0.025, 0.16, 0.5, 0.84, 0.975};
  for (size_t i = 0; i < sizeof set / sizeof set[0]; i++) {
    double rhat, ess;
    const int n = set[i].n_step * set[i].n_walker;
    const mill_chains c =
        make(set[i].seed, set[i].n_step, set[i].n_walker, set[i].memory, set[i].spread);
    mill_chains_diagnose(&c, &rhat, &ess);
    /* the values are float32 in both; sums differ in their order, and by FFT: 12 digits are given
     */
    assert_close(rhat, set[i].rhat, 1e-10);
    assert_close(ess / set[i].ess, 1, 1e-9);
    mill_chains_sort(n, flat);
    for (int k = 0; k < 5; k++)
      assert_close(mill_chains_quantile(n, flat, q[k]), quantile[i][k], 1e-11);
  }
}

MILL_TEST(chains_that_say_nothing_have_no_size)
{
  double rhat, ess;
  mill_chains c = make(5, 7, 8, 0.5, 0); /* too short */
  mill_chains_diagnose(&c, &rhat, &ess);
  assert_true(isnan(rhat));
  assert_close(ess, 0, 0);
  c = make(5, 100, 8, 0.5, 0);
  for (int i = 0; i < 800; i++)
    x[i * N_PAR + 1] = 2.5f; /* all the same */
  mill_chains_diagnose(&c, &rhat, &ess);
  assert_true(isnan(rhat));
  assert_close(ess, 0, 0);
}

MILL_TEST(sorting)
{
  uint64_t seed = 9;
  for (int n = 0; n < 70; n++) {
    double sum = 0, sorted_sum = 0;
    for (int i = 0; i < n; i++)
      sum += (double)(flat[i] = floorf((float)(20 * uniform(&seed)))); /* with repetitions */
    mill_chains_sort(n, flat);
    for (int i = 0; i < n; i++) {
      assert_true(i == 0 || flat[i - 1] <= flat[i]);
      sorted_sum += (double)flat[i];
    }
    assert_close(sorted_sum, sum, 0);
  }
  flat[0] = 3;
  assert_close(mill_chains_quantile(1, flat, 0.975), 3, 0);
}

MILL_TEST_MAIN(NULL, NULL)
