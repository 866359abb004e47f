/* SPDX-License-Identifier: BSD-3-Clause */
/* Mock stars against the fit's own model, and draws of the library's model error. */
#include "tests/src/mock/mock_fixture.h"

#include "src/config/config.h"
#include "src/pipeline/pipeline.h"
#include "kernels/base/memory.h"

/* --- the emulator's spectra against the fit's own model --- */

typedef struct residual {
  double chisq[3];
  int n_pix[3];
} residual;

/* -2 ln L's residual part of a star's data at the truth. */
static residual residual_at_truth(const mill_mock_settings *set, const mill_library *from,
                                  double vrad_km_s, double vsini_km_s, int with_matrix)
{
  mill_mock_survey *survey = NULL;
  mill_mock_star star;
  view v;
  residual out = {{0}, {0}};
  assert_ok(mill_mock_survey_create(set, from, &survey));
  view_init(&v, survey);
  mill_mock_draw(survey, 2, &star);
  star.vrad_km_s = vrad_km_s;
  star.vsini_km_s = vsini_km_s;
  assert_ok(mill_mock_observe(survey, &star, v.work, &v.row));

  mill_config config;
  mill_config_default(&config);
  assert_ok(mill_config_bind(&config, from));
  mill_fit_settings fit = config.fit;
  fit.precision = MILL_FLOAT64;
  fit.edge_pix = 0; /* the ends have a rule of their own */
  fit.resolution = with_matrix ? MILL_RES_MATRIX : MILL_RES_NONE;
  mill_pipeline *pipeline = NULL;
  assert_ok(mill_pipeline_create(from, &fit, mill_backend_cpu(NULL), 1, 1, 0, &pipeline));
  mill_raw_segment segment[3];
  memset(segment, 0, sizeof segment);
  for (int a = 0; a < 3; a++) {
    const mill_mock_arm *arm = &mill_mock_arm_of[a];
    double wave_aa[MAX_PIX];
    for (int i = 0; i < arm->n_pix; i++)
      wave_aa[i] = arm->wave0_aa + arm->step_aa * i;
    segment[a].arm = a;
    assert_ok(mill_pipeline_waveset(pipeline, a, arm->n_pix, wave_aa, &segment[a].waveset));
    segment[a].n_pix = arm->n_pix;
    segment[a].flux = v.row.flux[a];
    segment[a].ivar = v.row.ivar[a];
    segment[a].mask = v.row.mask[a];
    segment[a].n_diag = with_matrix ? MILL_MOCK_N_DIAG : 0;
    segment[a].resolution = with_matrix ? mill_mock_resolution(survey, star.lsf_group, a) : NULL;
    out.n_pix[a] = arm->n_pix;
  }
  const mill_star raw = {.row = 0, .n_segment = 3, .segment = segment};
  double theta[2 + N_LABEL] = {star.vrad_km_s, star.vsini_km_s};
  memcpy(theta + 2, star.label, N_LABEL * sizeof *theta);
  mill_eval eval;
  mill_fit_result prepared;
  assert_ok(mill_pipeline_evaluate(pipeline, &raw, MILL_REQ_FINAL, 1, theta, &eval, &prepared));
  assert_int_equal(prepared.status, MILL_STATUS_NOT_DONE);
  for (int a = 0; a < 3; a++)
    out.chisq[a] = eval.chisq[a];
  mill_pipeline_destroy(pipeline);
  mill_config_clear(&config);
  view_free(&v);
  mill_mock_survey_destroy(survey);
  return out;
}

