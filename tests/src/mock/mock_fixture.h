/* SPDX-License-Identifier: BSD-3-Clause */
/** A library with the arms of DESI, a survey with room for a row, and settings, for the tests of
 *  the mock survey. */
#ifndef MILL_MOCK_FIXTURE_H
#define MILL_MOCK_FIXTURE_H

#include "tests/mill_test.h"

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/math/hull.h"
#include "src/mock/mock_survey.h"
#include "tests/test_library.h"

enum { SEED = 4711, MAX_PIX = 2881, N_LABEL = 3, N_HIDDEN = 5 };

static mill_library lib; /**< three labels, arms b, r, z with lines of random places */

/* --- a library with DESI's arms --- */

static inline int make_arm(int i_arm, uint64_t *random, mill_arm *arm)
{
  static const char name[] = "brz";
  static const double range_aa[3][2] = {{3570, 5850}, {5710, 7690}, {7450, 9910}};
  int err = MILL_OK;
  mill_emulator *net = &arm->emulator;
  snprintf(arm->name, sizeof arm->name, "%c", name[i_arm]);
  arm->ln_wave0 = log(range_aa[i_arm][0]);
  arm->ln_step = 6e-5;
  arm->n_pix = 1 + (int)(log(range_aa[i_arm][1] / range_aa[i_arm][0]) / arm->ln_step);
  arm->template_sigma_aa = 0.5;
  MILL_TRY(MILL_ALLOC(arm->n_pix, &arm->wave_aa));
  for (int i = 0; i < arm->n_pix; i++)
    arm->wave_aa[i] = exp(arm->ln_wave0 + i * arm->ln_step);
  net->n_layer = 2;
  net->log_flux = 1;
  for (int k = 0; k < 2; k++) {
    net->n_in[k] = k ? N_HIDDEN : N_LABEL;
    net->n_out[k] = k ? arm->n_pix : N_HIDDEN;
    MILL_TRY(MILL_ALLOC(net->n_in[k] * net->n_out[k], &net->weight[k]));
    MILL_TRY(MILL_ALLOC(net->n_out[k], &net->bias[k]));
  }
  for (int i = 0; i < N_HIDDEN * N_LABEL; i++)
    net->weight[0][i] = (float)test_library_random(random);
  for (int i_line = 0; i_line < 400; i_line++) {
    const double sigma_aa = 0.55 + 0.2 * test_library_random(random);
    const double centre_aa =
        exp(arm->ln_wave0 + arm->n_pix * arm->ln_step * 0.5 * (1 + test_library_random(random)));
    const int neuron = i_line % N_HIDDEN;
    const double depth = 0.3 * (1 + test_library_random(random));
    for (int i = 0; i < arm->n_pix; i++) {
      const double u = (arm->wave_aa[i] - centre_aa) / sigma_aa;
      const double profile = fabs(u) < 8 ? depth * exp(-0.5 * u * u) : 0;
      net->weight[1][i * N_HIDDEN + neuron] -= (float)profile;
      net->bias[1][i] -= (float)profile;
    }
  }
  for (int i = 0; i < arm->n_pix; i++)
    net->bias[1][i] += (float)(3.0 - 1.5 * log(arm->wave_aa[i] / 6000));
done:
  return err;
}

static inline int make_library(mill_library *out)
{
  static const mill_label label[N_LABEL] = {
      {"teff", "TEFF", "K", MILL_MAP_LOG10, 3.74, 0.07, 4300, 7000, 60, 0, 0},
      {"logg", "LOGG", "log(cm s**-2)", MILL_MAP_LINEAR, 2.9, 1.4, 0.7, 5.1, 0.15, 0, 0},
      {"feh", "FEH", "dex", MILL_MAP_LINEAR, -1.25, 1.1, -3, 0.5, 0.1, 0, 0}};
  int err = MILL_OK;
  uint64_t random = SEED;
  out->n_label = N_LABEL;
  memcpy(out->label, label, sizeof label);
  /* a corner is cut from the first two labels: x0 + x1 < sqrt(2) in mapped labels */
  out->n_hull = 1;
  mill_hull *hull = &out->hull[0];
  hull->n_label = 2;
  hull->label[1] = 1;
  hull->n_facet = 1;
  MILL_TRY(MILL_ALLOC(3, &hull->facet));
  hull->facet[0] = hull->facet[1] = sqrt(0.5);
  hull->facet[2] = -1;
  out->n_arm = 3;
  for (int a = 0; a < 3; a++)
    MILL_TRY(make_arm(a, &random, &out->arm[a]));
  out->n_guess = 2;
  MILL_TRY(MILL_ALLOC(2 * N_LABEL, &out->guess_label));
  for (int i = 0; i < 2 * N_LABEL; i++)
    out->guess_label[i] = 0.5 * (label[i % N_LABEL].min + label[i % N_LABEL].max);
  out->n_guess_vsini = 1;
done:
  return err;
}

static inline int setup(void **state)
{
  (void)state;
  assert_ok(make_library(&lib));
  return 0;
}

static inline int teardown(void **state)
{
  (void)state;
  mill_library_clear(&lib);
  return 0;
}

/* --- a survey, with room for a row --- */

typedef struct view {
  mill_mock_survey *survey;
  mill_mock_work *work;
  mill_mock_row row;
  double *flux[3];
} view;

static inline void view_init(view *v, mill_mock_survey *survey)
{
  v->survey = survey;
  assert_ok(mill_mock_work_create(survey, &v->work));
  for (int a = 0; a < 3; a++) {
    const int n = mill_mock_arm_of[a].n_pix;
    assert_ok(MILL_ALLOC(n, &v->row.flux[a]));
    assert_ok(MILL_ALLOC(n, &v->row.ivar[a]));
    assert_ok(MILL_ALLOC(n, &v->row.mask[a]));
    assert_ok(MILL_ALLOC(n, &v->flux[a]));
  }
}

static inline void view_free(view *v)
{
  for (int a = 0; a < 3; a++) {
    mill_free(v->row.flux[a]);
    mill_free(v->row.ivar[a]);
    mill_free(v->row.mask[a]);
    mill_free(v->flux[a]);
  }
  mill_mock_work_destroy(v->work);
}

static inline mill_mock_settings usual_settings(void)
{
  mill_mock_settings set = MILL_MOCK_USUAL;
  set.seed = SEED;
  return set;
}

/* No distortion. */
static inline mill_mock_settings clean_settings(void)
{
  mill_mock_settings set = usual_settings();
  set.distortion = 0;
  return set;
}

static inline void open_view(const mill_mock_settings *set, view *v)
{
  mill_mock_survey *survey = NULL;
  assert_ok(mill_mock_survey_create(set, &lib, &survey));
  view_init(v, survey);
}

/* Star i as it is seen, into v's row. */
static inline void observe(view *v, int64_t i, mill_mock_star *star)
{
  mill_mock_draw(v->survey, i, star);
  assert_ok(mill_mock_observe(v->survey, star, v->work, &v->row));
}

/* Neither a cosmic nor dead. */
static inline int is_good(const view *v, int arm, int pixel)
{
  return v->row.mask[arm][pixel] == 0 && v->row.ivar[arm][pixel] > 0;
}

static inline void close_view(view *v)
{
  view_free(v);
  mill_mock_survey_destroy(v->survey);
}

static inline int compare_double(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static inline double median(int n, double *x)
{
  qsort(x, (size_t)n, sizeof *x, compare_double);
  return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}

#endif
