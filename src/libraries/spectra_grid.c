/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/spectra_work.h"

#include <math.h>
#include <string.h>

#include <cblas.h>
#include <lapacke.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/libraries/cubic_spline.h"
#include "src/libraries/library_make.h"
#include "src/libraries/quantile.h"

int mill_spectra_find_pixels(const mill_spectra_library_settings *set,
                             const mill_labelled_spectra *in, int *first, int *n)
{
  int low = 0, high = in->n_pix;
  for (int i = 0; i < in->n_pix; i++)
    if (!isfinite(in->wave_aa[i]) || !(in->wave_aa[i] > 0) ||
        (i > 0 && !(in->wave_aa[i] > in->wave_aa[i - 1])))
      return MILL_ERROR(MILL_ERR_INPUT, "wavelength %d of the spectra is %g A; they must ascend", i,
                        in->wave_aa[i]);
  while (low < high && in->wave_aa[low] < set->min_aa)
    low++;
  while (high > low && in->wave_aa[high - 1] > set->max_aa)
    high--;
  if (high - low < MILL_SPECTRA_MIN_PIX)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "%d pixels between %g and %g A, at least %d are needed; the spectra have %d from "
        "%.2f to %.2f A in vacuum",
        high - low, set->min_aa, set->max_aa, MILL_SPECTRA_MIN_PIX, in->n_pix, in->wave_aa[0],
        in->wave_aa[in->n_pix - 1]);
  *first = low;
  *n = high - low;
  return MILL_OK;
}

/* Part of a spectrum's pixels that may be bad: they are filled. */
#define MAX_GAP 0.2

static int is_good(float flux)
{
  return isfinite(flux) && flux > 0;
}

int mill_spectra_fate_of(const mill_spectra_library_settings *set, const mill_labelled_spectra *in,
                         int first, int n, int i)
{
  const double *label = in->label + (size_t)i * (size_t)in->n_label;
  const float *flux = in->flux + (size_t)i * (size_t)in->n_pix;
  int n_bad = 0;
  for (int l = 0; l < in->n_label; l++)
    if (!isfinite(label[l]))
      return MILL_SPECTRUM_NO_LABEL;
  for (int l = 0; l < in->n_label; l++)
    if (!(label[l] >= set->label[l].min) || !(label[l] <= set->label[l].max))
      return MILL_SPECTRUM_OUTSIDE;
  for (int p = first; p < first + n; p++)
    n_bad += !is_good(flux[p]);
  return n_bad > MAX_GAP * n ? MILL_SPECTRUM_BAD_FLUX : MILL_SPECTRUM_USED;
}

/* Longest run of pixels that are good in every spectrum that has labels, *low .. *high - 1; none:
   equal. */
static void common_range(const mill_labelled_spectra *in, const unsigned char *fate, int *low,
                         int *high)
{
  *low = *high = 0;
  for (int p = 0, start = 0; p < in->n_pix; p++) {
    int good = 1;
    for (int i = 0; i < in->n_spectrum && good; i++)
      if (fate[i] == MILL_SPECTRUM_USED || fate[i] == MILL_SPECTRUM_BAD_FLUX)
        good = is_good(in->flux[(size_t)i * (size_t)in->n_pix + (size_t)p]);
    if (!good)
      start = p + 1;
    else if (p + 1 - start > *high - *low) {
      *low = start;
      *high = p + 1;
    }
  }
}

/* Advice on bad pixels; empty when nothing helps. */
static void range_help(const mill_spectra_report *report, size_t size, char *text)
{
  text[0] = '\0';
  if (report->good_max_aa > 0)
    snprintf(text, size, "; all pixels are good with --range %.2f,%.2f", report->good_min_aa,
             report->good_max_aa);
}

int mill_spectra_check_pixels(const mill_labelled_spectra *in, int first, int n,
                              mill_spectra_report *report)
{
  int low, high, n_labelled = 0;
  char help[100];
  common_range(in, report->fate, &low, &high);
  report->good_min_aa = report->good_max_aa = 0;
  if (high - low >= MILL_SPECTRA_MIN_PIX) {
    report->good_min_aa = in->wave_aa[low];
    report->good_max_aa = in->wave_aa[high - 1];
  }
  range_help(report, sizeof help, help);
  for (int i = 0; i < in->n_spectrum; i++)
    n_labelled +=
        report->fate[i] == MILL_SPECTRUM_USED || report->fate[i] == MILL_SPECTRUM_BAD_FLUX;
  for (int p = first; p < first + n; p++) {
    int n_bad = 0;
    for (int i = 0; i < in->n_spectrum; i++)
      n_bad +=
          (report->fate[i] == MILL_SPECTRUM_USED || report->fate[i] == MILL_SPECTRUM_BAD_FLUX) &&
          !is_good(in->flux[(size_t)i * (size_t)in->n_pix + (size_t)p]);
    if (2 * n_bad > n_labelled)
      return MILL_ERROR(
          MILL_ERR_INPUT,
          "at %.2f A %d of %d spectra have a pixel that is not finite or not above 0%s",
          in->wave_aa[p], n_bad, n_labelled, help);
  }
  return MILL_OK;
}

