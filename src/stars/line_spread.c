/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/stars/line_spread.h"

#include <stdlib.h>

#include "kernels/base/memory.h"
#include "kernels/star/blocks/prepare.h"
#include "src/system/order.h"

/** Pixels undersample templates with a sigma below SHARPEST pixels.  Such templates are blurred to
 *  this sigma on their own grid.  With a resolution matrix the limit is SHARPEST_MATRIX. */
static const double SHARPEST = 0.9, SHARPEST_MATRIX = 0.6;
/** A solver deconvolves a resolution matrix by the templates' sigma, in pixels.  If sigma varies by
 *  less than the fraction EVEN_PIXELS, one solver serves all pixels.  Else sigmas of solvers are
 *  SOLVER_STEP apart, or further apart if there would be more than MOST_SOLVERS. */
static const double EVEN_PIXELS = 2e-3, SOLVER_STEP = 0.005, MOST_SOLVERS = 256;
/** A segment's line-spread function is examined at N_LOOK pixels.  I_TENTH is the index of the
 *  tenth percentile among their sorted sigmas. */
enum { N_LOOK = 20, I_TENTH = 2 };
/** A sigma below this fraction of the tenth percentile is an outlier: no blur is fitted to it. */
static const double ODD_SIGMA = 0.9;
/** Smallest blur, in grid steps: samples of a narrower Gaussian are too coarse. */
static const double LEAST_BLUR = 0.7;
/** In pixels: least plausible sigma of a line-spread function; largest plausible shift of light by
 *  a resolution matrix (DESI's matrices shift light by less than 0.1). */
static const double LEAST_SIGMA = 0.1, MOST_SHIFT = 0.5;

/** Are pixels too coarse for templates of variance have2 (pixels^2) and a kernel of variance lack2?
 *  Sampled at pixels, a wave of 0.7 cycles a pixel looks like one of 0.3 cycles (aliasing).  The
 *  kernel acts on these samples, so it damps the wave too little. */
static int is_coarse(double have2, double lack2)
{
  const double fine = 9.67, coarse = 1.78; /* 2 (pi 0.7)^2, 2 (pi 0.3)^2 */
  return have2 < 0.4 && exp(-fine * have2) * (exp(-coarse * lack2) - exp(-fine * lack2)) > 0.02;
}

enum mill_lsf_use mill_lsf_use_of(const mill_library *lib, const mill_fit_settings *set,
                                  const mill_raw_segment *raw)
{
  if (set->resolution == MILL_RES_NONE || lib->arm[raw->arm].template_sigma_aa < 0.0)
    return MILL_LSF_NO_USE;
  return raw->resolution && raw->n_diag > 0 ? MILL_LSF_BY_MATRIX
         : raw->sigma_aa                    ? MILL_LSF_BY_SIGMA
                                            : MILL_LSF_NO_USE;
}

/** Does a gap follow pixel i? */
static int is_gap(int n, const double *wave, int i)
{
  const double step = wave[i + 1] - wave[i];
  const double before = i > 0 ? wave[i] - wave[i - 1] : step;
  const double after = i < n - 2 ? wave[i + 2] - wave[i + 1] : step;
  return step > MILL_LSF_GAP * before || step > MILL_LSF_GAP * after;
}

/** Are flux, ivar and mask of pixel i good enough for a fit? */
static int is_fitted(const mill_fit_settings *set, const mill_raw_segment *s, int i)
{
  return mill_value_usable(s->flux[i], s->ivar[i]) &&
         (!s->mask || mill_mask_clear(s->mask[i], set->mask_ignore));
}

