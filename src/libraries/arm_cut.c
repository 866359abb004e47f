/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/arm_cut.h"

#include <math.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/libraries/cubic_spline.h"
#include "src/libraries/quantile.h"

#define KERNEL_SIGMA  5.0  /* wings beyond are left out: 6e-7 of the area */
#define STEP_OF_SIGMA 2.5  /* steps of the sum in a sigma, at least */
#define MIN_KERNEL    0.01 /* pixels; narrower ones change flux by less than 5e-5 of a line */

enum {
  MAX_FINE = 1 << 27, /* steps of the sum over an arm, and weights: 512 MiB */
  SPLINE_MARGIN = 16, /* points of the spline beyond the arm, so that its ends have no effect */
  STEP_QUANTILE = 20  /* the steps of a spectrum but for its shortest 1 / 20 */
};

struct mill_arm_cut {
  int n_pix;
  double ln_wave0, ln_step;
  double *kernel_aa; /* [n_pix]; NULL: none, averages only */
  double min_aa, max_aa;
  /* of the wavelengths that it is ready for */
  int n_sub;       /* steps of the sum in a pixel; 0: none yet */
  int64_t k_first; /* first step that is needed, counted from pixel 0 */
  int n_fine;
  int *first;    /* [n_pix] of the steps from k_first on */
  size_t *at;    /* [n_pix + 1] into weight */
  float *weight; /* sum 1 for each pixel */
};

static double edge(const mill_arm_cut *cut, double pixel)
{
  return exp(cut->ln_wave0 + pixel * cut->ln_step);
}

int mill_arm_cut_create(int n_pix, double ln_wave0, double ln_step, const double *kernel_aa,
                        mill_arm_cut **out)
{
  int err = MILL_OK, has_kernel = 0;
  mill_arm_cut *cut = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &cut));
  cut->n_pix = n_pix;
  cut->ln_wave0 = ln_wave0;
  cut->ln_step = ln_step;
  for (int p = 0; p < n_pix; p++)
    has_kernel |= kernel_aa[p] >= MIN_KERNEL * ln_step * edge(cut, p);
  if (has_kernel)
    MILL_TRY(MILL_ALLOC(n_pix, &cut->kernel_aa));
  cut->min_aa = edge(cut, -0.5);
  cut->max_aa = edge(cut, n_pix - 0.5);
  for (int p = 0; p < n_pix && has_kernel; p++) {
    const double s = fmax(kernel_aa[p], MIN_KERNEL * ln_step * edge(cut, p));
    cut->kernel_aa[p] = s;
    cut->min_aa = fmin(cut->min_aa, edge(cut, p - 0.5) - KERNEL_SIGMA * s);
    cut->max_aa = fmax(cut->max_aa, edge(cut, p + 0.5) + KERNEL_SIGMA * s);
  }
  *out = cut;
  cut = NULL;
done:
  mill_arm_cut_destroy(cut);
  return err;
}

void mill_arm_cut_destroy(mill_arm_cut *cut)
{
  if (cut)
    MILL_FREE(cut->kernel_aa, cut->first, cut->at, cut->weight, cut);
}

void mill_arm_cut_range(const mill_arm_cut *cut, double *min_aa, double *max_aa)
{
  *min_aa = cut->min_aa;
  *max_aa = cut->max_aa;
}

/* ---- the weights of the sum ---------------------------------------------------------------- */

/* Index of the last wavelength not above x; wave[0] <= x. */
static int find_below(int n, const double *wave, double x)
{
  int low = 0, high = n;
  while (high - low > 1) {
    const int mid = low + (high - low) / 2;
    if (wave[mid] <= x)
      low = mid;
    else
      high = mid;
  }
  return low;
}

/* Points of the spectrum that the arm needs: *n_used from *first on. */
static void used_points(const mill_arm_cut *cut, int n, const double *wave, int *first, int *n_used)
{
  const int low = find_below(n, wave, cut->min_aa) - SPLINE_MARGIN;
  const int high = find_below(n, wave, cut->max_aa) + 2 + SPLINE_MARGIN;
  *first = low > 0 ? low : 0;
  *n_used = (high < n ? high : n) - *first;
}

/* Step of the spectrum in ln wavelength. */
static int spectrum_step(int n, const double *wave, double *step)
{
  int err = MILL_OK;
  double *all = NULL;
  MILL_TRY(MILL_ALLOC(n, &all));
  for (int i = 0; i + 1 < n; i++)
    all[i] = (wave[i + 1] - wave[i]) / wave[i];
  mill_sort((size_t)n - 1, all);
  *step = all[(n - 1) / STEP_QUANTILE];
done:
  mill_free(all);
  return err;
}

