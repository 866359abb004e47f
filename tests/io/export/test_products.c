/* Products of an export: their names, and what becomes of a file that is there. */
#include "tests/mill_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/export/product_file.h"
#include "io/export/products.h"
#include "kernels/base/error.h"

static void put(const char *path, const char *text)
{
  FILE *out = fopen(path, "w");
  assert_non_null(out);
  fputs(text, out);
  fclose(out);
}

static int is_there(const char *path)
{
  struct stat status;
  return lstat(path, &status) == 0;
}

static void test_two_inputs_need_two_names(void **state)
{
  (void)state;
  static const char *const plain[] = {"a/x.fits", "a/y.fits", "b/z.fits.gz"},
                           *const packed[] = {"a/x.fits", "b/x.fits.gz"},
                           *const tiles[] = {"/d/100/1/x.fits", "/d/100/2/x.fits", "x.fits"},
                           *const alike[] = {"/d/100/1/x.fits", "/e/100/1/x.fits"},
                           *const deep[] = {"1/x.fits", "/d/2/x.fits", "../x.fits"};
  assert_int_equal(mill_products_check_names(3, plain, 0), MILL_OK);
  assert_int_equal(mill_products_check_names(0, plain, 0), MILL_OK);
  assert_int_equal(mill_products_check_names(2, packed, 0), MILL_ERR_USAGE);
  assert_non_null(strstr(mill_error_message(), "x.fits"));
  assert_non_null(strstr(mill_error_message(), "--subdirs"));
  assert_int_equal(mill_products_check_names(2, packed, 1), MILL_OK);
  assert_int_equal(mill_products_check_names(3, tiles, 0), MILL_ERR_USAGE);
  assert_int_equal(mill_products_check_names(3, tiles, 1), MILL_OK);
  assert_int_equal(mill_products_check_names(2, alike, 1), MILL_ERR_USAGE);
  assert_int_equal(mill_products_check_names(3, deep, 1), MILL_OK);
}

static void test_only_exports_are_replaced(void **state)
{
  (void)state;
  assert_int_equal(mill_products_check_one("none.fits", 0), MILL_OK);
  put("export.fits", "SIMPLE  =                    T\nEXPORTED= 'rvtab'");
  put("other.fits", "SIMPLE  =                    T\nBITPIX  = 8");
  put("notes", "EXPORTED= 'no'");
  put("empty", "");
  assert_int_equal(mill_products_check_one("export.fits", 0), MILL_ERR_OUTPUT);
  assert_int_equal(mill_products_check_one("export.fits", 1), MILL_OK);
  assert_int_equal(mill_products_check_one("empty", 1), MILL_OK);
  assert_int_equal(mill_products_check_one("other.fits", 1), MILL_ERR_OUTPUT);
  assert_int_equal(mill_products_check_one("notes", 1), MILL_ERR_OUTPUT);
  assert_non_null(strstr(mill_error_message(), "notes"));
}

static void test_folders(void **state)
{
  (void)state;
  assert_int_equal(mill_products_folder("made", "--output"), MILL_OK);
  assert_int_equal(mill_products_folder("made", "--output"), MILL_OK);
  assert_int_equal(mill_products_folder("made/a/b", "--output"), MILL_ERR_OUTPUT);
  assert_int_equal(mill_products_folder("notes", "--output"), MILL_ERR_OUTPUT);
  assert_non_null(strstr(mill_error_message(), "is no folder"));
}

static void test_a_product_has_its_name_when_it_is_whole(void **state)
{
  (void)state;
  mill_product product = {.path = ""}, other = {.path = ""};
  put("real.fits.tmp", "of a killed job");
  put("real.fits", "old");
  assert_int_equal(symlink("real.fits", "product"), 0);
  assert_int_equal(mill_product_begin("product", &product), MILL_OK);
  assert_string_equal(product.path, "real.fits"); /* a link stays one */
  assert_string_equal(product.temporary, "real.fits.tmp");
  assert_false(is_there("real.fits.tmp"));
  assert_int_equal(mill_product_begin("real.fits", &other), MILL_ERR_OUTPUT);
  mill_product_end(&other);
  put(product.temporary, "new");
  mill_product_end(&product); /* given up */
  char temporary[sizeof product.temporary];
  assert_int_equal(mill_product_begin("product", &product), MILL_OK);
  memcpy(temporary, product.temporary, sizeof temporary);
  assert_false(is_there(temporary));
  put(temporary, "new");
  assert_int_equal(mill_product_commit(&product), MILL_OK);
  mill_product_end(&product);
  assert_false(is_there(temporary));
  assert_false(is_there("real.fits.lock"));
  char text[8] = "";
  FILE *in = fopen("product", "r");
  assert_non_null(in);
  assert_non_null(fgets(text, sizeof text, in));
  fclose(in);
  assert_string_equal(text, "new");
}

static void test_texts_for_fits(void **state)
{
  (void)state;
  char text[] = "a\tb\x7f\xc3\xa9~ ";
  mill_product_printable(text, strlen(text));
  assert_string_equal(text, "a?b???~ ");
}

static int set_up(void **state)
{
  static char folder[] = "/tmp/test_products.XXXXXX";
  *state = folder;
  return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", (char *)*state);
  return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_two_inputs_need_two_names),
      cmocka_unit_test(test_only_exports_are_replaced),
      cmocka_unit_test(test_folders),
      cmocka_unit_test(test_a_product_has_its_name_when_it_is_whole),
      cmocka_unit_test(test_texts_for_fits),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
