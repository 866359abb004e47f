/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/mock/mock_survey.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/config/config.h"
#include "src/mock/mock_internal.h"

/* Of all pixels. */
#define COSMIC_SHARE 0.001
#define DEAD_SHARE   0.001

/* --- amplitudes --- */

/** Median S/N of arm r of a star of this amplitude. */
static double median_sn(const mill_mock_survey *survey, int lsf_group, const float *ideal,
                        double amplitude, float *sorted)
{
  const int n = mill_mock_arm_of[1].n_pix;
  const float *shape = ideal + survey->first[1], *gain = survey->instrument.gain[1];
  const float *background = survey->instrument.background[lsf_group][1];
  const float a = (float)amplitude;
  for (int i = 0; i < n; i++) {
    const float flux = a * shape[i], positive = flux > 0.0f ? flux : 0.0f;
    sorted[i] = flux / sqrtf(gain[i] * positive + background[i]);
  }
  return mill_mock_median(n, sorted);
}

/** Amplitude that gives the S/N.  ln S/N rises with slope 1/2 to 1 in ln amplitude, so
 *  that steps of 4/3 of what is missing leave a third of it at most. */
static double solve_amplitude(const mill_mock_survey *survey, int lsf_group, const float *ideal,
                              double sn, float *sorted)
{
  double ln_a = log(sn);
  for (int i = 0; i < 40; i++) {
    const double step =
        log(sn / median_sn(survey, lsf_group, ideal, exp(ln_a), sorted)) * (4.0 / 3.0);
    ln_a += step;
    if (fabs(step) < 1e-5)
      break;
  }
  return exp(ln_a);
}

/* --- making and freeing --- */

int mill_mock_cut_arms(mill_library *lib)
{
  mill_config config;
  mill_config_default(&config);
  config.n_arm = MILL_MOCK_N_ARM;
  for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
    const mill_mock_arm *arm = &mill_mock_arm_of[a];
    mill_arm_choice *choice = &config.arm[a];
    memset(choice, 0, sizeof *choice);
    snprintf(choice->arm, sizeof choice->arm, "%s", arm->name);
    choice->min_aa = arm->wave0_aa;
    choice->max_aa = arm->wave0_aa + arm->step_aa * (arm->n_pix - 1);
  }
  const int err = mill_config_cut_arms(&config, lib);
  mill_config_clear(&config);
  return err;
}

/** Arms of the library, and the pixels that they reach at every velocity: half of them at least. */
static int find_arms(mill_mock_survey *survey)
{
  const mill_library *lib = survey->lib;
  const double reach = exp(atanh(MILL_MOCK_MAX_VEL / MILL_C_KM_S));
  for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
    const mill_mock_arm *info = &mill_mock_arm_of[a];
    const double *wave_aa = survey->instrument.wave_aa[a];
    const int i_arm = mill_library_find_arm(lib, info->name);
    int *begin = &survey->begin[a], *end = &survey->end[a];
    if (i_arm < 0)
      return MILL_ERROR(
          MILL_ERR_LIBRARY,
          "%s has no arm %s; simulated stars need the arms b, r and z, or one arm over all of them",
          lib->path, info->name);
    const mill_arm *arm = &lib->arm[i_arm];
    survey->arm_of[a] = i_arm;
    *end = info->n_pix;
    while (*begin < *end && wave_aa[*begin] < arm->wave_aa[0] * reach)
      ++*begin;
    while (*end > *begin && wave_aa[*end - 1] > arm->wave_aa[arm->n_pix - 1] / reach)
      --*end;
    if (*end - *begin < info->n_pix / 2)
      return MILL_ERROR(MILL_ERR_LIBRARY,
                        "%s: arm %s covers %.1f to %.1f A, less than half of the instrument's %.1f "
                        "to %.1f A at all velocities up to %g km/s",
                        lib->path, info->name, arm->wave_aa[0], arm->wave_aa[arm->n_pix - 1],
                        wave_aa[0], wave_aa[info->n_pix - 1], MILL_MOCK_MAX_VEL);
  }
  return MILL_OK;
}