/* Steps of the sum in pixel p: *first, counted from pixel 0, and how many. */
static int64_t pixel_taps(const mill_arm_cut *cut, int n_sub, int p, int64_t *first)
{
  const double step = cut->ln_step / n_sub, reach = KERNEL_SIGMA * cut->kernel_aa[p];
  const double low = log(edge(cut, p - 0.5) - reach), high = log(edge(cut, p + 0.5) + reach);
  *first = (int64_t)ceil((low - cut->ln_wave0) / step);
  return (int64_t)floor((high - cut->ln_wave0) / step) - *first + 1;
}

static void fill_weights(const mill_arm_cut *cut, int p)
{
  const double scale = 1 / (cut->kernel_aa[p] * sqrt(2)), step = cut->ln_step / cut->n_sub;
  const double lo = edge(cut, p - 0.5), hi = edge(cut, p + 0.5);
  const size_t n = cut->at[p + 1] - cut->at[p];
  float *weight = cut->weight + cut->at[p];
  const double k0 = (double)(cut->k_first + cut->first[p]);
  double sum = 0;
  for (int pass = 0; pass < 2; pass++)
    for (size_t i = 0; i < n; i++) {
      /* a step spans an interval proportional to its wavelength */
      const double x = exp(cut->ln_wave0 + (k0 + (double)i) * step);
      const double a = (hi - x) * scale, b = (lo - x) * scale;
      /* of two small tails rather than of two numbers near 1 */
      const double w = x * (b > 0 ? erfc(b) - erfc(a) : erfc(-a) - erfc(-b));
      if (pass == 0)
        sum += w;
      else
        weight[i] = (float)(w / sum);
    }
}

static int make_weights(mill_arm_cut *cut, int n_sub, int n_thread)
{
  int64_t first = 0, k_last = INT64_MIN;
  MILL_FREE(cut->first, cut->at, cut->weight);
  cut->first = NULL;
  cut->at = NULL;
  cut->weight = NULL;
  cut->n_sub = 0;
  MILL_CHECK(MILL_ALLOC(cut->n_pix, &cut->first));
  MILL_CHECK(MILL_ALLOC(cut->n_pix + 1, &cut->at));
  cut->k_first = INT64_MAX;
  for (int p = 0; p < cut->n_pix; p++) {
    const int64_t n = pixel_taps(cut, n_sub, p, &first);
    cut->k_first = first < cut->k_first ? first : cut->k_first;
    k_last = first + n - 1 > k_last ? first + n - 1 : k_last;
    cut->at[p + 1] = cut->at[p] + (size_t)n;
  }
  if (k_last - cut->k_first >= MAX_FINE || cut->at[cut->n_pix] > MAX_FINE)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "its wavelength steps, or the convolution from its resolution, are too fine "
                      "for pixels of %.3g A: %zu weights; use a coarser sampling or more pixels",
                      cut->ln_step * edge(cut, 0), cut->at[cut->n_pix]);
  cut->n_fine = (int)(k_last - cut->k_first + 1);
  MILL_CHECK(mill_alloc_raw(cut->at[cut->n_pix], sizeof *cut->weight, (void **)&cut->weight));
  cut->n_sub = n_sub;
  for (int p = 0; p < cut->n_pix; p++) {
    pixel_taps(cut, n_sub, p, &first);
    cut->first[p] = (int)(first - cut->k_first);
  }
#pragma omp parallel for schedule(static) num_threads(n_thread)
  for (int p = 0; p < cut->n_pix; p++)
    fill_weights(cut, p);
  return MILL_OK;
}

int mill_arm_cut_prepare(mill_arm_cut *cut, int n, const double *wave_aa, int n_thread)
{
  int first = 0, n_used = 0;
  double step = 0;
  if (n < 4 || !(wave_aa[0] <= cut->min_aa) || !(wave_aa[n - 1] >= cut->max_aa))
    return MILL_ERROR(
        MILL_ERR_INPUT, "its wavelengths, %.6g to %.6g A, do not cover %.6g to %.6g A",
        n > 0 ? wave_aa[0] : 0.0, n > 0 ? wave_aa[n - 1] : 0.0, cut->min_aa, cut->max_aa);
  if (!cut->kernel_aa)
    return MILL_OK;
  used_points(cut, n, wave_aa, &first, &n_used);
  MILL_CHECK(spectrum_step(n_used, wave_aa + first, &step));
  for (int p = 0; p < cut->n_pix; p++)
    step = fmin(step, cut->kernel_aa[p] / (STEP_OF_SIGMA * edge(cut, p)));
  const double n_sub = ceil(cut->ln_step / step * (1 - 1e-9));
  if (!(n_sub * cut->n_pix < MAX_FINE))
    return MILL_ERROR(MILL_ERR_INPUT, "its wavelength steps are too fine: %.3g A at %.6g A",
                      step * cut->min_aa, cut->min_aa);
  if ((int)n_sub != cut->n_sub)
    MILL_CHECK(make_weights(cut, (int)n_sub, n_thread));
  return MILL_OK;
}

