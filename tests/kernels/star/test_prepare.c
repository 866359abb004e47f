/* SPDX-License-Identifier: BSD-3-Clause */
/* Pixel preparation against a plain second implementation (prepare_reference.h), and the
 * resolution matrix against SciPy (tests/reference). */
#include "tests/mill_test.h"

#include "kernels/star/blocks/prepare.h"
#include "tests/kernels/star/prepare_reference.h"
#include "reference/blocks.h" /* made in the build folder by tests/reference/make_blocks.py */
#include "tests/test_library.h"

enum { N = 120, SEED = 4711 };

static mill_block block;

static float uniform(uint64_t *state)
{
  return (float)test_library_random(state);
}

/* --- median --- */

static void compare_median(int n, const float *x)
{
  double list[REF_MAX_PIX];
  int m = 0;
  for (int i = 0; i < n; i++)
    if (!isnan(x[i]))
      list[m++] = (double)x[i];
  const double expected = ref_median(m, list), found = mill_block_median(&block, n, x);
  float low, high;
  if (isnan(expected))
    assert_true(isnan(found));
  else
    /* a selection and not a computation: exact, also for infinities */
    assert_true(found == expected);
  /* ref_median leaves the list sorted */
  mill_block_middle(&block, n, x, &low, &high);
  if (m == 0) {
    assert_true(isnan(low) && isnan(high));
  } else {
    assert_true((double)low == list[(m - 1) / 2]);
    assert_true((double)high == list[m / 2]);
  }
}

MILL_TEST(median_equals_sorting)
{
  uint64_t random = SEED;
  printf("seed %d\n", SEED);
  float x[300];
  for (int trial = 0; trial < 400; trial++) {
    const int n = trial < 20 ? trial : 1 + (int)(149.5 * (1 + test_library_random(&random)));
    for (int i = 0; i < n; i++) {
      const int kind = (int)(8 * (1 + test_library_random(&random)));
      x[i] = uniform(&random) * (trial % 3 ? 1.0f : 1e30f);
      if (trial % 4 == 1) /* ties */
        x[i] = (float)(int)(3.0f * x[i]);
      if (trial % 5 == 2)
        x[i] = kind == 0 ? NAN : (kind == 1 ? INFINITY : (kind == 2 ? -INFINITY : x[i]));
      if (trial % 7 == 3)
        x[i] = kind % 2 ? -0.0f : 0.0f;
      if (trial % 7 == 4)
        x[i] *= 1e-42f; /* denormal */
      if (trial % 2 == 0 && kind <= 6)
        x[i] = NAN; /* passed over */
    }
    compare_median(n, x);
  }
}

MILL_TEST(median_of_hard_lists)
{
  static const struct {
    int n;
    float x[4];
    double median;
  } list[] = {{1, {-3.5f}, -3.5},
              {2, {7.0f, -2.0f}, 2.5},
              {3, {-0.0f, 0.0f, -0.0f}, 0},
              {4, {NAN, 4.0f, NAN, 6.0f}, 5},
              {2, {-INFINITY, 3.0f}, -(double)INFINITY},
              {2, {-INFINITY, INFINITY}, (double)NAN},
              {2, {NAN, NAN}, (double)NAN},
              {0, {0}, (double)NAN}};
  for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
    const double found = mill_block_median(&block, list[i].n, list[i].x);
    assert_true(found == list[i].median || (isnan(found) && isnan(list[i].median)));
  }
}

/* --- preparation --- */

static struct {
  mill_model model;
  mill_waveset ws;
  mill_segment s;
  float flux[N], ivar[N], d[N], is[N], scratch[N];
  int32_t mask[N];
  unsigned char good[N], masked[N];
  double base[N];
} b;

static void begin_with(uint64_t random)
{
  memset(&b, 0, sizeof b);
  b.model.set.edge_pix = 5;
  b.model.set.sigma_floor = 0.3;
  b.model.set.bad_sigma_factor = 1000;
  for (int i = 0; i < N; i++) {
    b.flux[i] = 10.0f + 3.0f * uniform(&random);
    b.ivar[i] = 4.0f + 3.0f * uniform(&random);
  }
  b.ws.masked = b.masked;
  b.ws.n_pix = N;
  b.s = (mill_segment){.n_pix = N,
                       .ws = &b.ws,
                       .raw_flux = b.flux,
                       .raw_ivar = b.ivar,
                       .raw_mask = b.mask,
                       .d = b.d,
                       .is = b.is,
                       .good = b.good,
                       .base = b.base,
                       .scratch = b.scratch};
}

