/* SPDX-License-Identifier: BSD-3-Clause */
/** A small make-believe survey for the tests of the result file, read back with plain HDF5: two to
 *  three input files, rows of one to three exposures, results that depend on the row alone. */
#pragma once

#include "tests/mpi/ranks.h"

#include <signal.h>
#include <sys/stat.h>

#include "io/hdf5/hdf5_util.h"
#include "io/result/columns.h"
#include "io/result/result_file.h"
#include "tests/test_library.h"

enum { FIXTURE_MAX_FILE = 4 };

typedef struct survey {
  mill_library lib;
  mill_columns columns;
  mill_input_file file[FIXTURE_MAX_FILE];
  char file_path[FIXTURE_MAX_FILE][64];
  mill_file_index index[FIXTURE_MAX_FILE]; /* of all files, on every rank */
  mill_run_info info;
} survey;

/* splitmix64: the same numbers everywhere */
static inline uint64_t hash64(uint64_t x)
{
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static inline double uniform(uint64_t *state)
{
  *state += 1;
  return (double)(hash64(*state) >> 11) * 0x1p-53;
}

static inline void survey_make(survey *s, int n_file, const int *n_row)
{
  memset(s, 0, sizeof *s);
  test_library_name(4, 3, &s->lib);
  snprintf(s->lib.name, sizeof s->lib.name, "make-believe");
  snprintf(s->lib.hash, sizeof s->lib.hash, "%064d", 7);
  snprintf(s->lib.path, sizeof s->lib.path, "/somewhere/lib.h5");
  assert_int_equal(mill_columns_fits(&s->lib, s->lib.path, 0, &s->columns), MILL_OK);
  int64_t at = 0;
  for (int f = 0; f < n_file; f++) {
    mill_input_file *file = &s->file[f];
    mill_file_index *index = &s->index[f];
    snprintf(s->file_path[f], sizeof s->file_path[f], "/data/coadd-%d.fits", f);
    file->path = s->file_path[f];
    file->error = "";
    file->size = 1000 + f;
    file->mtime = 1.7e9 + 0.125 * f;
    file->row_start = at;
    file->n_row = n_row[f];
    index->n_row = n_row[f];
    assert_int_equal(mill_file_index_alloc(index, n_row[f], 3 * n_row[f]), MILL_OK);
    for (int i = 0; i < n_row[f]; i++) {
      mill_catalog_row *row = &index->row[i];
      row->target_id = 39600000000000000 + at + i;
      row->target_ra = 0.5 * i;
      row->target_dec = -0.25 * i;
      row->fiber = i % 5000;
      row->exp_id = 100 + f;
      row->ref_id = -1;
      memcpy(row->ref_cat, "G2", 2);
      row->kind.z = i % 3 ? 1e-4 * i : NAN;
      snprintf(row->kind.spectype, sizeof row->kind.spectype, "STAR");
      snprintf(row->kind.subtype, sizeof row->kind.subtype, "G_%d", i % 7);
      row->fits_row = 2 * i;
      row->n_exposure = 1 + i % 3;
      row->first_exposure = index->n_exposure;
      for (int e = 0; e < row->n_exposure; e++)
        mill_file_index_add(index, 2 * i + e, 1000 * f + e, 59000.5 + i);
    }
    at += n_row[f];
  }
  s->info = (mill_run_info){.lib = &s->lib,
                            .identity = "npoly: 10\nmin_vel: -1000\n",
                            .config = "npoly: 10\nthreads: 2\n",
                            .command = "starmill fit --output out.h5",
                            .device = "cpu x86-64-v3",
                            .n_thread = 2,
                            .n_row = at,
                            .n_file = n_file,
                            .file = s->file,
                            .file_start = n_file * mpi.rank / mpi.size,
                            .file_end = n_file * (mpi.rank + 1) / mpi.size,
                            .write_interval_s = 0.02};
  s->info.index = s->index + s->info.file_start;
}

static inline void survey_free(survey *s)
{
  for (int f = 0; f < FIXTURE_MAX_FILE; f++)
    mill_file_index_clear(&s->index[f]);
}

/* Results with NaNs, failures and flags among them. */
static inline void survey_result(const survey *s, int64_t row, mill_fit_result *r)
{
  uint64_t state = hash64((uint64_t)row);
  mill_fit_result_init(r, &s->lib, row, row % 17 == 5 ? MILL_STATUS_LOW_SN : MILL_STATUS_FITTED);
  if (r->status != MILL_STATUS_FITTED)
    return;
  r->warn = row % 5 == 0 ? MILL_WARN_CHISQ | MILL_WARN_HULL : 0;
  r->info = (int32_t)(row % 4);
  r->n_eval = (int32_t)(row % 100);
  r->n_jac = 4;
  r->vrad_km_s = 400 * uniform(&state) - 200;
  r->vrad_err_km_s = uniform(&state);
  r->vrad_skew = row % 11 ? uniform(&state) : -NAN;
  r->vrad_kurt = uniform(&state);
  r->vrad_guess_km_s = uniform(&state);
  r->vsini_km_s = uniform(&state);
  r->vsini_err_km_s = uniform(&state);
  for (int i = 0; i < 4; i++) {
    r->label[i] = uniform(&state);
    r->label_err[i] = uniform(&state);
  }
  for (int i = 0; i < 21; i++)
    r->covar[i] = uniform(&state);
  r->m2ll = uniform(&state);
  r->hull_dist = 0;
  r->chisq_tot = uniform(&state);
  r->chisq_c_tot = uniform(&state);
  r->n_pix_tot = 7000 + row;
  for (int i = 0; i < 3; i++) {
    r->chisq[i] = uniform(&state);
    r->chisq_c[i] = uniform(&state);
    r->sn[i] = 50 * uniform(&state);
    r->n_pix[i] = 2000 + i;
  }
}

static inline void survey_packed(const survey *s, int64_t row, char *packed)
{
  mill_fit_result result;
  survey_result(s, row, &result);
  int f = 0;
  while (row >= s->file[f].row_start + s->file[f].n_row)
    f++;
  const int64_t target = s->index[f].row[row - s->file[f].row_start].target_id;
  mill_columns_pack(&s->columns, &result, packed);
  memcpy(packed, &target, sizeof target);
  mill_columns_set_crc(&s->columns, packed);
}

static inline hid_t open_plain(const char *path, unsigned flags)
{
  const hid_t file = H5Fopen(path, flags, H5P_DEFAULT);
  if (file < 0)
    fail_msg("%s cannot be opened", path);
  return file;
}

/* A whole dataset in its file type, malloc'd; *n_byte may be NULL */
static inline void *read_whole(hid_t file, const char *name, size_t *n_byte)
{
  MILL_AT_END(mill_h5_id_close) const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
  if (dataset < 0)
    fail_msg("no dataset %s", name);
  MILL_AT_END(mill_h5_id_close) const hid_t type = H5Dget_type(dataset);
  MILL_AT_END(mill_h5_id_close) const hid_t space = H5Dget_space(dataset);
  const size_t n = (size_t)H5Sget_simple_extent_npoints(space) * H5Tget_size(type);
  void *buffer = calloc(n + 1, 1);
  assert_non_null(buffer);
  if (n > 0)
    assert_true(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, buffer) >= 0);
  if (n_byte)
    *n_byte = n;
  return buffer;
}

