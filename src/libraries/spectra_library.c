#include "src/libraries/spectra_library.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>
#include <lapacke.h>

#include "kernels/base/error.h"
#include "kernels/math/hull.h"
#include "kernels/math/rbf.h"
#include "src/system/blas_threads.h"
#include "src/libraries/library_make.h"
#include "src/system/random.h"
#include "src/libraries/rbf.h"

/* Chosen by leave-one-out on MILES (docs/libraries.md). */
enum { DEFAULT_COMPONENT = 40, DEFAULT_CONTINUUM = 8, DEFAULT_DEGREE = 2, DEFAULT_GUESS = 50 };
#define TOLERANCE  1.0 /* of the smoothings: the one-standard-error rule */
#define DEFAULT_SN 20.0

enum {
  MIN_SPECTRA = 12,
  N_SMOOTH = 25,
  N_REWEIGHT = 3,
  N_NEIGHBOUR = 40, /* with like labels, that a spectrum is compared with */
  N_START = 5,      /* most alike spectra, whose labels begin a recovery */
  MAX_RECOVER_STEP = 30,
  NOISE_STREAM = 0x6e6f6973, /* "nois": this purpose of the random numbers */
  MIN_PIX = 4 * 28,          /* as the fit's splines need */
  MAX_PIX = 1 << 20
};

/* Smoothings to choose from: powers of ten in steps of half a decade. */
#define SMOOTH_LEAST -8.0
#define SMOOTH_STEP  0.5

/* Residuals in units of those of spectra with like labels: beyond the first a spectrum counts
   less, beyond the second not at all. */
#define DOUBT_LIMIT  1.5
#define REJECT_LIMIT 5.0

void mill_labelled_spectra_clear(mill_labelled_spectra *spectra)
{
  if (!spectra)
    return;
  mill_free(spectra->wave_aa);
  mill_free(spectra->flux);
  mill_free(spectra->label);
  memset(spectra, 0, sizeof *spectra);
}

void mill_spectra_report_clear(mill_spectra_report *report)
{
  if (!report)
    return;
  mill_free(report->fate);
  mill_free(report->weight);
  mill_free(report->error);
  memset(report, 0, sizeof *report);
}

void mill_spectra_library_settings_init(mill_spectra_library_settings *settings)
{
  memset(settings, 0, sizeof *settings);
  for (int l = 0; l < MILL_MAX_GRID_AXIS; l++) {
    settings->label[l].min = -INFINITY;
    settings->label[l].max = INFINITY;
  }
  settings->max_aa = INFINITY;
  settings->continuum = DEFAULT_CONTINUUM;
  settings->degree = DEFAULT_DEGREE;
  settings->n_guess = DEFAULT_GUESS;
  settings->recover_sn = DEFAULT_SN;
  settings->n_thread = 1;
}

const char *mill_spectrum_fate_text(int fate)
{
  static const char *const text[MILL_N_SPECTRUM_FATE] = {
      [MILL_SPECTRUM_USED] = "used",
      [MILL_SPECTRUM_NO_LABEL] = "a label is not known",
      [MILL_SPECTRUM_OUTSIDE] = "a label is outside the range to keep",
      [MILL_SPECTRUM_BAD_FLUX] = "a pixel is not finite or not above 0",
      [MILL_SPECTRUM_OUTLIER] = "unlike the spectra with like labels"};
  return fate >= 0 && fate < MILL_N_SPECTRUM_FATE ? text[fate] : "unknown";
}

