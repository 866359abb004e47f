/* SPDX-License-Identifier: BSD-3-Clause */
/* Compare projection, derivatives and residuals of one segment with least squares by LAPACK's QR.
 * Numbers of pixels are near multiples of MILL_CHUNK, the pixels that a block takes at a time. */
#include "tests/mill_test.h"

#include "kernels/math/cells.h"
#include "kernels/star/blocks/likelihood.h"
#include "tests/kernels/math/block_bench.h"
#include "tests/kernels/math/blocks_f32.h"

enum { SEED = 555, ANSWER = MILL_N_PROFILE + 64 };

static block_bench b;
static uint64_t rng;

/** Make a segment of n pixels: nk continuum functions, random templ [n], data with noise. */
static void make(int n, int nk, double *templ)
{
  block_bench_init(&b, 200, log(4000.0), 8e-5, n, nk, 2);
  b.s.sum_ln_var = 0;
  b.s.dd = 0;
  for (int i = 0; i < n; i++) {
    const double x = n > 1 ? 2.0 * i / (n - 1) - 1 : 0;
    for (int k = 0; k < nk; k++)
      b.cont[k * mill_row_pitch(n) + i] =
          (float)mill_continuum(nk > 12 ? MILL_CONT_CHEBYSHEV : MILL_CONT_RBF, nk, k, x);
    templ[i] = (double)(float)(0.3 * test_library_random(&rng));
    b.is[i] = (float)(10 + 5 * test_library_random(&rng));
    b.base[i] = 1 + 0.01 * test_library_random(&rng);
    b.d[i] =
        (float)((double)b.is[i] * (b.base[i] + templ[i]) * (2 + x) + test_library_random(&rng));
    b.good[i] = i % 7 != 3;
    b.s.sum_ln_var -= 2 * log((double)b.is[i]);
    b.s.dd += (double)b.d[i] * (double)b.d[i];
  }
}

/** Solve the same least squares by QR.  Return F; store the continuum's coefficients a [nk]. */
static double dense(const double *templ, double level, double ln_scale, int marginal, double *a)
{
  const int n = b.s.n_pix, nk = b.model.set.n_cont;
  static double s[BENCH_PIX * MILL_MAX_CONT], design[BENCH_PIX * MILL_MAX_CONT];
  static double rhs[BENCH_PIX];
  double f = b.s.sum_ln_var;
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < nk; k++)
      design[i * nk + k] = s[i * nk + k] = (double)b.cont[k * mill_row_pitch(n) + i] *
                                           (double)b.is[i] *
                                           (level * b.base[i] + (templ ? templ[i] : 0));
    rhs[i] = (double)b.d[i];
  }
  assert_int_equal(LAPACKE_dgels(LAPACK_ROW_MAJOR, 'N', n, nk, 1, s, nk, rhs, 1), 0);
  for (int k = 0; k < nk; k++) {
    a[k] = rhs[k];
    if (marginal)
      f += 2 * log(fabs(s[k * nk + k])) + 2 * ln_scale;
  }
  for (int i = 0; i < n; i++) {
    double r = (double)b.d[i];
    for (int k = 0; k < nk; k++)
      r -= design[i * nk + k] * a[k];
    f += r * r;
  }
  return f;
}

