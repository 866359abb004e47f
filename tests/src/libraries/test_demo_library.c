/* The demo library on its coarse grid: templates against quadrature, determinism, hulls, error. */
#include "tests/mill_test.h"

#include <string.h>

#include "io/library/library_file.h"
#include "kernels/base/error.h"
#include "kernels/math/hull.h"
#include "src/libraries/demo_library.h"
#include "src/libraries/emulator.h"
#include "src/line_model/line_model.h"

#define OK(call) assert_int_equal((call), MILL_OK)

static const double giant[MILL_LINE_N_LABEL] = {4300, 1.2, -0.3, 0.2};

/* rms over all pixels at the corners of the grid: 0.0015 to 0.0035 was measured, all of it left-out
   components; a neighbouring node is 0.05 or more away */
#define CORNER_RMS 0.01

/* What several tests look at, made once. */
static mill_library lib;
static mill_grid_facts facts;
static mill_demo_settings settings;
static mill_model_set held_out;
static int n_pix_all;

static int make_library(void **state)
{
  (void)state;
  mill_demo_settings_init(&settings);
  settings.coarse = 1;
  settings.n_held_out = 4;
  settings.n_thread = 3;
  if (mill_demo_library_build(&settings, &lib, &facts) != MILL_OK ||
      mill_demo_held_out(&settings, &lib, &held_out) != MILL_OK) {
    printf("%s\n", mill_error_message());
    return -1;
  }
  for (int a = 0; a < lib.n_arm; a++)
    n_pix_all += lib.arm[a].n_pix;
  mill_library_digest(&lib, lib.hash);
  return 0;
}

static int clear_library(void **state)
{
  (void)state;
  mill_library_clear(&lib);
  mill_model_set_clear(&held_out);
  return 0;
}

static double *numbers(size_t n)
{
  double *x = NULL;
  OK(MILL_ALLOC(n, &x));
  return x;
}

/* The smooth median of src/libraries/demo_library.h by bisection. */
static double smooth_median(int n, const double *flux)
{
  double low = INFINITY, high = 0;
  for (int i = 0; i < n; i++) {
    low = fmin(low, flux[i]);
    high = fmax(high, flux[i]);
  }
  for (int k = 0; k < 60; k++) {
    const double middle = sqrt(low * high);
    double sum = 0;
    for (int i = 0; i < n; i++) {
      const double z = log(flux[i] / middle) / MILL_DEMO_MEDIAN_WIDTH;
      sum += z / sqrt(1 + z * z);
    }
    *(sum > 0 ? &low : &high) = middle;
  }
  return low;
}

/* ---- templates ------------------------------------------------------------------------------ */

/* Convolution of one spectrum as an integral over wavelength by the trapezoid rule, Gaussian of
   analytic norm, out to 8 sigma. */
static double convolved(int n_fine, const double *wave_aa, const double *flux, double at_aa)
{
  const double sigma = MILL_DEMO_SIGMA_AA, norm = 1 / (sigma * sqrt(2 * M_PI));
  double sum = 0;
  for (int i = 1; i < n_fine - 1; i++) {
    const double z = (wave_aa[i] - at_aa) / sigma;
    if (fabs(z) < 8)
      sum += norm * exp(-0.5 * z * z) * flux[i] * 0.5 * (wave_aa[i + 1] - wave_aa[i - 1]);
  }
  return sum;
}

