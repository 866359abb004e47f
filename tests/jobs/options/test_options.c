/* SPDX-License-Identifier: BSD-3-Clause */
/* A table of options with every kind of value: parsing, refusals and --help.  Also the command line
 * of starmill fit; e2e/test_config.py tests what it sets in the configuration. */
#include "tests/mill_test.h"

#include <time.h>

#include "jobs/options/options.h"
#include "src/run/stop_watch.h"

/* --- a table of rows --- */

typedef struct values {
  int help, n, choice, n_name;
  const char *text, *threads;
  char path[6], word[8], name[2][4];
  int64_t integer;
  uint64_t seed;
  double real, none, low, high;
} values;

static int take_even(const mill_option *row, const char *text, void *base)
{
  int err = MILL_OK;
  values *v = base;
  if (strlen(text) % 2 != 0)
    MILL_FAIL(MILL_ERR_USAGE, "--%s takes an even number of letters, not '%s'", row->name, text);
  v->text = text;
done:
  return err;
}

static const char *const words[] = {"one", "two", "three", NULL};

#define AT(member) MILL_AT(values, member)
static const mill_option rows[] = {
    {.name = "heading"},
    {"count", MILL_OPTION_COUNT, AT(n), .min = 2, .max = 9, .help = "a count"},
    {"choice", MILL_OPTION_CHOICE, AT(choice), .words = words, .help = "a choice"},
    {"word", MILL_OPTION_WORD, AT(word), .words = words, .help = "a word"},
    {"path", MILL_OPTION_PATH, AT(path), .help = "a path"},
    {"names", MILL_OPTION_NAMES, .offset = offsetof(values, name), .size = 4, .max = 2,
     .offset2 = offsetof(values, n_name), .argument = "A,B", .help = "names"},
    {"integer", MILL_OPTION_INTEGER, AT(integer), .help = "an integer"},
    {"seed", MILL_OPTION_SEED, AT(seed), .help = "a seed"},
    {"real", MILL_OPTION_REAL, AT(real), .min = MILL_ABOVE_0, .max = DBL_MAX, .help = "a number"},
    {"none", MILL_OPTION_REAL, AT(none), .without = "none", .help = "a number, or none (at all)"},
    {"pair", MILL_OPTION_PAIR, AT(low), .offset2 = offsetof(values, high), .max = 100,
     .argument = "MIN,MAX", .help = "a pair"},
    {"even", MILL_OPTION_OTHER, .take = take_even, .argument = "TEXT", .help = "a text"},
    {"threads", MILL_OPTION_TEXT, AT(threads), .key = "threads"},
    MILL_OPTION_HELP(values),
    {0}};
static const mill_option_table table = {"starmill toy", "usage: toy\n\n", "\nthe end\n", rows};

enum { MAX_ARG = 48 };

/* Words split at blanks; argv keeps them alive. */
typedef struct call {
  char text[1024];
  char *argv[MAX_ARG];
  mill_fit_options options; /* of parse_fit */
} call;

static int split(call *c, const char *name, const char *line)
{
  int argc = 0;
  snprintf(c->text, sizeof c->text, "%s %s", name, line);
  for (char *word = strtok(c->text, " "); word && argc < MAX_ARG - 1; word = strtok(NULL, " "))
    c->argv[argc++] = word;
  c->argv[argc] = NULL;
  return argc;
}

static int parse(const char *line, values *v, const char **given, int *n_other)
{
  static call c;
  int first = 0;
  const int argc = split(&c, "toy", line);
  memset(v, 0, sizeof *v);
  const int err = mill_option_parse(&table, argc, c.argv, v, given, &first);
  *n_other = argc - first;
  return err;
}

MILL_TEST(every_kind_is_stored)
{
  values v;
  const char *given[MILL_OPTION_MAX];
  int n_other = 0;
  assert_ok(parse("a --count 9 --choice three --word=two --path abcde --names ab,c b "
                  "--integer -7 --seed 18446744073709551615 --real 1e-3 --none none "
                  "--pair .5,100 --even even --threads many -h -- --c",
                  &v, given, &n_other));
  assert_int_equal(n_other, 3);
  assert_int_equal(v.n, 9);
  assert_int_equal(v.choice, 2);
  assert_string_equal(v.word, "two");
  assert_string_equal(v.path, "abcde");
  assert_int_equal(v.n_name, 2);
  assert_string_equal(v.name[0], "ab");
  assert_string_equal(v.name[1], "c");
  assert_true(v.integer == -7 && v.seed == UINT64_MAX);
  assert_close(v.real, 1e-3, 0);
  assert_true(v.none == -INFINITY && v.low == 0.5 && v.high == 100);
  assert_string_equal(v.text, "even");
  assert_string_equal(v.threads, "many"); /* a key's value is read by mill_config_set */
  assert_int_equal(v.help, 1);
  for (size_t i = 1; rows[i].name; i++)
    assert_non_null(given[i]);
  assert_null(given[0]);
  assert_int_equal(parse("--pair 1,1", &v, given, &n_other), MILL_OK);
  assert_null(given[1]);
}

