/* SPDX-License-Identifier: BSD-3-Clause */
/* The cross-match of the initial guess against sums written out in float64. */
#define MILL_PRECISION 32 /* backends run the guess in float32 */
#include "tests/mill_test.h"

#include "kernels/star/blocks/guess.h"
#include "src/pipeline/guess_table.h"
#include "tests/kernels/math/block_bench.h"

enum { N_TEMPL = 37, N_VSINI = 2, MAX_BIN = 400, MAX_HALF = 17, N_CONT = 4, SEED = 1203 };
enum { N_GROUP = (N_TEMPL + MILL_GUESS_LANE - 1) / MILL_GUESS_LANE };
enum { MAX_WIDTH = MAX_BIN + 2 * MAX_HALF, MAX_VEL = 2 * MAX_HALF + 1 };
enum { MAX_FOURIER = 256, MAX_NUMBERS = 2 * 1024 * MILL_GUESS_LANE };

static struct guess_bench {
  block_bench b;
  mill_slot slot;
  int bin_first[MAX_BIN + 1];
  float bin_wn[MAX_BIN], bin_w[MAX_BIN];
  double label[N_TEMPL];
  double chisq[N_TEMPL * MAX_VEL], expected[N_TEMPL * MAX_VEL], least[N_TEMPL];
  int velocity[N_TEMPL];
  float bin_templ[N_TEMPL][MAX_WIDTH];
  float root[MAX_FOURIER];
  _Alignas(64) float templ[N_GROUP * MAX_NUMBERS], guess[MAX_NUMBERS];
} g;

static int reversed(int i, int n)
{
  int r = 0;
  for (; n > 1; n /= 2, i /= 2)
    r = 2 * r + i % 2;
  return r;
}

/** Transforms of the templates' blocks by their definition, in float64. */
static void transform_templates(int n_bin)
{
  const int half = g.b.model.guess_half, n = g.b.model.guess_n, n_block = g.b.ws.n_block;
  double cosine[MAX_FOURIER], sine[MAX_FOURIER];
  for (int i = 0; i < n; i++) {
    cosine[i] = cos(2 * 3.14159265358979323846 * i / n);
    sine[i] = sin(2 * 3.14159265358979323846 * i / n);
  }
  for (int k = 0; k < N_TEMPL; k++)
    for (int block = 0; block < n_block; block++)
      for (int f = 0; f < n; f++) {
        const int first = block * (n - 2 * half);
        double re = 0, im = 0;
        for (int i = 0; i < n && first + i < n_bin + 2 * half; i++) {
          const double m = (double)g.bin_templ[k][first + i];
          re += m * m * cosine[f * i % n] + m * sine[f * i % n];
          im += m * cosine[f * i % n] - m * m * sine[f * i % n];
        }
        float *to = g.templ + (((k / MILL_GUESS_LANE) * n + reversed(f, n)) * n_block + block) * 2 *
                                  MILL_GUESS_LANE;
        to[k % MILL_GUESS_LANE] = (float)(re / n);
        to[MILL_GUESS_LANE + k % MILL_GUESS_LANE] = (float)(im / n);
      }
}

static void make_bins(int n_bin, int half, uint64_t *random)
{
  memset(&g, 0, sizeof g);
  block_bench_init(&g.b, 256, log(4000.0), 1e-4, BENCH_PIX, N_CONT, 1);
  mill_model *m = &g.b.model;
  m->n_templ = N_TEMPL;
  m->n_guess_vsini = N_VSINI;
  m->guess_vsini[1] = 100;
  m->guess_half = half;
  m->guess_n = (int)mill_guess_fourier_length(2 * half + 1);
  mill_fourier_roots(m->guess_n, g.root);
  m->guess_root = g.root;
  m->guess_ln_step = 2e-4;
  m->guess_label = m->guess_mapped = g.label;
  m->set.min_vel_km_s = -2000;
  m->set.max_vel_km_s = 2000;
  m->set.max_vsini_km_s = 500;
  for (int k = 0; k < N_TEMPL; k++) {
    g.label[k] = k;
    for (int i = 0; i < n_bin + 2 * half; i++)
      g.bin_templ[k][i] = (float)(0.3 * test_library_random(random));
  }
  for (int i = 0; i < n_bin; i++) {
    g.bin_wn[i] = (float)test_library_random(random);
    g.bin_w[i] = (float)(1 + test_library_random(random));
  }
  const int n_kept = m->guess_n - 2 * half;
  g.b.ws.n_bin = n_bin;
  g.b.ws.n_block = (n_bin + n_kept - 1) / n_kept;
  g.b.ws.bin_first = g.bin_first;
  g.b.ws.templ = g.templ;
  g.b.s.guess = g.guess;
  g.slot.segment = &g.b.s;
  g.slot.n_segment = 1;
  g.slot.guess.chisq = g.chisq;
  g.slot.guess.least = g.least;
  g.slot.guess.velocity = g.velocity;
}

