/* SPDX-License-Identifier: BSD-3-Clause */
/* Measures the writing of a result file: all ranks write made-up rows, as a fit does. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "io/result/result_file.h"
#include "io/result/table.h"
#include "jobs/bench/bench_job.h"
#include "kernels/base/clock.h"
#include "src/config/text.h"
#include "src/system/regular_file.h"

enum {
  USUAL_ROWS = 100000,
  FILE_ROWS = 5000,
  CHUNK_ROWS = 650,     /* successive rows that one rank writes: what a core fits in 5 s */
  PIECE_BYTES = 4 << 20 /* bytes per write to the plain file */
};

/* A run without spectra. */
typedef struct made_up {
  int64_t n_row;
  int n_file;
  mill_input_file *file;  /* [n_file] */
  mill_file_index *index; /* [n_file] row counts alone; make_index makes the lists of rows */
  int file_start, file_end;
  mill_columns columns;
} made_up;

typedef struct measured {
  double create_s, write_s, plain_s;
  /* rounds of writing; writes and bytes of all ranks after the file was created */
  int64_t n_round, n_write, n_byte;
} measured;

/* Make a library without templates: a result's columns need only its labels and arms. */
static void make_library(mill_library *lib)
{
  static const char *const label[][3] = {{"teff", "TEFF", "K"},
                                         {"logg", "LOGG", "log(cm s**-2)"},
                                         {"feh", "FEH", "dex"},
                                         {"alpha", "ALPHAFE", "dex"}};
  for (; lib->n_label < 4; lib->n_label++) {
    snprintf(lib->label[lib->n_label].name, MILL_MAX_NAME, "%s", label[lib->n_label][0]);
    snprintf(lib->label[lib->n_label].column, MILL_MAX_NAME, "%s", label[lib->n_label][1]);
    snprintf(lib->label[lib->n_label].unit, MILL_MAX_NAME, "%s", label[lib->n_label][2]);
  }
  for (; lib->n_arm < 3; lib->n_arm++)
    snprintf(lib->arm[lib->n_arm].name, MILL_MAX_NAME, "%c", "brz"[lib->n_arm]);
  snprintf(lib->name, sizeof lib->name, "made up");
}

/* Describe a run with n_row made-up rows in files of FILE_ROWS rows, without spectra. */
static int make_run(const mill_bench *job, made_up *run)
{
  run->n_row = job->options.n_star > 0 ? job->options.n_star : USUAL_ROWS;
  run->n_file = (int)((run->n_row + FILE_ROWS - 1) / FILE_ROWS);
  int64_t end;
  run->file_start = (int)mill_mpi_share(&job->mpi, run->n_file, &end);
  run->file_end = (int)end;
  MILL_CHECK(MILL_ALLOC(run->n_file, &run->file));
  MILL_CHECK(MILL_ALLOC(run->n_file, &run->index));
  for (int i = 0; i < run->n_file; i++) {
    const int64_t start = (int64_t)i * FILE_ROWS, left = run->n_row - start;
    const int64_t n = left < FILE_ROWS ? left : FILE_ROWS;
    run->file[i] =
        (mill_input_file){.path = "made up", .error = "", .row_start = start, .n_row = n};
    run->index[i].n_row = run->index[i].n_exposure = n;
  }
  return mill_columns_fits(&job->lib, job->lib.name, 0, &run->columns);
}

/* Make the index of made-up file i_file; callback `load` of mill_run_info. */
static int make_index(void *context, int i_file, mill_file_index *index)
{
  const made_up *run = context;
  const int64_t n = run->file[i_file].n_row;
  MILL_CHECK(mill_file_index_alloc(index, n, n));
  for (; index->n_row < n; index->n_row++) {
    mill_catalog_row *row = &index->row[index->n_row];
    mill_catalog_row_init(row);
    row->target_id = run->file[i_file].row_start + index->n_row;
    row->n_exposure = 1;
    row->first_exposure = index->n_row;
    mill_file_index_add(index, index->n_row, -1, 59000.5); /* no EXPID; any MJD */
  }
  return MILL_OK;
}

static int put_rows(const mill_bench *job, const made_up *run, mill_result_file *file)
{
  mill_fit_result result;
  for (int64_t row = 0; row < run->n_row; row++)
    if (row / CHUNK_ROWS % job->mpi.size == job->mpi.rank) {
      mill_fit_result_init(&result, &job->lib, row, MILL_STATUS_FITTED);
      result.vrad_km_s = (double)row;
      MILL_CHECK(mill_result_put(file, &result));
    }
  return MILL_OK;
}

