/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/spectra_work.h"

#include <math.h>

#include <cblas.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"

static void summarise(const mill_spectra_work *w, mill_spectra_report *report)
{
  for (int i = 0; i < w->n; i++)
    report->weight[w->row[i]] = w->weight[i];
  report->n_component = w->n_component;
  report->degree = mill_rbf_fit_degree(w->fit);
  report->kept_variance = w->kept_variance;
  const double *smooth = mill_rbf_fit_smooth(w->fit);
  report->smooth_min = report->smooth_max = smooth[0];
  for (int k = 1; k < w->n_component; k++) {
    report->smooth_min = fmin(report->smooth_min, smooth[k]);
    report->smooth_max = fmax(report->smooth_max, smooth[k]);
  }
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

int mill_spectra_measure(const mill_spectra_work *w, mill_library *lib, mill_spectra_report *report)
{
  summarise(w, report);
  if (w->set->n_error >= 0)
    MILL_CHECK(measure_model_error(w, &lib->arm[0], report));
  return MILL_OK;
}
