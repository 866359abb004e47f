/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/mill_test.h"

#include "io/catalog/catalog_list.h"
#include "io/surveys/redrock.h"
#include "io/surveys/selection.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "tests/io/fits/folder_fixture.h"

MILL_TEST(selection_by_target)
{
  mill_selection select = {0};
  assert_int_equal(mill_selection_keeps_target(&select, 5), 1);
  int64_t id[] = {INT64_MIN, -3, 0, 7, INT64_MAX};
  select.target_id = id;
  for (size_t n = 1; n <= 5; n++) {
    select.n_target_id = n;
    for (size_t i = 0; i < 5; i++)
      assert_int_equal(mill_selection_keeps_target(&select, id[i]), i < n);
    assert_int_equal(mill_selection_keeps_target(&select, 5), 0);
    assert_int_equal(mill_selection_keeps_target(&select, -4), 0);
  }
}

MILL_TEST(selection_by_redrock)
{
  static const struct {
    double vel_km_s;
    const char *spectype;
    int is_kept;
  } row[] = {{3e5, "QSO", 0},     {3e5, "STAR", 1},     {NAN, "STAR", 1},    {NAN, "", 0},
             {1499, "GALAXY", 1}, {-1499, "GALAXY", 1}, {-1501, "GALAXY", 0}};
  mill_selection select = {.redrock_max_vel_km_s = 1500.0};
  assert_int_equal(mill_selection_keeps_redrock(&select, 1.0, "QSO"), 1);
  select.redrock = 1;
  for (size_t i = 0; i < sizeof row / sizeof *row; i++)
    assert_int_equal(
        mill_selection_keeps_redrock(&select, row[i].vel_km_s / MILL_C_KM_S, row[i].spectype),
        row[i].is_kept);
}

MILL_TEST(selection_by_class_and_redrock)
{
  mill_selection select = {.redrock_max_vel_km_s = 1500.0};
  for (int in_class = 0; in_class < 2; in_class++)
    for (int is_star = 0; is_star < 2; is_star++) {
      const char *kind = is_star ? "STAR" : "QSO";
      select.n_target_class = select.redrock = 0;
      assert_int_equal(mill_selection_keeps_star(&select, in_class, 1.0, kind), 1);
      select.redrock = 1;
      assert_int_equal(mill_selection_keeps_star(&select, in_class, 1.0, kind), is_star);
      select.n_target_class = 1;
      select.select_by = MILL_SELECT_BY_ANY;
      assert_int_equal(mill_selection_keeps_star(&select, in_class, 1.0, kind),
                       in_class || is_star);
      select.select_by = MILL_SELECT_BY_ALL;
      assert_int_equal(mill_selection_keeps_star(&select, in_class, 1.0, kind),
                       in_class && is_star);
      select.redrock = 0;
      assert_int_equal(mill_selection_keeps_star(&select, in_class, 1.0, kind), in_class);
    }
}

MILL_TEST(selection_by_exposure)
{
  static const int limit[][2] = {{0, 0}, {5, 0}, {5, 8}, {0, 8}};
  for (size_t i = 0; i < sizeof limit / sizeof *limit; i++) {
    const int min = limit[i][0], max = limit[i][1];
    const mill_selection select = {.min_exp_id = min, .max_exp_id = max};
    assert_int_equal(mill_selection_has_exp_id(&select), i > 0);
    for (int id = -1; id < 12; id++)
      assert_int_equal(mill_selection_keeps_exp_id(&select, id),
                       i == 0 || (id >= min && id >= 0 && (max == 0 || id <= max)));
  }
}

static void expect_beside(const char *input, const char *expected)
{
  char in[1200], out[1200], want[1200];
  snprintf(in, sizeof in, "%s/%s", folder, input);
  snprintf(want, sizeof want, "%s/%s", folder, expected);
  assert_int_equal(mill_redrock_beside(in, out, sizeof out), MILL_OK);
  assert_string_equal(out, *expected ? want : "");
}

MILL_TEST(redrock_file_beside_the_input)
{
  expect_beside("coadd-a-b.fits", "");
  char name[1100];
  snprintf(name, sizeof name, "%s/zbest-a-b.fits", folder);
  maker_save_bytes(name, "x", 1);
  expect_beside("coadd-a-b.fits", "zbest-a-b.fits");
  snprintf(name, sizeof name, "%s/redrock-a-b.fits.gz", folder);
  maker_save_bytes(name, "x", 1);
  expect_beside("coadd-a-b.fits", "redrock-a-b.fits.gz");
  expect_beside("coadd-a-b.fits.gz", "redrock-a-b.fits.gz");
  expect_beside("spectra-a-b.fits.gz", "redrock-a-b.fits.gz");
  snprintf(name, sizeof name, "%s/redrock-a-b.fits", folder);
  maker_save_bytes(name, "x", 1);
  expect_beside("coadd-a-b.fits.gz", "redrock-a-b.fits");
  expect_beside("mycoadd-a-b.fits", ""); /* only at the beginning of the name */
  expect_beside("coadd-c.fits", "");
  char small[40];
  assert_int_equal(mill_redrock_beside("coadd-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.fits",
                                       small, sizeof small),
                   MILL_ERR_INPUT);
}

