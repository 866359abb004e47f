/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/model_error.h"

#include <math.h>
#include <string.h>

#include <cblas.h>
#include <lapacke.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/math/continuum.h"
#include "kernels/math/linalg.h"
#include "src/libraries/arm_cut.h"
#include "src/libraries/emulator.h"
#include "src/libraries/limits.h"

#define LEAST_LEVEL 0.01 /* of the mean flux of an arm */
#define SMALL_ERROR 0.02 /* of the flux: most spectra have as much noise */

/* ---- residuals ------------------------------------------------------------------------------ */

/* A spectrum between its pixels: the cubic through four of them; NaN where one is not known. */
static double spectrum_at(int n_pix, const double *wave_aa, const float *flux, double at_aa, int *k)
{
  while (*k < n_pix - 3 && wave_aa[*k + 1] <= at_aa)
    ++*k;
  if (*k < 1 || *k > n_pix - 3 || at_aa < wave_aa[*k] || at_aa > wave_aa[*k + 1])
    return NAN;
  double sum = 0;
  for (int i = -1; i <= 2; i++) {
    double weight = (double)flux[*k + i];
    if (!isfinite(weight) || !(weight > 0))
      return NAN;
    for (int j = -1; j <= 2; j++)
      if (j != i)
        weight *= (at_aa - wave_aa[*k + j]) / (wave_aa[*k + i] - wave_aa[*k + j]);
    sum += weight;
  }
  return sum;
}

/* Kernel that convolves templates of an arm: its pixels but for *margin at each end, where a
 * template does not reach far enough. */
static int smoothing_create(const mill_arm *a, double kernel_aa, int *margin, mill_arm_cut **cut)
{
  int err = MILL_OK;
  double *kernel = NULL;
  const double reach = 0.5 + 5 * kernel_aa / (a->wave_aa[0] * a->ln_step);
  if (!(2 * reach + MILL_MODEL_ERROR_CONTINUUM < a->n_pix))
    MILL_FAIL(MILL_ERR_INPUT, "arm %s has no pixel farther than five times %g A from its ends",
              a->name, kernel_aa);
  *margin = (int)reach + 2;
  MILL_TRY(MILL_ALLOC(a->n_pix, &kernel));
  for (int p = 0; p < a->n_pix; p++)
    kernel[p] = kernel_aa;
  MILL_TRY(mill_arm_cut_create(a->n_pix - 2 * *margin, a->ln_wave0 + *margin * a->ln_step,
                               a->ln_step, kernel, cut));
  MILL_TRY(mill_arm_cut_prepare(*cut, a->n_pix, a->wave_aa, 1));
done:
  mill_free(kernel);
  return err;
}

int mill_model_error_residuals(const mill_library *lib, int arm, int n, int n_pix,
                               const double *wave_aa, const float *flux, const double *label,
                               double kernel_aa, mill_residuals *residuals)
{
  int err = MILL_OK, margin = 0;
  const mill_arm *a = &lib->arm[arm];
  const size_t n_out = (size_t)a->n_pix;
  double *out = NULL, *level = NULL, *templ = NULL, *smooth = NULL;
  mill_arm_cut *cut = NULL;
  MILL_TRY(MILL_ALLOC((size_t)n * n_out, &out));
  MILL_TRY(MILL_ALLOC(n_out, &level));
  MILL_TRY(MILL_ALLOC(n_out, &templ));
  if (kernel_aa > 0) {
    MILL_TRY(MILL_ALLOC(n_out, &smooth));
    MILL_TRY(smoothing_create(a, kernel_aa, &margin, &cut));
  }
  for (int i = 0; i < n; i++) {
    const float *from = flux + (size_t)i * (size_t)n_pix;
    double *to = out + (size_t)i * n_out, ratio = 0;
    int n_known = 0, k = 1;
    MILL_TRY(mill_emulator_eval(lib, arm, label + (size_t)i * (size_t)lib->n_label, templ));
    if (cut)
      MILL_TRY(mill_arm_cut_apply(cut, a->n_pix, a->wave_aa, templ, 1, smooth + margin));
    const double *model = cut ? smooth : templ;
    for (size_t p = 0; p < n_out; p++) {
      const int is_covered = p >= (size_t)margin && p < n_out - (size_t)margin;
      to[p] = is_covered ? spectrum_at(n_pix, wave_aa, from, a->wave_aa[p], &k) / model[p] : NAN;
      ratio += isfinite(to[p]) ? to[p] : 0;
      n_known += isfinite(to[p]);
    }
    for (size_t p = 0; p < n_out && n_known > 0; p++)
      to[p] = to[p] * n_known / ratio - 1;
    const double mean = cblas_dasum(a->n_pix, templ, 1) / a->n_pix;
    cblas_daxpy(a->n_pix, 1 / mean, templ, 1, level, 1);
  }
  for (size_t p = 0; p < n_out; p++) /* templates of networks of the flux may be below 0 */
    level[p] = fmax(level[p] / n, LEAST_LEVEL);
  residuals->n = n;
  residuals->n_pix = a->n_pix;
  residuals->value = out;
  residuals->level = level;
  out = level = NULL;
done:
  mill_arm_cut_destroy(cut);
  MILL_FREE(out, level, templ, smooth);
  return err;
}