MILL_TEST(projection_matches_least_squares)
{
  static const int size[] = {24, 31, 33, 63, 64, 65, 127, 128, 129, 300};
  static const int cont[] = {1, 3, 5, 10, MILL_MAX_CONT};
  rng = SEED;
  for (size_t i = 0; i < sizeof size / sizeof *size; i++)
    for (size_t k = 0; k < sizeof cont / sizeof *cont; k++)
      for (int kind = 0; kind < 2; kind++) {
        double templ[BENCH_PIX], a[MILL_MAX_CONT];
        float templ32[BENCH_PIX];
        if (2 * cont[k] > size[i])
          continue;
        make(size[i], cont[k], templ);
        for (int p = 0; p < size[i]; p++)
          templ32[p] = (float)templ[p]; /* exact */
        b.model.set.likelihood = kind;
        for (int flat = 0; flat < 2; flat++) {
          const double level = flat ? 1 : 0.9, ln_scale = flat ? 0 : 1.3;
          const double expected =
              dense(flat ? NULL : templ, level, ln_scale, kind == MILL_LIKE_MARGINAL, a);
          const double f64 = mill_block_project(&b.block, &b.model, &b.s, flat ? NULL : templ,
                                                level, ln_scale, &b.work);
          /* |D|^2 - |L^-1 S^T D|^2 loses the digits of |D|^2, 1e5 here */
          assert_close(f64, expected, 1e-12 * b.s.dd + 1e-9);
          for (int c = 0; c < cont[k]; c++)
            /* normal equations: the square of the condition of the design */
            assert_close(b.work.solve[c], a[c], 1e-6 * (1 + fabs(a[c])));
          const double f32 = blocks_f32.project(&b.block, &b.model, &b.s, flat ? NULL : templ32,
                                                level, ln_scale, &b.work);
          /* sums are float64 in both */
          assert_close(f32, f64, 1e-15 * b.s.dd);
        }
      }
}

/* F less mill_unit_part, by which fits are judged, is the same in any unit of the flux. */
MILL_TEST(unit_of_flux_cancels)
{
  const int n = 300;
  double templ[BENCH_PIX], rest[2][2];
  rng = SEED;
  make(n, 10, templ);
  b.s.n_good = 0; /* also without a good pixel */
  for (int unit = 0; unit < 2; unit++) {
    for (int kind = 0; kind < 2; kind++) {
      b.model.set.likelihood = kind;
      rest[unit][kind] = mill_block_project(&b.block, &b.model, &b.s, templ, 1.0, 0.0, &b.work) -
                         mill_unit_part(&b.model, &b.s);
    }
    for (int i = 0; i < n; i++) /* flux and sigma 2^60 times larger: exact in float32 */
      b.is[i] *= 0x1p-60f;
    b.s.sum_ln_var += 2 * n * 60 * M_LN2;
  }
  for (int kind = 0; kind < 2; kind++)
    assert_close(rest[1][kind], rest[0][kind], 1e-12 * b.s.dd + 1e-9); /* rounding, as above */
}

/** Tangents of float64 rows over the pixels. */
static void jacobian(double *answer)
{
  mill_block_resolve(&b.block, &b.s, b.model.n_deriv + 1, b.model.max_seg_pix,
                     mill_sharp_rows(&b.s, &b.work), (double *)b.work.smooth);
  mill_block_jacobian(&b.block, &b.model, &b.s, 0, &b.work, answer);
}

/** Curvature of rows j and l in an answer of n parameters. */
static double curve(const double *answer, int n, int j, int l)
{
  return l > j ? curve(answer, n, l, j) : answer[MILL_ANSWER_TANGENTS + n + j * (j + 1) / 2 + l];
}

/** Gradient and curvature with float32 templates (continuum by polynomials over cells) against
 *  float64 templates (continuum by stored functions). */
static void compare_derivatives(int n, const double *templ)
{
  static double f32[ANSWER], f64[ANSWER];
  double row[BENCH_ROW][BENCH_PIX];
  const int np = b.model.n_par;
  for (int r = 0; r <= np; r++)
    for (int i = 0; i < n; i++)
      row[r][i] = r == 0 ? templ[i] : (double)(float)(0.3 * test_library_random(&rng));
  for (int r = 0; r <= np; r++)
    for (int i = 0; i < n; i++)
      b.pixel[r * BENCH_PIX + i] = row[r][i];
  jacobian(f64);
  for (int r = 0; r <= np; r++)
    for (int i = 0; i < n; i++)
      ((float *)b.pixel)[r * BENCH_PIX + i] = (float)row[r][i];
  blocks_f32.jacobian(&b.block, &b.model, &b.s, 0, &b.work, f32);
  for (int j = 0; j < np; j++) {
    /* float32 rows are off by 1e-7, amplified by residuals at S/N 30.  The tolerance is relative
     * to the largest gradient that is possible, sqrt(hess dd). */
    assert_close(f32[MILL_ANSWER_TANGENTS + j], f64[MILL_ANSWER_TANGENTS + j],
                 1e-6 * sqrt(curve(f64, np, j, j) * b.s.dd));
    for (int l = 0; l < np; l++)
      assert_close(curve(f32, np, j, l), curve(f64, np, j, l),
                   1e-5 * sqrt(curve(f64, np, j, j) * curve(f64, np, l, l)));
  }
}

