/* SPDX-License-Identifier: BSD-3-Clause */
/* The model error of residuals whose components, rest and noise are known. */
#include "tests/mill_test.h"

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/math/hull.h"
#include "src/libraries/emulator.h"
#include "src/libraries/model_error.h"
#include "src/system/random.h"
#include "tests/test_library.h"

enum { N = 400, N_PIX = 600, SEED = 16 };

static double wave_aa[N_PIX];

typedef struct made {
  mill_residuals residuals;
  double *value;
  mill_model_error error;
  mill_model_error_report report;
} made;

static made fx;

/** Spectra with two patterns of widths 0.02 and 0.01, a rest of width 0.004 that is smoothed by a
 *  Gaussian of smooth_pix, noise, and a continuum of their own. */
static void begin(double smooth_pix, double noise)
{
  memset(&fx, 0, sizeof fx);
  assert_int_equal(MILL_ALLOC((size_t)N * N_PIX, &fx.value), MILL_OK);
  for (int p = 0; p < N_PIX; p++)
    wave_aa[p] = 4000 * exp(1e-4 * p);
  for (int i = 0; i < N; i++) {
    mill_random random;
    double raw[N_PIX + 80], weight[81], norm = 0;
    mill_random_begin(&random, SEED, (uint64_t)i, 1);
    const double a = 0.02 * mill_random_normal(&random), b = 0.01 * mill_random_normal(&random);
    const double tilt = 0.2 * mill_random_normal(&random);
    for (int p = 0; p < N_PIX + 80; p++)
      raw[p] = mill_random_normal(&random);
    for (int k = -40; k <= 40; k++) {
      weight[k + 40] = smooth_pix > 0 ? exp(-0.5 * k * k / (smooth_pix * smooth_pix)) : k == 0;
      norm += weight[k + 40] * weight[k + 40];
    }
    for (int p = 0; p < N_PIX; p++) {
      double rest = 0;
      for (int k = 0; k <= 80; k++)
        rest += weight[k] * raw[p + k] / sqrt(norm);
      const double model = 1 + a * sqrt(2) * sin(0.4 * p) + b * sqrt(2) * cos(0.9 * p + 1) +
                           0.004 * rest + noise * mill_random_normal(&random);
      const double x = 2.0 * p / (N_PIX - 1) - 1;
      fx.value[(size_t)i * N_PIX + (size_t)p] = model * (1.3 + tilt * x - 0.1 * x * x) - 1;
    }
  }
  fx.residuals = (mill_residuals){.n = N, .n_pix = N_PIX, .value = fx.value, .noise = noise};
}

static void measure(int n_component)
{
  if (mill_model_error_measure(wave_aa, &fx.residuals, n_component, &fx.error, &fx.report) !=
      MILL_OK)
    fail_msg("%s", mill_error_message());
}

static void end(void)
{
  mill_model_error_clear(&fx.error);
  mill_free(fx.value);
}

static double mean_fraction(void)
{
  double sum = 0;
  for (int p = 0; p < N_PIX; p++)
    sum += (double)fx.error.fraction[p] * (double)fx.error.fraction[p] / N_PIX;
  return sqrt(sum);
}

/* Of 400 spectra a width is known to 1/sqrt(800) = 3.5 %; three of that. */
MILL_TEST(components_and_rest_are_found)
{
  for (int noisy = 0; noisy < 2; noisy++) {
    begin(0, noisy ? 0.01 : 0);
    measure(2);
    assert_int_equal(fx.error.n_component, 2);
    assert_close(fx.error.sigma[0], 0.02, 0.1 * 0.02);
    assert_close(fx.error.sigma[1], 0.01, 0.1 * 0.01);
    for (int j = 0; j < 2; j++) {
      /* the pattern, but for its sign; noise of a hundredth in 400 spectra of width 0.01 leaves
       * 1/20 of the pattern's rms in a pixel */
      double with = 0;
      for (int p = 0; p < N_PIX; p++)
        with += (double)fx.error.component[(size_t)j * N_PIX + (size_t)p] * sqrt(2) *
                (j ? cos(0.9 * p + 1) : sin(0.4 * p)) / N_PIX;
      assert_close(fabs(with), 1, 0.02);
    }
    /* 600 pixels of 400 spectra: the mean is known much better than a pixel is, but noise of 2.5
     * times the rest is taken out of its square, and the continuum has ten of the pixels */
    assert_close(mean_fraction(), 0.004, noisy ? 0.1 * 0.004 : 0.03 * 0.004);
    assert_close(fx.error.correlation, 1, 0.15);
    assert_close(fx.report.rms, sqrt(5e-4 + 1.6e-5), 0.1 * 0.0227);
    assert_close(fx.report.left, 1.6e-5 / 5.16e-4, 0.2 * 0.031);
    end();
  }
}

