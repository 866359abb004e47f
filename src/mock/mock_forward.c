/* SPDX-License-Identifier: BSD-3-Clause */
/* Noise-free spectra at the instrument's pixels: the fit's model (docs/science/numerics.md) in
 * float64, written plainly and unlike the fit's block functions. */
#include <math.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/math/linalg.h"
#include "kernels/math/rotation.h"
#include "src/libraries/cubic_spline.h"
#include "src/libraries/emulator.h"
#include "src/mock/mock_internal.h"

/** One arm's rows: the templates' sigma taken out, rows at the ends rescaled so that
 *  their weights inside the arm sum to the median row's. */
static int arm_rows(int n, const float *resolution, double sigma_pix, double *row)
{
  enum { N = MILL_MOCK_N_DIAG, H = N / 2 };
  int err = MILL_OK;
  double g[N * N];
  float *sum = NULL;
  MILL_TRY(MILL_ALLOC(n, &sum));
  for (int k = 0; k < N; k++)
    for (int l = 0; l < N; l++)
      g[k * N + l] = exp(-0.5 * (k - l) * (k - l) / (sigma_pix * sigma_pix)) /
                     (sigma_pix * sqrt(2.0 * acos(-1.0)));
  if (sigma_pix > 0.0 && mill_cholesky(N, g, N) != 0)
    MILL_FAIL(MILL_ERR_LIBRARY,
              "the templates' sigma of %.3g pixels cannot be taken out of a resolution matrix",
              sigma_pix);
  for (int i = 0; i < n; i++) {
    double *x = row + (size_t)i * N, total = 0.0;
    for (int k = 0; k < N; k++) {
      const int j = i - H + k;
      x[k] =
          j >= 0 && j < n ? (double)resolution[(size_t)(N - 1 - k) * (size_t)n + (size_t)j] : 0.0;
    }
    if (sigma_pix > 0.0)
      mill_cholesky_solve(N, g, N, x);
    for (int k = 0; k < N; k++)
      total += x[k];
    sum[i] = (float)total;
  }
  const double median = mill_mock_median(n, sum);
  for (int i = 0; i < n; i++) {
    double *x = row + (size_t)i * N, inside = 0.0;
    for (int k = 0; k < N; k++)
      inside += i - H + k >= 0 && i - H + k < n ? x[k] : 0.0;
    const double factor = i < H || i >= n - H ? median / inside : 1.0;
    for (int k = 0; k < N; k++)
      x[k] = i - H + k >= 0 && i - H + k < n ? factor * x[k] : 0.0;
  }
done:
  mill_free(sum);
  return err;
}

int mill_mock_forward_rows(mill_mock_survey *survey)
{
  for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
    const mill_arm *arm = &survey->lib->arm[survey->arm_of[a]];
    const mill_mock_arm *info = &mill_mock_arm_of[a];
    if (arm->template_sigma_aa < 0.0)
      continue;
    for (int g = 0; g < MILL_MOCK_N_LSF; g++) {
      MILL_CHECK(MILL_ALLOC((size_t)info->n_pix * MILL_MOCK_N_DIAG, &survey->rows[g][a]));
      MILL_CHECK(arm_rows(info->n_pix, survey->instrument.resolution[g][a],
                          arm->template_sigma_aa / info->step_aa, survey->rows[g][a]));
    }
  }
  return MILL_OK;
}

/** Rotation on the template's own grid with the fit's weights, the smooth kind whatever
 *  a fit will use, because the truth table promises a physical v sin i; renormalised.
 *  Beyond the ends, where no pixel looks, the last value. */
static void rotate(const mill_arm *arm, double vsini_km_s, const double *flux, double *out)
{
  const double r_pix = vsini_km_s / (MILL_C_KM_S * arm->ln_step);
  const int n = arm->n_pix;
  int half = mill_rotation_half_width(MILL_ROT_SPLINE, r_pix);
  double kernel[MILL_MAX_ROTATION + 1], total = 0.0, slope;
  half = half > MILL_MAX_ROTATION ? MILL_MAX_ROTATION : half;
  for (int k = 0; k <= half; k++) {
    mill_rotation_weight(MILL_ROT_SPLINE, r_pix, k, &kernel[k], &slope);
    total += k ? 2.0 * kernel[k] : kernel[k];
  }
  for (int k = 0; k <= half; k++)
    kernel[k] /= total;
  for (int i = 0; i < n; i++)
    out[i] = kernel[0] * flux[i];
  for (int k = 1; k <= half; k++) {
    const int inner = k < n - k ? n - k : k;
    for (int i = 0; i < k && i < n; i++)
      out[i] += kernel[k] * (flux[0] + flux[i + k < n ? i + k : n - 1]);
    for (int i = k; i < inner; i++)
      out[i] += kernel[k] * (flux[i - k] + flux[i + k]);
    for (int i = inner; i < n; i++)
      out[i] += kernel[k] * (flux[i - k] + flux[n - 1]);
  }
}