/** For float32 templates polynomials over cells of pixels replace the stored continuum functions
 *  (kernels/math/cells.h).  Least squares with these functions in float64 give the same. */
MILL_TEST(cells_of_pixels_give_the_same_projection)
{
  static const struct {
    int n_pix, n_cont, kind, cell;
    double power; /* wavelengths are even (0), or even in ln wavelength (1) */
  } c[] = {{63, 3, MILL_CONT_RBF, 64, 0},        {64, 3, MILL_CONT_RBF, 64, 0},
           {65, 3, MILL_CONT_RBF, 64, 1},        {300, 1, MILL_CONT_RBF, 64, 1},
           {300, 5, MILL_CONT_CHEBYSHEV, 64, 0}, {299, 5, MILL_CONT_RBF, 16, 0},
           {300, 5, MILL_CONT_RBF, 16, 1},       {300, 10, MILL_CONT_CHEBYSHEV, 0, 0},
           {300, 10, MILL_CONT_RBF, 0, 0}};
  static double coef[(BENCH_PIX / MILL_CELL_LEAST + 1) * MILL_CELL_COEF * MILL_CELL_MAX_PITCH];
  static double power[MILL_CELL_MOMENTS * MILL_CELL_MOST], wave[BENCH_PIX];
  rng = SEED;
  for (size_t t = 0; t < sizeof c / sizeof *c; t++) {
    double templ[BENCH_PIX], a[MILL_MAX_CONT];
    float templ32[BENCH_PIX];
    const int n = c[t].n_pix, nk = c[t].n_cont;
    make(n, nk, templ);
    for (int i = 0; i < n; i++)
      wave[i] = c[t].power > 0 ? 4000 * exp(1e-4 * i) : 4000 + 0.8 * i;
    for (int i = 0; i < n; i++) {
      templ32[i] = (float)templ[i];
      for (int k = 0; k < nk; k++)
        b.cont[k * mill_row_pitch(n) + i] = (float)mill_continuum(
            c[t].kind, nk, k, 2 * (wave[i] - wave[0]) / (wave[n - 1] - wave[0]) - 1);
    }
    int cell = MILL_CELL_MOST;
    for (; cell >= MILL_CELL_LEAST; cell /= 2) {
      mill_cell_powers(cell, power);
      if (mill_cell_fit(c[t].kind, nk, n, wave, cell, power, coef))
        break;
    }
    cell = cell < MILL_CELL_LEAST ? 0 : cell;
    assert_int_equal(cell, c[t].cell);
    b.ws.cell = cell;
    b.ws.cell_coef = coef;
    b.ws.cell_power = power;
    for (int flat = 0; flat < 2; flat++) {
      const double level = flat ? 1 : 0.9;
      const double expected =
          dense(flat ? NULL : templ, level, 0, b.model.set.likelihood == MILL_LIKE_MARGINAL, a);
      const double f32 =
          blocks_f32.project(&b.block, &b.model, &b.s, flat ? NULL : templ32, level, 0, &b.work);
      /* If functions are off by e, a pixel's part of F moves by 2 e r S a to first order: there
       * are 300 pixels of S/N S = 30, with residuals r of 3 and coefficients a up to 10. */
      assert_close(f32, expected, 2 * (MILL_CELL_ERROR + 6e-8) * 300 * 30 * 3 * 10);
      for (int k = 0; k < nk; k++)
        assert_close(b.work.solve[k], a[k], 1e-5 * (1 + fabs(a[k])));
    }
    for (int kind = 0; kind < 2; kind++) {
      b.model.set.likelihood = kind;
      compare_derivatives(n, templ);
    }
  }
}

