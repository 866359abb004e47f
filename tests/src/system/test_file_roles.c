/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of a command that are one file, and what is no file. */
#include "tests/test_folder.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "kernels/base/error.h"
#include "src/system/file_roles.h"
#include "src/system/regular_file.h"

static int enter_folder(void **state)
{
  return make_folder(state) == 0 && chdir(folder) == 0 && mkdir("sub", 0755) == 0 ? 0 : -1;
}

static void make_file(const char *path)
{
  const int fd = open(path, O_WRONLY | O_CREAT, 0644);
  assert_true(fd >= 0);
  close(fd);
}

/* The message names both, with their options. */
static void assert_refused(int err, const char *a, const char *b)
{
  assert_fails(err, MILL_ERR_USAGE, a);
  assert_says(b);
}

MILL_TEST(names_of_files_that_are_not_there)
{
  char whole[300];
  mill_file_roles roles = {0};
  snprintf(whole, sizeof whole, "%s/new.h5", folder);
  assert_int_equal(mill_file_roles_write(&roles, "--output", "new.h5"), MILL_OK);
  assert_int_equal(mill_file_roles_write(&roles, "--models", NULL), MILL_OK);
  assert_int_equal(mill_file_roles_write(&roles, "--log", "sub/new.h5"), MILL_OK);
  assert_int_equal(mill_file_roles_write(&roles, "--status", "new.h5.status.json"), MILL_OK);
  assert_int_equal(roles.n, 3);
  assert_refused(mill_file_roles_write(&roles, "--stop-file", "new.h5"), "--stop-file new.h5",
                 "--output new.h5");
  assert_refused(mill_file_roles_write(&roles, "--stop-file", "sub/../new.h5"), "--stop-file",
                 "--output");
  assert_refused(mill_file_roles_read(&roles, "the input", whole), whole, "--output new.h5");
  assert_refused(mill_file_roles_write(&roles, "--stop-file", ""), "--stop-file", "empty");
  assert_int_equal(mill_file_roles_read(&roles, "the input", "nowhere/new.h5"), MILL_OK);
  assert_int_equal(mill_file_roles_read(&roles, "the input", NULL), MILL_OK);
}

MILL_TEST(links)
{
  make_file("one.h5");
  assert_int_equal(symlink("one.h5", "soft.h5"), 0);
  assert_int_equal(link("one.h5", "sub/hard.h5"), 0);
  assert_int_equal(symlink("../later.h5", "sub/dangling.h5"), 0);
  mill_file_roles roles = {0};
  assert_int_equal(mill_file_roles_write(&roles, "--output", "soft.h5"), MILL_OK);
  assert_int_equal(mill_file_roles_write(&roles, "--models", "sub/dangling.h5"), MILL_OK);
  assert_refused(mill_file_roles_read(&roles, "the input", "one.h5"), "one.h5", "--output soft.h5");
  assert_refused(mill_file_roles_read(&roles, "the input", "sub/hard.h5"), "hard.h5", "--output");
  assert_refused(mill_file_roles_write(&roles, "--log", "later.h5"), "--log", "--models");
}

MILL_TEST(names_beside_a_written_file)
{
  mill_file_roles roles = {0};
  assert_int_equal(mill_file_roles_write(&roles, "--output", "out.h5"), MILL_OK);
  assert_refused(mill_file_roles_write(&roles, "--log", "out.h5.lock"), "out.h5.lock", "--output");
  assert_refused(mill_file_roles_read(&roles, "the input", "out.h5.tmp"), "the input", "--output");
  assert_refused(mill_file_roles_read(&roles, "the input", "out.h5.tmp-12"), "tmp-12", "--output");
  assert_int_equal(mill_file_roles_write(&roles, "--log", "out.h5.log"), MILL_OK);
  /* whichever is named first */
  memset(&roles, 0, sizeof roles);
  assert_int_equal(mill_file_roles_write(&roles, "--log", "out.h5.lock"), MILL_OK);
  assert_refused(mill_file_roles_write(&roles, "--output", "out.h5"), "out.h5.lock", "--output");
}

