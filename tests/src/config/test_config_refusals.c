/* SPDX-License-Identifier: BSD-3-Clause */
/* What is refused when a configuration is read: the message names file, line and key. */
#include "tests/src/config/config_fixture.h"

#include <sys/stat.h>

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
    {"npoly: ten", 1, "npoly", "got 'ten'"},
    {"npoly: 10.0", 1, "npoly", "expected a whole number"},
    {"npoly: '10'", 1, "npoly", "quoted text"},
    {"npoly: 010", 1, "npoly", "expected a whole number"},
    {"npoly: [10]", 1, "npoly", "got a list"},
    {"\nnpoly: {a: 1}", 2, "npoly", "got a mapping"},
    {"npoly:\nmax_vel: 5\n", 1, "npoly", "got nothing"},
    {"npoly: 0", 1, "npoly", "from 1 to 24"},
    {"npoly: 25", 1, "npoly", "from 1 to 24"},
    {"npoly: 99999999999999999999", 1, "npoly", "too large"},
    {"npoly: 5000000000", 1, "npoly", "out of range"},
    {"min_vel: 0x10", 1, "min_vel", "expected a number"},
    {"min_vel: 1,5", 1, "min_vel", "expected a number"},
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
    {"rbf_continuum: 1", 1, "rbf_continuum", "expected true or false"},
    {"likelihood: best", 1, "likelihood", "expected marginal or profile"},
    {"precision: float16", 1, "precision", "float32 or float64"},
    {"rotation_kernel: exact", 1, "rotation_kernel", "spline or linear"},
    {"optimizer: Hybrid", 1, "optimizer", "hybrid, nelder-mead or levenberg-marquardt"},
    {"optimizer: [hybrid]", 1, "optimizer", "got a list"},
    {"guess_vel_step: 0", 1, "guess_vel_step", "out of range"},
    {"max_vel: 50\nmin_vel: 0\nguess_vel_step: 51", 3, "guess_vel_step", "smaller step"},
    {"second_start_sn: -1", 1, "second_start_sn", "out of range"},
    {"max_starts: 0", 1, "max_starts", "out of range"},
    {"n_simplex_round: -1", 1, "n_simplex_round", "out of range"},
    {"max_eval: 0", 1, "max_eval", "out of range"},
    {"edge_pix: -1", 1, "edge_pix", "out of range"},
    {"sigma_floor: -0.1", 1, "sigma_floor", "out of range"},
    {"bad_sigma_factor: 0", 1, "bad_sigma_factor", "out of range"},
    {"wave_mask: 4300", 1, "wave_mask", "a list of ranges"},
    {"wave_mask: [4300, 4450]", 1, "wave_mask", "item 1 is not [min, max]"},
    {"wave_mask:\n - [1, 2]\n - [3]\n", 3, "wave_mask", "item 2 is not [min, max]"},
    {"wave_mask:\n - [1, 2]\n - [4, x]\n", 3, "wave_mask", "expected a number"},
    {"wave_mask:\n - [1, 2]\n - [4, 3]\n", 3, "wave_mask", "item 2: [4, 3] is not a range"},
    {"wave_mask:\n - [1, 2]\n - [3, 3]\n", 3, "wave_mask", "is not a range"},
    {"wave_mask:\n - [5, 6]\n - [1, 2]\n", 3, "wave_mask", "ascending"},
    {"wave_mask:\n - [1, 3]\n\n - [2, 4]\n", 4, "wave_mask", "join"},
    {"wave_mask: [[-1, 3]]", 1, "wave_mask", "0 <= min < max"},
    {"wave_mask: [[1, .inf]]", 1, "wave_mask", "not finite"},
    {"mask_ignore: -1", 1, "mask_ignore", "out of range"},
    {"mask_ignore: 0x100000000", 1, "mask_ignore", "out of range"},
    {"mask_ignore: 0xg", 1, "mask_ignore", "expected a whole number"},
    {"fix_param: vsini", 1, "fix_param", "a list of items"},
    {"fix_param: [vsini]", 1, "fix_param", "expected {param: NAME, value: NUMBER}"},
    {"fix_param:\n - {param: vsini}\n", 2, "fix_param", "lacks value"},
    {"fix_param:\n - {value: 2}\n", 2, "fix_param", "lacks param"},
    {"fix_param:\n - {param: vsini, valeu: 0}\n", 2, "fix_param", "'valeu' is unknown"},
    {"fix_param:\n - {param: a, value: 0, param: b}\n", 2, "fix_param", "param appears twice"},
    {"fix_param:\n - param: vsini\n   value: x\n", 3, "fix_param", "expected a number"},
    {"fix_param:\n - {param: vsini, value: .nan}\n", 2, "fix_param", "not finite"},
    {"fix_param:\n - {param: '', value: 0}\n", 2, "fix_param", "not a parameter name"},
    {"fix_param:\n - {param: a2345678901234567890123456789012, value: 0}\n", 2, "fix_param",
     "longer than 31 bytes"},
    {"fix_param:\n - {param: a, value: 0}\n - {param: a, value: 0}\n", 3, "fix_param",
     "a appears twice"},
    {"priors:\n - {param: a, mean: 0}\n", 2, "priors", "lacks sigma"},
    {"priors:\n - {param: a, mean: 0, sigma: 0}\n", 2, "priors", "sigma of a must be positive"},
    {"priors:\n - {param: a, mean: 0, sigma: -1}\n", 2, "priors", "sigma of a must be positive"},
    {"priors:\n - {param: a, mean: 0, sigma: 1e-160}\n", 2, "priors", "and its square"},
    {"priors:\n - {param: a, mean: .inf, sigma: 1}\n", 2, "priors", "not finite"},
    {"priors:\n - {param: a, mean: 0, sigma: 1}\n - {param: a, mean: 1, sigma: 1}\n", 3, "priors",
     "a appears twice"},
    {"fix_param: [{param: a, value: 0}]\npriors:\n - {param: a, mean: 0, sigma: 1}\n", 3, "priors",
     "a has a prior and a fixed value"},
    {"minsn: few", 1, "minsn", "expected a number"},
    {"minsn: .nan", 1, "minsn", "not finite"},
    {"minsn: -.inf", 1, "minsn", "not finite"},
    {"objtypes: [TGT, [SKY]]", 1, "objtypes", "expected a text"},
    {"objtypes: [a, b, c, d, e, f, g, h, i]", 1, "objtypes", "at most 8"},
    {"objtypes: [a234567890123456]", 1, "objtypes", "longer than 15 bytes"},
    {"objtypes:\n - TGT\n - TGT\n", 3, "objtypes", "TGT appears twice"},
    {"objtypes:", 1, "objtypes", "got nothing"},
    {"targetid:\n - 1\n - 1.5\n", 3, "targetid", "expected a whole number"},
    {"targetid: 9223372036854775808", 1, "targetid", "too large"},
    {"targetid: {a: 1}", 1, "targetid", "a list of whole numbers"},
    {"fiberstatus_allowed_bits: [64]", 1, "fiberstatus_allowed_bits", "from 0 to 63"},
    {"fiberstatus_allowed_bits: [-1]", 1, "fiberstatus_allowed_bits", "from 0 to 63"},
    {"redrock: maybe", 1, "redrock", "expected false or true"},
    {"redrock_file: \"a\\0b\"", 1, "redrock_file", "control characters"},
    {"redrock_file: \"a\\nb\"", 1, "redrock_file", "control characters"},
    {"redrock_max_vel: -1", 1, "redrock_max_vel", "out of range"},
    {"format: desi\njoin_radius: 1", 2, "join_radius", "needs join_by_name: true"},
    {"epoch_floor: 1", 1, "epoch_floor", "needs epochs"},
    {"epochs: night\nfix_param: [{param: vrad, value: 3}]", 1, "epochs", "fix_param holds vrad"},
    {"exposures: all", 1, "exposures", "expected coadd, single or joint"},
    {"format: fits", 1, "format", "lamost"},
    {"lsf: none", 1, "lsf", "resolving_power or off, got"},
    {"resolving_power: -1", 1, "resolving_power", "out of range"},
    {"resolving_power: 0.5", 1, "resolving_power", "at least 10"},
    {"arms: [{name: b, resolving_power: 0.5}]", 1, "arms", "resolving_power of b, 0.5,"},
    {"medium: water", 1, "medium", "expected auto, vacuum or air"},
    {"arms:\n - b\n - {min: 3}", 3, "arms", "lacks its name"},
    {"arms: [{name: b, mni: 3}]", 1, "arms", "'mni' is unknown in an arm"},
    {"arms: [{name: b, min: 3, min: 4}]", 1, "arms", "twice in one arm"},
    {"arms: [{name: b, min: 3, max: 3}]", 1, "arms", "not a range"},
    {"arms: [{name: b, min: -1}]", 1, "arms", "not a range"},
    {"arms: [{name: b, max: .inf}]", 1, "arms", "not finite"},
    {"arms: [b, {name: b, max: 9}]", 1, "arms", "b appears twice"},
    {"arms: [{name: b, resolving_power: 1e9}]", 1, "arms", "resolving_power of b"},
    {"arms: [{name: b, fwhm: -1}]", 1, "arms", "the fwhm of b, -1 A, is out of range"},
    {"arms: [{name: b, fwhm: 1e4}]", 1, "arms", "from 0 to 1000"},
    {"arms: [{name: b, sampling: 5}]", 1, "arms", "the sampling of b is out of range"},
    {"arms: [{name: b, sampling: 1.5}]", 1, "arms", "a whole number from 0 to 4"},
    {"arms: [{name: b, fwhm: 3, resolving_power: 2000}]", 1, "arms", "give one of them"},
    {"arms: {name: b}", 1, "arms", "a list of names"},
    {"wave_mask: none", 1, "wave_mask", "a list of ranges"},
    {"arms:\n - b\n - r\n - b\n", 4, "arms", "b appears twice"},
    {"arms: [1, 2, 3, 4, 5, 6, 7, 8, 9]", 1, "arms", "at most 8"},
    {"threads: -1", 1, "threads", "out of range"},
    {"slots: -1", 1, "slots", "out of range"},
    {"readers: 17", 1, "readers", "out of range"},
    {"write_interval: 0", 1, "write_interval", "out of range"},
    {"gzip_limit_mib: -1", 1, "gzip_limit_mib", "out of range"},
    {"backend: gpu", 1, "backend", "expected auto, cpu, cuda or cuda+cpu"},
    {"log_level: loud", 1, "log_level", "expected error, warning, info or debug"},
    {"template_lib: ~", 1, "template_lib", "got nothing"},
    {"? [a]\n: 5", 1, "expected a key", "got a list"},
    {"- npoly\n", 1, "'key: value'", "got a list"},
    {"npoly", 1, "'key: value'", "got 'npoly'"},
    {"npoly: 5\nmin_vel: [1\nmax_vel: 2\n", 0, "not YAML", "correct the line"},
    {"npoly: 5\n\tmin_vel: 3\n", 2, "not YAML", "correct the line"},
    {"npoly: 5\nmin_vel: \"x\n", 0, "not YAML", "correct the line"},
    {"npoly: *a\n", 1, "not YAML", "undefined alias"},
    {"npoly: 5\n---\nnpoly: 6\n", 2, "second YAML document", "keep one"},
    {"npoly: !!int 5\n", 1, "tag", "remove it"},
    {"npoly: 5\nmin_vel: \xff\n", 2, "UTF-8", "configuration file"},
    {"npoly: 5\n\nmin_vel: \x01\n", 3, "UTF-8", "control characters"},
};

