/* SPDX-License-Identifier: BSD-3-Clause */
/* The grid file: what is written by several ranks, in two runs, is read by each. */
#include "tests/mill_test.h"

#include <string.h>

#include <hdf5.h>
#include <mpi.h>

#include "io/hdf5/hdf5_util.h"
#include "io/library/grid_file.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"

enum { N_MODEL = 11, N_LABEL = 2 };

static int rank, n_rank;
static char path[256];

static float flux_of(int model, int arm, int pixel)
{
  return (float)(1 + model) + 0.001F * (float)pixel + 100 * (float)arm;
}

static void make_info(mill_grid_info *info)
{
  *info = (mill_grid_info){.n_model = N_MODEL, .n_label = N_LABEL, .n_arm = 2};
  strcpy(info->label[0], "teff");
  strcpy(info->label[1], "logg");
  info->arm[0] = (mill_grid_arm){"b", 40, 8.2, 1e-4, 0.5, "asked for", 1};
  info->arm[1] = (mill_grid_arm){"r", 33, 8.7, 1.2e-4, -1, "the instrument's", 0};
  assert_ok(MILL_ALLOC(N_MODEL * N_LABEL, &info->value));
  assert_ok(MILL_ALLOC(N_MODEL, &info->name));
  assert_ok(MILL_ALLOC(N_MODEL, &info->stamp));
  for (int i = 0; i < N_MODEL; i++) {
    info->value[2 * i] = 4000 + 100 * i;
    info->value[2 * i + 1] = 0.5 * i;
    info->stamp[i] = UINT64_MAX - (uint64_t)i;
    snprintf(info->name[i], MILL_GRID_NAME, "model%d.fits", i);
  }
}

/* Models first, first + 1, ... last - 1 of which each rank has its own; 5 is bad. */
static void write_models(const mill_grid_info *info, int first, int last)
{
  mill_grid_writer *writer = NULL;
  float *flux[2], *continuum[2] = {NULL, NULL};
  int model[N_MODEL], n = 0;
  unsigned char status[N_MODEL];
  char why[N_MODEL][MILL_GRID_WHY] = {{0}};
  assert_ok(mill_grid_writer_open(path, info, MPI_COMM_WORLD, &writer));
  for (int a = 0; a < 2; a++)
    assert_ok(MILL_ALLOC(N_MODEL * info->arm[a].n_pix, &flux[a]));
  assert_ok(MILL_ALLOC(N_MODEL * info->arm[0].n_pix, &continuum[0]));
  for (int i = first; i < last; i++) {
    if (i % n_rank != rank)
      continue;
    for (int a = 0; a < 2; a++)
      for (int p = 0; p < info->arm[a].n_pix; p++)
        flux[a][n * info->arm[a].n_pix + p] = flux_of(i, a, p);
    for (int p = 0; p < info->arm[0].n_pix; p++)
      continuum[0][n * info->arm[0].n_pix + p] = 2 * flux_of(i, 0, p);
    status[n] = i == 5 ? MILL_GRID_BAD : MILL_GRID_GOOD;
    if (i == 5)
      strcpy(why[n], "is zero");
    model[n++] = i;
  }
  assert_ok(mill_grid_write(writer, n, model, (const float *const *)flux,
                            (const float *const *)continuum, status, why));
  assert_ok(mill_grid_writer_close(writer, MILL_OK));
  MILL_FREE(flux[0], flux[1], continuum[0]);
}

static void check_rows(mill_grid_file *file)
{
  /* any order, once twice */
  const int model[] = {4, 2, 3, 10, 0, 1, 2, 5};
  enum { N = sizeof model / sizeof *model };
  float flux[N][40], continuum[N][40];
  assert_ok(mill_grid_read(file, 0, N, model, flux[0], continuum[0]));
  for (int i = 0; i < N; i++)
    for (int p = 0; p < 40; p++) {
      assert_true(flux[i][p] == flux_of(model[i], 0, p));
      assert_true(continuum[i][p] == 2 * flux_of(model[i], 0, p));
    }
  float other[N][33];
  assert_ok(mill_grid_read(file, 1, N, model, other[0], NULL));
  for (int i = 0; i < N; i++)
    for (int p = 0; p < 33; p++)
      assert_true(other[i][p] == flux_of(model[i], 1, p));
  assert_int_equal(mill_grid_read(file, 1, N, model, other[0], continuum[0]), MILL_ERR_RANGE);
  assert_int_equal(mill_grid_read(file, 0, 1, &(int){N_MODEL}, flux[0], NULL), MILL_ERR_RANGE);
  mill_h5_file h5;
  double sigma[40];
  assert_ok(mill_h5_open(path, MILL_ERR_INPUT, &h5));
  assert_ok(mill_h5_read(&h5, "arms/arm0/sigma", H5T_NATIVE_DOUBLE, 1, (size_t[]){40}, sigma));
  assert_true(sigma[39] == 0.5 + 39);
  assert_false(mill_h5_exists(&h5, "arms/arm1/sigma"));
  mill_h5_close(&h5);
}

