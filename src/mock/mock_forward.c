/* Noise-free spectra at the instrument's pixels, float64.
 *
 * Two ways, on purpose unlike each other and unlike the fit's block functions:
 * from the line model by direct quadrature, and from an emulator as the fit defines
 * its model (docs/science/numerics.md), written plainly. */
#include <math.h>
#include <string.h>

#include "kernels/math/doppler.h"
#include "kernels/base/error.h"
#include "kernels/math/linalg.h"
#include "kernels/math/rotation.h"
#include "src/libraries/cubic_spline.h"
#include "src/libraries/emulator.h"
#include "src/mock/mock_internal.h"

/* --- the line model's spectrum, rotated, shifted and seen through the instrument --- */

/** Primitive of Gray's rotation profile with limb darkening 0.6, from the centre. */
static double profile_primitive(double x)
{
  const double pi = 3.14159265358979323846, eps = MILL_LIMB_DARKENING;
  const double t = x > 1.0 ? 1.0 : (x < -1.0 ? -1.0 : x);
  const double disc = 0.5 * (t * sqrt(1.0 - t * t) + asin(t)), dark = t - t * t * t / 3.0;
  return (2.0 * (1.0 - eps) * disc + 0.5 * pi * eps * dark) / (pi * (1.0 - eps / 3.0));
}

/** Second and fourth moment of that profile. */
static void profile_moments(double *second, double *fourth)
{
  const double pi = 3.14159265358979323846, eps = MILL_LIMB_DARKENING;
  const double norm = 1.0 / (pi * (1.0 - eps / 3.0));
  /* of sqrt(1 - x^2): pi / 8, pi / 16;  of 1 - x^2: 4 / 15, 4 / 35 */
  *second = norm * (2.0 * (1.0 - eps) * pi / 8.0 + 0.5 * pi * eps * 4.0 / 15.0);
  *fourth = norm * (2.0 * (1.0 - eps) * pi / 16.0 + 0.5 * pi * eps * 4.0 / 35.0);
}

/** Half of a symmetric kernel for v sin i = r_pix grid steps; returns its half width.
 *
 *  The profile's integral over every cell of the grid.  That broadens by the cell
 *  itself, and below one step it says nothing at all; so the kernel is corrected by
 *  second and fourth differences until its second and fourth moments are the profile's.
 *  What is left is of sixth order in step over line width, for any r_pix. */
static int rotation_kernel(double r_pix, double *kernel)
{
  const int half = (int)ceil(r_pix + 0.5) + 2;
  double second, fourth, m2 = 0.0, m4 = 0.0;
  double *cell = kernel + half + 3; /* room behind: the raw integrals, zeros after them */
  profile_moments(&second, &fourth);
  for (int k = 0; k <= half + 2; k++) {
    cell[k] = r_pix > 0.0
                  ? profile_primitive((k + 0.5) / r_pix) - profile_primitive((k - 0.5) / r_pix)
                  : (k == 0 ? 1.0 : 0.0);
    m2 += 2.0 * cell[k] * (double)k * k;
    m4 += 2.0 * cell[k] * (double)k * k * k * k;
  }
  /* 1 + a d2 + b d4: d2 has moments 2 and 2, d4 has 0 and 24 */
  const double r2 = r_pix * r_pix;
  const double a = 0.5 * (second * r2 - m2);
  const double b = (fourth * r2 * r2 - m4 - 12.0 * a * m2 - 2.0 * a) / 24.0;
  for (int k = 0; k <= half; k++) {
    const double p1 = cell[k + 1], p2 = cell[k + 2];
    const double n1 = cell[k >= 1 ? k - 1 : 1 - k], n2 = cell[k >= 2 ? k - 2 : 2 - k];
    kernel[k] = cell[k] + a * (p1 - 2.0 * cell[k] + n1) +
                b * (p2 - 4.0 * p1 + 6.0 * cell[k] - 4.0 * n1 + n2);
  }
  return half;
}

enum {
  CHUNK = 512,
  /* v sin i at its limit on the line model's grid, twice over (rotation_kernel) */
  MAX_KERNEL = 2 * ((int)(MILL_MOCK_MAX_VSINI / (MILL_C_KM_S * MILL_LINE_LN_STEP)) + 12),
  MAX_LSF = 1024
};