MILL_TEST(projection_that_has_no_answer_is_infinite)
{
  enum { DARK, NAN_TEMPLATE, INFINITE_TEMPLATE, NAN_DATA, ONE_PIXEL, N_KIND };
  double templ[BENCH_PIX];
  rng = SEED;
  for (int kind = 0; kind < N_KIND; kind++) {
    make(100, 5, templ);
    for (int i = 0; i < 100; i++) {
      if (kind == DARK)
        templ[i] = -b.base[i];
      if (kind == ONE_PIXEL && i > 0) /* for five functions */
        b.is[i] = 0;
    }
    if (kind == NAN_TEMPLATE || kind == INFINITE_TEMPLATE)
      templ[50] = kind == NAN_TEMPLATE ? (double)NAN : (double)INFINITY;
    if (kind == NAN_DATA)
      b.d[3] = NAN;
    assert_true(mill_block_project(&b.block, &b.model, &b.s, templ, 1, 0, &b.work) ==
                (double)INFINITY);
  }
}

MILL_TEST(residuals_count_good_pixels)
{
  double templ[BENCH_PIX], a[MILL_MAX_CONT], chisq, negative, largest;
  rng = SEED;
  make(130, 5, templ);
  b.d[10] = -300; /* i % 7 == 3: a bad pixel */
  b.d[11] = 900;
  b.s.dd = 0;
  for (int i = 0; i < 130; i++)
    b.s.dd += (double)b.d[i] * (double)b.d[i];
  dense(templ, 1, 0, 0, a);
  assert_true(isfinite(mill_block_project(&b.block, &b.model, &b.s, templ, 1, 0, &b.work)));
  mill_block_residual(&b.block, &b.s, templ, 1, 1, &b.work, &chisq, &negative, &largest);
  double expected = 0, worst = 0, below = 0;
  for (int i = 0; i < 130; i++) {
    double poly = 0;
    for (int k = 0; k < 5; k++)
      poly += a[k] * (double)b.cont[k * mill_row_pitch(130) + i];
    const double flux = poly * (b.base[i] + templ[i]), model = flux * (double)b.is[i];
    const double r = (double)b.d[i] - model;
    assert_close((double)b.model_flux[i], flux, 2e-7 * fabs(flux)); /* float32 */
    if (!b.good[i])
      continue;
    expected += r * r;
    worst = fmax(worst, r * r);
    below += model < 0 ? model * model : 0;
  }
  assert_close(chisq, expected, 1e-9 * expected);
  assert_close(largest, worst, 1e-9 * worst);
  assert_close(negative, below, 1e-9 * (1 + below));
  assert_close(below, 0, 0);
  for (int i = 0; i < 130; i++)
    b.d[i] = -b.d[i];
  mill_block_project(&b.block, &b.model, &b.s, templ, 1, 0, &b.work);
  mill_block_residual(&b.block, &b.s, templ, 1, 0, &b.work, &chisq, &negative, &largest);
  assert_close(chisq, expected, 1e-9 * expected);
  assert_true(negative > 1000);
}

