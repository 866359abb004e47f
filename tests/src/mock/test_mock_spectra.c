/* Spectra of the mock survey against independent computations: the fit's own model, and direct
 * quadrature. */
#include "tests/src/mock/mock_fixture.h"

#include "src/config/config.h"
#include "src/pipeline/pipeline.h"

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
  check(mill_mock_survey_create(set, from, 1, 0, 1, &survey));
  view_init(&v, survey);
  mill_mock_draw(survey, 2, &star);
  star.vrad_km_s = vrad_km_s;
  star.vsini_km_s = vsini_km_s;
  check(mill_mock_observe(survey, &star, v.work, &v.row));

  mill_config config;
  mill_config_default(&config);
  check(mill_config_bind(&config, from));
  mill_fit_settings fit = config.fit;
  fit.precision = MILL_FLOAT64;
  fit.edge_pix = 0; /* the ends have a rule of their own */
  fit.resolution = with_matrix ? MILL_RES_MATRIX : MILL_RES_NONE;
  mill_pipeline *pipeline = NULL;
  check(mill_pipeline_create(from, &fit, mill_backend_cpu(NULL), 1, 1, 0, &pipeline));
  mill_raw_segment segment[3];
  memset(segment, 0, sizeof segment);
  for (int a = 0; a < 3; a++) {
    const mill_mock_arm *arm = &mill_mock_arm_of[a];
    double wave_aa[MAX_PIX];
    for (int i = 0; i < arm->n_pix; i++)
      wave_aa[i] = arm->wave0_aa + arm->step_aa * i;
    segment[a].arm = a;
    check(mill_pipeline_waveset(pipeline, a, arm->n_pix, wave_aa, &segment[a].waveset));
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
  check(mill_pipeline_evaluate(pipeline, &raw, MILL_REQ_FINAL, 1, theta, &eval, &prepared));
  assert_int_equal(prepared.status, MILL_STATUS_NOT_DONE);
  for (int a = 0; a < 3; a++)
    out.chisq[a] = eval.chisq[a];
  mill_pipeline_destroy(pipeline);
  mill_config_clear(&config);
  view_free(&v);
  mill_mock_survey_destroy(survey);
  return out;
}

static mill_mock_settings noiseless_settings(void)
{
  mill_mock_settings set = clean_settings();
  set.noiseless = 1;
  set.min_sn = set.max_sn = 1e4;
  return set;
}

static void test_fit_finds_no_residual_in_the_emulators_stars(void **state)
{
  (void)state;
  const mill_mock_settings set = noiseless_settings();
  static const double vrad_km_s[] = {0, 123.4, -900, 900}, vsini_km_s[] = {0, 7, 85, 300};
  for (int c = 0; c < 4; c++) {
    const residual r = residual_at_truth(&set, &lib, vrad_km_s[c], vsini_km_s[c], 1);
    for (int a = 0; a < 3; a++) {
      /* S/N 1e4: float32 flux and resolution rows err by 1e-7, 1e-3 sigma */
      printf("v %6.1f v sin i %5.1f arm %d: chi2 per pixel %.2e\n", vrad_km_s[c], vsini_km_s[c], a,
             r.chisq[a] / r.n_pix[a]);
      assert_true(r.chisq[a] < 1e-3 * r.n_pix[a]);
      assert_true(r.chisq[a] > 0);
    }
  }
}

static void test_library_at_the_instruments_resolution_needs_no_matrix(void **state)
{
  (void)state;
  const mill_mock_settings set = noiseless_settings();
  mill_library own = lib;
  for (int a = 0; a < 3; a++)
    own.arm[a].template_sigma_aa = -1;
  const residual r = residual_at_truth(&set, &own, 55.5, 20, 0);
  for (int a = 0; a < 3; a++)
    assert_true(r.chisq[a] < 1e-3 * r.n_pix[a]);
}

/* The default continuum functions follow the calibration error, and the noise is what
 * ivar says, cosmics and dead pixels left out: chi-square is the number of pixels. */
