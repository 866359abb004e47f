/* Defaults, reading, checking and printing of configurations. */
#include "tests/src/config/config_fixture.h"

static void test_defaults(void **state)
{
  (void)state;
  mill_config config;
  mill_config_default(&config);
  assert_int_equal(mill_config_check(&config), MILL_OK);
  assert_string_equal(config.template_lib, "");
  assert_close(config.fit.min_vel_km_s, -1000.0, 0.0);
  assert_close(config.fit.max_vel_km_s, 1000.0, 0.0);
  assert_close(config.fit.min_vsini_km_s, 0.0, 0.0);
  assert_close(config.fit.max_vsini_km_s, 500.0, 0.0);
  assert_int_equal(config.fit.n_cont, 10);
  assert_int_equal(config.fit.continuum, MILL_CONT_RBF);
  assert_int_equal(config.fit.optimizer, MILL_OPT_HYBRID);
  assert_int_equal(config.fit.likelihood, MILL_LIKE_MARGINAL);
  assert_int_equal(config.fit.precision, MILL_FLOAT32);
  assert_int_equal(config.fit.rotation, MILL_ROT_SPLINE);
  assert_int_equal(config.fit.resolution, MILL_RES_AUTO);
  assert_close(config.fit.guess_vel_step_km_s, 60.0, 0.0);
  assert_close(config.fit.second_start_sn, 6.0, 0.0);
  assert_int_equal(config.fit.max_starts, 10);
  assert_int_equal(config.fit.n_simplex_round, 40);
  assert_int_equal(config.fit.max_eval, 4000);
  assert_int_equal(config.fit.edge_pix, 5);
  assert_close(config.fit.sigma_floor, 0.3, 0.0);
  assert_close(config.fit.bad_sigma_factor, 1000.0, 0.0);
  assert_int_equal(config.fit.n_wave_mask, 1);
  assert_close(config.fit.wave_mask[0].min_aa, 4300.0, 0.0);
  assert_close(config.fit.wave_mask[0].max_aa, 4450.0, 0.0);
  assert_int_equal(config.fit.mask_ignore, 0);
  assert_true(config.select.min_sn == -INFINITY && config.fit.min_sn == -INFINITY);
  assert_int_equal(config.select.n_objtype, 0);
  assert_null(config.select.target_id);
  assert_int_equal(config.select.redrock, 0);
  assert_close(config.select.redrock_max_vel_km_s, 1500.0, 0.0);
  assert_true(config.select.fiberstatus_allowed == (1u << 3 | 1u << 20));
  assert_int_equal(config.wave_mask_auto, 1);
  assert_string_equal(config.format, "auto");
  assert_int_equal(config.exposures, MILL_EXPOSURES_COADD);
  assert_int_equal(config.join_by_name, 0);
  assert_int_equal(config.lsf, MILL_LSF_AUTO);
  assert_close(config.resolving_power, 0.0, 0.0);
  assert_int_equal(config.medium, MILL_MEDIUM_AUTO);
  assert_int_equal(config.n_fixed + config.n_prior + config.n_arm, 0);
  assert_int_equal(config.n_thread + config.n_reader + config.n_slot, 0);
  assert_close(config.write_interval_s, 5.0, 0.0);
  assert_close(config.gzip_limit_mib, 4096.0, 0.0);
  assert_string_equal(config.backend, "auto");
  assert_string_equal(config.log_level, "info");
}

static void test_empty_files_give_defaults(void **state)
{
  (void)state;
  static const char *const texts[] = {"", "\n\n", "# only a remark\n", "---\n", "{}\n"};
  mill_config config, expected;
  mill_config_default(&expected);
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    mill_config_default(&config);
    must_read(&config, texts[i]);
    assert_same(&config, &expected);
  }
}