static void test_templates_are_the_convolved_line_model(void **state)
{
  (void)state;
  mill_demo_templates *templates = NULL;
  double *flux = numbers((size_t)n_pix_all), *cont = numbers((size_t)n_pix_all);
  OK(mill_demo_templates_create(&templates));
  OK(mill_demo_templates_eval(templates, giant, flux, cont));
  for (int a = 0, p0 = 0; a < lib.n_arm; p0 += lib.arm[a++].n_pix) {
    const mill_arm *arm = &lib.arm[a];
    const int n = arm->n_pix;
    /* a model of this arm alone, on its own grid */
    const double k0 = floor(log(arm->wave_aa[0] - 5) / MILL_LINE_LN_STEP);
    const int n_fine = (int)(log(arm->wave_aa[n - 1] + 5) / MILL_LINE_LN_STEP - k0) + 1;
    mill_line_model *model = NULL;
    OK(mill_line_model_create(k0 * MILL_LINE_LN_STEP, n_fine, &model));
    double *wave = numbers((size_t)n_fine), *fine = numbers((size_t)n_fine);
    double *fine_cont = numbers((size_t)n_fine), *expected = numbers((size_t)n);
    OK(mill_line_model_flux(model, giant, fine, fine_cont));
    for (int i = 0; i < n_fine; i++)
      wave[i] = exp((k0 + i) * MILL_LINE_LN_STEP);
    int from = 0; /* the window that convolved looks at */
    for (int i = 0; i < n; i++) {
      while (wave[from] < arm->wave_aa[i] - 4.5)
        from++;
      const int left = n_fine - from;
      expected[i] = convolved(left < 260 ? left : 260, wave + from, fine + from, arm->wave_aa[i]);
    }
    const double median = smooth_median(n, expected);
    /* wings beyond 5 sigma hold 6e-7 of the area */
    for (int i = 0; i < n; i++)
      assert_close(flux[p0 + i], expected[i] / median, 2e-6 * fmax(1, expected[i] / median));
    for (int i = 1; i < 20; i++) {
      const int p = i * n / 20;
      from = 0;
      while (wave[from] < arm->wave_aa[p] - 4.5)
        from++;
      const double c = convolved(260, wave + from, fine_cont + from, arm->wave_aa[p]) / median;
      assert_close(cont[p0 + p], c, 2e-6 * c);
    }
    mill_line_model_destroy(model);
    mill_free(wave);
    mill_free(fine);
    mill_free(fine_cont);
    mill_free(expected);
  }
  mill_demo_templates_destroy(templates);
  mill_free(flux);
  mill_free(cont);
}

static void test_templates_refuse_labels_out_of_range(void **state)
{
  (void)state;
  mill_demo_templates *templates = NULL;
  double *flux = numbers((size_t)n_pix_all);
  const double hot[MILL_LINE_N_LABEL] = {9000, 4, 0, 0};
  const double nan_logg[MILL_LINE_N_LABEL] = {5000, NAN, 0, 0};
  OK(mill_demo_templates_create(&templates));
  assert_int_equal(mill_demo_templates_eval(templates, hot, flux, NULL), MILL_ERR_RANGE);
  assert_int_equal(mill_demo_templates_eval(templates, nan_logg, flux, NULL), MILL_ERR_RANGE);
  mill_demo_templates_destroy(templates);
  mill_demo_templates_destroy(NULL);
  mill_free(flux);
}

/* ---- library -------------------------------------------------------------------------------- */

static void test_library_is_complete(void **state)
{
  (void)state;
  static const char *const name[] = {"b", "r", "z"};
  /* DESI's pixels */
  static const double first_aa[] = {3600, 5760, 7520}, last_aa[] = {5800, 7620, 9824};
  OK(mill_library_check(&lib, "the demo library"));
  assert_int_equal(lib.n_arm, 3);
  for (int a = 0; a < 3; a++) {
    const mill_arm *arm = &lib.arm[a];
    assert_string_equal(arm->name, name[a]);
    assert_true(arm->template_sigma_aa == MILL_DEMO_SIGMA_AA);
    assert_true(arm->wave_aa[0] < first_aa[a] * (1 - 1000 / MILL_C_KM_S));
    assert_true(arm->wave_aa[arm->n_pix - 1] > last_aa[a] * (1 + 1000 / MILL_C_KM_S));
    assert_int_equal(arm->emulator.kind, MILL_EMULATOR_GRID);
  }
  assert_string_equal(lib.label[0].column, "TEFF");
  assert_string_equal(lib.label[3].column, "ALPHAFE");
  assert_int_equal(lib.label[0].mapping, MILL_MAP_LOG10);
}

static void test_frame_is_that_of_the_library(void **state)
{
  (void)state;
  mill_library frame = {0};
  OK(mill_demo_library_frame(&frame));
  assert_int_equal(frame.n_label, lib.n_label);
  assert_memory_equal(frame.label, lib.label, sizeof lib.label);
  assert_int_equal(frame.n_hull, lib.n_hull);
  for (int h = 0; h < lib.n_hull; h++) {
    assert_int_equal(frame.hull[h].n_facet, lib.hull[h].n_facet);
    assert_memory_equal(frame.hull[h].facet, lib.hull[h].facet,
                        (size_t)lib.hull[h].n_facet * 3 * sizeof(double));
  }
  for (int a = 0; a < lib.n_arm; a++) {
    assert_int_equal(frame.arm[a].n_pix, lib.arm[a].n_pix);
    assert_memory_equal(frame.arm[a].wave_aa, lib.arm[a].wave_aa,
                        (size_t)lib.arm[a].n_pix * sizeof(double));
    assert_null(frame.arm[a].emulator.weight[0]);
  }
  mill_library_clear(&frame);
}

