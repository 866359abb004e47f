/* SPDX-License-Identifier: BSD-3-Clause */
/* The reader threads of all ranks together read every wanted row once, with its pixels. */
#include "tests/mpi/ranks.h"

#include "io/stars/reader.h"
#include "tests/test_library.h"

enum { N_FILE = 2, ARM_B = 0, ARM_R = 1, ARM_Z = 2 };

static int n_thread; /* that read, of each rank */
static const char *const input[] = {"sim/coadd-dev.fits.gz", "sim/coadd-dev-patho.fits.gz"};
/* Paths of unpacked copies of `input`.  Rank 0 unpacks once, instead of each opening. */
static char plain[2][300];

/* Two files of the test data as a run sees them. */
static struct catalog {
  mill_spectra_settings settings;
  mill_library lib;
  mill_config config;
  mill_input_file file[N_FILE];
  char path[N_FILE][1024];
  mill_file_index index[N_FILE];
  int64_t exposure_start[N_FILE];
  mill_result_file *result;
  int64_t n_exposure[N_FILE];
  mill_work *work;
  mill_inputs inputs;
  mill_reader_plan plan;
} c;

/* Skips the test if a file is missing. */
static void open_catalog(const char *name, int packed)
{
  char path[512];
  int outcome = -1;
  int64_t n_row = 0, n_exposure = 0;
  memset(&c, 0, sizeof c);
  test_library_name(2, 3, &c.lib);
  for (int a = 0; a < 3; a++)
    c.lib.arm[a].template_sigma_aa = 0.5;
  memset(c.lib.hash, 'a', sizeof c.lib.hash - 1);
  mill_config_default(&c.config);
  c.settings = (mill_spectra_settings){
      .lib = &c.lib, .config = &c.config, .arm_wanted = {1, 1, 1}, .limits = {4096, ""}};
  for (int i = 0; i < N_FILE; i++) {
    const char *at = mill_test_data_path(input[i]);
    mill_spectra *spectra = NULL;
    if (!at)
      skip();
    if (!packed)
      at = plain[i];
    snprintf(c.path[i], sizeof c.path[i], "%s", at);
    c.file[i].path = c.path[i];
    c.file[i].error = "";
    assert_int_equal(mill_spectra_open(at, &c.settings, &spectra), MILL_OK);
    assert_int_equal(mill_spectra_index(spectra, &c.config.select, &c.index[i]), MILL_OK);
    mill_spectra_close(spectra);
    c.file[i].size = c.index[i].file_size;
    c.file[i].mtime = c.index[i].file_mtime;
    c.file[i].rows_hash = c.index[i].rows_hash;
    c.file[i].row_start = n_row;
    c.file[i].n_row = c.index[i].n_row;
    c.exposure_start[i] = n_exposure;
    c.n_exposure[i] = c.index[i].n_exposure;
    n_row += c.index[i].n_row;
    n_exposure += c.index[i].n_exposure;
  }
  const int start = N_FILE * mpi.rank / mpi.size, end = N_FILE * (mpi.rank + 1) / mpi.size;
  const mill_run_info info = {.lib = &c.lib,
                              .identity = "reader test",
                              .config = "",
                              .command = "",
                              .device = "none",
                              .n_thread = 1,
                              .n_row = n_row,
                              .n_file = N_FILE,
                              .file = c.file,
                              .file_start = start,
                              .file_end = end,
                              .index = c.index + start,
                              .write_interval_s = 0.1};
  snprintf(path, sizeof path, "%s/%d-%s", folder, n_thread, name);
  assert_ok(mill_result_open(path, 0, 0, &info, MPI_COMM_WORLD, &c.result, &outcome));
  c.inputs = (mill_inputs){.settings = c.settings,
                           .n_file = N_FILE,
                           .file = c.file,
                           .exposure_start = c.exposure_start,
                           .n_exposure = c.n_exposure};
  const mill_work_plan work = {
      .inputs = &c.inputs, .result = c.result, .rate = 127, .n_held = 32, .n_ahead = 32};
  assert_ok(mill_work_open(&mpi, &work, &c.work));
  c.plan = (mill_reader_plan){.inputs = &c.inputs, .work = c.work, .n_thread = n_thread};
}

static void close_catalog(void)
{
  assert_int_equal(mill_work_settle(c.work), MILL_OK);
  mill_work_free(c.work);
  assert_int_equal(mill_result_close(c.result, NULL), MILL_OK);
  for (int i = 0; i < N_FILE; i++)
    mill_file_index_clear(&c.index[i]);
  mill_config_clear(&c.config);
}

