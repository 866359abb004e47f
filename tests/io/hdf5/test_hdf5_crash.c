/* SPDX-License-Identifier: BSD-3-Clause */
/* HDF5 files with every damage: a reader ends with its error, or the process with its exit status
 * and a message that names the file. */
#include "tests/test_folder.h"

#include <signal.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <hdf5.h>

#include "io/catalog/start_table.h"
#include "io/hdf5/hdf5_crash.h"
#include "io/hdf5/hdf5_util.h"
#include "io/library/library_file.h"
#include "kernels/base/error.h"
#include "src/system/random.h"
#include "tests/io/result_maker.h"
#include "tests/test_library.h"

enum {
  N_PIX = 16,     /* of an arm, so that most of a file is structure */
  N_ROW = 300,    /* of a table */
  N_DAMAGED = 24, /* of each kind; MILL_DAMAGED_FILES says how many else */
  MAX_BYTES = 1 << 20,
  LIMIT_S = 60,
  TABLE = 3 /* kinds 0 to 2 are libraries */
};

static size_t get(const char *path, void *bytes)
{
  FILE *stream = fopen(path, "rb");
  assert_non_null(stream);
  const size_t n = fread(bytes, 1, MAX_BYTES, stream);
  fclose(stream);
  return n;
}

static void make_library(int kind, const char *path)
{
  static mill_library lib;
  memset(&lib, 0, sizeof lib);
  assert_ok(test_library_make(3, 1, 7, &lib));
  if (kind == 1)
    assert_ok(test_library_to_grid(&lib));
  if (kind == 2)
    assert_ok(test_library_to_rbf(&lib));
  lib.arm[0].n_pix = N_PIX;
  lib.arm[0].emulator.n_out[lib.arm[0].emulator.n_layer - 1] = N_PIX;
  assert_ok(mill_library_write(path, &lib, 1));
  mill_library_clear(&lib);
}

/* As a result that a user repacked: chunks, packed. */
static void make_table(const char *path)
{
  int64_t id[N_ROW];
  int32_t info[N_ROW] = {0};
  double value[N_ROW];
  char object[N_ROW][4] = {{0}};
  const hsize_t chunk = 64;
  for (int i = 0; i < N_ROW; i++) {
    id[i] = 1000 + i;
    value[i] = 10.0 + i;
  }
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE), text = mill_ph5_text_type(4);
  assert_true(creation >= 0);
  H5Pset_chunk(creation, 1, &chunk);
  H5Pset_shuffle(creation);
  H5Pset_deflate(creation, 6);
  const maker_dataset data[] = {
      {"fits/TARGETID", H5T_STD_I64LE, id},   {"fits/VRAD", H5T_IEEE_F64LE, value},
      {"fits/VSINI", H5T_IEEE_F64LE, value},  {"fits/TEFF", H5T_IEEE_F64LE, value},
      {"fits/LOGG", H5T_IEEE_F64LE, value},   {"fits/FEH", H5T_IEEE_F64LE, value},
      {"fits/FIT_INFO", H5T_STD_I32LE, info}, {"catalog/OBJECT", text, object}};
  maker_result(path, creation, N_ROW, sizeof data / sizeof *data, data, NULL);
  H5Pclose(creation);
  H5Tclose(text);
}

static int read_file(int kind, const char *path)
{
  static mill_library lib;
  static const mill_fit_settings set;
  mill_start_table *table = NULL;
  int code;
  memset(&lib, 0, sizeof lib);
  if (kind < TABLE) {
    code = mill_library_read(path, &lib);
  } else {
    assert_ok(test_library_make(3, 1, 7, &lib));
    code = mill_start_table_read(path, &lib, &set, NULL, &table);
    mill_start_table_free(table);
  }
  mill_library_clear(&lib);
  return code;
}