/** out = in convolved with a symmetric kernel; the ends, which no pixel sees, as they are. */
static void convolve(int n, int half, const double *kernel, const double *in, double *out)
{
  memcpy(out, in, (size_t)n * sizeof *out);
  for (int first = half; first < n - half; first += CHUNK) {
    const int len = n - half - first < CHUNK ? n - half - first : CHUNK;
    double sum[CHUNK];
    for (int i = 0; i < len; i++)
      sum[i] = kernel[0] * in[first + i];
    for (int k = 1; k <= half; k++) {
      const double w = kernel[k], *left = in + first - k, *right = in + first + k;
      for (int i = 0; i < len; i++)
        sum[i] += w * (left[i] + right[i]);
    }
    memcpy(out + first, sum, (size_t)len * sizeof *sum);
  }
}

/** exp(-x) for 0 <= x < 700 to 3e-13 without calls or branches: two to an integer, and a
 *  series for the rest, below half of ln 2. */
static inline double exp_minus(double x)
{
  union {
    double f;
    uint64_t u;
  } v;
  const double shift = 6755399441055744.0; /* 1.5 2^52: the sum's last bits are the integer */
  v.f = x * -1.4426950408889634 + shift;
  const double k = v.f - shift;
  const double r = (-x - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10;
  double p = 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  v.u = (v.u << 52) + ((uint64_t)1023 << 52);
  return p * v.f;
}

/** Flux of a pixel: integral over wavelength of the shifted spectrum times the Gaussian,
 *  by the trapezoidal rule on the fine grid, which has eight steps or more to a sigma
 *  and is exact to rounding there.
 *
 *  at       position of the pixel's centre on the grid
 *  wave_aa  the centre, in the frame of the observer */
static double lsf_pixel(int n, const double *spectrum, double at, double wave_aa, double sigma_aa)
{
  const double h = MILL_LINE_LN_STEP;
  const double reach = MILL_MOCK_LSF_REACH * sigma_aa / wave_aa / h;
  int lo = (int)ceil(at - reach), hi = (int)floor(at + reach);
  lo = lo < 0 ? 0 : lo;
  hi = hi > n - 1 ? n - 1 : hi;
  const int m = hi - lo + 1 < MAX_LSF ? hi - lo + 1 : MAX_LSF;
  double weight[MAX_LSF], area[4] = {0.0}, flux[4] = {0.0};
  const double scale = wave_aa / sigma_aa, offset = lo - at;
  for (int j = 0; j < m; j++) {
    /* wavelength over the centre's, minus one: expm1(t), t < 2e-3 */
    const double t = (offset + j) * h;
    const double e = t * (1.0 + t * (0.5 + t * (1.0 / 6.0 + t * (1.0 / 24.0))));
    const double u = e * scale;
    weight[j] = (1.0 + e) * exp_minus(0.5 * u * u);
  }
  /* four sums, written out: their order is fixed, whatever the compiler */
  int j = 0;
  for (; j + 4 <= m; j += 4)
    for (int k = 0; k < 4; k++) {
      area[k] += weight[j + k];
      flux[k] += weight[j + k] * spectrum[lo + j + k];
    }
  for (; j < m; j++) {
    area[0] += weight[j];
    flux[0] += weight[j] * spectrum[lo + j];
  }
  return ((flux[0] + flux[1]) + (flux[2] + flux[3])) / ((area[0] + area[1]) + (area[2] + area[3]));
}

int mill_mock_forward_line_create(mill_mock_survey *survey)
{
  double min_aa = INFINITY, max_aa = 0.0;
  for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
    const mill_mock_arm *arm = &mill_mock_arm_of[a];
    min_aa = fmin(min_aa, arm->wave0_aa);
    max_aa = fmax(max_aa, arm->wave0_aa + arm->step_aa * (arm->n_pix - 1));
  }
  /* 10 A: the reach of the line-spread function and some more */
  const double margin = (MILL_MOCK_MAX_VEL + MILL_MOCK_MAX_VSINI) / MILL_C_KM_S + 1e-4;
  const double ln_min = log(min_aa - 10.0) - margin, ln_max = log(max_aa + 10.0) + margin;
  const double ln_wave0 = floor(ln_min / MILL_LINE_LN_STEP) * MILL_LINE_LN_STEP;
  return mill_line_model_create(ln_wave0, (int)ceil((ln_max - ln_wave0) / MILL_LINE_LN_STEP),
                                &survey->line);
}