static mill_batch *next(mill_reader *reader)
{
  mill_batch *batch = NULL;
  assert_ok(mill_reader_next(reader, &batch));
  return batch;
}

/* Against a plain reading of the same row. */
static void check_pixels(mill_spectra *spectra, const mill_batch *batch, const mill_star *star)
{
  const int64_t in_file = star->row - c.file[batch->i_file].row_start;
  const int64_t fits_row = c.index[batch->i_file].row[in_file].fits_row;
  /* b, r, z of its only exposure */
  assert_int_equal(star->n_segment, 3);
  const mill_raw_segment *got = &star->segment[ARM_R];
  static mill_read_batch row;
  assert_ok(mill_spectra_read(spectra, &fits_row, 1, &row));
  const mill_raw_segment *plainly = &row.segment[ARM_R];
  const size_t n_pix = (size_t)got->n_pix, n_diag = (size_t)got->n_diag;
  assert_int_equal(got->use, MILL_SEGMENT_FIT);
  assert_int_equal(got->exposure, 0);
  assert_int_equal(got->arm, ARM_R);
  assert_int_equal(n_pix, plainly->n_pix);
  assert_int_equal(batch->n_part, 1);
  assert_ptr_equal(got->wave_aa, batch->star[0]->segment[ARM_R].wave_aa); /* shared by all */
  assert_memory_equal(got->wave_aa, plainly->wave_aa, n_pix * sizeof(double));
  assert_int_equal(n_diag, 11);
  assert_null(got->sigma_aa);
  assert_memory_equal(got->flux, plainly->flux, n_pix * sizeof(float));
  assert_memory_equal(got->ivar, plainly->ivar, n_pix * sizeof(float));
  assert_memory_equal(got->mask, plainly->mask, n_pix * sizeof(int32_t));
  assert_memory_equal(got->resolution, plainly->resolution, n_pix * n_diag * sizeof(float));
  /* arrays lie one after the other, so that one copy takes them to a GPU */
  const mill_raw_segment *s = star->segment;
  const char *begin = (const char *)s->flux;
  size_t at = 0;
  for (int a = 0; a < 3; a++, s++) {
    const size_t bytes = 4 * (size_t)s->n_pix;
    assert_ptr_equal(s->flux, begin + mill_take(&at, bytes));
    assert_ptr_equal(s->ivar, begin + mill_take(&at, bytes));
    assert_ptr_equal(s->mask, begin + mill_take(&at, bytes));
    assert_ptr_equal(s->resolution, begin + mill_take(&at, (size_t)s->n_diag * bytes));
  }
}

