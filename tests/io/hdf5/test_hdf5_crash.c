/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests of the message that a process prints when an HDF5 file crashes it, and of results that link
 * to other files.  e2e/test_hostile_files.py tests damaged files. */
#include "tests/test_folder.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "io/hdf5/hdf5_crash.h"
#include "io/hdf5/hdf5_util.h"
#include "src/system/thread.h"

enum { MAX_BYTES = 1 << 20, LIMIT_S = 60 };

static void make_file(const char *path)
{
  const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t group = H5Gcreate2(file, "fits", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(file >= 0 && H5Gclose(group) >= 0 && H5Fclose(file) >= 0);
}

/* A run that continues a result writes to it.  So the result must not keep data in other files. */
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
  assert_fails(mill_h5_check_output(path), MILL_ERR_OUTPUT, "/fits/X");
  assert_says("--overwrite");
}

/* The check accepts files that are no HDF5 files: their reader refuses them. */
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

static int signal_of(int kind)
{
  return end_signal[kind < 8 ? kind / 2 : kind - 8];
}

/* Crash while table.h5 is open, after other.h5 was closed.  kind >= 8: table.h5 is closed, too. */
static void *crash(void *context)
{
  const int kind = *(int *)context;
  mill_h5_file first, second;
  if (mill_h5_open(in_folder("table.h5"), kind % 2 ? MILL_ERR_OUTPUT : MILL_ERR_LIBRARY, &first) !=
          MILL_OK ||
      mill_h5_open(in_folder("other.h5"), MILL_ERR_INPUT, &second) != MILL_OK)
    _exit(99);
  mill_h5_close(&second);
  if (kind >= 8)
    mill_h5_close(&first);
  raise(signal_of(kind));
  return NULL;
}

/* Status of a child that crashes in a thread; said: its standard error. */
static int status_of_child(int kind, char *said)
{
  int status = -1;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    pthread_t thread;
    for (int i = 0; i < 4; i++) /* in place of cmocka's */
      signal(end_signal[i], SIG_DFL);
    mill_h5_name_crashes();
    if (!freopen(in_folder("said"), "w", stderr) || mill_thread_start(&thread, crash, &kind) != 0)
      _exit(99);
    alarm(LIMIT_S);
    pthread_join(thread, NULL);
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  FILE *stream = fopen(in_folder("said"), "rb");
  assert_non_null(stream);
  said[fread(said, 1, MAX_BYTES - 1, stream)] = '\0';
  fclose(stream);
  return status;
}

MILL_TEST(crashes)
{
  static char said[MAX_BYTES];
  make_file(in_folder("other.h5"));
  make_file(in_folder("table.h5"));
  for (int kind = 0; kind < 12; kind++) {
    const int status = status_of_child(kind, said), number = signal_of(kind);
    char text[16];
    snprintf(text, sizeof text, "signal %d", number);
    int is_right = strstr(said, text) != NULL;
    if (kind < 8)
      is_right &= WIFEXITED(status) && WEXITSTATUS(status) == (kind % 2 ? 4 : 2) &&
                  strstr(said, "table.h5") &&
                  strstr(said, kind % 2 ? "--overwrite" : "make or fetch it again");
    else /* as without a handler; a sanitizer has an exit status of its own */
      is_right &= !strstr(said, "table.h5") && strstr(said, "test_io_hdf5_hdf5_crash") &&
                  (WIFSIGNALED(status) ? WTERMSIG(status) == number
                                       : WEXITSTATUS(status) >= 5 && WEXITSTATUS(status) != 99);
    if (!is_right)
      fail_msg("status %x: %s", (unsigned)status, said);
  }
}

MILL_TEST_MAIN(make_folder, remove_folder)