/* Collective: create the result and write all rows. */
static int write_result(mill_bench *job, made_up *run, const char *path, measured *m)
{
  int outcome;
  int64_t n_write_before, n_byte_before;
  mill_result_file *file = NULL;
  mill_result_summary summary = {0};
  const mill_run_info info = {.lib = &job->lib,
                              .identity = "",
                              .config = "",
                              .command = job->command,
                              .device = "none",
                              .n_row = run->n_row,
                              .n_file = run->n_file,
                              .file = run->file,
                              .file_start = run->file_start,
                              .file_end = run->file_end,
                              .index = run->index + run->file_start,
                              .load = make_index,
                              .load_context = run,
                              .write_interval_s = job->config.write_interval_s};
  const double start_s = mill_wall_s();
  MILL_CHECK(mill_result_open(path, 0, 0, &info, job->mpi.comm, &file, &outcome));
  m->create_s = mill_wall_s() - start_s;
  mill_table_written(&n_write_before, &n_byte_before);
  const int put = put_rows(job, run, file);
  const int closed = mill_result_close(file, &summary);
  MILL_CHECK(mill_mpi_agree(&job->mpi, put == MILL_OK ? closed : put));
  m->write_s = mill_wall_s() - start_s - m->create_s;
  m->n_round = summary.n_write;
  mill_table_written(&m->n_write, &m->n_byte);
  m->n_write -= n_write_before;
  m->n_byte -= n_byte_before;
  MILL_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, &m->n_write, 1, MPI_INT64_T, MPI_SUM, job->mpi.comm));
  MILL_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, &m->n_byte, 1, MPI_INT64_T, MPI_SUM, job->mpi.comm));
  return MILL_OK;
}

/* Rank 0: write n_byte bytes in sequence to one plain file, and measure the seconds. */
static int write_plain(const char *path, int64_t n_byte, double *plain_s)
{
  MILL_OWNED char *piece = NULL;
  const double start_s = mill_wall_s();
  MILL_AT_END(mill_descriptor_close)
  const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s cannot be created: %s", path, strerror(errno));
  MILL_CHECK(mill_alloc_bytes(PIECE_BYTES, 1, (void **)&piece));
  for (ssize_t n = 0; n_byte > 0; n_byte -= n) {
    n = write(fd, piece, n_byte < PIECE_BYTES ? (size_t)n_byte : PIECE_BYTES);
    if (n <= 0)
      return MILL_ERROR(MILL_ERR_OUTPUT, "%s cannot be written: %s", path, strerror(errno));
  }
  if (fsync(fd) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s cannot be written to disk: %s", path, strerror(errno));
  *plain_s = mill_wall_s() - start_s;
  return MILL_OK;
}

static void print(const mill_bench *job, const made_up *run, const measured *m)
{
  const double n_round = m->n_round > 0 ? (double)m->n_round : 1;
  const double n_write = m->n_write > 0 ? (double)m->n_write : 1;
  const double mbyte = 1e-6 * (double)run->n_row * (double)run->columns.row_size;
  mill_bench_print_head(job, NULL);
  printf("| ranks | rows | create, s | write and close, s | MB/s | to a plain file, MB/s | rounds "
         "of writing | writes per round | kB per write |\n|---|---|---|---|---|---|---|---|---|\n| "
         "%d | %lld | %.2f | %.2f | %.0f | %.0f | %lld | %.0f | %.0f |\n",
         job->mpi.size, (long long)run->n_row, m->create_s, m->write_s, mbyte / m->write_s,
         mbyte / m->plain_s, (long long)m->n_round, n_write / n_round,
         1e-3 * (double)m->n_byte / n_write);
}

int mill_bench_task_write(mill_bench *job)
{
  made_up run = {0};
  measured m = {0};
  char folder[MILL_BENCH_FOLDER] = "", path[MILL_BENCH_FOLDER + 16];
  make_library(&job->lib);
  int err = job->mpi.rank == 0 ? mill_bench_make_folder(job->options.output, folder) : MILL_OK;
  MILL_TRY(mill_mpi_agree(&job->mpi, err == MILL_OK ? make_run(job, &run) : err));
  MILL_MPI(MPI_Bcast(folder, sizeof folder, MPI_CHAR, 0, job->mpi.comm));
  snprintf(path, sizeof path, "%s/result.h5", folder);
  MILL_TRY(write_result(job, &run, path, &m));
  snprintf(path, sizeof path, "%s/plain", folder);
  if (job->mpi.rank == 0)
    err = write_plain(path, run.n_row * (int64_t)run.columns.row_size, &m.plain_s);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  if (job->mpi.rank == 0)
    print(job, &run, &m);
  err = mill_mpi_agree(&job->mpi, mill_text_flush(stdout, "the table"));
done:
  if (job->mpi.rank == 0 && folder[0])
    mill_bench_remove_folder(folder);
  MILL_FREE(run.file, run.index);
  return err;
}
