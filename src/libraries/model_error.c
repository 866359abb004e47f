#include "src/libraries/model_error.h"

#include <math.h>
#include <string.h>

#include <cblas.h>
#include <lapacke.h>

#include "kernels/base/error.h"
#include "kernels/math/continuum.h"
#include "kernels/math/linalg.h"
#include "src/libraries/emulator.h"

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

int mill_model_error_residuals(const mill_library *lib, int arm, int n, int n_pix,
                               const double *wave_aa, const float *flux, const double *label,
                               double **value)
{
  int err = MILL_OK;
  const mill_arm *a = &lib->arm[arm];
  const size_t n_out = (size_t)a->n_pix;
  double *out = NULL, *templ = NULL;
  MILL_TRY(MILL_ALLOC((size_t)n * n_out, &out));
  MILL_TRY(MILL_ALLOC(n_out, &templ));
  for (int i = 0; i < n; i++) {
    const float *from = flux + (size_t)i * (size_t)n_pix;
    double *to = out + (size_t)i * n_out, level = 0;
    int n_known = 0, k = 1;
    MILL_TRY(mill_emulator_eval(lib, arm, label + (size_t)i * (size_t)lib->n_label, templ));
    for (size_t p = 0; p < n_out; p++) {
      to[p] = spectrum_at(n_pix, wave_aa, from, a->wave_aa[p], &k) / templ[p];
      level += isfinite(to[p]) ? to[p] : 0;
      n_known += isfinite(to[p]);
    }
    for (size_t p = 0; p < n_out && n_known > 0; p++)
      to[p] = to[p] * n_known / level - 1;
  }
  *value = out;
  out = NULL;
done:
  MILL_FREE(out, templ);
  return err;
}

/* ---- measurement ---------------------------------------------------------------------------- */

/* Continuum functions of the arm, [n_cont][n_pix]. */
static void fill_continuum(const double *wave_aa, int n_pix, double *cont)
{
  const double width = wave_aa[n_pix - 1] - wave_aa[0];
  for (int k = 0; k < MILL_MODEL_ERROR_CONTINUUM; k++)
    for (int p = 0; p < n_pix; p++)
      cont[(size_t)k * (size_t)n_pix + (size_t)p] = mill_continuum(
          MILL_CONT_RBF, MILL_MODEL_ERROR_CONTINUUM, k, 2 * (wave_aa[p] - wave_aa[0]) / width - 1);
}

/* Take the continuum out of 1 + x; what is not known becomes 0.  Returns the known pixels, 0 where
   they do not determine a continuum, and then x is 0. */
static int remove_continuum(int n_pix, const double *cont, double *x)
{
  enum { K = MILL_MODEL_ERROR_CONTINUUM };
  double normal[K * K] = {0}, v[K] = {0};
  int n_known = 0;
  for (int p = 0; p < n_pix; p++) {
    if (!isfinite(x[p]))
      continue;
    n_known++;
    for (int k = 0; k < K; k++) {
      const double c = cont[(size_t)k * (size_t)n_pix + (size_t)p];
      v[k] += c * (1 + x[p]);
      for (int l = 0; l <= k; l++)
        normal[k * K + l] += c * cont[(size_t)l * (size_t)n_pix + (size_t)p];
    }
  }
  const int failed = mill_cholesky(K, normal, K) != 0;
  if (!failed)
    mill_cholesky_solve(K, normal, K, v);
  for (int p = 0; p < n_pix; p++) {
    double sum = 0;
    for (int k = 0; k < K; k++)
      sum += v[k] * cont[(size_t)k * (size_t)n_pix + (size_t)p];
    x[p] = failed || !isfinite(x[p]) ? 0 : (1 + x[p]) / sum - 1;
  }
  return failed ? 0 : n_known;
}

/* Principal components about zero of the rows x [n][n_pix] and their standard deviations; noise
   adds to the diagonal of the rows' products and is taken out of it.  Rows lose what the
   components carry. */
static int take_components(int n, int n_pix, double noise2, double *x, mill_model_error *error)
{
  int err = MILL_OK;
  double *gram = NULL, *value = NULL, *pattern = NULL, *share = NULL;
  const int q = error->n_component;
  MILL_TRY(MILL_ALLOC((size_t)n * (size_t)n, &gram));
  MILL_TRY(MILL_ALLOC(n, &value));
  MILL_TRY(MILL_ALLOC(n_pix, &pattern));
  MILL_TRY(MILL_ALLOC(n, &share));
  cblas_dsyrk(CblasRowMajor, CblasLower, CblasNoTrans, n, n_pix, 1, x, n_pix, 0, gram, n);
  for (int i = 0; i < n; i++)
    gram[(size_t)i * (size_t)n + (size_t)i] -= noise2 * n_pix;
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
    for (int p = 0; p < n_pix; p++)
      to[p] = (float)(pattern[p] * sqrt((double)n_pix)); /* of rms 1 */
    error->sigma[j] = sqrt(value[n - 1 - j] / ((double)n * n_pix));
    error->n_component = j + 1;
  }
