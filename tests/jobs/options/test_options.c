/* Command line of `starmill fit`: what is given lands in the configuration. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "jobs/options/options.h"
#include "src/run/stop_watch.h"
#include "kernels/base/error.h"
#include "tests/mill_test.h"

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

static void test_inputs_keep_their_order_among_options(void **state)
{
  (void)state;
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

static void test_nothing_given_changes_nothing(void **state)
{
  (void)state;
  call c;
  mill_config before, after;
  mill_config_default(&before);
  mill_config_default(&after);
  assert_int_equal(parse(&c, ""), MILL_OK);
  assert_int_equal(mill_fit_options_apply(&c.options, &after), MILL_OK);
  assert_memory_equal(&before, &after, sizeof before);
}

static void test_every_option_reaches_the_configuration(void **state)
{
  (void)state;
  call c;
  mill_config config;
  mill_config_default(&config);
  assert_int_equal(parse(&c, "--library l.h5 --threads 3 --slots 7 --npoly 12 --minsn -2.5 "
                             "--objtype TGT,SKY --redrock --exposures joint --optimizer "
                             "levenberg-marquardt --precision float64 "
                             "--backend cpu --log-level debug --format weave --lsf off "
                             "--resolving-power 1800 --medium air --join-by-name --start t.h5 "
                             "--minsn-from scores --target-class MWS_ANY,STD_* --select-by all "
                             "--minexpid 3 --maxexpid 2147483647"),
                   MILL_OK);
  assert_int_equal(mill_fit_options_apply(&c.options, &config), MILL_OK);
  assert_string_equal(config.template_lib, "l.h5");
  assert_string_equal(config.start, "t.h5");
  assert_int_equal(config.n_thread, 3);
  assert_int_equal(config.n_slot, 7);
  assert_int_equal(config.fit.n_cont, 12);
  assert_close(config.select.min_sn, -2.5, 0);
  assert_int_equal(config.select.n_objtype, 2);
  assert_string_equal(config.select.objtype[0], "TGT");
  assert_string_equal(config.select.objtype[1], "SKY");
  assert_int_equal(config.select.redrock, 1);
  assert_int_equal(config.exposures, MILL_EXPOSURES_JOINT);
  assert_int_equal(config.select.sn_source, MILL_SN_SCORES);
  assert_int_equal(config.select.n_target_class, 2);
  assert_string_equal(config.select.target_class[1], "STD_*");
  assert_int_equal(config.select.select_by, MILL_SELECT_BY_ALL);
  assert_int_equal(config.select.min_exp_id, 3);
  assert_int_equal(config.select.max_exp_id, 2147483647);
  assert_string_equal(config.format, "weave");
  assert_int_equal(config.join_by_name, 1);
  assert_int_equal(config.lsf, MILL_LSF_OFF);
  assert_close(config.resolving_power, 1800, 0);
  assert_int_equal(config.medium, MILL_MEDIUM_AIR);
  assert_int_equal(config.fit.optimizer, MILL_OPT_LM);
  assert_int_equal(config.fit.precision, MILL_FLOAT64);
  assert_string_equal(config.backend, "cpu");
  assert_string_equal(config.log_level, "debug");
  assert_int_equal(mill_config_check(&config), MILL_OK);
  mill_fit_options_clear(&c.options);
  mill_config_clear(&config);
}

/* They choose among the arms of the configuration, and may name others. */
static void test_arms_of_the_command_line(void **state)
{
  (void)state;
  call c;
  mill_config config;
  mill_config_default(&config);
  config.n_arm = 2;
  config.arm[0] = (mill_arm_choice){.arm = "b", .min_aa = 4000, .max_aa = 5000};
  config.arm[1] = (mill_arm_choice){.arm = "r", .max_aa = 7000, .channel = "red"};
  assert_int_equal(parse(&c, "--arms z,r"), MILL_OK);
  assert_int_equal(mill_fit_options_apply(&c.options, &config), MILL_OK);
  assert_int_equal(config.n_arm, 2);
  assert_string_equal(config.arm[0].arm, "z");
  assert_close(config.arm[0].min_aa, 0, 0);
  assert_true(isinf(config.arm[0].max_aa));
  assert_string_equal(config.arm[1].channel, "red");
  assert_close(config.arm[1].max_aa, 7000, 0);
  assert_int_equal(mill_config_check(&config), MILL_OK);
  mill_fit_options_clear(&c.options);
  /* none given: as the configuration has them */
  assert_int_equal(parse(&c, ""), MILL_OK);
  assert_int_equal(mill_fit_options_apply(&c.options, &config), MILL_OK);
  assert_string_equal(config.arm[0].arm, "z");
  mill_fit_options_clear(&c.options);
  mill_config_clear(&config);
}

static void test_exposures_of_the_command_line_win(void **state)
{
  (void)state;
  static const struct {
    const char *words;
    int exposures;
  } given[] = {
      {"--exposures single", MILL_EXPOSURES_SINGLE},
      {"--exposures joint", MILL_EXPOSURES_JOINT},
      {"--exposures coadd", MILL_EXPOSURES_COADD},
  };
  for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
    call c;
    mill_config config;
    mill_config_default(&config);
    config.exposures = MILL_EXPOSURES_SINGLE; /* of a file: the command line wins */
    assert_int_equal(parse(&c, given[i].words), MILL_OK);
    assert_int_equal(mill_fit_options_apply(&c.options, &config), MILL_OK);
    assert_int_equal(config.exposures, given[i].exposures);
    mill_fit_options_clear(&c.options);
    mill_config_clear(&config);
  }
}

