/* SPDX-License-Identifier: BSD-3-Clause */

#include <sys/stat.h>

#include "io/catalog/input_pattern.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "tests/test_folder.h"

static char path[300];

static int begin(void **state)
{
  const int failed = make_folder(state);
  snprintf(path, sizeof path, "%s/file", folder);
  return failed;
}

static void make(const char *name)
{
  char full[1200];
  snprintf(full, sizeof full, "%s/%s", folder, name);
  for (char *slash = strchr(full + strlen(folder) + 1, '/'); slash;
       slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    mkdir(full, 0777);
    *slash = '/';
  }
  save_file(full, "x", 1);
}

/* The paths that a pattern in the folder gives, without the folder. */
static void expect(const char *pattern, const int64_t *number, size_t n_number,
                   const char *const *expected, size_t n)
{
  char full[1200];
  mill_path_list list = {0};
  snprintf(full, sizeof full, "%s/%s", folder, pattern);
  assert_ok(mill_input_pattern(full, number, n_number, &list));
  assert_int_equal(list.n, n);
  for (size_t i = 0; i < n; i++)
    assert_string_equal(list.path[i] + strlen(folder) + 1, expected[i]);
  mill_path_list_clear(&list);
}

MILL_TEST(patterns)
{
  static const int64_t number[] = {203, 7};
  make("b/coadd-1.fits");
  make("a/coadd-2.fits");
  make("a/coadd-1.fits");
  make("a/redrock-1.fits");
  make("2/203/00000203-a.fits");
  make("0/7/00000007-b.fits");
  make("0/7/00000007-a.fits");
  expect("*/coadd-*.fits", NULL, 0,
         (const char *const[]){"a/coadd-1.fits", "a/coadd-2.fits", "b/coadd-1.fits"}, 3);
  expect("[b]/coadd-?.fits", NULL, 0, (const char *const[]){"b/coadd-1.fits"}, 1);
  /* in the order of the numbers; a name without wildcards is a path, there or not */
  expect(
      "{n/100}/{n}/{n:8}-*.fits", number, 2,
      (const char *const[]){"2/203/00000203-a.fits", "0/7/00000007-a.fits", "0/7/00000007-b.fits"},
      3);
  expect("x{n}.fits", number, 2, (const char *const[]){"x203.fits", "x7.fits"}, 2);
  make("{x}.fits");
  expect("{x}*", NULL, 0, (const char *const[]){"{x}.fits"}, 1);
}

static void expect_refused(const char *pattern, const int64_t *number, size_t n_number,
                           const char *says)
{
  mill_path_list list = {0};
  assert_fails(mill_input_pattern(pattern, number, n_number, &list), MILL_ERR_USAGE, says);
  mill_path_list_clear(&list);
}

MILL_TEST(refuses_bad_patterns)
{
  char text[3000];
  snprintf(text, sizeof text, "%s/no*", folder);
  expect_refused(text, NULL, 0, "matches no file");
  expect_refused("{n}", NULL, 0, "--numbers");
  static const int64_t number[] = {1};
  for (const char *const *bad = (const char *const[]){"a{n:0}", "{n/0}", "{n:19}", "{n", "{n:}",
                                                      "{n:-3}", "{night}", NULL};
       *bad; bad++)
    expect_refused(*bad, number, 1, "is not a placeholder for a number");
  memset(text, 'x', sizeof text);
  text[sizeof text - 1] = '\0';
  expect_refused(text, NULL, 0, "too long");
}

MILL_TEST(numbers)
{
  int64_t *number;
  size_t n;
  static const char text[] = "# tiles\n 1000000 \n7-8, 3\n\n";
  save_file(path, text, sizeof text - 1);
  assert_int_equal(mill_number_list("12,10 - 11", path, &number, &n), MILL_ERR_USAGE);
  assert_int_equal(mill_number_list("12,10-11", path, &number, &n), MILL_OK);
  static const int64_t expected[] = {12, 10, 11, 1000000, 7, 8, 3};
  assert_int_equal(n, 7);
  assert_memory_equal(number, expected, sizeof expected);
  mill_free(number);
  assert_int_equal(mill_number_list(NULL, NULL, &number, &n), MILL_OK);
  assert_int_equal(n, 0);
  mill_free(number);
  for (const char *const *bad =
           (const char *const[]){"", "1,", "-1", "1.5", "2-1", "1,2,1", "0-10000000", "a", "1 2",
                                 "99999999999999999999", NULL};
       *bad; bad++)
    if (mill_number_list(*bad, NULL, &number, &n) != MILL_ERR_USAGE)
      fail_msg("'%s' is taken", *bad);
  save_file(path, "1\n2 3\n", 6);
  assert_fails(mill_number_list(NULL, path, &number, &n), MILL_ERR_USAGE, "line 2");
}

MILL_EACH_TEST_MAIN(begin, remove_folder)