static void test_example_spells_out_the_defaults(void **state)
{
  (void)state;
  mill_config config, expected;
  mill_config_default(&expected);
  mill_config_default(&config);
  config.fit.n_cont = 3; /* so that it shows whether the file is read */
  if (mill_config_read(&config, MILL_SOURCE_DIR "/config/desi.yaml") != MILL_OK)
    fail_msg("%s", mill_error_message());
  assert_same(&config, &expected);
}

static void test_examples_of_other_surveys_are_read(void **state)
{
  (void)state;
  static const struct {
    const char *format;
    double resolving_power;
    int join;
    double fwhm_aa; /* of the first arm */
  } survey[] = {{"sdss", 0, 0, 0}, {"lamost", 1800, 0, 2.7}, {"weave", 5000, 1, 0}};
  for (size_t i = 0; i < sizeof survey / sizeof survey[0]; i++) {
    char example[512];
    mill_config config;
    snprintf(example, sizeof example, MILL_SOURCE_DIR "/config/%s.yaml", survey[i].format);
    mill_config_default(&config);
    if (mill_config_read(&config, example) != MILL_OK)
      fail_msg("%s", mill_error_message());
    assert_string_equal(config.format, survey[i].format);
    assert_close(config.resolving_power, survey[i].resolving_power, 0);
    assert_int_equal(config.join_by_name, survey[i].join);
    assert_close(config.arm[0].fwhm_aa, survey[i].fwhm_aa, 0);
    assert_int_equal(config.wave_mask_auto, 0); /* never DESI's dichroic */
    mill_config_clear(&config);
  }
}

/* Text of a file, "" when it is not there; free(). */
static char *text_of(const char *file_path)
{
  enum { MAX = 1 << 18 };
  char *text = calloc(1, MAX);
  FILE *file = fopen(file_path, "r");
  assert_non_null(text);
  if (file) {
    assert_true(fread(text, 1, MAX - 1, file) > 100);
    fclose(file);
  }
  return text;
}

