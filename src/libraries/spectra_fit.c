/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/spectra_work.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>
#include <lapacke.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/math/hull.h"
#include "src/libraries/library_make.h"
#include "src/libraries/quantile.h"
#include "src/system/order.h"

enum {
  N_REWEIGHT = 3,
  N_FILL = 3,
  N_NEIGHBOUR = 40 /* with similar labels, that a spectrum is compared with */
};
#define TOLERANCE 1.0 /* of the smoothings: the one-standard-error rule */

/* Leaves the polynomial. */
#define SMOOTH_STIFF 1e8

/* Residuals in units of those of spectra with similar labels: beyond the first a spectrum counts
   less, beyond the second not at all. */
#define DOUBT_LIMIT  1.5
#define REJECT_LIMIT 5.0

/* ---- labels ---- */

/* Mapping, range, mean and spread of the spectra in use. */
static int make_labels(const mill_labelled_spectra *in, mill_spectra_work *w, mill_library *lib)
{
  int err = MILL_OK;
  double *value = NULL;
  MILL_TRY(MILL_ALLOC(w->n, &value));
  lib->n_label = in->n_label;
  for (int l = 0; l < in->n_label; l++) {
    mill_label *label = &lib->label[l];
    const mill_spectra_label *asked = &w->set->label[l];
    snprintf(label->name, sizeof label->name, "%s", asked->name);
    for (int i = 0; i < w->n; i++)
      value[i] = mill_spectra_label_of(in, w, i, l);
    MILL_TRY(mill_label_measure(w->n, value, label));
    w->length[l] = asked->length > 0 ? asked->length : 1;
  }
  for (int i = 0; i < w->n; i++)
    for (int l = 0; l < in->n_label; l++)
      w->mapped[(size_t)i * (size_t)in->n_label + (size_t)l] =
          mill_label_map(&lib->label[l], mill_spectra_label_of(in, w, i, l));
done:
  mill_free(value);
  return err;
}

/* Squared distance between the labels of two spectra in use. */
static double distance2(const mill_spectra_work *w, int i, int j)
{
  double sum = 0;
  const double *a = w->mapped + i * w->n_label, *b = w->mapped + j * w->n_label;
  for (int l = 0; l < w->n_label; l++) {
    const double d = (a[l] - b[l]) / w->length[l];
    sum += d * d;
  }
  return sum;
}

/* ---- principal components ---- */

/* mean, pattern, score and lost from y, through the eigenvectors of the spectra's products. */
static int find_components(int n_component, mill_spectra_work *w)
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
  MILL_FREE(centred, gram, variance);
  return err;
}

/* ---- the smooth functions, and doubtful spectra ---- */

