/* SPDX-License-Identifier: BSD-3-Clause */
/* What other code sets in a configuration, and its names resolved against a library; what files say
   is tested by e2e/test_config.py. */
#include "tests/src/config/config_fixture.h"
#include "src/config/arms.h"

static char *identity(const mill_config *config)
{
  char *text = NULL;
  assert_int_equal(mill_config_identity(config, &text), MILL_OK);
  assert_non_null(text);
  return text;
}

/* A table to start from counts by what is in it, not by where it lies. */
MILL_TEST(identity_holds_the_hash_of_the_start)
{
  static const char *const table[] = {"a.fits", "folder/b.h5", "a.fits"};
  static const char *const hash[] = {"0123abcd", "0123abcd", "0123abce"};
  char *text[3], *base;
  mill_config config;
  mill_config_default(&config);
  base = identity(&config);
  for (int i = 0; i < 3; i++) {
    mill_config_default(&config);
    snprintf(config.start, sizeof config.start, "%s", table[i]);
    /* before the table is read, its hash is not known */
    assert_int_equal(mill_config_identity(&config, &text[i]), MILL_ERR_INTERNAL);
    assert_null(text[i]);
    snprintf(config.start_hash, sizeof config.start_hash, "%s", hash[i]);
    text[i] = identity(&config);
    assert_string_not_equal(text[i], base);
    assert_non_null(strstr(text[i], hash[i]));
    assert_null(strstr(text[i], table[i]));
  }
  assert_string_equal(text[0], text[1]);
  assert_string_not_equal(text[0], text[2]);
  for (int i = 0; i < 3; i++)
    free(text[i]);
  free(base);
}

MILL_TEST(check_finds_values_set_elsewhere)
{
  static const char *const says[] = {"min_vel: ", "optimizer: ", "auto, cpu, cuda or cuda+cpu",
                                     "scratch: ", "minsn: "};
  for (int i = 0; i < 5; i++) {
    mill_config config;
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
  mill_config config;
  FILE *full = fopen("/dev/full", "w");
  assert_non_null(full);
  mill_config_default(&config);
  assert_int_equal(mill_config_print(&config, full), MILL_ERR_OUTPUT);
  fclose(full);
}

MILL_TEST(resolving_power_of_an_arm)
{
  mill_config config;
  mill_config_default(&config);
  must_read(&config, "resolving_power: 1800\narms: [b, {name: r, resolving_power: 2500}]");
  assert_close(mill_config_arm(&config, "b").resolving_power, 1800, 0);
  assert_close(mill_config_arm(&config, "r").resolving_power, 2500, 0);
  assert_close(mill_config_arm(&config, "z").resolving_power, 1800, 0);
  assert_int_equal(mill_config_find_arm(&config, "r"), 1);
  assert_int_equal(mill_config_find_arm(&config, "z"), -1);
}

static void make_library(mill_library *lib)
{
  static const char *const labels[] = {"teff", "logg", "feh"}, *const arms[] = {"b", "r"};
  memset(lib, 0, sizeof *lib);
  lib->n_label = 3;
  for (int i = 0; i < 3; i++) {
    strcpy(lib->label[i].name, labels[i]);
    lib->label[i].min = i == 0 ? 4000.0 : -3.0;
    lib->label[i].max = i == 0 ? 7000.0 : 5.0;
  }
  lib->n_arm = 2;
  for (int i = 0; i < 2; i++)
    strcpy(lib->arm[i].name, arms[i]);
}

MILL_TEST(bind_resolves_names)
{
  mill_library lib;
  mill_config config;
  make_library(&lib);
  mill_config_default(&config);
  must_read(&config,
            "arms: [r]\nminsn: 3\n"
            "fix_param: [{param: vsini, value: 2}, {param: feh, value: -1}]\n"
            "priors: [{param: vrad, mean: 7, sigma: 8}, {param: teff, mean: 5e3, sigma: 9}]");
  for (int i = 0; i < 2; i++) { /* again: the same */
    assert_int_equal(mill_config_bind(&config, &lib), MILL_OK);
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
  must_read(&config, "lsf: resolving_power\narms: [{name: b, fwhm: 2.7}, "
                     "{name: r, resolving_power: 1650}]");
  assert_int_equal(mill_config_bind(&config, &lib), MILL_OK);
  /* by SCORES rows are left out before they are fitted, and then none is too faint */
  config.select.sn_source = MILL_SN_SCORES;
  assert_int_equal(mill_config_bind(&config, &lib), MILL_OK);
  assert_true(isinf(config.fit.min_sn) && config.fit.min_sn < 0);
  config.n_fixed = config.n_prior = 0; /* bound again, nothing of before stays */
  assert_int_equal(mill_config_bind(&config, &lib), MILL_OK);
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
      {"arms: [{name: r, min: 600, max: 700}]", "arms: min 600", "nothing of arm r"},
      {"lsf: matrix", "lsf: matrix", "arm r is at the instrument's own resolution"},
      {"lsf: sigma", "lsf: sigma", "arm r is at the instrument's own resolution"},
      {"arms: [b]\nlsf: resolving_power", "lsf: resolving_power", "set for arm b"},
      {"fix_param: [{param: teff, value: 7001}]", "fix_param: teff", "from 4000 to 7000"},
      {"fix_param: [{param: vrad, value: -1001}]", "fix_param: vrad", "from -1000 to 1000"},
      {"fix_param: [{param: vsini, value: 501}]", "fix_param: vsini", "from 0 to 500"},
      {"fix_param: [{param: vrad, value: 0}, {param: vsini, value: 0}, {param: teff, value: 5000}, "
       "{param: logg, value: 0}, {param: feh, value: 0}]",
       "fix_param: all 5", "at least one"},
      /* 128 templates with those that fill a group, 2003 velocities, 1e6 bins of each arm: 8 bytes
       * in the table, 8 of each of 162 blocks of 8192 - 2002; 0.1 GB of velocities */
      {"guess_vel_step: 1", "guess_vel_step: 1 would need 4.9 GB",
       "120 templates, 2003 velocities"},
      {"guess_vel_step: 2\nmin_vel: -200000", "guess_vel_step: 2", "larger step"},
  };
  mill_library lib;
  make_library(&lib);
  lib.arm[1].template_sigma_aa = -1.0;
  lib.n_guess = 60;
  lib.n_guess_vsini = 2;
  for (int a = 0; a < 2; a++) {
    lib.arm[a].n_pix = 100001;
    lib.arm[a].ln_wave0 = log(3600.0);
    lib.arm[a].ln_step = 10.0 / MILL_C_KM_S;
  }
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    mill_config config, before;
    mill_config_default(&config);
    must_read(&config, bad[i].text);
    memcpy(&before, &config, sizeof before);
    assert_int_equal(mill_config_bind(&config, &lib), MILL_ERR_CONFIG);
    const char *message = mill_error_message();
    if (strncmp(message, bad[i].key, strlen(bad[i].key)) != 0 || !strstr(message, bad[i].words))
      fail_msg("'%s': message '%s'", bad[i].text, message);
    assert_memory_equal(&config, &before, sizeof config);
  }
}

MILL_TEST_MAIN(begin, remove_folder)