MILL_TEST(refusals_name_option_and_what_it_takes)
{
  static const struct {
    const char *line, *message;
  } bad[] = {{"--count 1", "--count takes an integer from 2 to 9, not '1'"},
             {"--count 10", "--count takes an integer from 2 to 9, not '10'"},
             {"--count 3x", "--count takes"},
             {"--choice four", "--choice takes one, two or three, not 'four'"},
             {"--word On", "--word takes one, two or three, not 'On'"},
             {"--path abcdef", "--path takes a text of 1 to 5 characters, not 'abcdef'"},
             {"--names a,b,c", "--names takes up to 2 names of 1 to 3 characters"},
             {"--names a,,b", "not 'a,,b'"},
             {"--names abcd", "not 'abcd'"},
             {"--integer 9223372036854775808", "--integer takes an integer, not"},
             {"--seed -1", "--seed takes an integer from 0 to 18446744073709551615, not '-1'"},
             {"--real 0", "--real takes a number above 0, not '0'"},
             {"--real inf", "not 'inf'"},
             {"--real 0x10", "not '0x10'"},
             {"--real none", "not 'none'"},
             {"--none nan", "--none takes a number or none, not 'nan'"},
             {"--pair 5", "--pair takes MIN,MAX, two numbers from 0 to 100, not '5'"},
             {"--pair 5,4", "not '5,4'"},
             {"--pair 5,101", "not '5,101'"},
             {"--even odd", "--even takes an even number of letters, not 'odd'"},
             {"--count", "option --count needs a value; see starmill toy --help"},
             {"--count=", "option --count needs a value, not an empty text"},
             {"--help=yes", "option --help=yes takes no value"},
             {"--wrong", "unknown or ambiguous option --wrong; see starmill toy --help"},
             {"--n", "unknown or ambiguous option --n"},
             {"--cuont=3", "--cuont=3; did you mean --count?"},
             {"--choise", "--choise; did you mean --choice?"},
             {"-x", "unknown option -x"}};
  const char *given[MILL_OPTION_MAX];
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    values v;
    int n_other;
    assert_fails(parse(bad[i].line, &v, given, &n_other), MILL_ERR_USAGE, bad[i].message);
  }
}

MILL_TEST(help_has_values_and_defaults)
{
  static const values usual = {.n = 3, .choice = 1, .word = "one", .low = 1, .high = 2.5};
  char text[4096] = "";
  FILE *out = fmemopen(text, sizeof text, "w");
  assert_non_null(out);
  mill_option_print_help(&table, &usual, out);
  assert_int_equal(fclose(out), 0);
  assert_string_equal(text,
                      "usage: toy\n\n"
                      "heading\n"
                      "  --count N       a count (2 to 9; default 3)\n"
                      "  --choice NAME   a choice (one, two or three; default two)\n"
                      "  --word NAME     a word (one, two or three; default one)\n"
                      "  --path FILE     a path\n"
                      "  --names A,B     names\n"
                      "  --integer N     an integer\n"
                      "  --seed N        a seed\n"
                      "  --real X        a number\n"
                      "  --none X        a number, or none (at all)\n"
                      "  --pair MIN,MAX  a pair (default 1,2.5)\n"
                      "  --even TEXT     a text\n"
                      "  --threads N     threads per rank; 0: all cores available to it (0 to "
                      "4096)\n"
                      "  --help          this text\n"
                      "\nthe end\n");
}

/* --- the command line of starmill fit --- */

static int parse_fit(call *c, const char *line)
{
  return mill_fit_options_parse(split(c, "fit", line), c->argv, &c->options);
}

MILL_TEST(inputs_keep_their_order_among_options)
{
  call c;
  assert_int_equal(parse_fit(&c, "b.fits --quiet a.fits --output o.h5 -- --c.fits"), MILL_OK);
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
  } c[] = {{"a.fits", NULL, 0, 0.0},
           {"--plan", NULL, 0, 0.0},
           {"--plan --ranks 1024 --rate 9.5e3", NULL, 1024, 9500.0},
           {"--ranks 4", "--ranks needs --plan", 0, 0},
           {"--rate 4", "--rate needs --plan", 0, 0},
           {"--plan --ranks 0", "--ranks", 0, 0},
           {"--plan --rate 0", "--rate", 0, 0},
           {"--plan --rate fast", "fast", 0, 0}};
  for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
    call one;
    mill_running running;
    assert_int_equal(parse_fit(&one, c[i].words), MILL_OK);
    if (c[i].part) {
      assert_fails(mill_fit_options_running(&one.options, &running), MILL_ERR_USAGE, c[i].part);
    } else {
      assert_ok(mill_fit_options_running(&one.options, &running));
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
  assert_int_equal(parse_fit(&one, "--time-limit 45m --stop-file halt"), MILL_OK);
  assert_int_equal(mill_fit_options_running(&one.options, &running), MILL_OK);
  assert_true(running.time_limit_s == 2700);
  assert_string_equal(running.stop_file, "halt");
  mill_fit_options_clear(&one.options);
  unsetenv("SLURM_JOB_END_TIME");
  assert_int_equal(parse_fit(&one, "--time-limit auto"), MILL_OK);
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