MILL_TEST(fit_at_the_truth_sees_noise_only)
{
  /* sn 1e4: without noise; is_own: the library has the instrument's resolution, no matrix */
  static const struct {
    double vrad_km_s, vsini_km_s, sn;
    int is_own;
  } star[] = {{0, 0, 1e4, 0},     {123.4, 7, 1e4, 0}, {-900, 85, 1e4, 0},
              {900, 300, 1e4, 0}, {55.5, 20, 1e4, 1}, {-123, 12, 300, 0}};
  for (size_t c = 0; c < sizeof star / sizeof *star; c++) {
    mill_library own = lib;
    mill_mock_settings set = usual_settings();
    set.min_sn = set.max_sn = star[c].sn;
    set.noiseless = star[c].sn > 300;
    set.distortion = set.noiseless ? 0 : set.distortion;
    for (int a = 0; a < 3 && star[c].is_own; a++)
      own.arm[a].template_sigma_aa = -1;
    const residual r =
        residual_at_truth(&set, &own, star[c].vrad_km_s, star[c].vsini_km_s, !star[c].is_own);
    for (int a = 0; a < 3; a++) {
      printf("case %zu, arm %d: chi2 per pixel %.2e\n", c, a, r.chisq[a] / r.n_pix[a]);
      /* the continuum functions follow the calibration error; less 187 pixels of the dichroic in
       * arm b, 10 continuum functions and some masked or dead pixels: 5 sigma and 3 per cent */
      const double expected = r.n_pix[a] - 10 - (a == 0 ? 187 : 0);
      if (set.noiseless) /* float32 flux and resolution rows err by 1e-7, 1e-3 sigma */
        assert_true(r.chisq[a] > 0 && r.chisq[a] < 1e-3 * r.n_pix[a]);
      else
        assert_close(r.chisq[a], expected, 5 * sqrt(2 * expected) + 0.03 * expected);
    }
  }
}

/* --- model error --- */

enum { N_COMPONENT = 2 };

/* The library with a model error: two waves, and a fraction that grows over the arm. */
static void with_error(mill_library *to, float *memory[3])
{
  *to = lib;
  for (int a = 0; a < 3; a++) {
    const int n = lib.arm[a].n_pix;
    assert_ok(MILL_ALLOC((1 + N_COMPONENT) * n, &memory[a]));
    to->arm[a].error = (mill_model_error){.fraction = memory[a],
                                          .n_component = N_COMPONENT,
                                          .component = memory[a] + n,
                                          .sigma = {0.02, 0.01},
                                          .correlation = 20};
    for (int i = 0; i < n; i++) {
      memory[a][i] = 0.01f * (1 + (float)i / (float)n);
      for (int k = 0; k < N_COMPONENT; k++)
        memory[a][(k + 1) * n + i] = (float)sin(i * (k + 1) / 300.0);
    }
  }
}

/* Sums over the pixels of a star at rest: what its flux has beside a star's without the error and
 * the components, in units of the fraction, squared and times that of the pixel before. */
static double sum_rest(const mill_library *from, int how, int64_t index, double *square,
                       double *lag)
{
  static double rest[3 * MAX_PIX], unit[3 * MAX_PIX];
  mill_mock_settings set = clean_settings();
  mill_mock_survey *survey = NULL;
  mill_mock_star star;
  view with, without;
  double mean = 0;
  int n = 0;
  set.vel_sigma_km_s = 0;
  set.model_error = how;
  assert_ok(mill_mock_survey_create(&set, from, &survey));
  view_init(&with, survey);
  mill_mock_draw(survey, index, &star);
  assert_ok(mill_mock_noiseless(survey, &star, with.work, with.flux));
  set.model_error = MILL_MOCK_ERROR_NONE;
  open_view(&set, &without);
  assert_ok(mill_mock_noiseless(without.survey, &star, without.work, without.flux));
  for (int a = 0; a < 3; a++)
    for (int p = 50; p < mill_mock_arm_of[a].n_pix - 50; p++, n++) {
      const mill_arm *arm = &from->arm[a];
      const double wave_aa = mill_mock_arm_of[a].wave0_aa + 0.8 * p;
      const int g = (int)lround((log(wave_aa) - arm->ln_wave0) / arm->ln_step);
      double known = 1;
      for (int k = 0; k < N_COMPONENT; k++)
        known += star.share[a][k] * arm->error.sigma[k] *
                 (double)arm->error.component[k * arm->n_pix + g];
      rest[n] = with.flux[a][p] / without.flux[a][p] / known;
      unit[n] = (double)arm->error.fraction[g];
      if (how == MILL_MOCK_ERROR_AS_FITTED) { /* L of the library's steps over those of the pixel */
        unit[n] *= sqrt(20 * arm->ln_step / (0.8 / wave_aa));
      } else {
        /* what a Gaussian leaves of exp(-|x| / reach): the line-spread function without the
         * templates' own 0.5 A, over 1 / ln((20 + 1) / (20 - 1)) steps */
        const double sigma = mill_mock_lsf_sigma(star.lsf_group, wave_aa);
        const double reach = wave_aa * arm->ln_step / log(21.0 / 19.0);
        const double s = sqrt(sigma * sigma - 0.25) / reach;
        unit[n] *= sqrt(exp(s * s) * erfc(s));
      }
      mean += rest[n];
    }
  mean /= n; /* 1 but for the medians of both spectra */
  for (int i = 0; i < n; i++) {
    const double x = (rest[i] / mean - 1) / unit[i];
    *square += x * x;
    *lag += i > 0 ? x * (rest[i - 1] / mean - 1) / unit[i - 1] : 0;
  }
  close_view(&with);
  close_view(&without);
  return n;
}