/* The gain is the drop of chi-square if each block of pixels gets a least-squares factor. */
MILL_TEST(gain_is_that_of_a_factor_for_each_block)
{
  enum { N = 503, NK = 3, N_BLOCK = MILL_STIFF_BLOCKS * NK };
  double templ[BENCH_PIX], chisq, negative, largest, gain, n_block, expected = 0;
  rng = SEED;
  make(N, NK, templ);
  mill_block_project(&b.block, &b.model, &b.s, templ, 1, 0, &b.work);
  mill_block_residual(&b.block, &b.s, templ, 1, 1, &b.work, &chisq, &negative, &largest);
  for (int i = 0; i < N; i++) { /* a wave that three functions cannot follow, and a gap */
    b.d[i] *= (float)(1 + 0.1 * sin(0.03 * i));
    b.good[i] = b.good[i] && (i < 41 || i >= 84);
  }
  mill_block_residual(&b.block, &b.s, templ, 1, 1, &b.work, &chisq, &negative, &largest);
  mill_block_gain(&b.block, &b.s, &gain, &n_block);
  for (int k = 0; k < N_BLOCK; k++) {
    double with = 0, without = 0, model[BENCH_PIX], factor, up = 0, down = 0;
    const int first = N * k / N_BLOCK, end = N * (k + 1) / N_BLOCK;
    for (int i = first; i < end; i++) {
      model[i] = 0;
      for (int j = 0; j < NK; j++)
        model[i] += b.work.solve[j] * (double)b.cont[j * mill_row_pitch(N) + i];
      model[i] *= (b.base[i] + templ[i]) * (double)b.is[i];
      up += b.good[i] ? model[i] * (double)b.d[i] : 0;
      down += b.good[i] ? model[i] * model[i] : 0;
    }
    factor = down > 0 ? up / down : 0;
    for (int i = first; i < end; i++)
      if (b.good[i]) {
        without += pow((double)b.d[i] - model[i], 2);
        with += pow((double)b.d[i] - factor * model[i], 2);
      }
    expected += without - with;
  }
  /* block 1 is the gap; model / sigma is kept as float32 */
  assert_close(n_block, N_BLOCK - 1, 0);
  assert_close(gain, expected, 1e-6 * expected);
  assert_true(gain > 0.5 * chisq);
}

enum { PAIR_PIX = 100, PAIR_DERIV = 4 };

/** Return F and derivatives of a pair.  star (0, 1): the one whose parameters come first. */
static double both_stars(double (*row)[PAIR_DERIV + 1][PAIR_PIX], double ln_ratio, int star,
                         double *answer)
{
  static float companion[(PAIR_DERIV + 1) * PAIR_PIX];
  b.s.pair = companion;
  b.s.paired = 1 + star;
  b.s.pair_ln_ratio = star == 0 ? ln_ratio : -ln_ratio;
  for (int r = 0; r <= PAIR_DERIV; r++)
    for (int i = 0; i < PAIR_PIX; i++) {
      b.pixel[r * BENCH_PIX + i] = row[star][r][i];
      companion[r * PAIR_PIX + i] = (float)(row[1 - star][r][i] + (r == 0 ? b.base[i] : 0));
    }
  jacobian(answer);
  return answer[MILL_ANSWER_F];
}

MILL_TEST(derivatives_of_two_stars)
{
  enum { N = 2 * PAIR_DERIV + 1 };
  static double answer[2][ANSWER], moved[ANSWER];
  double row[2][PAIR_DERIV + 1][PAIR_PIX];
  const double h = 1e-4, ln_ratio = -0.7;
  rng = SEED;
  make(PAIR_PIX, 5, row[0][0]);
  b.model.set.likelihood = MILL_LIKE_MARGINAL;
  b.model.arm[0].log_flux = 1;
  b.work.mean[0] = 0.2;
  b.s.pair_ln = 0.2;
  b.s.res = NULL;
  for (int star = 0; star < 2; star++)
    for (int r = 0; r <= PAIR_DERIV; r++)
      for (int i = 0; i < PAIR_PIX && r + star > 0; i++) /* multiples of 2^-12: exact, moved too */
        row[star][r][i] = round(4096 * 0.3 * test_library_random(&rng)) / 4096;
  for (int star = 0; star < 2; star++)
    both_stars(row, ln_ratio, star, answer[star]);
  /* The companion's rows are float32, off by 1e-7.  Gradients are compared in units of the largest
   * gradient possible, sqrt(hess dd) (dd: sum of (flux / sigma)^2). */
  const double *at = answer[0] + MILL_ANSWER_TANGENTS, *other = answer[1] + MILL_ANSWER_TANGENTS;
  const double most = curve(answer[0], N, PAIR_DERIV, PAIR_DERIV), unit = sqrt(most * b.s.dd);
  assert_close(answer[0][MILL_ANSWER_F], answer[1][MILL_ANSWER_F], 1e-7 * unit);
  for (int star = 0; star < 2; star++) { /* fluxes: sums over good pixels */
    double flux = 0;
    for (int i = 0; i < PAIR_PIX; i++)
      flux += b.good[i] ? exp(star * ln_ratio) * (row[star][0][i] + b.base[i]) : 0;
    assert_close(at[N + N * (N + 1) / 2 + star], flux, 1e-6 * flux);
  }
  for (int j = 0; j < N; j++) {
    const int is_ratio = j == N - 1, star = is_ratio ? 0 : j / PAIR_DERIV, k = j % PAIR_DERIV;
    double f[2];
    for (int side = 0; side < 2; side++) {
      const double step = side ? h : -h;
      double to[2][PAIR_DERIV + 1][PAIR_PIX];
      memcpy(to, row, sizeof to);
      for (int i = 0; i < PAIR_PIX && !is_ratio; i++)
        to[star][0][i] += step * row[star][k + 1][i];
      f[side] = both_stars(to, is_ratio ? ln_ratio + step : ln_ratio, star, moved);
    }
    const double slope = (f[1] - f[0]) / (2 * h);
    assert_close(at[j], slope, 1e-5 * unit);
    assert_close(other[is_ratio ? j : (1 - star) * PAIR_DERIV + k], slope, 1e-5 * unit);
  }
  /* the same curvature, with both stars' parameters exchanged */
  for (int j = 0; j < N - 1; j++)
    for (int k = 0; k <= j; k++)
      assert_close(curve(answer[1], N, (j + PAIR_DERIV) % (N - 1), (k + PAIR_DERIV) % (N - 1)),
                   curve(answer[0], N, j, k), 1e-6 * most);
}