int mill_spectra_too_few(const mill_spectra_report *report, int n)
{
  char help[100] = "";
  if (report->n_fate[MILL_SPECTRUM_BAD_FLUX] > 0)
    range_help(report, sizeof help, help);
  return MILL_ERROR(
      MILL_ERR_INPUT,
      "%d spectra can be used, at least %d are needed; of %d, %d lack a label, %d are "
      "outside the range to keep, and in %d more than a fifth of the pixels are not finite "
      "or not above 0%s",
      n, MILL_SPECTRA_MIN, report->n_spectrum, report->n_fate[MILL_SPECTRUM_NO_LABEL],
      report->n_fate[MILL_SPECTRUM_OUTSIDE], report->n_fate[MILL_SPECTRUM_BAD_FLUX], help);
}

/* The library's arm: uniform in ln lambda from the first pixel on, with the input's finest step
   (its only one when it is uniform in ln lambda itself: then its pixels are kept as they are). */
static int make_arm(const mill_spectra_library_settings *set, const double *wave_aa, int n,
                    mill_arm *arm)
{
  double step = INFINITY;
  for (int i = 1; i < n; i++)
    step = fmin(step, log(wave_aa[i] / wave_aa[i - 1]));
  const double span = log(wave_aa[n - 1] / wave_aa[0]);
  /* one step for a grid that is uniform but for rounding */
  if (span / step - (n - 1) < 0.01)
    step = span / (n - 1);
  const double n_pix = floor(span / step * (1 + 1e-12)) + 1;
  if (n_pix > MILL_SPECTRA_MAX_PIX)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "the finest step of the wavelengths makes %.3g pixels, at most %d", n_pix,
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
  return mill_arm_make_waves(arm);
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

/* Input range of a spectrum, and work space. */
typedef struct source {
  int low, n;                  /* pixels of the input */
  const double *wave;          /* [n] */
  double *flux, *bend, *upper; /* [n] */
  unsigned char *bad;          /* [n] */
} source;

/* Flux of row i over its mean, bad pixels filled in linearly. */
static void take_flux(const mill_labelled_spectra *in, int i, source *s)
{
  const float *from = in->flux + (size_t)i * (size_t)in->n_pix + s->low;
  double level = 0; /* so that no unit of flux is too small or too large */
  int n_good = 0, last = -1;
  for (int p = 0; p < s->n; p++) {
    s->bad[p] = (unsigned char)!is_good(from[p]);
    n_good += !s->bad[p];
  }
  for (int p = 0; p < s->n; p++)
    level += s->bad[p] ? 0 : (double)from[p] / n_good;
  for (int p = 0; p < s->n; p++) {
    if (s->bad[p])
      continue;
    s->flux[p] = (double)from[p] / level;
    for (int k = last + 1; k < p; k++)
      s->flux[k] = last < 0
                       ? s->flux[p]
                       : s->flux[last] + (s->flux[p] - s->flux[last]) * (k - last) / (p - last);
    last = p;
  }
  for (int k = last + 1; k < s->n; k++)
    s->flux[k] = s->flux[last];
}

/* ln flux on the grid of a spectrum whose wavelengths are longer by a factor, and where there is
   none: near bad pixels, beyond the ends, or where the spline dips to or below 0.  Returns how
   many. */
static int resample(source *s, double factor, const mill_arm *arm, double *y, unsigned char *gap)
{
  int n_gap = 0;
  mill_spline_bend(s->n, s->wave, s->flux, s->bend, s->upper);
  for (int i = 0, at = 0; i < arm->n_pix; i++) {
    const double wave = factor == 1 ? arm->wave_aa[i] : arm->wave_aa[i] * factor;
    while (at < s->n - 2 && s->wave[at + 1] <= wave)
      at++;
    const double value = mill_spline_value(s->wave + at, s->flux + at, s->bend + at, wave);
    int bad = !(value > 0);
    for (int p = at > 0 ? at - 1 : 0; p < s->n && p <= at + 2; p++)
      bad |= s->bad[p];
    if (factor != 1)
      bad |= wave < s->wave[0] || wave > s->wave[s->n - 1];
    gap[i] = (unsigned char)bad;
    y[i] = bad ? 0 : log(value);
    n_gap += bad;
  }
  return n_gap;
}

/* Take the continuum out of y, from the good pixels alone. */
static int remove_continuum(size_t n, int n_basis, const double *basis, int n_gap,
                            const unsigned char *gap, double *y)
{
  enum { MAX = MILL_SPECTRA_LIBRARY_MAX_CONTINUUM + 1 };
  double normal[MAX * MAX], coef[MAX];
  if (n_gap == 0) {
    for (int k = 0; k < n_basis; k++)
      cblas_daxpy((int)n, -cblas_ddot((int)n, basis + (size_t)k * n, 1, y, 1),
                  basis + (size_t)k * n, 1, y, 1);
    return MILL_OK;
  }
  memset(normal, 0, sizeof normal);
  memset(coef, 0, sizeof coef);
  for (size_t p = 0; p < n; p++)
    for (int k = 0; k < n_basis && !gap[p]; k++) {
      coef[k] += basis[(size_t)k * n + p] * y[p];
      for (int l = 0; l <= k; l++)
        normal[k * n_basis + l] += basis[(size_t)k * n + p] * basis[(size_t)l * n + p];
    }
  if (n_basis > 0 &&
      LAPACKE_dposv(LAPACK_ROW_MAJOR, 'L', n_basis, 1, normal, n_basis, coef, 1) != 0)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "a spectrum's gaps leave too few pixels for a continuum of degree %d; give a "
                      "lower --continuum",
                      n_basis - 1);
  for (int k = 0; k < n_basis; k++)
    cblas_daxpy((int)n, -coef[k], basis + (size_t)k * n, 1, y, 1);
  return MILL_OK;
}

