/* SPDX-License-Identifier: BSD-3-Clause */
/* Command line of `starmill fit`; e2e/test_config.py tests what lands in the configuration. */
#include "jobs/options/options.h"
#include <time.h>

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
    double s;
  } good[] = {{"3600", 3600},        {"90s", 90},           {"45m", 2700},      {"7.5h", 27000},
              {"2d", 172800},        {".5", 0.5},           {"7:30:00", 27000}, {"0-0:0:5", 5},
              {"120:00:01", 432001}, {"1-12:00:00", 129600}};
  static const char *const bad[] = {"",        "0",        "-5",   "5 m",        "1e3",
                                    "45min",   "nan",      "inf",  "7:30",       "7:60:00",
                                    "7:30:61", "1-2-3",    "::",   "7:30:00x",   "12d5h",
                                    "99999d",  "7:30:00 ", "0x10", "1--2:03:04", "soon"};
  double s = -1;
  for (size_t i = 0; i < sizeof good / sizeof *good; i++)
    if (mill_option_duration("time-limit", good[i].text, &s) != MILL_OK || s != good[i].s)
      fail_msg("'%s': %s, %g s", good[i].text, mill_error_message(), s);
  s = -1;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    if (mill_option_duration("time-limit", bad[i], &s) != MILL_ERR_USAGE || s != -1 ||
        !strstr(mill_error_message(), "--time-limit"))
      fail_msg("'%s': '%s', %g s", bad[i], mill_error_message(), s);
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

MILL_TEST_MAIN(NULL, NULL)