done:
  MILL_FREE(gram, value, pattern, share);
  return err;
}

/* rms of what the components leave, per pixel: of n rows, of which the components have taken as
   many degrees of freedom as there are of them.  Pixels that no row knows get that of the arm. */
static void measure_fraction(int n, int n_pix, double noise2, const double *x, const int *n_known,
                             mill_model_error *error)
{
  double all = 0;
  int n_all = 0;
  for (int p = 0; p < n_pix; p++) {
    double sum = 0;
    for (int i = 0; i < n; i++)
      sum += x[(size_t)i * (size_t)n_pix + (size_t)p] * x[(size_t)i * (size_t)n_pix + (size_t)p];
    const double free = n_known[p] * (1 - (double)error->n_component / n);
    const double variance = n_known[p] > 0 ? fmax(sum / free - noise2, 0) : 0;
    error->fraction[p] = (float)sqrt(variance);
    all += variance;
    n_all += n_known[p] > 0;
  }
  for (int p = 0; p < n_pix; p++)
    if (n_known[p] == 0)
      error->fraction[p] = (float)sqrt(all / n_all);
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

int mill_model_error_measure(const double *wave_aa, mill_residuals *residuals, int n_component,
                             mill_model_error *error, mill_model_error_report *report)
{
  int err = MILL_OK, n = 0;
  double *cont = NULL, *x = residuals->value;
  int *n_known = NULL;
  const int n_pix = residuals->n_pix;
  const double noise2 = residuals->noise * residuals->noise;
  memset(report, 0, sizeof *report);
  if (n_component < 0 || n_component > MILL_MAX_ERROR)
    MILL_FAIL(MILL_ERR_RANGE, "%d components of model error; 0 to %d are possible", n_component,
              MILL_MAX_ERROR);
  MILL_TRY(MILL_ALLOC((size_t)MILL_MODEL_ERROR_CONTINUUM * (size_t)n_pix, &cont));
  MILL_TRY(MILL_ALLOC(n_pix, &n_known));
  fill_continuum(wave_aa, n_pix, cont);
  for (int i = 0; i < residuals->n; i++) {
    double *row = x + (size_t)i * (size_t)n_pix, *to = x + (size_t)n * (size_t)n_pix;
    const double weight = residuals->weight ? sqrt(residuals->weight[i]) : 1;
    int n_row = 0;
    for (int p = 0; p < n_pix; p++)
      n_row += isfinite(row[p]);
    if (n_row < n_pix / 2 || !(weight > 0))
      continue;
    for (int p = 0; p < n_pix; p++)
      n_known[p] += isfinite(row[p]);
    if (remove_continuum(n_pix, cont, row) == 0)
      MILL_FAIL(MILL_ERR_INPUT, "residual %d has too few pixels for a continuum", i);
    for (int p = 0; p < n_pix; p++)
      to[p] = weight * row[p];
    n++;
  }
  if (n < MILL_MODEL_ERROR_MIN || n < 2 * n_component)
    MILL_FAIL(MILL_ERR_INPUT,
              "%d spectra with numbers in half of the arm's pixels or more; a model error with %d "
              "components needs at least %d",
              n, n_component,
              2 * n_component > MILL_MODEL_ERROR_MIN ? 2 * n_component : MILL_MODEL_ERROR_MIN);
  MILL_TRY(MILL_ALLOC(n_pix, &error->fraction));
  MILL_TRY(
      MILL_ALLOC((size_t)(n_component > 0 ? n_component : 1) * (size_t)n_pix, &error->component));
  error->n_component = n_component;
  const double all = mean_square(n, n_pix, x) - noise2;
  MILL_TRY(take_components(n, n_pix, noise2, x, error));
  measure_fraction(n, n_pix, noise2, x, n_known, error);
  measure_correlation(n, n_pix, x, error);
  const double left = mean_square(n, n_pix, x) - noise2;
  report->n = n;
  report->rms = sqrt(fmax(all, 0));
  report->left = all > 0 ? fmax(left, 0) / all : 0;
  report->correlation_aa = error->correlation * (wave_aa[n_pix / 2] - wave_aa[n_pix / 2 - 1]);
done:
  MILL_FREE(cont, n_known);
  if (err != MILL_OK)
    mill_model_error_clear(error);
  return err;
}