/* ---- measurement ---------------------------------------------------------------------------- */

/* Pixels with known residuals, and continuum functions [n_cont][n_pix] over them. */
typedef struct span {
  int first, last; /* pixels that some residual knows */
  int n_cont;
  double *cont;
  double *scale; /* [n_pix], what residuals are multiplied by where they are compared */
} span;

static void fill_continuum(const double *wave_aa, int n_pix, const span *s)
{
  const double low = wave_aa[s->first], width = wave_aa[s->last] - low;
  for (int k = 0; k < s->n_cont; k++)
    for (int p = 0; p < n_pix; p++)
      s->cont[(size_t)k * (size_t)n_pix + (size_t)p] =
          p < s->first || p > s->last
              ? 0
              : mill_continuum(MILL_CONT_RBF, s->n_cont, k, 2 * (wave_aa[p] - low) / width - 1);
}

/* The pixels that a row of residuals knows, added up. */
static void count_known(const double *row, int n_pix, int *n_known)
{
  for (int p = 0; p < n_pix; p++)
    n_known[p] += isfinite(row[p]);
}

/* What residuals x [n][n_pix] are multiplied by where they are compared: level over the rms of
   level times x within a fortieth of the arm, which small ones do not matter to; 1 without level.
 */
static int measure_scale(int n, int n_pix, const double *level, const double *x, double *scale)
{
  int err = MILL_OK;
  double *sum = NULL; /* of squares in all pixels before */
  const int reach = n_pix / 40;
  MILL_TRY(MILL_ALLOC(n_pix + 1, &sum));
  for (int p = 0; p < n_pix; p++) {
    double square = 0;
    for (int i = 0; i < n && level; i++) {
      const double value = x[(size_t)i * (size_t)n_pix + (size_t)p];
      square += isfinite(value) ? value * value : 0;
    }
    sum[p + 1] = sum[p] + (level ? square * level[p] * level[p] : 0);
  }
  for (int p = 0; p < n_pix; p++) {
    const int first = p > reach ? p - reach : 0;
    const int last = p + reach < n_pix ? p + reach + 1 : n_pix;
    const double near = (sum[last] - sum[first]) / ((double)n * (last - first));
    scale[p] = level ? level[p] / sqrt(near + SMALL_ERROR * SMALL_ERROR) : 1;
  }
done:
  mill_free(sum);
  return err;
}

static void scale_rows(int n, int n_pix, const double *scale, int divide, double *x)
{
  for (int i = 0; i < n; i++)
    for (int p = 0; p < n_pix; p++)
      x[(size_t)i * (size_t)n_pix + (size_t)p] *= divide ? 1 / scale[p] : scale[p];
}

/* Divide 1 + x by its continuum, a least-squares fit to scale times it; unknown pixels stay
 * unknown. Returns the known pixels, 0 where they do not determine a continuum. */
