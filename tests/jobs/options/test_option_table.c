/* SPDX-License-Identifier: BSD-3-Clause */
/* A table of rows: every kind of value, what is refused, and --help. */
#include "tests/mill_test.h"

#include "jobs/options/option_table.h"
#include "kernels/base/error.h"

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

enum { MAX_ARG = 32 };

static int parse(const char *line, values *v, unsigned char *given, int *n_other)
{
  static char text[512];
  static char *argv[MAX_ARG];
  int argc = 0, first = 0;
  snprintf(text, sizeof text, "toy %s", line);
  for (char *word = strtok(text, " "); word && argc < MAX_ARG - 1; word = strtok(NULL, " "))
    argv[argc++] = word;
  argv[argc] = NULL;
  memset(v, 0, sizeof *v);
  const int err = mill_option_parse(&table, argc, argv, v, given, &first);
  *n_other = argc - first;
  return err;
}

MILL_TEST(every_kind_is_stored)
{
  values v;
  unsigned char given[sizeof rows / sizeof rows[0]];
  int n_other = 0;
  assert_int_equal(parse("a --count 9 --choice three --word=two --path abcde --names ab,c b "
                         "--integer -7 --seed 18446744073709551615 --real 1e-3 --none none "
                         "--pair .5,100 --even even --threads many -h -- --c",
                         &v, given, &n_other),
                   MILL_OK);
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
    assert_int_equal(given[i], 1);
  assert_int_equal(given[0], 0);
  assert_int_equal(parse("--pair 1,1", &v, given, &n_other), MILL_OK);
  assert_int_equal(given[1], 0);
}

MILL_TEST(refusals_name_option_and_what_it_takes)
{
  static const struct {
    const char *line, *message;
  } bad[] = {
      {"--count 1", "--count takes an integer from 2 to 9, not '1'"},
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
      {"--help=yes", "wrongly used option --help=yes"},
      {"--wrong", "unknown or ambiguous option --wrong; see starmill toy --help"},
      {"--n", "unknown or ambiguous option --n"},
      {"--cuont=3", "--cuont=3; did you mean --count?"},
      {"--choise", "--choise; did you mean --choice?"},
      {"-x", "unknown option -x"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    values v;
    int n_other;
    const int err = parse(bad[i].line, &v, NULL, &n_other);
    if (err != MILL_ERR_USAGE || !strstr(mill_error_message(), bad[i].message))
      fail_msg("%s: code %d, '%s'", bad[i].line, err, mill_error_message());
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

MILL_TEST_MAIN(NULL, NULL)