static void test_fit_at_the_truth_sees_noise_only(void **state)
{
  (void)state;
  mill_mock_settings set = emulator_settings();
  set.min_sn = set.max_sn = 300;
  const residual r = residual_at_truth(&set, &lib, -123, 12, 1);
  for (int a = 0; a < 3; a++) {
    /* less 187 of the dichroic in arm b, 10 continuum functions, and some masked or dead
     * ones: 5 sigma and 3 per cent for those */
    const double expected = r.n_pix[a] - 10 - (a == 0 ? 187 : 0);
    assert_close(r.chisq[a], expected, 5 * sqrt(2 * expected) + 0.03 * expected);
  }
}

/* --- the line model's spectra against direct quadrature --- */

/* Rotation and line-spread function of one pixel by brute force: for every strip of the
 * disc, x = sin(angle), the Gaussian is laid over the strip's shifted spectrum.  The strips
 * are weighted by Gray's profile with its limb darkening of 0.6.  No kernel on any grid. */
static double pixel_by_force(const mill_line_model *model, const double *flux,
                             const mill_mock_star *star, double wave_aa)
{
  enum { N_STRIP = 400 };
  const double pi = acos(-1.0), c_km_s = 299792.458, eps = 0.6;
  const int n = mill_line_model_n_pix(model);
  const double ln0 = mill_line_model_ln_wave0(model);
  const double beta = star->vrad_km_s / c_km_s,
               sigma = mill_mock_lsf_sigma(star->lsf_group, wave_aa);
  double total = 0, norm = 0;
  for (int s = 0; s < N_STRIP; s++) {
    const double angle = pi * ((s + 0.5) / N_STRIP - 0.5), x = sin(angle), root = cos(angle);
    const double profile = 2 * (1 - eps) * root + 0.5 * pi * eps * root * root;
    const double ln_shift = 0.5 * log((1 + beta) / (1 - beta)) + x * star->vsini_km_s / c_km_s;
    double sum = 0, area = 0;
    const int centre = (int)((log(wave_aa) - ln_shift - ln0) / MILL_LINE_LN_STEP);
    for (int j = centre - 250; j <= centre + 250; j++) {
      if (j < 0 || j >= n)
        fail_msg("pixel at %g A looks beyond the spectrum", wave_aa);
      const double at_aa = exp(ln0 + j * MILL_LINE_LN_STEP + ln_shift);
      const double weight = exp(-0.5 * pow((at_aa - wave_aa) / sigma, 2)) * at_aa;
      sum += weight * flux[j];
      area += weight;
    }
    total += profile * root * sum / area;
    norm += profile * root;
  }
  return total / norm;
}