static int remove_continuum(int n_pix, const span *s, double *x)
{
  double normal[MILL_MAX_CONT * MILL_MAX_CONT] = {0}, v[MILL_MAX_CONT] = {0};
  const int n_cont = s->n_cont;
  const double *cont = s->cont;
  int n_known = 0;
  for (int p = 0; p < n_pix; p++) {
    if (!isfinite(x[p]))
      continue;
    n_known++;
    const double weight = s->scale[p] * s->scale[p];
    for (int k = 0; k < n_cont; k++) {
      const double c = weight * cont[(size_t)k * (size_t)n_pix + (size_t)p];
      v[k] += c * (1 + x[p]);
      for (int l = 0; l <= k; l++)
        normal[k * n_cont + l] += c * cont[(size_t)l * (size_t)n_pix + (size_t)p];
    }
  }
  const int failed = mill_cholesky(n_cont, normal, n_cont) != 0;
  if (!failed)
    mill_cholesky_solve(n_cont, normal, n_cont, v);
  for (int p = 0; p < n_pix; p++) {
    double sum = 0;
    for (int k = 0; k < n_cont; k++)
      sum += v[k] * cont[(size_t)k * (size_t)n_pix + (size_t)p];
    x[p] = (1 + x[p]) / sum - 1;
  }
  return failed ? 0 : n_known;
}

/* Principal components about zero of the rows x [n][n_pix], times a scale for the time being, and
   their standard deviations; noise adds to the diagonal of the rows' products and is taken out of
   it.  Rows lose what the components carry. */
static int take_components(int n, int n_pix, double noise2, const double *scale, double *x,
                           mill_model_error *error)
{
  int err = MILL_OK;
  double *gram = NULL, *value = NULL, *pattern = NULL, *share = NULL;
  const int q = error->n_component;
  MILL_TRY(MILL_ALLOC((size_t)n * (size_t)n, &gram));
  MILL_TRY(MILL_ALLOC(n, &value));
  MILL_TRY(MILL_ALLOC(n_pix, &pattern));
  MILL_TRY(MILL_ALLOC(n, &share));
  scale_rows(n, n_pix, scale, 0, x);
  cblas_dsyrk(CblasRowMajor, CblasLower, CblasNoTrans, n, n_pix, 1, x, n_pix, 0, gram, n);
  const double scale2 = cblas_ddot(n_pix, scale, 1, scale, 1);
  for (int i = 0; i < n; i++)
    gram[(size_t)i * (size_t)n + (size_t)i] -= noise2 * scale2;
  if (LAPACKE_dsyev(LAPACK_ROW_MAJOR, 'V', 'L', n, gram, n, value) != 0)
    MILL_FAIL(MILL_ERR_INPUT, "the residuals have no principal components");
  error->n_component = 0;
  for (int j = 0; j < q && value[n - 1 - j] > 0; j++) {
    /* from the rows as they are now: orthogonal to the components before but for rounding */
    for (int i = 0; i < n; i++)
      share[i] = gram[(size_t)i * (size_t)n + (size_t)(n - 1 - j)];
    cblas_dgemv(CblasRowMajor, CblasTrans, n, n_pix, 1, x, n_pix, share, 1, 0, pattern, 1);
    cblas_dscal(n_pix, 1 / cblas_dnrm2(n_pix, pattern, 1), pattern, 1);
    cblas_dgemv(CblasRowMajor, CblasNoTrans, n, n_pix, 1, x, n_pix, pattern, 1, 0, share, 1);
    cblas_dger(CblasRowMajor, n, n_pix, -1, share, 1, pattern, 1, x, n_pix);
    float *to = error->component + (size_t)j * (size_t)n_pix;
    scale_rows(1, n_pix, scale, 1, pattern);
    const double length = cblas_dnrm2(n_pix, pattern, 1);
    for (int p = 0; p < n_pix; p++)
      to[p] = (float)(pattern[p] * sqrt((double)n_pix) / length); /* of rms 1 */
    error->sigma[j] = length * sqrt(value[n - 1 - j] / ((double)n * n_pix));
    error->n_component = j + 1;
  }
  scale_rows(n, n_pix, scale, 1, x);
done:
  MILL_FREE(gram, value, pattern, share);
  return err;
}

/* rms per pixel of what the components leave: of n rows, of which the components have taken as many
   degrees of freedom as there are of them; 0 where no row is known. */
static void measure_fraction(int n, int n_pix, double noise2, const double *x, const int *n_known,
                             mill_model_error *error)
{
  for (int p = 0; p < n_pix; p++) {
    double sum = 0;
    for (int i = 0; i < n; i++)
      sum += x[(size_t)i * (size_t)n_pix + (size_t)p] * x[(size_t)i * (size_t)n_pix + (size_t)p];
    const double free = n_known[p] * (1 - (double)error->n_component / n);
    error->fraction[p] = n_known[p] > 0 ? (float)sqrt(fmax(sum / free - noise2, 0)) : 0;
  }
}