/* ---- a spectrum ---------------------------------------------------------------------------- */

/* A spline through points, and a place that only moves on. */
typedef struct spline {
  int n, i;
  const double *x, *y, *bend;
} spline;

static void move_to(spline *s, double x)
{
  while (s->i < s->n - 2 && s->x[s->i + 1] <= x)
    s->i++;
}

/* Integral from point i to x, which lies in the interval after it. */
static double integral_to(const spline *s, double x)
{
  const int i = s->i;
  const double h = s->x[i + 1] - s->x[i], b = (x - s->x[i]) / h, a = 1 - b;
  const double a2 = a * a, b2 = b * b;
  return h * (0.5 * (1 - a2) * s->y[i] + 0.5 * b2 * s->y[i + 1] -
              h * h / 24 * ((1 - a2) * (1 - a2) * s->bend[i] + b2 * (2 - b2) * s->bend[i + 1]));
}

/* Averages of the spline over pixels. */
static void average(const mill_arm_cut *cut, spline s, double *out)
{
  double low_aa = edge(cut, -0.5);
  move_to(&s, low_aa);
  double below = integral_to(&s, low_aa); /* of the interval, up to the pixel's edge */
  for (int p = 0; p < cut->n_pix; p++) {
    const double high_aa = edge(cut, p + 0.5);
    double sum = -below;
    while (s.i < s.n - 2 && s.x[s.i + 1] <= high_aa) {
      sum += integral_to(&s, s.x[s.i + 1]);
      s.i++;
    }
    below = integral_to(&s, high_aa);
    out[p] = (sum + below) / (high_aa - low_aa);
    low_aa = high_aa;
  }
}

static int convolve(const mill_arm_cut *cut, spline s, int n_thread, double *out)
{
  int err = MILL_OK;
  double *fine = NULL;
  const double step = cut->ln_step / cut->n_sub;
  MILL_TRY(mill_alloc_raw((size_t)cut->n_fine, sizeof *fine, (void **)&fine));
#pragma omp parallel for schedule(static) num_threads(n_thread) firstprivate(s)
  for (int k = 0; k < cut->n_fine; k++) {
    const double x = exp(cut->ln_wave0 + (double)(cut->k_first + k) * step);
    move_to(&s, x);
    fine[k] = mill_spline_value(s.x + s.i, s.y + s.i, s.bend + s.i, x);
  }
#pragma omp parallel for schedule(static) num_threads(n_thread)
  for (int p = 0; p < cut->n_pix; p++) {
    const double *x = fine + cut->first[p];
    const float *w = cut->weight + cut->at[p];
    const size_t n = cut->at[p + 1] - cut->at[p];
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++)
      sum += (double)w[i] * x[i];
    out[p] = sum;
  }
done:
  mill_free(fine);
  return err;
}

int mill_arm_cut_apply(const mill_arm_cut *cut, int n, const double *wave_aa, const double *flux,
                       int n_thread, double *out)
{
  int err = MILL_OK, first = 0, n_used = 0;
  double *bend = NULL, *upper = NULL;
  used_points(cut, n, wave_aa, &first, &n_used);
  /* the spline skips bad points that are not needed */
  for (int i = first; wave_aa[i + 1] <= cut->min_aa; i++)
    if (!isfinite(flux[i])) {
      n_used -= i + 1 - first;
      first = i + 1;
    }
  for (int i = first + n_used - 1; wave_aa[i - 1] >= cut->max_aa; i--)
    if (!isfinite(flux[i]))
      n_used = i - first;
  const double *x = wave_aa + first, *y = flux + first;
  MILL_TRY(mill_alloc_raw((size_t)n_used, sizeof *bend, (void **)&bend));
  MILL_TRY(mill_alloc_raw((size_t)n_used, sizeof *upper, (void **)&upper));
  for (int i = 0; i < n_used; i++)
    if (!isfinite(y[i]) ||
        (!(y[i] > 0) && x[i] >= edge(cut, -0.5) && x[i] <= edge(cut, cut->n_pix - 0.5)))
      MILL_FAIL(MILL_ERR_INPUT, "its flux is %g at %.7g A", y[i], x[i]);
  mill_spline_bend(n_used, x, y, bend, upper);
  const spline s = {n_used, 0, x, y, bend};
  if (cut->kernel_aa)
    MILL_TRY(convolve(cut, s, n_thread, out));
  else
    average(cut, s, out);
done:
  MILL_FREE(bend, upper);
  return err;
}