int mill_mock_survey_create(const mill_mock_settings *settings, const mill_library *lib,
                            mill_mock_survey **out)
{
  int err = MILL_OK;
  mill_mock_survey *survey = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &survey));
  survey->set = *settings;
  survey->lib = lib;
  for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
    survey->first[a] = survey->n_pix;
    survey->n_pix += mill_mock_arm_of[a].n_pix;
  }
  MILL_TRY(mill_mock_instrument_create(&survey->instrument));
  MILL_TRY(find_arms(survey));
  MILL_TRY(mill_mock_forward_rows(survey));
  MILL_TRY(mill_mock_draw_check(survey));
  *out = survey;
  survey = NULL;
done:
  mill_mock_survey_destroy(survey);
  return err;
}

void mill_mock_survey_destroy(mill_mock_survey *survey)
{
  if (!survey)
    return;
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    for (int g = 0; g < MILL_MOCK_N_LSF; g++)
      mill_free(survey->rows[g][a]);
  mill_mock_instrument_clear(&survey->instrument);
  mill_free(survey);
}

const mill_library *mill_mock_library(const mill_mock_survey *survey)
{
  return survey->lib;
}

const mill_arm *mill_mock_library_arm(const mill_mock_survey *survey, int arm)
{
  return &survey->lib->arm[survey->arm_of[arm]];
}

int mill_mock_n_share(const mill_mock_survey *survey, int arm)
{
  return survey->set.model_error == MILL_MOCK_ERROR_NONE
             ? 0
             : mill_mock_library_arm(survey, arm)->error.n_component;
}

const double *mill_mock_waves(const mill_mock_survey *survey, int arm)
{
  return survey->instrument.wave_aa[arm];
}

const float *mill_mock_resolution(const mill_mock_survey *survey, int lsf_group, int arm)
{
  return survey->instrument.resolution[lsf_group][arm];
}

int mill_mock_work_create(const mill_mock_survey *survey, mill_mock_work **out)
{
  int err = MILL_OK, most = 0, n_grid = 0;
  mill_mock_work *work = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &work));
  for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
    const int n = mill_mock_arm_of[a].n_pix, n_library = mill_mock_library_arm(survey, a)->n_pix;
    MILL_TRY(MILL_ALLOC(n, &work->flux[a]));
    most = n > most ? n : most;
    n_grid = n_library > n_grid ? n_library : n_grid;
  }
  for (int k = 0; k < 3; k++)
    MILL_TRY(MILL_ALLOC(n_grid, &work->grid[k]));
  MILL_TRY(MILL_ALLOC(most, &work->pixel));
  MILL_TRY(MILL_ALLOC(survey->n_pix, &work->ideal));
  MILL_TRY(MILL_ALLOC(survey->n_pix, &work->sigma));
  MILL_TRY(MILL_ALLOC(survey->n_pix, &work->noise));
  MILL_TRY(MILL_ALLOC(most, &work->sorted));
  *out = work;
  work = NULL;
done:
  mill_mock_work_destroy(work);
  return err;
}

void mill_mock_work_destroy(mill_mock_work *work)
{
  if (!work)
    return;
  for (int k = 0; k < 3; k++)
    mill_free(work->grid[k]);
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    mill_free(work->flux[a]);
  MILL_FREE(work->pixel, work->ideal, work->sigma, work->noise, work->sorted, work);
}

/* --- spectra --- */

static int has_star(const mill_mock_star *star)
{
  return star->kind != MILL_MOCK_SKY && star->kind != MILL_MOCK_NOISE;
}

int mill_mock_noiseless(const mill_mock_survey *survey, const mill_mock_star *star,
                        mill_mock_work *work, double *flux[MILL_MOCK_N_ARM])
{
  const int n_r = mill_mock_arm_of[1].n_pix;
  MILL_CHECK(mill_mock_forward(survey, star, work, flux));
  for (int i = 0; i < n_r; i++)
    work->sorted[i] = (float)flux[1][i];
  const double median = mill_mock_median(n_r, work->sorted);
  if (!(median > 0.0 && isfinite(median)))
    return MILL_ERROR(
        MILL_ERR_LIBRARY,
        "star %lld: the spectrum's median over arm r is %g; its labels give no template",
        (long long)star->index, median);
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    for (int i = 0; i < mill_mock_arm_of[a].n_pix; i++)
      flux[a][i] /= median;
  return MILL_OK;
}

/** Calibration error of one arm: Legendre polynomials of degree 0 to 2 in wavelength of
 *  equal rms.  Every continuum of a fit spans these; a cubic it would only follow to a
 *  few per cent, and pulls at high S/N would show that.  c: powers of x in [-1, 1]. */