static void test_line_models_spectra_are_the_direct_integral(void **state)
{
  (void)state;
  static const double vrad_km_s[] = {0, -311, 900, 20, 5, -77},
                      vsini_km_s[] = {0, 1, 4.4, 40, 300, 7};
  static const double label[6][4] = {{5800, 4.4, 0, 0},    {4200, 1.2, -0.5, 0.2},
                                     {7300, 4, 0.4, 0.1},  {5000, 2.5, -2.5, 0.4},
                                     {6400, 4.2, -1, 0.3}, {4100, 4.8, 0.3, 0}};
  static const double at_aa[] = {3600, 3933.6, 3968.8, 4101.6, 4227.2, 4861.6, 5174.4,
                                 5800, 5891.2, 6563.2, 7620,   8500.8, 8544,   9824};
  mill_mock_settings set;
  mill_line_model *model = NULL;
  view v;
  double *flux = NULL;
  set = (mill_mock_settings)MILL_MOCK_USUAL;
  open_view(&set, &v);
  /* on multiples of the step, as the survey has it: the same samples of the lines */
  const double ln0 = floor(log(3500) / MILL_LINE_LN_STEP) * MILL_LINE_LN_STEP;
  const int n = (int)(log(9950 / 3500.0) / MILL_LINE_LN_STEP);
  check(mill_line_model_create(ln0, n, &model));
  check(MILL_ALLOC(n, &flux));
  for (int c = 0; c < 6; c++) {
    mill_mock_star star;
    double worst = 0, scale = 0;
    mill_mock_draw(v.survey, c, &star);
    assert_int_equal(star.n_label, 4);
    memcpy(star.label, label[c], sizeof label[c]);
    star.vrad_km_s = vrad_km_s[c];
    star.vsini_km_s = vsini_km_s[c];
    check(mill_mock_noiseless(v.survey, &star, v.work, v.flux));
    check(mill_line_model_flux(model, label[c], flux, NULL));
    for (size_t k = 0; k < sizeof at_aa / sizeof *at_aa; k++) {
      const int a = at_aa[k] <= 5800 ? 0 : (at_aa[k] <= 7620 ? 1 : 2);
      const int i = (int)lround((at_aa[k] - mill_mock_arm_of[a].wave0_aa) / 0.8);
      const double wave_aa = mill_mock_arm_of[a].wave0_aa + 0.8 * i;
      const double direct = pixel_by_force(model, flux, &star, wave_aa);
      if (k == 0)
        scale = v.flux[a][i] / direct; /* the median */
      worst = fmax(worst, fabs(v.flux[a][i] / (direct * scale) - 1));
    }
    printf("v sin i %5.1f: off by %.1e at most\n", vsini_km_s[c], worst);
    /* the Gaussian is cut at 5.5 sigma (4e-8 of its area, of contrasts up to ten); the
     * kernel's sixth order in step over line-spread function is below 1e-7 */
    assert_true(worst < 1e-6);
  }
  mill_free(flux);
  mill_line_model_destroy(model);
  close_view(&v);
}

static void test_line_models_survey(void **state)
{
  (void)state;
  mill_mock_settings set;
  view own, fast;
  set = (mill_mock_settings)MILL_MOCK_USUAL;
  set.n_star = 10;
  open_view(&set, &own);
  set.n_template = 3;
  open_view(&set, &fast);
  for (int64_t i = 0; i < 6; i++) {
    mill_mock_star star;
    double middle[MAX_PIX];
    const int n_r = mill_mock_arm_of[1].n_pix;
    mill_mock_draw(fast.survey, i, &star);
    assert_in_range(star.template_index, 0, 2);
    for (int l = 0; l < 4; l++)
      assert_true(star.label[l] >= mill_line_label_info_of[l].min &&
                  star.label[l] <= mill_line_label_info_of[l].max);
    /* a prepared template is the same spectrum in float32 */
    check(mill_mock_noiseless(fast.survey, &star, fast.work, fast.flux));
    star.template_index = -1;
    check(mill_mock_noiseless(own.survey, &star, own.work, own.flux));
    for (int a = 0; a < 3; a++)
      for (int p = 0; p < mill_mock_arm_of[a].n_pix; p++)
        assert_close(fast.flux[a][p] / own.flux[a][p], 1, 6.1e-8);
    memcpy(middle, own.flux[1], (size_t)n_r * sizeof *middle);
    assert_close(median(n_r, middle), 1, 1e-7);
    /* and the row is noisy, finite and positive on the whole */
    check(mill_mock_observe(own.survey, &star, own.work, &own.row));
    for (int a = 0; a < 3; a++)
      for (int p = 0; p < mill_mock_arm_of[a].n_pix; p++)
        assert_true(isfinite(own.row.flux[a][p]) && own.row.ivar[a][p] >= 0);
  }
  close_view(&own);
  close_view(&fast);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fit_finds_no_residual_in_the_emulators_stars),
      cmocka_unit_test(test_library_at_the_instruments_resolution_needs_no_matrix),
      cmocka_unit_test(test_fit_at_the_truth_sees_noise_only),
      cmocka_unit_test(test_line_models_spectra_are_the_direct_integral),
      cmocka_unit_test(test_line_models_survey),
  };
  printf("seed %d\n", SEED);
  return cmocka_run_group_tests(tests, setup, teardown);
}
