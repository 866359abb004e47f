/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/spectra_library.h"

#include <math.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/libraries/grid_emulators.h"
#include "src/libraries/library_make.h"
#include "src/libraries/library_report.h"
#include "src/libraries/limits.h"
#include "src/libraries/spectra_work.h"
#include "src/system/blas_threads.h"

/* Chosen by leave-one-out on MILES (docs/use/libraries.md). */
enum { DEFAULT_COMPONENT = 40, DEFAULT_CONTINUUM = 8, DEFAULT_DEGREE = 2, DEFAULT_GUESS = 300 };
enum { MAX_ALIGN = 4 }; /* rounds of a stage; three are enough */

void mill_labelled_spectra_clear(mill_labelled_spectra *spectra)
{
  if (!spectra)
    return;
  MILL_FREE(spectra->wave_aa, spectra->flux, spectra->label, spectra->weight, spectra->name);
  memset(spectra, 0, sizeof *spectra);
}

void mill_spectra_report_clear(mill_spectra_report *report)
{
  if (!report)
    return;
  MILL_FREE(report->fate, report->outside, report->gap, report->velocity, report->weight);
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
  settings->n_error = -1;
  settings->error_sn = INFINITY;
  settings->n_thread = 1;
}

const char *mill_spectrum_fate_text(int fate)
{
  static const char *const text[MILL_N_SPECTRUM_FATE] = {
      [MILL_SPECTRUM_USED] = "used",
      [MILL_SPECTRUM_NO_LABEL] = "a label is not known",
      [MILL_SPECTRUM_OUTSIDE] = "a label is outside the range to keep",
      [MILL_SPECTRUM_BAD_FLUX] = "more than a fifth of the pixels are not finite or not above 0",
      [MILL_SPECTRUM_OUTLIER] = "unlike the spectra with similar labels"};
  return fate >= 0 && fate < MILL_N_SPECTRUM_FATE ? text[fate] : "unknown";
}

static void clear_work(mill_spectra_work *w)
{
  MILL_FREE(w->row, w->y, w->gap, w->mapped, w->length, w->weight, w->score, w->lost, w->mean,
            w->pattern);
  mill_rbf_fit_destroy(w->fit);
  memset(w, 0, sizeof *w);
}

/* Labels of spectra that lie as far from one another as can be. */
static int make_guess(const mill_spectra_work *w, const mill_labelled_spectra *in,
                      mill_library *lib, mill_spectra_report *report)
{
  int err = MILL_OK;
  double *value = NULL;
  unsigned char *outside = NULL;
  const size_t n_label = (size_t)w->n_label;
  MILL_TRY(MILL_ALLOC((size_t)w->n * n_label, &value));
  MILL_TRY(MILL_ALLOC(w->n, &outside));
  for (int i = 0; i < w->n; i++)
    memcpy(value + (size_t)i * n_label, in->label + (size_t)w->row[i] * n_label,
           n_label * sizeof *value);
  MILL_TRY(
      mill_library_spread_guess(w->n, value, w->mapped, w->length, w->set->n_guess, lib, outside));
  for (int i = 0; i < w->n; i++) {
    report->outside[w->row[i]] = outside[i];
    report->n_outside += outside[i];
  }
done:
  MILL_FREE(value, outside);
  return err;
}

/* Scores of unit mean square, as all of them go through the fit in float32 together. */
static int make_emulator(const mill_spectra_work *w, mill_emulator *e)
{
  const size_t q = (size_t)w->n_component, n_pix = (size_t)w->n_pix;
  e->kind = MILL_EMULATOR_RBF;
  e->log_flux = 1;
  e->n_layer = 1;
  e->n_in[0] = w->n_component;
  e->n_out[0] = w->n_pix;
  MILL_CHECK(MILL_ALLOC(n_pix, &e->bias[0]));
  MILL_CHECK(MILL_ALLOC(n_pix * q, &e->weight[0]));
  MILL_CHECK(mill_rbf_fit_export(w->fit, &e->rbf));
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
  return MILL_OK;
}

static int check_settings(const mill_spectra_library_settings *set, const mill_labelled_spectra *in)
{
  MILL_CHECK(
      mill_expect_within(MILL_ERR_RANGE, "labels of spectra", in->n_label, 1, MILL_MAX_GRID_AXIS));
  if (in->n_spectrum < 1 || in->n_pix < 2)
    return MILL_ERROR(MILL_ERR_INPUT, "%d spectra of %d pixels", in->n_spectrum, in->n_pix);
  MILL_CHECK(mill_expect_within(MILL_ERR_RANGE, "degree of the continuum", set->continuum, -1,
                                MILL_SPECTRA_LIBRARY_MAX_CONTINUUM));
  MILL_CHECK(mill_expect_within(MILL_ERR_RANGE, "degree of the polynomial", set->degree, 1,
                                MILL_MAX_RBF_DEGREE));
  if (!isfinite(set->template_sigma_aa))
    return MILL_ERROR(MILL_ERR_RANGE, "the resolution of the spectra is not given");
  return mill_library_make_check(set->n_component, set->smoothing, set->n_guess, set->n_thread);
}

