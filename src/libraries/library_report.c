/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/library_report.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/math/hull.h"
#include "src/libraries/emulator.h"
#include "src/libraries/limits.h"
#include "src/libraries/quantile.h"
#include "src/libraries/report_fit.h"
#include "src/system/blas_threads.h"
#include "src/system/select.h"

const double mill_report_sn[MILL_REPORT_N_SN] = {20, 100};

void mill_library_report_clear(mill_library_report *report)
{
  if (!report)
    return;
  for (int a = 0; a < MILL_MAX_ARM; a++)
    mill_model_error_clear(&report->error[a]);
  memset(report, 0, sizeof *report);
}

/* Spectra inside the hulls, by their index. */
static int keep_inside(const mill_library *lib, const mill_model_set *in, int *kept,
                       mill_library_report *report)
{
  MILL_CHECK(mill_expect_within(MILL_ERR_RANGE, "spectra left out", in->n, 1, MILL_REPORT_MAX));
  for (int i = 0; i < in->n; i++) {
    double x[MILL_MAX_LABEL];
    for (int l = 0; l < lib->n_label; l++)
      x[l] =
          mill_label_map(&lib->label[l], in->label[(size_t)i * (size_t)lib->n_label + (size_t)l]);
    if (mill_hull_distance(lib->n_hull, lib->hull, x) <= 1e-9)
      kept[report->n++] = i;
  }
  report->n_outside = in->n - report->n;
  if (report->n == 0)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "none of the %d spectra left out has labels inside the library's hulls",
                      in->n);
  return MILL_OK;
}

/* ---- errors of pixels ----------------------------------------------------------------------- */

/* Order statistics of x [n], which is reordered. */
static mill_report_error distribution(size_t n, float *x)
{
  mill_report_error out = {0};
  const int last = (int)n - 1;
  out.median = (double)mill_select_float((int)n, x, (int)(0.5 * last));
  out.p95 = (double)mill_select_float((int)n, x, (int)(0.95 * last));
  out.p99 = (double)mill_select_float((int)n, x, (int)(0.99 * last));
  out.max = (double)mill_select_float((int)n, x, last);
  return out;
}

/* Emulated spectra of an arm: error [n][n_pix] in per cent and residual over the template. */
static int arm_errors(const mill_library *lib, int a, const mill_model_set *in, int n,
                      const int *kept, int n_thread, float *error, double *residual)
{
  int err = MILL_OK;
  const size_t n_pix = (size_t)lib->arm[a].n_pix, n_label = (size_t)lib->n_label;
  double *label = NULL;
  mill_lanes *templ = NULL;
  MILL_TRY(MILL_ALLOC(MILL_EMULATOR_LANE * n_label, &label));
  MILL_TRY(MILL_ALLOC(n_pix, &templ));
  for (int first = 0; first < n; first += MILL_EMULATOR_LANE) {
    const int n_lane = n - first < MILL_EMULATOR_LANE ? n - first : MILL_EMULATOR_LANE;
    for (int t = 0; t < n_lane; t++)
      memcpy(label + (size_t)t * n_label, in->label + (size_t)kept[first + t] * n_label,
             n_label * sizeof *label);
    MILL_TRY(mill_emulator_lanes(lib, a, n_lane, label, n_thread, templ));
    for (int t = 0; t < n_lane; t++) {
      const float *flux = in->flux[a] + (size_t)kept[first + t] * n_pix;
      const float *unit =
          in->continuum[a] ? in->continuum[a] + (size_t)kept[first + t] * n_pix : flux;
      const size_t at = (size_t)(first + t) * n_pix;
      for (size_t p = 0; p < n_pix; p++) {
        const double m = templ[p].v[t / 4][t % 4];
        error[at + p] = (float)(100 * fabs(m - (double)flux[p]) / (double)unit[p]);
        residual[at + p] = (double)flux[p] / m - 1;
      }
    }
  }
done:
  MILL_FREE(label, templ);
  return err;
}

