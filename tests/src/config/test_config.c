/* Reading, checking, printing and binding of configurations: src/config/. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "src/config/config.h"
#include "tests/mill_test.h"

static char folder[] = "/tmp/mill-test-config-XXXXXX";
static char path[128];

static int make_folder(void **state)
{
  (void)state;
  if (!mkdtemp(folder))
    return -1;
  snprintf(path, sizeof path, "%s/run.yaml", folder);
  return 0;
}

static int remove_folder(void **state)
{
  (void)state;
  unlink(path);
  return rmdir(folder);
}

static void write_bytes(const char *text, size_t n)
{
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, n, file), n);
  assert_int_equal(fclose(file), 0);
}

static int read_text(mill_config *config, const char *text)
{
  write_bytes(text, strlen(text));
  return mill_config_read(config, path);
}

static void must_read(mill_config *config, const char *text)
{
  if (read_text(config, text) != MILL_OK)
    fail_msg("'%s': %s", text, mill_error_message());
}

/* Text of mill_config_print; free(). */
static char *printed(const mill_config *config)
{
  char *text = NULL;
  size_t n = 0;
  FILE *out = open_memstream(&text, &n);
  assert_non_null(out);
  assert_int_equal(mill_config_print(config, out), MILL_OK);
  assert_int_equal(fclose(out), 0);
  return text;
}

static void assert_same(const mill_config *a, const mill_config *b)
{
  mill_config x, y;
  memcpy(&x, a, sizeof x);
  memcpy(&y, b, sizeof y);
  assert_int_equal(x.select.n_target_id, y.select.n_target_id);
  if (x.select.n_target_id > 0)
    assert_memory_equal(x.select.target_id, y.select.target_id,
                        x.select.n_target_id * sizeof *x.select.target_id);
  x.select.target_id = y.select.target_id = NULL;
  assert_memory_equal(&x, &y, sizeof x); /* bit for bit, -0 and infinities too */
}

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
  } survey[] = {{"sdss", 0, 0}, {"lamost", 1800, 0}, {"weave", 5000, 1}};
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
  assert_int_equal(n_key, 45);
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
            "arms: [b, {name: z, min: 7e3, max: 9000, channel: RED, "
            "resolving_power: 1800}]\n"
            "format: sdss\njoin_by_name: yes\nexposures: joint\nlsf: matrix\nresolving_power: 2e3\n"
            "start: truth.fits\nmedium: air\nmin_vel: -1.5e2\nmax_vel: +300\n"
            "min_vsini: .5\nmax_vsini: 80.\nnpoly: 7\nrbf_continuum: no\n"
            "likelihood: profile\nprecision: float64\n"
            "rotation_kernel: linear\n"
            "optimizer: levenberg-marquardt\nguess_vel_step: 20\nsecond_start_sn: 0\n"
            "n_simplex_round: 12\nmax_eval: 99\nedge_pix: 0\nsigma_floor: 0\n"
            "bad_sigma_factor: 10\nwave_mask:\n  - [1, 2]\n  - [2, 3.5]\n"
            "mask_ignore: 0x80000001\nfix_param: [{value: 3, param: vsini}]\n"
            "priors:\n  - param: teff\n    mean: 5000\n    sigma: 100\n"
            "minsn: -2.5\nobjtypes: TGT\ntargetid: [7, -3, 39627000000000001, 7]\n"
            "fiberstatus_allowed_bits: [0, 63]\nredrock: on\nredrock_file: r.fits\n"
            "redrock_max_vel: 600\nthreads: 2\nreaders: 3\nslots: 7\n"
            "write_interval: 0.5\ngzip_limit_mib: 10\nscratch: /s\nbackend: cpu\n"
            "log_level: debug\n");
  assert_string_equal(config.template_lib, "a b: #c.h5");
  assert_string_equal(config.start, "truth.fits");
  assert_int_equal(config.n_arm, 2);
  assert_string_equal(config.arm[0].arm, "b");
  assert_close(config.arm[0].min_aa, 0.0, 0.0);
  assert_true(isinf(config.arm[0].max_aa));
  assert_string_equal(config.arm[0].channel, "");
  assert_string_equal(config.arm[1].arm, "z");
  assert_close(config.arm[1].min_aa, 7000.0, 0.0);
  assert_close(config.arm[1].max_aa, 9000.0, 0.0);
  assert_string_equal(config.arm[1].channel, "RED");
  assert_close(config.arm[1].resolving_power, 1800.0, 0.0);
  assert_string_equal(config.format, "sdss");
  assert_int_equal(config.exposures, MILL_EXPOSURES_JOINT);
  assert_int_equal(config.join_by_name, 1);
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

