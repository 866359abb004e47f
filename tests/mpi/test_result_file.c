/* SPDX-License-Identifier: BSD-3-Clause */
/* The result file written by several ranks: values, counts, failures, and which run may continue
 * it.  For whole runs: tests/e2e/test_fit_stop.py, test_fit_same_run.py, test_overwrite.py. */
#define _GNU_SOURCE

#include "io/result/stored_rows.h"
#include "tests/mpi/result_fixture.h"

#include <sys/resource.h>

static void check_catalog(const survey *s, const char *path)
{
  MILL_AT_END(mill_h5_id_close) const hid_t file = open_plain(path, H5F_ACC_RDONLY);
  mill_columns columns;
  mill_columns_of(MILL_TABLE_CATALOG, NULL, &columns);
  for (int i = 0; i < columns.n_column; i++) {
    const mill_column *c = &columns.column[i];
    char name[64];
    size_t n_byte;
    snprintf(name, sizeof name, "catalog/%s", c->name);
    MILL_OWNED char *value = read_whole(file, name, &n_byte);
    assert_int_equal(n_byte, (size_t)s->info.n_row * c->n_byte);
    int64_t first = 0, row = 0;
    for (int f = 0; f < s->info.n_file; f++) {
      for (int64_t k = 0; k < s->file[f].n_row; k++, row++) {
        const char *got = value + (size_t)row * c->n_byte;
        const mill_catalog_row *want = &s->index[f].row[k];
        if (c->source == MILL_FROM_FILE) {
          assert_int_equal(*(const int32_t *)got, f);
        } else if (c->source == MILL_FROM_OFFSET) {
          assert_int_equal(*(const int64_t *)got, first + want->first_exposure);
        } else if (c->source != MILL_FROM_CRC) {
          assert_memory_equal(got, (const char *)want + c->field, c->n_byte);
        }
      }
      first += s->index[f].n_exposure;
    }
  }
  MILL_OWNED int64_t *fits_row = read_whole(file, "catalog/exposures/FITS_ROW", NULL);
  MILL_OWNED int32_t *expid = read_whole(file, "catalog/exposures/EXPID", NULL);
  int64_t at = 0;
  for (int f = 0; f < s->info.n_file; f++)
    for (int64_t e = 0; e < s->index[f].n_exposure; e++, at++) {
      assert_int_equal(fits_row[at], s->index[f].exposure_row[e]);
      assert_int_equal(expid[at], s->index[f].exposure_id[e]);
    }
  MILL_OWNED int64_t *size = read_whole(file, "catalog/files/SIZE", NULL);
  for (int f = 0; f < s->info.n_file; f++)
    assert_int_equal(size[f], s->file[f].size);
  mill_damaged_rows damaged = {0};
  assert_int_equal(mill_damaged_rows_find(file, path, &s->info, s->file, 1, &damaged), MILL_OK);
  assert_int_equal(damaged.n_catalog, 0);
}