static MILL_FIXTURE(begin)
{
  begin_with(SEED);
  return 0;
}

/** Prepare and compare everything with the plain implementation. */
static void check(void)
{
  static ref_prepared expected;
  const ref_raw raw = {.n = N,
                       .flux = b.flux,
                       .ivar = b.ivar,
                       .mask = b.mask,
                       .masked = b.masked,
                       .ignore = b.model.set.mask_ignore,
                       .edge = b.s.raw_res ? b.model.set.edge_pix : 0,
                       .sigma_floor = b.model.set.sigma_floor,
                       .bad_factor = b.model.set.bad_sigma_factor};
  ref_prepare(&raw, &expected);
  mill_block_prepare(&block, &b.model, &b.s);
  assert_int_equal(b.s.used, expected.used);
  assert_int_equal(b.s.n_good, expected.n_good);
  /* flux sqrt(ivar) is one float32 product */
  assert_close(b.s.sn, expected.sn, 2e-7 * fabs(expected.sn));
  if (!expected.used)
    return;
  double ln_var = 0, dd = 0;
  for (int i = 0; i < N; i++) {
    const double d = expected.flux[i] / expected.sigma[i];
    assert_int_equal(b.good[i], expected.good[i]);
    /* Errors of 6e-8 (or a denormal) come from float32 storage and from sigma_floor's median. */
    assert_close((double)b.d[i], d, 1.3e-7 * fabs(d));
    assert_close((double)b.is[i], 1 / expected.sigma[i], 1.3e-7 / expected.sigma[i] + 1.5e-45);
    ln_var += 2 * log(expected.sigma[i]);
    dd += d * d;
  }
  assert_close(b.s.sum_ln_var, ln_var, 1e-5); /* N pixels of 1.2e-7 */
  assert_close(b.s.dd, dd, 3e-7 * dd);
}

MILL_TEST(clean_pixels)
{
  check();
  assert_int_equal(b.s.n_good, N);
}

MILL_TEST(random_defects)
{
  uint64_t random = SEED + 1;
  for (int trial = 0; trial < 200; trial++) {
    begin_with((uint64_t)(SEED + 10 + trial));
    const double rate = trial % 4 == 0 ? 0.9 : 0.15;
    for (int i = 0; i < N; i++) {
      if (0.5 * (1 + test_library_random(&random)) > rate)
        continue;
      const int kind = (int)(4 * (1 + test_library_random(&random)));
      if (kind == 0)
        b.mask[i] = 1 << (trial % 31);
      else if (kind == 1)
        b.flux[i] = NAN;
      else if (kind == 2)
        b.ivar[i] = NAN;
      else if (kind == 3)
        b.ivar[i] = 0;
      else if (kind == 4)
        b.flux[i] = trial % 2 ? INFINITY : -INFINITY;
      else if (kind == 5)
        b.ivar[i] = -1;
      else if (kind == 6)
        b.masked[i] = 1;
      else
        b.ivar[i] = 1e4f; /* below the floor of sigma */
    }
    /* an infinite inverse variance at an interpolated pixel, and a wild masked flux */
    b.ivar[trial % N] = INFINITY;
    b.flux[(trial + 7) % N] = 1e6f;
    b.mask[(trial + 7) % N] = 4;
    if (trial % 3 == 0)
      b.model.set.mask_ignore = 1u << (trial % 31);
    check();
  }
}

MILL_TEST(gaps_are_interpolated_and_edges_take_their_neighbour)
{
  for (int i = 0; i < 4; i++) {
    b.flux[i] = NAN;
    b.ivar[N - 1 - i] = 0;
    b.mask[50 + i] = 2;
  }
  b.masked[60] = 1; /* not a gap: its flux is kept, its sigma is not */
  b.flux[49] = 2;
  b.flux[54] = 12;
  check();
  const double bad_sigma = 1 / (double)b.is[0];
  for (int i = 0; i < 4; i++) {
    assert_close((double)b.d[i] * bad_sigma, (double)b.flux[4], 1e-5);
    assert_close((double)b.d[N - 1 - i] * bad_sigma, (double)b.flux[N - 5], 1e-5);
    assert_close((double)b.d[50 + i] * bad_sigma, 4 + 2 * i, 1e-5);
  }
  assert_close((double)b.d[60] * bad_sigma, (double)b.flux[60], 1e-5);
  assert_false(b.good[60]);
}