/* text; line of the message, 0 for none; what the message must have */
static const struct {
  const char *text;
  int line;
  const char *key, *words;
} refusals[] = {
    {"npoly: 5\nmin_vell: 3\nmax_vel: 9\n", 2, "min_vell", "did you mean min_vel?"},
    {"npoly: 5\n\nwhatever_it_is: 3", 3, "whatever_it_is", "unknown key"},
    {"vel_step0: 5", 1, "vel_step0", "guess_vel_step"},
    {"second_minimizer: 1", 1, "second_minimizer", "optimizer"},
    {"zbest_select: 1", 1, "zbest_select", "redrock"},
    {"npoly: 5\n# x\nnpoly: 5\n", 3, "npoly", "already set on line 1"},
    {"npoly: ten", 1, "npoly", "'ten' found"},
    {"npoly: 10.0", 1, "npoly", "a whole number expected"},
    {"npoly: '10'", 1, "npoly", "quoted text"},
    {"npoly: 010", 1, "npoly", "a whole number expected"},
    {"npoly: [10]", 1, "npoly", "a list found"},
    {"\nnpoly: {a: 1}", 2, "npoly", "a mapping found"},
    {"npoly:\nmax_vel: 5\n", 1, "npoly", "nothing found"},
    {"npoly: 0", 1, "npoly", "from 1 to 24"},
    {"npoly: 25", 1, "npoly", "from 1 to 24"},
    {"npoly: 99999999999999999999", 1, "npoly", "too large"},
    {"npoly: 5000000000", 1, "npoly", "out of range"},
    {"min_vel: 0x10", 1, "min_vel", "a number expected"},
    {"min_vel: 1,5", 1, "min_vel", "a number expected"},
    {"min_vel: .nan", 1, "min_vel", "not finite"},
    {"min_vel: nan", 1, "min_vel", "not finite"},
    {"min_vel: -.inf", 1, "min_vel", "not finite"},
    {"min_vel: 1e999", 1, "min_vel", "too large"},
    {"npoly: 3\nmin_vel: -300000", 2, "min_vel", "out of range"},
    {"max_vel: 299793", 1, "max_vel", "out of range"},
    {"npoly: 3\nmin_vel: 1000", 2, "min_vel", "not below max_vel"},
    {"npoly: 3\nmax_vel: -2000", 2, "min_vel", "not below max_vel"},
    {"min_vsini: -1", 1, "min_vsini", "out of range"},
    {"max_vsini: 1001", 1, "max_vsini", "out of range"},
    {"min_vsini: 500", 1, "min_vsini", "not below max_vsini"},
    {"max_vsini: 0", 1, "min_vsini", "fix vsini by fix_param"},
    {"rbf_continuum: 1", 1, "rbf_continuum", "true or false expected"},
    {"likelihood: best", 1, "likelihood", "marginal or profile expected"},
    {"precision: float16", 1, "precision", "float32 or float64"},
    {"rotation_kernel: exact", 1, "rotation_kernel", "spline or linear"},
    {"optimizer: Hybrid", 1, "optimizer", "hybrid, nelder-mead or levenberg-marquardt"},
    {"optimizer: [hybrid]", 1, "optimizer", "a list found"},
    {"guess_vel_step: 0", 1, "guess_vel_step", "out of range"},
    {"max_vel: 50\nmin_vel: 0\nguess_vel_step: 51", 3, "guess_vel_step", "smaller step"},
    {"second_start_sn: -1", 1, "second_start_sn", "out of range"},
    {"n_simplex_round: -1", 1, "n_simplex_round", "out of range"},
    {"max_eval: 0", 1, "max_eval", "out of range"},
    {"edge_pix: -1", 1, "edge_pix", "out of range"},
    {"sigma_floor: -0.1", 1, "sigma_floor", "out of range"},
    {"bad_sigma_factor: 0", 1, "bad_sigma_factor", "out of range"},
    {"wave_mask: 4300", 1, "wave_mask", "a list of ranges"},
    {"wave_mask: [4300, 4450]", 1, "wave_mask", "item 1 is no [min, max]"},
    {"wave_mask:\n - [1, 2]\n - [3]\n", 3, "wave_mask", "item 2 is no [min, max]"},
    {"wave_mask:\n - [1, 2]\n - [4, x]\n", 3, "wave_mask", "a number expected"},
    {"wave_mask:\n - [1, 2]\n - [4, 3]\n", 3, "wave_mask", "item 2: [4, 3] is no range"},
    {"wave_mask:\n - [1, 2]\n - [3, 3]\n", 3, "wave_mask", "is no range"},
    {"wave_mask:\n - [5, 6]\n - [1, 2]\n", 3, "wave_mask", "ascending"},
    {"wave_mask:\n - [1, 3]\n\n - [2, 4]\n", 4, "wave_mask", "join"},
    {"wave_mask: [[-1, 3]]", 1, "wave_mask", "0 <= min < max"},
    {"wave_mask: [[1, .inf]]", 1, "wave_mask", "not finite"},
    {"mask_ignore: -1", 1, "mask_ignore", "out of range"},
    {"mask_ignore: 0x100000000", 1, "mask_ignore", "out of range"},
    {"mask_ignore: 0xg", 1, "mask_ignore", "a whole number expected"},
    {"fix_param: vsini", 1, "fix_param", "a list of items"},
    {"fix_param: [vsini]", 1, "fix_param", "{param: NAME, value: NUMBER} expected"},
    {"fix_param:\n - {param: vsini}\n", 2, "fix_param", "lacks value"},
    {"fix_param:\n - {value: 2}\n", 2, "fix_param", "lacks param"},
    {"fix_param:\n - {param: vsini, valeu: 0}\n", 2, "fix_param", "'valeu' is unknown"},
    {"fix_param:\n - {param: a, value: 0, param: b}\n", 2, "fix_param", "param is there twice"},
    {"fix_param:\n - param: vsini\n   value: x\n", 3, "fix_param", "a number expected"},
    {"fix_param:\n - {param: vsini, value: .nan}\n", 2, "fix_param", "not finite"},
    {"fix_param:\n - {param: '', value: 0}\n", 2, "fix_param", "no parameter name"},
    {"fix_param:\n - {param: a2345678901234567890123456789012, value: 0}\n", 2, "fix_param",
     "longer than 31 bytes"},
    {"fix_param:\n - {param: a, value: 0}\n - {param: a, value: 0}\n", 3, "fix_param",
     "a is there twice"},
    {"priors:\n - {param: a, mean: 0}\n", 2, "priors", "lacks sigma"},
    {"priors:\n - {param: a, mean: 0, sigma: 0}\n", 2, "priors", "sigma of a must be positive"},
    {"priors:\n - {param: a, mean: 0, sigma: -1}\n", 2, "priors", "sigma of a must be positive"},
    {"priors:\n - {param: a, mean: .inf, sigma: 1}\n", 2, "priors", "not finite"},
    {"priors:\n - {param: a, mean: 0, sigma: 1}\n - {param: a, mean: 1, sigma: 1}\n", 3, "priors",
     "a is there twice"},
    {"fix_param: [{param: a, value: 0}]\npriors:\n - {param: a, mean: 0, sigma: 1}\n", 3, "priors",
     "a has a prior and a fixed value"},
    {"minsn: few", 1, "minsn", "a number expected"},
    {"minsn: .nan", 1, "minsn", "not finite"},
    {"minsn: -.inf", 1, "minsn", "not finite"},
    {"objtypes: [TGT, [SKY]]", 1, "objtypes", "a text expected"},
    {"objtypes: [a, b, c, d, e, f, g, h, i]", 1, "objtypes", "at most 8"},
    {"objtypes: [a234567890123456]", 1, "objtypes", "longer than 15 bytes"},
    {"objtypes:\n - TGT\n - TGT\n", 3, "objtypes", "TGT is there twice"},
    {"objtypes:", 1, "objtypes", "nothing found"},
    {"targetid:\n - 1\n - 1.5\n", 3, "targetid", "a whole number expected"},
    {"targetid: 9223372036854775808", 1, "targetid", "too large"},
    {"targetid: {a: 1}", 1, "targetid", "a list of whole numbers"},
    {"fiberstatus_allowed_bits: [64]", 1, "fiberstatus_allowed_bits", "from 0 to 63"},
    {"fiberstatus_allowed_bits: [-1]", 1, "fiberstatus_allowed_bits", "from 0 to 63"},
    {"redrock: maybe", 1, "redrock", "false or true expected"},
    {"redrock_file: \"a\\0b\"", 1, "redrock_file", "control characters"},
    {"redrock_file: \"a\\nb\"", 1, "redrock_file", "control characters"},
    {"redrock_max_vel: -1", 1, "redrock_max_vel", "out of range"},
    {"exposures: all", 1, "exposures", "coadd, single or joint expected"},
    {"format: fits", 1, "format", "lamost"},
    {"lsf: none", 1, "lsf", "resolving_power or off expected"},
    {"resolving_power: -1", 1, "resolving_power", "out of range"},
    {"medium: water", 1, "medium", "auto, vacuum or air expected"},
    {"arms:\n - b\n - {min: 3}", 3, "arms", "lacks its name"},
    {"arms: [{name: b, mni: 3}]", 1, "arms", "'mni' is unknown in an arm"},
    {"arms: [{name: b, min: 3, min: 4}]", 1, "arms", "twice in one arm"},
    {"arms: [{name: b, min: 3, max: 3}]", 1, "arms", "no range"},
    {"arms: [{name: b, min: -1}]", 1, "arms", "no range"},
    {"arms: [{name: b, max: .inf}]", 1, "arms", "not finite"},
    {"arms: [b, {name: b, max: 9}]", 1, "arms", "b is there twice"},
    {"arms: [{name: b, resolving_power: 1e9}]", 1, "arms", "resolving_power of b"},
    {"arms: {name: b}", 1, "arms", "a list of names"},
    {"wave_mask: none", 1, "wave_mask", "a list of ranges"},
    {"arms:\n - b\n - r\n - b\n", 4, "arms", "b is there twice"},
    {"arms: [1, 2, 3, 4, 5, 6, 7, 8, 9]", 1, "arms", "at most 8"},
    {"threads: -1", 1, "threads", "out of range"},
    {"slots: -1", 1, "slots", "out of range"},
    {"readers: 17", 1, "readers", "out of range"},
    {"write_interval: 0", 1, "write_interval", "out of range"},
    {"gzip_limit_mib: -1", 1, "gzip_limit_mib", "out of range"},
    {"backend: gpu", 1, "backend", "auto, cpu or cuda expected"},
    {"log_level: loud", 1, "log_level", "error, warning, info or debug expected"},
    {"template_lib: ~", 1, "template_lib", "nothing found"},
    {"? [a]\n: 5", 1, "a key expected", "a list found"},
    {"- npoly\n", 1, "'key: value'", "a list found"},
    {"npoly", 1, "'key: value'", "'npoly' found"},
    {"npoly: 5\nmin_vel: [1\nmax_vel: 2\n", 0, "not YAML", "correct the line"},
    {"npoly: 5\n\tmin_vel: 3\n", 2, "not YAML", "correct the line"},
    {"npoly: 5\nmin_vel: \"x\n", 0, "not YAML", "correct the line"},
    {"npoly: *a\n", 1, "not YAML", "undefined alias"},
    {"npoly: 5\n---\nnpoly: 6\n", 2, "second YAML document", "keep one"},
    {"npoly: !!int 5\n", 1, "tag", "remove it"},
    {"npoly: 5\nmin_vel: \xff\n", 2, "UTF-8", "configuration file"},
    {"npoly: 5\n\nmin_vel: \x01\n", 3, "UTF-8", "control characters"},
};