int mill_mock_forward_line(const mill_mock_survey *survey, const mill_mock_star *star,
                           mill_mock_work *work, double *flux[MILL_MOCK_N_ARM])
{
  const int n = mill_line_model_n_pix(survey->line);
  const double ln_wave0 = mill_line_model_ln_wave0(survey->line);
  double label[MILL_LINE_N_LABEL], kernel[MAX_KERNEL];
  double *intrinsic = work->grid[0], *rotated = work->grid[1];
  for (int l = 0; l < MILL_LINE_N_LABEL; l++)
    label[l] = star->label[survey->label_of_line[l]];
  MILL_CHECK(mill_line_model_flux(survey->line, label, intrinsic, NULL));
  const int half = rotation_kernel(star->vsini_km_s / (MILL_C_KM_S * MILL_LINE_LN_STEP), kernel);
  convolve(n, half, kernel, intrinsic, rotated);
  const double shift = mill_doppler_ln(star->vrad_km_s) - ln_wave0;
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    for (int i = 0; i < mill_mock_arm_of[a].n_pix; i++) {
      const double wave_aa = survey->instrument.wave_aa[a][i];
      flux[a][i] = lsf_pixel(n, rotated, (log(wave_aa) + shift) / MILL_LINE_LN_STEP, wave_aa,
                             mill_mock_lsf_sigma(star->lsf_group, wave_aa));
    }
  return MILL_OK;
}

/* --- an emulator's spectrum as the fit models it --- */

int mill_mock_forward_grid(const mill_mock_survey *survey)
{
  int most = 0;
  if (survey->line)
    return mill_line_model_n_pix(survey->line);
  for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
    const int n = survey->lib->arm[survey->arm_of[a]].n_pix;
    most = n > most ? n : most;
  }
  return most;
}

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
  convolve(n, half < n / 2 ? half : n / 2, kernel, flux, out);
  for (int i = 0; i < n; i++) {
    if (i >= half && i < n - half)
      continue;
    out[i] = kernel[0] * flux[i];
    for (int k = 1; k <= half; k++)
      out[i] += kernel[k] * (flux[i >= k ? i - k : 0] + flux[i + k < n ? i + k : n - 1]);
  }
}

/** The spline at ascending observed wavelengths times shift. */
static void spline_eval(int n, const double *x, const double *y, const double *second, int n_pix,
                        const double *wave_aa, double shift, double *out)
{
  for (int p = 0, i = 0; p < n_pix; p++) {
    const double at = wave_aa[p] * shift;
    while (i < n - 2 && x[i + 1] <= at)
      i++;
    out[p] = mill_spline_value(x + i, y + i, second + i, at);
  }
}

int mill_mock_forward_emulator(const mill_mock_survey *survey, const mill_mock_star *star,
                               mill_mock_work *work, double *flux[MILL_MOCK_N_ARM])
{
  const double beta = star->vrad_km_s / MILL_C_KM_S, shift = sqrt((1.0 - beta) / (1.0 + beta));
  double *intrinsic = work->grid[0], *rotated = work->grid[1], *second = work->grid[2];
  for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
    const mill_arm *arm = &survey->lib->arm[survey->arm_of[a]];
    const int n_pix = mill_mock_arm_of[a].n_pix, h = MILL_MOCK_N_DIAG / 2;
    const double *row = survey->rows[star->lsf_group][a];
    double *pixel = row ? work->pixel : flux[a];
    MILL_CHECK(mill_emulator_eval(survey->lib, survey->arm_of[a], star->label, intrinsic));
    rotate(arm, star->vsini_km_s, intrinsic, rotated);
    mill_spline_bend(arm->n_pix, arm->wave_aa, rotated, second, intrinsic);
    spline_eval(arm->n_pix, arm->wave_aa, rotated, second, n_pix, survey->instrument.wave_aa[a],
                shift, pixel);
    for (int i = 0; i < n_pix && row; i++) {
      double sum = 0.0;
      for (int k = 0; k < MILL_MOCK_N_DIAG; k++)
        if (i - h + k >= 0 && i - h + k < n_pix)
          sum += row[(size_t)i * MILL_MOCK_N_DIAG + (size_t)k] * pixel[i - h + k];
      flux[a][i] = sum;
    }
  }
  return MILL_OK;
}
