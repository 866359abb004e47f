#include "src/libraries/spectra_work.h"

#include <math.h>
#include <string.h>

#include <cblas.h>

#include "kernels/base/error.h"
#include "src/libraries/point_hull.h"

int mill_spectra_find_pixels(const mill_spectra_library_settings *set,
                             const mill_labelled_spectra *in, int *first, int *n)
{
  int err = MILL_OK;
  int low = 0, high = in->n_pix;
  for (int i = 0; i < in->n_pix; i++)
    if (!isfinite(in->wave_aa[i]) || !(in->wave_aa[i] > 0) ||
        (i > 0 && !(in->wave_aa[i] > in->wave_aa[i - 1])))
      MILL_FAIL(MILL_ERR_INPUT, "wavelength %d of the spectra is %g A; they must ascend", i,
                in->wave_aa[i]);
  while (low < high && in->wave_aa[low] < set->min_aa)
    low++;
  while (high > low && in->wave_aa[high - 1] > set->max_aa)
    high--;
  if (high - low < MILL_SPECTRA_MIN_PIX)
    MILL_FAIL(MILL_ERR_INPUT,
              "%d pixels between %g and %g A, at least %d are needed; the spectra have %d from "
              "%.2f to %.2f A in vacuum",
              high - low, set->min_aa, set->max_aa, MILL_SPECTRA_MIN_PIX, in->n_pix, in->wave_aa[0],
              in->wave_aa[in->n_pix - 1]);
  *first = low;
  *n = high - low;
done:
  return err;
}

int mill_spectra_fate_of(const mill_spectra_library_settings *set, const mill_labelled_spectra *in,
                         int first, int n, int i)
{
  const double *label = in->label + (size_t)i * (size_t)in->n_label;
  const float *flux = in->flux + (size_t)i * (size_t)in->n_pix;
  for (int l = 0; l < in->n_label; l++)
    if (!isfinite(label[l]))
      return MILL_SPECTRUM_NO_LABEL;
  for (int l = 0; l < in->n_label; l++)
    if (!(label[l] >= set->label[l].min) || !(label[l] <= set->label[l].max))
      return MILL_SPECTRUM_OUTSIDE;
  for (int p = first; p < first + n; p++)
    if (!isfinite(flux[p]) || !(flux[p] > 0))
      return MILL_SPECTRUM_BAD_FLUX;
  return MILL_SPECTRUM_USED;
}

/* Pixels from the first to the last whose longest unbroken run is good in every spectrum that has
   labels, *low .. *high - 1; none: equal. */
static void common_range(const mill_labelled_spectra *in, const unsigned char *fate, int *low,
                         int *high)
{
  *low = *high = 0;
  for (int p = 0, start = 0; p < in->n_pix; p++) {
    int good = 1;
    for (int i = 0; i < in->n_spectrum && good; i++) {
      const float flux = in->flux[(size_t)i * (size_t)in->n_pix + (size_t)p];
      if (fate[i] == MILL_SPECTRUM_USED || fate[i] == MILL_SPECTRUM_BAD_FLUX)
        good = isfinite(flux) && flux > 0;
    }
    if (!good)
      start = p + 1;
    else if (p + 1 - start > *high - *low) {
      *low = start;
      *high = p + 1;
    }
  }
}

int mill_spectra_too_few(const mill_labelled_spectra *in, const mill_spectra_report *report, int n)
{
  int err = MILL_OK, low, high;
  char help[100] = "";
  common_range(in, report->fate, &low, &high);
  if (report->n_fate[MILL_SPECTRUM_BAD_FLUX] > 0 && high - low >= MILL_SPECTRA_MIN_PIX)
    snprintf(help, sizeof help, "; all pixels are good with --range %.2f,%.2f", in->wave_aa[low],
             in->wave_aa[high - 1]);
  MILL_FAIL(MILL_ERR_INPUT,
            "%d spectra can be used, at least %d are needed; of %d, %d lack a label, %d are "
            "outside the range to keep, and %d have a pixel that is not finite or not above 0%s",
            n, MILL_SPECTRA_MIN, in->n_spectrum, report->n_fate[MILL_SPECTRUM_NO_LABEL],
            report->n_fate[MILL_SPECTRUM_OUTSIDE], report->n_fate[MILL_SPECTRUM_BAD_FLUX], help);
done:
  return err;
}