static void test_refusals_name_file_line_and_key(void **state)
{
  (void)state;
  mill_config config, before;
  mill_config_default(&before);
  must_read(&before, "targetid: [5, 6]\n");
  for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
    char start[200];
    memcpy(&config, &before, sizeof config);
    if (read_text(&config, refusals[i].text) != MILL_ERR_CONFIG)
      fail_msg("'%s' was not refused", refusals[i].text);
    const char *message = mill_error_message();
    snprintf(start, sizeof start, refusals[i].line ? "%s:%d: %s" : "%s:", path, refusals[i].line,
             strchr(refusals[i].key, '_') || strcmp(refusals[i].key, "npoly") == 0 ? refusals[i].key
                                                                                   : "");
    if (strncmp(message, start, strlen(start)) != 0 || !strstr(message, refusals[i].key) ||
        !strstr(message, refusals[i].words) || strchr(message, '\n'))
      fail_msg("'%s': message '%s', expected %s ... %s ... %s", refusals[i].text, message, start,
               refusals[i].key, refusals[i].words);
    assert_memory_equal(&config, &before, sizeof config); /* untouched */
  }
  mill_config_clear(&before);
}

/* The time of libyaml grows with their square: 200 kB of brackets took a minute. */
static void test_what_would_take_long_is_refused_at_once(void **state)
{
  (void)state;
  enum { N = 200000, LARGE = (16 << 20) + 1 };
  static char text[LARGE + 1];
  mill_config config;
  mill_config_default(&config);
  static const char *const open[] = {"[", "{a: ", "[[", "- "};
  for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
    size_t n = (size_t)sprintf(text, "npoly: 5\n%s", i == 3 ? "" : "arms: ");
    while (n < N)
      n += (size_t)sprintf(text + n, "%s", open[i]);
    assert_int_equal(read_text(&config, text), MILL_ERR_CONFIG);
    if (i < 3) { /* the last one is no YAML after the first line */
      assert_non_null(strstr(mill_error_message(), ":2: "));
      assert_non_null(strstr(mill_error_message(), "no key needs more than 16"));
    }
  }
  size_t n = (size_t)sprintf(text, "objtypes: [");
  for (int i = 0; n < N; i++)
    n += (size_t)sprintf(text + n, "%s&a%d X", i ? ",\n" : "", i);
  strcpy(text + n, "]\n");
  assert_int_equal(read_text(&config, text), MILL_ERR_CONFIG);
  assert_non_null(strstr(mill_error_message(), ":65: more than 64 anchors"));
  memset(text, '#', LARGE);
  write_bytes(text, LARGE);
  assert_int_equal(mill_config_read(&config, path), MILL_ERR_CONFIG);
  assert_non_null(strstr(mill_error_message(), "more than 16 MiB"));
  /* what a configuration needs */
  must_read(&config, "&a npoly: &b 5\narms: [{name: r, min: 5000}]\nwave_mask: [[4000, 4100]]\n");
}