/* lsf_aa^2 = line-spread function's sigma^2 - templates' sigma^2 - blur^2; NaN: unusable pixel. */
void mill_lsf_plan_sigma(const mill_library *lib, const mill_fit_settings *set,
                         const mill_raw_segment *raw, double blur_ln, float *lsf_aa, int *n_diag,
                         int *info)
{
  const double *wave_aa = raw->wave_aa;
  const double templ = lib->arm[raw->arm].template_sigma_aa;
  const int n = raw->n_pix;
  int half = 0; /* pixels on a side of the widest kernel */
  int n_unusable = 0, n_narrow = 0, n_coarse = 0;
  int first = 0, last = -1; /* ends of the gapless range around pixel i */
  for (int i = 0; i < n; i++) {
    if (i > last)
      for (first = last = i; last < n - 1 && !is_gap(n, wave_aa, last);)
        last++;
    const int counts = is_fitted(set, raw, i);
    const double sigma = (double)raw->sigma_aa[i], blur = blur_ln * wave_aa[i];
    const double lack2 = sigma * sigma - templ * templ - blur * blur; /* sigma^2 still lacking */
    lsf_aa[i] = NAN;
    if (!(sigma > 0.0) || !isfinite(sigma)) {
      n_unusable += counts;
      continue;
    }
    if (!(lack2 > 0.0)) { /* templates are as broad already */
      n_narrow += counts && sigma < MILL_LSF_NARROW * sqrt(templ * templ + blur * blur);
      lsf_aa[i] = 0.0f;
      continue;
    }
    const double lack = sqrt(lack2), edge = MILL_LSF_EDGE * lack;
    const double reach = MILL_LSF_REACH * lack / mill_pixel_width(n, wave_aa, i);
    const int is_broad = reach > (double)(MILL_MAX_DIAG / 2);
    /* The kernel is too broad, or loses too much at an end or gap: the pixel stays NaN.  Losses at
     * the ends of a segment without gaps are normal, so they are not counted. */
    if (is_broad || i < first + 2 || i > last - 2 || wave_aa[i] - edge < wave_aa[first] ||
        wave_aa[i] + edge > wave_aa[last]) {
      n_unusable += counts && (is_broad || last - first < n - 1);
      continue;
    }
    lsf_aa[i] = (float)lack;
    const double lack_pix = reach / MILL_LSF_REACH, square = lack_pix * lack_pix;
    n_coarse += counts && is_coarse((sigma * sigma / lack2 - 1.0) * square, square);
    const int needed = reach > MILL_LSF_HALF ? (int)ceil(reach) : MILL_LSF_HALF;
    half = needed > half ? needed : half;
  }
  *n_diag = half > 0 ? 2 * half + 1 : 0;
  const double sizeable = MILL_LSF_SIZEABLE * (double)n;
  *info |= (n_unusable >= sizeable ? MILL_INFO_LSF_UNUSABLE : 0) |
           (n_narrow >= sizeable ? MILL_INFO_LSF_NARROW : 0) |
           (n_coarse >= sizeable ? MILL_INFO_LSF_COARSE : 0);
}

/** Squared sigmas of an arm, in ln wavelength. */
typedef struct blur_range {
  double least;   /**< smallest (line-spread function's sigma^2 - templates' sigma^2) */
  double wanted;  /**< blur that makes the templates broad enough for all pixels */
  double last_aa; /**< last usable wavelength, A */
} blur_range;

/** Return the line-spread function's sigma, A, at pixel i.  by_matrix: sigma of the Gaussian with
 *  the sum and the sum of squares of row i of the matrix, as in mill_find_narrow. */
static double sigma_at(const mill_raw_segment *s, int by_matrix, int i)
{
  double sum, square;
  if (!by_matrix)
    return (double)s->sigma_aa[i];
  mill_sum_row(s->n_diag, s->n_pix, s->resolution, i, &sum, &square);
  return mill_pixel_width(s->n_pix, s->wave_aa, i) * sum * sum / (2.0 * sqrt(M_PI) * square);
}

