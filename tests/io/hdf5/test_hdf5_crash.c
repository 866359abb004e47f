/* SPDX-License-Identifier: BSD-3-Clause */
/* What a process says that dies of an HDF5 file, and files that lead elsewhere; e2e/test_hostile_files.py
 * has damaged ones. */
#include "tests/test_folder.h"

#include <signal.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <hdf5.h>

#include "io/hdf5/hdf5_crash.h"
#include "io/hdf5/hdf5_util.h"
#include "kernels/base/error.h"

enum { MAX_BYTES = 1 << 20, LIMIT_S = 60 };

static size_t get(const char *path, void *bytes)
{
  FILE *stream = fopen(path, "rb");
  assert_non_null(stream);
  const size_t n = fread(bytes, 1, MAX_BYTES, stream);
  fclose(stream);
  return n;
}

static void make_file(const char *path)
{
  const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t group = H5Gcreate2(file, "fits", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(file >= 0 && H5Gclose(group) >= 0 && H5Fclose(file) >= 0);
}

/* A result that is continued is written, so it may not lead elsewhere; readers look themselves. */
MILL_TEST(other_storage)
{
  const hsize_t dim = 100;
  const char *path = in_folder("table.h5");
  make_file(path);
  assert_ok(mill_h5_check_output(path));
  const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &dim, NULL);
  H5Pset_external(creation, "/etc/passwd", 0, 800);
  H5Dclose(
      H5Dcreate2(file, "fits/X", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, creation, H5P_DEFAULT));
  H5Sclose(space);
  H5Pclose(creation);
  assert_true(H5Fclose(file) >= 0);
  assert_int_equal(mill_h5_check_output(path), MILL_ERR_OUTPUT);
  if (!strstr(mill_error_message(), "/fits/X") || !strstr(mill_error_message(), "--overwrite"))
    fail_msg("%s", mill_error_message());
}

/* What is no HDF5 file is its reader's to tell. */
MILL_TEST(other_files)
{
  save_file(in_folder("empty"), "", 0);
  save_file(in_folder("text"), "hello\n", 6);
  assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
  static const char *const name[] = {"nothing", "empty", "text", "pipe", "."};
  for (size_t i = 0; i < sizeof name / sizeof *name; i++)
    assert_ok(mill_h5_check_output(in_folder(name[i])));
}

static const int end_signal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT};

/* What a child of this process does with a file, and what it says on stderr: its wait status. */
static int status_of_child(void (*act)(int kind, const char *path), int kind, const char *path,
                           char *said)
{
  int status = -1;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    for (int i = 0; i < 4; i++) /* in place of cmocka's */
      signal(end_signal[i], SIG_DFL);
    mill_h5_name_crashes();
    if (!freopen(in_folder("said"), "w", stderr))
      _exit(99);
    alarm(LIMIT_S);
    act(kind, path);
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  said[get(in_folder("said"), said)] = '\0';
  return status;
}

/* ---- what a crash says ---- */

/* Another file was opened after it, and closed. */
static void crash_with_file(int kind, const char *path)
{
  mill_h5_file first, second;
  if (mill_h5_open(path, kind % 2 ? MILL_ERR_OUTPUT : MILL_ERR_LIBRARY, &first) != MILL_OK ||
      mill_h5_open(in_folder("other.h5"), MILL_ERR_INPUT, &second) != MILL_OK)
    _exit(99);
  mill_h5_close(&second);
  raise(end_signal[kind / 2]);
}

/* Nothing is open: as without a handler; a sanitizer has an exit status of its own. */
static void crash_alone(int kind, const char *path)
{
  mill_h5_file file;
  if (mill_h5_open(path, MILL_ERR_LIBRARY, &file) != MILL_OK)
    _exit(99);
  mill_h5_close(&file);
  raise(end_signal[kind]);
}

MILL_TEST(crashes)
{
  static char said[MAX_BYTES];
  char path[512];
  make_file(in_folder("other.h5"));
  snprintf(path, sizeof path, "%s", in_folder("table.h5"));
  make_file(path);
  for (int kind = 0; kind < 8; kind++) {
    const int status = status_of_child(crash_with_file, kind, path, said);
    char number[16];
    snprintf(number, sizeof number, "signal %d", end_signal[kind / 2]);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != (kind % 2 ? 4 : 2) || !strstr(said, path) ||
        !strstr(said, number) || !strstr(said, kind % 2 ? "--overwrite" : "make or fetch it again"))
      fail_msg("status %x: %s", (unsigned)status, said);
  }
  for (int kind = 0; kind < 4; kind++) {
    const int status = status_of_child(crash_alone, kind, path, said);
    if (strstr(said, path) ||
        (WIFSIGNALED(status) ? WTERMSIG(status) != end_signal[kind]
                             : WEXITSTATUS(status) < 5 || WEXITSTATUS(status) == 99))
      fail_msg("status %x: %s", (unsigned)status, said);
  }
}

MILL_TEST_MAIN(make_folder, remove_folder)