static int compare_double(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* x is sorted on return */
static double quantile(size_t n, double fraction, double *x)
{
  qsort(x, n, sizeof *x, compare_double);
  const double at = fraction * (double)(n - 1);
  const size_t i = (size_t)at;
  return i + 1 < n ? x[i] + (at - (double)i) * (x[i + 1] - x[i]) : x[i];
}

/* ---- hull of points ------------------------------------------------------------------------ */

typedef struct point {
  double x, y;
} point;

static int compare_point(const void *a, const void *b)
{
  const point *p = a, *q = b;
  if (p->x != q->x)
    return p->x > q->x ? 1 : -1;
  return (p->y > q->y) - (p->y < q->y);
}

static double turn(const point *a, const point *b, const point *c)
{
  return (b->x - a->x) * (c->y - a->y) - (b->y - a->y) * (c->x - a->x);
}

/* Corners of the hull of sorted points, counterclockwise (Andrew's monotone chain).
   corner [2 n] */
static int convex_corners(int n, const point *p, point *corner)
{
  int k = 0;
  for (int side = 0, start = 0; side < 2; side++) {
    for (int i = 0; i < n; i++) {
      const point *next = &p[side ? n - 1 - i : i];
      while (k - start >= 2 && turn(&corner[k - 2], &corner[k - 1], next) <= 0)
        k--;
      corner[k++] = *next;
    }
    start = --k; /* the last point of a side is the first of the next one */
  }
  return k;
}

/* Distance to the third nearest other point. */
static double loneliness(int n, const point *p, int i)
{
  double near[3] = {INFINITY, INFINITY, INFINITY};
  for (int j = 0; j < n; j++) {
    double d = j == i ? INFINITY : hypot(p[j].x - p[i].x, p[j].y - p[i].y);
    for (int k = 0; k < 3; k++)
      if (d < near[k]) {
        const double swap = near[k];
        near[k] = d;
        d = swap;
      }
  }
  return near[2];
}

int mill_hull_of_points(int n, const double *x, int *n_facet, double **facet)
{
  int err = MILL_OK;
  point *p = NULL, *corner = NULL;
  double *lonely = NULL, *sorted = NULL;
  *facet = NULL;
  if (n < 3)
    MILL_FAIL(MILL_ERR_INPUT, "a hull of %d points; at least 3 are needed", n);
  MILL_TRY(MILL_ALLOC(n, &p));
  MILL_TRY(MILL_ALLOC(2 * n, &corner));
  MILL_TRY(MILL_ALLOC(n, &lonely));
  MILL_TRY(MILL_ALLOC(n, &sorted));
  for (int i = 0; i < n; i++)
    p[i] = (point){x[2 * i], x[2 * i + 1]};
  for (int i = 0; i < n; i++)
    sorted[i] = lonely[i] = loneliness(n, p, i);
  /* a lone point would open a hull over labels that nothing is known of */
  const double limit = fmax(4 * quantile((size_t)n, 0.5, sorted), 0.3);
  int n_left = 0;
  for (int i = 0; i < n; i++)
    if (lonely[i] <= limit || n == 3)
      p[n_left++] = p[i];
  qsort(p, (size_t)n_left, sizeof *p, compare_point);
  const int n_corner = n_left < 3 ? 0 : convex_corners(n_left, p, corner);
  if (n_corner < 3)
    MILL_FAIL(MILL_ERR_INPUT, "%d points of which no hull can be made: they lie on a line or apart",
              n);
  MILL_TRY(MILL_ALLOC(3 * n_corner, facet));
  for (int i = 0; i < n_corner; i++) {
    const point *a = &corner[i], *b = &corner[(i + 1) % n_corner];
    const double length = hypot(b->x - a->x, b->y - a->y);
    double *f = *facet + 3 * i;
    f[0] = (b->y - a->y) / length;
    f[1] = -(b->x - a->x) / length;
    f[2] = -(f[0] * a->x + f[1] * a->y);
  }
  *n_facet = n_corner;
done:
  mill_free(p);
  mill_free(corner);
  mill_free(lonely);
  mill_free(sorted);
  return err;
}

/* ---- selection ------------------------------------------------------------------------------ */

/* Pixels of the input that the library's range needs. */
static int find_pixels(const mill_spectra_library_settings *set, const mill_labelled_spectra *in,
                       int *first, int *n)
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
  if (high - low < MIN_PIX)
    MILL_FAIL(MILL_ERR_INPUT,
              "%d pixels between %g and %g A, at least %d are needed; the spectra have %d from "
              "%.2f to %.2f A in vacuum",
              high - low, set->min_aa, set->max_aa, MIN_PIX, in->n_pix, in->wave_aa[0],
              in->wave_aa[in->n_pix - 1]);
  *first = low;
  *n = high - low;
done:
  return err;
}