double mill_lsf_width(const mill_fit_settings *set, const mill_raw_segment *s)
{
  const int is_matrix = s->resolution && s->n_diag > 0;
  const int edge = is_matrix ? s->n_diag / 2 : 0;
  const int n_whole = s->n_pix - 2 * edge;
  double width[N_LOOK];
  int n = 0;
  for (int k = 0; k < N_LOOK && n_whole > 1 && (is_matrix || s->sigma_aa); k++) {
    const int end = edge + (int)((int64_t)n_whole * (k + 1) / N_LOOK), n_before = n;
    for (int i = edge + (int)((int64_t)n_whole * k / N_LOOK); i < end && n == n_before; i++) {
      const double sigma = sigma_at(s, is_matrix, i);
      if (isfinite(sigma) && sigma > 0.0 && is_fitted(set, s, i))
        width[n++] = sigma; /* the first usable pixel of each twentieth */
    }
  }
  if (n <= I_TENTH)
    return (double)NAN;
  qsort(width, (size_t)n, sizeof *width, mill_by_double);
  return width[((n - 1) * I_TENTH + N_LOOK / 2) / (N_LOOK - 1)]; /* the tenth percentile */
}

/** Update an arm's blur_range by the sigmas of a segment, or by N_LOOK rows of its matrix.  templ:
 *  the templates' sigma, A.  Pixels that are not fitted do not set range->least, nor do sigmas
 *  below `lowest`, which are errors.  With a matrix the second smallest value counts, as one row
 *  may be wrong, and range->last_aa is 0. */
static void look_at(const mill_fit_settings *set, const mill_raw_segment *raw, int by_matrix,
                    double templ, blur_range *range)
{
  const double *wave = raw->wave_aa, sharpest = by_matrix ? SHARPEST_MATRIX : SHARPEST;
  const double lowest = by_matrix ? 0.0 : ODD_SIGMA * mill_lsf_width(set, raw);
  const int n = raw->n_pix, edge = by_matrix ? raw->n_diag / 2 : 1, n_whole = n - 2 * edge;
  const int n_look = by_matrix ? N_LOOK : n_whole;
  double least[2] = {INFINITY, INFINITY}; /* the two smallest values of excess */
  range->last_aa = 0.0;
  for (int k = 0; k < n_look && n_whole > 2 && edge > 0; k++) {
    const int i = edge + (by_matrix ? (int)((int64_t)(n_whole - 1) * k / (N_LOOK - 1)) : k);
    const double sigma = sigma_at(raw, by_matrix, i);
    const double width = sharpest * mill_pixel_width(n, wave, i);
    const double wanted = (width * width - templ * templ) / (wave[i] * wave[i]);
    const double excess = (sigma * sigma - templ * templ) / (wave[i] * wave[i]);
    if (!(sigma > 0.0) || !isfinite(sigma) || is_gap(n, wave, i - 1) || is_gap(n, wave, i))
      continue;
    range->wanted = fmax(wanted, range->wanted);
    range->last_aa = by_matrix ? 0.0 : wave[i];
    if (!(excess < least[1]) || sigma < lowest || !is_fitted(set, raw, i))
      continue;
    least[1] = fmax(excess, least[0]);
    least[0] = fmin(excess, least[0]);
  }
  range->least = fmin(least[by_matrix], range->least); /* with a matrix the second smallest */
}

/* Pixels want a blur of sigma^2 = range.wanted.  It is limited to a share of the narrowest
 * line-spread function's sigma^2 (range.least), unless splines of a thinned grid need more. */
double mill_lsf_plan_blur(const mill_library *lib, const mill_fit_settings *set,
                          const mill_star *star, int arm)
{
  const mill_arm *lib_arm = &lib->arm[arm];
  const double templ = lib_arm->template_sigma_aa;
  const double grid = lib_arm->sampling > 1 ? MILL_GRID_SIGMA * lib_arm->ln_step : 0;
  blur_range range = {INFINITY, 0.0, 0.0};
  double needed = 0.0; /* sigma^2 for the splines of a thinned grid */
  int has_matrix = 0;
  for (int k = 0; k < star->n_segment; k++) {
    const mill_raw_segment *raw = &star->segment[k];
    if (raw->arm != arm)
      continue;
    const enum mill_lsf_use use = mill_lsf_use_of(lib, set, raw);
    const int by_matrix = use == MILL_LSF_BY_MATRIX && templ > 0.0;
    if (!(by_matrix || use == MILL_LSF_BY_SIGMA))
      return 0.0; /* the blur is the arm's, and this segment allows none */
    look_at(set, raw, by_matrix, templ, &range);
    has_matrix |= by_matrix;
    if (range.last_aa > 0.0) /* where the templates' sigma is smallest in ln wavelength */
      needed = fmax(needed, grid * grid - templ * templ / (range.last_aa * range.last_aa));
  }
  double square = fmin(range.wanted, MILL_LARGEST_BLUR * range.least);
  /* each value of the blur needs its own solvers of the matrix: round to a few values */
  const double unit = 0.125 * range.wanted;
  if (has_matrix && unit > 0.0)
    square = unit * floor(square / unit);
  const double blur = sqrt(fmax(needed, square));
  return isfinite(blur) && blur > LEAST_BLUR * lib_arm->ln_step ? blur : 0.0;
}