static void test_hulls_hold_stars_that_exist(void **state)
{
  (void)state;
  static const double inside[][MILL_LINE_N_LABEL] = {{5772, 4.44, 0, 0},   {4100, 0.6, -2.9, 0.39},
                                                     {5400, 0.6, -1, 0.2}, {7400, 4.2, 0, 0.1},
                                                     {7450, 3.1, -2, 0.4}, {4000, 5, 0.5, 0}};
  static const double outside[][MILL_LINE_N_LABEL] = {
      {7400, 1.0, 0, 0},   {6000, 0.6, 0, 0},    {7000, 2.0, -1, 0.4}, {3990, 4, 0, 0},
      {7510, 4, 0, 0},     {5000, 5.05, 0, 0},   {5000, 0.4, 0, 0},    {5000, 3, 0.51, 0},
      {5000, 3, -3.01, 0}, {5000, 3, 0, -0.001}, {5000, 3, 0, 0.401}};
  for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
    assert_close(mill_library_hull_distance(&lib, inside[i]), 0, 1e-12);
  for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
    assert_true(mill_library_hull_distance(&lib, outside[i]) > 1e-4);
}

static void test_guess_templates_spread_inside_the_hulls(void **state)
{
  (void)state;
  double mean[MILL_LINE_N_LABEL] = {0};
  assert_int_equal(lib.n_guess, 50);
  assert_int_equal(lib.n_guess_vsini, 2);
  assert_true(lib.guess_vsini_km_s[0] == 0 && lib.guess_vsini_km_s[1] == 100);
  for (int i = 0; i < lib.n_guess; i++) {
    const double *label = lib.guess_label + i * lib.n_label;
    assert_close(mill_library_hull_distance(&lib, label), 0, 0);
    for (int l = 0; l < lib.n_label; l++)
      mean[l] += mill_label_map(&lib.label[l], label[l]) / lib.n_guess;
  }
  /* Mapped labels have unit spread over the box; the cut corner moves the mean of the first two by
     about 0.2, 50 even points are good to 0.1. */
  for (int l = 0; l < lib.n_label; l++)
    assert_close(mean[l], 0, 0.35);
}

static void test_threads_change_nothing(void **state)
{
  (void)state;
  mill_library one = {0};
  mill_grid_facts said;
  mill_model_set models = {0};
  settings.n_thread = 1;
  OK(mill_demo_library_build(&settings, &one, &said));
  OK(mill_demo_held_out(&settings, &one, &models));
  settings.n_thread = 3;
  mill_library_digest(&one, one.hash);
  assert_string_equal(one.hash, lib.hash);
  assert_memory_equal(&said, &facts, sizeof said);
  for (int a = 0; a < lib.n_arm; a++) {
    const size_t size = (size_t)models.n * (size_t)lib.arm[a].n_pix * sizeof(float);
    assert_memory_equal(models.flux[a], held_out.flux[a], size);
    assert_memory_equal(models.continuum[a], held_out.continuum[a], size);
  }
  mill_library_clear(&one);
  mill_model_set_clear(&models);
}

/* ---- error ---------------------------------------------------------------------------------- */

/* At a node the splines are exact and only the left-out components remain: what holds there fails
   when nodes and spectra are confused, which the error elsewhere would blur. */
static void test_emulator_meets_the_model_at_nodes(void **state)
{
  (void)state;
  mill_demo_templates *templates = NULL;
  double *flux = numbers((size_t)n_pix_all), *cont = numbers((size_t)n_pix_all);
  double *emulated = numbers((size_t)n_pix_all);
  OK(mill_demo_templates_create(&templates));
  for (int corner = 0; corner < 16; corner++) {
    double label[MILL_LINE_N_LABEL], rms = 0;
    for (int l = 0; l < MILL_LINE_N_LABEL; l++)
      label[l] = corner >> l & 1 ? lib.label[l].max : lib.label[l].min;
    OK(mill_demo_templates_eval(templates, label, flux, cont));
    for (int a = 0, p0 = 0; a < lib.n_arm; p0 += lib.arm[a++].n_pix) {
      OK(mill_emulator_eval(&lib, a, label, emulated + p0));
      for (int i = p0; i < p0 + lib.arm[a].n_pix; i++)
        rms += pow((emulated[i] - flux[i]) / cont[i], 2) / n_pix_all;
    }
    assert_close(sqrt(rms), 0, CORNER_RMS);
  }
  mill_demo_templates_destroy(templates);
  mill_free(flux);
  mill_free(cont);
  mill_free(emulated);
}

