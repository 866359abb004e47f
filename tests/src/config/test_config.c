/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests of a configuration in memory: values set by other code than the file's reader, names that a
 * library must have, parts of a library's arms.  e2e/test_config.py tests configuration files. */
#include "tests/test_folder.h"

#include "src/config/arms.h"
#include "tests/test_library.h"

static char path[300];
static mill_config config;
static mill_library lib;

static int begin(void **state)
{
  snprintf(path, sizeof path, "%s", make_folder(state) == 0 ? in_folder("run.yaml") : "");
  return path[0] ? 0 : -1;
}

static void must_read(const char *text)
{
  save_file(path, text, strlen(text));
  if (mill_config_read(&config, path) != MILL_OK)
    fail_msg("'%s': %s", text, mill_error_message());
}

static char *identity(void)
{
  char *text = NULL;
  assert_int_equal(mill_config_identity(&config, &text), MILL_OK);
  assert_non_null(text);
  return text;
}

MILL_TEST(identity_holds_the_hash_of_the_start)
{
  static const char *const table[] = {"a.fits", "folder/b.h5", "a.fits"};
  static const char *const hash[] = {"0123abcd", "0123abcd", "0123abce"};
  char *text[3];
  mill_config_default(&config);
  MILL_OWNED char *base = identity();
  for (int i = 0; i < 3; i++) {
    mill_config_default(&config);
    snprintf(config.start, sizeof config.start, "%s", table[i]);
    /* before the table is read, its hash is not known */
    assert_int_equal(mill_config_identity(&config, &text[i]), MILL_ERR_INTERNAL);
    assert_null(text[i]);
    snprintf(config.start_hash, sizeof config.start_hash, "%s", hash[i]);
    text[i] = identity();
    assert_string_not_equal(text[i], base);
    assert_non_null(strstr(text[i], hash[i]));
    assert_null(strstr(text[i], table[i]));
  }
  assert_string_equal(text[0], text[1]);
  assert_string_not_equal(text[0], text[2]);
  for (int i = 0; i < 3; i++)
    free(text[i]);
}

MILL_TEST(check_finds_values_set_elsewhere)
{
  static const char *const says[] = {"min_vel: ", "optimizer: ", "auto, cpu, cuda or cuda+cpu",
                                     "scratch: ", "minsn: "};
  for (int i = 0; i < 5; i++) {
    FILE *out = fopen("/dev/null", "w");
    char *text = NULL;
    assert_non_null(out);
    mill_config_default(&config);
    if (i == 0)
      config.fit.min_vel_km_s = NAN;
    if (i == 1)
      config.fit.optimizer = 3;
    if (i == 2)
      strcpy(config.backend, "gpu");
    if (i == 3)
      strcpy(config.scratch, "a\xc0\x80z");
    if (i == 4)
      config.select.min_sn = NAN;
    assert_fails(mill_config_check(&config), MILL_ERR_CONFIG, says[i]);
    assert_int_equal(mill_config_print(&config, out), MILL_ERR_CONFIG);
    assert_int_equal(mill_config_identity(&config, &text), MILL_ERR_CONFIG);
    assert_null(text);
    fclose(out);
  }
}

MILL_TEST(print_to_a_full_disk_fails)
{
  FILE *full = fopen("/dev/full", "w");
  assert_non_null(full);
  mill_config_default(&config);
  assert_int_equal(mill_config_print(&config, full), MILL_ERR_OUTPUT);
  fclose(full);
}

MILL_TEST(resolving_power_of_an_arm)
{
  mill_config_default(&config);
  must_read("resolving_power: 1800\narms: [b, {name: r, resolving_power: 2500}]");
  assert_close(mill_config_arm(&config, "b").resolving_power, 1800, 0);
  assert_close(mill_config_arm(&config, "r").resolving_power, 2500, 0);
  assert_close(mill_config_arm(&config, "z").resolving_power, 1800, 0);
  assert_int_equal(mill_config_find_arm(&config, "r"), 1);
  assert_int_equal(mill_config_find_arm(&config, "z"), -1);
}