int mill_lsf_is_odd(const mill_raw_segment *s, double *sigma_aa, double *wave_aa, double *pixel_aa)
{
  const int i = s->n_pix / 2;
  const double sigma = (double)s->sigma_aa[i];
  const double pixel = mill_pixel_width(s->n_pix, s->wave_aa, i);
  /* too broad for the largest kernel, or too narrow */
  if (!(MILL_LSF_REACH * sigma > pixel * (double)(MILL_MAX_DIAG / 2) ||
        (sigma > 0.0 && sigma < LEAST_SIGMA * pixel)))
    return 0;
  *sigma_aa = sigma;
  *wave_aa = s->wave_aa[i];
  *pixel_aa = pixel;
  return 1;
}

/* The shift is the first moment of the matrix's middle column. */
int mill_lsf_is_shifting(const mill_raw_segment *s, double *shift_pix)
{
  double sum = 0.0, moment = 0.0;
  for (int d = 0; d < s->n_diag; d++) {
    const double r = (double)s->resolution[(size_t)d * (size_t)s->n_pix + (size_t)s->n_pix / 2];
    sum += r;
    moment += r * (double)(s->n_diag / 2 - d);
  }
  if (!(sum > 0.0 && fabs(moment) > MOST_SHIFT * sum))
    return 0;
  *shift_pix = fabs(moment) / sum;
  return 1;
}

/* ---- resolution matrices less the templates' own resolution ---- */

/** Invert a [n][n] by Gauss-Jordan elimination with column pivots; a is destroyed.  Returns 0 if a
 *  is singular.  OpenBLAS's LAPACK would need 128 MiB, and hang under a memory limit. */
static int invert(int n, double *a, double *inverse)
{
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++)
      inverse[i * n + j] = i == j;
  for (int k = 0; k < n; k++) {
    int pivot = k;
    for (int i = k + 1; i < n; i++)
      if (fabs(a[i * n + k]) > fabs(a[pivot * n + k]))
        pivot = i;
    if (!(fabs(a[pivot * n + k]) > 0))
      return 0;
    const double scale = 1 / a[pivot * n + k];
    for (int j = 0; j < n; j++) {
      const double x = a[pivot * n + j], y = inverse[pivot * n + j];
      a[pivot * n + j] = a[k * n + j];
      inverse[pivot * n + j] = inverse[k * n + j];
      a[k * n + j] = x * scale;
      inverse[k * n + j] = y * scale;
    }
    for (int i = 0; i < n; i++) {
      const double factor = a[i * n + k];
      for (int j = 0; j < n && i != k; j++) {
        a[i * n + j] -= factor * a[k * n + j];
        inverse[i * n + j] -= factor * inverse[k * n + j];
      }
    }
  }
  return 1;
}

/** Invert the templates' Gaussian on n_diag pixels (docs/science/numerics.md),
 *  G_ij = exp(-(i-j)^2 / 2 s^2) / (s sqrt(2 pi)) with s = sigma_pix; g [n_diag^2] is work space. */