static void draw_distortion(double rms, mill_random *r, float c[3])
{
  double a[3];
  for (int k = 0; k < 3; k++)
    a[k] = rms * sqrt((2.0 * k + 1.0) / 3.0) * mill_random_normal(r);
  c[0] = (float)(1.0 + a[0] - 0.5 * a[2]);
  c[1] = (float)a[1];
  c[2] = (float)(1.5 * a[2]);
}

/** Flux and inverse variance of an arm: star, sky and read noise, then calibration.
 *  The noise is multiplied by the calibration error as the flux is, so that ivar is the
 *  true inverse variance of what is written. */
static void observe_arm(const mill_mock_survey *survey, int lsf_group, int arm, double amplitude,
                        const float *ideal, const float *noise, const float c[3], float *sigma,
                        float *flux, float *ivar)
{
  const int n = mill_mock_arm_of[arm].n_pix, noiseless = survey->set.noiseless;
  const float *gain = survey->instrument.gain[arm];
  const float *background = survey->instrument.background[lsf_group][arm];
  const float a = (float)amplitude, step = 2.0f / (float)(n - 1);
  /* loops apart: a square root keeps a compiler from making vectors of the rest */
  for (int i = 0; i < n; i++) {
    const float x = (float)i * step - 1.0f;
    const float smooth = c[0] + x * (c[1] + x * c[2]);
    const float factor = smooth > 0.1f ? smooth : 0.1f;
    const float star = a * ideal[i], positive = star > 0.0f ? star : -star;
    const float variance = (gain[i] * positive + background[i]) * factor * factor;
    sigma[i] = variance;
    ivar[i] = 1.0f / variance;
    flux[i] = star * (noiseless ? 1.0f : factor);
  }
  for (int i = 0; i < n; i++)
    sigma[i] = sqrtf(sigma[i]);
  if (!noiseless)
    for (int i = 0; i < n; i++)
      flux[i] += sigma[i] * noise[i];
}

/** Begin of the next run of pixels at or after `from`: at every pixel with probability p. */
static int next_run(mill_random *r, double p, int from, int n)
{
  const double gap = floor(log(mill_random_uniform(r)) / log1p(-p));
  return gap < n - from ? from + (int)gap : n;
}

/** Masked cosmics of one to three pixels, with wild flux. */
static void add_cosmics(int noiseless, mill_random *r, int n, const float *sigma, float *flux,
                        int32_t *mask)
{
  /* p starts per free pixel give this share of pixels for runs of two on average */
  const double p = COSMIC_SHARE / (2.0 - COSMIC_SHARE);
  for (int i = next_run(r, p, 0, n); i < n; i = next_run(r, p, i, n)) {
    const int end = i + 1 + (int)(3.0 * mill_random_uniform(r));
    for (; i < end; i++) {
      const double height = exp(log(10.0) * (1.5 + 2.5 * mill_random_uniform(r)));
      if (i < n && !noiseless) {
        flux[i] += (float)(height * (double)sigma[i]);
        mask[i] |= MILL_MOCK_MASK_COSMIC;
      }
    }
  }
}

/** Pixels without a value and without a mask: half of them runs, of two to nine. */
static void add_dead(mill_random *r, int n, float *flux, float *ivar)
{
  const double mean = 0.5 * 1.0 + 0.5 * 5.5;
  const double p = DEAD_SHARE / (mean - DEAD_SHARE * (mean - 1.0));
  for (int i = next_run(r, p, 0, n); i < n; i = next_run(r, p, i, n)) {
    const double u = mill_random_uniform(r);
    const int end = i + (u < 0.5 ? 1 : 2 + (int)(16.0 * (u - 0.5)));
    for (; i < end; i++)
      if (i < n)
        flux[i] = ivar[i] = 0.0f;
  }
}

static void fill(int n, float value, float *x)
{
  for (int i = 0; i < n; i++)
    x[i] = value;
}