/** Return where bin i's weight w (guess.h) is stored; -2 w n follows MILL_GUESS_LANE floats on. */
static float *data_bin(int i)
{
  const int n = g.b.model.guess_n, n_kept = n - 2 * g.b.model.guess_half, block = i / n_kept;
  return &g.guess[(block / MILL_GUESS_LANE * n + i % n_kept) * 2 * MILL_GUESS_LANE +
                  block % MILL_GUESS_LANE];
}

/** Templates do not vary elements by themselves. */
MILL_TEST(a_prior_of_an_element_does_not_count)
{
  uint64_t random = SEED;
  make_bins(50, 3, &random);
  g.b.model.n_label = 1;
  g.slot.prior_mean[MILL_PAR_LABEL0] = 7;
  g.slot.prior_sigma[MILL_PAR_LABEL0] = 2;
  for (int is_element = 0; is_element < 2; is_element++) {
    g.b.model.label[0].is_element = is_element;
    for (int i = 0; i < N_TEMPL / N_VSINI; i++) /* template i has the label i */
      assert_close(mill_guess_penalty(&g.b.model, &g.slot, i * N_VSINI * 7),
                   is_element ? 0 : pow((i - 7) / 2.0, 2), 0);
  }
}

/** Compare all templates at all shifts, with one block of bins, several, or a partial last one. */
MILL_TEST(match_is_the_sum_over_bins)
{
  static const int shape[][2] = {{1, 1},   {3, 1},    {127, 2},  {128, 5},
                                 {129, 6}, {400, 17}, {300, 11}, {400, 1}};
  uint64_t random = SEED;
  printf("seed %d\n", SEED);
  for (size_t q = 0; q < sizeof shape / sizeof *shape; q++) {
    const int n_bin = shape[q][0], half = shape[q][1], nv = 2 * half + 1;
    double data2 = 0, templ2 = 0;
    make_bins(n_bin, half, &random);
    transform_templates(n_bin);
    for (int e = 0; e < N_TEMPL * nv; e++)
      g.chisq[e] = 100 + e; /* what was there counts no more */
    for (int k = 0; k < N_TEMPL; k++) {
      double sum2 = 0;
      for (int i = 0; i < n_bin + 2 * half; i++)
        sum2 += pow((double)g.bin_templ[k][i], 2) + pow((double)g.bin_templ[k][i], 4);
      templ2 = fmax(templ2, sum2);
      for (int v = 0; v < nv; v++)
        for (int i = 0; i < n_bin; i++) {
          const double t = (double)g.bin_templ[k][i + half - (v - half)];
          g.expected[k * nv + v] += t * ((double)g.bin_wn[i] + (double)g.bin_w[i] * t);
        }
    }
    for (int i = 0; i < n_bin; i++) {
      data_bin(i)[0] = g.bin_w[i];
      data_bin(i)[MILL_GUESS_LANE] = g.bin_wn[i];
      data2 += pow((double)g.bin_w[i], 2) + pow((double)g.bin_wn[i], 2);
    }
    const int n = g.b.model.guess_n;
    for (int i = 0; i < mill_guess_lanes(g.b.ws.n_block); i++)
      mill_block_fourier(&g.b.block, n, 0, g.root, g.guess + i * n * 2 * MILL_GUESS_LANE);
    for (int k = 0; k < N_TEMPL; k += MILL_GUESS_LANE)
      mill_block_guess_match(&g.b.block, &g.b.model, k, &g.slot, &g.b.work);
    /* float32 rounds by half units in the last place: at each step of the transforms and in the
     * sum over blocks.  The errors are relative to the largest possible correlation. */
    const double error = 6e-8 * (6 * log2(n) + g.b.ws.n_block + 1) * sqrt(data2 * templ2);
    for (int e = 0; e < N_TEMPL * nv; e++)
      assert_close(g.chisq[e], g.expected[e], error);
  }
}

