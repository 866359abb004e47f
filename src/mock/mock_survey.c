#include "src/mock/mock_survey.h"

#include <math.h>
#include <string.h>

#include "kernels/math/doppler.h"
#include "kernels/base/error.h"
#include "src/libraries/demo_library.h"
#include "src/mock/mock_internal.h"

static int check_settings(const mill_mock_settings *set)
{
  if (set->n_star < 1 || set->n_star > (int64_t)1 << 42)
    return MILL_ERROR(MILL_ERR_RANGE, "the number of stars must be 1 to 2^42, not %lld",
                      (long long)set->n_star);
  if (set->source != MILL_MOCK_LINE_MODEL && set->source != MILL_MOCK_EMULATOR)
    return MILL_ERROR(MILL_ERR_RANGE, "no source of spectra has the number %d", set->source);
  if (!(set->min_sn >= MILL_MOCK_MIN_SN && set->max_sn >= set->min_sn &&
        set->max_sn <= MILL_MOCK_MAX_SN))
    return MILL_ERROR(MILL_ERR_RANGE,
                      "the S/N must run upwards from %g or more to %g or less, not from %g to %g",
                      MILL_MOCK_MIN_SN, MILL_MOCK_MAX_SN, set->min_sn, set->max_sn);
  if (!(set->vel_sigma_km_s >= 0.0 && set->vel_sigma_km_s <= MILL_MOCK_VEL_CUT))
    return MILL_ERROR(MILL_ERR_RANGE, "the velocity dispersion must be 0 to %g km/s, not %g",
                      MILL_MOCK_VEL_CUT, set->vel_sigma_km_s);
  if (set->has_vsini_range &&
      !(set->min_vsini >= MILL_MOCK_MIN_VSINI && set->max_vsini >= set->min_vsini &&
        set->max_vsini <= MILL_MOCK_MAX_VSINI))
    return MILL_ERROR(
        MILL_ERR_RANGE,
        "v sin i must run upwards from %g km/s or more to %g or less, not from %g to %g",
        MILL_MOCK_MIN_VSINI, MILL_MOCK_MAX_VSINI, set->min_vsini, set->max_vsini);
  if (!(set->distortion >= 0.0 && set->distortion <= MILL_MOCK_MAX_DISTORTION))
    return MILL_ERROR(MILL_ERR_RANGE, "the calibration distortion must be 0 to %g (rms), not %g",
                      MILL_MOCK_MAX_DISTORTION, set->distortion);
  if (!(set->cosmic_rate >= 0.0 && set->cosmic_rate <= 200.0))
    return MILL_ERROR(MILL_ERR_RANGE, "the cosmics must be 0 to 200 per 1000 pixels, not %g",
                      set->cosmic_rate);
  if (!(set->dead_rate >= 0.0 && set->dead_rate <= 200.0))
    return MILL_ERROR(MILL_ERR_RANGE, "the dead pixels must be 0 to 200 per 1000 pixels, not %g",
                      set->dead_rate);
  if (set->n_pathological < 0 || set->n_pathological > 1000)
    return MILL_ERROR(MILL_ERR_RANGE, "the pathological rows must be 0 to 1000 of 1000, not %d",
                      set->n_pathological);
  if (set->n_template < 0 || set->n_template > 1000000)
    return MILL_ERROR(MILL_ERR_RANGE, "the prepared templates must be 0 to 1000000, not %d",
                      set->n_template);
  return MILL_OK;
}

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

/** Levels kept behind a template's pixels: ln amplitude of the first and the last one,
 *  then ln S/N at MILL_MOCK_N_LEVEL amplitudes, evenly between them. */