static void test_binary_file_is_refused(void **state)
{
  (void)state;
  mill_config config;
  mill_config_default(&config);
  write_bytes("\x1f\x8b\x08\x00\x00\x00\x00\x00", 8);
  assert_int_equal(mill_config_read(&config, path), MILL_ERR_CONFIG);
  write_bytes("npoly: 5\0\0", 10);
  assert_int_equal(mill_config_read(&config, path), MILL_ERR_CONFIG);
  assert_non_null(strstr(mill_error_message(), ":1: "));
  write_bytes("\xff\xfen\0p\0o\0l\0y\0", 12); /* UTF-16 */
  assert_int_equal(mill_config_read(&config, path), MILL_ERR_CONFIG);
  write_bytes("\xef\xbb\xbfnpoly: 5\n", 12); /* a mark of UTF-8 is allowed */
  assert_int_equal(mill_config_read(&config, path), MILL_OK);
  assert_int_equal(config.fit.n_cont, 5);
}

static void test_files_that_cannot_be_read(void **state)
{
  (void)state;
  mill_config config;
  char missing[160];
  mill_config_default(&config);
  snprintf(missing, sizeof missing, "%s/none.yaml", folder);
  assert_int_equal(mill_config_read(&config, missing), MILL_ERR_CONFIG);
  assert_non_null(strstr(mill_error_message(), missing));
  assert_non_null(strstr(mill_error_message(), "No such file"));
  assert_int_equal(mill_config_read(&config, folder), MILL_ERR_CONFIG);
  assert_non_null(strstr(mill_error_message(), "a folder"));
  write_bytes("npoly: 5\n", 9);
  assert_int_equal(chmod(path, 0), 0);
  if (access(path, R_OK) != 0) { /* root may read it all the same */
    assert_int_equal(mill_config_read(&config, path), MILL_ERR_CONFIG);
    assert_non_null(strstr(mill_error_message(), "Permission denied"));
  }
  assert_int_equal(chmod(path, 0600), 0);
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
  assert_non_null(strstr(mill_error_message(), "auto, cpu or cuda"));
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
  fit->continuum = random_int(0, 1);
  fit->likelihood = random_int(0, 1);
  fit->precision = random_int(0, 1);
  fit->rotation = random_int(0, 1);
  fit->optimizer = random_int(0, 2);
  fit->guess_vel_step_km_s = random_real(1, 1000);
  fit->second_start_sn = fabs(random_finite());
  if (fit->second_start_sn > 1e6)
    fit->second_start_sn = 5e-324; /* the smallest there is */
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

static char *identity(const mill_config *config)
{
  char *text = NULL;
  assert_int_equal(mill_config_identity(config, &text), MILL_OK);
  assert_non_null(text);
  return text;
}

static char *identity_of(const char *yaml)
{
  mill_config config;
  mill_config_default(&config);
  must_read(&config, yaml);
  char *text = identity(&config);
  mill_config_clear(&config);
  return text;
}

static void test_identity_ignores_operation_and_order(void **state)
{
  (void)state;
  static const char *const same[][2] = {
      {"", "threads: 3\nreaders: 2\nslots: 5\nwrite_interval: 9\ngzip_limit_mib: 3\nscratch: /x\n"
           "backend: cpu\nlog_level: debug\ntemplate_lib: a.h5\n"},
      {"arms: [b, r]\n", "arms: [r, b]\n"},
      {"arms: [{name: b}]\n", "arms: b\n"},
      {"wave_mask: auto\n", "wave_mask: [[4300, 4450]]\n"},
      {"exposures: coadd\nlsf: auto\nresolving_power: 0\nmedium: auto\nformat: auto\n", ""},
      {"objtypes: [A, B]\n", "objtypes: [B, A]\n"},
      {"targetid: [1, 2, 2]\n", "targetid: [2, 1]\n"},
      {"fiberstatus_allowed_bits: [1, 2]\n", "fiberstatus_allowed_bits: [2, 1]\n"},
      {"fix_param: [{param: a, value: 1}, {param: b, value: 2}]\n",
       "fix_param: [{param: b, value: 2.0}, {value: 1, param: a}]\n"},
      {"priors: [{param: a, mean: 1, sigma: 1}, {param: b, mean: 2, sigma: 1}]\n",
       "priors: [{param: b, mean: 2, sigma: 1}, {param: a, mean: 1, sigma: 1}]\n"},
  };
  for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
    char *a = identity_of(same[i][0]), *b = identity_of(same[i][1]);
    assert_string_equal(a, b);
    free(a);
    free(b);
  }
}