static void test_resolving_power_of_the_command_line_wins_over_that_of_arms(void **state)
{
  (void)state;
  call c;
  mill_config config;
  mill_config_default(&config);
  config.n_arm = 2; /* of a file */
  strcpy(config.arm[0].arm, "b");
  strcpy(config.arm[1].arm, "r");
  config.arm[0].fwhm_aa = 2.7;
  config.arm[1].resolving_power = 1650;
  assert_int_equal(parse(&c, "--resolving-power 1500 --npoly 12"), MILL_OK);
  assert_int_equal(mill_fit_options_apply(&c.options, &config), MILL_OK);
  assert_close(mill_config_resolving_power(&config, "b"), 1500, 0);
  assert_close(mill_config_resolving_power(&config, "r"), 1500, 0);
  assert_close(config.arm[0].fwhm_aa, 0, 0);
  mill_fit_options_clear(&c.options);
  mill_config_clear(&config);
}

static void test_target_ids_replace_those_of_the_configuration(void **state)
{
  (void)state;
  call c;
  mill_config config;
  mill_config_default(&config);
  assert_int_equal(MILL_ALLOC(1, &config.select.target_id), MILL_OK);
  config.select.target_id[0] = 5;
  config.select.n_target_id = 1;
  assert_int_equal(parse(&c, "--targetid 39627,-12 --targetid 9223372036854775807"), MILL_OK);
  assert_int_equal(mill_fit_options_apply(&c.options, &config), MILL_OK);
  assert_int_equal(config.select.n_target_id, 3);
  assert_int_equal(config.select.target_id[0], -12);
  assert_int_equal(config.select.target_id[1], 39627);
  assert_true(config.select.target_id[2] == INT64_MAX);
  mill_fit_options_clear(&c.options);
  mill_config_clear(&config);
}

static void test_bad_values_are_named(void **state)
{
  (void)state;
  static const struct {
    const char *words, *part, *other;
  } bad[] = {
      {"--nploy 3", "unknown", "--nploy"},
      {"-q", "unknown", "-q"},
      {"--quiet=1", "wrongly", "--quiet=1"},
      {"--re", "ambiguous", "--re"},
      {"--output", "--output", "needs a value"},
      {"--npoly 25", "--npoly", "25"},
      {"--npoly 3.5", "--npoly", "3.5"},
      {"--threads 99999999999999999999", "--threads", "99999999999999999999"},
      {"--slots x", "--slots", "x"},
      {"--minsn inf", "--minsn", "inf"},
      {"--minsn 1,5", "--minsn", "1,5"},
      {"--targetid 1,2,", "--targetid", "''"},
      {"--targetid 9223372036854775808", "--targetid", "9223372036854775808"},
      {"--targetid 1234567890123456789012345678901234567890", "--targetid", "12345678901234567890"},
      {"--objtype A,,B", "--objtype", "A,,B"},
      {"--target-class A,", "--target-class", "A,"},
      {"--select-by one", "--select-by", "any or all"},
      {"--minexpid -1", "--minexpid", "-1"},
      {"--numbers 5", "--numbers", "--pattern"},
      {"--objtype 0123456789abcdef", "--objtype", "0123456789abcdef"},
      {"--objtype a,b,c,d,e,f,g,h,i", "--objtype", "8"},
      {"--optimizer nelder", "--optimizer", "nelder-mead"},
      {"--precision 32", "--precision", "float32"},
      {"--backend opencl", "--backend", "opencl"},
      {"--log-level 3", "--log-level", "warning"},
      {"--format fits", "--format", "lamost"},
      {"--exposures all", "--exposures", "joint"},
      {"--lsf none", "--lsf", "resolving_power"},
      {"--resolving-power 18k", "--resolving-power", "18k"},
      {"--medium water", "--medium", "vacuum"},
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

static void test_running_options(void **state)
{
  (void)state;
  static const struct {
    const char *words, *part; /* part of the message; NULL: it is right */
    int n_rank;
    double rate;
  } c[] = {
      {"a.fits", NULL, 0, 0.0},
      {"--plan", NULL, 0, 0.0},
      {"--plan --ranks 1024 --rate 9.5e3", NULL, 1024, 9500.0},
      {"--ranks 4", "--ranks belongs to --plan", 0, 0},
      {"--rate 4", "--rate belongs to --plan", 0, 0},
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

static void test_durations(void **state)
{
  (void)state;
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

static void test_time_limit(void **state)
{
  (void)state;
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
  assert_int_equal(mill_fit_options_running(&one.options, &running), MILL_ERR_USAGE);
  assert_non_null(strstr(mill_error_message(), "SLURM_JOB_END_TIME"));
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

static void test_margin_of_the_time_limit(void **state)
{
  (void)state;
  assert_true(mill_stop_margin(0, 0) == 7);
  assert_true(mill_stop_margin(0.5, 0) == 3);
  assert_true(mill_stop_margin(10, 4) == 34);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_inputs_keep_their_order_among_options),
      cmocka_unit_test(test_nothing_given_changes_nothing),
      cmocka_unit_test(test_every_option_reaches_the_configuration),
      cmocka_unit_test(test_arms_of_the_command_line),
      cmocka_unit_test(test_exposures_of_the_command_line_win),
      cmocka_unit_test(test_resolving_power_of_the_command_line_wins_over_that_of_arms),
      cmocka_unit_test(test_target_ids_replace_those_of_the_configuration),
      cmocka_unit_test(test_bad_values_are_named),
      cmocka_unit_test(test_running_options),
      cmocka_unit_test(test_durations),
      cmocka_unit_test(test_time_limit),
      cmocka_unit_test(test_margin_of_the_time_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