static void make_levels(const mill_mock_survey *survey, int lsf_group, const float *ideal,
                        float *sorted, float *level)
{
  const mill_mock_settings *set = &survey->set;
  const double lo = log(solve_amplitude(survey, lsf_group, ideal, set->min_sn, sorted)) - 0.01;
  const double hi = log(solve_amplitude(survey, lsf_group, ideal, set->max_sn, sorted)) + 0.01;
  level[0] = (float)lo;
  level[1] = (float)hi;
  for (int k = 0; k < MILL_MOCK_N_LEVEL; k++) {
    const double ln_a = lo + (hi - lo) * k / (MILL_MOCK_N_LEVEL - 1);
    level[2 + k] = (float)log(median_sn(survey, lsf_group, ideal, exp(ln_a), sorted));
  }
}

/** Linear between the levels; over 5 to 100 in S/N this errs by 3e-4 at most. */
static double amplitude_of_levels(const float *level, double sn)
{
  const double want = log(sn), lo = (double)level[0], hi = (double)level[1];
  int k = 0;
  while (k < MILL_MOCK_N_LEVEL - 2 && (double)level[2 + k + 1] < want)
    k++;
  const double y0 = (double)level[2 + k], y1 = (double)level[2 + k + 1];
  return exp(lo + (hi - lo) * (k + (want - y0) / (y1 - y0)) / (MILL_MOCK_N_LEVEL - 1));
}

/* --- making and freeing --- */

static int find_arms(mill_mock_survey *survey)
{
  const mill_library *lib = survey->lib;
  for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
    const mill_mock_arm *info = &mill_mock_arm_of[a];
    const int i_arm = mill_library_find_arm(lib, info->name);
    if (i_arm < 0)
      return MILL_ERROR(
          MILL_ERR_LIBRARY,
          "%s has no arm %s; stars are simulated for an instrument with the arms b, r and z",
          lib->path, info->name);
    const mill_arm *arm = &lib->arm[i_arm];
    const double ln_reach = -mill_doppler_ln(MILL_MOCK_MAX_VEL);
    const double need_min_aa = info->wave0_aa * exp(-ln_reach);
    const double need_max_aa = (info->wave0_aa + info->step_aa * (info->n_pix - 1)) * exp(ln_reach);
    if (arm->wave_aa[0] > need_min_aa || arm->wave_aa[arm->n_pix - 1] < need_max_aa)
      return MILL_ERROR(
          MILL_ERR_LIBRARY,
          "%s: arm %s covers %.1f to %.1f A, but stars of up to %g km/s need %.1f to %.1f A",
          lib->path, info->name, arm->wave_aa[0], arm->wave_aa[arm->n_pix - 1], MILL_MOCK_MAX_VEL,
          need_min_aa, need_max_aa);
    survey->arm_of[a] = i_arm;
  }
  return MILL_OK;
}

/** Labels of the line model in the frame of the demo library. */
static int find_labels(mill_mock_survey *survey)
{
  for (int l = 0; l < MILL_LINE_N_LABEL; l++) {
    survey->label_of_line[l] =
        mill_library_find_label(survey->lib, mill_line_label_info_of[l].name);
    if (survey->label_of_line[l] < 0)
      return MILL_ERROR(MILL_ERR_INTERNAL, "the demo library has no label %s",
                        mill_line_label_info_of[l].name);
  }
  return MILL_OK;
}

static int make_template(mill_mock_survey *survey, int i_template, mill_mock_work *work)
{
  mill_mock_star star;
  float *out = survey->template_flux + (size_t)i_template * (size_t)survey->n_value;
  mill_mock_draw_template(survey, i_template, &star);
  star.template_index = -1; /* it is about to be made */
  MILL_CHECK(mill_mock_noiseless(survey, &star, work, work->flux));
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    for (int i = 0; i < mill_mock_arm_of[a].n_pix; i++)
      out[survey->first[a] + i] = (float)work->flux[a][i];
  make_levels(survey, star.lsf_group, out, work->sorted, out + survey->n_pix);
  return MILL_OK;
}