MILL_TEST(arms_without_anything_are_dropped)
{
  enum { MASKED, IGNORED, NO_NUMBER, ZERO, INFINITE, NO_WEIGHT, N_KIND };
  for (int kind = 0; kind < N_KIND; kind++) {
    begin(state);
    for (int i = 0; i < N; i++) {
      b.mask[i] = kind <= IGNORED ? 1 + i : 0;
      if (kind == NO_NUMBER)
        b.flux[i] = NAN;
      else if (kind == ZERO)
        b.flux[i] = i % 2 ? 0.0f : -0.0f;
      else if (kind == INFINITE)
        b.flux[i] = i % 3 ? INFINITY : 1.0f;
      else if (kind == NO_WEIGHT)
        b.ivar[i] = 0;
    }
    b.model.set.mask_ignore = kind == IGNORED ? 255 : 0;
    check();
    /* NO_WEIGHT has no good pixel, but pixels and scale are valid, so the segment is used */
    assert_int_equal(b.s.used, kind == IGNORED || kind == NO_WEIGHT);
    if (kind == NO_WEIGHT)
      assert_int_equal(b.s.n_good, 0);
    if (kind == NO_NUMBER || kind == NO_WEIGHT)
      assert_close(b.s.sn, -1e9, 0);
  }
}

MILL_TEST(a_zero_median_takes_the_next_scale)
{
  for (int i = 0; i < N; i++)
    b.flux[i] = i < 40 ? 2.0f : (i < 80 ? 0.0f : -5.0f);
  b.ivar[3] = 0;
  check();
  assert_close(1 / (double)b.is[3], 2000, 1e-3); /* of the positive ones */
  for (int i = 0; i < 40; i++)
    b.mask[i] = 1; /* positive ones masked: absolute values, whose median is 2 */
  check();
  assert_close(1 / (double)b.is[3], 2000, 1e-3);
  assert_true(b.s.used);
}

MILL_TEST(a_wild_value_is_a_bad_pixel)
{
  static const struct {
    float flux, ivar;
    int good;
  } wild[] = {{3e38f, 4, 0}, {-3e38f, 4, 0}, {3e38f, 3e38f, 0}, {3e38f, 1e-45f, 0}, {1e12f, 4, 0},
              {1e9f, 4, 1},  {1, 3e38f, 0},  {0, 3e38f, 1},     {1, 1e-45f, 1}};
  for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
    begin(state);
    b.flux[17] = wild[i].flux;
    b.ivar[17] = wild[i].ivar;
    b.flux[18] = wild[i].flux; /* not in a pixel excluded by wavelength either */
    b.ivar[18] = wild[i].ivar;
    b.masked[18] = 1;
    check();
    assert_int_equal(b.s.n_good, N - 2 + wild[i].good);
    assert_true(b.s.used);
  }
}

MILL_TEST(small_and_negative_fluxes)
{
  for (int i = 0; i < N; i++) {
    b.flux[i] *= -1e-17f;
    b.ivar[i] *= 1e30f;
  }
  b.ivar[5] = 0;
  check();
  assert_true(b.s.used && b.s.sn < 0);
}

/* --- resolution matrix --- */

/** Prepare the resolution matrix raw: write res [n_diag][mill_row_pitch(n)] and its rows' sums. */
static mill_segment resolve(int n, int n_diag, const double *deconv, double templ_pix, float *raw,
                            float *res, double *base)
{
  static float scratch[REF_MAX_PIX];
  static unsigned char good[REF_MAX_PIX];
  static int32_t clear[REF_MAX_PIX];
  static float one[REF_MAX_PIX];
  for (int i = 0; i < n; i++)
    one[i] = 1;
  mill_segment segment = {.n_pix = n,
                          .raw_mask = clear,
                          .raw_flux = one,
                          .raw_ivar = one,
                          .n_diag = n_diag,
                          .deconv = {.solve = deconv, .sigma_pix = templ_pix},
                          .raw_res = raw,
                          .res = res,
                          .base = base,
                          .scratch = scratch,
                          .good = good};
  mill_block_prepare_resolution(&block, 0, &segment);
  return segment;
}