static inline int read_finished(const char *path)
{
  MILL_AT_END(mill_h5_id_close) const hid_t file = open_plain(path, H5F_ACC_RDONLY);
  MILL_OWNED uint8_t *finished = read_whole(file, "provenance/FINISHED", NULL);
  return *finished;
}

/* Check every column of /fits bit for bit.  done: which rows are done (NULL: all). */
static inline void check_fits(const survey *s, const char *path, const uint8_t *done)
{
  const mill_columns *columns = &s->columns;
  MILL_AT_END(mill_h5_id_close) const hid_t file = open_plain(path, H5F_ACC_RDONLY);
  MILL_OWNED char *packed = calloc((size_t)s->info.n_row, columns->row_size);
  assert_non_null(packed);
  for (int64_t row = 0; row < s->info.n_row; row++)
    survey_packed(s, row, packed + (size_t)row * columns->row_size);
  for (int i = 0; i < columns->n_column; i++) {
    const mill_column *c = &columns->column[i];
    char name[64];
    size_t n_byte;
    snprintf(name, sizeof name, "fits/%s", c->name);
    MILL_OWNED char *value = read_whole(file, name, &n_byte);
    assert_int_equal(n_byte, (size_t)s->info.n_row * c->n_byte);
    for (int64_t row = 0; row < s->info.n_row; row++)
      if ((!done || done[row]) &&
          memcmp(value + (size_t)row * c->n_byte, packed + (size_t)row * columns->row_size + c->at,
                 c->n_byte) != 0)
        fail_msg("row %lld of %s is not what was put", (long long)row, name);
  }
}

