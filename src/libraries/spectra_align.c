/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/spectra_work.h"

#include <math.h>

#include "kernels/base/common.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/libraries/quantile.h"

/* Velocities that are looked for, and the change that ends the search, both in km/s. */
#define MAX_VELOCITY 600.0
#define SMALL_CHANGE 0.2

/* Prediction for spectrum i by functions made without it, out [n_pix]. */
static void predict(const mill_spectra_work *w, int i, double *out)
{
  const size_t q = (size_t)w->n_component, n_pix = (size_t)w->n_pix;
  const double *left_out = mill_rbf_fit_left_out(w->fit) + (size_t)i * q;
  for (size_t p = 0; p < n_pix; p++)
    out[p] = w->mean[p];
  for (size_t k = 0; k < q; k++) {
    const double score = w->score[(size_t)i * q + k] - left_out[k];
    for (size_t p = 0; p < n_pix; p++)
      out[p] += score * w->pattern[k * n_pix + p];
  }
}

/* Mean square of y, moved by this many pixels to the left, minus model; the most ends of both are
   left out, so that all shifts compare the same pixels of the model. */
static double misfit(int n, int most, int shift, const double *y, const unsigned char *gap,
                     const double *model)
{
  double sum = 0;
  int n_good = 0;
  for (int p = most; p < n - most; p++) {
    const double d = y[p + shift] - model[p];
    const int good = !gap[p + shift];
    sum += good ? d * d : 0;
    n_good += good;
  }
  return n_good > 0 ? sum / n_good : INFINITY;
}

/* Velocity of y against model: the least misfit among whole pixels, and a parabola through its
   neighbours, which is exact at zero velocity.  NaN: at the end of the range. */
static double find_velocity(const mill_spectra_work *w, double step_km_s, int i, const double *y,
                            const double *model)
{
  const unsigned char *gap = w->gap + (size_t)i * (size_t)w->n_pix;
  const int wanted = (int)ceil(MAX_VELOCITY / step_km_s), room = w->n_pix / 8;
  const int most = wanted < room ? wanted : room;
  double best = INFINITY;
  int at = 0;
  for (int s = -most; s <= most; s++) {
    const double now = misfit(w->n_pix, most, s, y, gap, model);
    if (now < best) {
      best = now;
      at = s;
    }
  }
  if (at <= -most || at >= most)
    return NAN;
  const double left = misfit(w->n_pix, most, at - 1, y, gap, model),
               right = misfit(w->n_pix, most, at + 1, y, gap, model);
  const double bend = left - 2 * best + right;
  const double pixels = at + (bend > 0 ? 0.5 * (left - right) / bend : 0);
  return MILL_C_KM_S * tanh(pixels * step_km_s / MILL_C_KM_S);
}

/* Velocities of all spectra in use, found [n]. */
static int find_velocities(const mill_spectra_work *w, const mill_library *lib, double *found)
{
  int failed = 0;
  const size_t n_pix = (size_t)w->n_pix;
  const double step_km_s = MILL_C_KM_S * lib->arm[0].ln_step;
#pragma omp parallel for num_threads(w->set->n_thread) schedule(dynamic, 4)
  for (int i = 0; i < w->n; i++) {
    double *model = NULL;
    if (MILL_ALLOC(n_pix, &model) != MILL_OK) {
#pragma omp atomic write
      failed = 1;
      continue;
    }
    predict(w, i, model);
    found[i] = find_velocity(w, step_km_s, i, w->y + (size_t)i * n_pix, model);
    mill_free(model);
  }
  if (failed)
    return MILL_ERROR(MILL_ERR_MEMORY, "no memory to find the velocities of the spectra");
  return MILL_OK;
}

/* Median and robust scatter of the finite ones of x [n], which is sorted. */
static void centre(int n, double *x, double *median, double *scatter)
{
  int n_good = 0;
  *median = *scatter = NAN;
  for (int i = 0; i < n; i++)
    if (isfinite(x[i]))
      x[n_good++] = x[i];
  if (n_good > 0)
    mill_robust((size_t)n_good, x, median, scatter);
}

int mill_spectra_align(const mill_spectra_work *w, const mill_library *lib,
                       mill_spectra_report *report, int *done)
{
  int err = MILL_OK;
  double *found = NULL, *sorted = NULL, median;
  MILL_TRY(MILL_ALLOC(w->n, &found));
  MILL_TRY(MILL_ALLOC(w->n, &sorted));
  MILL_TRY(find_velocities(w, lib, found));
  for (int i = 0; i < w->n; i++)
    sorted[i] = found[i];
  centre(w->n, sorted, &median, &report->align_step);
  for (int i = 0; i < w->n; i++)
    if (isfinite(found[i])) {
      double *v = &report->velocity[w->row[i]];
      *v = MILL_C_KM_S * tanh(atanh(*v / MILL_C_KM_S) + atanh(found[i] / MILL_C_KM_S));
    }
  /* comparing the spectra with each other leaves their common velocity open: its median is 0 */
  for (int i = 0; i < w->n; i++)
    sorted[i] = report->velocity[w->row[i]];
  double scatter;
  centre(w->n, sorted, &median, &scatter);
  for (int i = 0; i < w->n; i++)
    report->velocity[w->row[i]] -= median;
  report->n_align++;
  *done = !(report->align_step > SMALL_CHANGE);
done:
  mill_free(found);
  mill_free(sorted);
  return err;
}