/** This share's templates by n_thread threads; the first failure's message comes back. */
static int make_templates(mill_mock_survey *survey, int n_thread, int i_share, int n_share)
{
  int worst = MILL_OK;
  char message[512] = "";
#pragma omp parallel num_threads(n_thread)
  {
    mill_mock_work *work = NULL;
    int thread_err = mill_mock_work_create(survey, &work);
#pragma omp for schedule(dynamic, 1)
    for (int i = i_share; i < survey->set.n_template; i += n_share)
      if (thread_err == MILL_OK)
        thread_err = make_template(survey, i, work);
    if (thread_err != MILL_OK) {
#pragma omp critical(mill_mock_templates)
      if (worst == MILL_OK) {
        worst = thread_err;
        strncpy(message, mill_error_message(), sizeof message - 1);
      }
    }
    mill_mock_work_destroy(work);
  }
  if (worst != MILL_OK)
    return MILL_ERROR(worst, "%s", message);
  return MILL_OK;
}

int mill_mock_survey_create(const mill_mock_settings *settings, const mill_library *lib,
                            int n_thread, int i_share, int n_share, mill_mock_survey **out)
{
  int err = MILL_OK;
  mill_mock_survey *survey = NULL;
  *out = NULL;
  MILL_TRY(check_settings(settings));
  if (n_thread < 1 || n_share < 1 || i_share < 0 || i_share >= n_share)
    MILL_FAIL(MILL_ERR_RANGE, "%d threads, share %d of %d", n_thread, i_share, n_share);
  if ((settings->source == MILL_MOCK_EMULATOR) != (lib != NULL))
    MILL_FAIL(MILL_ERR_RANGE,
              lib ? "the line model takes no library" : "stars from an emulator need a library");
  MILL_TRY(MILL_ALLOC(1, &survey));
  survey->set = *settings;
  for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
    survey->first[a] = survey->n_pix;
    survey->n_pix += mill_mock_arm_of[a].n_pix;
  }
  MILL_TRY(mill_mock_instrument_create(&survey->instrument));
  if (lib) {
    survey->lib = lib;
    MILL_TRY(find_arms(survey));
    MILL_TRY(mill_mock_forward_rows(survey));
  } else {
    MILL_TRY(mill_demo_library_frame(&survey->frame));
    survey->lib = &survey->frame;
    MILL_TRY(find_labels(survey));
    MILL_TRY(mill_mock_forward_line_create(survey));
  }
  MILL_TRY(mill_mock_draw_check(survey));
  if (settings->n_template > 0) {
    survey->n_value = survey->n_pix + 2 + MILL_MOCK_N_LEVEL;
    MILL_TRY(
        MILL_ALLOC((size_t)settings->n_template * (size_t)survey->n_value, &survey->template_flux));
    MILL_TRY(make_templates(survey, n_thread, i_share, n_share));
  }
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
  mill_free(survey->template_flux);
  mill_line_model_destroy(survey->line);
  mill_library_clear(&survey->frame);
  mill_mock_instrument_clear(&survey->instrument);
  mill_free(survey);
}

float *mill_mock_survey_templates(mill_mock_survey *survey, int64_t *n_value)
{
  *n_value = survey->n_value;
  return survey->template_flux;
}

const float *mill_mock_resolution(const mill_mock_survey *survey, int lsf_group, int arm)
{
  return survey->instrument.resolution[lsf_group][arm];
}