/* The library's arm: uniform in ln lambda from the first pixel on, with the input's finest step
   (its only one when it is uniform in ln lambda itself: then its pixels are kept as they are). */
static int make_arm(const mill_spectra_library_settings *set, const double *wave_aa, int n,
                    mill_arm *arm)
{
  int err = MILL_OK;
  double step = INFINITY;
  for (int i = 1; i < n; i++)
    step = fmin(step, log(wave_aa[i] / wave_aa[i - 1]));
  const double span = log(wave_aa[n - 1] / wave_aa[0]);
  /* one step for a grid that is uniform but for rounding */
  if (span / step - (n - 1) < 0.01)
    step = span / (n - 1);
  const double n_pix = floor(span / step * (1 + 1e-12)) + 1;
  if (n_pix > MILL_SPECTRA_MAX_PIX)
    MILL_FAIL(MILL_ERR_INPUT,
              "wavelengths whose finest step would make %.3g pixels; %d are possible", n_pix,
              MILL_SPECTRA_MAX_PIX);
  snprintf(arm->name, sizeof arm->name, "%s", set->arm);
  snprintf(arm->setup, sizeof arm->setup, "%s", set->arm);
  snprintf(arm->sigma_origin, sizeof arm->sigma_origin, "%s", set->sigma_origin);
  snprintf(arm->source, sizeof arm->source, "%s", set->source);
  snprintf(arm->revision, sizeof arm->revision, "spectra1");
  arm->template_sigma_aa = set->template_sigma_aa;
  arm->n_pix = (int)n_pix;
  arm->ln_wave0 = log(wave_aa[0]);
  arm->ln_step = step;
  MILL_TRY(MILL_ALLOC(arm->n_pix, &arm->wave_aa));
  for (int i = 0; i < arm->n_pix; i++)
    arm->wave_aa[i] = exp(arm->ln_wave0 + i * step);
done:
  return err;
}

/* Second derivatives of the natural cubic spline through (x, y); work [n]. */
static void spline_bend(int n, const double *x, const double *y, double *bend, double *upper)
{
  bend[0] = upper[0] = 0;
  for (int i = 1; i < n - 1; i++) {
    const double left = x[i] - x[i - 1], right = x[i + 1] - x[i];
    const double rhs = 6 * ((y[i + 1] - y[i]) / right - (y[i] - y[i - 1]) / left);
    const double pivot = 2 * (left + right) - left * upper[i - 1];
    upper[i] = right / pivot;
    bend[i] = (rhs - left * bend[i - 1]) / pivot;
  }
  bend[n - 1] = 0;
  for (int i = n - 2; i > 0; i--)
    bend[i] -= upper[i] * bend[i + 1];
}

static double spline_value(const double *x, const double *y, const double *bend, double at)
{
  const double h = x[1] - x[0], b = (at - x[0]) / h, a = 1 - b;
  return a * y[0] + b * y[1] + ((a * a * a - a) * bend[0] + (b * b * b - b) * bend[1]) * h * h / 6;
}