MILL_TEST(refusals_name_file_line_and_key)
{
  mill_config config, before;
  mill_config_default(&before);
  must_read(&before, "targetid: [5, 6]\n");
  for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
    char start[400];
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
MILL_TEST(what_would_take_long_is_refused_at_once)
{
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
      assert_says(":2: ");
      assert_says("no key needs more than 16");
    }
  }
  size_t n = (size_t)sprintf(text, "objtypes: [");
  for (int i = 0; n < N; i++)
    n += (size_t)sprintf(text + n, "%s&a%d X", i ? ",\n" : "", i);
  strcpy(text + n, "]\n");
  assert_fails(read_text(&config, text), MILL_ERR_CONFIG, ":65: more than 64 anchors");
  memset(text, '#', LARGE);
  write_bytes(text, LARGE);
  assert_fails(mill_config_read(&config, path), MILL_ERR_CONFIG, "more than 16 MiB");
  /* what a configuration needs */
  must_read(&config, "&a npoly: &b 5\narms: [{name: r, min: 5000}]\nwave_mask: [[4000, 4100]]\n");
}

MILL_TEST(binary_file_is_refused)
{
  mill_config config;
  mill_config_default(&config);
  write_bytes("\x1f\x8b\x08\x00\x00\x00\x00\x00", 8);
  assert_int_equal(mill_config_read(&config, path), MILL_ERR_CONFIG);
  write_bytes("npoly: 5\0\0", 10);
  assert_fails(mill_config_read(&config, path), MILL_ERR_CONFIG, ":1: ");
  write_bytes("\xff\xfen\0p\0o\0l\0y\0", 12); /* UTF-16 */
  assert_int_equal(mill_config_read(&config, path), MILL_ERR_CONFIG);
  write_bytes("\xef\xbb\xbfnpoly: 5\n", 12); /* a mark of UTF-8 is allowed */
  assert_int_equal(mill_config_read(&config, path), MILL_OK);
  assert_int_equal(config.fit.n_cont, 5);
}

MILL_TEST(files_that_cannot_be_read)
{
  mill_config config;
  char missing[400];
  mill_config_default(&config);
  snprintf(missing, sizeof missing, "%s/none.yaml", folder);
  assert_fails(mill_config_read(&config, missing), MILL_ERR_CONFIG, missing);
  assert_says("No such file");
  assert_fails(mill_config_read(&config, folder), MILL_ERR_CONFIG, "a folder");
  write_bytes("npoly: 5\n", 9);
  assert_int_equal(chmod(path, 0), 0);
  if (access(path, R_OK) != 0) { /* root may read it all the same */
    assert_fails(mill_config_read(&config, path), MILL_ERR_CONFIG, "Permission denied");
  }
  assert_int_equal(chmod(path, 0600), 0);
}

MILL_TEST_MAIN(begin, remove_folder)