static void test_example_has_every_key(void **state)
{
  (void)state;
  mill_config config;
  mill_config_default(&config);
  char *text = text_of(MILL_SOURCE_DIR "/config/desi.yaml"), *rest = NULL, *keys = printed(&config);
  for (char *line = strtok_r(keys, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    char wanted[80];
    snprintf(wanted, sizeof wanted, "\n%.*s:", (int)strcspn(line, ":"), line);
    if (!strstr(text, wanted))
      fail_msg("config/desi.yaml lacks %s", line);
  }
  free(text);
  free(keys);
}

/* The tables of the documentation are those that `starmill help config` prints, line by line. */
static void test_documentation_is_that_of_the_table(void **state)
{
  (void)state;
  char *text = text_of(MILL_SOURCE_DIR "/docs/use/configuration.md"), *keys = NULL, *rest = NULL;
  size_t n = 0, n_key = 0, n_row = 0;
  FILE *out = open_memstream(&keys, &n);
  assert_non_null(out);
  assert_int_equal(mill_config_print_keys(out), MILL_OK);
  assert_int_equal(fclose(out), 0);
  const char *at = text;
  for (char *line = strtok_r(keys, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    const char *next = strstr(at, line);
    if (!next || next[strlen(line)] != '\n')
      fail_msg("the documentation lacks this line, or has it elsewhere: %s", line);
    at = next + strlen(line);
    n_key += strncmp(line, "| `", 3) == 0;
  }
  assert_int_equal(n_key, 57);
  /* and no key besides: seven columns are those of a key */
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    int n_column = -1;
    for (const char *c = line; *c; c++)
      n_column += *c == '|';
    n_row += strncmp(line, "| `", 3) == 0 && n_column == 7;
  }
  assert_int_equal(n_row, n_key);
  free(text);
  free(keys);
}

static void test_every_key_is_read(void **state)
{
  (void)state;
  mill_config config;
  mill_config_default(&config);
  must_read(&config,
            "template_lib: 'a b: #c.h5'\n"
            "arms: [{name: b, fwhm: 2.7}, {name: z, min: 7e3, max: 9000, channel: RED, "
            "resolving_power: 1800}]\n"
            "format: sdss\njoin_by_name: yes\njoin_radius: 1.5\nexposures: joint\nlsf: "
            "matrix\nresolving_power: 2e3\n"
            "start: truth.fits\nmedium: air\nmin_vel: -1.5e2\nmax_vel: +300\n"
            "min_vsini: .5\nmax_vsini: 80.\nnpoly: 7\nrbf_continuum: no\n"
            "likelihood: profile\nprecision: float64\n"
            "rotation_kernel: linear\n"
            "optimizer: levenberg-marquardt\nguess_vel_step: 20\nsecond_start_sn: 0\n"
            "max_starts: 3\nn_simplex_round: 12\nmax_eval: 99\nedge_pix: 0\nsigma_floor: 0\n"
            "bad_sigma_factor: 10\nwave_mask:\n  - [1, 2]\n  - [2, 3.5]\n"
            "mask_ignore: 0x80000001\nfix_param: [{value: 3, param: vsini}]\n"
            "priors:\n  - param: teff\n    mean: 5000\n    sigma: 100\n"
            "minsn: -2.5\nobjtypes: TGT\ntargetid: [7, -3, 39627000000000001, 7]\n"
            "fiberstatus_allowed_bits: [0, 63]\nredrock: on\nredrock_file: r.fits\n"
            "redrock_max_vel: 600\nminsn_from: scores\ntarget_classes: [MWS_ANY, 'STD_*']\n"
            "select_by: all\nminexpid: 5\nmaxexpid: 7\nthreads: 2\nreaders: 3\nslots: 7\n"
            "write_interval: 0.5\ngzip_limit_mib: 10\nscratch: /s\nbackend: cpu\n"
            "log_level: debug\n");
  assert_string_equal(config.template_lib, "a b: #c.h5");
  assert_string_equal(config.start, "truth.fits");
  assert_int_equal(config.n_arm, 2);
  assert_string_equal(config.arm[0].arm, "b");
  assert_close(config.arm[0].min_aa, 0.0, 0.0);
  assert_true(isinf(config.arm[0].max_aa));
  assert_string_equal(config.arm[0].channel, "");
  assert_close(config.arm[0].fwhm_aa, 2.7, 0.0);
  assert_close(config.arm[1].fwhm_aa, 0.0, 0.0);
  assert_string_equal(config.arm[1].arm, "z");
  assert_close(config.arm[1].min_aa, 7000.0, 0.0);
  assert_close(config.arm[1].max_aa, 9000.0, 0.0);
  assert_string_equal(config.arm[1].channel, "RED");
  assert_close(config.arm[1].resolving_power, 1800.0, 0.0);
  assert_string_equal(config.format, "sdss");
  assert_int_equal(config.exposures, MILL_EXPOSURES_JOINT);
  assert_int_equal(config.join_by_name, 1);
  assert_close(config.join_radius_arcsec, 1.5, 0.0);
  assert_int_equal(config.lsf, MILL_LSF_MATRIX);
  assert_close(config.resolving_power, 2000.0, 0.0);
  assert_int_equal(config.medium, MILL_MEDIUM_AIR);
  assert_close(config.fit.min_vel_km_s, -150.0, 0.0);
  assert_close(config.fit.max_vel_km_s, 300.0, 0.0);
  assert_close(config.fit.min_vsini_km_s, 0.5, 0.0);
  assert_close(config.fit.max_vsini_km_s, 80.0, 0.0);
  assert_int_equal(config.fit.n_cont, 7);
  assert_int_equal(config.fit.continuum, MILL_CONT_CHEBYSHEV);
  assert_int_equal(config.fit.likelihood, MILL_LIKE_PROFILE);
  assert_int_equal(config.fit.precision, MILL_FLOAT64);
  assert_int_equal(config.fit.rotation, MILL_ROT_LINEAR);
  assert_int_equal(config.fit.optimizer, MILL_OPT_LM);
  assert_close(config.fit.guess_vel_step_km_s, 20.0, 0.0);
  assert_close(config.fit.second_start_sn, 0.0, 0.0);
  assert_int_equal(config.fit.max_starts, 3);
  assert_int_equal(config.fit.n_simplex_round, 12);
  assert_int_equal(config.fit.max_eval, 99);
  assert_int_equal(config.fit.edge_pix, 0);
  assert_close(config.fit.sigma_floor, 0.0, 0.0);
  assert_close(config.fit.bad_sigma_factor, 10.0, 0.0);
  assert_int_equal(config.fit.n_wave_mask, 2);
  assert_int_equal(config.wave_mask_auto, 0);
  assert_close(config.fit.wave_mask[1].max_aa, 3.5, 0.0);
  assert_true(config.fit.mask_ignore == 0x80000001u);
  assert_int_equal(config.n_fixed, 1);
  assert_string_equal(config.fixed[0].name, "vsini");
  assert_close(config.fixed[0].value, 3.0, 0.0);
  assert_int_equal(config.n_prior, 1);
  assert_string_equal(config.prior[0].name, "teff");
  assert_close(config.prior[0].value, 5000.0, 0.0);
  assert_close(config.prior[0].sigma, 100.0, 0.0);
  assert_close(config.select.min_sn, -2.5, 0.0);
  assert_int_equal(config.select.n_objtype, 1);
  assert_string_equal(config.select.objtype[0], "TGT");
  assert_int_equal(config.select.n_target_id, 3); /* sorted, once each */
  assert_true(config.select.target_id[0] == -3 && config.select.target_id[1] == 7 &&
              config.select.target_id[2] == INT64_C(39627000000000001));
  assert_true(config.select.fiberstatus_allowed == (UINT64_C(1) << 63 | 1));
  assert_int_equal(config.select.redrock, 1);
  assert_string_equal(config.select.redrock_file, "r.fits");
  assert_close(config.select.redrock_max_vel_km_s, 600.0, 0.0);
  assert_int_equal(config.select.sn_source, MILL_SN_SCORES);
  assert_int_equal(config.select.n_target_class, 2);
  assert_string_equal(config.select.target_class[1], "STD_*");
  assert_int_equal(config.select.select_by, MILL_SELECT_BY_ALL);
  assert_int_equal(config.select.min_exp_id, 5);
  assert_int_equal(config.select.max_exp_id, 7);
  assert_int_equal(config.n_thread, 2);
  assert_int_equal(config.n_reader, 3);
  assert_int_equal(config.n_slot, 7);
  assert_close(config.write_interval_s, 0.5, 0.0);
  assert_close(config.gzip_limit_mib, 10.0, 0.0);
  assert_string_equal(config.scratch, "/s");
  assert_string_equal(config.backend, "cpu");
  assert_string_equal(config.log_level, "debug");
  /* a second file goes over the first */
  must_read(&config, "targetid: []\nminsn: none\nnpoly: 8\nwave_mask: auto\nlsf: off\n"
                     "exposures: coadd\n");
  assert_int_equal(config.wave_mask_auto, 1);
  assert_int_equal(config.fit.n_wave_mask, 1);
  assert_close(config.fit.wave_mask[0].max_aa, 4450.0, 0.0);
  assert_int_equal(config.lsf, MILL_LSF_OFF);
  assert_int_equal(config.exposures, MILL_EXPOSURES_COADD);
  assert_null(config.select.target_id);
  assert_true(config.select.min_sn == -INFINITY);
  assert_int_equal(config.fit.n_cont, 8);
  assert_string_equal(config.backend, "cpu");
  mill_config_clear(&config);
  mill_config_clear(NULL);
}

static void test_check_finds_values_set_elsewhere(void **state)
{
  (void)state;
  mill_config config;
  FILE *out = fopen("/dev/null", "w");
  char *text = NULL;
  assert_non_null(out);
  mill_config_default(&config);
  config.fit.min_vel_km_s = NAN;
  assert_int_equal(mill_config_check(&config), MILL_ERR_CONFIG);
  assert_int_equal(strncmp(mill_error_message(), "min_vel: ", 9), 0);
  assert_int_equal(mill_config_print(&config, out), MILL_ERR_CONFIG);
  assert_int_equal(mill_config_identity(&config, &text), MILL_ERR_CONFIG);
  assert_null(text);
  mill_config_default(&config);
  config.fit.optimizer = 3;
  assert_int_equal(mill_config_check(&config), MILL_ERR_CONFIG);
  assert_int_equal(strncmp(mill_error_message(), "optimizer: ", 11), 0);
  mill_config_default(&config);
  strcpy(config.backend, "gpu");
  assert_int_equal(mill_config_check(&config), MILL_ERR_CONFIG);
  assert_non_null(strstr(mill_error_message(), "auto, cpu, cuda or cuda+cpu"));
  mill_config_default(&config);
  strcpy(config.scratch, "a\xc0\x80z");
  assert_int_equal(mill_config_check(&config), MILL_ERR_CONFIG);
  mill_config_default(&config);
  config.select.min_sn = NAN;
  assert_int_equal(mill_config_check(&config), MILL_ERR_CONFIG);
  assert_int_equal(strncmp(mill_error_message(), "minsn: ", 7), 0);
  fclose(out);
}

static void test_print_to_a_full_disk_fails(void **state)
{
  (void)state;
  mill_config config;
  FILE *full = fopen("/dev/full", "w");
  assert_non_null(full);
  mill_config_default(&config);
  assert_int_equal(mill_config_print(&config, full), MILL_ERR_OUTPUT);
  fclose(full);
}

/* splitmix64 */
static uint64_t seed;
static uint64_t random64(void)
{
  uint64_t z = seed += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static int random_int(int min, int max)
{
  return min + (int)(random64() % (uint64_t)(max - min + 1));
}

static double random_real(double min, double max)
{
  return min + (max - min) * (double)(random64() >> 11) * 0x1p-53;
}

/* any finite double */
static double random_finite(void)
{
  for (;;) {
    const uint64_t bits = random64();
    double x;
    memcpy(&x, &bits, sizeof x);
    if (isfinite(x))
      return x;
  }
}

static void random_text(char *out, int size)
{
  static const char *const pieces[] = {"a",
                                       "Z",
                                       "\"",
                                       "\\",
                                       "  ",
                                       "#",
                                       ": ",
                                       "'",
                                       "/",
                                       "\xc3\xa9",
                                       "\xe2\x80\xa8",
                                       "\xc2\x85",
                                       "-",
                                       "~",
                                       "{",
                                       "\xef\xbb\xbf",
                                       "\xf0\x9f\x8c\x9f",
                                       "%"};
  int n = 0;
  memset(out, 0, (size_t)size);
  for (int i = random_int(0, size); i > 0; i--) {
    const char *piece = pieces[random_int(0, sizeof pieces / sizeof pieces[0] - 1)];
    if (n + (int)strlen(piece) >= size)
      break;
    strcpy(out + n, piece);
    n += (int)strlen(piece);
  }
}

static void random_config(mill_config *config)
{
  mill_config_default(config);
  mill_fit_settings *fit = &config->fit;
  random_text(config->template_lib, sizeof config->template_lib);
  random_text(config->start, sizeof config->start);
  fit->min_vel_km_s = random_real(-299792, 100);
  fit->max_vel_km_s = random_real(1200, 299792);
  fit->min_vsini_km_s = random_int(0, 1) ? -0.0 : random_real(0, 1);
  fit->max_vsini_km_s = random_real(2, 1000);
  fit->n_cont = random_int(1, MILL_MAX_CONT);
  fit->n_cont_per_1000aa = random_real(0, 1000);
  fit->rescale_errors = random_int(0, 1);
  fit->velocity_offsets = random_int(0, 1);
  fit->velocity_offset_sigma_km_s = random_real(0.001, 1000);
  fit->continuum = random_int(0, 1);
  fit->likelihood = random_int(0, 1);
  fit->precision = random_int(0, 1);
  fit->rotation = random_int(0, 1);
  fit->model_error = random_int(0, 1);
  fit->optimizer = random_int(0, 2);
  fit->guess_vel_step_km_s = random_real(1, 1000);
  fit->second_start_sn = fabs(random_finite());
  if (fit->second_start_sn > 1e6)
    fit->second_start_sn = 5e-324; /* the smallest there is */
  fit->max_starts = random_int(1, MILL_MAX_GUESS_START);
  fit->n_simplex_round = random_int(0, 100000);
  fit->max_eval = random_int(1, 10000000);
  fit->edge_pix = random_int(0, 1000);
  fit->sigma_floor = random_real(0, 10);
  fit->bad_sigma_factor = random_real(1, 1e6);
  config->wave_mask_auto = 0;
  fit->n_wave_mask = random_int(0, MILL_MAX_WAVE_MASK);
  memset(fit->wave_mask, 0, sizeof fit->wave_mask);
  for (int i = 0; i < fit->n_wave_mask; i++) {
    fit->wave_mask[i].min_aa = 100.0 * i + random_real(0, 50);
    fit->wave_mask[i].max_aa = 100.0 * i + random_real(51, 100);
  }
  fit->mask_ignore = (uint32_t)random64();
  config->n_fixed = random_int(0, MILL_MAX_PAR);
  config->n_prior = random_int(0, MILL_MAX_PAR);
  for (int i = 0; i < config->n_fixed; i++) {
    snprintf(config->fixed[i].name, MILL_MAX_NAME, "f %d", i * 7 % 19);
    config->fixed[i].value = random_finite();
  }
  for (int i = 0; i < config->n_prior; i++) {
    snprintf(config->prior[i].name, MILL_MAX_NAME, "p\"%d", i * 7 % 19);
    config->prior[i].value = random_finite();
    config->prior[i].sigma = fabs(random_finite()) + 5e-324;
  }
  mill_selection *select = &config->select;
  select->min_sn = random_int(0, 1) ? random_finite() : -INFINITY;
  select->n_objtype = random_int(0, 8);
  for (int i = 0; i < select->n_objtype; i++)
    snprintf(select->objtype[i], sizeof select->objtype[i], "null%d", i * 3 % 8);
  select->n_target_class = random_int(0, MILL_MAX_TARGET_CLASS);
  for (int i = 0; i < select->n_target_class; i++)
    snprintf(select->target_class[i], sizeof select->target_class[i], "^(A|\"%d).*$", i * 3 % 16);
  select->sn_source = random_int(0, 1);
  select->select_by = random_int(0, 1);
  select->min_exp_id = random_int(0, 100);
  select->max_exp_id = random_int(0, 1) ? random_int(100, 200) : 0;
  select->n_target_id = (size_t)random_int(0, 40);
  if (select->n_target_id > 0)
    assert_int_equal(MILL_ALLOC(select->n_target_id, &select->target_id), MILL_OK);
  for (size_t i = 0; i < select->n_target_id; i++) /* ascending over the whole range */
    select->target_id[i] =
        (int64_t)((uint64_t)INT64_MIN + i * (UINT64_MAX / 41) + (uint64_t)random_int(0, 1000));
  select->fiberstatus_allowed = random64();
  select->redrock = random_int(0, 1);
  random_text(select->redrock_file, sizeof select->redrock_file);
  select->redrock_max_vel_km_s = random_real(0, 299792);
  static const char *const formats[] = {"auto", "desi", "sdss", "lamost", "weave", "generic"};
  memset(config->format, 0, sizeof config->format);
  strcpy(config->format, formats[random_int(0, 5)]);
  config->exposures = random_int(0, 2);
  config->join_by_name = random_int(0, 1);
  config->join_radius_arcsec = config->join_by_name ? random_real(0, 60) : 0.0;
  config->lsf = random_int(0, 4);
  config->resolving_power = random_int(0, 1) ? random_real(0, 1e7) : 0.0;
  config->medium = random_int(0, 2);
  config->n_arm = random_int(0, MILL_MAX_ARM);
  memset(config->arm, 0, sizeof config->arm);
  for (int i = 0; i < config->n_arm; i++) {
    mill_arm_choice *choice = &config->arm[i];
    snprintf(choice->arm, sizeof choice->arm, "y%d", i * 3 % 8);
    choice->min_aa = random_int(0, 1) ? random_real(0, 5e3) : 0.0;
    choice->max_aa = random_int(0, 1) ? random_real(6e3, 1e4) : INFINITY;
    if (random_int(0, 1))
      snprintf(choice->channel, sizeof choice->channel, "c \"%d", i);
    choice->resolving_power = random_int(0, 1) ? random_real(0, 1e7) : 0.0;
    choice->fwhm_aa = choice->resolving_power > 0.0 ? 0.0 : random_real(0, 1e3);
  }
  config->n_thread = random_int(0, 4096);
  config->n_reader = random_int(0, 16);
  config->n_slot = random_int(0, 1000000);
  config->write_interval_s = random_real(0.1, 86400);
  config->gzip_limit_mib = random_real(0, 1e9);
  random_text(config->scratch, 40);
  static const char *const backends[] = {"auto", "cpu", "cuda"};
  static const char *const log_levels[] = {"error", "warning", "info", "debug"};
  memset(config->backend, 0, sizeof config->backend);
  memset(config->log_level, 0, sizeof config->log_level);
  strcpy(config->backend, backends[random_int(0, 2)]);
  strcpy(config->log_level, log_levels[random_int(0, 3)]);
}

static void test_round_trip_is_bit_for_bit(void **state)
{
  (void)state;
  seed = 20261121;
  printf("seed %llu\n", (unsigned long long)seed);
  for (int i = 0; i < 300; i++) {
    mill_config config, again;
    random_config(&config);
    mill_config_default(&again);
    char *text = printed(&config);
    if (read_text(&again, text) != MILL_OK)
      fail_msg("trial %d: %s\n%s", i, mill_error_message(), text);
    assert_same(&again, &config);
    char *text_again = printed(&again);
    assert_string_equal(text_again, text);
    free(text_again);
    free(text);
    mill_config_clear(&config);
    mill_config_clear(&again);
  }
}

static void test_numbers_are_printed_short(void **state)
{
  (void)state;
  mill_config config;
  mill_config_default(&config);
  config.fit.sigma_floor = 0.1 + 0.2;
  config.write_interval_s = 0.1;
  char *text = printed(&config);
  assert_non_null(strstr(text, "\nsigma_floor: 0.30000000000000004\n"));
  assert_non_null(strstr(text, "\nwrite_interval: 0.1\n"));
  assert_non_null(strstr(text, "\nmin_vel: -1000\n"));
  assert_non_null(strstr(text, "\nminsn: none\n"));
  free(text);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_defaults),
      cmocka_unit_test(test_empty_files_give_defaults),
      cmocka_unit_test(test_example_spells_out_the_defaults),
      cmocka_unit_test(test_examples_of_other_surveys_are_read),
      cmocka_unit_test(test_example_has_every_key),
      cmocka_unit_test(test_documentation_is_that_of_the_table),
      cmocka_unit_test(test_every_key_is_read),
      cmocka_unit_test(test_check_finds_values_set_elsewhere),
      cmocka_unit_test(test_print_to_a_full_disk_fails),
      cmocka_unit_test(test_round_trip_is_bit_for_bit),
      cmocka_unit_test(test_numbers_are_printed_short),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