int mill_mock_work_create(const mill_mock_survey *survey, mill_mock_work **out)
{
  int err = MILL_OK, most = 0;
  mill_mock_work *work = NULL;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &work));
  work->n_grid = mill_mock_forward_grid(survey);
  for (int k = 0; k < 3; k++)
    MILL_TRY(MILL_ALLOC(work->n_grid, &work->grid[k]));
  for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
    const int n = mill_mock_arm_of[a].n_pix;
    MILL_TRY(MILL_ALLOC(n, &work->flux[a]));
    most = n > most ? n : most;
  }
  MILL_TRY(MILL_ALLOC(most, &work->pixel));
  MILL_TRY(MILL_ALLOC(survey->n_pix, &work->ideal));
  MILL_TRY(MILL_ALLOC(survey->n_pix, &work->sigma));
  MILL_TRY(MILL_ALLOC(survey->n_pix, &work->noise));
  MILL_TRY(MILL_ALLOC(mill_mock_arm_of[1].n_pix, &work->sorted));
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
  if (!has_star(star)) {
    for (int a = 0; a < MILL_MOCK_N_ARM; a++)
      memset(flux[a], 0, (size_t)mill_mock_arm_of[a].n_pix * sizeof **flux);
    return MILL_OK;
  }
  if (star->template_index >= 0) {
    const float *from =
        survey->template_flux + (size_t)star->template_index * (size_t)survey->n_value;
    for (int a = 0; a < MILL_MOCK_N_ARM; a++)
      for (int i = 0; i < mill_mock_arm_of[a].n_pix; i++)
        flux[a][i] = (double)from[survey->first[a] + i];
    return MILL_OK;
  }
  if (survey->line)
    MILL_CHECK(mill_mock_forward_line(survey, star, work, flux));
  else
    MILL_CHECK(mill_mock_forward_emulator(survey, star, work, flux));
  const int n_r = mill_mock_arm_of[1].n_pix;
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
static void add_cosmics(const mill_mock_settings *set, mill_random *r, int n, const float *sigma,
                        float *flux, int32_t *mask)
{
  /* p starts per free pixel give this share of pixels for runs of two on average */
  const double share = set->cosmic_rate / 1000.0, p = share / (2.0 - share);
  if (p <= 0.0)
    return;
  for (int i = next_run(r, p, 0, n); i < n; i = next_run(r, p, i, n)) {
    const int end = i + 1 + (int)(3.0 * mill_random_uniform(r));
    for (; i < end; i++) {
      const double height = exp(log(10.0) * (1.5 + 2.5 * mill_random_uniform(r)));
      if (i < n && !set->noiseless) {
        flux[i] += (float)(height * (double)sigma[i]);
        mask[i] |= MILL_MOCK_MASK_COSMIC;
      }
    }
  }
}

/** Pixels without a value and without a mask: half of them runs, of two to nine. */
static void add_dead(const mill_mock_settings *set, mill_random *r, int n, float *flux, float *ivar)
{
  const double mean = 0.5 * 1.0 + 0.5 * 5.5;
  const double share = set->dead_rate / 1000.0, p = share / (mean - share * (mean - 1.0));
  if (p <= 0.0)
    return;
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

/** What is wrong with a pathological row's pixels. */
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

int mill_mock_observe(const mill_mock_survey *survey, const mill_mock_star *star,
                      mill_mock_work *work, mill_mock_row *row)
{
  const mill_mock_settings *set = &survey->set;
  const float *ideal = work->ideal;
  double amplitude = 0.0;
  mill_random noise, defect;
  if (star->template_index >= 0) {
    ideal = survey->template_flux + (size_t)star->template_index * (size_t)survey->n_value;
    amplitude = amplitude_of_levels(ideal + survey->n_pix, star->sn);
  } else {
    MILL_CHECK(mill_mock_noiseless(survey, star, work, work->flux));
    for (int a = 0; a < MILL_MOCK_N_ARM; a++)
      for (int i = 0; i < mill_mock_arm_of[a].n_pix; i++)
        work->ideal[survey->first[a] + i] = (float)work->flux[a][i];
    if (has_star(star))
      amplitude = solve_amplitude(survey, star->lsf_group, ideal, star->sn, work->sorted);
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
    observe_arm(survey, star->lsf_group, a, amplitude, ideal + first, work->noise + first, c,
                work->sigma + first, row->flux[a], row->ivar[a]);
    memset(row->mask[a], 0, (size_t)n * sizeof **row->mask);
    add_cosmics(set, &defect, n, work->sigma + first, row->flux[a], row->mask[a]);
    add_dead(set, &defect, n, row->flux[a], row->ivar[a]);
  }
  add_defect(star->kind, &defect, row);
  return MILL_OK;
}