/* A finite value's derivatives are in tests/fit/test_gradient.c. */
MILL_TEST(infinite_value_has_no_derivatives)
{
  static double answer[ANSWER];
  double templ[BENCH_PIX];
  rng = SEED;
  make(100, 5, templ);
  for (int i = 0; i < BENCH_ROW * BENCH_PIX; i++)
    b.pixel[i] = 0.3 * test_library_random(&rng);
  for (int i = 1; i < 100; i++)
    b.is[i] = 0;
  memset(answer, 0xff, sizeof answer);
  jacobian(answer);
  assert_true(answer[MILL_ANSWER_F] == (double)INFINITY);
  for (int j = 0; j < b.model.n_par; j++)
    assert_close(answer[MILL_ANSWER_TANGENTS + j], 0, 0);
}

static void find_share(mill_block *block, void *slot)
{
  b.s.n_share = mill_block_n_share(block, slot, &b.s);
}

/** Rounding does not make a lone exposure share its error: its evidence would be NaN. */
MILL_TEST(a_lone_exposure_shares_no_error)
{
  double ln_wave[2] = {log(3600), 0}, vel[MILL_N_PROFILE] = {0};
  mill_waveset set = {.ln_wave = ln_wave};
  mill_slot slot = {.segment = &b.s, .n_segment = 1, .vel = vel};
  for (int i = 0; i < 300; i++) {
    b.s = (mill_segment){.used = 1, .ws = &set, .n_pix = 2, .n_good = 2000 + i, .sn = 3 + 0.37 * i};
    ln_wave[1] = log(5800 + i);
    mill_block_run(find_share, &slot);
    assert_true(b.s.n_share == 1.0);
  }
}

/** Exposures of equal weight share the error: all four, or an epoch's two (fix_error 2). */
MILL_TEST(exposures_share_the_error)
{
  double ln_wave[2] = {log(3600), log(5800)}, vel[4 * MILL_N_PROFILE] = {0};
  mill_waveset set = {.ln_wave = ln_wave};
  mill_segment exposure[4];
  mill_slot slot = {.segment = exposure, .n_segment = 4, .vel = vel};
  for (int i = 0; i < 4; i++)
    exposure[i] =
        (mill_segment){.used = 1, .ws = &set, .n_pix = 2, .n_good = 2000, .sn = 20, .epoch = i / 2};
  b.s = exposure[0];
  for (slot.fix_error = 1; slot.fix_error <= 2; slot.fix_error++) {
    mill_block_run(find_share, &slot);
    assert_close(b.s.n_share, slot.fix_error == 1 ? 4 : 2, 1e-12);
  }
}

MILL_SEEDED_TEST_MAIN(SEED, NULL, NULL)