/* Its median over good pixels becomes 0; sorted [n] is work. */
static void remove_level(size_t n, const unsigned char *gap, double *y, double *sorted)
{
  size_t n_good = 0;
  for (size_t p = 0; p < n; p++)
    if (!gap[p])
      sorted[n_good++] = y[p];
  const double median = mill_median(n_good, sorted);
  for (size_t p = 0; p < n; p++)
    y[p] -= median;
}

/* A first value for every gap: the mean of the spectra that are good there. */
static void fill_with_means(mill_spectra_work *w)
{
  const size_t n_pix = (size_t)w->n_pix;
  for (size_t p = 0; p < n_pix && w->n_gap > 0; p++) {
    double sum = 0;
    int n_good = 0;
    for (size_t i = 0; i < (size_t)w->n; i++)
      if (!w->gap[i * n_pix + p]) {
        sum += w->y[i * n_pix + p];
        n_good++;
      }
    for (size_t i = 0; i < (size_t)w->n; i++)
      if (w->gap[i * n_pix + p])
        w->y[i * n_pix + p] = n_good > 0 ? sum / n_good : 0;
  }
}

int mill_spectra_make_grid(const mill_labelled_spectra *in, int first, int n_in, mill_arm *arm,
                           mill_spectra_report *report, mill_spectra_work *w)
{
  int err = MILL_OK;
  const int n_basis = w->set->continuum + 1;
  source s = {.low = first, .n = n_in};
  double *basis = NULL, *sorted = NULL;
  MILL_TRY(make_arm(w->set, in->wave_aa + first, n_in, arm));
  if (w->set->align) { /* spectra move against the range */
    s.low = 0;
    s.n = in->n_pix;
  }
  s.wave = in->wave_aa + s.low;
  const size_t n = (size_t)arm->n_pix;
  MILL_TRY(MILL_ALLOC(s.n, &s.flux));
  MILL_TRY(MILL_ALLOC(s.n, &s.bend));
  MILL_TRY(MILL_ALLOC(s.n, &s.upper));
  MILL_TRY(MILL_ALLOC(s.n, &s.bad));
  MILL_TRY(MILL_ALLOC((size_t)(n_basis > 0 ? n_basis : 1) * n, &basis));
  MILL_TRY(MILL_ALLOC(n, &sorted));
  MILL_TRY(MILL_ALLOC((size_t)w->n * n, &w->y));
  MILL_TRY(MILL_ALLOC((size_t)w->n * n, &w->gap));
  make_continuum(arm, n_basis, basis);
  int n_good = 0;
  w->n_gap = 0;
  for (int i = 0; i < w->n; i++) {
    double *y = w->y + (size_t)n_good * n;
    unsigned char *gap = w->gap + (size_t)n_good * n;
    const double v = report->velocity[w->row[i]] / MILL_C_KM_S;
    take_flux(in, w->row[i], &s);
    const int n_gap = resample(&s, v == 0 ? 1 : sqrt((1 + v) / (1 - v)), arm, y, gap);
    report->gap[w->row[i]] = (double)n_gap / (double)n;
    if (n_gap > MAX_GAP * (double)n) {
      report->fate[w->row[i]] = MILL_SPECTRUM_BAD_FLUX;
      continue;
    }
    MILL_TRY(remove_continuum(n, n_basis, basis, n_gap, gap, y));
    remove_level(n, gap, y, sorted);
    w->n_gap += n_gap;
    w->row[n_good++] = w->row[i];
  }
  w->n = n_good;
  w->n_pix = arm->n_pix;
  fill_with_means(w);
done:
  MILL_FREE(s.flux, s.bend, s.upper, s.bad, basis, sorted);
  return err;
}
