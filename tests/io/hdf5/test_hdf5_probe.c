/* HDF5 files with every damage: whatever becomes of the child, this process lives. */
#include "tests/mill_test.h"

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <hdf5.h>
#include <mpi.h>

#include "io/hdf5/hdf5_probe.h"
#include "io/library/grid_file.h"
#include "io/library/library_file.h"
#include "io/catalog/start_table.h"
#include "kernels/base/error.h"
#include "tests/test_library.h"

enum {
  N_PIX = 16,     /* of an arm, so that most of a file is structure */
  N_ROW = 300,    /* of a table */
  N_DAMAGED = 24, /* of each kind; MILL_DAMAGED_FILES says how many else */
  MAX_BYTES = 1 << 20,
  LIMIT_S = 120
};

#define MUST(call)                                                                                 \
  do {                                                                                             \
    if ((call) != MILL_OK)                                                                         \
      fail_msg("%s: %s", #call, mill_error_message());                                             \
  } while (0)

static char folder[] = "/tmp/starmill-probe-XXXXXX";

static const char *in_folder(const char *name)
{
  static char path[256];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void put(const char *path, const void *bytes, size_t n)
{
  FILE *stream = fopen(path, "wb");
  assert_non_null(stream);
  assert_int_equal(fwrite(bytes, 1, n, stream), n);
  assert_int_equal(fclose(stream), 0);
}

static size_t get(const char *path, unsigned char *bytes)
{
  FILE *stream = fopen(path, "rb");
  assert_non_null(stream);
  const size_t n = fread(bytes, 1, MAX_BYTES, stream);
  fclose(stream);
  assert_in_range(n, 1, MAX_BYTES - 1);
  return n;
}

/* ---- files in order ---- */

static void make_library(int kind, const char *path)
{
  static mill_library lib;
  memset(&lib, 0, sizeof lib);
  MUST(test_library_make(3, 1, 7, &lib));
  if (kind == 1)
    MUST(test_library_to_grid(&lib));
  if (kind == 2)
    MUST(test_library_to_rbf(&lib));
  lib.arm[0].n_pix = N_PIX;
  lib.arm[0].emulator.n_out[lib.arm[0].emulator.n_layer - 1] = N_PIX;
  MUST(mill_library_write(path, &lib, 1));
  mill_library_clear(&lib);
}

static void put_column(hid_t file, const char *name, hid_t type, hid_t creation, const void *data)
{
  const hsize_t dim = N_ROW;
  const hid_t space = H5Screate_simple(1, &dim, NULL);
  const hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  assert_true(set >= 0 && H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
  H5Dclose(set);
  H5Sclose(space);
}

/* As a result that a user repacked: chunks, packed. */
static void make_table(const char *path)
{
  static const char *const name[] = {"fits/VRAD", "fits/VSINI", "fits/TEFF", "fits/LOGG",
                                     "fits/FEH"};
  int64_t id[N_ROW];
  double value[N_ROW];
  const hsize_t chunk = 64;
  for (int i = 0; i < N_ROW; i++) {
    id[i] = 1000 + i;
    value[i] = 10.0 + i;
  }
  const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  assert_true(file >= 0 && creation >= 0);
  H5Pset_chunk(creation, 1, &chunk);
  H5Pset_shuffle(creation);
  H5Pset_deflate(creation, 6);
  H5Gclose(H5Gcreate2(file, "fits", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  put_column(file, "fits/TARGETID", H5T_NATIVE_INT64, creation, id);
  for (int i = 0; i < 5; i++)
    put_column(file, name[i], H5T_NATIVE_DOUBLE, i % 2 ? creation : H5P_DEFAULT, value);
  H5Pclose(creation);
  assert_true(H5Fclose(file) >= 0);
}

static int read_table(const char *path)
{
  static mill_library lib;
  static const mill_fit_settings set;
  mill_start_table *table = NULL;
  memset(&lib, 0, sizeof lib);
  MUST(test_library_make(3, 1, 7, &lib));
  const int code = mill_start_table_read(path, &lib, &set, NULL, &table);
  mill_start_table_free(table);
  mill_library_clear(&lib);
  return code;
}

static int read_library(const char *path)
{
  static mill_library lib;
  const int code = mill_library_read(path, &lib);
  mill_library_clear(&lib);
  return code;
}

/* ---- tests ---- */

static void test_whole_files(void **state)
{
  (void)state;
  for (int kind = 0; kind < 3; kind++) {
    make_library(kind, in_folder("library.h5"));
    MUST(mill_h5_probe(MILL_PROBE_LIBRARY, in_folder("library.h5")));
    MUST(mill_h5_probe(MILL_PROBE_EMULATOR, in_folder("library.h5")));
    MUST(mill_h5_probe(MILL_PROBE_RESULT, in_folder("library.h5")));
  }
  make_table(in_folder("table.h5"));
  MUST(mill_h5_probe(MILL_PROBE_TABLE, in_folder("table.h5")));
  MUST(read_table(in_folder("table.h5")));
}

/* Brackets and such are names here as everywhere. */
static void test_names(void **state)
{
  (void)state;
  static const char *const name[] = {"a[1].h5", "(b).h5", "!c.h5",   "d|e.h5",
                                     "f g.h5",  "-",      "$(h).h5", "%s%n.h5"};
  for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
    make_library(0, in_folder(name[i]));
    MUST(mill_h5_probe(MILL_PROBE_LIBRARY, in_folder(name[i])));
  }
}

/* What is no HDF5 file is its reader's to tell. */
static void test_other_files(void **state)
{
  (void)state;
  put(in_folder("empty"), "", 0);
  put(in_folder("text"), "hello\n", 6);
  assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
  static const char *const name[] = {"nothing", "empty", "text", "pipe", "."};
  for (size_t i = 0; i < sizeof name / sizeof *name; i++)
    for (int kind = MILL_PROBE_LIBRARY; kind <= MILL_PROBE_RESULT; kind++)
      MUST(mill_h5_probe(kind, in_folder(name[i])));
}

/* A result that is continued is written, so it may not lead elsewhere; readers look themselves. */
static void test_other_storage(void **state)
{
  (void)state;
  const hsize_t dim = 100;
  make_table(in_folder("table.h5"));
  const hid_t file = H5Fopen(in_folder("table.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &dim, NULL);
  H5Pset_external(creation, "/etc/passwd", 0, 800);
  H5Dclose(
      H5Dcreate2(file, "fits/X", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, creation, H5P_DEFAULT));
  H5Sclose(space);
  H5Pclose(creation);
  assert_true(H5Fclose(file) >= 0);
  MUST(mill_h5_probe(MILL_PROBE_TABLE, in_folder("table.h5")));
  assert_int_equal(read_table(in_folder("table.h5")), MILL_ERR_CONFIG);
  assert_int_equal(mill_h5_probe(MILL_PROBE_RESULT, in_folder("table.h5")), MILL_ERR_OUTPUT);
  if (!strstr(mill_error_message(), "/fits/X") || !strstr(mill_error_message(), "--overwrite"))
    fail_msg("%s", mill_error_message());
}

/* main() below makes the child end as the file's name says. */
static void test_ends(void **state)
{
  (void)state;
  static const struct {
    const char *name, *part;
  } end[] = {{"segv", "signal 11"},
             {"abrt", "signal 6"},
             {"xcpu", "no end"},
             {"kill", "memory is short"},
             {"exit", "status 3"}};
  static const int code[] = {
      [MILL_PROBE_LIBRARY] = MILL_ERR_LIBRARY,  [MILL_PROBE_EMULATOR] = MILL_ERR_LIBRARY,
      [MILL_PROBE_TABLE] = MILL_ERR_CONFIG,     [MILL_PROBE_GRID] = MILL_ERR_INPUT,
      [MILL_PROBE_PARTICLES] = MILL_ERR_CONFIG, [MILL_PROBE_CATALOG] = MILL_ERR_INPUT,
      [MILL_PROBE_RESULT] = MILL_ERR_OUTPUT};
  for (size_t i = 0; i < sizeof end / sizeof *end; i++)
    for (int kind = MILL_PROBE_LIBRARY; kind <= MILL_PROBE_RESULT; kind++) {
      make_table(in_folder(end[i].name));
      assert_int_equal(mill_h5_probe(kind, in_folder(end[i].name)), code[kind]);
      if (!strstr(mill_error_message(), end[i].part) ||
          !strstr(mill_error_message(), in_folder(end[i].name)))
        fail_msg("'%s' does not name %s", mill_error_message(), end[i].part);
    }
  assert_non_null(strstr(mill_error_message(), "--overwrite"));
  /* where the program cannot be loaded again the file is read without a trial */
  make_table(in_folder("load"));
  MUST(mill_h5_probe(MILL_PROBE_TABLE, in_folder("load")));
}

/* ---- damage ---- */

static uint64_t random_below(uint64_t *state, uint64_t n)
{
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return (*state * 0x2545F4914F6CDD1Dull >> 16) % n;
}

/* As disks, interrupted copies and malice do; returns the new size. */
static size_t damage(unsigned char *bytes, size_t n, uint64_t seed)
{
  uint64_t state = 0x9E3779B97F4A7C15ull * (seed + 1);
  const int n_place = 1 + (int)random_below(&state, 4);
  for (int i = 0; i < n_place; i++) {
    const size_t at = random_below(&state, n);
    size_t length = 1 + random_below(&state, 8);
    switch (random_below(&state, 6)) {
    case 0:
      bytes[at] ^= (unsigned char)(1 << random_below(&state, 8));
      break;
    case 1: /* a length or an address */
      for (size_t k = at; k < n && k < at + length; k++)
        bytes[k] = (unsigned char)random_below(&state, 256);
      break;
    case 2:
      memset(bytes + at / 8 * 8, random_below(&state, 2) ? 0xff : 0, n - at / 8 * 8 < 8 ? 1 : 8);
      break;
    case 3:
      length = 1 + random_below(&state, 600);
      memset(bytes + at, 0, n - at < length ? n - at : length);
      break;
    case 4: {
      const size_t from = random_below(&state, n);
      length = 1 + random_below(&state, 300);
      for (size_t k = 0; k < length && at + k < n && from + k < n; k++)
        bytes[at + k] = bytes[from + k];
      break;
    }
    default:
      if (random_below(&state, 4) == 0 && at > 0)
        return at;
      bytes[at] = (unsigned char)random_below(&state, 256);
    }
  }
  return n;
}

static int how_many(void)
{
  const char *text = getenv("MILL_DAMAGED_FILES");
  return text ? atoi(text) : N_DAMAGED;
}

/* Children may die; what they read to its end must be read here too, or be refused. */
static void damaged(int kind, const char *name, int (*read)(const char *path), int code)
{
  static unsigned char whole[MAX_BYTES], bytes[MAX_BYTES];
  const size_t n_whole = get(in_folder("whole"), whole);
  int n_died = 0, n_refused = 0, n_read = 0;
  double longest_s = 0.0;
  for (int i = 0; i < how_many(); i++) {
    memcpy(bytes, whole, n_whole);
    const size_t n = damage(bytes, n_whole, (uint64_t)i);
    put(in_folder("damaged"), bytes, n);
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    mill_error_clear();
    int found = mill_h5_probe(kind, in_folder("damaged"));
    const int died = found != MILL_OK && strstr(mill_error_message(), "a process that read it");
    if (found == MILL_OK)
      found = read(in_folder("damaged"));
    clock_gettime(CLOCK_MONOTONIC, &end);
    const double s =
        (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    longest_s = s > longest_s ? s : longest_s;
    if (found != MILL_OK && found != code && found != MILL_ERR_MEMORY)
      fail_msg("%s %d: code %d: %s", name, i, found, mill_error_message());
    n_died += died;
    n_refused += !died && found != MILL_OK;
    n_read += found == MILL_OK;
  }
  printf("%s: %d damaged files: %d children died, %d refused, %d read; longest %.2f s\n", name,
         how_many(), n_died, n_refused, n_read, longest_s);
  fflush(stdout);
  assert_true(longest_s < LIMIT_S);
  assert_true(n_died + n_refused > how_many() / 4); /* else nothing was damaged */
}

static void test_damaged_libraries(void **state)
{
  (void)state;
  static const char *const name[] = {"perceptron", "grid", "radial functions"};
  for (int kind = 0; kind < 3; kind++) {
    make_library(kind, in_folder("whole"));
    damaged(MILL_PROBE_LIBRARY, name[kind], read_library, MILL_ERR_LIBRARY);
  }
}

static void test_damaged_tables(void **state)
{
  (void)state;
  make_table(in_folder("whole"));
  damaged(MILL_PROBE_TABLE, "table", read_table, MILL_ERR_CONFIG);
}

static int read_grid(const char *path)
{
  static float flux[6 * N_PIX];
  const int model[6] = {5, 3, 4, 0, 1, 2};
  mill_grid_file *file = NULL;
  mill_grid_info info = {0};
  char *settings = NULL;
  int err = mill_grid_open(path, &file, &info);
  for (int a = 0; a < info.n_arm && err == MILL_OK; a++)
    if (info.arm[a].n_pix == N_PIX && info.n_model == 6)
      err = mill_grid_read(file, a, 6, model, flux, NULL);
  if (err == MILL_OK)
    err = mill_grid_read_settings(file, &settings);
  mill_free(settings);
  mill_grid_close(file);
  mill_grid_info_clear(&info);
  return err;
}

/* It is written by MPI's driver, which a process needs MPI for. */
static void test_damaged_grids(void **state)
{
  (void)state;
  double value[12];
  char name[6][MILL_GRID_NAME] = {"a", "b", "c", "d", "e", "f"};
  mill_grid_info info = {.n_model = 6, .n_label = 2, .n_arm = 2, .value = value, .name = name};
  for (int i = 0; i < 12; i++)
    value[i] = i;
  snprintf(info.label[0], sizeof info.label[0], "teff");
  snprintf(info.label[1], sizeof info.label[1], "logg");
  info.arm[0] = (mill_grid_arm){"b", N_PIX, 8, 1e-4, 0.5, "made", 0};
  info.arm[1] = (mill_grid_arm){"r", N_PIX, 8, 1e-4, 0.5, "made", 1};
  assert_int_equal(MPI_Init(NULL, NULL), MPI_SUCCESS);
  MUST(mill_grid_create(in_folder("whole"), &info, NULL, "made\n"));
  damaged(MILL_PROBE_GRID, "spectra", read_grid, MILL_ERR_INPUT);
  assert_int_equal(MPI_Finalize(), MPI_SUCCESS);
}

static int make_folder(void **state)
{
  (void)state;
  return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
  char call[64];
  (void)state;
  snprintf(call, sizeof call, "rm -rf %s", folder);
  return system(call);
}

/* As the child, called with a file of such a name. */
static void end_as_told(int argc, char **argv)
{
  if (argc != 4 || strcmp(argv[1], "probe") != 0)
    return;
  const char *name = strrchr(argv[3], '/');
  if (strcmp(name, "/segv") == 0)
    signal(SIGSEGV, SIG_DFL), raise(SIGSEGV);
  if (strcmp(name, "/abrt") == 0)
    raise(SIGABRT);
  if (strcmp(name, "/xcpu") == 0)
    raise(SIGXCPU);
  if (strcmp(name, "/kill") == 0)
    raise(SIGKILL);
  if (strcmp(name, "/exit") == 0)
    _exit(3);
  if (strcmp(name, "/load") == 0)
    _exit(127);
}

int main(int argc, char **argv)
{
  end_as_told(argc, argv);
  mill_h5_probe_main(argc, argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_whole_files),
      cmocka_unit_test(test_names),
      cmocka_unit_test(test_other_files),
      cmocka_unit_test(test_other_storage),
      cmocka_unit_test(test_ends),
      cmocka_unit_test(test_damaged_libraries),
      cmocka_unit_test(test_damaged_tables),
      cmocka_unit_test(test_damaged_grids), /* the last: MPI ends with it */
  };
  return cmocka_run_group_tests_name("io/hdf5_probe", tests, make_folder, remove_folder);
}