static int report_begin(const mill_labelled_spectra *in, mill_spectra_report *report)
{
  const size_t n = (size_t)in->n_spectrum;
  report->n_spectrum = in->n_spectrum;
  MILL_CHECK(MILL_ALLOC(n, &report->fate));
  MILL_CHECK(MILL_ALLOC(n, &report->outside));
  MILL_CHECK(MILL_ALLOC(n, &report->gap));
  MILL_CHECK(MILL_ALLOC(n, &report->velocity));
  return MILL_ALLOC(n, &report->weight);
}

/* Everything below w->n rows of the largest size that it will have. */
static int work_begin(const mill_spectra_library_settings *set, const mill_labelled_spectra *in,
                      mill_spectra_report *report, int first, int n_in, mill_spectra_work *w)
{
  const size_t n = (size_t)in->n_spectrum;
  w->set = set;
  w->n_label = in->n_label;
  MILL_CHECK(MILL_ALLOC(n, &w->row));
  MILL_CHECK(MILL_ALLOC(n, &w->weight));
  MILL_CHECK(MILL_ALLOC(n, &w->lost));
  MILL_CHECK(MILL_ALLOC(n * (size_t)in->n_label, &w->mapped));
  MILL_CHECK(MILL_ALLOC(in->n_label, &w->length));
  for (int i = 0; i < in->n_spectrum; i++) {
    report->fate[i] = (unsigned char)mill_spectra_fate_of(set, in, first, n_in, i);
    if (report->fate[i] == MILL_SPECTRUM_USED)
      w->row[w->n++] = i;
  }
  return MILL_OK;
}

static void count_fates(mill_spectra_report *report)
{
  memset(report->n_fate, 0, sizeof report->n_fate);
  for (int i = 0; i < report->n_spectrum; i++)
    report->n_fate[report->fate[i]]++;
}

/* Spectra on the library's wavelengths, and the functions of the labels. */
static int make_functions(const mill_spectra_library_settings *set, const mill_labelled_spectra *in,
                          int first, int n_in, mill_library *lib, mill_spectra_report *report,
                          mill_spectra_work *w)
{
  const int n_component = set->n_component ? set->n_component : DEFAULT_COMPONENT;
  MILL_CHECK(work_begin(set, in, report, first, n_in, w));
  MILL_CHECK(mill_spectra_check_pixels(in, first, n_in, report));
  lib->n_arm = 1;
  MILL_CHECK(mill_spectra_make_grid(in, first, n_in, &lib->arm[0], report, w));
  count_fates(report);
  if (w->n < MILL_SPECTRA_MIN)
    MILL_CHECK(mill_spectra_too_few(report, w->n));
  MILL_CHECK(MILL_ALLOC((size_t)w->n * (size_t)n_component, &w->score));
  MILL_CHECK(MILL_ALLOC(w->n_pix, &w->mean));
  MILL_CHECK(MILL_ALLOC((size_t)n_component * (size_t)w->n_pix, &w->pattern));
  MILL_CHECK(mill_spectra_fit(in, n_component, report->fate, w, lib));
  count_fates(report);
  return MILL_OK;
}

/* Copy the spectra in use for the caller. */
static int hand_out(const mill_spectra_work *w, const mill_labelled_spectra *in,
                    const mill_library *lib, mill_model_set *used)
{
  const size_t n_label = (size_t)w->n_label;
  MILL_CHECK(mill_model_set_alloc(w->n, lib, NULL, used));
  for (int i = 0; i < w->n; i++) {
    const int row = w->row[i];
    if (in->name)
      snprintf(used->name[i], sizeof used->name[i], "%s", in->name[row]);
    else
      snprintf(used->name[i], sizeof used->name[i], "row %d", row + 1);
    memcpy(used->label + (size_t)i * n_label, in->label + (size_t)row * n_label,
           n_label * sizeof *used->label);
  }
  for (size_t p = 0; p < (size_t)w->n * (size_t)w->n_pix; p++)
    used->flux[0][p] = (float)exp(w->y[p]);
  return MILL_OK;
}