MILL_TEST(rows_come_back_bit_for_bit)
{
  MILL_AT_END(survey_free) survey s;
  mill_result_summary summary;
  survey_make(&s, 3, (const int[]){700, 0, 1301});
  mill_result_file *file = open_as(&s, in_folder("rows.h5"), 0, MILL_OPEN_NEW);
  assert_int_equal(is_wanted(file, 0), 1);
  assert_int_equal(is_wanted(file, s.info.n_row - 1), 1);
  /* out of order, and in at least two epochs of writing */
  for (int64_t i = 0; i < s.info.n_row; i++) {
    const int64_t row = i * 1009 % s.info.n_row;
    if (row % mpi.size == mpi.rank)
      put_row(&s, file, row);
    if (i == s.info.n_row / 2)
      wait_for(file, 1);
  }
  mill_fit_result again;
  survey_result(&s, mpi.rank, &again);
  assert_int_equal(mill_result_put(file, &again), MILL_ERR_INTERNAL); /* a row twice */
  close_all(file, &summary);
  int64_t n_failed = 0, n_warned = 0, n_good = 0;
  int64_t n_warn[MILL_N_RESULT_BIT] = {0}, n_info[MILL_N_RESULT_BIT] = {0};
  for (int64_t row = 0; row < s.info.n_row; row++) {
    n_failed += row % 17 == 5;
    n_warned += row % 17 != 5 && row % 5 == 0;
    mill_fit_result result;
    survey_result(&s, row, &result);
    if (result.status != MILL_STATUS_FITTED)
      continue;
    /* the bits that spoil a velocity, as numerics.md has them */
    n_good += (result.warn & (1 | 2 | 4 | 32 | 512 | 1024 | 2048 | 4096 | 8192 | 3 << 14)) == 0;
    for (int bit = 0; bit < MILL_N_RESULT_BIT; bit++) {
      n_warn[bit] += (result.warn & INT64_C(1) << bit) != 0;
      n_info[bit] += (result.info & INT64_C(1) << bit) != 0;
    }
  }
  assert_int_equal(summary.n_good, n_good);
  assert_memory_equal(summary.n_warn, n_warn, sizeof n_warn);
  assert_memory_equal(summary.n_info, n_info, sizeof n_info);
  assert_int_equal(summary.n_status[MILL_STATUS_NOT_DONE], 0);
  assert_int_equal(summary.n_status[MILL_STATUS_LOW_SN], n_failed);
  assert_int_equal(summary.n_status[MILL_STATUS_FITTED], s.info.n_row - n_failed);
  assert_int_equal(summary.n_warned, n_warned);
  assert_true(summary.wall_s > 0);
  if (mpi.rank == 0) {
    check_fits(&s, in_folder("rows.h5"), NULL);
    check_catalog(&s, in_folder("rows.h5"));
    assert_int_equal(read_finished(in_folder("rows.h5")), 1);
    assert_int_equal(n_left_over("rows.h5"), 1); /* no lock, no temporary file */
  }
}

/* A file's rows, read again. */
typedef struct again {
  const survey *s;
  int n_loaded, fails;
} again;

static int load_again(void *context, int i_file, mill_file_index *index)
{
  int err = MILL_OK;
  again *a = context;
  const mill_file_index *from = &a->s->index[i_file];
  a->n_loaded++;
  memset(index, 0, sizeof *index);
  if (a->fails)
    MILL_FAIL(MILL_ERR_INPUT, "%s has vanished", a->s->file[i_file].path);
  MILL_TRY(mill_file_index_alloc(index, from->n_row, from->n_exposure));
  memcpy(index->row, from->row, (size_t)from->n_row * sizeof *from->row);
  index->n_row = from->n_row;
  for (int64_t k = 0; k < from->n_exposure; k++)
    mill_file_index_add(index, from->exposure_row[k], from->exposure_id[k], from->exposure_mjd[k]);
done:
  return err;
}

