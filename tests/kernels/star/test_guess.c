/* The cross-match of the initial guess against sums written out in float64. */
#include "tests/mill_test.h"

#include "kernels/star/guess.h"
#include "tests/kernels/math/block_bench.h"

enum { N_TEMPL = 37, N_VSINI = 2, MAX_BIN = 400, MAX_HALF = 17, N_CONT = 4, SEED = 1203 };
enum { N_GROUP = (N_TEMPL + MILL_GUESS_LANE - 1) / MILL_GUESS_LANE };
enum { MAX_WIDTH = MAX_BIN + 2 * MAX_HALF, MAX_VEL = 2 * MAX_HALF + 1 };

static struct guess_bench {
  block_bench b;
  mill_slot slot;
  int bin_first[MAX_BIN + 1];
  float bin_wn[MAX_BIN], bin_w[MAX_BIN];
  double label[N_TEMPL];
  double chisq[N_TEMPL * MAX_VEL], expected[N_TEMPL * MAX_VEL], least[N_TEMPL];
  int velocity[N_TEMPL];
  _Alignas(64) float templ[N_GROUP * MAX_WIDTH * MILL_GUESS_LANE];
} g;

static float *template_bin(int n_bin, int k, int i)
{
  const int width = n_bin + 2 * g.b.model.guess_half;
  return &g.templ[((k / MILL_GUESS_LANE) * width + i) * MILL_GUESS_LANE + k % MILL_GUESS_LANE];
}

/** Templates and bins of random numbers. */
static void make_bins(int n_bin, int half, uint64_t *random)
{
  memset(&g, 0, sizeof g);
  block_bench_init(&g.b, 256, log(4000.0), 1e-4, BENCH_PIX, N_CONT, 1);
  mill_model *m = &g.b.model;
  m->n_templ = N_TEMPL;
  m->n_guess_vsini = N_VSINI;
  m->guess_vsini[1] = 100;
  m->guess_half = half;
  m->guess_ln_step = 2e-4;
  m->guess_label = g.label;
  m->set.min_vel_km_s = -2000;
  m->set.max_vel_km_s = 2000;
  m->set.max_vsini_km_s = 500;
  for (int k = 0; k < N_TEMPL; k++) {
    g.label[k] = k;
    for (int i = 0; i < n_bin + 2 * half; i++)
      *template_bin(n_bin, k, i) = (float)(0.3 * test_library_random(random));
  }
  for (int i = 0; i < n_bin; i++) {
    g.bin_wn[i] = (float)test_library_random(random);
    g.bin_w[i] = (float)(1 + test_library_random(random));
  }
  g.b.ws.n_bin = n_bin;
  g.b.ws.bin_first = g.bin_first;
  g.b.ws.templ = g.templ;
  g.slot.bin_wn = g.bin_wn;
  g.slot.bin_w = g.bin_w;
  g.slot.guess_chisq = g.chisq;
  g.slot.guess_least = g.least;
  g.slot.guess_velocity = g.velocity;
}

/** Every template at every shift, also where the shifts are fewer than go at once or no
 *  multiple of them, and the bins no multiple of a chunk. */
static void test_match_is_the_sum_over_bins(void **state)
{
  (void)state;
  static const int shape[][2] = {{1, 1},   {3, 1},    {127, 2}, {128, 5},
                                 {129, 6}, {400, 17}, {300, 11}};
  uint64_t random = SEED;
  printf("seed %d\n", SEED);
  for (size_t q = 0; q < sizeof shape / sizeof *shape; q++) {
    const int n_bin = shape[q][0], half = shape[q][1], nv = 2 * half + 1;
    make_bins(n_bin, half, &random);
    for (int e = 0; e < N_TEMPL * nv; e++)
      g.chisq[e] = g.expected[e] = 100 + e; /* what is there is added to */
    for (int k = 0; k < N_TEMPL; k++)
      for (int v = 0; v < nv; v++)
        for (int i = 0; i < n_bin; i++) {
          const double t = (double)*template_bin(n_bin, k, i + half - (v - half));
          g.expected[k * nv + v] += t * ((double)g.bin_wn[i] + (double)g.bin_w[i] * t);
        }
    mill_block_guess_match(&g.b.block, &g.b.model, &g.b.ws, &g.slot);
    /* 128 terms of at most 0.5 in float32 before they join a float64 sum: half a unit in the
     * last place of 64 for each of them at the worst */
    for (int e = 0; e < N_TEMPL * nv; e++)
      assert_close(g.chisq[e], g.expected[e], 128 * 3.9e-6 * (n_bin / 128 + 1));
  }
}