/* A result that is continued is written, so it may not lead elsewhere; readers look themselves. */
MILL_TEST(other_storage)
{
  const hsize_t dim = 100;
  const char *path = in_folder("table.h5");
  make_table(path);
  assert_ok(mill_h5_check_output(path));
  const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &dim, NULL);
  H5Pset_external(creation, "/etc/passwd", 0, 800);
  H5Dclose(
      H5Dcreate2(file, "fits/X", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, creation, H5P_DEFAULT));
  H5Sclose(space);
  H5Pclose(creation);
  assert_true(H5Fclose(file) >= 0);
  assert_int_equal(read_file(TABLE, path), MILL_ERR_CONFIG);
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
  make_table(in_folder("other.h5"));
  snprintf(path, sizeof path, "%s", in_folder("table.h5"));
  make_table(path);
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

/* ---- damage ---- */

/* As disks, interrupted copies and malice do: up to four runs of zeros, ones, other bytes or bytes
 * of another place, or a cut; returns the new size. */
static size_t damage(unsigned char *bytes, size_t n, uint64_t seed)
{
  mill_random random;
  mill_random_begin(&random, seed, 0, 1);
  for (int i = 1 + (int)(mill_random_word(&random) % 4); i > 0; i--) {
    const size_t at = mill_random_word(&random) % n, from = mill_random_word(&random) % n;
    const uint32_t kind = mill_random_word(&random) % 5;
    const size_t length = 1 + mill_random_word(&random) % (mill_random_word(&random) % 2 ? 8 : 600);
    if (kind == 4 && at > 0 && mill_random_word(&random) % 4 == 0)
      return at;
    for (size_t k = 0; k < length && at + k < n && from + k < n; k++)
      bytes[at + k] = kind == 0   ? 0
                      : kind == 1 ? 0xff
                      : kind == 2 ? bytes[from + k]
                                  : (unsigned char)mill_random_word(&random);
  }
  return n;
}

static void read_to_exit(int kind, const char *path)
{
  const int code = read_file(kind, path);
  if (code != MILL_OK)
    fprintf(stderr, "%s", mill_error_message());
  fflush(stderr);
  _exit(code == MILL_ERR_MEMORY ? 2 : mill_error_exit_status(code));
}

/* The reader refuses a damaged file, reads it, or crashes and names it. */
MILL_TEST(damaged)
{
  static const char *const name[] = {"perceptron", "grid", "radial functions", "table"};
  static unsigned char whole[MAX_BYTES], bytes[MAX_BYTES];
  static char said[MAX_BYTES];
  char path[512];
  const char *text = getenv("MILL_DAMAGED_FILES");
  const int n_file = text ? atoi(text) : N_DAMAGED;
  snprintf(path, sizeof path, "%s", in_folder("damaged"));
  for (int kind = 0; kind <= TABLE; kind++) {
    int n_crashed = 0, n_refused = 0;
    (kind < TABLE ? make_library(kind, in_folder("whole")) : make_table(in_folder("whole")));
    const size_t n_whole = get(in_folder("whole"), whole);
    for (int i = 0; i < n_file; i++) {
      memcpy(bytes, whole, n_whole);
      save_file(path, bytes, damage(bytes, n_whole, (uint64_t)i));
      const int status = status_of_child(read_to_exit, kind, path, said);
      if (!WIFEXITED(status) ||
          (WEXITSTATUS(status) != 0 && (WEXITSTATUS(status) != 2 || !strstr(said, path))))
        fail_msg("%s %d: status %x: %s", name[kind], i, (unsigned)status, said);
      const int crashed = strstr(said, "the process died") != NULL;
      n_crashed += crashed;
      n_refused += !crashed && WEXITSTATUS(status) != 0;
    }
    printf("%s: %d damaged files: %d crashed HDF5, %d were refused\n", name[kind], n_file,
           n_crashed, n_refused);
    fflush(stdout);
    assert_true(n_crashed + n_refused > n_file / 4); /* else nothing was damaged */
  }
}

MILL_TEST_MAIN(make_folder, remove_folder)