/* The sum of the correlation of a Gaussian of sigma s is 2 sqrt(pi) s, 7 and 14 pixels of 600.  The
 * continuum takes out ten degrees of freedom and with them the longest waves, of which the sum is
 * made: up to 10 / 600 for each of the pixels that are correlated. */
MILL_TEST(correlation_is_that_of_the_smoothing)
{
  for (int s = 2; s <= 4; s += 2) {
    begin(s, 0.005);
    measure(2);
    const double expected = 2 * sqrt(acos(-1.0)) * s;
    assert_close(fx.error.correlation, expected, (0.05 + expected / 60) * expected);
    assert_close(mean_fraction(), 0.004, 0.15 * 0.004);
    end();
  }
}

MILL_TEST(unknown_pixels_do_not_count)
{
  begin(0, 0);
  for (int i = 0; i < N; i++)
    for (int p = 0; p < N_PIX; p++)
      if (p >= N_PIX - 50 || (i + p) % 10 == 0)
        fx.value[(size_t)i * N_PIX + (size_t)p] = NAN;
  measure(0);
  /* all of the error is in the fraction; where no spectrum has a pixel it is that of the arm */
  assert_close(mean_fraction(), 0.0227, 0.1 * 0.0227);
  assert_close((double)fx.error.fraction[N_PIX - 10], 0.0227, 0.1 * 0.0227);
  assert_int_equal(fx.error.n_component, 0);
  end();
}

MILL_TEST(too_little_is_refused)
{
  begin(0, 0);
  fx.residuals.n = 15;
  assert_fails(mill_model_error_measure(wave_aa, &fx.residuals, 8, &fx.error, &fx.report),
               MILL_ERR_INPUT, "needs at least 16");
  assert_null(fx.error.fraction);
  fx.residuals.n = N;
  assert_int_equal(
      mill_model_error_measure(wave_aa, &fx.residuals, MILL_MAX_ERROR + 1, &fx.error, &fx.report),
      MILL_ERR_RANGE);
  end();
}

/* The cores of ten lines with a fiftieth of the light, in which the ratio of spectrum and template
 * is off by 100 %, take no component from the two patterns of 2 and 1 %; without the level they
 * take both.  The components are relative to the template all the same. */
MILL_TEST(cores_of_lines_take_no_component)
{
  for (int with_level = 0; with_level < 2; with_level++) {
    double level[N_PIX], with = 0, rms = 0;
    begin(0, 0);
    for (int p = 0; p < N_PIX; p++)
      level[p] = p % 60 == 30 ? 0.02 : 1;
    for (int i = 0; i < N; i++)
      for (int p = 30; p < N_PIX; p += 60)
        fx.value[(size_t)i * N_PIX + (size_t)p] += i % 2 ? 1 : -1;
    fx.residuals.level = with_level ? level : NULL;
    measure(2);
    for (int p = 0; p < N_PIX; p++) {
      if (p % 60 != 30)
        with += (double)fx.error.component[p] * sqrt(2) * sin(0.4 * p);
      rms += level[p] * (double)fx.error.component[p] * level[p] * (double)fx.error.component[p];
    }
    /* as in test_components_and_rest_are_found, but for the pixels of the cores */
    const double match = fabs(with) / sqrt(N_PIX * rms);
    if (with_level) {
      assert_close(match, 1, 0.04);
      assert_close(fx.error.sigma[0], 0.02, 0.15 * 0.02);
    } else {
      assert_true(match < 0.5);
    }
    end();
  }
}

/* Beyond the spectra there is no component, and the fraction is the whole error of the quarter that
 * is nearest, with that of its components: 3 % in the blue half, 1 % in the red one, by chance, and
 * a pattern of 2 % in both. */
MILL_TEST(errors_beyond_the_spectra_are_those_nearby)
{
  for (int n_component = 0; n_component < 2; n_component++) {
    begin(0, 0);
    for (int i = 0; i < N; i++) {
      mill_random random;
      mill_random_begin(&random, SEED, (uint64_t)i, 2);
      const double share = n_component * 0.02 * mill_random_normal(&random);
      for (int p = 0; p < N_PIX; p++)
        fx.value[(size_t)i * N_PIX + (size_t)p] =
            p < 60 || p >= N_PIX - 120
                ? NAN
                : share * sqrt(2) * sin(0.4 * p) +
                      (p < N_PIX / 2 ? 0.03 : 0.01) * mill_random_normal(&random);
    }
    fx.residuals.n_continuum = 4;
    measure(n_component);
    /* of 400 spectra and a hundred pixels, less a few for the continuum; the width of the pattern
     * is known to 3.5 % */
    const double blue = hypot(0.03, n_component * 0.02), red = hypot(0.01, n_component * 0.02);
    assert_close((double)fx.error.fraction[5], blue, (0.03 + 0.04 * n_component) * blue);
    assert_close((double)fx.error.fraction[N_PIX - 5], red, (0.03 + 0.07 * n_component) * red);
    assert_close((double)fx.error.fraction[N_PIX - 150], 0.01, 0.15 * 0.01);
    end();
  }
  begin(0, 0);
  fx.residuals.n_continuum = MILL_MAX_CONT + 1;
  assert_int_equal(mill_model_error_measure(wave_aa, &fx.residuals, 2, &fx.error, &fx.report),
                   MILL_ERR_RANGE);
  end();
}