MILL_TEST(every_row_comes_once_with_its_pixels)
{
  int n_seen[512] = {0};
  static mill_spectra *spectra[N_FILE];
  mill_reader *reader = NULL;
  open_catalog("all.h5", 1);
  const int64_t n_row = c.file[1].row_start + c.file[1].n_row;
  assert_true(n_row < 512);
  assert_int_equal(mill_reader_start(&c.plan, &reader), MILL_OK);
  for (mill_batch *batch; (batch = next(reader)) != NULL; mill_reader_release(reader, batch)) {
    const int i = batch->i_file;
    assert_string_equal(batch->error, "");
    assert_true(batch->n_exposure <= MILL_BATCH_EXPOSURES);
    if (!spectra[i])
      assert_ok(mill_spectra_open(plain[i], &c.settings, &spectra[i]));
    for (int k = 0; k < batch->n_row; k++) {
      mill_star *star = batch->star[k];
      assert_int_equal(star->first_exposure, star->row); /* one exposure each */
      assert_int_equal(star->identity, c.index[i].row[star->row - c.file[i].row_start].target_id);
      n_seen[star->row]++;
      check_pixels(spectra[i], batch, star);
    }
    mill_star *last = batch->star[batch->n_row - 1]; /* goes on without its batch */
    batch->star[batch->n_row - 1] = NULL;
    mill_reader_release_star(reader, last);
  }
  mill_reader_stop(reader);
  MPI_Allreduce(MPI_IN_PLACE, n_seen, 512, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  for (int64_t row = 0; row < 512; row++)
    assert_int_equal(n_seen[row], row < n_row);
  for (int i = 0; i < N_FILE; i++) {
    mill_spectra_close(spectra[i]);
    spectra[i] = NULL;
  }
  close_catalog();
}

/* The second file's size or (by_rows) list of selected rows has changed; all its rows must fail. */
static void changed_file_costs_its_rows(const char *result, int by_rows)
{
  mill_reader *reader = NULL;
  int n_bad = 0, n_good = 0;
  open_catalog(result, 0);
  *(by_rows ? &c.file[1].rows_hash : &c.file[1].size) += 1;
  assert_int_equal(mill_reader_start(&c.plan, &reader), MILL_OK);
  for (mill_batch *batch; (batch = next(reader)) != NULL; mill_reader_release(reader, batch)) {
    assert_int_equal(batch->error[0] != '\0', batch->i_file == 1);
    *(batch->error[0] ? &n_bad : &n_good) += batch->n_row;
    if (batch->i_file == 1) {
      assert_non_null(strstr(batch->error, c.file[1].path));
      assert_non_null(strstr(batch->error, "changed"));
    }
  }
  mill_reader_stop(reader);
  MPI_Allreduce(MPI_IN_PLACE, &n_bad, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, &n_good, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  assert_int_equal(n_bad, c.file[1].n_row);
  assert_int_equal(n_good, c.file[0].n_row);
  close_catalog();
}

MILL_TEST(file_that_changed_costs_its_rows)
{
  changed_file_costs_its_rows("changed.h5", 0);
  changed_file_costs_its_rows("changed-rows.h5", 1);
}

MILL_TEST(rows_that_are_done_are_passed_over)
{
  mill_reader *reader = NULL;
  int n_row = 0;
  open_catalog("done.h5", 0);
  close_catalog();
  open_catalog("done.h5", 0);
  /* Ranks store all rows of the first file and the first row of the second, each row once. */
  for (int64_t row = mpi.rank; row <= c.file[1].row_start; row += mpi.size) {
    mill_fit_result result;
    mill_fit_result_init(&result, &c.lib, row, MILL_STATUS_NO_ARM);
    assert_int_equal(mill_result_put(c.result, &result), MILL_OK);
  }
  close_catalog();
  open_catalog("done.h5", 0);
  assert_int_equal(mill_reader_start(&c.plan, &reader), MILL_OK);
  for (mill_batch *batch; (batch = next(reader)) != NULL; mill_reader_release(reader, batch)) {
    assert_int_equal(batch->i_file, 1);
    for (int k = 0; k < batch->n_row; k++)
      assert_true(batch->star[k]->row > c.file[1].row_start);
    n_row += batch->n_row;
  }
  mill_reader_stop(reader);
  MPI_Allreduce(MPI_IN_PLACE, &n_row, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  assert_int_equal(n_row, c.file[1].n_row - 1);
  close_catalog();
}

MILL_TEST(reader_can_be_stopped_at_any_time)
{
  open_catalog("stopped.h5", 0);
  for (int n_taken = 0; n_taken < 3; n_taken++) {
    MILL_AT_END(mill_reader_stop_at) mill_reader *reader = NULL;
    assert_int_equal(mill_reader_start(&c.plan, &reader), MILL_OK);
    for (int i = 0; i < n_taken; i++)
      mill_reader_release(reader, next(reader));
  }
  mill_reader_stop(NULL);
  close_catalog();
}

MILL_TEST(threads_that_fail)
{
  mill_reader *reader = NULL;
  mill_batch *batch = NULL;
  int err;
  open_catalog("fail.h5", 0);
  /* not the file's fault: the folder where it would be unpacked is missing */
  for (int i = 0; i < N_FILE; i++)
    snprintf(c.path[i], sizeof c.path[i], "%s", mill_test_data_path(input[i]));
  c.inputs.settings.limits.scratch = "/nonexistent/scratch";
  assert_int_equal(mill_reader_start(&c.plan, &reader), MILL_OK);
  while ((err = mill_reader_next(reader, &batch)) == MILL_OK && batch)
    fail_msg("row %lld was read", (long long)batch->star[0]->row);
  assert_fails(err, MILL_ERR_OUTPUT, "/nonexistent/scratch");
  mill_reader_stop(reader);
  close_catalog();
}

int main(void)
{
  char command[5000];
  int failed = 0;
  if (mill_mpi_start(&mpi) != MILL_OK)
    return 1;
  make_folder_for_all();
  for (int i = 0; i < N_FILE; i++) {
    const char *packed = mill_test_data_path(input[i]);
    snprintf(plain[i], sizeof plain[i], "%s/%d.fits", folder, i);
    snprintf(command, sizeof command, "gunzip -c '%s' >'%s'", packed ? packed : "", plain[i]);
    if (mpi.rank == 0 && packed && system(command) != 0)
      MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (n_thread = 1; n_thread <= 3; n_thread += 2)
    failed += MILL_RUN_TESTS(NULL, NULL);
  /* a rank with a failed test must not leave the others waiting */
  if (failed)
    MPI_Abort(MPI_COMM_WORLD, 1);
  mill_mpi_end(&mpi);
  return 0;
}