MILL_TEST(bind_resolves_names)
{
  test_library_name(3, 2, &lib);
  mill_config_default(&config);
  must_read("arms: [r]\nminsn: 3\n"
            "fix_param: [{param: vsini, value: 2}, {param: feh, value: -1}]\n"
            "priors: [{param: vrad, mean: 7, sigma: 8}, {param: teff, mean: 5e3, sigma: 9}]");
  for (int i = 0; i < 2; i++) { /* again: the same */
    assert_int_equal(mill_config_bind(&config, &lib, 1), MILL_OK);
    static const int fixed[] = {0, 1, 0, 0, 1, 0};
    static const double value[] = {0, 2, 0, 0, -1, 0}, mean[] = {7, 0, 5000, 0, 0, 0},
                        sigma[] = {8, 0, 9, 0, 0, 0};
    for (int j = 0; j < 6; j++) {
      assert_int_equal(config.fit.fixed[j], fixed[j]);
      assert_close(config.fit.fixed_value[j], value[j], 0.0);
      assert_close(config.fit.prior_mean[j], mean[j], 0.0);
      assert_close(config.fit.prior_sigma[j], sigma[j], 0.0);
    }
    assert_close(config.fit.min_sn, 3.0, 0.0);
  }
  /* the line-spread function of an arm may come from its fwhm */
  must_read("lsf: resolving_power\narms: [{name: b, fwhm: 2.7}, "
            "{name: r, resolving_power: 1650}]");
  assert_int_equal(mill_config_bind(&config, &lib, 1), MILL_OK);
  /* with SCORES faint rows are left out before the fit, and no fitted row is too faint */
  config.select.sn_source = MILL_SN_SCORES;
  assert_int_equal(mill_config_bind(&config, &lib, 1), MILL_OK);
  assert_true(isinf(config.fit.min_sn) && config.fit.min_sn < 0);
  config.n_fixed = config.n_prior = 0; /* bound again, nothing of before stays */
  assert_int_equal(mill_config_bind(&config, &lib, 1), MILL_OK);
  for (int j = 0; j < MILL_MAX_PAR; j++) {
    assert_int_equal(config.fit.fixed[j], 0);
    assert_close(config.fit.prior_sigma[j], 0.0, 0.0);
  }
}

MILL_TEST(bind_refuses_what_the_library_lacks)
{
  static const struct {
    const char *text, *key, *words;
  } bad[] = {
      {"fix_param: [{param: tef, value: 5000}]", "fix_param: no parameter tef",
       "vrad, vsini, teff, logg, feh"},
      {"priors: [{param: alpha, mean: 0, sigma: 1}]", "priors: no parameter alpha",
       "vrad, vsini, teff, logg, feh"},
      {"arms: [b, z]", "arms: no arm z", "b, r"},
      {"arms: [{name: z, min: 7000}]", "arms: no arm z", "b, r"},
      {"wave_mask: [[430, 445], [6000, 6100]]", "wave_mask: [430, 445]", "in Angstrom"},
      {"arms: [{name: r, min: 600, max: 700}]", "arms: min 600", "exclude all of arm r"},
      {"lsf: matrix", "lsf: matrix", "arm r is at the instrument's own resolution"},
      {"lsf: sigma", "lsf: sigma", "arm r is at the instrument's own resolution"},
      {"arms: [b]\nlsf: resolving_power", "lsf: resolving_power", "the width of arm b"},
      {"fix_param: [{param: teff, value: 7001}]", "fix_param: teff", "from 4300 to 7000"},
      {"fix_param: [{param: vrad, value: -1001}]", "fix_param: vrad", "from -1000 to 1000"},
      {"fix_param: [{param: vsini, value: 501}]", "fix_param: vsini", "from 0 to 500"},
      {"fix_param: [{param: vrad, value: 0}, {param: vsini, value: 0}, {param: teff, value: 5000}, "
       "{param: logg, value: 1}, {param: feh, value: 0}]",
       "fix_param: all 5", "at least one"},
      /* 120 templates are padded to 128.  Each has, in each of two arms, 1e6 bins and transforms of
       * 162 * 8192 numbers, of 8 bytes.  Chi-squares of 64 stars at 2003 velocities take 0.1 GB. */
      {"guess_vel_step: 1", "guess_vel_step: 1 would need 4.9 GB",
       "120 templates, 2003 velocities"},
      {"guess_vel_step: 2\nmin_vel: -200000", "guess_vel_step: 2", "larger step"}};
  test_library_name(3, 2, &lib);
  lib.arm[1].template_sigma_aa = -1.0;
  lib.n_guess = 60;
  lib.n_guess_vsini = 2;
  for (int a = 0; a < 2; a++) {
    lib.arm[a].n_pix = 100001;
    lib.arm[a].ln_wave0 = log(3600.0);
    lib.arm[a].ln_step = 10.0 / MILL_C_KM_S;
  }
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    mill_config before;
    mill_config_default(&config);
    must_read(bad[i].text);
    memcpy(&before, &config, sizeof before);
    assert_int_equal(mill_config_bind(&config, &lib, 1), MILL_ERR_CONFIG);
    const char *message = mill_error_message();
    if (strncmp(message, bad[i].key, strlen(bad[i].key)) != 0 || !strstr(message, bad[i].words))
      fail_msg("'%s': message '%s'", bad[i].text, message);
    assert_memory_equal(&config, &before, sizeof config);
  }
}

