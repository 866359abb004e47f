/* SPDX-License-Identifier: BSD-3-Clause */

#include "io/catalog/input_table.h"
#include "kernels/base/error.h"
#include "tests/test_folder.h"

static char path[300];

static int begin(void **state)
{
  const int failed = make_folder(state);
  snprintf(path, sizeof path, "%s/file", folder);
  return failed;
}

static mill_input_entry entry(const char *name, const char *result, const char *time)
{
  mill_input_entry e = {.is_done = 1,
                        .size = 123,
                        .mtime = 1763900000.1234567,
                        .n_row = 5,
                        .n_fitted = 4,
                        .settings = "0123456789abcdef",
                        .result = result,
                        .path = name,
                        .reason = ""};
  snprintf(e.time, sizeof e.time, "%s", time);
  return e;
}

static mill_input_table *read_table(void)
{
  mill_input_table *table;
  assert_ok(mill_input_table_read(path, &table));
  return table;
}

MILL_TEST(what_is_written_is_read)
{
  mill_input_table *table = read_table(); /* there is none yet */
  assert_null(mill_input_table_find(table, "/a"));
  mill_input_table_free(table);
  mill_input_entry e[2] = {entry("/b c", "/r1", "t1"), entry("/a", "/r1", "t1")};
  e[1].is_done = 0;
  e[1].reason = "a tab\tand\nlines";
  e[1].redrock_size = 77;
  e[1].redrock_mtime = 0.1;
  assert_int_equal(mill_input_table_append(path, e, 2), MILL_OK);
  table = read_table();
  const mill_input_entry *got = mill_input_table_find(table, "/a");
  assert_non_null(got);
  assert_int_equal(got->is_done, 0);
  assert_string_equal(got->reason, "a tab and lines");
  assert_int_equal(got->redrock_size, 77);
  assert_true(got->redrock_mtime == 0.1);
  got = mill_input_table_find(table, "/b c");
  assert_int_equal(got->is_done, 1);
  assert_true(got->size == 123 && got->n_row == 5 && got->n_fitted == 4);
  assert_true(got->mtime == e[0].mtime); /* to the last bit: it is compared with the file's */
  assert_string_equal(got->settings, "0123456789abcdef");
  assert_string_equal(got->result, "/r1");
  assert_null(mill_input_table_find(table, "/b"));
  assert_int_equal(mill_input_table_has(table, "/r1", "/a"), 1);
  assert_int_equal(mill_input_table_has(table, "/r2", "/a"), 0);
  mill_input_table_free(table);
}

MILL_TEST(the_last_line_counts)
{
  const mill_input_entry first[] = {entry("/a", "/r1", "t1"), entry("/b", "/r1", "t1")};
  const mill_input_entry second[] = {entry("/a", "/r2", "t2")};
  const mill_input_entry again[] = {entry("/c", "/r1", "t3")};
  assert_int_equal(mill_input_table_append(path, first, 2), MILL_OK);
  assert_int_equal(mill_input_table_append(path, second, 1), MILL_OK);
  mill_input_table *table = read_table();
  assert_string_equal(mill_input_table_find(table, "/a")->result, "/r2");
  assert_string_equal(mill_input_table_find(table, "/b")->result, "/r1");
  mill_input_table_free(table);
  /* r1 is another result now, which b is not in */
  assert_int_equal(mill_input_table_append(path, again, 1), MILL_OK);
  table = read_table();
  assert_null(mill_input_table_find(table, "/b"));
  assert_non_null(mill_input_table_find(table, "/a"));
  assert_non_null(mill_input_table_find(table, "/c"));
  mill_input_table_free(table);
}

MILL_TEST(lines_that_are_none)
{
  const mill_input_entry e[] = {entry("/a", "/r", "t"), entry("/b", "/r", "t")};
  mill_input_table *table;
  char *text;
  assert_int_equal(mill_input_table_append(path, e, 2), MILL_OK);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  text = calloc(1, 4096);
  assert_non_null(text);
  const size_t n = fread(text, 1, 4095, file);
  fclose(file);
  /* the last line is cut, wherever: the one before it stays, and another one follows on its own */
  const size_t start = (size_t)(strstr(text, "/a\t") - text) + strlen("/a\t\n");
  for (size_t cut = start; cut < n; cut++) {
    save_file(path, text, cut);
    table = read_table();
    assert_non_null(mill_input_table_find(table, "/a"));
    assert_null(mill_input_table_find(table, "/b"));
    mill_input_table_free(table);
    assert_int_equal(mill_input_table_append(path, &e[1], 1), MILL_OK);
    table = read_table();
    assert_non_null(mill_input_table_find(table, "/b"));
    mill_input_table_free(table);
  }
  /* nothing else is read, or appended to */
  save_file(path, "mine\n", 5);
  assert_int_equal(mill_input_table_read(path, &table), MILL_ERR_USAGE);
  assert_null(table);
  assert_fails(mill_input_table_append(path, &e[1], 1), MILL_ERR_USAGE, "not a table of inputs");
  file = fopen(path, "r");
  assert_non_null(file);
  assert_int_equal(fread(text, 1, 4095, file), 5);
  fclose(file);
  free(text);
}

MILL_TEST(paths_that_have_no_room)
{
  assert_int_equal(mill_input_table_takes("/a b/c"), 1);
  assert_int_equal(mill_input_table_takes("/a\tb"), 0);
  assert_int_equal(mill_input_table_takes("/a\n"), 0);
  const mill_input_entry e = entry("/a", "/r", "t");
  assert_int_equal(mill_input_table_append(folder, &e, 1), MILL_ERR_USAGE);
}

MILL_EACH_TEST_MAIN(begin, remove_folder)
