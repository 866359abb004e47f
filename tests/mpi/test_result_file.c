/* SPDX-License-Identifier: BSD-3-Clause */
/* The result file written by several ranks: values, counts, failures. */
#define _GNU_SOURCE

#include "io/result/result_look.h"
#include "tests/mpi/result_fixture.h"
#include "kernels/base/memory.h"

#include <signal.h>
#include <sys/resource.h>

static void check_catalog(const survey *s, const char *path)
{
  const hid_t file = open_plain(path, H5F_ACC_RDONLY);
  mill_columns columns;
  int64_t first = 0, row = 0;
  mill_columns_catalog(&columns);
  for (int i = 0; i < columns.n_column; i++) {
    const mill_column *c = &columns.column[i];
    char name[64];
    size_t n_byte;
    snprintf(name, sizeof name, "catalog/%s", c->name);
    char *value = read_whole(file, name, &n_byte);
    assert_int_equal(n_byte, (size_t)s->info.n_row * c->n_byte);
    row = 0;
    first = 0;
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
    free(value);
  }
  int64_t *fits_row = read_whole(file, "catalog/exposures/FITS_ROW", NULL);
  int32_t *expid = read_whole(file, "catalog/exposures/EXPID", NULL);
  first = 0;
  for (int f = 0; f < s->info.n_file; f++)
    for (int64_t e = 0; e < s->index[f].n_exposure; e++, first++) {
      assert_int_equal(fits_row[first], s->index[f].exposure_row[e]);
      assert_int_equal(expid[first], s->index[f].exposure_id[e]);
    }
  free(expid);
  free(fits_row);
  int64_t *size = read_whole(file, "catalog/files/SIZE", NULL);
  for (int f = 0; f < s->info.n_file; f++)
    assert_int_equal(size[f], s->file[f].size);
  free(size);
  H5Fclose(file);
  mill_damaged_rows damaged;
  assert_int_equal(mill_result_damaged(path, s->info.n_row, &damaged), MILL_OK);
  assert_int_equal(damaged.n_catalog, 0);
}

static void test_rows_come_back_bit_for_bit(void **state)
{
  (void)state;
  survey s;
  mill_result_summary summary;
  survey_make(&s, 3, (const int[]){700, 0, 1301});
  mill_result_file *file = open_as(&s, in_dir("rows.h5"), MILL_OPEN_NEW);
  assert_int_equal(is_wanted(file, 0), 1);
  assert_int_equal(is_wanted(file, s.info.n_row - 1), 1);
  /* out of order, and in two epochs at least: the second half waits for a write of the first */
  for (int64_t i = 0; i < s.info.n_row; i++) {
    const int64_t row = i * 1009 % s.info.n_row;
    if (row % test_size == test_rank)
      put_row(&s, file, row);
    if (i == s.info.n_row / 2)
      wait_for(file, 1);
  }
  mill_fit_result again;
  survey_result(&s, test_rank, &again);
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
    n_good += (result.warn & (1 | 2 | 4 | 32 | 512 | 1024 | 2048 | 4096 | 8192)) == 0;
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
  if (test_rank == 0) {
    check_fits(&s, in_dir("rows.h5"), NULL);
    check_catalog(&s, in_dir("rows.h5"));
    assert_int_equal(read_finished(in_dir("rows.h5")), 1);
    assert_int_equal(n_left_over("rows.h5"), 1); /* no lock, no temporary file */
  }
  survey_free(&s);
}

static void test_more_ranks_than_rows(void **state)
{
  (void)state;
  survey s;
  survey_make(&s, 1, (const int[]){1});
  mill_result_file *file = open_as(&s, in_dir("one.h5"), MILL_OPEN_NEW);
  if (test_rank == test_size - 1)
    put_row(&s, file, 0);
  close_all(file, NULL);
  if (test_rank == 0) {
    check_fits(&s, in_dir("one.h5"), NULL);
    check_catalog(&s, in_dir("one.h5"));
    assert_int_equal(read_finished(in_dir("one.h5")), 1);
  }
  survey_free(&s);
}

