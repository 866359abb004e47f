/* SPDX-License-Identifier: BSD-3-Clause */
/* Products of an export: their names, and what becomes of a file that is there. */
#include "tests/test_folder.h"

#include <fcntl.h>
#include <sys/stat.h>

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

MILL_TEST(two_inputs_need_two_names)
{
  static const char *const plain[] = {"a/x.fits", "a/y.fits", "b/z.fits.gz"},
                           *const packed[] = {"a/x.fits", "b/x.fits.gz"},
                           *const tiles[] = {"/d/100/1/x.fits", "/d/100/2/x.fits", "x.fits"},
                           *const alike[] = {"/d/100/1/x.fits", "/e/100/1/x.fits"},
                           *const deep[] = {"1/x.fits", "/d/2/x.fits", "x..y/x.fits"},
                           *const above[] = {"../x.fits"}, *const between[] = {"/d/../a/x.fits"};
  static const struct {
    int n, has_subfolders, code;
    const char *const *input, *says;
  } row[] = {{3, 0, MILL_OK, plain, ""},
             {0, 0, MILL_OK, plain, ""},
             {2, 0, MILL_ERR_USAGE, packed, "--subdirs"},
             {2, 1, MILL_OK, packed, ""},
             {3, 0, MILL_ERR_USAGE, tiles, "x.fits"},
             {3, 1, MILL_OK, tiles, ""},
             {2, 1, MILL_ERR_USAGE, alike, "x.fits"},
             {3, 1, MILL_OK, deep, ""},
             {1, 0, MILL_OK, above, ""},
             {1, 1, MILL_ERR_USAGE, above, "../x.fits"},
             {1, 1, MILL_ERR_USAGE, between, "outside"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    mill_error_clear();
    assert_int_equal(mill_products_check_names(row[i].n, row[i].input, row[i].has_subfolders),
                     row[i].code);
    assert_says(row[i].says);
  }
}

/* An export in FITS of a kind and result. */
static void put_export(const char *path, const char *what, const char *run_id)
{
  int status = 0;
  mill_product product = {.path = ""};
  assert_int_equal(mill_product_begin(path, &product), MILL_OK);
  if (what) {
    mill_product_key(product.fits, "EXPORTED", what, NULL, &status);
    mill_product_key(product.fits, "RUNID", run_id, NULL, &status);
  }
  assert_int_equal(status, 0);
  assert_int_equal(mill_product_commit(&product), MILL_OK);
  mill_product_end(&product);
}

MILL_TEST(only_exports_are_replaced)
{
  put("result", "");
  put_export("old", "rvtab", "1");
  assert_int_equal(utimensat(AT_FDCWD, "old", (const struct timespec[]){{1, 0}, {1, 0}}, 0), 0);
  put_export("done", "rvtab", "1");
  put_export("other", "rvtab", "2");
  put_export("mod", "rvmod", "1");
  put_export("fits", NULL, NULL);
  put("notes", "EXPORTED= 'no'");
  put("empty", "");
  const int no = MILL_ERR_OUTPUT, old = MILL_PRODUCT_OLDER;
  const struct {
    const char *path;
    int overwrite, code, state;
  } row[] = {{"none", 0, MILL_OK, MILL_PRODUCT_ABSENT},
             {"done", 0, MILL_OK, MILL_PRODUCT_DONE},
             {"done", 1, MILL_OK, old},
             {"old", 0, MILL_OK, old},
             {"other", 0, no, 0},
             {"other", 1, MILL_OK, old},
             {"mod", 0, no, 0},
             {"fits", 1, no, 0},
             {"notes", 1, no, 0},
             {"empty", 0, no, 0},
             {"empty", 1, MILL_OK, old}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    int found = -1;
    assert_int_equal(
        mill_product_look(row[i].path, "rvtab", "1", "result", row[i].overwrite, &found),
        row[i].code);
    if (row[i].code == MILL_OK)
      assert_int_equal(found, row[i].state);
    else
      assert_says(row[i].path);
  }
}

MILL_TEST(folders)
{
  assert_int_equal(mill_products_folder("made", "--output"), MILL_OK);
  assert_int_equal(mill_products_folder("made", "--output"), MILL_OK);
  assert_int_equal(mill_products_folder("made/a/b", "--output"), MILL_ERR_OUTPUT);
  assert_fails(mill_products_folder("notes", "--output"), MILL_ERR_OUTPUT, "is not a folder");
}

MILL_TEST(a_product_has_its_name_when_it_is_whole)
{
  mill_product product = {.path = ""}, other = {.path = ""};
  put("real.fits.tmp", "of a killed job");
  put("real.fits", "old");
  assert_int_equal(symlink("real.fits", "product"), 0);
  assert_int_equal(mill_product_begin("product", &product), MILL_OK);
  assert_string_equal(product.path, "real.fits"); /* a link stays one */
  assert_int_equal(mill_product_begin("real.fits", &other), MILL_ERR_OUTPUT);
  mill_product_end(&other);
  assert_true(is_there("real.fits.tmp"));
  mill_product_end(&product); /* given up */
  assert_false(is_there("real.fits.tmp"));
  assert_int_equal(mill_product_begin("product", &product), MILL_OK);
  assert_int_equal(mill_product_commit(&product), MILL_OK);
  mill_product_end(&product);
  assert_false(is_there("real.fits.tmp"));
  assert_false(is_there("real.fits.lock"));
  char text[8] = "";
  FILE *in = fopen("product", "r");
  assert_non_null(in);
  assert_non_null(fgets(text, sizeof text, in));
  fclose(in);
  assert_string_equal(text, "SIMPLE ");
}

MILL_TEST(texts_for_fits)
{
  char text[] = "a\tb\x7f\xc3\xa9~ ";
  mill_product_printable(text, strlen(text));
  assert_string_equal(text, "a?b???~ ");
}

static int enter_folder(void **state)
{
  return make_folder(state) == 0 && chdir(folder) == 0 ? 0 : -1;
}

MILL_TEST_MAIN(enter_folder, remove_folder)