/* --- parts of a library's arms --- */

/* Open a configuration and a library, and free those opened before. */
static void open_both(const char *yaml, int n_arm, int kind)
{
  mill_library_clear(&lib);
  mill_config_clear(&config);
  mill_config_default(&config);
  must_read(yaml);
  assert_int_equal(test_library_make(3, n_arm, 5, &lib), MILL_OK);
  if (kind != MILL_EMULATOR_MLP)
    assert_int_equal(test_library_to(&lib, kind), MILL_OK);
}

/* A part cut from arm b (4000 to 4130 A) has the whole arm's templates and model errors, bit for
 * bit.  It has the pixels that its range needs at any velocity and rotation, but not all pixels. */
MILL_TEST(a_part_has_the_pixels_of_the_whole)
{
  static const int kind[] = {MILL_EMULATOR_MLP, MILL_EMULATOR_GRID, MILL_EMULATOR_RBF,
                             MILL_EMULATOR_GRID /* a linear one */};
  static const double label[3] = {5400, 3.1, -0.7};
  for (int k = 0; k < 4; k++) {
    /* named in the other order than by wavelength */
#define PARTS "arms: [{name: red, min: 4065}, {name: blue, max: 4065}]\nmax_vsini: 50\n"
    open_both(k % 2 ? PARTS "min_vel: -100\nmax_vel: 2300" : PARTS "min_vel: -2300\nmax_vel: 100",
              1, kind[k]);
    if (k == 3)
      test_library_to_linear(&lib.arm[0].emulator.grid);
    const int n_whole = lib.arm[0].n_pix;
    double whole[2048], part[2048], wave[2048];
    float fraction[2048], component[2][2048];
    assert_true(n_whole <= 2048);
    assert_int_equal(test_emulator_eval(&lib, 0, label, whole), MILL_OK);
    memcpy(wave, lib.arm[0].wave_aa, (size_t)n_whole * sizeof *wave);
    assert_int_equal(test_library_add_error(2, &lib), MILL_OK);
    memcpy(fraction, lib.arm[0].error.fraction, (size_t)n_whole * sizeof *fraction);
    for (int c = 0; c < 2; c++)
      memcpy(component[c], lib.arm[0].error.component + c * n_whole,
             (size_t)n_whole * sizeof component[c][0]);
    assert_int_equal(mill_config_cut_arms(&config, &lib), MILL_OK);
    assert_int_equal(lib.n_arm, 2);
    assert_string_equal(lib.arm[0].name, "blue");
    assert_string_equal(lib.arm[1].name, "red");
    assert_int_equal(mill_config_bind(&config, &lib, 1), MILL_OK);
    for (int a = 0; a < 2; a++) {
      const mill_arm *arm = &lib.arm[a];
      const int first = a == 0 ? 0 : n_whole - arm->n_pix;
      assert_true(arm->n_pix < n_whole);
      assert_close(exp(arm->ln_wave0), wave[first], 1e-9);
      assert_memory_equal(arm->wave_aa, wave + first, (size_t)arm->n_pix * sizeof *wave);
      assert_int_equal(test_emulator_eval(&lib, a, label, part), MILL_OK);
      assert_memory_equal(part, whole + first, (size_t)arm->n_pix * sizeof *part);
      assert_int_equal(arm->emulator.grid.linear, k == 3);
      const size_t n_byte = (size_t)arm->n_pix * sizeof *fraction;
      assert_int_equal(arm->error.n_component, 2);
      assert_memory_equal(arm->error.fraction, fraction + first, n_byte);
      for (int c = 0; c < 2; c++)
        assert_memory_equal(arm->error.component + c * arm->n_pix, component[c] + first, n_byte);
    }
    /* Arms pass 4065 A by the velocity limit plus max_vsini, and by spare points (1540 km/s). */
    assert_true(lib.arm[0].wave_aa[lib.arm[0].n_pix - 1] >
                4065 * (1 + (k % 2 ? 150 : 2350) / MILL_C_KM_S));
    assert_true(lib.arm[1].wave_aa[0] < 4065 * (1 - (k % 2 ? 2350 : 150) / MILL_C_KM_S));
  }
}