static int fate_of(const mill_spectra_library_settings *set, const mill_labelled_spectra *in,
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

/* Too few spectra: say why, and what range would do. */
static int too_few(const mill_labelled_spectra *in, const mill_spectra_report *report, int n)
{
  int err = MILL_OK, low, high;
  char help[100] = "";
  common_range(in, report->fate, &low, &high);
  if (report->n_fate[MILL_SPECTRUM_BAD_FLUX] > 0 && high - low >= MIN_PIX)
    snprintf(help, sizeof help, "; all pixels are good with --range %.2f,%.2f", in->wave_aa[low],
             in->wave_aa[high - 1]);
  MILL_FAIL(MILL_ERR_INPUT,
            "%d spectra can be used, at least %d are needed; of %d, %d lack a label, %d are "
            "outside the range to keep, and %d have a pixel that is not finite or not above 0%s",
            n, MIN_SPECTRA, in->n_spectrum, report->n_fate[MILL_SPECTRUM_NO_LABEL],
            report->n_fate[MILL_SPECTRUM_OUTSIDE], report->n_fate[MILL_SPECTRUM_BAD_FLUX], help);
done:
  return err;
}

/* ---- spectra on the library's grid ----------------------------------------------------------- */

/* What is worked on: the spectra in use, ln flux without continuum and level. */
typedef struct work {
  const mill_spectra_library_settings *set;
  int n, n_label, n_pix;
  int *row;        /* [n] of the input */
  double *y;       /* [n][n_pix] */
  double *mapped;  /* [n][n_label] */
  double *length;  /* [n_label] */
  double *weight;  /* [n] */
  double *score;   /* [n][n_component] */
  double *lost;    /* [n] mean square over pixels that the components do not carry */
  double *mean;    /* [n_pix] */
  double *pattern; /* [n_component][n_pix] orthonormal */
  int n_component;
  double kept_variance;
  mill_rbf_fit *fit;
} work;

static void work_clear(work *w)
{
  mill_free(w->row);
  mill_free(w->y);
  mill_free(w->mapped);
  mill_free(w->length);
  mill_free(w->weight);
  mill_free(w->score);
  mill_free(w->lost);
  mill_free(w->mean);
  mill_free(w->pattern);
  mill_rbf_fit_destroy(w->fit);
  memset(w, 0, sizeof *w);
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
  if (n_pix > MAX_PIX)
    MILL_FAIL(MILL_ERR_INPUT,
              "wavelengths whose finest step would make %.3g pixels; %d are possible", n_pix,
              MAX_PIX);
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

static int make_spectra(const mill_labelled_spectra *in, int first, int n_in, const mill_arm *arm,
                        unsigned char *fate, work *w)
{
  int err = MILL_OK;
  const size_t n = (size_t)arm->n_pix;
  const int n_basis = w->set->continuum + 1;
  double *flux = NULL, *bend = NULL, *upper = NULL, *basis = NULL, *sorted = NULL;
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
    const double median = quantile(n, 0.5, sorted);
    for (size_t p = 0; p < n; p++)
      y[p] -= median;
    w->row[n_good++] = w->row[i];
  }
  w->n = n_good;
  w->n_pix = arm->n_pix;
done:
  mill_free(flux);
  mill_free(bend);
  mill_free(upper);
  mill_free(basis);
  mill_free(sorted);
  return err;
}

/* ---- labels -----------------------------------------------------------------------------------
 */

/* Mapping, range, mean and spread of the spectra in use. */
static int make_labels(const mill_labelled_spectra *in, work *w, mill_library *lib)
{
  int err = MILL_OK;
  lib->n_label = in->n_label;
  for (int l = 0; l < in->n_label; l++) {
    mill_label *label = &lib->label[l];
    const mill_spectra_label *asked = &w->set->label[l];
    double sum = 0, square = 0;
    snprintf(label->name, sizeof label->name, "%s", asked->name);
    mill_label_describe(label);
    label->min = INFINITY;
    label->max = -INFINITY;
    for (int i = 0; i < w->n; i++) {
      const double x = in->label[(size_t)w->row[i] * (size_t)in->n_label + (size_t)l];
      label->min = fmin(label->min, x);
      label->max = fmax(label->max, x);
    }
    const int is_teff = strcmp(label->name, "teff") == 0;
    if (is_teff && !(label->min > 0))
      MILL_FAIL(MILL_ERR_INPUT, "label teff goes down to %g; it must be above 0", label->min);
    label->mapping = is_teff ? MILL_MAP_LOG10 : MILL_MAP_LINEAR;
    label->mean = 0;
    label->std = 1;
    for (int i = 0; i < w->n; i++)
      sum += mill_label_map(label, in->label[(size_t)w->row[i] * (size_t)in->n_label + (size_t)l]);
    label->mean = sum / w->n;
    for (int i = 0; i < w->n; i++)
      square += pow(
          mill_label_map(label, in->label[(size_t)w->row[i] * (size_t)in->n_label + (size_t)l]), 2);
    const double std = sqrt(square / w->n);
    if (!(std > 1e-9 * (1 + fabs(label->mean))))
      MILL_FAIL(MILL_ERR_INPUT,
                "label %s is %g in all %d spectra in use; leave it out or keep a wider range",
                label->name, label->min, w->n);
    label->std = std;
    if (!(label->scale > 0)) /* of a label that is not known */
      label->scale = 0.1 * (label->max - label->min) / sqrt(12);
    w->length[l] = asked->length > 0 ? asked->length : 1;
  }
  for (int i = 0; i < w->n; i++)
    for (int l = 0; l < in->n_label; l++)
      w->mapped[(size_t)i * (size_t)in->n_label + (size_t)l] = mill_label_map(
          &lib->label[l], in->label[(size_t)w->row[i] * (size_t)in->n_label + (size_t)l]);
done:
  return err;
}

static double label_distance2(const work *w, int i, int j)
{
  double sum = 0;
  for (int l = 0; l < w->n_label; l++) {
    const double d = (w->mapped[(size_t)i * (size_t)w->n_label + (size_t)l] -
                      w->mapped[(size_t)j * (size_t)w->n_label + (size_t)l]) /
                     w->length[l];
    sum += d * d;
  }
  return sum;
}

/* ---- principal components ---------------------------------------------------------------------
 */

/* mean, pattern, score and lost from y, through the eigenvectors of the spectra's products. */
static int find_components(int n_component, work *w)
{
  int err = MILL_OK;
  double *centred = NULL, *gram = NULL, *variance = NULL;
  const size_t n = (size_t)w->n, n_pix = (size_t)w->n_pix;
  const int most = w->n - 1 < w->n_pix ? w->n - 1 : w->n_pix;
  w->n_component = n_component < most ? n_component : most;
  const size_t q = (size_t)w->n_component;
  MILL_TRY(MILL_ALLOC(n * n_pix, &centred));
  MILL_TRY(MILL_ALLOC(n * n, &gram));
  MILL_TRY(MILL_ALLOC(n, &variance));
  memset(w->mean, 0, n_pix * sizeof *w->mean);
  for (size_t i = 0; i < n; i++)
    cblas_daxpy(w->n_pix, 1.0 / w->n, w->y + i * n_pix, 1, w->mean, 1);
  for (size_t i = 0; i < n; i++)
    for (size_t p = 0; p < n_pix; p++)
      centred[i * n_pix + p] = w->y[i * n_pix + p] - w->mean[p];
  cblas_dsyrk(CblasRowMajor, CblasUpper, CblasNoTrans, w->n, w->n_pix, 1, centred, w->n_pix, 0,
              gram, w->n);
  double total = 0, kept = 0;
  for (size_t i = 0; i < n; i++) {
    total += gram[i * n + i];
    w->lost[i] = gram[i * n + i];
  }
  /* its columns become the eigenvectors, variances ascending */
  const lapack_int info = LAPACKE_dsyevd(LAPACK_ROW_MAJOR, 'V', 'U', w->n, gram, w->n, variance);
  if (info != 0)
    MILL_FAIL(info == LAPACK_WORK_MEMORY_ERROR || info == LAPACK_TRANSPOSE_MEMORY_ERROR
                  ? MILL_ERR_MEMORY
                  : MILL_ERR_INTERNAL,
              "LAPACK's eigenvectors of the spectra ended with %d", (int)info);
  if (!(variance[n - 1] > 0))
    MILL_FAIL(MILL_ERR_INPUT, "the %d spectra in use are all the same", w->n);
  /* components that are nothing but rounding would be divided by it */
  while (w->n_component > 1 && variance[n - (size_t)w->n_component] < 1e-13 * variance[n - 1])
    w->n_component--;
  for (size_t k = 0; k < (size_t)w->n_component; k++) {
    const size_t column = n - 1 - k;
    const double rms = sqrt(variance[column]);
    kept += variance[column];
    for (size_t i = 0; i < n; i++) {
      const double s = gram[i * n + column] * rms;
      w->score[i * q + k] = s;
      w->lost[i] -= s * s;
    }
    memset(w->pattern + k * n_pix, 0, n_pix * sizeof *w->pattern);
    for (size_t i = 0; i < n; i++)
      cblas_daxpy(w->n_pix, gram[i * n + column] / rms, centred + i * n_pix, 1,
                  w->pattern + k * n_pix, 1);
  }
  if ((size_t)w->n_component < q) /* close the rows up */
    for (size_t i = 0; i < n; i++)
      memmove(w->score + i * (size_t)w->n_component, w->score + i * q,
              (size_t)w->n_component * sizeof *w->score);
  for (size_t i = 0; i < n; i++)
    w->lost[i] = fmax(w->lost[i], 0) / (double)n_pix;
  w->kept_variance = kept / total;
done:
  mill_free(centred);
  mill_free(gram);
  mill_free(variance);
  return err;
}

/* ---- the smooth functions, and doubtful spectra -------------------------------------------------
 */

static int fit_scores(work *w)
{
  int err = MILL_OK;
  double smooth[N_SMOOTH];
  int n_smooth = N_SMOOTH;
  for (int i = 0; i < N_SMOOTH; i++)
    smooth[i] = pow(10, SMOOTH_LEAST + SMOOTH_STEP * i);
  if (w->set->smoothing > 0) {
    smooth[0] = w->set->smoothing;
    n_smooth = 1;
  }
  const mill_rbf_problem problem = {.n_axis = w->n_label,
                                    .n_point = w->n,
                                    .n_out = w->n_component,
                                    .degree = w->set->degree,
                                    .n_smooth = n_smooth,
                                    .x = w->mapped,
                                    .length = w->length,
                                    .weight = w->weight,
                                    .value = w->score,
                                    .smooth = smooth,
                                    .tolerance = TOLERANCE};
  mill_rbf_fit_destroy(w->fit);
  w->fit = NULL;
  MILL_TRY(mill_rbf_fit_create(&problem, &w->fit));
done:
  return err;
}

/* Residual of each spectrum, of equal expected size whatever the spectrum's share in its own fit:
   the geometric mean of those with and without it.  Root mean square over pixels. */
static void standard_residuals(const work *w, double *out)
{
  const double *left_out = mill_rbf_fit_left_out(w->fit);
  for (int i = 0; i < w->n; i++) {
    double sum = 0;
    for (int k = 0; k < w->n_component; k++)
      sum += fabs(left_out[(size_t)i * (size_t)w->n_component + (size_t)k] *
                  mill_rbf_fit_residual(w->fit, i, k));
    out[i] = sqrt(sum / w->n_pix + w->lost[i]);
  }
}

typedef struct neighbour {
  double distance2;
  int i;
} neighbour;

static int compare_neighbour(const void *a, const void *b)
{
  const neighbour *p = a, *q = b;
  if (p->distance2 != q->distance2)
    return p->distance2 > q->distance2 ? 1 : -1;
  return p->i - q->i;
}

/* Each spectrum's residual in units of the median of those with like labels. */
static int doubt(const work *w, double *out)
{
  int err = MILL_OK;
  double *residual = NULL;
  neighbour *near = NULL;
  const int n_near = w->n - 1 < N_NEIGHBOUR ? w->n - 1 : N_NEIGHBOUR;
  MILL_TRY(MILL_ALLOC(w->n, &residual));
  MILL_TRY(MILL_ALLOC(w->n, &near));
  standard_residuals(w, residual);
  for (int i = 0; i < w->n; i++) {
    double like[N_NEIGHBOUR];
    for (int j = 0; j < w->n; j++)
      near[j] = (neighbour){j == i ? -1 : label_distance2(w, i, j), j};
    qsort(near, (size_t)w->n, sizeof *near, compare_neighbour);
    for (int j = 0; j < n_near; j++)
      like[j] = residual[near[j + 1].i]; /* the first one is itself */
    const double usual = quantile((size_t)n_near, 0.5, like);
    /* spectra that a function fits to rounding are all well */
    out[i] = residual[i] / fmax(usual, 1e-4);
  }
done:
  mill_free(residual);
  mill_free(near);
  return err;
}

/* Take the spectra with limit < ratio out of the work. */
static void drop_outliers(const double *ratio, unsigned char *fate, work *w)
{
  int n = 0;
  const size_t n_pix = (size_t)w->n_pix;
  for (int i = 0; i < w->n; i++) {
    if (ratio[i] > REJECT_LIMIT) {
      fate[w->row[i]] = MILL_SPECTRUM_OUTLIER;
      continue;
    }
    w->row[n] = w->row[i];
    w->weight[n] = w->weight[i];
    if (n < i)
      memcpy(w->y + (size_t)n * n_pix, w->y + (size_t)i * n_pix, n_pix * sizeof *w->y);
    n++;
  }
  w->n = n;
}

/* Components and functions; spectra that do not fit in get less weight, and none at all when they
   are far off. */
static int fit_emulator(const mill_labelled_spectra *in, int n_component, unsigned char *fate,
                        work *w, mill_library *lib)
{
  int err = MILL_OK;
  double *ratio = NULL;
  MILL_TRY(MILL_ALLOC(w->n, &ratio));
  for (int i = 0; i < w->n; i++)
    w->weight[i] = 1;
  MILL_TRY(make_labels(in, w, lib));
  MILL_TRY(find_components(n_component, w));
  MILL_TRY(fit_scores(w));
  if (!w->set->keep_outliers) {
    for (int pass = 0; pass < N_REWEIGHT; pass++) {
      MILL_TRY(doubt(w, ratio));
      for (int i = 0; i < w->n; i++)
        w->weight[i] = ratio[i] > DOUBT_LIMIT ? pow(DOUBT_LIMIT / ratio[i], 2) : 1;
      if (pass < N_REWEIGHT - 1)
        MILL_TRY(fit_scores(w));
    }
    drop_outliers(ratio, fate, w);
    if (w->n < MIN_SPECTRA)
      MILL_FAIL(MILL_ERR_INPUT,
                "all but %d spectra are unlike those with like labels; see whether the labels "
                "belong to them",
                w->n);
    memset(lib->label, 0, sizeof lib->label);
    MILL_TRY(make_labels(in, w, lib));
    MILL_TRY(find_components(n_component, w));
    MILL_TRY(fit_scores(w));
  }
done:
  mill_free(ratio);
  return err;
}

/* ---- how well it works --------------------------------------------------------------------------
 */

static void measure_errors(const work *w, mill_spectra_report *report)
{
  const double *left_out = mill_rbf_fit_left_out(w->fit);
  for (int i = 0; i < w->n; i++) {
    double sum = 0;
    for (int k = 0; k < w->n_component; k++)
      sum += pow(left_out[(size_t)i * (size_t)w->n_component + (size_t)k], 2);
    report->error[w->row[i]] = 100 * sqrt(sum / w->n_pix + w->lost[i]);
    report->weight[w->row[i]] = w->weight[i];
  }
}

/* Median of the labels of the spectra most like this one but itself, out [n_label] mapped. */
static void start_recovery(const work *w, int i, const double *score, neighbour *near, double *out)
{
  const size_t q = (size_t)w->n_component;
  for (int j = 0; j < w->n; j++) {
    double sum = 0;
    for (size_t k = 0; k < q; k++)
      sum += pow(score[k] - w->score[(size_t)j * q + k], 2);
    near[j] = (neighbour){j == i ? INFINITY : sum, j};
  }
  qsort(near, (size_t)w->n, sizeof *near, compare_neighbour);
  for (int l = 0; l < w->n_label; l++) {
    double x[N_START];
    for (int j = 0; j < N_START; j++)
      x[j] = w->mapped[(size_t)near[j].i * (size_t)w->n_label + (size_t)l];
    out[l] = quantile(N_START, 0.5, x);
  }
}

/* Squares of the difference between scores and the function at x, with their normal
   equations.  h, slope: work [n_component], [n_label][n_component]. */
static double misfit(const work *w, const double *score, const double *coef, const double *x,
                     double *h, double *slope, double *normal, double *rhs)
{
  const size_t q = (size_t)w->n_component;
  const int n_label = w->n_label;
  mill_rbf_fit_eval(w->fit, coef, x, h, slope);
  double sum = 0;
  for (size_t k = 0; k < q; k++) {
    h[k] = score[k] - h[k];
    sum += h[k] * h[k];
  }
  for (int l = 0; l < n_label; l++) {
    rhs[l] = cblas_ddot((int)q, slope + (size_t)l * q, 1, h, 1);
    for (int m = 0; m < n_label; m++)
      normal[l * n_label + m] =
          cblas_ddot((int)q, slope + (size_t)l * q, 1, slope + (size_t)m * q, 1);
  }
  return sum;
}

/* Scores of spectrum i with noise: the patterns are orthonormal, so that every score has that of
   a pixel. */
static void noisy_score(const work *w, int i, double *out)
{
  mill_random random;
  mill_random_begin(&random, 1, (uint64_t)w->row[i], NOISE_STREAM);
  for (int k = 0; k < w->n_component; k++)
    out[k] = w->score[(size_t)i * (size_t)w->n_component + (size_t)k] +
             mill_random_normal(&random) / w->set->recover_sn;
}

/* Labels that fit spectrum i best, by Levenberg-Marquardt, with the emulator of all others. */
static int recover(const work *w, int i, double *x)
{
  int err = MILL_OK;
  enum { N = MILL_MAX_GRID_AXIS };
  double *coef = NULL, *space = NULL;
  neighbour *near = NULL;
  const size_t q = (size_t)w->n_component, n_label = (size_t)w->n_label;
  const size_t n_row = (size_t)w->n + (size_t)mill_rbf_fit_n_poly(w->fit);
  MILL_TRY(MILL_ALLOC(n_row * q, &coef));
  MILL_TRY(MILL_ALLOC((2 + n_label) * q + 2 * (size_t)w->n, &space));
  MILL_TRY(MILL_ALLOC(w->n, &near));
  double *score = space, *h = score + q, *slope = h + q;
  mill_rbf_fit_without(w->fit, i, coef, slope + n_label * q);
  noisy_score(w, i, score);
  start_recovery(w, i, score, near, x);
  double normal[N * N], rhs[N], damping = 1e-3;
  double now = misfit(w, score, coef, x, h, slope, normal, rhs);
  for (int step = 0; step < MAX_RECOVER_STEP && damping < 1e6; step++) {
    double trial[N], damped[N * N], way[N], next_normal[N * N], next_rhs[N], longest = 0;
    memcpy(damped, normal, sizeof damped);
    memcpy(way, rhs, sizeof way);
    for (size_t l = 0; l < n_label; l++)
      damped[l * n_label + l] *= 1 + damping;
    const int n = (int)n_label;
    if (LAPACKE_dposv(LAPACK_ROW_MAJOR, 'L', n, 1, damped, n, way, 1) != 0) {
      damping *= 10;
      continue;
    }
    for (size_t l = 0; l < n_label; l++)
      longest = fmax(longest, fabs(way[l]));
    for (size_t l = 0; l < n_label; l++) /* a standard deviation at most */
      trial[l] = x[l] + way[l] / fmax(longest, 1);
    const double next = misfit(w, score, coef, trial, h, slope, next_normal, next_rhs);
    if (!(next < now)) {
      damping *= 10;
      continue;
    }
    const int done = now - next < 1e-7 * now;
    now = next;
    memcpy(x, trial, n_label * sizeof *x);
    memcpy(normal, next_normal, sizeof normal);
    memcpy(rhs, next_rhs, sizeof rhs);
    damping = fmax(0.1 * damping, 1e-7);
    if (done)
      break;
  }
done:
  mill_free(coef);
  mill_free(space);
  mill_free(near);
  return err;
}

static int measure_labels(const work *w, const mill_library *lib, const mill_labelled_spectra *in,
                          mill_spectra_report *report)
{
  int err = MILL_OK, failed = MILL_OK;
  double *found = NULL, *difference = NULL;
  const size_t n_label = (size_t)w->n_label;
  MILL_TRY(MILL_ALLOC((size_t)w->n * n_label, &found));
  MILL_TRY(MILL_ALLOC(w->n, &difference));
#pragma omp parallel for num_threads(w->set->n_thread) schedule(dynamic, 4)
  for (int i = 0; i < w->n; i++) {
    const int code = recover(w, i, found + (size_t)i * n_label);
    if (code != MILL_OK) {
#pragma omp atomic write
      failed = code;
    }
  }
  if (failed != MILL_OK) /* memory is all that can be missing */
    MILL_FAIL(failed, "no memory to measure how well labels are recovered");
  for (size_t l = 0; l < n_label; l++) {
    for (int i = 0; i < w->n; i++)
      difference[i] = mill_label_unmap(&lib->label[l], found[(size_t)i * n_label + l]) -
                      in->label[(size_t)w->row[i] * n_label + l];
    report->bias[l] = quantile((size_t)w->n, 0.5, difference);
    for (int i = 0; i < w->n; i++)
      difference[i] = fabs(difference[i] - report->bias[l]);
    report->scatter[l] = 1.4826 * quantile((size_t)w->n, 0.5, difference);
  }
  report->n_recovered = w->n;
done:
  mill_free(found);
  mill_free(difference);
  return err;
}

static int summarise(const work *w, mill_spectra_report *report)
{
  int err = MILL_OK;
  double *sorted = NULL;
  MILL_TRY(MILL_ALLOC(w->n, &sorted));
  for (int i = 0; i < w->n; i++)
    sorted[i] = report->error[w->row[i]];
  report->error_median = quantile((size_t)w->n, 0.5, sorted);
  report->error_p95 = quantile((size_t)w->n, 0.95, sorted);
  report->n_component = w->n_component;
  report->degree = mill_rbf_fit_degree(w->fit);
  report->kept_variance = w->kept_variance;
  const double *smooth = mill_rbf_fit_smooth(w->fit);
  report->smooth_min = report->smooth_max = smooth[0];
  for (int k = 1; k < w->n_component; k++) {
    report->smooth_min = fmin(report->smooth_min, smooth[k]);
    report->smooth_max = fmax(report->smooth_max, smooth[k]);
  }
done:
  mill_free(sorted);
  return err;
}

/* ---- the library --------------------------------------------------------------------------------
 */

/* A hull for every pair of labels, or the range of the only one. */
static int make_hulls(const work *w, mill_library *lib)
{
  int err = MILL_OK;
  double *x = NULL;
  const int n_label = w->n_label;
  if (n_label == 1) {
    mill_hull *hull = &lib->hull[lib->n_hull++];
    hull->n_label = 1;
    hull->n_facet = 2;
    MILL_TRY(MILL_ALLOC(4, &hull->facet));
    hull->facet[0] = -1;
    hull->facet[1] = mill_label_map(&lib->label[0], lib->label[0].min);
    hull->facet[2] = 1;
    hull->facet[3] = -mill_label_map(&lib->label[0], lib->label[0].max);
    return MILL_OK;
  }
  MILL_TRY(MILL_ALLOC(2 * w->n, &x));
  for (int a = 0; a < n_label; a++)
    for (int b = a + 1; b < n_label; b++) {
      mill_hull *hull = &lib->hull[lib->n_hull++];
      hull->n_label = 2;
      hull->label[0] = a;
      hull->label[1] = b;
      for (int i = 0; i < w->n; i++) {
        x[2 * i] = w->mapped[i * n_label + a];
        x[2 * i + 1] = w->mapped[i * n_label + b];
      }
      if (mill_hull_of_points(w->n, x, &hull->n_facet, &hull->facet) != MILL_OK)
        MILL_FAIL(MILL_ERR_INPUT, "labels %s and %s are not independent: %s", lib->label[a].name,
                  lib->label[b].name, mill_error_message());
    }
done:
  mill_free(x);
  return err;
}

/* Labels of spectra that lie as far from one another as can be: the next one is always the one
   farthest from those taken. */
static int make_guess(const work *w, const mill_labelled_spectra *in, mill_library *lib)
{
  int err = MILL_OK;
  double *distance2 = NULL;
  const size_t n_label = (size_t)w->n_label;
  int n_guess = w->set->n_guess < w->n ? w->set->n_guess : w->n;
  int next = -1;
  double nearest = INFINITY;
  MILL_TRY(MILL_ALLOC(w->n, &distance2));
  MILL_TRY(MILL_ALLOC((size_t)n_guess * n_label, &lib->guess_label));
  for (int i = 0; i < w->n; i++) {
    const double *x = w->mapped + (size_t)i * n_label;
    double r2 = 0;
    for (size_t l = 0; l < n_label; l++)
      r2 += x[l] * x[l];
    const int inside = mill_hull_distance(lib->n_hull, lib->hull, x) <= 1e-10;
    distance2[i] = inside ? INFINITY : -1;
    if (inside && r2 < nearest) { /* begin in the middle */
      nearest = r2;
      next = i;
    }
  }
  while (next >= 0 && lib->n_guess < n_guess) {
    memcpy(lib->guess_label + (size_t)lib->n_guess++ * n_label,
           in->label + (size_t)w->row[next] * n_label, n_label * sizeof *in->label);
    const int last = next;
    next = -1;
    for (int i = 0; i < w->n; i++) {
      distance2[i] = fmin(distance2[i], label_distance2(w, i, last));
      /* two spectra of the same labels are one template */
      if (distance2[i] > 1e-12 && (next < 0 || distance2[i] > distance2[next]))
        next = i;
    }
  }
  if (lib->n_guess == 0)
    MILL_FAIL(MILL_ERR_INPUT, "no spectrum lies inside the hulls of its labels");
  lib->n_guess_vsini = 2;
  lib->guess_vsini_km_s[0] = 0;
  lib->guess_vsini_km_s[1] = 100;
done:
  mill_free(distance2);
  return err;
}

/* Scores of unit mean square, as all of them go through the fit in float32 together. */
static int make_emulator(const work *w, mill_emulator *e)
{
  int err = MILL_OK;
  const size_t q = (size_t)w->n_component, n_pix = (size_t)w->n_pix;
  e->kind = MILL_EMULATOR_RBF;
  e->log_flux = 1;
  e->n_layer = 1;
  e->n_in[0] = w->n_component;
  e->n_out[0] = w->n_pix;
  MILL_TRY(MILL_ALLOC(n_pix, &e->bias[0]));
  MILL_TRY(MILL_ALLOC(n_pix * q, &e->weight[0]));
  MILL_TRY(mill_rbf_fit_export(w->fit, &e->rbf));
  for (size_t p = 0; p < n_pix; p++)
    e->bias[0][p] = (float)w->mean[p];
  const size_t n_row = (size_t)e->rbf.n_center + (size_t)e->rbf.n_poly;
  for (size_t k = 0; k < q; k++) {
    double sum = 0;
    for (size_t i = 0; i < (size_t)w->n; i++)
      sum += w->score[i * q + k] * w->score[i * q + k];
    const double rms = sqrt(sum / w->n);
    for (size_t i = 0; i < n_row; i++)
      e->rbf.coef[i * q + k] = (float)((double)e->rbf.coef[i * q + k] / rms);
    for (size_t p = 0; p < n_pix; p++)
      e->weight[0][p * q + k] = (float)(w->pattern[k * n_pix + p] * rms);
  }
done:
  return err;
}

static int check_settings(const mill_spectra_library_settings *set, const mill_labelled_spectra *in)
{
  int err = MILL_OK;
  if (in->n_label < 1 || in->n_label > MILL_MAX_GRID_AXIS)
    MILL_FAIL(MILL_ERR_RANGE, "spectra with %d labels; 1 to %d are possible", in->n_label,
              MILL_MAX_GRID_AXIS);
  if (in->n_spectrum < 1 || in->n_pix < 2)
    MILL_FAIL(MILL_ERR_INPUT, "%d spectra of %d pixels", in->n_spectrum, in->n_pix);
  if (set->continuum < -1 || set->continuum > MILL_SPECTRA_LIBRARY_MAX_CONTINUUM)
    MILL_FAIL(MILL_ERR_RANGE, "a continuum of degree %d; -1 to %d are possible", set->continuum,
              MILL_SPECTRA_LIBRARY_MAX_CONTINUUM);
  if (set->n_component < 0 || set->n_component > MILL_MAX_WIDTH)
    MILL_FAIL(MILL_ERR_RANGE, "%d principal components; 1 to %d are possible, 0 is the default",
              set->n_component, MILL_MAX_WIDTH);
  if (set->degree < 1 || set->degree > MILL_MAX_RBF_DEGREE)
    MILL_FAIL(MILL_ERR_RANGE, "a polynomial of degree %d; 1 to %d are possible", set->degree,
              MILL_MAX_RBF_DEGREE);
  if (!(set->smoothing >= 0) || !isfinite(set->smoothing))
    MILL_FAIL(MILL_ERR_RANGE, "a smoothing of %g; it must be above 0, or 0 for the best",
              set->smoothing);
  if (set->n_guess < 1 || set->n_thread < 1)
    MILL_FAIL(MILL_ERR_RANGE,
              "%d templates for the initial guess and %d threads; at least one is "
              "needed",
              set->n_guess, set->n_thread);
  if (!(set->recover_sn >= 0))
    MILL_FAIL(MILL_ERR_RANGE, "a S/N of %g; it must be 0 or above", set->recover_sn);
  if (!isfinite(set->template_sigma_aa))
    MILL_FAIL(MILL_ERR_RANGE, "the resolution of the spectra is not given");
done:
  return err;
}

/* Everything below w->n rows of the largest size that it will have. */
static int work_begin(const mill_spectra_library_settings *set, const mill_labelled_spectra *in,
                      mill_spectra_report *report, int first, int n_in, work *w)
{
  int err = MILL_OK;
  const size_t n = (size_t)in->n_spectrum;
  w->set = set;
  w->n_label = in->n_label;
  report->n_spectrum = in->n_spectrum;
  MILL_TRY(MILL_ALLOC(n, &report->fate));
  MILL_TRY(MILL_ALLOC(n, &report->weight));
  MILL_TRY(MILL_ALLOC(n, &report->error));
  MILL_TRY(MILL_ALLOC(n, &w->row));
  MILL_TRY(MILL_ALLOC(n, &w->weight));
  MILL_TRY(MILL_ALLOC(n, &w->lost));
  MILL_TRY(MILL_ALLOC(n * (size_t)in->n_label, &w->mapped));
  MILL_TRY(MILL_ALLOC(in->n_label, &w->length));
  for (int i = 0; i < in->n_spectrum; i++) {
    report->error[i] = NAN;
    report->fate[i] = (unsigned char)fate_of(set, in, first, n_in, i);
    if (report->fate[i] == MILL_SPECTRUM_USED)
      w->row[w->n++] = i;
  }
done:
  return err;
}

static int build(const mill_spectra_library_settings *set, const mill_labelled_spectra *in,
                 mill_library *lib, mill_spectra_report *report, work *w)
{
  int err = MILL_OK;
  int first = 0, n_in = 0;
  const int n_component = set->n_component ? set->n_component : DEFAULT_COMPONENT;
  MILL_TRY(check_settings(set, in));
  MILL_TRY(find_pixels(set, in, &first, &n_in));
  MILL_TRY(work_begin(set, in, report, first, n_in, w));
  lib->n_arm = 1;
  mill_arm *arm = &lib->arm[0];
  MILL_TRY(make_arm(set, in->wave_aa + first, n_in, arm));
  MILL_TRY(make_spectra(in, first, n_in, arm, report->fate, w));
  for (int i = 0; i < in->n_spectrum; i++)
    report->n_fate[report->fate[i]]++;
  if (w->n < MIN_SPECTRA)
    MILL_TRY(too_few(in, report, w->n));
  MILL_TRY(MILL_ALLOC((size_t)w->n * (size_t)n_component, &w->score));
  MILL_TRY(MILL_ALLOC(w->n_pix, &w->mean));
  MILL_TRY(MILL_ALLOC((size_t)n_component * (size_t)w->n_pix, &w->pattern));
  MILL_TRY(fit_emulator(in, n_component, report->fate, w, lib));
  memset(report->n_fate, 0, sizeof report->n_fate);
  for (int i = 0; i < in->n_spectrum; i++)
    report->n_fate[report->fate[i]]++;
  MILL_TRY(make_hulls(w, lib));
  MILL_TRY(make_guess(w, in, lib));
  MILL_TRY(make_emulator(w, &arm->emulator));
  measure_errors(w, report);
  MILL_TRY(summarise(w, report));
  if (set->recover_sn > 0)
    MILL_TRY(measure_labels(w, lib, in, report));
done:
  return err;
}

int mill_spectra_library_build(const mill_spectra_library_settings *settings,
                               const mill_labelled_spectra *spectra, mill_library *lib,
                               mill_spectra_report *report)
{
  int err = MILL_OK;
  int n_blas = 0;
  work w = {0};
  memset(report, 0, sizeof *report);
  MILL_TRY(mill_blas_begin(settings->n_thread, &n_blas));
  MILL_TRY(build(settings, spectra, lib, report, &w));
done:
  mill_blas_end(n_blas);
  work_clear(&w);
  if (err != MILL_OK) {
    mill_library_clear(lib);
    mill_spectra_report_clear(report);
  }
  return err;
}
