/* SPDX-License-Identifier: BSD-3-Clause */
/** Shared by all tests: a list of tests, comparisons that reject NaN, paths of test data. */
#pragma once

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/** MILL_TEST(name) { ... } defines a test; MILL_RUN_TESTS(set_up, tear_down) runs all tests of the
 *  program in the order of their definition, or those that MILL_TEST_ONLY=NAME,NAME names, and
 *  returns how many failed. */
#define MILL_TEST(name)                                                                            \
  static void test_##name(void **state);                                                           \
  enum { place_of_test_##name = __COUNTER__ };                                                     \
  _Static_assert(place_of_test_##name < MILL_MOST_TESTS, "more tests than MILL_MOST_TESTS");       \
  __attribute__((constructor)) static void add_test_##name(void)                                   \
  {                                                                                                \
    mill_test_list[place_of_test_##name] = (struct CMUnitTest)cmocka_unit_test(test_##name);       \
  }                                                                                                \
  static void test_##name(__attribute__((unused)) void **state)
/** Head of a function that cmocka calls before or after tests. */
#define MILL_FIXTURE(name)                int name(__attribute__((unused)) void **state)
#define MILL_RUN_TESTS(set_up, tear_down) mill_run_tests(set_up, tear_down, NULL, NULL)
/** Define main.  set_up and tear_down run before and after all tests, begin and end around each. */
#define MILL_TEST_MAIN(set_up, tear_down)                                                          \
  int main(void)                                                                                   \
  {                                                                                                \
    return MILL_RUN_TESTS(set_up, tear_down);                                                      \
  }
#define MILL_EACH_TEST_MAIN(begin, end)                                                            \
  int main(void)                                                                                   \
  {                                                                                                \
    return mill_run_tests(NULL, NULL, begin, end);                                                 \
  }
#define MILL_SEEDED_TEST_MAIN(seed, set_up, tear_down)                                             \
  int main(void)                                                                                   \
  {                                                                                                \
    printf("seed %d\n", seed);                                                                     \
    return MILL_RUN_TESTS(set_up, tear_down);                                                      \
  }

#define MILL_MOST_TESTS 64
static __attribute__((unused)) struct CMUnitTest mill_test_list[MILL_MOST_TESTS];

static inline int mill_is_wanted(const char *test)
{
  const char *all = getenv("MILL_TEST_ONLY");
  const size_t n = strlen(test) - strlen("test_");
  for (const char *at = all; at && (at = strstr(at, test + strlen("test_"))); at++)
    if ((at == all || at[-1] == ',') && (at[n] == ',' || at[n] == '\0'))
      return 1;
  return !all;
}

static inline int mill_run_tests(CMFixtureFunction set_up, CMFixtureFunction tear_down,
                                 CMFixtureFunction begin, CMFixtureFunction end)
{
  struct CMUnitTest list[MILL_MOST_TESTS];
  size_t n = 0;
  for (int i = 0; i < MILL_MOST_TESTS; i++)
    if (mill_test_list[i].name && mill_is_wanted(mill_test_list[i].name)) {
      list[n] = mill_test_list[i];
      list[n].setup_func = begin;
      list[n++].teardown_func = end;
    }
  return _cmocka_run_group_tests("tests", list, n, set_up, tear_down);
}

/* Written so that a NaN on either side fails. */
#define assert_close(actual, expected, tolerance)                                                  \
  do {                                                                                             \
    const double mill_a = (actual), mill_e = (expected), mill_t = (tolerance);                     \
    if (!(fabs(mill_a - mill_e) <= mill_t))                                                        \
      fail_msg("%s = %.17g, expected %.17g within %.3g (off by %.3g)", #actual, mill_a, mill_e,    \
               mill_t, mill_a - mill_e);                                                           \
  } while (0)

/** assert_ok: a call succeeds.  assert_says: the error message is one line that contains text.
 *  assert_fails: a call fails with this code and message.  Include kernels/base/error.h first. */
#define assert_ok(call)                                                                            \
  do {                                                                                             \
    if ((call) != MILL_OK)                                                                         \
      fail_msg("%s: %s", #call, mill_error_message());                                             \
  } while (0)

#define assert_says(text)                                                                          \
  do {                                                                                             \
    if (!strstr(mill_error_message(), text) || strchr(mill_error_message(), '\n'))                 \
      fail_msg("message \"%s\" lacks \"%s\"", mill_error_message(), text);                         \
  } while (0)

#define assert_fails(call, code, text)                                                             \
  do {                                                                                             \
    assert_int_equal(call, code);                                                                  \
    assert_says(text);                                                                             \
  } while (0)

/** Return the path of a test data file, in one of four static buffers used in turn.  If the
 *  file is missing, print a SKIPPED line with the reason and return NULL. */
static inline const char *mill_test_data_path(const char *name)
{
  static char path[4][2048];
  static int i_path;
  char *out = path[i_path++ % 4];
  const char *base = getenv("STARMILL_TEST_DATA");
  if (base && *base)
    snprintf(out, sizeof path[0], "%s/%s", base, name);
  else
    snprintf(out, sizeof path[0], "%s/../shared/data/%s", MILL_SOURCE_DIR, name);
  if (access(out, R_OK) != 0) {
    printf("SKIPPED: no test data at %s (set STARMILL_TEST_DATA)\n", out);
    return NULL;
  }
  return out;
}

/** Skip this test and print the reason if `tested`, the thing to test, is 0 or NULL. */
#define mill_test_needs(tested, reason)                                                            \
  do {                                                                                             \
    if (!(tested)) {                                                                               \
      printf("SKIPPED: %s\n", reason);                                                             \
      skip();                                                                                      \
    }                                                                                              \
  } while (0)

/** Define variable as the path of a test data file, or skip this test. */
#define mill_test_data(variable, name)                                                             \
  const char *variable = mill_test_data_path(name);                                                \
  do {                                                                                             \
    if (!variable)                                                                                 \
      skip();                                                                                      \
  } while (0)