MILL_TEST(a_part_is_of_the_arm_with_its_range)
{
  open_both("arms: [{name: red, min: 4180}, {name: blue, max: 4065}]\nmax_vsini: 50", 2,
            MILL_EMULATOR_MLP);
  const double last = lib.arm[1].wave_aa[lib.arm[1].n_pix - 1];
  assert_int_equal(mill_config_cut_arms(&config, &lib), MILL_OK);
  assert_int_equal(mill_config_bind(&config, &lib, 1), MILL_OK);
  assert_int_equal(lib.n_arm, 2);
  assert_close(lib.arm[0].wave_aa[0], 4000, 1e-6);
  assert_close(lib.arm[1].wave_aa[lib.arm[1].n_pix - 1], last, 0);
}

MILL_TEST(an_arm_with_a_range_is_cut_and_the_others_stay)
{
  /* a range of which too few grid points are left cuts nothing */
  static const char *const yaml[] = {"arms: []", "arms: [b]", "arms: [{name: b, max: 3000}]",
                                     "arms: [{name: b, max: 4065}]"};
  for (int i = 0; i < 4; i++)
    for (int n_arm = 1; n_arm < 3; n_arm++) {
      open_both(yaml[i], n_arm, MILL_EMULATOR_MLP);
      const int n_pix = lib.arm[0].n_pix;
      const double ln_wave0 = lib.arm[0].ln_wave0;
      assert_int_equal(mill_config_cut_arms(&config, &lib), MILL_OK);
      assert_int_equal(lib.n_arm, n_arm);
      assert_string_equal(lib.arm[0].name, "b");
      assert_true(lib.arm[0].ln_wave0 == ln_wave0);
      if (i < 3)
        assert_int_equal(lib.arm[0].n_pix, n_pix);
      else
        assert_true(lib.arm[0].n_pix < n_pix && lib.arm[0].wave_aa[lib.arm[0].n_pix - 1] > 4065);
    }
}

/* A Gaussian of sigma grid points at each point of flux [n]. */
static double smooth_at(int n, const double *flux, double sigma, int i)
{
  double sum = 0, norm = 0;
  for (int j = i - 40; j <= i + 40; j++) {
    const double w = exp(-0.5 * (j - i) * (j - i) / (sigma * sigma));
    sum += w * flux[j < 0 ? -j : (j < n ? j : 2 * (n - 1) - j)];
    norm += w;
  }
  return sum / norm;
}

/* Templates of random lines with a sigma of 37 km/s (0.5 A at 4060 A), on a grid of 24 km/s.
 * After a broad line-spread function, every second grid point gives the same spectrum as all. */
