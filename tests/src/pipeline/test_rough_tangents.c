/* Two layers in the place of an emulator's last one, against products with that in float64. */
#include "tests/mill_test.h"

#include <math.h>
#include <string.h>

#include "kernels/base/error.h"
#include "src/pipeline/rough_tangents.h"
#include "src/system/random.h"

enum { N_IN = 96, N_OUT = 700, N_DIRECTION = 11, N = 200, SEED = 29 };

static float weight[N_OUT * N_IN], input[N * N_IN];
static double direction[N_DIRECTION * N_IN];

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

/** Squared length in pixels of what the layers leave out of row r, as a part of the whole. */
static double left_out(const mill_rough_layers *layers, int r)
{
  double few[N_IN] = {0}, mean = 0, whole = 0, left = 0;
  static double exact[N_OUT];
  for (int i = 0; i < layers->n; i++)
    for (int k = 0; k < N_IN; k++)
      few[i] += (double)layers->down[i * N_IN + k] * (double)input[r * N_IN + k];
  for (int p = 0; p < N_OUT; p++) {
    exact[p] = 0;
    for (int k = 0; k < N_IN; k++)
      exact[p] += (double)weight[p * N_IN + k] * (double)input[r * N_IN + k];
    mean += exact[p] / N_OUT;
  }
  for (int p = 0; p < N_OUT; p++) {
    double made = 0;
    for (int i = 0; i < layers->n; i++)
      made += (double)layers->up[p * layers->n + i] * few[i];
    whole += (exact[p] - mean) * (exact[p] - mean);
    left += (exact[p] - mean - made) * (exact[p] - mean - made);
  }
  return left / whole;
}

static void test_tangents_of_few_directions(void **state)
{
  (void)state;
  mill_random random;
  mill_rough_layers layers;
  const mill_emulator e = emulator(N_IN);
  mill_random_begin(&random, SEED, 0, 1);
  make(&random, 0);
  assert_int_equal(mill_rough_layers_make(&e, N, input, &layers), MILL_OK);
  /* the next multiple of 8: all directions, so that only float32 rounds */
  assert_in_range(layers.n, 8, 16);
  double sum = 0;
  for (int r = 0; r < N; r++)
    sum += left_out(&layers, r) / N;
  printf("%d directions leave out %.1g\n", layers.n, sum);
  assert_true(sum < (layers.n >= N_DIRECTION ? 1e-10 : 1e-4));
  mill_rough_layers_clear(&layers);

  /* with a rest in all directions: of the squared lengths at most a ten-thousandth is left out in
   * the pixels that were looked at, a fourth of them, which are drawn like the others */
  make(&random, 0.1);
  assert_int_equal(mill_rough_layers_make(&e, N, input, &layers), MILL_OK);
  assert_in_range(layers.n, 8, N_IN * 6 / 10);
  sum = 0;
  for (int r = 0; r < N; r++)
    sum += left_out(&layers, r) / N;
  printf("%d directions leave out %.1g\n", layers.n, sum);
  assert_true(sum > 1e-6 && sum < 1.2e-4);
  mill_rough_layers_clear(&layers);
}

static void test_nothing_to_save(void **state)
{
  (void)state;
  mill_random random;
  mill_rough_layers layers;
  mill_emulator e = emulator(N_IN);
  mill_random_begin(&random, SEED, 1, 1);
  make(&random, 100); /* tangents in all directions */
  for (int i = 0; i < N_OUT * N_IN; i++)
    weight[i] = (float)mill_random_normal(&random);
  assert_int_equal(mill_rough_layers_make(&e, N, input, &layers), MILL_OK);
  assert_int_equal(layers.n, 0);
  mill_rough_layers_clear(&layers);
  make(&random, 0);
  e = emulator(40); /* few inputs */
  assert_int_equal(mill_rough_layers_make(&e, N, input, &layers), MILL_OK);
  assert_int_equal(layers.n, 0);
  /* weights that do nothing, and an input that is not finite */
  e = emulator(N_IN);
  input[0] = INFINITY;
  for (int i = 0; i < N_OUT; i++)
    weight[i * N_IN] = 1;
  assert_int_equal(mill_rough_layers_make(&e, N, input, &layers), MILL_OK);
  mill_rough_layers_clear(&layers);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tangents_of_few_directions),
      cmocka_unit_test(test_nothing_to_save),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