MILL_TEST(model_error_is_what_was_asked_for)
{
  enum { N_STAR = 8, N_DRAW = 2000 };
  float *memory[3];
  mill_library own;
  view v;
  double sum = 0, sum2 = 0, product = 0;
  with_error(&own, memory);
  for (int how = MILL_MOCK_ERROR_AS_FITTED; how <= MILL_MOCK_ERROR_CORRELATED; how++) {
    double square = 0, lag = 0, n = 0;
    for (int64_t i = 0; i < N_STAR; i++)
      n += sum_rest(&own, how, i, &square, &lag);
    if (how == MILL_MOCK_ERROR_AS_FITTED) { /* 5 sigma; white */
      assert_close(square / n, 1, 5 * sqrt(2 / n));
      assert_close(lag / n, 0, 5 / sqrt(n));
    } else {
      /* 5 sigma: five pixels know as much as one does; neighbours are nearly alike */
      assert_close(square / n, 1, 5 * sqrt(2 * 5 / n));
      assert_close(lag / square, 0.91, 0.06);
    }
  }
  const mill_mock_settings set = usual_settings();
  mill_mock_survey *survey = NULL;
  assert_ok(mill_mock_survey_create(&set, &own, &survey));
  for (int64_t i = 0; i < N_DRAW; i++) {
    mill_mock_star star;
    mill_mock_draw(survey, i, &star);
    sum += star.share[1][0];
    sum2 += star.share[1][0] * star.share[1][0];
    product += star.share[1][0] * star.share[2][0];
  }
  assert_close(sum / N_DRAW, 0, 5 / sqrt(N_DRAW));
  assert_close(sum2 / N_DRAW, 1, 5 * sqrt(2.0 / N_DRAW));
  assert_close(product / N_DRAW, 0, 5 / sqrt(N_DRAW));
  mill_mock_survey_destroy(survey);
  /* without one nothing is drawn, and the truth has no shares */
  open_view(&set, &v);
  assert_int_equal(mill_mock_n_share(v.survey, 0), 0);
  close_view(&v);
  for (int a = 0; a < 3; a++)
    mill_free(memory[a]);
}

/* Templates that begin at 3650 A: at 1000 km/s away from us they reach pixels from 3662.2 A. */
MILL_TEST(pixels_beyond_the_templates_are_dead)
{
  mill_library other = lib;
  mill_arm *arm = &other.arm[0];
  const int skip = (int)ceil((log(3650) - arm->ln_wave0) / arm->ln_step);
  const mill_mock_settings set = clean_settings();
  mill_mock_survey *survey = NULL;
  mill_mock_star star;
  view v;
  arm->ln_wave0 += skip * arm->ln_step;
  arm->wave_aa += skip;
  arm->emulator.weight[1] += skip * N_HIDDEN;
  arm->emulator.bias[1] += skip;
  arm->n_pix = arm->emulator.n_out[1] = arm->n_pix - skip;
  assert_ok(mill_mock_survey_create(&set, &other, &survey));
  view_init(&v, survey);
  mill_mock_draw(survey, 0, &star);
  assert_ok(mill_mock_observe(survey, &star, v.work, &v.row));
  const int first = (int)ceil((arm->wave_aa[0] * exp(atanh(1000 / 299792.458)) - 3600) / 0.8);
  assert_in_range(first, 77, 79);
  for (int p = 0; p < first; p++)
    assert_true(v.row.ivar[0][p] == 0 && v.row.flux[0][p] == 0 && v.row.mask[0][p] != 0);
  assert_true(is_good(&v, 0, first) || is_good(&v, 0, first + 1));
  close_view(&v);
}

int main(void)
{
  printf("seed %d\n", SEED);
  return MILL_RUN_TESTS(setup, teardown);
}