/* ---- lists ---- */

static void expect_list_error(const char *text, size_t n, const char *part)
{
  mill_path_list list = {0};
  maker_save_bytes(path, text, n);
  assert_int_equal(mill_catalog_list_read(path, &list), MILL_ERR_USAGE);
  mill_path_list_clear(&list);
  if (!strstr(mill_error_message(), part) || !strstr(mill_error_message(), path))
    fail_msg("expected '%s', got '%s'", part, mill_error_message());
}

MILL_TEST(catalog_lines_are_paths)
{
  static const char text[] = "# a comment\n\n/a/b.fits\r\nc [1].fits\n   \n*.fits\n"
                             "https://x/y.fits\n|cat z.fits\n#no\n ~d.fits";
  static const char *const relative[] = {"c [1].fits", "*.fits", "https://x/y.fits", "|cat z.fits",
                                         " ~d.fits"};
  mill_path_list list = {0};
  maker_save_bytes(path, text, sizeof text - 1);
  assert_int_equal(mill_catalog_list_read(path, &list), MILL_OK);
  assert_int_equal(list.n, 6);
  assert_string_equal(list.path[0], "/a/b.fits");
  for (size_t i = 0; i < 5; i++) {
    char expected[1200];
    snprintf(expected, sizeof expected, "%s/%s", folder, relative[i]);
    assert_string_equal(list.path[i + 1], expected);
  }
  mill_path_list_clear(&list);
}

MILL_TEST(refuses_bad_catalogs)
{
  mill_path_list list = {0};
  assert_fails(mill_catalog_list_read(path, &list), MILL_ERR_USAGE, "No such file");
  assert_fails(mill_catalog_list_read(folder, &list), MILL_ERR_USAGE, "folder");
  expect_list_error("", 0, "holds no path");
  expect_list_error("# only\n\n", 8, "holds no path");
  expect_list_error("/a\n/b\0c\n", 8, "line 2: holds a zero byte");
  char text[2000] = "/a\n";
  memset(text + 3, 'x', sizeof text - 3);
  expect_list_error(text, sizeof text, "line 2: the path has");
}

static void expect_ids(void)
{
  int64_t *id;
  size_t n;
  assert_ok(mill_target_id_file_read(path, &id, &n));
  assert_int_equal(n, 3);
  assert_true(id[0] == -4 && id[1] == 7 && id[2] == INT64_C(39633345008634465));
  mill_free(id);
}

MILL_TEST(reads_target_ids)
{
  static const char text[] = "# ids\n39633345008634465\r\n 7 \n\n-4\n7\n";
  maker_save_bytes(path, text, sizeof text - 1);
  expect_ids();
  static const int64_t id[4] = {39633345008634465, 7, -4, 7};
  fits_maker m = {0};
  maker_primary(&m);
  maker_table(&m, "ANY", 4, 1, (const maker_column[]){{"TARGETID", "K", id}});
  maker_save(&m, path);
  maker_clear(&m);
  expect_ids();
}

MILL_TEST(refuses_bad_target_ids)
{
  static const struct {
    const char *text, *part;
    int code;
  } bad[] = {{"1\ntwo\n", "line 2: 'two' is not a TARGETID", MILL_ERR_USAGE},
             {"1\n2.5\n", "line 2", MILL_ERR_USAGE},
             {"99999999999999999999\n", "line 1", MILL_ERR_USAGE},
             {"1 2\n", "line 1", MILL_ERR_USAGE},
             {"\n", "holds no TARGETID", MILL_ERR_USAGE},
             {"SIMPLE  = but not FITS", "file.fits", MILL_ERR_INPUT}};
  int64_t *id;
  size_t n;
  assert_int_equal(mill_target_id_file_read(path, &id, &n), MILL_ERR_USAGE);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    maker_save_bytes(path, bad[i].text, strlen(bad[i].text));
    assert_int_equal(mill_target_id_file_read(path, &id, &n), bad[i].code);
    assert_null(id);
    if (!strstr(mill_error_message(), bad[i].part) || !strstr(mill_error_message(), path))
      fail_msg("expected '%s', got '%s'", bad[i].part, mill_error_message());
  }
  static const int64_t value[1] = {1};
  fits_maker m = {0};
  maker_primary(&m);
  maker_table(&m, "ANY", 1, 1, (const maker_column[]){{"ID", "K", value}});
  maker_save(&m, path);
  maker_clear(&m);
  assert_fails(mill_target_id_file_read(path, &id, &n), MILL_ERR_INPUT, "no column TARGETID");
}

MILL_EACH_TEST_MAIN(make_folder, remove_folder)