static int make_solver(int n_diag, double sigma_pix, double *g, double *inverse)
{
  for (int i = 0; i < n_diag; i++)
    for (int j = 0; j < n_diag; j++) {
      const double u = (double)(i - j) / sigma_pix;
      g[i * n_diag + j] = exp(-0.5 * u * u) / (sigma_pix * sqrt(2.0 * M_PI));
    }
  if (!invert(n_diag, g, inverse))
    return MILL_ERROR(MILL_ERR_RANGE,
                      "the templates' sigma of %g pixels is too large to be taken out of a "
                      "resolution matrix of %d diagonals; give a library of sharper templates",
                      sigma_pix, n_diag);
  return MILL_OK;
}

/** Like make_solver, but scale the samples of the Gaussian to the sum 1. */
static int make_normal_solver(int n_diag, double sigma_pix, double *g, double *inverse)
{
  double sum = 0.0;
  MILL_CHECK(make_solver(n_diag, sigma_pix, g, inverse));
  for (int j = -n_diag; j <= n_diag; j++)
    sum += exp(-0.5 * j * j / (sigma_pix * sigma_pix)) / (sigma_pix * sqrt(2.0 * M_PI));
  for (int i = 0; i < n_diag * n_diag; i++)
    inverse[i] *= sum;
  return MILL_OK;
}

/** Return sigma, in pixels, of the templates with their blur at pixel i. */
static double sigma_of_pixel(int n_pix, const double *wave_aa, double templ_aa, double blur_ln,
                             int i)
{
  return hypot(templ_aa, blur_ln * wave_aa[i]) / mill_pixel_width(n_pix, wave_aa, i);
}

/** Choose the sigma, in pixels, that each solver i deconvolves: plan->sigma_pix + i plan->step_pix.
 *  Returns the number of solvers; if there are several, at [n_pix] is each pixel's fractional i. */
static int plan_solvers(int n_pix, const double *wave_aa, double templ_aa, double blur_ln,
                        float *at, mill_deconv *plan)
{
  double low = INFINITY, high = 0.0;
  for (int i = 0; i < n_pix; i++) {
    const double sigma = sigma_of_pixel(n_pix, wave_aa, templ_aa, blur_ln, i);
    low = fmin(low, sigma);
    high = fmax(high, sigma);
  }
  if (high - low <= EVEN_PIXELS * low) { /* one solver, of the first pixel's sigma */
    plan->sigma_pix = hypot(templ_aa, blur_ln * wave_aa[0]) / (wave_aa[1] - wave_aa[0]);
    return 1;
  }
  const double n_step = fmin(ceil((high - low) / SOLVER_STEP), MOST_SOLVERS - 1);
  plan->sigma_pix = low;
  plan->step_pix = (high - low) / n_step;
  for (int i = 0; i < n_pix; i++)
    at[i] = (float)fmin(
        (sigma_of_pixel(n_pix, wave_aa, templ_aa, blur_ln, i) - low) / plan->step_pix, n_step);
  return (int)n_step + 1;
}

int mill_lsf_make_solvers(int n_diag, int n_pix, const double *wave_aa, double templ_aa,
                          double blur_ln, mill_deconv *plan, double **solve, size_t *n_solve,
                          size_t *bytes)
{
  MILL_OWNED double *g = NULL;
  MILL_OWNED float *at = NULL;
  const size_t n_element = (size_t)n_diag * (size_t)n_diag;
  MILL_CHECK(MILL_ALLOC(n_pix, &at));
  const int n = plan_solvers(n_pix, wave_aa, templ_aa, blur_ln, at, plan);
  const size_t n_at = n > 1 ? (size_t)n_pix : 0;
  *n_solve = (size_t)n * n_element;
  *bytes = *n_solve * sizeof **solve + n_at * sizeof *at;
  MILL_CHECK(MILL_ALLOC(n_element, &g));
  MILL_CHECK(MILL_ALLOC(*n_solve + n_at, solve));
  for (int i = 0; i < n; i++) /* fits interpolate between several solvers: normalise these */
    MILL_CHECK((n > 1 ? make_normal_solver : make_solver)(
        n_diag, plan->sigma_pix + i * plan->step_pix, g, *solve + (size_t)i * n_element));
  memcpy(*solve + *n_solve, at, n_at * sizeof *at);
  return MILL_OK;
}