static void test_identity_holds_science_and_selection(void **state)
{
  (void)state;
  static const char *const other[] = {
      "arms: [b]",
      "min_vel: -999",
      "max_vel: 999",
      "min_vsini: 1",
      "max_vsini: 499",
      "npoly: 9",
      "rbf_continuum: false",
      "likelihood: profile",
      "precision: float64",
      "rotation_kernel: linear",
      "optimizer: nelder-mead",
      "guess_vel_step: 59",
      "second_start_sn: 5",
      "n_simplex_round: 41",
      "max_eval: 4001",
      "edge_pix: 4",
      "sigma_floor: 0.30000000000000004",
      "bad_sigma_factor: 999",
      "wave_mask: []",
      "mask_ignore: 1",
      "fix_param: [{param: vsini, value: 0}]",
      "priors: [{param: teff, mean: 1, sigma: 1}]",
      "minsn: 0",
      "objtypes: [TGT]",
      "targetid: [1]",
      "fiberstatus_allowed_bits: [3]",
      "redrock: true",
      "redrock_file: x",
      "redrock_max_vel: 1501",
      "exposures: single",
      "format: desi",
      "join_by_name: true",
      "lsf: sigma",
      "medium: air",
      "resolving_power: 2000",
      "start: \"\"", /* test_identity_holds_the_hash_of_the_start */
  };
  static const char *const of_an_arm[] = {
      "arms: [{name: b, min: 4000}]",
      "arms: [{name: b, max: 4000}]",
      "arms: [{name: b, channel: blue}]",
      "arms: [{name: b, resolving_power: 2000}]",
  };
  char *base = identity_of("");
  for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
    char *text = identity_of(other[i]);
    if (strcmp(text, base) == 0 && strncmp(other[i], "start", 5) != 0)
      fail_msg("%s does not change the identity", other[i]);
    free(text);
  }
  for (size_t i = 0; i < sizeof of_an_arm / sizeof of_an_arm[0]; i++) {
    char *text = identity_of(of_an_arm[i]), *plain = identity_of("arms: [b]");
    if (strcmp(text, base) == 0 || strcmp(text, plain) == 0)
      fail_msg("%s does not change the identity", of_an_arm[i]);
    free(text);
    free(plain);
  }
  /* as many keys as there are changes above, in ascending order */
  char *rest = NULL, *before = NULL;
  size_t n_key = 0;
  for (char *line = strtok_r(base, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    line[strcspn(line, ":")] = '\0';
    if (before)
      assert_true(strcmp(before, line) < 0);
    before = line;
    n_key++;
  }
  assert_int_equal(n_key, sizeof other / sizeof other[0]);
  free(base);
}

