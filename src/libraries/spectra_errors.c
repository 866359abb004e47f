#include "src/libraries/spectra_work.h"

#include <math.h>
#include <string.h>

#include <cblas.h>

#include "kernels/base/error.h"
#include "kernels/math/hull.h"
#include "src/libraries/label_search.h"
#include "src/libraries/quantile.h"
#include "src/system/random.h"

enum {
  N_START = 5,              /* most alike spectra, whose labels begin a recovery */
  NOISE_STREAM = 0x6e6f6973 /* "nois": this purpose of the random numbers */
};

static void measure_errors(const mill_spectra_work *w, mill_spectra_report *report)
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
static void start_recovery(const mill_spectra_work *w, int i, const double *score,
                           mill_spectra_neighbour *near, double *out)
{
  const size_t q = (size_t)w->n_component;
  for (int j = 0; j < w->n; j++) {
    double sum = 0;
    for (size_t k = 0; k < q; k++)
      sum += pow(score[k] - w->score[(size_t)j * q + k], 2);
    near[j] = (mill_spectra_neighbour){j == i ? INFINITY : sum, j};
  }
  mill_spectra_sort(w->n, near);
  for (int l = 0; l < w->n_label; l++) {
    double x[N_START];
    for (int j = 0; j < N_START; j++)
      x[j] = w->mapped[(size_t)near[j].i * (size_t)w->n_label + (size_t)l];
    out[l] = mill_quantile(N_START, 0.5, x);
  }
}

/* A spectrum whose labels are looked for. */
typedef struct recovery {
  const mill_spectra_work *w;
  const double *score, *coef;
  double *h, *slope; /* work [n_component], [n_label][n_component] */
} recovery;

/* Squares of the difference between scores and the function at x, with their normal
   equations. */
static double misfit(void *context, const double *x, double *normal, double *rhs)
{
  const recovery *r = context;
  const size_t q = (size_t)r->w->n_component;
  const int n_label = r->w->n_label;
  double *h = r->h, *slope = r->slope, sum = 0;
  mill_rbf_fit_eval(r->w->fit, r->coef, x, h, slope);
  for (size_t k = 0; k < q; k++) {
    h[k] = r->score[k] - h[k];
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
static void noisy_score(const mill_spectra_work *w, int i, double *out)
{
  mill_random random;
  mill_random_begin(&random, 1, (uint64_t)w->row[i], NOISE_STREAM);
  for (int k = 0; k < w->n_component; k++)
    out[k] = w->score[(size_t)i * (size_t)w->n_component + (size_t)k] +
             mill_random_normal(&random) / w->set->recover_sn;
}

/* Labels that fit spectrum i best with the emulator of all others. */
static int recover(const mill_spectra_work *w, int i, double *x)
{
  int err = MILL_OK;
  double *coef = NULL, *space = NULL;
  mill_spectra_neighbour *near = NULL;
  const size_t q = (size_t)w->n_component, n_label = (size_t)w->n_label;
  const size_t n_row = (size_t)w->n + (size_t)mill_rbf_fit_n_poly(w->fit);
  MILL_TRY(MILL_ALLOC(n_row * q, &coef));
  MILL_TRY(MILL_ALLOC((2 + n_label) * q + 2 * (size_t)w->n, &space));
  MILL_TRY(MILL_ALLOC(w->n, &near));
  double *score = space;
  recovery r = {.w = w, .score = score, .coef = coef, .h = score + q, .slope = score + 2 * q};
  mill_rbf_fit_without(w->fit, i, coef, r.slope + n_label * q);
  noisy_score(w, i, score);
  start_recovery(w, i, score, near, x);
  mill_label_search(w->n_label, misfit, &r, 1e-7, x, NULL);
done:
  MILL_FREE(coef, space, near);
  return err;
}

static int measure_labels(const mill_spectra_work *w, const mill_library *lib,
                          const mill_labelled_spectra *in, mill_spectra_report *report)
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
    report->bias[l] = mill_quantile((size_t)w->n, 0.5, difference);
    for (int i = 0; i < w->n; i++)
      difference[i] = fabs(difference[i] - report->bias[l]);
    report->scatter[l] = 1.4826 * mill_quantile((size_t)w->n, 0.5, difference);
  }
  report->n_recovered = w->n;
done:
  mill_free(found);
  mill_free(difference);
  return err;
}

static int summarise(const mill_spectra_work *w, mill_spectra_report *report)
{
  int err = MILL_OK;
  double *sorted = NULL;
  MILL_TRY(MILL_ALLOC(w->n, &sorted));
  for (int i = 0; i < w->n; i++)
    sorted[i] = report->error[w->row[i]];
  report->error_median = mill_quantile((size_t)w->n, 0.5, sorted);
  report->error_p95 = mill_quantile((size_t)w->n, 0.95, sorted);
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

/* The model error from ln flux of spectra left out minus that of their labels: what the components
   do not carry, and in those what the fit to all others does not give. */
static int measure_model_error(const mill_spectra_work *w, mill_arm *arm,
                               mill_spectra_report *report)
{
  int err = MILL_OK;
  mill_residuals x = {
      .n = w->n, .n_pix = w->n_pix, .weight = w->weight, .noise = 1 / w->set->error_sn};
  double *score = NULL;
  const size_t n_pix = (size_t)w->n_pix, n_score = (size_t)w->n * (size_t)w->n_component;
  const double *left_out = mill_rbf_fit_left_out(w->fit);
  MILL_TRY(MILL_ALLOC((size_t)w->n * n_pix, &x.value));
  MILL_TRY(MILL_ALLOC(n_score, &score));
  for (size_t i = 0; i < (size_t)w->n; i++)
    for (size_t p = 0; p < n_pix; p++)
      x.value[i * n_pix + p] = w->y[i * n_pix + p] - w->mean[p];
  for (size_t k = 0; k < n_score; k++)
    score[k] = left_out[k] - w->score[k];
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, w->n, w->n_pix, w->n_component, 1, score,
              w->n_component, w->pattern, w->n_pix, 1, x.value, w->n_pix);
  for (size_t i = 0; i < (size_t)w->n * n_pix; i++)
    x.value[i] = w->gap[i] ? (double)NAN : expm1(x.value[i]);
  MILL_TRY(mill_model_error_measure(arm->wave_aa, &x, w->set->n_error, &arm->error,
                                    &report->model_error));
done:
  MILL_FREE(x.value, score);
  return err;
}

int mill_spectra_measure(const mill_spectra_work *w, mill_library *lib,
                         const mill_labelled_spectra *in, mill_spectra_report *report)
{
  int err = MILL_OK;
  measure_errors(w, report);
  MILL_TRY(summarise(w, report));
  if (w->set->recover_sn > 0)
    MILL_TRY(measure_labels(w, lib, in, report));
  if (w->set->n_error >= 0)
    MILL_TRY(measure_model_error(w, &lib->arm[0], report));
done:
  return err;
}