/* The bad model is to be read again: back is what the file has. */
static void check_revision(mill_grid_info *back)
{
  mill_grid_info now = {0};
  mill_grid_file *file = NULL;
  back->status[5] = MILL_GRID_TO_DO;
  back->value[2 * 5] = 4321;
  back->stamp[5] = 7;
  memset(back->why[5], 0, MILL_GRID_WHY);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0)
    assert_ok(mill_grid_revise(path, back));
  MPI_Barrier(MPI_COMM_WORLD);
  assert_ok(mill_grid_open(path, &file, &now));
  assert_int_equal(now.complete, 0);
  assert_memory_equal(now.status, back->status, N_MODEL);
  assert_memory_equal(now.value, back->value, N_MODEL * N_LABEL * sizeof(double));
  assert_memory_equal(now.stamp, back->stamp, N_MODEL * sizeof *back->stamp);
  assert_memory_equal(now.why, back->why, N_MODEL * sizeof *back->why);
  check_rows(file);
  mill_grid_close(file);
  mill_grid_info_clear(&now);
}

static void test_grid_is_written_in_two_runs(void **state)
{
  (void)state;
  mill_grid_info info, back = {0};
  mill_grid_file *file = NULL;
  char *settings = NULL;
  double sigma[40];
  for (int p = 0; p < 40; p++)
    sigma[p] = 0.5 + p;
  make_info(&info);
  if (rank == 0)
    assert_ok(mill_grid_create(path, &info, (const double *const[]){sigma, NULL}, "a: 1\n"));
  MPI_Barrier(MPI_COMM_WORLD);
  write_models(&info, 0, 7);
  assert_ok(mill_grid_open(path, &file, &back));
  for (int i = 0; i < N_MODEL; i++)
    assert_int_equal(back.status[i], i == 5 ? MILL_GRID_BAD : i < 7);
  assert_int_equal(back.complete, 0);
  mill_grid_close(file);
  mill_grid_info_clear(&back);
  MPI_Barrier(MPI_COMM_WORLD);
  write_models(&info, 7, N_MODEL);
  if (rank == 0)
    assert_ok(mill_grid_finish(path));
  MPI_Barrier(MPI_COMM_WORLD);

  assert_ok(mill_grid_open(path, &file, &back));
  assert_int_equal(back.complete, 1);
  assert_int_equal(back.n_model, N_MODEL);
  assert_int_equal(back.n_label, N_LABEL);
  assert_int_equal(back.n_arm, 2);
  assert_memory_equal(back.label, info.label, sizeof info.label);
  assert_memory_equal(back.arm, info.arm, sizeof info.arm);
  assert_memory_equal(back.value, info.value, N_MODEL * N_LABEL * sizeof(double));
  assert_memory_equal(back.name, info.name, N_MODEL * sizeof *info.name);
  assert_memory_equal(back.stamp, info.stamp, N_MODEL * sizeof *info.stamp);
  for (int i = 0; i < N_MODEL; i++) {
    assert_int_equal(back.status[i], i == 5 ? MILL_GRID_BAD : MILL_GRID_GOOD);
    assert_string_equal(back.why[i], i == 5 ? "is zero" : "");
  }
  check_rows(file);
  assert_ok(mill_grid_read_settings(file, &settings));
  assert_string_equal(settings, "a: 1\n");
  mill_free(settings);
  mill_grid_close(file);
  check_revision(&back);
  mill_grid_info_clear(&back);
  mill_grid_info_clear(&info);
}