MILL_TEST(resolution_matrix_matches_scipy)
{
  enum { NR = REF_RESOLUTION_N, ND = REF_RESOLUTION_N_DIAG, PITCH = (NR + 3) / 4 * 4 };
  const double s = ref_resolution_s[0];
  /* inverse of G by Gauss-Jordan; G is diagonally dominant enough for no pivoting */
  double g[ND][2 * ND] = {{0}}, deconv[ND * ND];
  for (int i = 0; i < ND; i++) {
    for (int j = 0; j < ND; j++)
      g[i][j] = exp(-0.5 * (i - j) * (i - j) / (s * s)) / (s * sqrt(2 * acos(-1)));
    g[i][ND + i] = 1;
  }
  for (int i = 0; i < ND; i++) {
    const double pivot = g[i][i];
    for (int j = 0; j < 2 * ND; j++)
      g[i][j] /= pivot;
    for (int r = 0; r < ND; r++) {
      const double f = g[r][i];
      for (int j = 0; r != i && j < 2 * ND; j++)
        g[r][j] -= f * g[i][j];
    }
  }
  for (int i = 0; i < ND; i++)
    for (int j = 0; j < ND; j++)
      deconv[i * ND + j] = g[i][ND + j];
  float raw[ND * NR], res[ND * PITCH];
  double base[NR];
  for (int i = 0; i < ND * NR; i++)
    raw[i] = (float)ref_resolution_raw[i];
  resolve(NR, ND, deconv, s, raw, res, base);
  for (int i = 0; i < NR; i++) {
    double sum = 0;
    for (int k = 0; k < ND; k++) {
      /* float32 rounds weights near 1, and the median sum that edge rows are scaled to. */
      assert_close((double)res[k * PITCH + i], ref_resolution_row[i * ND + k], 2.5e-7);
      sum += (double)res[k * PITCH + i];
      if (i - ND / 2 + k < 0 || i - ND / 2 + k >= NR)
        assert_close((double)res[k * PITCH + i], 0, 0);
    }
    assert_close(base[i], sum, 1e-15);
  }
}

/* A resolution row narrower than the templates becomes a weight on its own pixel, also at the arm's
 * ends.  A shift of this row becomes weights of opposite sign on the two neighbour pixels.  Wider
 * rows are deconvolved by the templates' width. */
MILL_TEST(rows_narrower_than_templates_are_the_pixel_alone)
{
  enum { NR = 90, ND = 11, H = ND / 2, PITCH = (NR + 3) / 4 * 4 };
  const double templ = 1.0; /* pixels, and that of the library */
  double identity[ND * ND] = {0};
  for (int k = 0; k < ND; k++)
    identity[k * ND + k] = 2; /* tells whether it was applied */
  for (int n_narrow = 0; n_narrow <= NR; n_narrow += 9) {
    static float raw[ND * NR], res[ND * PITCH];
    double base[NR];
    memset(raw, 0, sizeof raw);
    for (int i = 0; i < NR; i++)
      for (int k = 0; k < ND; k++) {
        /* Rows have widths of 0.8 or 1.3 pixels, shifts of 0 or +-0.5, and sums of 0.9. */
        const double width = i < n_narrow ? 0.8 : 1.3, u = (k - H - 0.5 * (i % 3 - 1)) / width;
        if (i - H + k >= 0 && i - H + k < NR)
          raw[(ND - 1 - k) * NR + i - H + k] =
              (float)(0.9 * exp(-0.5 * u * u) / (width * sqrt(2 * acos(-1))));
      }
    const mill_segment segment = resolve(NR, ND, identity, templ, raw, res, base);
    assert_int_equal(segment.info, n_narrow >= 0.1 * NR ? MILL_INFO_LSF_NARROW : 0);
    for (int i = H; i < NR - H; i++)
      for (int k = 0; k < ND; k++) {
        const double as_stored = (double)raw[(ND - 1 - k) * NR + i - H + k];
        const double shifted = abs(k - H) == 1 ? 0.25 * (k - H) * (i % 3 - 1) : 0;
        /* Sampled rows of width 0.8 sum to 0.9 (1 + 6.5e-6).  Other errors are float32's. */
        assert_close((double)res[k * PITCH + i],
                     i >= n_narrow ? 2 * as_stored : 0.9 * ((k == H) + shifted),
                     i >= n_narrow || abs(k - H) > 1 ? 1e-7 : 1e-5);
      }
    for (int i = 0; i < H; i++) { /* not judged by what is left of their rows */
      const float left = res[(H + 1) * PITCH + i], right = res[(H - 1) * PITCH + NR - 1 - i];
      assert_true(n_narrow > H ? left == 0 : left > 0);
      assert_true(n_narrow == NR ? right == 0 : right > 0);
    }
  }
}