/** Data over continuum, weights, and pixels that do not count. */
static void test_bins_sum_good_pixels(void **state)
{
  (void)state;
  uint64_t random = SEED + 1;
  enum { N_BIN = 300 };
  make_bins(N_BIN, 3, &random);
  const int n = BENCH_PIX;
  for (int p = 0; p < n; p++) {
    g.b.d[p] = (float)(30 + 5 * test_library_random(&random));
    g.b.is[p] = (float)(3 + test_library_random(&random));
    g.b.base[p] = 1 + 0.1 * test_library_random(&random);
    g.b.good[p] = p % 7 != 3;
    for (int k = 0; k < N_CONT; k++)
      g.b.cont[k * mill_row_pitch(n) + p] = (float)test_library_random(&random);
  }
  for (int k = 0; k < N_CONT; k++)
    g.b.solve[k] = 5 + k;
  /* empty bins, and bins of up to three pixels */
  for (int i = 0; i <= N_BIN; i++) {
    const int at = i / 2 * 4 - (i % 2 ? 0 : 3);
    g.bin_first[i] = at < 0 ? 0 : (at > n ? n : at);
  }
  g.bin_first[N_BIN] = n;
  mill_block_guess_bins(&g.b.block, N_CONT, &g.b.s, &g.b.work, &g.slot);
  for (int i = 0; i < N_BIN; i++) {
    double wn = 0, w = 0, size = 1;
    for (int p = g.bin_first[i]; p < g.bin_first[i + 1]; p++) {
      double c = 0;
      for (int k = 0; k < N_CONT; k++)
        c += g.b.solve[k] * (double)g.b.cont[k * mill_row_pitch(n) + p];
      c *= g.b.base[p] * (double)g.b.is[p];
      if (!g.b.good[p])
        continue;
      wn += c * ((double)g.b.d[p] - c);
      w += c * c;
      size += fabs(c * (double)g.b.d[p]) + c * c;
    }
    /* float64 sums, stored as float32 */
    assert_close((double)g.bin_wn[i], -2 * wn, 1.2e-7 * fabs(wn) + 1e-14 * size);
    assert_close((double)g.bin_w[i], w, 6e-8 * w + 1e-14 * size);
  }
}

/** The least chi^2 within the limits of velocity, then the least of those with labels apart from
 * the ones before, farther and farther; of equal ones the first; what is not a number never. */
static void test_starts_are_the_best_that_are_apart(void **state)
{
  (void)state;
  uint64_t random = SEED + 2;
  enum { HALF = 8, NV = 2 * HALF + 1, N_WHOLE = N_TEMPL / N_VSINI * N_VSINI };
  make_bins(50, HALF, &random);
  mill_model *m = &g.b.model;
  m->n_templ = N_WHOLE;
  m->label[0] = (mill_label){.mapping = MILL_MAP_LINEAR, .std = 1};
  /* bins of 59.96 km/s: five on each side are within the limits */
  m->set.min_vel_km_s = -301;
  m->set.max_vel_km_s = 301;
  for (int e = 0; e < N_WHOLE * NV; e++)
    g.chisq[e] = 10 + 0.001 * e;
  g.chisq[3 * NV + 2] = -100; /* too fast */
  g.chisq[9 * NV + 1] = NAN;
  g.chisq[20 * NV + HALF + 4] = 1; /* labels 10 with rotation 0 */
  g.chisq[21 * NV + HALF - 2] = 2; /* the same labels, rotating */
  g.chisq[31 * NV + HALF + 1] = 3; /* labels 15, rotating */
  g.chisq[33 * NV + HALF] = 3;     /* labels 16: as good, but later */
  static const struct {
    double apart;
    int templ, bin;
  } take[] = {{0.5, 20, HALF + 4},
              {0.5, 31, HALF + 1},
              {0.5, 33, HALF},
              {1.5, 0, HALF - 5},
              {1.5, 4, HALF - 5}};
  mill_block_guess_least(&g.b.block, m, &g.slot, HALF - 5, HALF + 6);
  for (size_t i = 0; i < sizeof take / sizeof *take; i++) {
    assert_int_equal(mill_block_guess_take(&g.b.block, m, &g.slot, take[i].apart), take[i].templ);
    assert_int_equal(g.velocity[take[i].templ], take[i].bin);
  }

  g.slot.n_segment = 0; /* nothing to match: chi^2 is 0 everywhere */
  mill_block_guess(&g.b.block, m, &g.slot, &g.b.work);
  assert_int_equal(g.slot.n_start, MILL_MAX_GUESS_START);
  assert_close(g.slot.start[0][MILL_PAR_VRAD], mill_guess_velocity(-5, m->guess_ln_step), 1e-9);
  double label = 0; /* one more each time, as that is apart enough for the first four */
  for (int i = 0; i < MILL_MAX_GUESS_START; i++) {
    assert_close(g.slot.start[i][MILL_PAR_LABEL0], label, 0);
    assert_close(g.slot.start_chisq[i], 0, 0);
    label += mill_guess_apart(i + 1) <= 1 ? 1 : 2;
  }
  for (int e = 0; e < N_WHOLE * NV; e++)
    g.chisq[e] = NAN;
  mill_block_guess_least(&g.b.block, m, &g.slot, HALF - 5, HALF + 6);
  assert_int_equal(mill_block_guess_take(&g.b.block, m, &g.slot, 0.5), -1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_match_is_the_sum_over_bins),
      cmocka_unit_test(test_bins_sum_good_pixels),
      cmocka_unit_test(test_starts_are_the_best_that_are_apart),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