/* Model error from the residuals; none with fewer spectra than a measurement needs. */
static int arm_residuals(const mill_arm *arm, int n, double *residual, int n_component,
                         mill_model_error *error, mill_model_error_report *report)
{
  mill_residuals r = {.n = n, .n_pix = arm->n_pix, .value = residual};
  if (n < MILL_MODEL_ERROR_MIN || arm->n_pix < 4 * MILL_MODEL_ERROR_CONTINUUM)
    return MILL_OK;
  return mill_model_error_measure(arm->wave_aa, &r, n_component < n / 2 ? n_component : n / 2,
                                  error, report);
}

static int compare_down(const void *a, const void *b)
{
  const double *p = a, *q = b;
  return (p[0] < q[0]) - (p[0] > q[0]);
}

/* rms of every spectrum over all arms, and the worst of them. */
static int find_worst(const mill_model_set *in, int n, const int *kept, const double *square,
                      mill_library_report *report, mill_report_error *all)
{
  int err = MILL_OK;
  double(*order)[2] = NULL;
  float *rms = NULL;
  MILL_TRY(MILL_ALLOC(n, &order));
  MILL_TRY(MILL_ALLOC(n, &rms));
  for (int i = 0; i < n; i++) {
    order[i][0] = sqrt(square[i]);
    order[i][1] = i;
    rms[i] = (float)order[i][0];
  }
  qsort(order, (size_t)n, sizeof *order, compare_down);
  report->n_worst = n < MILL_REPORT_WORST ? n : MILL_REPORT_WORST;
  for (int i = 0; i < report->n_worst; i++) {
    report->worst_rms[i] = order[i][0];
    snprintf(report->worst[i], sizeof report->worst[i], "%s", in->name[kept[(int)order[i][1]]]);
  }
  *all = distribution((size_t)n, rms);
done:
  MILL_FREE(order, rms);
  return err;
}

static int measure_pixels(const mill_library *lib, const mill_model_set *in, const int *kept,
                          int n_thread, int n_component, mill_library_report *report)
{
  int err = MILL_OK;
  const int n = report->n;
  float *error = NULL, *rms = NULL, *all = NULL;
  double *residual = NULL, *square = NULL; /* [n] mean over all pixels */
  size_t n_all = 0, used = 0;
  for (int a = 0; a < lib->n_arm; a++)
    n_all += (size_t)lib->arm[a].n_pix;
  if (n_all * (size_t)n > INT32_MAX)
    MILL_FAIL(MILL_ERR_RANGE, "%d spectra of %zu pixels are too many for a report; leave out fewer",
              n, n_all);
  MILL_TRY(MILL_ALLOC((size_t)n * n_all, &all));
  MILL_TRY(MILL_ALLOC(n, &rms));
  MILL_TRY(MILL_ALLOC(n, &square));
  for (int a = 0; a < lib->n_arm; a++) {
    const size_t n_pix = (size_t)lib->arm[a].n_pix, size = (size_t)n * n_pix;
    error = all + used;
    used += size;
    MILL_TRY(MILL_ALLOC(size, &residual));
    MILL_TRY(arm_errors(lib, a, in, n, kept, n_thread, error, residual));
    for (size_t i = 0; i < (size_t)n; i++) {
      double sum = 0;
      for (size_t p = 0; p < n_pix; p++)
        sum += pow((double)error[i * n_pix + p], 2);
      rms[i] = (float)sqrt(sum / (double)n_pix);
      square[i] += sum / (double)n_all;
    }
    report->of_continuum[a] = in->continuum[a] != NULL;
    report->model[a] = distribution((size_t)n, rms);
    report->pixel[a] = distribution(size, error);
    MILL_TRY(arm_residuals(&lib->arm[a], n, residual, n_component, &report->error[a],
                           &report->residual[a]));
    mill_free(residual);
    residual = NULL;
  }
  report->pixel[lib->n_arm] = distribution(used, all);
  MILL_TRY(find_worst(in, n, kept, square, report, &report->model[lib->n_arm]));
done:
  MILL_FREE(all, rms, square, residual);
  return err;
}