MILL_TEST(resolution_without_a_width_is_only_turned_into_rows)
{
  enum { NR = 9, ND = 3, PITCH = (NR + 3) / 4 * 4 };
  /* All weights are 1.  Inner rows sum to 3; edge rows sum to 2 and are rescaled to 3. */
  float raw[ND * NR], res[ND * PITCH];
  double base[NR];
  for (int k = 0; k < ND; k++)
    for (int j = 0; j < NR; j++)
      raw[k * NR + j] = 1;
  resolve(NR, ND, NULL, 0, raw, res, base);
  for (int i = 0; i < NR; i++)
    assert_close(base[i], 3, 1e-6); /* float32 weights */
  /* A row of zeros becomes a weight of 1 on its own pixel, to keep continuum functions above 0. */
  memset(raw, 0, sizeof raw);
  assert_int_equal(resolve(NR, ND, NULL, 0, raw, res, base).info, MILL_INFO_LSF_UNUSABLE);
  for (int i = 0; i < NR; i++)
    assert_close(base[i], 1, 0);
}

/* A pixel counts as masked if an element of its row is not finite or the row's sum is not
 * positive.  Elements off the arm are skipped. */
MILL_TEST(a_row_that_is_not_finite_costs_its_pixel)
{
  static float raw[3 * N], res[3 * N], whole[3 * N];
  double base[N];
  for (int i = 0; i < 3 * N; i++)
    raw[i] = i / N == 1 ? 0.6f : 0.2f;
  b.s.raw_res = raw;
  b.s.res = res;
  b.s.n_diag = 3;
  check();
  assert_int_equal(b.s.n_good, N - 10); /* edge_pix on each side */
  memcpy(whole, res, sizeof whole);
  memcpy(base, b.base, sizeof base);
  /* rows 0, 20, 21 and 40 are lost; the file's diagonal 0 has the last weight of each row */
  const int lost[] = {0, 20, 21, 40};
  raw[1 * N + 0] = NAN;
  raw[0 * N + 21] = INFINITY;
  raw[1 * N + 21] = -INFINITY;
  raw[2 * N + 39] = NAN;
  raw[2 * N + N - 1] = NAN; /* off the arm */
  for (size_t k = 0; k < sizeof lost / sizeof *lost; k++)
    b.masked[lost[k]] = 1;
  check();
  assert_int_equal(b.s.n_good, N - 10 - 3);
  memset(b.masked, 0, sizeof b.masked);
  raw[2 * N + 44] = raw[1 * N + 45] = raw[0 * N + 46] = 0.0f; /* row 45 */
  mill_block_prepare(&block, &b.model, &b.s);
  assert_true(b.s.used);
  assert_int_equal(b.s.n_good, N - 10 - 4);
  for (int i = 0; i < N; i++) {
    int is_lost = 0;
    for (size_t k = 0; k < sizeof lost / sizeof *lost; k++)
      is_lost |= lost[k] == i || i == 45;
    assert_int_equal(b.good[i], !is_lost && i >= 5 && i < N - 5);
    assert_true(isfinite(b.base[i]));
    for (int k = 0; k < 3; k++) {
      assert_true(isfinite(res[k * N + i]));
      if (!is_lost)
        assert_close((double)res[k * N + i], (double)whole[k * N + i], 0);
    }
    if (!is_lost)
      assert_close(b.base[i], base[i], 0);
  }
  for (int i = 0; i < 3 * N; i++)
    raw[i] = NAN;
  mill_block_prepare(&block, &b.model, &b.s);
  assert_int_equal(b.s.n_good, 0);
  for (int i = 0; i < 3 * N; i++)
    assert_true(isfinite(res[i]));
}

/* In a coadd, columns of the matrix may be missing or too large, so that rows' sums differ.  Rows
 * are scaled to the median sum.  A row that has lost half of its weights masks its pixel. */