/** Bins sum data over continuum.  Sky residuals lower the weights; bad pixels do not count. */
MILL_TEST(bins_sum_good_pixels)
{
  uint64_t random = SEED + 1;
  enum { N_BIN = 300 };
  static float sky[BENCH_PIX];
  make_bins(N_BIN, 3, &random);
  const int n = BENCH_PIX;
  g.b.ws.sky = sky;
  g.b.model.arm[0].n_sky = 1;
  for (int p = 0; p < n; p++) {
    g.b.d[p] = (float)(30 + 5 * test_library_random(&random));
    g.b.is[p] = (float)(3 + test_library_random(&random));
    g.b.base[p] = 1 + 0.1 * test_library_random(&random);
    g.b.good[p] = p % 7 != 3;
    sky[p] = (float)test_library_random(&random);
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
  for (int i = 0; i < MAX_NUMBERS; i++)
    g.guess[i] = 7; /* what was there counts no more */
  mill_block_guess_bins(&g.b.block, &g.b.model, N_CONT, MILL_BINS_ALL, &g.b.s, &g.b.work);
  const int n_fourier = g.b.model.guess_n;
  for (int i = 0; i < mill_guess_lanes(g.b.ws.n_block); i++)
    mill_block_fourier(&g.b.block, n_fourier, 1, g.root,
                       g.guess + i * n_fourier * 2 * MILL_GUESS_LANE);
  double found2 = 0, expected2 = 0;
  for (int i = 0; i < N_BIN; i++) {
    double wn = 0, w = 0;
    for (int p = g.bin_first[i]; p < g.bin_first[i + 1]; p++) {
      double c = 0;
      for (int k = 0; k < N_CONT; k++)
        c += g.b.solve[k] * (double)g.b.cont[k * mill_row_pitch(n) + p];
      c *= g.b.base[p] * (double)g.b.is[p];
      if (!g.b.good[p])
        continue;
      const double variance = 1 + pow((double)(sky[p] * g.b.is[p]), 2);
      wn += c * ((double)g.b.d[p] - c) / variance;
      w += c * c / variance;
    }
    expected2 += w * w + 4 * wn * wn;
    /* float32 transforms there and back are off by 2e-7 of a block's sum; sums are below 3e5 */
    assert_close((double)data_bin(i)[0] / n_fourier, w, 0.3);
    assert_close((double)data_bin(i)[MILL_GUESS_LANE] / n_fourier, -2 * wn, 0.3);
  }
  /* g.guess holds nothing else: the squares of all its numbers add up to those of the bins */
  for (int i = 0; i < mill_guess_lanes(g.b.ws.n_block) * n_fourier * 2 * MILL_GUESS_LANE; i++)
    found2 += pow((double)g.guess[i] / n_fourier, 2);
  assert_close(found2, expected2, 1e-6 * expected2);
}

/** The first start is the template of least chi^2 within the velocity limits.  Each further start
 *  has the least chi^2 among templates whose labels are apart from earlier starts.  Of equal
 *  chi^2 the first template is taken; NaN is never taken. */
MILL_TEST(starts_are_the_best_that_are_apart)
{
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
  assert_int_equal(g.slot.starts.n, MILL_MAX_GUESS_START);
  assert_close(g.slot.starts.theta[0][MILL_PAR_VRAD], mill_guess_velocity(-5, m->guess_ln_step),
               1e-9);
  double label = 0; /* one more each time, as that is apart enough for the first four */
  for (int i = 0; i < MILL_MAX_GUESS_START; i++) {
    assert_close(g.slot.starts.theta[i][MILL_PAR_LABEL0], label, 0);
    assert_close(g.slot.starts.chisq[i], 0, 0);
    label += mill_guess_apart(i + 1) <= 1 ? 1 : 2;
  }
  for (int e = 0; e < N_WHOLE * NV; e++)
    g.chisq[e] = NAN;
  mill_block_guess_least(&g.b.block, m, &g.slot, HALF - 5, HALF + 6);
  assert_int_equal(mill_block_guess_take(&g.b.block, m, &g.slot, 0.5), -1);
}

MILL_TEST_MAIN(NULL, NULL)