/** Add a pathological row's defects. */
static void add_defect(int kind, mill_random *r, mill_mock_row *row)
{
  for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
    const int n = mill_mock_arm_of[a].n_pix;
    if (kind == MILL_MOCK_MASKED_ARM && a == 0)
      for (int i = 0; i < n; i++)
        row->mask[a][i] |= MILL_MOCK_MASK_ALLBAD;
    if (kind == MILL_MOCK_NAN_ARM && a == 1)
      fill(n, NAN, row->flux[a]);
    if (kind == MILL_MOCK_ZERO_ARM && a == 2)
      fill(n, 0.0f, row->flux[a]);
    if ((kind == MILL_MOCK_ZERO_ARM && a == 2) || kind == MILL_MOCK_NO_ARM)
      fill(n, 0.0f, row->ivar[a]);
    if (kind == MILL_MOCK_HALF_MASKED)
      for (int i = 0; i < n; i += 2)
        row->mask[a][i] |= MILL_MOCK_MASK_ALLBAD;
    if (kind == MILL_MOCK_INF_PIXELS)
      for (int k = 0; k < 50; k++) {
        /* one at random of each fiftieth of the arm */
        const int i = (int)((k + mill_random_uniform(r)) * n / 50.0);
        row->flux[a][i] = k % 2 ? -INFINITY : INFINITY;
        row->mask[a][i] = 0;
      }
  }
  if (kind == MILL_MOCK_SPIKE) {
    const int i = (int)(mill_random_uniform(r) * mill_mock_arm_of[1].n_pix);
    row->flux[1][i] = 1e9f;
    row->mask[1][i] = 0;
  }
}

/** Median S/N of the good pixels of an arm, 0 without any. */
static float good_sn(int n, const float *flux, const float *ivar, const int32_t *mask,
                     float *sorted)
{
  int n_good = 0;
  for (int i = 0; i < n; i++) /* infinity and NaN are not below FLT_MAX */
    if (mask[i] == 0 && fabsf(flux[i]) <= FLT_MAX && ivar[i] > 0.0f)
      sorted[n_good++] = flux[i] * sqrtf(ivar[i]);
  return n_good > 0 ? (float)mill_mock_median(n_good, sorted) : 0.0f;
}

/** Pixels that the templates do not reach. */
static void cut_ends(const mill_mock_survey *survey, int arm, mill_mock_row *row)
{
  for (int i = 0; i < mill_mock_arm_of[arm].n_pix; i++) {
    if (i >= survey->begin[arm] && i < survey->end[arm])
      continue;
    row->flux[arm][i] = row->ivar[arm][i] = 0.0f;
    row->mask[arm][i] |= MILL_MOCK_MASK_ALLBAD;
  }
}

int mill_mock_observe(const mill_mock_survey *survey, const mill_mock_star *star,
                      mill_mock_work *work, mill_mock_row *row)
{
  const mill_mock_settings *set = &survey->set;
  double amplitude = 0.0;
  mill_random noise, defect;
  if (has_star(star)) {
    MILL_CHECK(mill_mock_noiseless(survey, star, work, work->flux));
    for (int a = 0; a < MILL_MOCK_N_ARM; a++)
      for (int i = 0; i < mill_mock_arm_of[a].n_pix; i++)
        work->ideal[survey->first[a] + i] = (float)work->flux[a][i];
    amplitude = solve_amplitude(survey, star->lsf_group, work->ideal, star->sn, work->sorted);
  } else {
    memset(work->ideal, 0, (size_t)survey->n_pix * sizeof *work->ideal);
  }
  if (star->kind == MILL_MOCK_NEGATIVE)
    amplitude = -amplitude;
  if (!set->noiseless) {
    mill_random_begin(&noise, set->seed, (uint64_t)star->index, MILL_MOCK_RANDOM_NOISE);
    mill_random_normals(&noise, survey->n_pix, work->noise);
  }
  mill_random_begin(&defect, set->seed, (uint64_t)star->index, MILL_MOCK_RANDOM_DEFECT);
  for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
    const int n = mill_mock_arm_of[a].n_pix, first = survey->first[a];
    float c[3];
    draw_distortion(set->distortion, &defect, c);
    observe_arm(survey, star->lsf_group, a, amplitude, work->ideal + first, work->noise + first, c,
                work->sigma + first, row->flux[a], row->ivar[a]);
    memset(row->mask[a], 0, (size_t)n * sizeof **row->mask);
    /* drawn without noise too, so that other pixels are the same */
    add_cosmics(set->noiseless, &defect, n, work->sigma + first, row->flux[a], row->mask[a]);
    add_dead(&defect, n, row->flux[a], row->ivar[a]);
    cut_ends(survey, a, row);
  }
  add_defect(star->kind, &defect, row);
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    row->median_sn[a] =
        good_sn(mill_mock_arm_of[a].n_pix, row->flux[a], row->ivar[a], row->mask[a], work->sorted);
  return MILL_OK;
}
