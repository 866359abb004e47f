/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs that are continued, found finished, or refused. */
#include "tests/mpi/result_fixture.h"

enum { N_ROW = 500 };

/* A file with the first n rows fitted, closed in good order. */
static void make(survey *s, const char *path, int64_t n)
{
  survey_make(s, 2, (const int[]){200, N_ROW - 200});
  mill_result_file *file = open_as(s, path, MILL_OPEN_NEW);
  put_share(s, file, n);
  close_all(file, NULL);
}

static int64_t count_wanted(const mill_result_file *file)
{
  int64_t n = 0;
  for (int64_t row = 0; row < N_ROW; row++)
    n += is_wanted(file, row);
  return n;
}

/* Change some bytes of a dataset behind the program's back. */
static void damage(const char *path, const char *name, int64_t row, double value)
{
  if (test_rank == 0) {
    const hid_t file = open_plain(path, H5F_ACC_RDWR);
    const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    const hid_t space = H5Dget_space(dataset), one = H5Screate(H5S_SCALAR);
    const hsize_t at = (hsize_t)row;
    assert_true(H5Sselect_elements(space, H5S_SELECT_SET, 1, &at) >= 0);
    assert_true(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, one, space, H5P_DEFAULT, &value) >= 0);
    H5Sclose(one);
    H5Sclose(space);
    H5Dclose(dataset);
    H5Fclose(file);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

static void test_continued_run_equals_an_uninterrupted_one(void **state)
{
  (void)state;
  survey s, whole;
  mill_result_summary summary;
  make(&s, in_dir("part.h5"), 123);
  make(&whole, in_dir("whole.h5"), N_ROW);
  /* operation may change between runs */
  s.info.n_thread = 5;
  s.info.command = "again";
  s.info.write_interval_s = 1;
  mill_result_file *file = open_as(&s, in_dir("part.h5"), MILL_OPEN_CONTINUE);
  assert_int_equal(mill_result_n_done(file), 123);
  assert_int_equal(count_wanted(file), N_ROW - 123);
  assert_int_equal(is_wanted(file, 122), 0);
  assert_int_equal(is_wanted(file, 123), 1);
  put_share(&s, file, N_ROW);
  close_all(file, &summary);
  assert_int_equal(summary.n_status[MILL_STATUS_NOT_DONE], 0);
  if (test_rank == 0) {
    assert_int_equal(read_finished(in_dir("part.h5")), 1);
    const hid_t a = open_plain(in_dir("part.h5"), H5F_ACC_RDONLY);
    const hid_t b = open_plain(in_dir("whole.h5"), H5F_ACC_RDONLY);
    mill_columns catalog;
    mill_columns_catalog(&catalog);
    for (int k = 0; k < 2; k++) {
      const mill_columns *columns = k ? &catalog : &s.columns;
      for (int i = 0; i < columns->n_column; i++) {
        char name[64];
        size_t n_a, n_b;
        snprintf(name, sizeof name, "%s/%s", k ? "catalog" : "fits", columns->column[i].name);
        char *in_a = read_whole(a, name, &n_a), *in_b = read_whole(b, name, &n_b);
        assert_int_equal(n_a, n_b);
        assert_memory_equal(in_a, in_b, n_a);
        free(in_b);
        free(in_a);
      }
    }
    int32_t *n_run = read_whole(a, "provenance/N_RUN", NULL);
    assert_int_equal(*n_run, 2);
    free(n_run);
    H5Fclose(b);
    H5Fclose(a);
  }
  survey_free(&whole);
  survey_free(&s);
}

/* A copy taken while the file is being written is what a kill leaves. */
static void test_rows_marked_done_are_whole_at_any_moment(void **state)
{
  (void)state;
  survey s;
  long n = 0;
  survey_make(&s, 2, (const int[]){200, N_ROW - 200});
  mill_result_file *file = open_as(&s, in_dir("live.h5"), MILL_OPEN_NEW);
  put_share(&s, file, 77);
  wait_for(file, 77);
  put_share(&s, file, 300); /* still under way */
  if (test_rank == 0) {
    char *bytes = slurp(in_dir("live.h5"), &n);
    spill(in_dir("killed.h5"), bytes, n);
    free(bytes);
  }
  close_all(file, NULL);
  file = open_as(&s, in_dir("killed.h5"), MILL_OPEN_CONTINUE);
  const int64_t n_done = mill_result_n_done(file);
  assert_true(n_done >= 77 && n_done <= 300);
  uint8_t done[N_ROW];
  for (int64_t row = 0; row < N_ROW; row++)
    done[row] = !is_wanted(file, row);
  if (test_rank == 0)
    check_fits(&s, in_dir("killed.h5"), done);
  MPI_Barrier(MPI_COMM_WORLD);
  put_share(&s, file, N_ROW);
  close_all(file, NULL);
  if (test_rank == 0)
    check_fits(&s, in_dir("killed.h5"), NULL);
  survey_free(&s);
}

static void test_damaged_rows_are_fitted_again(void **state)
{
  (void)state;
  survey s;
  make(&s, in_dir("damaged.h5"), 400);
  damage(in_dir("damaged.h5"), "fits/TEFF", 10, 5778);   /* a value */
  damage(in_dir("damaged.h5"), "fits/CRC", 399, 1);      /* the sum */
  damage(in_dir("damaged.h5"), "fits/STATUS", 42, 99);   /* no such status */
  damage(in_dir("damaged.h5"), "fits/STATUS", 450, 1);   /* never fitted */
  damage(in_dir("damaged.h5"), "fits/TARGETID", 200, 3); /* someone else's row */
  damage(in_dir("damaged.h5"), "fits/TARGETID", 200, 39600000000000200);
  mill_result_file *file = open_as(&s, in_dir("damaged.h5"), MILL_OPEN_CONTINUE);
  for (int64_t row = 0; row < N_ROW; row++)
    assert_int_equal(is_wanted(file, row), row >= 400 || row == 10 || row == 399 || row == 42);
  assert_int_equal(mill_result_n_done(file), 397);
  /* no run may take them for done any more */
  if (test_rank == 0) {
    const hid_t h5 = open_plain(in_dir("damaged.h5"), H5F_ACC_RDONLY);
    int32_t *status = read_whole(h5, "fits/STATUS", NULL);
    assert_int_equal(status[10], MILL_STATUS_NOT_DONE);
    assert_int_equal(status[42], MILL_STATUS_NOT_DONE);
    assert_int_equal(status[399], MILL_STATUS_NOT_DONE);
    assert_int_equal(status[450], MILL_STATUS_NOT_DONE);
    assert_int_equal(status[9], MILL_STATUS_FITTED);
    free(status);
    H5Fclose(h5);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  put_share(&s, file, N_ROW);
  close_all(file, NULL);
  if (test_rank == 0)
    check_fits(&s, in_dir("damaged.h5"), NULL);
  survey_free(&s);
}

static void test_finished_file_is_not_touched(void **state)
{
  (void)state;
  survey s;
  mill_result_summary summary;
  struct stat before, after;
  long n = 0, n_after = 0;
  char *bytes = NULL;
  make(&s, in_dir("finished.h5"), N_ROW);
  if (test_rank == 0) {
    bytes = slurp(in_dir("finished.h5"), &n);
    assert_int_equal(stat(in_dir("finished.h5"), &before), 0);
    /* a lock of another job does not matter, for nothing will be written */
    spill(in_dir("finished.h5.lock"), "not ours", 8);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  mill_result_file *file = open_as(&s, in_dir("finished.h5"), MILL_OPEN_FINISHED);
  assert_int_equal(count_wanted(file), 0);
  assert_int_equal(mill_result_n_done(file), N_ROW);
  close_all(file, &summary);
  int64_t n_failed = 0;
  for (int row = 0; row < N_ROW; row++)
    n_failed += row % 17 == 5;
  assert_int_equal(summary.n_status[MILL_STATUS_LOW_SN], n_failed);
  assert_int_equal(summary.n_status[MILL_STATUS_FITTED], N_ROW - n_failed);
  if (test_rank == 0) {
    char *bytes_after = slurp(in_dir("finished.h5"), &n_after);
    assert_int_equal(stat(in_dir("finished.h5"), &after), 0);
    assert_int_equal(n, n_after);
    assert_memory_equal(bytes, bytes_after, (size_t)n);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_memory_equal(&before.st_mtim, &after.st_mtim, sizeof before.st_mtim);
    assert_int_equal(unlink(in_dir("finished.h5.lock")), 0);
    free(bytes_after);
    free(bytes);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  survey_free(&s);
}

static void test_failed_rows_stay_failed_unless_retried(void **state)
{
  (void)state;
  survey s;
  make(&s, in_dir("retry.h5"), N_ROW);
  mill_result_file *file = open_with(&s, in_dir("retry.h5"), RETRY, MILL_OPEN_CONTINUE);
  for (int64_t row = 0; row < N_ROW; row++)
    assert_int_equal(is_wanted(file, row), row % 17 == 5);
  if (test_rank == 0)
    assert_int_equal(read_finished(in_dir("retry.h5")), 0);
  MPI_Barrier(MPI_COMM_WORLD);
  put_share(&s, file, N_ROW);
  close_all(file, NULL);
  if (test_rank == 0) {
    check_fits(&s, in_dir("retry.h5"), NULL);
    assert_int_equal(read_finished(in_dir("retry.h5")), 1);
  }
  survey_free(&s);
  /* in a part-done file as well; without the option only the missing rows */
  make(&s, in_dir("retry2.h5"), 100);
  file = open_as(&s, in_dir("retry2.h5"), MILL_OPEN_CONTINUE);
  assert_int_equal(is_wanted(file, 5), 0);
  close_all(file, NULL);
  file = open_with(&s, in_dir("retry2.h5"), RETRY, MILL_OPEN_CONTINUE);
  assert_int_equal(is_wanted(file, 5), 1);
  assert_int_equal(is_wanted(file, 6), 0);
  close_all(file, NULL);
  survey_free(&s);
}

static void test_other_identity_is_refused(void **state)
{
  (void)state;
  survey s;
  const char *path = in_dir("identity.h5");
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
             {&s.file[1].redrock, &text[3], sizeof *text,
              "coadd-1.fits: its redrock file was none, now redrock-1.fits"},
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
  survey_free(&s);
  survey_make(&s, 3, (const int[]){200, N_ROW - 200, 0});
  refuses(&s, path, "2 files, now 3");
  survey_free(&s);
  survey_make(&s, 2, (const int[]){200, N_ROW - 201});
  refuses(&s, path, "selected rows have changed");
  survey_free(&s);
  /* the right one still continues */
  survey_make(&s, 2, (const int[]){200, N_ROW - 200});
  mill_result_file *file = open_as(&s, path, MILL_OPEN_CONTINUE);
  close_all(file, NULL);
  survey_free(&s);
}

static void test_foreign_files_are_refused_and_damaged_ones_overwritten_on_demand(void **state)
{
  (void)state;
  static const char *const why[] = {"not an HDF5 file",     "not an HDF5 file",
                                    "damaged or truncated", "not a result of starmill",
                                    "newer starmill",       "older starmill"};
  survey s;
  char path[1024];
  snprintf(path, sizeof path, "%s/foreign.h5", test_dir);
  make(&s, in_dir("good.h5"), 10);
  for (int k = 0; k < 6; k++) {
    if (test_rank == 0) {
      long n;
      char *bytes = slurp(in_dir("good.h5"), &n);
      if (k == 0)
        spill(path, "SIMPLE  = T", 11);
      if (k == 1)
        spill(path, "", 0);
      if (k == 2)
        spill(path, bytes, n / 2);
      if (k == 3)
        H5Fclose(H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
      if (k >= 4) {
        spill(path, bytes, n);
        const hid_t file = open_plain(path, H5F_ACC_RDWR);
        const hid_t attr = H5Aopen_by_name(file, "/", "FORMAT_VERSION", H5P_DEFAULT, H5P_DEFAULT);
        const int64_t version = k == 4 ? 99 : 1;
        assert_true(H5Awrite(attr, H5T_NATIVE_INT64, &version) >= 0);
        H5Aclose(attr);
        H5Fclose(file);
      }
      free(bytes);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    refuses(&s, path, why[k]);
    if (test_rank == 0)
      assert_int_equal(n_left_over("foreign.h5"), 1);
    MPI_Barrier(MPI_COMM_WORLD);
    mill_result_file *file;
    int outcome;
    if (k == 0 || k == 3) { /* not starmill's: it stays */
      assert_int_equal(open_code(&s, path, 1, 0, &file, &outcome), MILL_ERR_USAGE);
      assert_non_null(strstr(mill_error_message(), "is not a starmill result file"));
      continue;
    }
    file = open_with(&s, path, OVERWRITE, MILL_OPEN_NEW);
    put_share(&s, file, N_ROW);
    close_all(file, NULL);
    if (test_rank == 0)
      check_fits(&s, path, NULL);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  survey_free(&s);
}

/* --overwrite that fails before the new file is complete keeps the old one. */
static void test_failed_overwrite_keeps_the_old_file(void **state)
{
  (void)state;
  survey s;
  make(&s, in_dir("kept.h5"), N_ROW);
  mill_result_file *file;
  int outcome;
  s.info.n_row++; /* rows and files disagree */
  assert_int_equal(open_code(&s, in_dir("kept.h5"), 1, 0, &file, &outcome), MILL_ERR_INTERNAL);
  s.info.n_row--;
  if (test_rank == 0) {
    check_fits(&s, in_dir("kept.h5"), NULL);
    assert_int_equal(n_left_over("kept.h5"), 1);
    /* what a killed creation leaves is cleared away by the next one */
    spill(in_dir("kept.h5.tmp-123"), "x", 1);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  close_all(open_with(&s, in_dir("kept.h5"), OVERWRITE, MILL_OPEN_NEW), NULL);
  if (test_rank == 0)
    assert_int_equal(n_left_over("kept.h5"), 1);
  survey_free(&s);
}

static void test_models_belong_to_one_result(void **state)
{
  (void)state;
  survey s;
  const double wave[2] = {4000, 4001}, other[2] = {4000, 4002};
  const double *const wave_aa[3] = {wave, NULL, NULL}, *const other_aa[3] = {other, NULL, NULL};
  const double *const none_aa[3] = {NULL, NULL, NULL}; /* each row its own */
  const int n_pix[3] = {2, 0, 0};
  const float flux[2] = {1, 2};
  survey_make(&s, 2, (const int[]){200, N_ROW - 200});
  mill_result_file *file = open_as(&s, in_dir("mine.h5"), MILL_OPEN_NEW);
  assert_int_equal(mill_result_open_models(file, in_dir("m.h5"), 0, wave_aa, n_pix), MILL_OK);
  if (test_rank == 0)
    assert_int_equal(mill_result_put_model(file, 0, 0, flux, NULL, 2), MILL_OK);
  put_share(&s, file, 10);
  close_all(file, NULL);
  /* continued: used again, what was written stays */
  file = open_as(&s, in_dir("mine.h5"), MILL_OPEN_CONTINUE);
  assert_int_equal(mill_result_open_models(file, in_dir("m.h5"), 0, other_aa, n_pix),
                   MILL_ERR_OUTPUT);
  assert_non_null(strstr(mill_error_message(), "other wavelengths"));
  assert_int_equal(mill_result_open_models(file, in_dir("m.h5"), 0, none_aa, n_pix),
                   MILL_ERR_OUTPUT);
  assert_non_null(strstr(mill_error_message(), "one set of wavelengths for all rows"));
  assert_int_equal(mill_result_open_models(file, in_dir("missing.h5"), 0, wave_aa, n_pix),
                   MILL_ERR_OUTPUT);
  assert_non_null(strstr(mill_error_message(), "10 rows"));
  assert_int_equal(mill_result_open_models(file, in_dir("m.h5"), 0, wave_aa, n_pix), MILL_OK);
  put_share(&s, file, 20);
  close_all(file, NULL);
  if (test_rank == 0) {
    const hid_t h5 = open_plain(in_dir("m.h5"), H5F_ACC_RDONLY);
    float *stored = read_whole(h5, "models/b/flux", NULL);
    assert_true(stored[0] == 1 && stored[1] == 2 && isnan(stored[2]));
    assert_true(H5Lexists(h5, "models/r", H5P_DEFAULT) == 0);
    free(stored);
    H5Fclose(h5);
  }
  /* another result may not have it, unless it is told to start over */
  file = open_as(&s, in_dir("yours.h5"), MILL_OPEN_NEW);
  assert_int_equal(mill_result_open_models(file, in_dir("m.h5"), 0, wave_aa, n_pix),
                   MILL_ERR_OUTPUT);
  assert_non_null(strstr(mill_error_message(), "another result file"));
  assert_int_equal(mill_result_open_models(file, in_dir("m.h5"), 1, wave_aa, n_pix), MILL_OK);
  close_all(file, NULL);
  if (test_rank == 0)
    assert_int_equal(n_left_over("m.h5"), 1);
  survey_free(&s);
}

/* A requeued script that has --overwrite goes on with what its first start has begun. */
static void test_overwrite_of_a_requeued_job_is_done_once(void **state)
{
  (void)state;
  survey s;
  const char *path = in_dir("requeued.h5"), *same = NULL;
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
    mill_result_file *file = open_with(&s, path, OVERWRITE, start[i].outcome);
    if (start[i].outcome == MILL_OPEN_CONTINUE)
      assert_int_equal(mill_result_n_done(file), start[i - 1].n_put);
    if (start[i].n_put > 0)
      put_share(&s, file, start[i].n_put);
    close_all(file, NULL);
  }
  unsetenv("SLURM_JOB_ID");
  unsetenv("SLURM_RESTART_COUNT");
  survey_free(&s);
}

/* Continued without models, a run cannot go back to them: they would have gaps. */
static void test_models_without_gaps(void **state)
{
  (void)state;
  survey s;
  const double wave[2] = {4000, 4001};
  const double *const wave_aa[3] = {wave, NULL, NULL};
  const int n_pix[3] = {2, 0, 0};
  survey_make(&s, 2, (const int[]){200, N_ROW - 200});
  mill_result_file *file = open_as(&s, in_dir("gap.h5"), MILL_OPEN_NEW);
  assert_int_equal(mill_result_open_models(file, in_dir("gap-m.h5"), 0, wave_aa, n_pix), MILL_OK);
  put_share(&s, file, 10);
  close_all(file, NULL);
  /* nothing was fitted meanwhile: no gap */
  file = open_as(&s, in_dir("gap.h5"), MILL_OPEN_CONTINUE);
  close_all(file, NULL);
  file = open_as(&s, in_dir("gap.h5"), MILL_OPEN_CONTINUE);
  assert_int_equal(mill_result_open_models(file, in_dir("gap-m.h5"), 0, wave_aa, n_pix), MILL_OK);
  close_all(file, NULL);
  file = open_as(&s, in_dir("gap.h5"), MILL_OPEN_CONTINUE);
  put_share(&s, file, 20);
  close_all(file, NULL);
  file = open_as(&s, in_dir("gap.h5"), MILL_OPEN_CONTINUE);
  assert_int_equal(mill_result_open_models(file, in_dir("gap-m.h5"), 0, wave_aa, n_pix),
                   MILL_ERR_OUTPUT);
  assert_non_null(strstr(mill_error_message(), "without --models"));
  assert_non_null(strstr(mill_error_message(), "gap-m.h5"));
  close_all(file, NULL);
  survey_free(&s);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_continued_run_equals_an_uninterrupted_one),
      cmocka_unit_test(test_rows_marked_done_are_whole_at_any_moment),
      cmocka_unit_test(test_damaged_rows_are_fitted_again),
      cmocka_unit_test(test_finished_file_is_not_touched),
      cmocka_unit_test(test_failed_rows_stay_failed_unless_retried),
      cmocka_unit_test(test_other_identity_is_refused),
      cmocka_unit_test(test_foreign_files_are_refused_and_damaged_ones_overwritten_on_demand),
      cmocka_unit_test(test_failed_overwrite_keeps_the_old_file),
      cmocka_unit_test(test_models_belong_to_one_result),
      cmocka_unit_test(test_overwrite_of_a_requeued_job_is_done_once),
      cmocka_unit_test(test_models_without_gaps),
  };
  if (fixture_start(&argc, &argv) != 0)
    return 1;
  return fixture_end(cmocka_run_group_tests(tests, NULL, NULL));
}
