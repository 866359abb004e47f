/* SPDX-License-Identifier: BSD-3-Clause */
/* Tangents along few axes, against products with the whole last layer in float64. */
#include "tests/mill_test.h"

#include "kernels/base/error.h"
#include "src/pipeline/rough_tangents.h"
#include "src/system/random.h"

enum { N_IN = 96, N_OUT = 1500, N_DIRECTION = 11, N = 200, SEED = 29 };

static float weight[N_OUT * N_IN], input[N * N_IN];
static double direction[N_DIRECTION * N_IN];

static int find(const mill_emulator *e, mill_rough_axes *axes)
{
  double mean[N_IN] = {0};
  for (int i = 0; i < N_OUT * e->n_in[0]; i++)
    mean[i % e->n_in[0]] += (double)weight[i] / N_OUT;
  return mill_rough_axes_find(e, mean, N, input, axes);
}

static mill_emulator emulator(int n_in)
{
  mill_emulator e = {.n_layer = 1};
  e.n_in[0] = n_in;
  e.n_out[0] = N_OUT;
  e.weight[0] = weight;
  return e;
}

/** Weights of very different size, and tangents in a few directions but for a part of them. */
static void make(mill_random *random, double part)
{
  for (int i = 0; i < N_OUT * N_IN; i++)
    weight[i] = (float)((1 + mill_random_normal(random)) * exp(-0.1 * (i % N_IN)));
  for (int i = 0; i < N_DIRECTION * N_IN; i++)
    direction[i] = mill_random_normal(random);
  for (int r = 0; r < N; r++) {
    double h[N_IN];
    for (int k = 0; k < N_IN; k++)
      h[k] = part * mill_random_normal(random);
    for (int d = 0; d < N_DIRECTION; d++) {
      const double a = mill_random_normal(random);
      for (int k = 0; k < N_IN; k++)
        h[k] += a * direction[d * N_IN + k];
    }
    for (int k = 0; k < N_IN; k++)
      input[r * N_IN + k] = (float)(pow(10, r % 5) * h[k]); /* in any unit */
  }
}

/** W h in float64, less its mean over pixels. */
static void pixels(const float *h, double *out)
{
  double mean = 0;
  for (int p = 0; p < N_OUT; p++) {
    out[p] = 0;
    for (int k = 0; k < N_IN; k++)
      out[p] += (double)weight[p * N_IN + k] * (double)h[k];
    mean += out[p] / N_OUT;
  }
  for (int p = 0; p < N_OUT; p++)
    out[p] -= mean;
}

/** Squared length in pixels of what the axes leave out of row r, as a part of the whole. */
static double left_out(const mill_rough_axes *axes, int r)
{
  static double exact[N_OUT], rest[N_OUT], up[N_OUT];
  double whole = 0, left = 0;
  pixels(input + r * N_IN, exact);
  memcpy(rest, exact, sizeof rest);
  for (int i = 0; i < axes->n; i++) {
    double few = 0;
    for (int k = 0; k < N_IN; k++)
      few += (double)axes->down[i * N_IN + k] * (double)input[r * N_IN + k];
    pixels(axes->up + i * N_IN, up);
    for (int p = 0; p < N_OUT; p++)
      rest[p] -= few * up[p];
  }
  for (int p = 0; p < N_OUT; p++) {
    whole += exact[p] * exact[p];
    left += rest[p] * rest[p];
  }
  return left / whole;
}

MILL_TEST(tangents_of_few_directions)
{
  mill_random random;
  mill_rough_axes axes;
  const mill_emulator e = emulator(N_IN);
  mill_random_begin(&random, SEED, 0, 1);
  make(&random, 0);
  assert_int_equal(find(&e, &axes), MILL_OK);
  /* those of the few that are longer than what may be left out */
  assert_in_range(axes.n, 2, N_DIRECTION);
  double sum = 0;
  for (int r = 0; r < N; r++)
    sum += left_out(&axes, r) / N;
  printf("%d directions leave out %.1g\n", axes.n, sum);
  assert_true(sum < 1e-4);
  mill_rough_axes_clear(&axes);

  /* with a rest in all directions: of the squared lengths at most 5e-5 are left out in
   * the pixels that were looked at, one in three, which are drawn like the others */
  make(&random, 0.1);
  assert_int_equal(find(&e, &axes), MILL_OK);
  assert_in_range(axes.n, 8, N_IN * 6 / 10);
  sum = 0;
  for (int r = 0; r < N; r++)
    sum += left_out(&axes, r) / N;
  printf("%d directions leave out %.1g\n", axes.n, sum);
  assert_true(sum > 1e-6 && sum < 1e-4);
  mill_rough_axes_clear(&axes);
}

MILL_TEST(nothing_to_save)
{
  mill_random random;
  mill_rough_axes axes;
  mill_emulator e = emulator(N_IN);
  mill_random_begin(&random, SEED, 1, 1);
  make(&random, 100); /* tangents in all directions */
  for (int i = 0; i < N_OUT * N_IN; i++)
    weight[i] = (float)mill_random_normal(&random);
  assert_int_equal(find(&e, &axes), MILL_OK);
  assert_int_equal(axes.n, 0);
  mill_rough_axes_clear(&axes);
  make(&random, 0);
  e = emulator(40); /* few inputs */
  assert_int_equal(find(&e, &axes), MILL_OK);
  assert_int_equal(axes.n, 0);
  /* weights that do nothing, and an input that is not finite */
  e = emulator(N_IN);
  input[0] = INFINITY;
  for (int i = 0; i < N_OUT; i++)
    weight[i * N_IN] = 1;
  assert_int_equal(find(&e, &axes), MILL_OK);
  mill_rough_axes_clear(&axes);
}

MILL_TEST_MAIN(NULL, NULL)