MILL_TEST(rows_with_other_sums_are_scaled)
{
  static const struct {
    float at_40, at_41; /* factors of columns 40 and 41; at_40 not 1: pixel 40 is masked */
    int scaled, n_good;
    double left; /* row 39: weight of pixel 38, stored as 0.2 */
  } file[] = {{1, 1, 0, N - 10, 0.2},       {1, 1.01f, 0, N - 10, 0.2},
              {1, 1.3f, 1, N - 10, 0.2},    {0, 1, 1, N - 11, 0.2 / 0.8},
              {0, 0, 1, N - 12, 0.2 / 0.8}, {5, 1, 1, N - 11, 0.2 / 1.8},
              {11, 1, 1, N - 13, 0}};
  for (size_t f = 0; f < sizeof file / sizeof *file; f++) {
    static float raw[3 * N], res[3 * N];
    begin(state);
    for (int i = 0; i < 3 * N; i++)
      raw[i] = (i / N == 1 ? 0.6f : 0.2f) *
               (i % N == 40 ? file[f].at_40 : (i % N == 41 ? file[f].at_41 : 1));
    b.mask[40] = file[f].at_40 != 1;
    b.s.raw_res = raw;
    b.s.res = res;
    b.s.n_diag = 3;
    mill_block_prepare(&block, &b.model, &b.s);
    assert_int_equal(b.s.info, file[f].scaled ? MILL_INFO_LSF_SCALED : 0);
    assert_int_equal(b.s.n_good, file[f].n_good);
    assert_close((double)res[39], file[f].left, 1e-7);
    for (int i = 0; i < N; i++)
      assert_close(b.good[i] ? b.base[i] : 1, 1, file[f].scaled ? 2e-7 : 0.007);
  }
}

/* --- line-spread function from a sigma: its rows are tested in test_lsf_row.c --- */

/** Compare rows, their sums and the pixels left out with plain sums over all pixels. */
MILL_TEST(lsf_of_a_segment)
{
  enum { ND = 13 };
  static float res[ND * N], lsf[N];
  double ln_wave[N];
  for (int i = 0; i < N; i++) {
    ln_wave[i] = log(6000) + 2.3e-4 * i;
    lsf[i] = (float)(2.3e-4 * exp(ln_wave[i]) * (0.85 + 0.6 * i / N));
  }
  lsf[0] = lsf[1] = lsf[40] = NAN;
  lsf[50] = 0;
  b.ws.ln_wave = ln_wave;
  b.s.lsf_aa = lsf;
  b.s.res = res;
  b.s.n_diag = ND;
  mill_block_prepare(&block, &b.model, &b.s);
  assert_int_equal(b.s.n_good, N - 3); /* and none for edge_pix, which is of matrices */
  for (int i = 0; i < N; i++) {
    assert_int_equal(b.good[i], !isnan(lsf[i]));
    double direct[N], sum = 0, row_sum = 0;
    for (int j = 0; j < N; j++) {
      const int left = j > 0 ? j - 1 : 0, right = j < N - 1 ? j + 1 : j;
      const double width = (exp(ln_wave[right]) - exp(ln_wave[left])) / (right - left);
      const double u = (exp(ln_wave[j]) - exp(ln_wave[i])) / (double)lsf[i];
      direct[j] = abs(j - i) > ND / 2 ? 0 : (lsf[i] > 0 ? width * exp(-0.5 * u * u) : j == i);
      if (isnan(lsf[i]) || i < 2 || i > N - 3)
        direct[j] = j == i;
      sum += direct[j];
    }
    for (int k = 0; k < ND; k++) {
      const int j = i - ND / 2 + k;
      row_sum += (double)res[k * N + i];
      if (j < 0 || j >= N)
        assert_close((double)res[k * N + i], 0, 0);
      else /* float32 */
        assert_close((double)res[k * N + i], direct[j] / sum, 6e-8);
    }
    assert_close(b.base[i], row_sum, 0);
    assert_close(row_sum, 1, 2e-7);
  }
  /* Without rows (templates need no broadening) the same pixels are left out. */
  b.s.res = NULL;
  b.s.n_diag = 0;
  mill_block_prepare(&block, &b.model, &b.s);
  assert_int_equal(b.s.n_good, N - 3);
  for (int i = 0; i < N; i++)
    assert_close(b.base[i], 1, 0);
}

MILL_EACH_TEST_MAIN(begin, NULL)
