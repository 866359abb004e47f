/* SPDX-License-Identifier: BSD-3-Clause */
/* Defaults, reading, checking and printing of configurations. */
#include "tests/src/config/config_fixture.h"

#include <float.h>

#include "src/config/config_internal.h"
#include "kernels/base/memory.h"

MILL_TEST(empty_files_give_defaults)
{
  static const char *const texts[] = {"", "\n\n", "# only a remark\n", "---\n", "{}\n"};
  mill_config config, expected;
  mill_config_default(&expected);
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    mill_config_default(&config);
    must_read(&config, texts[i]);
    assert_same(&config, &expected);
  }
}

MILL_TEST(example_spells_out_the_defaults)
{
  mill_config config, expected;
  mill_config_default(&expected);
  mill_config_default(&config);
  config.fit.n_cont = 3; /* so that it shows whether the file is read */
  assert_ok(mill_config_read(&config, MILL_SOURCE_DIR "/config/desi.yaml"));
  assert_same(&config, &expected);
}

MILL_TEST(examples_of_other_surveys_are_read)
{
  static const struct {
    const char *format;
    double resolving_power;
    int join;
  } survey[] = {{"sdss", 0, 0}, {"lamost", 1800, 0}, {"weave", 5000, 1}, {"4most", 0, 1}};
  for (size_t i = 0; i < sizeof survey / sizeof survey[0]; i++) {
    char example[512];
    mill_config config;
    snprintf(example, sizeof example, MILL_SOURCE_DIR "/config/%s.yaml", survey[i].format);
    mill_config_default(&config);
    assert_ok(mill_config_read(&config, example));
    assert_string_equal(config.format, survey[i].format);
    assert_close(config.resolving_power, survey[i].resolving_power, 0);
    assert_int_equal(config.join_by_name, survey[i].join);
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

MILL_TEST(example_has_every_key)
{
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
MILL_TEST(documentation_is_that_of_the_table)
{
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
  assert_int_equal(n_key, MILL_N_KEY);
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

/* A line that is printed, whole. */
static int has_line(const char *text, const char *line)
{
  const size_t n = strlen(line);
  for (const char *at = text; (at = strstr(at, line)); at++)
    if ((at == text || at[-1] == '\n') && at[n] == '\n')
      return 1;
  return 0;
}

static const char *const given[][2] = {
    {"template_lib: ['a b: #c.h5', d,e]", "template_lib: [\"a b: #c.h5\", \"d\", \"e\"]"},
    {"arms: [{name: b, fwhm: 2.7, sampling: 2}, {name: z, min: 7e3, max: 9000, channel: RED, "
     "resolving_power: 1800}]",
     "arms: [{name: \"b\", fwhm: 2.7, sampling: 2}, {name: \"z\", min: 7000, max: 9000, channel: "
     "\"RED\", "
     "resolving_power: 1800}]"},
    {"min_vel: -1.5e2", "min_vel: -150"},
    {"max_vel: +300", "max_vel: 300"},
    {"min_vsini: .5", "min_vsini: 0.5"},
    {"max_vsini: 80.", "max_vsini: 80"},
    {"npoly: 7", "npoly: 7"},
    {"npoly_per_1000aa: 2", "npoly_per_1000aa: 2"},
    {"rbf_continuum: no", "rbf_continuum: false"},
    {"likelihood: profile", "likelihood: profile"},
    {"precision: float64", "precision: float64"},
    {"rotation_kernel: linear", "rotation_kernel: linear"},
    {"model_error: off", "model_error: false"},
    {"fix_param: [{value: 3, param: vsini}]", "fix_param:\n  - {param: \"vsini\", value: 3}"},
    {"priors:\n  - param: teff\n    mean: 5000\n    sigma: 100",
     "priors:\n  - {param: \"teff\", mean: 5000, sigma: 100}"},
    {"rescale_errors: Yes", "rescale_errors: true"},
    {"velocity_offsets: TRUE", "velocity_offsets: true"},
    {"velocity_offset_sigma: 5", "velocity_offset_sigma: 5"},
    {"format: sdss", "format: sdss"},
    {"exposures: joint", "exposures: joint"},
    {"join_by_name: yes", "join_by_name: true"},
    {"join_by_name: on\njoin_radius: 1.5", "join_radius: 1.5"},
    {"epochs: night", "epochs: night"},
    {"epochs: exposure\nepoch_floor: 2", "epoch_floor: 2"},
    {"binaries: true", "binaries: true"},
    {"lsf: off", "lsf: off"},
    {"resolving_power: 2e3", "resolving_power: 2000"},
    {"lsf_width_error: 5e-2", "lsf_width_error: 0.05"},
    {"medium: air", "medium: air"},
    {"optimizer: levenberg-marquardt", "optimizer: levenberg-marquardt"},
    {"start: truth.fits", "start: \"truth.fits\""},
    {"prior_table: gaia.fits", "prior_table: \"gaia.fits\""},
    {"guess_vel_step: 20", "guess_vel_step: 20"},
    {"second_start_sn: 0", "second_start_sn: 0"},
    {"max_starts: 3", "max_starts: 3"},
    {"n_simplex_round: 12", "n_simplex_round: 12"},
    {"max_eval: 99", "max_eval: 99"},
    {"edge_pix: 0", "edge_pix: 0"},
    {"sigma_floor: 0", "sigma_floor: 0"},
    {"bad_sigma_factor: 10", "bad_sigma_factor: 10"},
    {"wave_mask:\n  - [1, 2]\n  - [2, 3.5]", "wave_mask: [[1, 2], [2, 3.5]]"},
    {"mask_ignore: 0x80000001", "mask_ignore: 0x80000001"},
    {"minsn: -2.5", "minsn: -2.5"},
    {"minsn_from: scores", "minsn_from: scores"},
    {"objtypes: TGT", "objtypes: [\"TGT\"]"},
    {"target_classes: [MWS_ANY, 'STD_*']", "target_classes: [\"MWS_ANY\", \"STD_*\"]"},
    {"select_by: all", "select_by: all"},
    {"minexpid: 5", "minexpid: 5"},
    {"maxexpid: 7", "maxexpid: 7"},
    {"targetid: [7, -3, 39627000000000001, 7]", "targetid: [-3, 7, 39627000000000001]"},
    {"fiberstatus_allowed_bits: [0, 63]", "fiberstatus_allowed_bits: [0, 63]"},
    {"redrock: on", "redrock: true"},
    {"redrock_file: r.fits", "redrock_file: \"r.fits\""},
    {"redrock_max_vel: 600", "redrock_max_vel: 600"},
    {"threads: 2", "threads: 2"},
    {"readers: 3", "readers: 3"},
    {"slots: 7", "slots: 7"},
    {"write_interval: 0.5", "write_interval: 0.5"},
    {"gzip_limit_mib: 10", "gzip_limit_mib: 10"},
    {"scratch: /s", "scratch: \"/s\""},
    {"backend: cpu", "backend: cpu"},
    {"log_level: debug", "log_level: debug"},
};

/* A value of every key as a user may write it, and as it is printed; all but those of operation
 * change the identity of a run. */
MILL_TEST(every_key_is_read)
{
  static const char operation[] = " template_lib: threads: readers: slots: write_interval: "
                                  "gzip_limit_mib: scratch: backend: log_level: ";
  mill_config usual;
  mill_config_default(&usual);
  char *before = printed(&usual), *of_usual = NULL;
  assert_ok(mill_config_identity(&usual, &of_usual));
  assert_int_equal(sizeof given / sizeof *given, MILL_N_KEY);
  for (size_t i = 0; i < MILL_N_KEY; i++) {
    mill_config config;
    char key[64], *identity = NULL;
    mill_config_default(&config);
    must_read(&config, given[i][0]);
    char *text = printed(&config);
    if (!has_line(text, given[i][1]) || has_line(before, given[i][1]))
      fail_msg("'%s' is not printed as '%s'", given[i][0], given[i][1]);
    if (config.start[0]) /* counts by the hash of its contents, which its reader sets */
      strcpy(config.start_hash, "0123");
    if (config.prior_table[0])
      strcpy(config.prior_hash, "0123");
    assert_ok(mill_config_identity(&config, &identity));
    snprintf(key, sizeof key, " %.*s: ", (int)strcspn(given[i][1], ":"), given[i][1]);
    if ((strcmp(identity, of_usual) == 0) != (strstr(operation, key) != NULL))
      fail_msg("'%s' and the identity", given[i][0]);
    free(identity);
    free(text);
    mill_config_clear(&config);
  }
  free(of_usual);
  free(before);
}

MILL_TEST(a_second_file_goes_over_the_first)
{
  mill_config config, expected;
  mill_config_default(&config);
  mill_config_default(&expected);
  must_read(&config, "targetid: [7]\nminsn: 5\nnpoly: 7\nwave_mask: []\nlsf: matrix\n"
                     "exposures: joint\nbackend: cpu\n");
  must_read(&config, "targetid: []\nminsn: none\nnpoly: 8\nwave_mask: auto\nlsf: auto\n"
                     "exposures: coadd\n");
  must_read(&expected, "npoly: 8\nbackend: cpu\n");
  assert_same(&config, &expected);
  mill_config_clear(&config);
  mill_config_clear(NULL);
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

/* Texts that YAML would read otherwise, and the ends of the numbers: bit for bit as they were. */
MILL_TEST(what_is_printed_is_read)
{
  static const char *const text[] = {"",
                                     "~",
                                     "null",
                                     "'",
                                     "a: b",
                                     "#",
                                     "- a",
                                     "{a}",
                                     "%",
                                     " a ",
                                     "\"\\\"",
                                     "\xc3\xa9",
                                     "\xc2\x85",
                                     "\xe2\x80\xa8",
                                     "\xef\xbb\xbf",
                                     "\xf0\x9f\x8c\x9f"};
  static const double number[] = {-INFINITY, -DBL_MAX, -0.0, 5e-324, 0.1 + 0.2, 0.1, 1e22, DBL_MAX};
  for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
    static const int64_t id[] = {INT64_MIN, -1, INT64_MAX};
    mill_config config, again;
    const double x = number[i % 8];
    mill_config_default(&config);
    mill_config_default(&again);
    config.n_template_lib = text[i][0] != '\0';
    snprintf(config.template_lib[0], sizeof config.template_lib[0], "%s", text[i]);
    snprintf(config.scratch, sizeof config.scratch, "%s", text[i]);
    if (text[i][0]) {
      config.n_fixed = config.select.n_objtype = config.n_arm = 1;
      snprintf(config.fixed[0].name, MILL_MAX_NAME, "%s", text[i]);
      config.fixed[0].value = isfinite(x) ? x : 0;
      snprintf(config.select.objtype[0], sizeof config.select.objtype[0], "%s", text[i]);
      config.arm[0].max_aa = INFINITY;
      snprintf(config.arm[0].arm, sizeof config.arm[0].arm, "%s", text[i]);
      snprintf(config.arm[0].channel, sizeof config.arm[0].channel, "%s", text[i]);
    }
    config.select.min_sn = x;
    config.fit.second_start_sn = x > 0 && x < 1 ? x : 6;
    config.fit.min_vsini_km_s = x > -1 && x < 1 ? x : 0;
    config.fit.mask_ignore = UINT32_MAX;
    config.select.fiberstatus_allowed = UINT64_MAX;
    config.select.n_target_id = 3;
    assert_ok(MILL_ALLOC(3, &config.select.target_id));
    memcpy(config.select.target_id, id, sizeof id);
    char *printed_once = printed(&config);
    must_read(&again, printed_once);
    assert_same(&again, &config);
    free(printed_once);
    mill_config_clear(&config);
    mill_config_clear(&again);
  }
}

MILL_TEST(numbers_are_printed_short)
{
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

MILL_TEST_MAIN(begin, remove_folder)