/* A large catalog is written in pieces; rows that are no longer in memory are read again. */
MILL_TEST(catalog_in_pieces)
{
  MILL_AT_END(survey_free) survey s;
  mill_file_index share[FIXTURE_MAX_FILE];
  mill_result_file *file = NULL;
  int outcome = -1;
  again a = {.s = &s};
  survey_make(&s, 4, (const int[]){40000, 3, 30000, 20});
  memcpy(share, s.info.index, (size_t)(s.info.file_end - s.info.file_start) * sizeof *share);
  for (int i = 0; i < s.info.file_end - s.info.file_start; i++)
    if ((s.info.file_start + i) % 2 == 0) {
      share[i].row = NULL;
      share[i].exposure_row = NULL;
      share[i].exposure_id = NULL;
      share[i].exposure_mjd = NULL;
    }
  s.info.index = share;
  s.info.load = load_again;
  s.info.load_context = &a;
  close_all(open_as(&s, in_folder("pieces.h5"), 0, MILL_OPEN_NEW), NULL);
  int n_loaded = 0;
  MPI_Allreduce(&a.n_loaded, &n_loaded, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  assert_int_equal(n_loaded, 2);
  if (mpi.rank == 0)
    check_catalog(&s, in_folder("pieces.h5"));
  /* if rows cannot be read again, the start fails on every rank, with the file's name */
  a.fails = 1;
  assert_fails(open_code(&s, in_folder("vanished.h5"), 0, &file, &outcome), MILL_ERR_INPUT,
               "has vanished");
}

/* One rank produces more than the queue holds, while the others have nothing to write: they must
 * join the collective write, or that rank waits for ever. */
MILL_TEST(idle_ranks_join_a_busy_one)
{
  MILL_AT_END(survey_free) survey s;
  survey_make(&s, 2, (const int[]){1500, 1600}); /* of 50 kB: more than the queue's 128 MiB */
  s.info.posteriors = 1;
  s.info.n_draw = MILL_MAX_DRAW;
  const int with = MILL_WITH_POSTERIOR | MILL_WITH_DRAWS(MILL_MAX_DRAW);
  assert_ok(mill_columns_fits(&s.lib, s.lib.path, with, &s.columns));
  s.info.write_interval_s = 1e6;
  mill_result_file *file = open_as(&s, in_folder("busy.h5"), 0, MILL_OPEN_NEW);
  if (mpi.rank == mpi.size - 1) {
    for (int64_t i = 0; i < s.info.n_row; i++)
      put_row(&s, file, s.info.n_row - 1 - i);
    wait_for(file, 1);
  }
  close_all(file, NULL);
  if (mpi.rank == 0)
    check_fits(&s, in_folder("busy.h5"), NULL);
}

/* Rows that no rank puts: the file stays unfinished and says so. */
MILL_TEST(stopped_run_is_not_finished)
{
  MILL_AT_END(survey_free) survey s;
  mill_result_summary summary;
  survey_make(&s, 1, (const int[]){100});
  mill_result_file *file = open_as(&s, in_folder("stopped.h5"), 0, MILL_OPEN_NEW);
  put_share(&s, file, 40);
  close_all(file, &summary);
  assert_int_equal(summary.n_status[MILL_STATUS_NOT_DONE], 60);
  if (mpi.rank == 0) {
    uint8_t done[100] = {0};
    memset(done, 1, 40);
    check_fits(&s, in_folder("stopped.h5"), done);
    assert_int_equal(read_finished(in_folder("stopped.h5")), 0);
    /* what is missing has its documented value */
    MILL_AT_END(mill_h5_id_close)
    const hid_t h5 = open_plain(in_folder("stopped.h5"), H5F_ACC_RDONLY);
    MILL_OWNED double *vrad = read_whole(h5, "fits/VRAD", NULL);
    MILL_OWNED double *sn = read_whole(h5, "fits/SN_Z", NULL);
    MILL_OWNED double *covar = read_whole(h5, "fits/COVAR", NULL);
    assert_true(isnan(vrad[40]) && isnan(vrad[99]) && isnan(covar[21 * 99 + 20]));
    assert_close(sn[99], -1e9, 0);
  }
}

static void limit_file_size(rlim_t n_byte)
{
  struct rlimit limit;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = n_byte;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

MILL_TEST(failing_write_reaches_every_rank)
{
  MILL_AT_END(survey_free) survey s;
  survey_make(&s, 1, (const int[]){3000});
  mill_result_file *file = open_as(&s, in_folder("failing.h5"), 0, MILL_OPEN_NEW);
  put_share(&s, file, 100);
  wait_for(file, 100);
  assert_int_equal(mill_result_n_done(file), 100);
  /* every rank has finished the epoch before the limit falls */
  MPI_Barrier(MPI_COMM_WORLD);
  if (mpi.rank == 0)
    limit_file_size(1000);
  int err = MILL_OK;
  mill_fit_result result;
  for (int64_t row = 100; row < 3000 && err == MILL_OK; row++) {
    if (row % mpi.size != mpi.rank)
      continue;
    survey_result(&s, row, &result);
    err = mill_result_put(file, &result);
    usleep(200);
  }
  assert_fails(mill_result_close(file, NULL), MILL_ERR_OUTPUT, "failing.h5: cannot write");
  limit_file_size(RLIM_INFINITY);
  if (mpi.rank == 0) {
    assert_int_equal(read_finished(in_folder("failing.h5")), 0);
    assert_int_equal(n_left_over("failing.h5"), 1);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  /* what was written before is whole, and the run can be continued */
  file = open_as(&s, in_folder("failing.h5"), 0, MILL_OPEN_CONTINUE);
  assert_true(mill_result_n_done(file) >= 100);
  put_share(&s, file, 3000);
  close_all(file, NULL);
  if (mpi.rank == 0)
    check_fits(&s, in_folder("failing.h5"), NULL);
}

/* ---- runs that are continued or refused ---- */

enum { N_ROW = 500 };

/* A file with the first n rows fitted, closed in good order. */
static void make(survey *s, const char *path, int64_t n)
{
  survey_make(s, 2, (const int[]){200, N_ROW - 200});
  mill_result_file *file = open_as(s, path, 0, MILL_OPEN_NEW);
  put_share(s, file, n);
  close_all(file, NULL);
}

MILL_TEST(other_identity_is_refused)
{
  MILL_AT_END(survey_free) survey s;
  const char *path = in_folder("identity.h5");
  make(&s, path, 100);
  static const char *const text[] = {"npoly: 10\nmin_vel: -900\n", "npoly: 10\n",
                                     "cuda NVIDIA H200", "redrock-1.fits", "/data/coadd-0.fits.gz"};
  const double later = s.file[1].mtime + 1;
  const int64_t number = 17;
  const struct {
    void *at;
    const void *value;
    size_t size;
    const char *why;
  } row[] = {{&s.info.identity, &text[0], sizeof *text,
              "other settings (\"min_vel: -1000\", now \"min_vel: -900\")"},
             {&s.info.identity, &text[1], sizeof *text, "other settings"},
             {&s.lib.hash, "f", 1, "another library"},
             {&s.info.device, &text[2], sizeof *text,
              "another device (cpu x86-64-v3, now cuda NVIDIA H200)"},
             {&s.file[1].mtime, &later, sizeof later, "coadd-1.fits: its time of change differs"},
             {&s.file[0].size, &number, sizeof number, "coadd-0.fits: its size has changed"},
             {&s.file[1].rows_hash, &number, sizeof number,
              "coadd-1.fits: its selected rows have changed"},
             {&s.file[1].redrock_size, &number, sizeof number,
              "coadd-1.fits: the size of its redrock file has changed"},
             {&s.file[0].path, &text[4], sizeof *text, "other inputs"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    char before[sizeof(double)];
    memcpy(before, row[i].at, row[i].size);
    memcpy(row[i].at, row[i].value, row[i].size);
    refuses(&s, path, row[i].why);
    memcpy(row[i].at, before, row[i].size);
  }
  s.file[1].rows_hash = s.file[1].redrock_size =
      1; /* the cause comes before what follows from it */
  refuses(&s, path, "coadd-1.fits: the size of its redrock file has changed");
  s.file[1].redrock = text[3]; /* a file came */
  refuses(&s, path, "coadd-1.fits: its redrock file was none, now redrock-1.fits");
  survey_free(&s);
  survey_make(&s, 3, (const int[]){200, N_ROW - 200, 0});
  refuses(&s, path, "2 files, now 3");
  survey_free(&s);
  survey_make(&s, 2, (const int[]){200, N_ROW - 201});
  refuses(&s, path, "selected rows have changed");
  survey_free(&s);
  /* the right one still continues */
  survey_make(&s, 2, (const int[]){200, N_ROW - 200});
  close_all(open_as(&s, path, 0, MILL_OPEN_CONTINUE), NULL);
}

/* Ranks write at fixed places of a contiguous column, so a chunked column is refused.  Without
 * START_TIME an overwritten file would not be noticed. */
MILL_TEST(files_of_another_layout_are_refused)
{
  MILL_AT_END(survey_free) survey s;
  const char *path = in_folder("chunks.h5");
  const hsize_t n_row = N_ROW, chunk = 50;
  mill_result_file *file;
  int outcome;
  make(&s, path, 100);
  if (mpi.rank == 0) {
    MILL_AT_END(mill_h5_id_close) const hid_t h5 = open_plain(path, H5F_ACC_RDWR);
    MILL_AT_END(mill_h5_id_close) const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    MILL_AT_END(mill_h5_id_close) const hid_t space = H5Screate_simple(1, &n_row, NULL);
    assert_true(H5Pset_chunk(list, 1, &chunk) >= 0 && H5Ldelete(h5, "fits/SN_B", H5P_DEFAULT) >= 0);
    H5Dclose(H5Dcreate2(h5, "fits/SN_B", H5T_IEEE_F64LE, space, H5P_DEFAULT, list, H5P_DEFAULT));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  assert_fails(open_code(&s, path, 0, &file, &outcome), MILL_ERR_OUTPUT, "SN_B is in chunks");
  if (mpi.rank == 0) {
    MILL_AT_END(mill_h5_id_close) const hid_t h5 = open_plain(path, H5F_ACC_RDWR);
    assert_true(H5Ldelete(h5, "provenance/START_TIME", H5P_DEFAULT) >= 0);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  assert_fails(open_code(&s, path, 0, &file, &outcome), MILL_ERR_OUTPUT,
               "START_TIME cannot be read");
}

/* Wavelengths of models, of the first arm alone. */
static const double wave[2] = {4000, 4001}, *const wave_aa[3] = {wave, NULL, NULL};
static const int n_pix[3] = {2, 0, 0};

MILL_TEST(models_belong_to_one_result)
{
  MILL_AT_END(survey_free) survey s;
  const double other[2] = {4000, 4002}, *const other_aa[3] = {other, NULL, NULL};
  const double *const none_aa[3] = {NULL, NULL, NULL}; /* each row its own */
  const float flux[2] = {1, 2};
  survey_make(&s, 2, (const int[]){200, N_ROW - 200});
  mill_result_file *file = open_as(&s, in_folder("mine.h5"), 0, MILL_OPEN_NEW);
  assert_int_equal(mill_result_open_models(file, in_folder("m.h5"), 0, wave_aa, n_pix), MILL_OK);
  if (mpi.rank == 0)
    assert_int_equal(mill_result_put_model(file, 0, 0, flux, NULL, 2), MILL_OK);
  put_share(&s, file, 10);
  close_all(file, NULL);
  /* continued: used again, what was written stays */
  file = open_as(&s, in_folder("mine.h5"), 0, MILL_OPEN_CONTINUE);
  assert_fails(mill_result_open_models(file, in_folder("m.h5"), 0, other_aa, n_pix),
               MILL_ERR_OUTPUT, "differ from this run's");
  assert_fails(mill_result_open_models(file, in_folder("m.h5"), 0, none_aa, n_pix), MILL_ERR_OUTPUT,
               "one set of wavelengths for all rows");
  assert_fails(mill_result_open_models(file, in_folder("missing.h5"), 0, wave_aa, n_pix),
               MILL_ERR_OUTPUT, "10 rows");
  assert_int_equal(mill_result_open_models(file, in_folder("m.h5"), 0, wave_aa, n_pix), MILL_OK);
  put_share(&s, file, 20);
  close_all(file, NULL);
  if (mpi.rank == 0) {
    MILL_AT_END(mill_h5_id_close) const hid_t h5 = open_plain(in_folder("m.h5"), H5F_ACC_RDONLY);
    MILL_OWNED float *stored = read_whole(h5, "models/b/flux", NULL);
    assert_true(stored[0] == 1 && stored[1] == 2 && isnan(stored[2]));
    assert_true(H5Lexists(h5, "models/r", H5P_DEFAULT) == 0);
  }
  /* another result may not use this models file, unless it overwrites the file */
  file = open_as(&s, in_folder("yours.h5"), 0, MILL_OPEN_NEW);
  assert_fails(mill_result_open_models(file, in_folder("m.h5"), 0, wave_aa, n_pix), MILL_ERR_OUTPUT,
               "another result than");
  assert_int_equal(mill_result_open_models(file, in_folder("m.h5"), 1, wave_aa, n_pix), MILL_OK);
  close_all(file, NULL);
  if (mpi.rank == 0)
    assert_int_equal(n_left_over("m.h5"), 1);
}

/* A requeued script with --overwrite continues what its first start began. */
MILL_TEST(overwrite_of_a_requeued_job_is_done_once)
{
  MILL_AT_END(survey_free) survey s;
  const char *path = in_folder("requeued.h5"), *same = NULL;
  make(&s, path, N_ROW); /* of an older job */
  same = s.info.identity;
  const struct {
    const char *job, *restart, *identity;
    int outcome, n_put;
  } start[] = {{"4711", "0", same, MILL_OPEN_NEW, 100},
               {"4711", "1", same, MILL_OPEN_CONTINUE, N_ROW},
               {"4711", "2", same, MILL_OPEN_FINISHED, 0},
               {"4711", "2", "npoly: 12\n", MILL_OPEN_NEW, 0},  /* with other settings */
               {"4712", "2", "npoly: 12\n", MILL_OPEN_NEW, 0}}; /* another job */
  for (size_t i = 0; i < sizeof start / sizeof *start; i++) {
    setenv("SLURM_JOB_ID", start[i].job, 1);
    setenv("SLURM_RESTART_COUNT", start[i].restart, 1);
    s.info.identity = start[i].identity;
    mill_result_file *file = open_as(&s, path, 1, start[i].outcome);
    if (start[i].outcome == MILL_OPEN_CONTINUE)
      assert_int_equal(mill_result_n_done(file), start[i - 1].n_put);
    if (start[i].n_put > 0)
      put_share(&s, file, start[i].n_put);
    close_all(file, NULL);
  }
  unsetenv("SLURM_JOB_ID");
  unsetenv("SLURM_RESTART_COUNT");
}

/* Models are refused after the run fitted rows without --models: models would have gaps. */
MILL_TEST(models_without_gaps)
{
  MILL_AT_END(survey_free) survey s;
  survey_make(&s, 2, (const int[]){200, N_ROW - 200});
  mill_result_file *file = open_as(&s, in_folder("gap.h5"), 0, MILL_OPEN_NEW);
  assert_int_equal(mill_result_open_models(file, in_folder("gap-m.h5"), 0, wave_aa, n_pix),
                   MILL_OK);
  put_share(&s, file, 10);
  close_all(file, NULL);
  /* nothing was fitted meanwhile: no gap */
  close_all(open_as(&s, in_folder("gap.h5"), 0, MILL_OPEN_CONTINUE), NULL);
  file = open_as(&s, in_folder("gap.h5"), 0, MILL_OPEN_CONTINUE);
  assert_int_equal(mill_result_open_models(file, in_folder("gap-m.h5"), 0, wave_aa, n_pix),
                   MILL_OK);
  close_all(file, NULL);
  file = open_as(&s, in_folder("gap.h5"), 0, MILL_OPEN_CONTINUE);
  put_share(&s, file, 20);
  close_all(file, NULL);
  file = open_as(&s, in_folder("gap.h5"), 0, MILL_OPEN_CONTINUE);
  assert_fails(mill_result_open_models(file, in_folder("gap-m.h5"), 0, wave_aa, n_pix),
               MILL_ERR_OUTPUT, "without --models");
  assert_says("gap-m.h5");
  close_all(file, NULL);
}

MILL_RANKS_TEST_MAIN(make_test_dir, remove_test_dir)