MILL_TEST(a_file_that_was_looked_at)
{
  struct stat status;
  make_file("known.h5");
  make_file("lie.h5.tmp-1");
  assert_int_equal(stat("known.h5", &status), 0);
  const uint64_t device = (uint64_t)status.st_dev, inode = (uint64_t)status.st_ino;
  mill_file_roles roles = {0};
  assert_int_equal(mill_file_roles_write(&roles, "--output", "known.h5"), MILL_OK);
  assert_int_equal(mill_file_roles_write(&roles, "--models", "lie.h5"), MILL_OK);
  assert_refused(mill_file_roles_read_known(&roles, "the input", "a.fits", 1, device, inode),
                 "a.fits", "--output known.h5");
  assert_int_equal(mill_file_roles_read_known(&roles, "the input", "a.fits", 0, device, inode),
                   MILL_OK);
  assert_int_equal(mill_file_roles_read_known(&roles, "the input", "a.fits", 1, device, inode + 1),
                   MILL_OK);
  assert_refused(
      mill_file_roles_read_known(&roles, "the input", "lie.h5.tmp-1", 1, device, inode + 1),
      "the input", "--models");
}

MILL_TEST(ends_of_links)
{
  char out[64];
  assert_int_equal(mill_resolve_links("plain.h5", out, sizeof out), MILL_OK);
  assert_string_equal(out, "plain.h5");
  assert_int_equal(symlink("sub/b.h5", "a.h5"), 0);
  assert_int_equal(symlink("c.h5", "sub/b.h5"), 0);
  assert_int_equal(mill_resolve_links("a.h5", out, sizeof out), MILL_OK);
  assert_string_equal(out, "sub/c.h5");
  assert_int_equal(mill_resolve_links("a.h5", out, 8), MILL_ERR_OUTPUT);
  assert_int_equal(symlink("circle.h5", "circle.h5"), 0);
  assert_int_equal(mill_resolve_links("circle.h5", out, sizeof out), MILL_ERR_OUTPUT);
}

/* Without a writer to come, opening one in the usual way would never return. */
MILL_TEST(only_regular_files_are_read)
{
  int fd = 7;
  FILE *stream = NULL;
  assert_int_equal(mkfifo("pipe", 0644), 0);
  const struct {
    const char *path, *says;
  } bad[] = {{"pipe", "a pipe or device"},
             {"/dev/null", "a pipe or device"},
             {"sub", "a folder"},
             {"nowhere", "No such file"}};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    assert_int_equal(mill_regular_open(bad[i].path, "a list", MILL_ERR_CONFIG, &fd),
                     MILL_ERR_CONFIG);
    assert_int_equal(fd, -1);
    assert_says(bad[i].says);
    assert_int_equal(mill_regular_stream(bad[i].path, "a list", MILL_ERR_INPUT, &stream),
                     MILL_ERR_INPUT);
    assert_null(stream);
  }
  make_file("good");
  assert_int_equal(mill_regular_stream("good", "a list", MILL_ERR_INPUT, &stream), MILL_OK);
  assert_int_equal(fgetc(stream), EOF);
  fclose(stream);
}

MILL_TEST(data_are_no_log)
{
  static const struct {
    const char *text;
    int code;
  } file[] = {{"SIMPLE  =                    T", MILL_ERR_USAGE},
              {"\x1f\x8b\x08 and more of a gzip file", MILL_ERR_USAGE},
              {"\x89HDF\r\n\x1a\n and more of it", MILL_ERR_USAGE},
              {"2026-11-21T07:01:19Z rank 0 INFO", MILL_OK},
              {"", MILL_OK}};
  for (size_t i = 0; i < sizeof file / sizeof file[0]; i++) {
    FILE *out = fopen("a.log", "w");
    assert_non_null(out);
    fputs(file[i].text, out);
    fclose(out);
    assert_int_equal(mill_refuse_data("a.log", "--log"), file[i].code);
  }
  assert_int_equal(mill_refuse_data("nowhere", "--log"), MILL_OK);
  assert_int_equal(mill_refuse_data("/dev/zero", "--log"), MILL_OK);
}

MILL_TEST_MAIN(enter_folder, remove_folder)
