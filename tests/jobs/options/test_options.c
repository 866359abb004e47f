/* SPDX-License-Identifier: BSD-3-Clause */
/* Command line of `starmill fit`: what is given lands in the configuration. */
#include "jobs/options/options.h"
#include <time.h>

#include "src/run/stop_watch.h"
#include "tests/src/config/config_fixture.h"

enum { MAX_ARG = 48 };

/* Split words at blanks and parse them; argv keeps the words alive. */
typedef struct call {
  char text[1024];
  char *argv[MAX_ARG];
  mill_fit_options options;
} call;

static int parse(call *c, const char *words)
{
  int argc = 0;
  snprintf(c->text, sizeof c->text, "fit %s", words);
  for (char *word = strtok(c->text, " "); word && argc < MAX_ARG - 1; word = strtok(NULL, " "))
    c->argv[argc++] = word;
  c->argv[argc] = NULL;
  return mill_fit_options_parse(argc, c->argv, &c->options);
}

MILL_TEST(inputs_keep_their_order_among_options)
{
  call c;
  assert_int_equal(parse(&c, "b.fits --quiet a.fits --output o.h5 -- --c.fits"), MILL_OK);
  assert_int_equal(c.options.n_input, 3);
  assert_string_equal(c.options.input[0], "b.fits");
  assert_string_equal(c.options.input[1], "a.fits");
  assert_string_equal(c.options.input[2], "--c.fits");
  assert_string_equal(c.options.output, "o.h5");
  assert_int_equal(c.options.quiet, 1);
  mill_fit_options_clear(&c.options);
}

/* A line of options, and the configuration that says the same. */
MILL_TEST(options_reach_the_configuration)
{
  static const struct {
    const char *words, *yaml, *before; /* before: what the file says; NULL: nothing */
  } c[] = {
      {"--library l.h5 --library m,n.h5 --threads 3 --slots 7 --readers 2 --npoly 12 --minsn -2.5 "
       "--redrock",
       "{template_lib: [l.h5, 'm,n.h5'], threads: 3, slots: 7, readers: 2, npoly: 12, minsn: -2.5, "
       "redrock: true}",
       NULL},
      {"--objtype TGT,SKY --target-class MWS_ANY,STD_* --select-by all --minexpid 3 "
       "--maxexpid 2147483647 --minsn-from scores",
       "{objtypes: [TGT, SKY], target_classes: [MWS_ANY, STD_*], select_by: all, minexpid: 3, "
       "maxexpid: 2147483647, minsn_from: scores}",
       NULL},
      {"--exposures joint --format weave --lsf off --medium air --join-by-name --join-radius 2 "
       "--epochs night",
       "{exposures: joint, format: weave, lsf: off, medium: air, join_by_name: true, "
       "join_radius: 2, epochs: night}",
       NULL},
      {"--optimizer levenberg-marquardt --precision float64 --start t.h5 --backend cpu "
       "--log-level debug",
       "{optimizer: levenberg-marquardt, precision: float64, start: t.h5, backend: cpu, "
       "log_level: debug}",
       NULL},
      {"--targetid 39627,-12 --targetid 9223372036854775807",
       "targetid: [-12, 39627, 9223372036854775807]", "targetid: 5"},
      {"--exposures coadd", "exposures: coadd", "exposures: single"},
      {"--resolving-power 1500", "{resolving_power: 1500, arms: [b, r]}",
       "arms: [{name: b, fwhm: 2.7}, {name: r, resolving_power: 1650}]"},
      {"--arms z,r", "arms: [z, {name: r, max: 7000, channel: red}]",
       "arms: [{name: b, min: 4000, max: 5000}, {name: r, max: 7000, channel: red}]"},
      {"", "arms: [{name: b, min: 4000}]", "arms: [{name: b, min: 4000}]"},
      {"", "{}", NULL},
  };
  for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
    call one;
    mill_config config, expected;
    mill_config_default(&config);
    mill_config_default(&expected);
    if (c[i].before)
      must_read(&config, c[i].before);
    must_read(&expected, c[i].yaml);
    assert_int_equal(parse(&one, c[i].words), MILL_OK);
    if (mill_fit_options_apply(&one.options, &config) != MILL_OK)
      fail_msg("%s: %s", c[i].words, mill_error_message());
    assert_int_equal(mill_config_check(&config), MILL_OK);
    assert_same(&config, &expected);
    mill_fit_options_clear(&one.options);
    mill_config_clear(&config);
    mill_config_clear(&expected);
  }
}