/* rms of the whole error, that of the components and what they leave, in a part of the pixels, of
   those that some row knows. */
static double mean_error(const int *n_known, const mill_model_error *error, int n_pix, int first,
                         int last)
{
  double sum = 0;
  int n = 0;
  for (int p = first; p <= last; p++) {
    if (n_known[p] == 0)
      continue;
    sum += (double)error->fraction[p] * (double)error->fraction[p];
    for (int j = 0; j < error->n_component; j++) {
      const double part =
          error->sigma[j] * (double)error->component[(size_t)j * (size_t)n_pix + (size_t)p];
      sum += part * part;
    }
    n++;
  }
  return n > 0 ? sqrt(sum / n) : 0;
}

/* Where no row is known there is no component either, so that the fraction is the whole error: that
   of the arm, beyond all rows that of the nearest quarter, as errors differ from blue to red. */
static void fill_fraction(int n_pix, const int *n_known, const span *known, mill_model_error *error)
{
  const int first = known->first, last = known->last, quarter = (last - first) / 4;
  const double all = mean_error(n_known, error, n_pix, first, last);
  const double blue = mean_error(n_known, error, n_pix, first, first + quarter);
  const double red = mean_error(n_known, error, n_pix, last - quarter, last);
  for (int p = 0; p < n_pix; p++)
    if (n_known[p] == 0)
      error->fraction[p] = (float)(p < first ? blue : p > last ? red : all);
}

/* Sum of the correlation of pixels over all lags up to the first that is not above 0. */
static void measure_correlation(int n, int n_pix, const double *x, mill_model_error *error)
{
  double zero = 0;
  for (int p = 0; p < n_pix; p++)
    zero += (double)error->fraction[p] * (double)error->fraction[p];
  error->correlation = 1;
  if (!(zero > 0)) /* all of the residuals is noise */
    return;
  const double free = n - error->n_component;
  for (int lag = 1; lag <= MILL_MODEL_ERROR_MAX_LAG && lag < n_pix; lag++) {
    double sum = 0;
    for (int i = 0; i < n; i++)
      sum += cblas_ddot(n_pix - lag, x + (size_t)i * (size_t)n_pix, 1,
                        x + (size_t)i * (size_t)n_pix + lag, 1);
    const double rho = sum / free / zero;
    if (!(rho > 0))
      break;
    error->correlation += 2 * fmin(rho, 1);
  }
}

/* Mean square of x [n][n_pix]. */
static double mean_square(int n, int n_pix, const double *x)
{
  double sum = 0;
  for (int i = 0; i < n; i++) {
    const double *row = x + (size_t)i * (size_t)n_pix;
    sum += cblas_ddot(n_pix, row, 1, row, 1) / n_pix;
  }
  return sum / n;
}

/* The rows that know half of the pixels or more of those that any knows, moved to the front; their
   number n and weights [n].  n_known [n_pix]: of how many a pixel is known. */
static void choose_rows(mill_residuals *residuals, span *s, int *n_known, double *weight, int *n)
{
  const int n_pix = residuals->n_pix;
  double *x = residuals->value;
  for (int i = 0; i < residuals->n; i++)
    count_known(x + (size_t)i * (size_t)n_pix, n_pix, n_known);
  s->last = n_pix - 1;
  while (s->first < s->last && n_known[s->first] == 0)
    s->first++;
  while (s->last > s->first && n_known[s->last] == 0)
    s->last--;
  memset(n_known, 0, (size_t)n_pix * sizeof *n_known);
  for (int i = 0; i < residuals->n; i++) {
    const double *row = x + (size_t)i * (size_t)n_pix;
    int n_row = 0;
    weight[*n] = residuals->weight ? sqrt(residuals->weight[i]) : 1;
    for (int p = 0; p < n_pix; p++)
      n_row += isfinite(row[p]);
    if (n_row < (s->last - s->first + 1) / 2 || n_row < 2 * s->n_cont || !(weight[*n] > 0))
      continue;
    count_known(row, n_pix, n_known);
    memmove(x + (size_t)*n * (size_t)n_pix, row, (size_t)n_pix * sizeof *row);
    ++*n;
  }
}