MILL_TEST(a_coarser_grid_looks_the_same_through_a_broad_line_spread_function)
{
  enum { N = 800, MARGIN = 60 };
  const double line = 3.1, lsf = 5.0;
  for (int kind = MILL_EMULATOR_MLP; kind <= MILL_EMULATOR_RBF; kind += 2) {
    open_both("arms: [{name: b, sampling: 2}]", 1, kind);
    mill_arm *arm = &lib.arm[0];
    mill_emulator *e = &arm->emulator;
    const int last = e->n_layer - 1, n_in = e->n_in[last];
    double fine[N], coarse[N / 2], worst = 0;
    mill_free(e->weight[last]);
    mill_free(e->bias[last]);
    mill_free(arm->wave_aa);
    assert_int_equal(MILL_ALLOC(N * n_in, &e->weight[last]), MILL_OK);
    assert_int_equal(MILL_ALLOC(N, &e->bias[last]), MILL_OK);
    assert_int_equal(MILL_ALLOC(N, &arm->wave_aa), MILL_OK);
    for (int i = 0; i < N; i++) {
      double y = 0;
      for (int k = 0; k < 60; k++) {
        const double u = (i - (13.37 * k + 3 * sin(7.0 * k))) / line;
        y += log(1 - (0.3 + 0.25 * sin(3.0 * k)) * exp(-0.5 * u * u));
      }
      e->bias[last][i] = (float)(y + 1e-4 * (i % 2)); /* noise that steps of two would keep */
      for (int k = 0; k < n_in; k++)
        e->weight[last][i * n_in + k] = 0;
      arm->wave_aa[i] = exp(arm->ln_wave0 + i * arm->ln_step);
      fine[i] = exp((double)e->bias[last][i]);
    }
    arm->n_pix = e->n_out[last] = N;
    assert_int_equal(test_library_add_error(2, &lib), MILL_OK);
    const float error = arm->error.component[N + 700];
    assert_int_equal(mill_config_cut_arms(&config, &lib), MILL_OK);
    assert_int_equal(arm->n_pix, N / 2);
    assert_int_equal(arm->sampling, 2);
    assert_int_equal(mill_error_points(&arm->error, arm->n_pix), N - 1);
    assert_true(arm->error.component[N - 1 + 700] == error);
    assert_true(arm->wave_aa[100] == exp(arm->ln_wave0 + 200 * 8e-5) && arm->ln_step == 16e-5);
    for (int i = 0; i < N / 2; i++)
      coarse[i] = exp((double)e->bias[last][i]);
    for (int i = MARGIN / 2; i < (N - MARGIN) / 2; i++)
      worst =
          fmax(worst, fabs(smooth_at(N / 2, coarse, lsf / 2, i) - smooth_at(N, fine, lsf, 2 * i)));
    print_message("worst %g\n", worst);
    assert_true(worst < 3e-6);
  }
}

/* Which sampling is chosen for templates of 37 km/s (sigma) on a grid of 24 km/s. */
MILL_TEST(the_line_spread_function_s_width_chooses_the_grid)
{
  static const struct {
    const char *arm, *lsf;
    double most_power;
    int sampling;
  } row[] = {{"{name: b, resolving_power: 1000}", "resolving_power", 0, 2},
             {"{name: b, fwhm: 4}", "resolving_power", 0, 2},
             {"{name: b, resolving_power: 1000, sampling: 1}", "resolving_power", 0, 1},
             {"{name: b, resolving_power: 2000}", "resolving_power", 0, 0}, /* too sharp */
             {"{name: b, resolving_power: 1000}", "auto", 0, 0},   /* files may have their own */
             {"{name: b, resolving_power: 1000}", "auto", 900, 2}, /* none of this format has */
             {"{name: b, resolving_power: 1000}", "auto", 3000, 0},
             {"b", "sigma", 900, 2},
             {"b", "sigma\nlsf_factor: 0.5", 900, 0}, /* is as sharp as 1800 */
             {"b", "matrix", 900, 0}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    char yaml[200];
    snprintf(yaml, sizeof yaml, "arms: [%s]\nguess_vel_step: 100\nlsf: %s", row[i].arm, row[i].lsf);
    open_both(yaml, 1, MILL_EMULATOR_MLP);
    config.arm[0].most_power = row[i].most_power;
    mill_config_choose_sampling(&lib, 1, &config);
    assert_int_equal(config.arm[0].sampling, row[i].sampling);
  }
}

static void refuse(const char *yaml, int n_arm, const char *word)
{
  open_both(yaml, n_arm, MILL_EMULATOR_MLP);
  int err = mill_config_cut_arms(&config, &lib);
  if (err == MILL_OK)
    err = mill_config_bind(&config, &lib, 1);
  assert_fails(err, MILL_ERR_CONFIG, word);
}

MILL_TEST(what_is_no_part_is_refused)
{
  refuse("arms: [blue]", 1, "no arm blue; the library has only b");
  refuse("arms: [{name: blue, channel: z}]", 1, "write {name: b, channel: z}, or {name: blue, min");
  refuse("arms: [{name: blue, max: 4065}, b]", 1, "entry min or max, and a new name");
  refuse("arms: [{name: blue, max: 4065}, red]", 1, "entry min or max, and a new name");
  refuse("arms: [blue]", 2, "no arm blue; the library has b, r: give one of these, or min and max");
  refuse("arms: [{name: blue, max: 4065}, r]", 2, "entry min or max, and a new name");
  refuse("arms: [{name: red, min: 8000, max: 9000}]", 1, "red, from 8000 to 9000 A, is not within");
}

MILL_TEST_MAIN(begin, remove_folder)