/* What the keys of the configuration refuse is in e2e/test_config.py. */
MILL_TEST(bad_values_are_named)
{
  static const struct {
    const char *words, *part, *other;
  } bad[] = {
      {"--nploy 3", "unknown", "--nploy"},
      {"--re", "ambiguous", "--re"},
      {"--output", "--output", "needs a value"},
      {"--npoly 25", "--npoly", "25"},
      {"--minsn inf", "--minsn", "inf"},
      {"--targetid 1,2,", "--targetid", "''"},
      {"--targetid 9223372036854775808", "--targetid", "9223372036854775808"},
      {"--targetid 1234567890123456789012345678901234567890", "--targetid", "12345678901234567890"},
      {"--objtype A,,B", "--objtype", "A,,B"},
      {"--target-class A,", "--target-class", "A,"},
      {"--minexpid -1", "--minexpid", "-1"},
      {"--numbers 5", "--numbers", "--pattern"},
      {"--objtype 0123456789abcdef", "--objtype", "0123456789abcdef"},
      {"--objtype a,b,c,d,e,f,g,h,i", "--objtype", "8"},
      {"--optimizer nelder", "--optimizer", "nelder-mead"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    call c;
    mill_config config;
    mill_config_default(&config);
    int err = parse(&c, bad[i].words);
    if (err == MILL_OK)
      err = mill_fit_options_apply(&c.options, &config);
    if (err != MILL_ERR_USAGE || !strstr(mill_error_message(), bad[i].part) ||
        !strstr(mill_error_message(), bad[i].other))
      fail_msg("%s: code %d, '%s'", bad[i].words, err, mill_error_message());
    mill_fit_options_clear(&c.options);
    mill_config_clear(&config);
  }
}

MILL_TEST(running_options)
{
  static const struct {
    const char *words, *part; /* part of the message; NULL: it is right */
    int n_rank;
    double rate;
  } c[] = {
      {"a.fits", NULL, 0, 0.0},
      {"--plan", NULL, 0, 0.0},
      {"--plan --ranks 1024 --rate 9.5e3", NULL, 1024, 9500.0},
      {"--ranks 4", "--ranks needs --plan", 0, 0},
      {"--rate 4", "--rate needs --plan", 0, 0},
      {"--plan --ranks 0", "--ranks", 0, 0},
      {"--plan --rate 0", "--rate", 0, 0},
      {"--plan --rate fast", "fast", 0, 0},
  };
  for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
    call one;
    mill_running running;
    assert_int_equal(parse(&one, c[i].words), MILL_OK);
    const int err = mill_fit_options_running(&one.options, &running);
    if (c[i].part) {
      if (err != MILL_ERR_USAGE || !strstr(mill_error_message(), c[i].part))
        fail_msg("%s: code %d, '%s'", c[i].words, err, mill_error_message());
    } else {
      assert_int_equal(err, MILL_OK);
      assert_int_equal(running.n_rank, c[i].n_rank);
      assert_true(running.rate == c[i].rate);
    }
    mill_fit_options_clear(&one.options);
  }
}

MILL_TEST(durations)
{
  static const struct {
    const char *text;
    double s; /* 0: refused */
  } c[] = {
      {"3600", 3600},
      {"90s", 90},
      {"45m", 2700},
      {"7.5h", 27000},
      {"2d", 172800},
      {".5", 0.5},
      {"1e3", 0},
      {"7:30:00", 27000},
      {"120:00:01", 432001},
      {"1-12:00:00", 129600},
      {"0-0:0:5", 5},
      {"", 0},
      {"0", 0},
      {"-5", 0},
      {"5 m", 0},
      {"45min", 0},
      {"nan", 0},
      {"inf", 0},
      {"7:30", 0},
      {"7:60:00", 0},
      {"7:30:61", 0},
      {"1-2-3", 0},
      {"::", 0},
      {"7:30:00x", 0},
      {"12d5h", 0},
      {"99999d", 0},
      {"7:30:00 ", 0},
      {"0x10", 0},
      {"1--2:03:04", 0},
      {"soon", 0},
  };
  for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
    double s = -1;
    const int err = mill_option_duration("time-limit", c[i].text, &s);
    if (c[i].s > 0) {
      if (err != MILL_OK || s != c[i].s)
        fail_msg("'%s': code %d, %g s", c[i].text, err, s);
    } else if (err != MILL_ERR_USAGE || !strstr(mill_error_message(), "--time-limit") || s != -1) {
      fail_msg("'%s': code %d, '%s'", c[i].text, err, mill_error_message());
    }
  }
}

MILL_TEST(time_limit)
{
  call one;
  mill_running running;
  char text[32];
  assert_int_equal(parse(&one, "--time-limit 45m --stop-file halt"), MILL_OK);
  assert_int_equal(mill_fit_options_running(&one.options, &running), MILL_OK);
  assert_true(running.time_limit_s == 2700);
  assert_string_equal(running.stop_file, "halt");
  mill_fit_options_clear(&one.options);
  unsetenv("SLURM_JOB_END_TIME");
  assert_int_equal(parse(&one, "--time-limit auto"), MILL_OK);
  assert_fails(mill_fit_options_running(&one.options, &running), MILL_ERR_USAGE,
               "SLURM_JOB_END_TIME");
  setenv("SLURM_JOB_END_TIME", "tomorrow", 1);
  assert_int_equal(mill_fit_options_running(&one.options, &running), MILL_ERR_USAGE);
  snprintf(text, sizeof text, "%lld", (long long)time(NULL) + 500);
  setenv("SLURM_JOB_END_TIME", text, 1);
  assert_int_equal(mill_fit_options_running(&one.options, &running), MILL_OK);
  assert_true(running.time_limit_s > 400 && running.time_limit_s <= 500);
  /* over already: as little as there can be */
  setenv("SLURM_JOB_END_TIME", "1000000000", 1);
  assert_int_equal(mill_fit_options_running(&one.options, &running), MILL_OK);
  assert_true(running.time_limit_s == 1);
  unsetenv("SLURM_JOB_END_TIME");
  mill_fit_options_clear(&one.options);
}

MILL_TEST(margin_of_the_time_limit)
{
  assert_true(mill_stop_margin(0, 0) == 7);
  assert_true(mill_stop_margin(0.5, 0) == 3);
  assert_true(mill_stop_margin(10, 4) == 34);
}

MILL_TEST_MAIN(begin, remove_folder)