/* Rows without their continuum, weighted, 0 where they are not known.  With a level there are two
   rounds: the second knows where the templates are poor, which else would bend the continuum. */
static int flatten(const double *wave_aa, mill_residuals *residuals, span *s, int *n_known, int *n)
{
  int err = MILL_OK;
  const int n_pix = residuals->n_pix;
  const double *level = residuals->level;
  double *x = residuals->value, *weight = NULL;
  s->n_cont = residuals->n_continuum > 0 ? residuals->n_continuum : MILL_MODEL_ERROR_CONTINUUM;
  MILL_TRY(MILL_ALLOC((size_t)s->n_cont * (size_t)n_pix, &s->cont));
  MILL_TRY(MILL_ALLOC(n_pix, &s->scale));
  MILL_TRY(MILL_ALLOC(residuals->n + 1, &weight));
  choose_rows(residuals, s, n_known, weight, n);
  fill_continuum(wave_aa, n_pix, s);
  for (int p = 0; p < n_pix; p++)
    s->scale[p] = level ? level[p] : 1;
  for (int round = 0; round < (level ? 2 : 1); round++) {
    for (int i = 0; i < *n; i++)
      if (remove_continuum(n_pix, s, x + (size_t)i * (size_t)n_pix) == 0)
        MILL_FAIL(MILL_ERR_INPUT, "residual %d has too few pixels for a continuum", i);
    MILL_TRY(measure_scale(*n, n_pix, level, x, s->scale));
  }
  for (int i = 0; i < *n; i++)
    for (int p = 0; p < n_pix; p++) {
      double *value = &x[(size_t)i * (size_t)n_pix + (size_t)p];
      *value = isfinite(*value) ? weight[i] * *value : 0;
    }
done:
  mill_free(weight);
  return err;
}

int mill_model_error_measure(const double *wave_aa, mill_residuals *residuals, int n_component,
                             mill_model_error *error, mill_model_error_report *report)
{
  int err = MILL_OK, n = 0;
  span known = {0};
  double *x = residuals->value;
  int *n_known = NULL;
  const int n_pix = residuals->n_pix, n_cont = residuals->n_continuum;
  const double noise2 = residuals->noise * residuals->noise;
  memset(report, 0, sizeof *report);
  MILL_TRY(mill_expect_within(MILL_ERR_RANGE, "components of the model error", n_component, 0,
                              MILL_MAX_ERROR));
  if (n_cont != 0)
    MILL_TRY(
        mill_expect_within(MILL_ERR_RANGE, "functions of the continuum", n_cont, 4, MILL_MAX_CONT));
  MILL_TRY(MILL_ALLOC(n_pix, &n_known));
  MILL_TRY(flatten(wave_aa, residuals, &known, n_known, &n));
  if (n < MILL_MODEL_ERROR_MIN || n < 2 * n_component)
    MILL_FAIL(
        MILL_ERR_INPUT,
        "%d spectra with numbers in half of the measured pixels or more; a model error with %d "
        "components needs at least %d",
        n, n_component,
        2 * n_component > MILL_MODEL_ERROR_MIN ? 2 * n_component : MILL_MODEL_ERROR_MIN);
  MILL_TRY(MILL_ALLOC(n_pix, &error->fraction));
  MILL_TRY(
      MILL_ALLOC((size_t)(n_component > 0 ? n_component : 1) * (size_t)n_pix, &error->component));
  error->n_component = n_component;
  const double all = mean_square(n, n_pix, x) - noise2;
  MILL_TRY(take_components(n, n_pix, noise2, known.scale, x, error));
  measure_fraction(n, n_pix, noise2, x, n_known, error);
  measure_correlation(n, n_pix, x, error);
  fill_fraction(n_pix, n_known, &known, error);
  const double left = mean_square(n, n_pix, x) - noise2;
  report->n = n;
  report->rms = sqrt(fmax(all, 0));
  report->left = all > 0 ? fmax(left, 0) / all : 0;
  report->correlation_aa = error->correlation * (wave_aa[n_pix / 2] - wave_aa[n_pix / 2 - 1]);
done:
  MILL_FREE(known.cont, known.scale, n_known);
  if (err != MILL_OK)
    mill_model_error_clear(error);
  return err;
}