/* ---- errors of labels ----------------------------------------------------------------------- */

/* One label or the velocity, from the fits of all spectra at one S/N; work [n]. */
static mill_report_label summarise(const mill_report_fit *fit, size_t n, int l, double *work)
{
  mill_report_label out = {0};
  for (size_t i = 0; i < n; i++)
    work[i] = fit[i].found[l] - fit[i].truth[l];
  mill_robust(n, work, &out.bias, &out.scatter);
  for (size_t i = 0; i < n; i++)
    work[i] = fit[i].found[l] - fit[i].own_found[l];
  mill_robust(n, work, &out.own_bias, &out.own_scatter);
  for (size_t i = 0; i < n; i++)
    work[i] = fit[i].sigma[l];
  out.sigma = mill_median(n, work);
  for (size_t i = 0; i < n; i++)
    work[i] = (fit[i].found[l] - fit[i].own_found[l]) / fit[i].sigma[l];
  out.own_in_sigma = mill_median(n, work);
  const double all = out.bias * out.bias + out.scatter * out.scatter;
  out.share = all > 0 ? (out.own_bias * out.own_bias + out.own_scatter * out.own_scatter) / all : 0;
  return out;
}

static int measure_labels(const mill_library *lib, const mill_model_set *in, const int *kept,
                          int n_thread, mill_library_report *report)
{
  int err = MILL_OK, fitted[MILL_REPORT_FITS];
  mill_report_fit *fit = NULL; /* [n_sn][n] */
  double *work = NULL;
  report->n_tried = report->n < MILL_REPORT_FITS ? report->n : MILL_REPORT_FITS;
  const size_t n = (size_t)report->n_tried;
  for (int i = 0; i < report->n_tried; i++)
    fitted[i] = kept[i * report->n / report->n_tried];
  MILL_TRY(MILL_ALLOC(MILL_REPORT_N_SN * n, &fit));
  MILL_TRY(MILL_ALLOC(n, &work));
  MILL_TRY(mill_report_fits(lib, in, report->n_tried, fitted, n_thread, fit));
  for (int s = 0; s < MILL_REPORT_N_SN; s++) {
    mill_report_fit *of = fit + (size_t)s * n;
    size_t n_good = 0;
    for (size_t i = 0; i < n; i++)
      if (of[i].good)
        of[n_good++] = of[i];
    report->n_fit[s] = (int)n_good;
    for (int l = 0; l <= lib->n_label && n_good > 0; l++)
      report->fit[s][l] = summarise(of, n_good, l, work);
  }
done:
  MILL_FREE(fit, work);
  return err;
}

int mill_library_report_make(const mill_library *lib, const mill_model_set *spectra, int n_thread,
                             int n_component, mill_library_report *report)
{
  int err = MILL_OK, n_blas = 0;
  int *kept = NULL;
  memset(report, 0, sizeof *report);
  MILL_TRY(mill_blas_begin(n_thread, &n_blas));
  MILL_TRY(MILL_ALLOC(spectra->n > 0 ? spectra->n : 1, &kept));
  MILL_TRY(keep_inside(lib, spectra, kept, report));
  MILL_TRY(measure_pixels(lib, spectra, kept, n_thread, n_component, report));
  MILL_TRY(measure_labels(lib, spectra, kept, n_thread, report));
done:
  mill_blas_end(n_blas);
  mill_free(kept);
  if (err != MILL_OK)
    mill_library_report_clear(report);
  return err;
}

/* ---- text ----------------------------------------------------------------------------------- */

typedef struct writer {
  char *text;
  size_t used, size;
} writer;

__attribute__((format(printf, 2, 3))) static void say(writer *w, const char *format, ...)
{
  va_list arg;
  va_start(arg, format);
  const int n = vsnprintf(w->text + w->used, w->size - w->used, format, arg);
  va_end(arg);
  w->used += n > 0 && (size_t)n < w->size - w->used ? (size_t)n : 0; /* a line that does not fit */
  w->text[w->used] = '\0';
}