static int fit_scores(mill_spectra_work *w)
{
  double smooth[MILL_RBF_MAX_SMOOTH];
  int n_smooth = mill_rbf_smoothings(w->set->smoothing, smooth);
  if (w->aligning == MILL_SPECTRA_ALIGN_STIFF) {
    smooth[0] = SMOOTH_STIFF;
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
  return mill_rbf_fit_create(&problem, &w->fit);
}

/* Residual of each spectrum, of equal expected size whatever the spectrum's share in its own fit:
   the geometric mean of those with and without it.  Root mean square over pixels. */
static void standard_residuals(const mill_spectra_work *w, double *out)
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

/* Each spectrum's residual in units of the median of those with similar labels. */
static int doubt(const mill_spectra_work *w, double *out)
{
  int err = MILL_OK;
  double *residual = NULL;
  mill_weighed *near = NULL;
  const int n_near = w->n - 1 < N_NEIGHBOUR ? w->n - 1 : N_NEIGHBOUR;
  MILL_TRY(MILL_ALLOC(w->n, &residual));
  MILL_TRY(MILL_ALLOC(w->n, &near));
  standard_residuals(w, residual);
  for (int i = 0; i < w->n; i++) {
    double like[N_NEIGHBOUR];
    for (int j = 0; j < w->n; j++)
      near[j] = (mill_weighed){j == i ? -1 : distance2(w, i, j), j};
    qsort(near, (size_t)w->n, sizeof *near, mill_by_weight); /* nearest first */
    for (int j = 0; j < n_near; j++)
      like[j] = residual[near[j + 1].place]; /* the first one is itself */
    const double usual = mill_median((size_t)n_near, like);
    /* no spectrum is doubtful if the functions fit to rounding */
    out[i] = residual[i] / fmax(usual, 1e-4);
  }
done:
  mill_free(residual);
  mill_free(near);
  return err;
}

/* Fill gaps with the functions of the labels, and remake components and functions: the change falls
 * by the part of the pixels that are gaps, or faster. */
static int fill_gaps(int n_component, mill_spectra_work *w)
{
  const size_t n_pix = (size_t)w->n_pix;
  for (int pass = 0; pass < N_FILL && w->n_gap > 0; pass++) {
    const size_t q = (size_t)w->n_component;
    for (size_t i = 0; i < (size_t)w->n; i++)
      for (size_t p = 0; p < n_pix; p++) {
        if (!w->gap[i * n_pix + p])
          continue;
        double y = w->mean[p];
        for (size_t k = 0; k < q; k++)
          y += (w->score[i * q + k] - mill_rbf_fit_residual(w->fit, (int)i, (int)k)) *
               w->pattern[k * n_pix + p];
        w->y[i * n_pix + p] = y;
      }
    MILL_CHECK(find_components(n_component, w));
    MILL_CHECK(fit_scores(w));
  }
  return MILL_OK;
}

/* Drop the spectra with limit < ratio. */
static void drop_outliers(const double *ratio, unsigned char *fate, mill_spectra_work *w)
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
    if (n < i) {
      memcpy(w->y + (size_t)n * n_pix, w->y + (size_t)i * n_pix, n_pix * sizeof *w->y);
      memcpy(w->gap + (size_t)n * n_pix, w->gap + (size_t)i * n_pix, n_pix);
    }
    n++;
  }
  w->n = n;
}

int mill_spectra_fit(const mill_labelled_spectra *in, int n_component, unsigned char *fate,
                     mill_spectra_work *w, mill_library *lib)
{
  int err = MILL_OK;
  double *ratio = NULL;
  MILL_TRY(MILL_ALLOC(w->n, &ratio));
  for (int i = 0; i < w->n; i++)
    w->weight[i] = in->weight ? in->weight[w->row[i]] : 1;
  MILL_TRY(make_labels(in, w, lib));
  MILL_TRY(find_components(n_component, w));
  MILL_TRY(fit_scores(w));
  MILL_TRY(fill_gaps(n_component, w));
  if (!w->set->keep_outliers) {
    for (int pass = 0; pass < N_REWEIGHT; pass++) {
      MILL_TRY(doubt(w, ratio));
      for (int i = 0; i < w->n; i++)
        w->weight[i] = ratio[i] > DOUBT_LIMIT ? pow(DOUBT_LIMIT / ratio[i], 2) : 1;
      if (pass < N_REWEIGHT - 1 || w->aligning)
        MILL_TRY(fit_scores(w));
    }
    if (w->aligning)
      goto done;
    drop_outliers(ratio, fate, w);
    if (w->n < MILL_SPECTRA_MIN)
      MILL_FAIL(MILL_ERR_INPUT,
                "all but %d spectra are unlike those with similar labels; check that the labels "
                "belong to them",
                w->n);
    memset(lib->label, 0, sizeof lib->label);
    MILL_TRY(make_labels(in, w, lib));
    MILL_TRY(find_components(n_component, w));
    MILL_TRY(fit_scores(w));
    MILL_TRY(fill_gaps(n_component, w));
  }
done:
  mill_free(ratio);
  return err;
}