static inline void put_row(const survey *s, mill_result_file *file, int64_t row)
{
  mill_fit_result result;
  survey_result(s, row, &result);
  if (mill_result_put(file, &result) != MILL_OK)
    fail_msg("row %lld: %s", (long long)row, mill_error_message());
}

static inline int is_wanted(const mill_result_file *file, int64_t row)
{
  static uint8_t bits[1 << 20]; /* more than any test has */
  mill_result_wanted_bits(file, bits);
  return bits[row / 8] >> (row % 8) & 1;
}

/* Put this rank's wanted rows below n (row % size == rank) into the file, the last row first. */
static inline int64_t put_share(const survey *s, mill_result_file *file, int64_t n)
{
  int64_t n_put = 0;
  for (int64_t row = n - 1; row >= 0; row--)
    if (row % mpi.size == mpi.rank && is_wanted(file, row)) {
      put_row(s, file, row);
      n_put++;
    }
  return n_put;
}

/* Open, with the same outcome on every rank: its code. */
static inline int open_code(const survey *s, const char *path, int overwrite,
                            mill_result_file **file, int *outcome)
{
  mill_error_clear();
  const int err = mill_result_open(path, overwrite, 0, &s->info, MPI_COMM_WORLD, file, outcome);
  int worst = err;
  MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  assert_int_equal(err, worst);
  return err;
}

static inline mill_result_file *open_as(const survey *s, const char *path, int overwrite,
                                        int expected)
{
  mill_result_file *file;
  int outcome;
  assert_ok(open_code(s, path, overwrite, &file, &outcome));
  assert_int_equal(outcome, expected);
  return file;
}

static inline void close_all(mill_result_file *file, mill_result_summary *summary)
{
  assert_ok(mill_result_close(file, summary));
  MPI_Barrier(MPI_COMM_WORLD);
}

/* until this many rows of all ranks are written */
static inline void wait_for(const mill_result_file *file, int64_t n)
{
  for (int i = 0; i < 4000 && mill_result_n_done(file) < n; i++)
    usleep(5000);
  assert_true(mill_result_n_done(file) >= n);
}

/* The bytes of a regular file, malloc'd; NULL where there is none. */
static inline char *slurp(const char *path, long *n)
{
  struct stat status;
  *n = 0;
  if (stat(path, &status) != 0 || !S_ISREG(status.st_mode))
    return NULL;
  FILE *in = fopen(path, "rb");
  assert_non_null(in);
  fseek(in, 0, SEEK_END);
  *n = ftell(in);
  rewind(in);
  char *bytes = malloc((size_t)*n + 1);
  assert_non_null(bytes);
  *n = (long)fread(bytes, 1, (size_t)*n, in);
  fclose(in);
  return bytes;
}

/* Every rank refuses the file with a line that says why, and the file stays as it was. */
static inline void refuses(const survey *s, const char *path, const char *why)
{
  mill_result_file *file;
  int outcome;
  long n = 0, n_after = 0;
  MILL_OWNED char *bytes = mpi.rank == 0 ? slurp(path, &n) : NULL;
  MPI_Barrier(MPI_COMM_WORLD);
  assert_fails(open_code(s, path, 0, &file, &outcome), MILL_ERR_OUTPUT, why);
  assert_null(file);
  assert_says(path);
  if (bytes)
    assert_says("--overwrite");
  if (mpi.rank == 0) {
    MILL_OWNED char *bytes_after = slurp(path, &n_after);
    assert_int_equal(n, n_after);
    if (bytes)
      assert_memory_equal(bytes, bytes_after, (size_t)n);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

/* Return how many files an output has left: itself, its lock, temporary files. */
static inline int n_left_over(const char *name)
{
  char command[2048];
  snprintf(command, sizeof command, "ls -d '%s/%s'* 2>/dev/null | wc -l", folder, name);
  FILE *pipe = popen(command, "r");
  int n = -1;
  assert_non_null(pipe);
  assert_int_equal(fscanf(pipe, "%d", &n), 1);
  pclose(pipe);
  return n;
}

static inline MILL_FIXTURE(make_test_dir)
{
  make_folder_for_all();
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  signal(SIGXFSZ, SIG_IGN);
  return 0;
}

static inline int remove_test_dir(void **state)
{
  MPI_Barrier(MPI_COMM_WORLD);
  return mpi.rank == 0 ? remove_folder(state) : 0;
}