/* A table to start from counts by what is in it, not by where it lies. */
static void test_identity_holds_the_hash_of_the_start(void **state)
{
  (void)state;
  static const char *const table[] = {"a.fits", "folder/b.h5", "a.fits"};
  static const char *const hash[] = {"0123abcd", "0123abcd", "0123abce"};
  char *text[3], *base = identity_of("");
  mill_config config;
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

static void test_identity_of_the_defaults(void **state)
{
  (void)state;
  char *text = identity_of("");
  assert_string_equal(
      text, "arms: []\nbad_sigma_factor: 1000\nedge_pix: 5\nexposures: coadd\n"
            "fiberstatus_allowed_bits: [3, 20]\nfix_param: []\nformat: auto\n"
            "guess_vel_step: 60\njoin_by_name: false\nlikelihood: marginal\nlsf: auto\n"
            "mask_ignore: 0\nmax_eval: 4000\nmax_vel: 1000\nmax_vsini: 500\nmedium: auto\n"
            "min_vel: -1000\nmin_vsini: 0\nminsn: none\nn_simplex_round: 40\n"
            "npoly: 10\nobjtypes: []\noptimizer: hybrid\nprecision: float32\n"
            "priors: []\nrbf_continuum: true\nredrock: false\n"
            "redrock_file: \"\"\nredrock_max_vel: 1500\nresolving_power: 0\n"
            "rotation_kernel: spline\nsecond_start_sn: 6\nsigma_floor: 0.3\nstart: \"\"\n"
            "targetid: []\nwave_mask: [[4300, 4450]]\n");
  free(text);
}

static void test_resolving_power_of_an_arm(void **state)
{
  (void)state;
  mill_config config;
  mill_config_default(&config);
  must_read(&config, "resolving_power: 1800\narms: [b, {name: r, resolving_power: 2500}]");
  assert_close(mill_config_resolving_power(&config, "b"), 1800, 0);
  assert_close(mill_config_resolving_power(&config, "r"), 2500, 0);
  assert_close(mill_config_resolving_power(&config, "z"), 1800, 0);
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

static void test_bind_resolves_names(void **state)
{
  (void)state;
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
  config.n_fixed = config.n_prior = 0; /* bound again, nothing of before stays */
  assert_int_equal(mill_config_bind(&config, &lib), MILL_OK);
  for (int j = 0; j < MILL_MAX_PAR; j++) {
    assert_int_equal(config.fit.fixed[j], 0);
    assert_close(config.fit.prior_sigma[j], 0.0, 0.0);
  }
}

static void test_bind_refuses_what_the_library_lacks(void **state)
{
  (void)state;
  static const struct {
    const char *text, *key, *words;
  } bad[] = {
      {"fix_param: [{param: tef, value: 5000}]", "fix_param: no parameter tef",
       "vrad, vsini, teff, logg, feh"},
      {"priors: [{param: alpha, mean: 0, sigma: 1}]", "priors: no parameter alpha",
       "vrad, vsini, teff, logg, feh"},
      {"arms: [b, z]", "arms: no arm z", "b, r"},
      {"arms: [{name: z, min: 7000}]", "arms: no arm z", "b, r"},
      {"lsf: matrix", "lsf: matrix", "arm r is at the instrument's own resolution"},
      {"lsf: sigma", "lsf: sigma", "arm r is at the instrument's own resolution"},
      {"arms: [b]\nlsf: resolving_power", "lsf: resolving_power", "set for arm b"},
      {"fix_param: [{param: teff, value: 7001}]", "fix_param: teff", "from 4000 to 7000"},
      {"fix_param: [{param: vrad, value: -1001}]", "fix_param: vrad", "from -1000 to 1000"},
      {"fix_param: [{param: vsini, value: 501}]", "fix_param: vsini", "from 0 to 500"},
      {"fix_param: [{param: vrad, value: 0}, {param: vsini, value: 0}, {param: teff, value: 5000}, "
       "{param: logg, value: 0}, {param: feh, value: 0}]",
       "fix_param: all 5", "at least one"},
      /* 100 templates, 2003 velocities, 1e6 bins of each arm */
      {"guess_vel_step: 1", "guess_vel_step: 1 would cost", "4e+11 products a star"},
      {"guess_vel_step: 2\nmin_vel: -200000", "guess_vel_step: 2", "larger step"},
  };
  mill_library lib;
  make_library(&lib);
  lib.arm[1].template_sigma_aa = -1.0;
  lib.n_guess = 50;
  lib.n_guess_vsini = 2;
  for (int a = 0; a < 2; a++) {
    lib.arm[a].n_pix = 100001;
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
      cmocka_unit_test(test_refusals_name_file_line_and_key),
      cmocka_unit_test(test_what_would_take_long_is_refused_at_once),
      cmocka_unit_test(test_binary_file_is_refused),
      cmocka_unit_test(test_files_that_cannot_be_read),
      cmocka_unit_test(test_check_finds_values_set_elsewhere),
      cmocka_unit_test(test_print_to_a_full_disk_fails),
      cmocka_unit_test(test_round_trip_is_bit_for_bit),
      cmocka_unit_test(test_numbers_are_printed_short),
      cmocka_unit_test(test_identity_ignores_operation_and_order),
      cmocka_unit_test(test_identity_holds_science_and_selection),
      cmocka_unit_test(test_identity_holds_the_hash_of_the_start),
      cmocka_unit_test(test_identity_of_the_defaults),
      cmocka_unit_test(test_resolving_power_of_an_arm),
      cmocka_unit_test(test_bind_resolves_names),
      cmocka_unit_test(test_bind_refuses_what_the_library_lacks),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