/* Change one thing of a good file, and see that it is refused with that word. */
static void refused(void (*change)(hid_t file), const char *word)
{
  mill_grid_info info, back = {0};
  mill_grid_file *grid = NULL;
  char own[300];
  snprintf(own, sizeof own, "%s.%d", path, rank);
  make_info(&info);
  assert_ok(mill_grid_create(own, &info, NULL, "a: 1\n"));
  const hid_t file = H5Fopen(own, H5F_ACC_RDWR, H5P_DEFAULT);
  assert_true(file >= 0);
  change(file);
  assert_true(H5Fclose(file) >= 0);
  int err = mill_grid_open(own, &grid, &back);
  float flux[33];
  if (err == MILL_OK)
    err = mill_grid_read(grid, 1, 1, &(int){3}, flux, NULL);
  assert_int_equal(err, MILL_ERR_INPUT);
  if (!strstr(mill_error_message(), word))
    fail_msg("'%s' does not say '%s'", mill_error_message(), word);
  mill_grid_close(grid);
  mill_grid_info_clear(&back);
  mill_grid_info_clear(&info);
  assert_int_equal(unlink(own), 0);
}

static void set_attr(hid_t file, const char *object, const char *name, hid_t type,
                     const void *value)
{
  /* HDF5 1.10 writes no attribute that was opened by its object's name */
  const hid_t holder = H5Oopen(file, object, H5P_DEFAULT);
  const hid_t attr = H5Aopen(holder, name, H5P_DEFAULT);
  assert_true(attr >= 0);
  if (H5Awrite(attr, type, value) < 0)
    fail_msg("%s: %s", name, mill_h5_reason());
  H5Aclose(attr);
  H5Oclose(holder);
}

static void write_first(hid_t file, const char *name, hid_t type, const void *data)
{
  const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
  assert_true(dataset >= 0 && H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
  H5Dclose(dataset);
}

static void change_step(hid_t file)
{
  set_attr(file, "arms/arm1", "ln_step", H5T_NATIVE_DOUBLE, &(double){-1});
}

static void change_version(hid_t file)
{
  set_attr(file, "/", "version", H5T_NATIVE_INT, &(int){9});
}

static void change_label(hid_t file)
{
  double value[N_MODEL * N_LABEL] = {[3] = NAN};
  write_first(file, "models/label", H5T_NATIVE_DOUBLE, value);
}

static void change_status(hid_t file)
{
  const unsigned char status[N_MODEL] = {[4] = 77};
  write_first(file, "models/status", H5T_NATIVE_UCHAR, status);
}

/* said to be good, and zero */
static void change_flux(hid_t file)
{
  const unsigned char status[N_MODEL] = {[3] = MILL_GRID_GOOD};
  write_first(file, "models/status", H5T_NATIVE_UCHAR, status);
}

static void remove_flux(hid_t file)
{
  assert_true(H5Ldelete(file, "arms/arm0/flux", H5P_DEFAULT) >= 0);
}

static void link_flux(hid_t file)
{
  remove_flux(file);
  assert_true(H5Lcreate_external("other.h5", "/flux", file, "arms/arm0/flux", H5P_DEFAULT,
                                 H5P_DEFAULT) >= 0);
}

static void test_damaged_grid_is_refused(void **state)
{
  (void)state;
  refused(change_step, "arm r");
  refused(change_version, "version 9");
  refused(change_label, "label logg of model 1 (model1.fits) is not finite");
  refused(change_status, "status 77");
  refused(change_flux, "model 3");
  refused(remove_flux, "arms/arm0/flux is missing");
  refused(link_flux, "external");
}

static int set_up(void **state)
{
  (void)state;
  if (rank == 0) {
    const char *base = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/mill-grid-XXXXXX", base && *base ? base : "/tmp");
    const int fd = mkstemp(path);
    if (fd < 0)
      return -1;
    close(fd);
  }
  return MPI_Bcast(path, sizeof path, MPI_CHAR, 0, MPI_COMM_WORLD);
}

static int tear_down(void **state)
{
  (void)state;
  MPI_Barrier(MPI_COMM_WORLD);
  return rank == 0 ? unlink(path) : 0;
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_grid_is_written_in_two_runs),
      cmocka_unit_test(test_damaged_grid_is_refused),
  };
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &n_rank);
  const int failed = cmocka_run_group_tests(tests, set_up, tear_down);
  MPI_Finalize();
  return failed;
}