/* Legendre polynomials in wavelength, orthonormal on the grid, basis [n_basis][n_pix]. */
static void make_continuum(const mill_arm *arm, int n_basis, double *basis)
{
  const size_t n = (size_t)arm->n_pix;
  const double mid = 0.5 * (arm->wave_aa[0] + arm->wave_aa[n - 1]);
  const double half = 0.5 * (arm->wave_aa[n - 1] - arm->wave_aa[0]);
  for (size_t k = 0; k < (size_t)n_basis; k++) {
    double *b = basis + k * n;
    for (size_t i = 0; i < n; i++) {
      const double x = (arm->wave_aa[i] - mid) / half, m = (double)k - 1;
      b[i] = k == 0 ? 1 : (k == 1 ? x : ((2 * m + 1) * x * b[i - n] - m * b[i - 2 * n]) / (m + 1));
    }
  }
  for (int pass = 0; pass < 2; pass++) /* the second one takes the rounding of the first */
    for (size_t k = 0; k < (size_t)n_basis; k++) {
      double *b = basis + k * n;
      for (size_t j = 0; j < k; j++)
        cblas_daxpy((int)n, -cblas_ddot((int)n, basis + j * n, 1, b, 1), basis + j * n, 1, b, 1);
      cblas_dscal((int)n, 1 / cblas_dnrm2((int)n, b, 1), b, 1);
    }
}

/* ln flux of one spectrum on the grid; 1 when the spline dips to or below 0. */
static int resample(int n, const double *wave, const double *flux, double *bend, double *upper,
                    const mill_arm *arm, double *y)
{
  spline_bend(n, wave, flux, bend, upper);
  for (int i = 0, at = 0; i < arm->n_pix; i++) {
    while (at < n - 2 && wave[at + 1] <= arm->wave_aa[i])
      at++;
    const double value = spline_value(wave + at, flux + at, bend + at, arm->wave_aa[i]);
    if (!(value > 0))
      return 1;
    y[i] = log(value);
  }
  return 0;
}

int mill_spectra_make_grid(const mill_labelled_spectra *in, int first, int n_in, mill_arm *arm,
                           unsigned char *fate, mill_spectra_work *w)
{
  int err = MILL_OK;
  const int n_basis = w->set->continuum + 1;
  double *flux = NULL, *bend = NULL, *upper = NULL, *basis = NULL, *sorted = NULL;
  MILL_TRY(make_arm(w->set, in->wave_aa + first, n_in, arm));
  const size_t n = (size_t)arm->n_pix;
  MILL_TRY(MILL_ALLOC(n_in, &flux));
  MILL_TRY(MILL_ALLOC(n_in, &bend));
  MILL_TRY(MILL_ALLOC(n_in, &upper));
  MILL_TRY(MILL_ALLOC((size_t)(n_basis > 0 ? n_basis : 1) * n, &basis));
  MILL_TRY(MILL_ALLOC(n, &sorted));
  MILL_TRY(MILL_ALLOC((size_t)w->n * n, &w->y));
  make_continuum(arm, n_basis, basis);
  int n_good = 0;
  for (int i = 0; i < w->n; i++) {
    double *y = w->y + (size_t)n_good * n;
    const float *from = in->flux + (size_t)w->row[i] * (size_t)in->n_pix + first;
    double level = 0; /* so that no unit of flux is too small or too large */
    for (int p = 0; p < n_in; p++)
      level += (double)from[p] / n_in;
    for (int p = 0; p < n_in; p++)
      flux[p] = (double)from[p] / level;
    if (resample(n_in, in->wave_aa + first, flux, bend, upper, arm, y)) {
      fate[w->row[i]] = MILL_SPECTRUM_BAD_FLUX;
      continue;
    }
    for (int k = 0; k < n_basis; k++)
      cblas_daxpy((int)n, -cblas_ddot((int)n, basis + (size_t)k * n, 1, y, 1),
                  basis + (size_t)k * n, 1, y, 1);
    memcpy(sorted, y, n * sizeof *y);
    const double median = mill_quantile(n, 0.5, sorted);
    for (size_t p = 0; p < n; p++)
      y[p] -= median;
    w->row[n_good++] = w->row[i];
  }
  w->n = n_good;
  w->n_pix = arm->n_pix;
done:
  MILL_FREE(flux, bend, upper, basis, sorted);
  return err;
}