/* Largest error of arm a over the held-out models, per cent of the continuum. */
static double largest_error(int a)
{
  const size_t n = (size_t)lib.arm[a].n_pix;
  double *emulated = numbers(n), largest = 0;
  for (size_t i = 0; i < (size_t)held_out.n; i++) {
    OK(mill_emulator_eval(&lib, a, held_out.label + i * MILL_LINE_N_LABEL, emulated));
    for (size_t p = i * n; p < (i + 1) * n; p++)
      largest = fmax(largest, 100 * fabs(emulated[p - i * n] - (double)held_out.flux[a][p]) /
                                  (double)held_out.continuum[a][p]);
  }
  mill_free(emulated);
  return largest;
}

static void test_report_sees_a_damaged_emulator(void **state)
{
  (void)state;
  mill_library_report good, report;
  mill_model_set others = {0};
  OK(mill_library_report_make(&lib, &held_out, 2, 1, &good));
  assert_int_equal(good.n, settings.n_held_out);
  for (int a = 0; a < lib.n_arm; a++) {
    assert_true(good.of_continuum[a]);
    assert_true(good.pixel[a].median > 0 && good.pixel[a].median < good.pixel[a].p99);
    /* lanes hold float32 of the fluxes: 6e-8 of 1, in per cent */
    assert_close(good.pixel[a].max, largest_error(a), 2e-5 * 100);
  }
  /* every flux of arm r too large by 5 %: lines and continuum alike are off by that much of
     themselves, so by 5 % of the continuum where there is no line, within the error before */
  mill_arm *arm = &lib.arm[1];
  for (int i = 0; i < arm->n_pix; i++)
    arm->emulator.bias[0][i] += 0.05f;
  OK(mill_library_report_make(&lib, &held_out, 2, 1, &report));
  for (int i = 0; i < arm->n_pix; i++)
    arm->emulator.bias[0][i] -= 0.05f;
  assert_close(report.pixel[1].median, 5, 0.5 + good.pixel[1].median);
  assert_true(report.pixel[1].p99 > good.pixel[1].p99);
  for (int a = 0; a < lib.n_arm; a += 2)
    assert_memory_equal(&report.pixel[a], &good.pixel[a], sizeof good.pixel[a]);
  mill_library_report_clear(&report);
  /* other stars, another error */
  settings.seed++;
  OK(mill_demo_held_out(&settings, &lib, &others));
  settings.seed--;
  OK(mill_library_report_make(&lib, &others, 2, 1, &report));
  assert_true(report.pixel[0].max != good.pixel[0].max);
  mill_library_report_clear(&report);
  mill_library_report_clear(&good);
  mill_model_set_clear(&others);
}

static void test_bad_settings_are_refused(void **state)
{
  (void)state;
  mill_library bad = {0};
  mill_grid_facts said;
  const mill_library zero = {0};
  static const struct {
    int n_thread, n_component, n_held_out, n_guess;
    const char *text;
  } wrong[] = {{0, 0, 1, 1, "0 threads"},
               {1, -1, 1, 1, "-1 principal components"},
               {1, MILL_DEMO_MAX_COMPONENT + 1, 1, 1, "principal components"},
               {1, 0, -1, 1, "-1 held-out"},
               {1, 0, MILL_REPORT_MAX + 1, 1, "held-out"},
               {1, 0, 1, 0, "0 templates"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    mill_demo_settings s;
    mill_demo_settings_init(&s);
    s.coarse = 1;
    s.n_thread = wrong[i].n_thread;
    s.n_component = wrong[i].n_component;
    s.n_held_out = wrong[i].n_held_out;
    s.n_guess = wrong[i].n_guess;
    assert_int_equal(mill_demo_library_build(&s, &bad, &said), MILL_ERR_RANGE);
    assert_non_null(strstr(mill_error_message(), wrong[i].text));
    assert_memory_equal(&bad, &zero, sizeof bad);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_templates_are_the_convolved_line_model),
      cmocka_unit_test(test_templates_refuse_labels_out_of_range),
      cmocka_unit_test(test_library_is_complete),
      cmocka_unit_test(test_frame_is_that_of_the_library),
      cmocka_unit_test(test_hulls_hold_stars_that_exist),
      cmocka_unit_test(test_guess_templates_spread_inside_the_hulls),
      cmocka_unit_test(test_threads_change_nothing),
      cmocka_unit_test(test_emulator_meets_the_model_at_nodes),
      cmocka_unit_test(test_report_sees_a_damaged_emulator),
      cmocka_unit_test(test_bad_settings_are_refused),
  };
  return cmocka_run_group_tests(tests, make_library, clear_library);
}