static void say_pixels(const mill_library *lib, const mill_library_report *r, writer *w)
{
  int n_continuum = 0;
  for (int a = 0; a < lib->n_arm; a++)
    n_continuum += r->of_continuum[a];
  say(w, "error of their pixels, per cent of the %s\n",
      n_continuum == lib->n_arm ? "continuum"
      : n_continuum == 0        ? "flux"
                                : "continuum, of the flux in arms without (*)");
  say(w, "            all pixels                              rms of a spectrum\n"
         "  arm       median     95 %%     99 %%  largest   median     95 %%  largest\n");
  for (int a = 0; a <= lib->n_arm; a++) {
    const mill_report_error *p = &r->pixel[a], *m = &r->model[a];
    const int marked = a < lib->n_arm && n_continuum > 0 && !r->of_continuum[a];
    say(w, "  %-8s%s%8.4f %8.4f %8.4f %8.3f %8.4f %8.4f %8.3f\n",
        a < lib->n_arm ? lib->arm[a].name : "all", marked ? "*" : " ", p->median, p->p95, p->p99,
        p->max, m->median, m->p95, m->max);
  }
  say(w, "worst spectra, rms in per cent\n");
  for (int i = 0; i < r->n_worst; i++)
    say(w, "  %8.4f  %s\n", r->worst_rms[i], r->worst[i]);
}

static void say_labels(const mill_library *lib, const mill_library_report *r, writer *w)
{
  say(w,
      "fitted labels and velocity of %d of these spectra, with noise\n"
      "                      fitted - true          error of     the emulator's own part\n"
      "  S/N  what         median    scatter     the fit     median    scatter  in errors  "
      "share\n",
      r->n_tried);
  for (int s = 0; s < MILL_REPORT_N_SN; s++) {
    for (int l = 0; l <= lib->n_label && r->n_fit[s] > 0; l++) {
      const mill_report_label *x = &r->fit[s][l];
      say(w, "  %3.0f  %-8s %10.4g %10.4g  %10.4g %10.4g %10.4g %10.3f %5.0f %%\n",
          mill_report_sn[s], l < lib->n_label ? lib->label[l].name : "km/s", x->bias, x->scatter,
          x->sigma, x->own_bias, x->own_scatter, x->own_in_sigma, 100 * x->share);
    }
    if (r->n_fit[s] < r->n_tried)
      say(w, "  %3.0f  the fits of %d spectra did not finish\n", mill_report_sn[s],
          r->n_tried - r->n_fit[s]);
  }
}

int mill_library_report_text(const mill_library *lib, const mill_library_report *report,
                             const char *how, char **text)
{
  writer w = {.size = 16384}; /* 8 arms, 2 x 17 labels: half of it */
  MILL_CHECK(MILL_ALLOC(w.size, &w.text));
  say(&w, "report  %d spectra that were left out", report->n);
  if (report->n_outside > 0)
    say(&w, ", and %d outside the hulls", report->n_outside);
  say(&w, "\n%s\n", how);
  say_pixels(lib, report, &w);
  say_labels(lib, report, &w);
  for (int a = 0; a < lib->n_arm; a++) {
    const mill_model_error_report *x = &report->residual[a];
    if (x->n == 0)
      continue;
    if (a == 0)
      say(&w, "residuals without their continuum (docs/science/numerics.md, \"Model error\")\n");
    say(&w, "  %-8s rms %.4f %%, of which %d components leave %.4f %%, correlated over %.2f A\n",
        lib->arm[a].name, 100 * x->rms, report->error[a].n_component, 100 * x->rms * sqrt(x->left),
        x->correlation_aa);
  }
  for (char *c = w.text; *c; c++) /* names of models may be anything */
    if (*c != '\n' && (*c < ' ' || *c > '~'))
      *c = '?';
  *text = w.text;
  return MILL_OK;
}