/** Multiply a template by one plus a draw of its model error: the components with the star's
 * shares, and with correlated the rest, a stationary Gaussian process whose rms is the fraction and
 * whose correlation falls by the same factor from pixel to pixel.  The sum of that correlation over
 * all lags, (1 + factor) / (1 - factor), is what the library has measured. */
static void add_error(const mill_arm *arm, const double *share, int correlated, mill_random *r,
                      double *flux)
{
  const mill_model_error *e = &arm->error;
  const double factor = fmax(e->correlation - 1.0, 0.0) / (e->correlation + 1.0);
  const double step = sqrt(1.0 - factor * factor);
  double rest = mill_random_normal(r);
  for (int i = 0; i < arm->n_pix; i++) {
    double error = correlated ? (double)e->fraction[i] * rest : 0.0;
    for (int k = 0; k < e->n_component; k++)
      error +=
          share[k] * e->sigma[k] * (double)e->component[(size_t)k * (size_t)arm->n_pix + (size_t)i];
    flux[i] *= 1.0 + error;
    rest = factor * rest + step * mill_random_normal(r);
  }
}

/** The rest of the model error as a fit counts it: noise of each pixel that is independent of the
 *  others', with the power that the correlated error has at long wavelengths. */
static void add_white_rest(const mill_arm *arm, int n_pix, const double *wave_aa, double shift,
                           mill_random *r, double *flux)
{
  const double power = arm->error.correlation * arm->ln_step;
  for (int i = 0; i < n_pix; i++) {
    const double at = (log(wave_aa[i] * shift) - arm->ln_wave0) / arm->ln_step;
    const int k = (int)fmin(fmax(at, 0.0), arm->n_pix - 2.0);
    const double u = fmin(fmax(at - k, 0.0), 1.0);
    const double fraction =
        (1.0 - u) * (double)arm->error.fraction[k] + u * (double)arm->error.fraction[k + 1];
    const double width = (wave_aa[1] - wave_aa[0]) / wave_aa[i]; /* in ln wavelength */
    flux[i] *= 1.0 + fraction * sqrt(power / width) * mill_random_normal(r);
  }
}

/** The spline at ascending observed wavelengths times shift; the end's value beyond the ends. */
static void spline_eval(int n, const double *x, const double *y, const double *second, int n_pix,
                        const double *wave_aa, double shift, double *out)
{
  for (int p = 0, i = 0; p < n_pix; p++) {
    const double at = fmin(fmax(wave_aa[p] * shift, x[0]), x[n - 1]);
    while (i < n - 2 && x[i + 1] <= at)
      i++;
    out[p] = mill_spline_value(x + i, y + i, second + i, at);
  }
}

int mill_mock_forward(const mill_mock_survey *survey, const mill_mock_star *star,
                      mill_mock_work *work, double *flux[MILL_MOCK_N_ARM])
{
  const double beta = star->vrad_km_s / MILL_C_KM_S, shift = sqrt((1.0 - beta) / (1.0 + beta));
  double *intrinsic = work->grid[0], *rotated = work->grid[1], *second = work->grid[2];
  for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
    const mill_arm *arm = mill_mock_library_arm(survey, a);
    const int n_pix = mill_mock_arm_of[a].n_pix, h = MILL_MOCK_N_DIAG / 2;
    const double *row = survey->rows[star->lsf_group][a], *wave_aa = survey->instrument.wave_aa[a];
    const int error = arm->error.fraction ? survey->set.model_error : MILL_MOCK_ERROR_NONE;
    double *pixel = row ? work->pixel : flux[a];
    mill_random r;
    MILL_CHECK(mill_emulator_eval(survey->lib, survey->arm_of[a], star->label, intrinsic));
    rotate(arm, star->vsini_km_s, intrinsic, rotated);
    mill_random_begin(&r, survey->set.seed, (uint64_t)star->index,
                      MILL_MOCK_RANDOM_REST + (uint32_t)a);
    if (error != MILL_MOCK_ERROR_NONE)
      add_error(arm, star->share[a], error == MILL_MOCK_ERROR_CORRELATED, &r, rotated);
    mill_spline_bend(arm->n_pix, arm->wave_aa, rotated, second, intrinsic);
    spline_eval(arm->n_pix, arm->wave_aa, rotated, second, n_pix, wave_aa, shift, pixel);
    for (int i = 0; i < n_pix && row; i++) {
      double sum = 0.0;
      for (int k = 0; k < MILL_MOCK_N_DIAG; k++)
        if (i - h + k >= 0 && i - h + k < n_pix)
          sum += row[(size_t)i * MILL_MOCK_N_DIAG + (size_t)k] * pixel[i - h + k];
      flux[a][i] = sum;
    }
    if (error == MILL_MOCK_ERROR_AS_FITTED)
      add_white_rest(arm, n_pix, wave_aa, shift, &r, flux[a]);
  }
  return MILL_OK;
}