static void test_empty_catalog_is_finished_at_once(void **state)
{
  (void)state;
  survey s;
  mill_result_summary summary;
  for (int n_file = 0; n_file < 2; n_file++) {
    survey_make(&s, n_file, (const int[]){0});
    if (n_file)
      s.file[0].error = "cut";
    const char *path = in_dir(n_file ? "empty1.h5" : "empty0.h5");
    mill_result_file *file = open_as(&s, path, MILL_OPEN_NEW);
    assert_int_equal(mill_result_n_done(file), 0);
    close_all(file, &summary);
    assert_int_equal(summary.n_status[MILL_STATUS_FITTED], 0);
    if (test_rank == 0) {
      assert_int_equal(read_finished(path), 1);
      check_catalog(&s, path);
      if (n_file) {
        const hid_t h5 = open_plain(path, H5F_ACC_RDONLY);
        char *error = read_whole(h5, "catalog/files/ERROR", NULL);
        assert_string_equal(error, "cut");
        free(error);
        H5Fclose(h5);
      }
    }
    survey_free(&s);
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
  MILL_TRY(MILL_ALLOC(from->n_row, &index->row));
  MILL_TRY(MILL_ALLOC(from->n_exposure, &index->exposure_row));
  MILL_TRY(MILL_ALLOC(from->n_exposure, &index->exposure_id));
  memcpy(index->row, from->row, (size_t)from->n_row * sizeof *from->row);
  memcpy(index->exposure_row, from->exposure_row,
         (size_t)from->n_exposure * sizeof *from->exposure_row);
  memcpy(index->exposure_id, from->exposure_id,
         (size_t)from->n_exposure * sizeof *from->exposure_id);
  index->n_row = from->n_row;
  index->n_exposure = from->n_exposure;
done:
  return err;
}

/* A large catalog is written in several pieces, and rows that were not kept are read again. */
static void test_catalog_in_pieces(void **state)
{
  (void)state;
  survey s;
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
    }
  s.info.index = share;
  s.info.load = load_again;
  s.info.load_context = &a;
  file = open_as(&s, in_dir("pieces.h5"), MILL_OPEN_NEW);
  close_all(file, NULL);
  int n_loaded = 0;
  MPI_Allreduce(&a.n_loaded, &n_loaded, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  assert_int_equal(n_loaded, 2);
  if (test_rank == 0)
    check_catalog(&s, in_dir("pieces.h5"));
  /* one that cannot be read again ends the start on every rank, with its name */
  a.fails = 1;
  assert_int_equal(open_code(&s, in_dir("vanished.h5"), 0, 0, &file, &outcome), MILL_ERR_INPUT);
  assert_non_null(strstr(mill_error_message(), "has vanished"));
  survey_free(&s);
}

/* One rank produces more than the queue holds while the others have nothing and no
   reason of their own to write: they must join, or it waits for ever. */
static void test_idle_ranks_join_a_busy_one(void **state)
{
  (void)state;
  survey s;
  survey_make(&s, 2, (const int[]){16500, 17000}); /* more than two of MILL_QUEUE_ROWS */
  s.info.write_interval_s = 1e6;
  mill_result_file *file = open_as(&s, in_dir("busy.h5"), MILL_OPEN_NEW);
  if (test_rank == test_size - 1) {
    for (int64_t i = 0; i < s.info.n_row; i++)
      put_row(&s, file, s.info.n_row - 1 - i);
    assert_true(mill_result_n_done(file) > 0);
  }
  close_all(file, NULL);
  if (test_rank == 0)
    check_fits(&s, in_dir("busy.h5"), NULL);
  survey_free(&s);
}

/* Rows that no rank puts: the file stays unfinished and says so. */
static void test_stopped_run_is_not_finished(void **state)
{
  (void)state;
  survey s;
  mill_result_summary summary;
  survey_make(&s, 1, (const int[]){100});
  mill_result_file *file = open_as(&s, in_dir("stopped.h5"), MILL_OPEN_NEW);
  put_share(&s, file, 40);
  close_all(file, &summary);
  assert_int_equal(summary.n_status[MILL_STATUS_NOT_DONE], 60);
  if (test_rank == 0) {
    uint8_t done[100] = {0};
    memset(done, 1, 40);
    check_fits(&s, in_dir("stopped.h5"), done);
    assert_int_equal(read_finished(in_dir("stopped.h5")), 0);
    /* what is missing has its documented value */
    const hid_t h5 = open_plain(in_dir("stopped.h5"), H5F_ACC_RDONLY);
    double *vrad = read_whole(h5, "fits/VRAD", NULL), *sn = read_whole(h5, "fits/SN_Z", NULL);
    double *covar = read_whole(h5, "fits/COVAR", NULL);
    assert_true(isnan(vrad[40]) && isnan(vrad[99]) && isnan(covar[21 * 99 + 20]));
    assert_close(sn[99], -1e9, 0);
    free(covar);
    free(sn);
    free(vrad);
    H5Fclose(h5);
  }
  survey_free(&s);
}

static void test_models(void **state)
{
  (void)state;
  survey s;
  survey_make(&s, 2, (const int[]){30, 41});
  const double wave[5] = {4000, 4001, 4002, 4003, 4004};
  const double *const wave_aa[3] = {wave, NULL, wave + 1};
  const int n_pix[3] = {5, 3, 4}; /* rows of the second arm have wavelengths of their own */
  mill_result_file *file = open_as(&s, in_dir("with_models.h5"), MILL_OPEN_NEW);
  if (mill_result_open_models(file, in_dir("models.h5"), 0, wave_aa, n_pix) != MILL_OK)
    fail_msg("models: %s", mill_error_message());
  int64_t n_model = 0, row = 0;
  float flux[5];
  for (int f = 0; f < 2; f++)
    for (int64_t k = 0; k < s.file[f].n_row; k++, row++) {
      for (int e = 0; e < s.index[f].row[k].n_exposure; e++, n_model++) {
        if (row % test_size != test_rank || row % 17 == 5)
          continue;
        for (int i = 0; i < 5; i++)
          flux[i] = (float)(100 * n_model + i);
        const double own[3] = {1.0 / (double)(n_model + 3), 5000.0 + (double)n_model, NAN};
        assert_int_equal(mill_result_put_model(file, 0, n_model, flux, NULL, 5), MILL_OK);
        assert_int_equal(mill_result_put_model(file, 1, n_model, flux + 1, own, 3), MILL_OK);
        assert_int_equal(mill_result_put_model(file, 2, n_model, flux, NULL, 4), MILL_OK);
      }
      if (row % test_size == test_rank)
        put_row(&s, file, row);
    }
  assert_int_equal(mill_result_put_model(file, 3, 0, flux, NULL, 5), MILL_ERR_INTERNAL);
  assert_int_equal(mill_result_put_model(file, 0, n_model, flux, NULL, 5), MILL_ERR_INTERNAL);
  assert_int_equal(mill_result_put_model(file, 0, 0, flux, NULL, 4), MILL_ERR_INTERNAL);
  /* wavelengths where there are common ones, none where there are not */
  assert_int_equal(mill_result_put_model(file, 0, 0, flux, wave, 5), MILL_ERR_INTERNAL);
  assert_int_equal(mill_result_put_model(file, 1, 0, flux, NULL, 3), MILL_ERR_INTERNAL);
  close_all(file, NULL);
  if (test_rank == 0) {
    const hid_t h5 = open_plain(in_dir("models.h5"), H5F_ACC_RDONLY);
    size_t n_byte;
    float *b = read_whole(h5, "models/b/flux", &n_byte);
    assert_int_equal(n_byte, 20 * n_model);
    float *z = read_whole(h5, "models/z/flux", NULL);
    double *stored = read_whole(h5, "models/z/wavelength", NULL);
    float *r = read_whole(h5, "models/r/flux", NULL);
    double *own = read_whole(h5, "models/r/wavelength", &n_byte);
    assert_int_equal(n_byte, 24 * n_model);
    int64_t *fits_row = read_whole(h5, "models/fits_row", NULL);
    int64_t *target = read_whole(h5, "models/TARGETID", NULL);
    int32_t *exposure = read_whole(h5, "models/exposure", NULL);
    assert_close(stored[0], 4001, 0);
    int64_t m = 0;
    row = 0;
    for (int f = 0; f < 2; f++)
      for (int64_t k = 0; k < s.file[f].n_row; k++, row++)
        for (int e = 0; e < s.index[f].row[k].n_exposure; e++, m++) {
          assert_int_equal(fits_row[m], row);
          assert_int_equal(exposure[m], e);
          assert_int_equal(target[m], s.index[f].row[k].target_id);
          if (row % 17 == 5)
            assert_true(isnan(b[5 * m]) && isnan(z[4 * m + 3]) && isnan(own[3 * m]));
          else
            assert_true(own[3 * m] == 1.0 / (double)(m + 3) && isnan(own[3 * m + 2]) &&
                        own[3 * m + 1] == 5000.0 + (double)m && r[3 * m] == (float)(100 * m + 1));
          if (row % 17 != 5)
            assert_true(b[5 * m + 4] == (float)(100 * m + 4) && z[4 * m] == (float)(100 * m));
        }
    free(exposure);
    free(target);
    free(fits_row);
    free(stored);
    free(r);
    free(own);
    free(z);
    free(b);
    H5Fclose(h5);
    assert_int_equal(n_left_over("models.h5"), 1);
  }
  survey_free(&s);
}

static void test_unwritable_folder(void **state)
{
  (void)state;
  survey s;
  survey_make(&s, 1, (const int[]){10});
  refuses(&s, in_dir("nowhere/out.h5"), "create the folder");
  if (test_rank == 0)
    spill(in_dir("plain"), "", 0);
  MPI_Barrier(MPI_COMM_WORLD);
  refuses(&s, in_dir("plain/out.h5"), "Not a directory");
  refuses(&s, test_dir, "not a regular file");
  survey_free(&s);
}

static void limit_file_size(rlim_t n_byte)
{
  struct rlimit limit;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = n_byte;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* A limit of the file size stands for a full disk: the same calls fail. */
static void test_full_disk_at_creation(void **state)
{
  (void)state;
  survey s;
  survey_make(&s, 2, (const int[]){4000, 4000});
  limit_file_size(1000000);
  refuses(&s, in_dir("full.h5"), "make room");
  limit_file_size(RLIM_INFINITY);
  if (test_rank == 0)
    assert_int_equal(n_left_over("full.h5"), 0);
  MPI_Barrier(MPI_COMM_WORLD);
  /* and it works once there is room */
  close_all(open_as(&s, in_dir("full.h5"), MILL_OPEN_NEW), NULL);
  survey_free(&s);
}

/* Writing begins to fail later, on one rank: every rank hears of it and none hangs. */
static void test_failing_write_reaches_every_rank(void **state)
{
  (void)state;
  survey s;
  survey_make(&s, 1, (const int[]){3000});
  mill_result_file *file = open_as(&s, in_dir("failing.h5"), MILL_OPEN_NEW);
  put_share(&s, file, 100);
  wait_for(file, 100);
  assert_int_equal(mill_result_n_done(file), 100);
  /* every rank has finished the epoch before the limit falls */
  MPI_Barrier(MPI_COMM_WORLD);
  if (test_rank == 0)
    limit_file_size(1000);
  int err = MILL_OK;
  mill_fit_result result;
  for (int64_t row = 100; row < 3000 && err == MILL_OK; row++) {
    if (row % test_size != test_rank)
      continue;
    survey_result(&s, row, &result);
    err = mill_result_put(file, &result);
    usleep(200);
  }
  assert_int_equal(mill_result_close(file, NULL), MILL_ERR_OUTPUT);
  assert_non_null(strstr(mill_error_message(), "failing.h5: cannot write"));
  limit_file_size(RLIM_INFINITY);
  if (test_rank == 0) {
    assert_int_equal(read_finished(in_dir("failing.h5")), 0);
    assert_int_equal(n_left_over("failing.h5"), 1);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  /* what was written before is whole, and the run can be continued */
  file = open_as(&s, in_dir("failing.h5"), MILL_OPEN_CONTINUE);
  assert_true(mill_result_n_done(file) >= 100);
  put_share(&s, file, 3000);
  close_all(file, NULL);
  if (test_rank == 0)
    check_fits(&s, in_dir("failing.h5"), NULL);
  survey_free(&s);
}

static void test_lock_of_another_job(void **state)
{
  (void)state;
  survey s;
  static const char far[] = "host far-away\npid 12\njob 4711\nrestart 0\nstart 1\nspace -\n";
  survey_make(&s, 1, (const int[]){10});
  if (test_rank == 0)
    spill(in_dir("locked.h5.lock"), far, sizeof far - 1);
  MPI_Barrier(MPI_COMM_WORLD);
  refuses(&s, in_dir("locked.h5"), "host far-away, Slurm job 4711");
  if (test_rank == 0)
    assert_int_equal(unlink(in_dir("locked.h5.lock")) + n_left_over("locked.h5"), 0);
  MPI_Barrier(MPI_COMM_WORLD);
  /* and while one run writes, a second is refused */
  mill_result_file *file = open_as(&s, in_dir("locked.h5"), MILL_OPEN_NEW);
  mill_result_file *other;
  int outcome;
  assert_int_equal(open_code(&s, in_dir("locked.h5"), 0, 0, &other, &outcome), MILL_ERR_OUTPUT);
  assert_non_null(strstr(mill_error_message(), "is being written"));
  close_all(file, NULL);
  if (test_rank == 0)
    assert_int_equal(n_left_over("locked.h5"), 1);
  MPI_Barrier(MPI_COMM_WORLD);
  survey_free(&s);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rows_come_back_bit_for_bit),
      cmocka_unit_test(test_more_ranks_than_rows),
      cmocka_unit_test(test_empty_catalog_is_finished_at_once),
      cmocka_unit_test(test_catalog_in_pieces),
      cmocka_unit_test(test_idle_ranks_join_a_busy_one),
      cmocka_unit_test(test_stopped_run_is_not_finished),
      cmocka_unit_test(test_models),
      cmocka_unit_test(test_unwritable_folder),
      cmocka_unit_test(test_full_disk_at_creation),
      cmocka_unit_test(test_failing_write_reaches_every_rank),
      cmocka_unit_test(test_lock_of_another_job),
  };
  if (fixture_start(&argc, &argv) != 0)
    return 1;
  signal(SIGXFSZ, SIG_IGN);
  return fixture_end(cmocka_run_group_tests(tests, NULL, NULL));
}