static int build(const mill_spectra_library_settings *set, const mill_labelled_spectra *in,
                 mill_library *lib, mill_spectra_report *report, mill_spectra_work *w,
                 mill_model_set *used)
{
  int first = 0, n_in = 0;
  MILL_CHECK(check_settings(set, in));
  MILL_CHECK(mill_spectra_find_pixels(set, in, &first, &n_in));
  MILL_CHECK(report_begin(in, report));
  for (int stage = set->align ? MILL_SPECTRA_ALIGN_STIFF : MILL_SPECTRA_LAST, n = 0;
       stage != MILL_SPECTRA_LAST;) {
    int done = 0;
    w->aligning = stage;
    MILL_CHECK(make_functions(set, in, first, n_in, lib, report, w));
    MILL_CHECK(mill_spectra_align(w, lib, report, &done));
    clear_work(w);
    mill_library_clear(lib);
    if (done || ++n == MAX_ALIGN) {
      stage = stage == MILL_SPECTRA_ALIGN_STIFF ? MILL_SPECTRA_ALIGN : MILL_SPECTRA_LAST;
      n = 0;
    }
  }
  MILL_CHECK(make_functions(set, in, first, n_in, lib, report, w));
  MILL_CHECK(mill_library_make_hulls(w->n, w->mapped,
                                     w->set->hull_all ? MILL_HULLS_PAIRS : MILL_HULLS_DENSE, lib));
  MILL_CHECK(make_guess(w, in, lib, report));
  MILL_CHECK(make_emulator(w, &lib->arm[0].emulator));
  MILL_CHECK(mill_spectra_measure(w, lib, report));
  if (used)
    MILL_CHECK(hand_out(w, in, lib, used));
  return MILL_OK;
}

int mill_spectra_library_build(const mill_spectra_library_settings *settings,
                               const mill_labelled_spectra *spectra, mill_library *lib,
                               mill_spectra_report *report, mill_model_set *used)
{
  int err = MILL_OK;
  int n_blas = 0;
  mill_spectra_work w = {0};
  memset(report, 0, sizeof *report);
  MILL_TRY(mill_blas_begin(settings->n_thread, &n_blas));
  MILL_TRY(build(settings, spectra, lib, report, &w, used));
done:
  mill_blas_end(n_blas);
  clear_work(&w);
  if (err != MILL_OK) {
    mill_library_clear(lib);
    mill_spectra_report_clear(report);
  }
  return err;
}

/* Spectra that are not left out, on the library's pixels, with the weights that they had. */
static int take_rest(const mill_library *lib, const mill_spectra_report *report,
                     const mill_model_set *used, const unsigned char *is_out,
                     mill_labelled_spectra *rest, mill_model_set *left_out)
{
  const size_t n_label = (size_t)lib->n_label, n_pix = (size_t)lib->arm[0].n_pix;
  const int n = used->n - left_out->n;
  rest->n_label = lib->n_label;
  rest->n_pix = lib->arm[0].n_pix;
  MILL_CHECK(MILL_ALLOC(n_pix, &rest->wave_aa));
  MILL_CHECK(MILL_ALLOC((size_t)n * n_pix, &rest->flux));
  MILL_CHECK(MILL_ALLOC((size_t)n * n_label, &rest->label));
  MILL_CHECK(MILL_ALLOC(n, &rest->weight));
  memcpy(rest->wave_aa, lib->arm[0].wave_aa, n_pix * sizeof *rest->wave_aa);
  for (int i = 0, row = -1, n_out = 0; i < used->n; i++) {
    do
      row++;
    while (report->fate[row] != MILL_SPECTRUM_USED);
    const size_t at = (size_t)(is_out[i] ? n_out : rest->n_spectrum);
    memcpy((is_out[i] ? left_out->label : rest->label) + at * n_label,
           used->label + (size_t)i * n_label, n_label * sizeof *used->label);
    memcpy((is_out[i] ? left_out->flux[0] : rest->flux) + at * n_pix,
           used->flux[0] + (size_t)i * n_pix, n_pix * sizeof *rest->flux);
    if (is_out[i]) {
      memcpy(left_out->name[n_out++], used->name[i], sizeof used->name[i]);
    } else {
      rest->weight[rest->n_spectrum++] = report->weight[row];
    }
  }
  return MILL_OK;
}

int mill_spectra_left_out(const mill_spectra_library_settings *settings, const mill_library *lib,
                          const mill_spectra_report *report, const mill_model_set *used,
                          double part, uint64_t seed, mill_library *without,
                          mill_model_set *left_out)
{
  int err = MILL_OK, n_out = 0;
  const int most = (int)(part * used->n + 0.5);
  const mill_grid_models models = {.n = used->n, .value = used->label};
  unsigned char *is_out = NULL;
  mill_labelled_spectra rest = {0};
  mill_spectra_report said = {0};
  mill_spectra_library_settings set = *settings; /* the spectra are already corrected */
  set.min_aa = 0;
  set.max_aa = INFINITY;
  set.align = 0;
  set.keep_outliers = 1;
  set.n_error = -1;
  MILL_TRY(MILL_ALLOC(used->n, &is_out));
  MILL_TRY(mill_grid_choose_left_out(MILL_WAY_RADIAL, &models, lib,
                                     most < MILL_REPORT_MAX ? most : MILL_REPORT_MAX, seed, is_out,
                                     &n_out));
  if (n_out == 0)
    goto done;
  MILL_TRY(mill_model_set_alloc(n_out, lib, NULL, left_out));
  MILL_TRY(take_rest(lib, report, used, is_out, &rest, left_out));
  MILL_TRY(mill_spectra_library_build(&set, &rest, without, &said, NULL));
done:
  mill_free(is_out);
  mill_labelled_spectra_clear(&rest);
  mill_spectra_report_clear(&said);
  return err;
}