/* A spectrum of the templates themselves at the labels [3], in another unit, convolved with a
 * Gaussian of sigma_aa by a sum over the arm's pixels. */
static void spectrum_of_template(const mill_library *lib, double *label, double sigma_aa,
                                 float *flux)
{
  const mill_arm *arm = &lib->arm[0];
  double *templ = NULL;
  for (int l = 0; l < 3; l++)
    label[l] = mill_label_unmap(&lib->label[l], 0.3);
  assert_int_equal(MILL_ALLOC(arm->n_pix, &templ), MILL_OK);
  assert_int_equal(mill_emulator_eval(lib, 0, label, templ), MILL_OK);
  for (int p = 0; p < arm->n_pix; p++) {
    double sum = 0, norm = 0;
    for (int q = 0; q < arm->n_pix && sigma_aa > 0; q++) {
      const double x = (arm->wave_aa[q] - arm->wave_aa[p]) / sigma_aa;
      const double g = exp(-0.5 * x * x) * arm->wave_aa[q]; /* pixels in ln wavelength */
      sum += g * templ[q];
      norm += g;
    }
    flux[p] = (float)(7 * (sigma_aa > 0 ? sum / norm : templ[p]));
  }
  mill_free(templ);
}

/* No residual, and none where the flux is not known. */
MILL_TEST(residuals_of_the_templates_are_none)
{
  mill_library *lib = NULL;
  mill_residuals residuals = {0};
  float *flux = NULL;
  double label[3];
  assert_int_equal(MILL_ALLOC(1, &lib), MILL_OK);
  assert_int_equal(test_library_make(3, 1, 5, lib), MILL_OK);
  const int n = lib->arm[0].n_pix;
  assert_int_equal(MILL_ALLOC(n, &flux), MILL_OK);
  spectrum_of_template(lib, label, 0, flux);
  flux[100] = NAN;
  assert_int_equal(
      mill_model_error_residuals(lib, 0, 1, n, lib->arm[0].wave_aa, flux, label, 0, &residuals),
      MILL_OK);
  const double *value = residuals.value;
  for (int p = 0; p < n; p++)
    if (p > 1 && p < n - 3 && (p < 98 || p > 102))
      assert_close(value[p], 0, 1e-6); /* float32 flux; its level is the mean of both */
  assert_true(isnan(value[100]) && isnan(value[0]) && isnan(value[n - 1]));
  MILL_FREE(residuals.value, residuals.level, flux);
  mill_library_clear(lib);
  mill_free(lib);
}

/* Spectra that are four pixels broader: what is left of a residual of 1 % and more is the average
 * over a pixel, 1 / 12 of a pixel squared beside 16, which the spectrum here lacks. */
MILL_TEST(templates_get_the_resolution_of_the_spectra)
{
  mill_library *lib = NULL;
  float *flux = NULL;
  double label[3], largest[2] = {0};
  assert_int_equal(MILL_ALLOC(1, &lib), MILL_OK);
  assert_int_equal(test_library_make(3, 1, 5, lib), MILL_OK);
  const mill_arm *arm = &lib->arm[0];
  const double kernel_aa = 4 * arm->ln_step * arm->wave_aa[arm->n_pix / 2];
  assert_int_equal(MILL_ALLOC(arm->n_pix, &flux), MILL_OK);
  spectrum_of_template(lib, label, kernel_aa, flux);
  for (int smooth = 0; smooth < 2; smooth++) {
    mill_residuals residuals = {0};
    assert_int_equal(mill_model_error_residuals(lib, 0, 1, arm->n_pix, arm->wave_aa, flux, label,
                                                smooth * kernel_aa, &residuals),
                     MILL_OK);
    if (smooth) /* five sigma of four pixels */
      assert_true(isnan(residuals.value[20]) && isnan(residuals.value[arm->n_pix - 21]));
    for (int p = 30; p < arm->n_pix - 30; p++)
      largest[smooth] = fmax(largest[smooth], fabs(residuals.value[p]));
    MILL_FREE(residuals.value, residuals.level);
  }
  assert_true(largest[0] > 0.01);
  assert_true(largest[1] < 0.02 * largest[0]);
  mill_residuals none = {0};
  assert_int_equal(mill_model_error_residuals(lib, 0, 1, arm->n_pix, arm->wave_aa, flux, label,
                                              0.1 * arm->wave_aa[0], &none),
                   MILL_ERR_INPUT);
  assert_null(none.value);
  mill_free(flux);
  mill_library_clear(lib);
  mill_free(lib);
}

int main(void)
{
  printf("seed %d\n", SEED);
  return MILL_RUN_TESTS(NULL, NULL);
}
