#include "jobs/simulate/simulate_files.h"

#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "jobs/simulate/simulate_rows.h"
#include "kernels/base/error.h"
#include "src/system/log.h"
#include "src/system/progress.h"
#include "src/system/stop_signal.h"

enum {
  BLOCK_ROWS = 4, /* made and written at once by a thread; writes of 1.8 MB are fast enough */
  TRUTH_ROWS = 4096
};

/* Memory of one thread. */
typedef struct worker {
  mill_mock_work *work;
  float *flux[MILL_MOCK_N_ARM], *ivar[MILL_MOCK_N_ARM]; /* [BLOCK_ROWS][n_pix] */
  int32_t *mask[MILL_MOCK_N_ARM];                       /* [BLOCK_ROWS][n_pix] */
  float *scratch;                                       /* [twice the largest n_pix] */
} worker;

typedef struct maker {
  mill_mpi *mpi;
  const mill_simulate_plan *plan;
  mill_mock_survey *survey;
  int n_thread;
  worker *worker; /* [n_thread] */
  mill_progress progress;
  int64_t n_row_made; /* of this rank */
  int stopping;
  mill_error_kept failure; /* the first one of any thread */
} maker;

/* ---- set-up ------------------------------------------------------------------------------ */

static void free_maker(maker *m)
{
  for (int t = 0; m->worker && t < m->n_thread; t++) {
    worker *w = &m->worker[t];
    mill_mock_work_destroy(w->work);
    for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
      MILL_FREE(w->flux[a], w->ivar[a], w->mask[a]);
    }
    mill_free(w->scratch);
  }
  mill_free(m->worker);
  mill_mock_survey_destroy(m->survey);
}

static int make_workers(maker *m)
{
  int max_pix = 0;
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    max_pix = mill_mock_arm_of[a].n_pix > max_pix ? mill_mock_arm_of[a].n_pix : max_pix;
  MILL_CHECK(MILL_ALLOC(m->n_thread, &m->worker));
  for (int t = 0; t < m->n_thread; t++) {
    worker *w = &m->worker[t];
    MILL_CHECK(mill_mock_work_create(m->survey, &w->work));
    for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
      const size_t n = (size_t)BLOCK_ROWS * (size_t)mill_mock_arm_of[a].n_pix;
      MILL_CHECK(MILL_ALLOC(n, &w->flux[a]));
      MILL_CHECK(MILL_ALLOC(n, &w->ivar[a]));
      MILL_CHECK(MILL_ALLOC(n, &w->mask[a]));
    }
    MILL_CHECK(MILL_ALLOC(2 * max_pix, &w->scratch));
  }
  return MILL_OK;
}

/* The survey with its templates, each made by one rank and sent to the others.  Collective. */
static int make_survey(maker *m)
{
  int err = MILL_OK;
  const mill_mpi *mpi = m->mpi;
  const mill_mock_settings *mock = &m->plan->options.mock;
  int64_t n_value = 0;
  err = mill_mock_survey_create(mock, mill_simulate_library(m->plan), m->n_thread, mpi->rank,
                                mpi->size, &m->survey);
  if (err == MILL_OK)
    err = make_workers(m);
  MILL_TRY(mill_mpi_agree(mpi, err));
  float *template = mill_mock_survey_templates(m->survey, &n_value);
  for (int i = 0; template && i < mock->n_template && mpi->size > 1; i++)
    MILL_MPI(MPI_Bcast(template + i * n_value, (int)n_value, MPI_FLOAT, i % mpi->size, mpi->comm));
done:
  return err;
}

/* ---- spectra ----------------------------------------------------------------------------- */

/* Make a block of rows of a file and write its pixels. */
static int make_block(maker *m, worker *w, int i_file, int64_t first, int n,
                      mill_desi_writer *writer, mill_fibermap_row *fibermap)
{
  const float *resolution[MILL_MOCK_N_ARM][BLOCK_ROWS];
  for (int i = 0; i < n; i++) {
    mill_mock_star star;
    mill_mock_row row;
    mill_mock_draw(m->survey, (int64_t)i_file * m->plan->options.per_file + first + i, &star);
    for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
      const size_t at = (size_t)i * (size_t)mill_mock_arm_of[a].n_pix;
      row.flux[a] = w->flux[a] + at;
      row.ivar[a] = w->ivar[a] + at;
      row.mask[a] = w->mask[a] + at;
      resolution[a][i] = mill_mock_resolution(m->survey, star.lsf_group, a);
    }
    MILL_CHECK(mill_mock_observe(m->survey, &star, w->work, &row));
    mill_simulate_fibermap_row(&star, &row, w->scratch, &fibermap[first + i]);
  }
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    MILL_CHECK(mill_desi_writer_rows(writer, a, first, n, w->flux[a], w->ivar[a], w->mask[a],
                                     resolution[a]));
  return MILL_OK;
}

/* Between blocks: must this rank stop?  Only the first thread looks for the other ranks' wish. */
static int must_stop(maker *m, int i_thread)
{
  int stop;
  if (i_thread == 0 && (mill_stop_signal_seen() || mill_mpi_stop_asked(m->mpi))) {
#pragma omp atomic write
    m->stopping = 1;
  }
#pragma omp atomic read
  stop = m->stopping;
  return stop;
}

static void note_failure(maker *m, int err)
{
#pragma omp critical(mill_simulate_failure)
  if (m->failure.code == MILL_OK)
    mill_error_save(err, &m->failure);
#pragma omp atomic write
  m->stopping = 1;
}

static void count_rows(maker *m, int i_thread, int n)
{
  int64_t n_made;
#pragma omp atomic capture
  n_made = m->n_row_made += n;
  if (i_thread == 0)
    mill_progress_update(&m->progress, n_made, 0);
}

static int write_coadd(maker *m, int i_file)
{
  int err = MILL_OK;
  char path[MILL_MAX_PATH];
  mill_simulate_history h;
  const int64_t n_row = mill_simulate_rows(m->plan, i_file);
  const int64_t n_block = (n_row + BLOCK_ROWS - 1) / BLOCK_ROWS;
  mill_desi_writer *writer = NULL;
  mill_fibermap_row *fibermap = NULL;
  mill_simulate_path(m->plan, m->plan->coadd[i_file], path);
  mill_simulate_history_of(m->plan, i_file, &h);
  MILL_TRY(MILL_ALLOC(n_row, &fibermap));
  MILL_TRY(mill_desi_writer_open(path, 0, n_row, MILL_MOCK_N_ARM, m->plan->arm,
                                 MILL_SIMULATE_N_HISTORY + 1, h.line, &writer));
#pragma omp parallel for schedule(dynamic, 1) num_threads(m->n_thread)
  for (int64_t b = 0; b < n_block; b++) {
    const int i_thread = omp_get_thread_num();
    if (must_stop(m, i_thread))
      continue;
    const int64_t first = b * BLOCK_ROWS;
    const int n = n_row - first < BLOCK_ROWS ? (int)(n_row - first) : BLOCK_ROWS;
    const int code = make_block(m, &m->worker[i_thread], i_file, first, n, writer, fibermap);
    if (code == MILL_OK)
      count_rows(m, i_thread, n);
    else
      note_failure(m, code);
  }
  MILL_TRY(mill_error_restore(&m->failure));
  if (m->stopping)
    MILL_FAIL(MILL_ERR_STOPPED, "stopped");
  MILL_TRY(mill_desi_writer_fibermap(writer, fibermap));
  MILL_TRY(mill_desi_writer_commit(writer));
done:
  mill_desi_writer_free(writer);
  mill_free(fibermap);
  return err;
}

static int write_redrock(const maker *m, int i_file)
{
  int err = MILL_OK;
  char name[MILL_SIMULATE_NAME], path[MILL_MAX_PATH];
  mill_simulate_history h;
  const mill_simulate_plan *plan = m->plan;
  const int64_t n_row = mill_simulate_rows(plan, i_file);
  mill_redrock_row *row = NULL;
  mill_simulate_name(i_file, 1, name);
  mill_simulate_path(plan, name, path);
  mill_simulate_history_of(plan, i_file, &h);
  MILL_TRY(MILL_ALLOC(n_row, &row));
  for (int64_t i = 0; i < n_row; i++) {
    mill_mock_star star;
    mill_mock_draw(m->survey, (int64_t)i_file * plan->options.per_file + i, &star);
    mill_simulate_redrock_row(&star, plan->i_teff >= 0 ? star.label[plan->i_teff] : NAN,
                              plan->options.mock.seed, &row[i]);
  }
  MILL_TRY(mill_redrock_write(path, n_row, row, MILL_SIMULATE_N_HISTORY + 1, h.line));
done:
  mill_free(row);
  return err;
}

/* This rank's files.  Not collective: a failure here reaches the other ranks as a request
 * to stop. */
static int write_share(maker *m, int64_t *n_file_done)
{
  int err = MILL_OK;
  int64_t n_byte = 0;
  int state = 0;
  for (int f = m->mpi->rank; f < m->plan->n_file; f += m->mpi->size) {
    MILL_TRY(mill_simulate_look_at(m->plan, f, 0, &n_byte, &state));
    if (state == MILL_FILE_ABSENT) {
      if (must_stop(m, 0))
        MILL_FAIL(MILL_ERR_STOPPED, "stopped");
      MILL_TRY(write_coadd(m, f));
    }
    if (m->plan->options.redrock) {
      MILL_TRY(mill_simulate_look_at(m->plan, f, 1, &n_byte, &state));
      if (state == MILL_FILE_ABSENT)
        MILL_TRY(write_redrock(m, f));
    }
    ++*n_file_done;
  }
done:
  if (err != MILL_OK) {
    mill_error_kept kept;
    mill_error_save(err, &kept);
    if (mill_mpi_stop_others(m->mpi) == MILL_OK)
      mill_error_restore(&kept);
  }
  return err;
}

/* ---- catalog and truth, by rank 0 when all files are there -------------------------------- */

static int write_catalog(const mill_simulate_plan *plan)
{
  char path[MILL_MAX_PATH], temporary[MILL_MAX_PATH + 80], tag[64];
  mill_lock_job(tag, sizeof tag);
  mill_simulate_path(plan, MILL_SIMULATE_CATALOG, path);
  snprintf(temporary, sizeof temporary, "%s.tmp-%s", path, tag);
  FILE *file = fopen(temporary, "w");
  if (!file)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s cannot be created: %s", path, strerror(errno));
  int ok = fputs(MILL_SIMULATE_CATALOG_HEAD, file) >= 0;
  for (int f = 0; f < plan->n_file; f++)
    ok = ok && fprintf(file, "%s\n", plan->coadd[f]) > 0;
  ok = (fclose(file) == 0) && ok;
  if (!ok || rename(temporary, path) != 0) {
    const int reason = errno;
    unlink(temporary);
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "%s cannot be written: %s: make room or choose another output", path,
                      strerror(reason));
  }
  return MILL_OK;
}

static int write_truth(const maker *m)
{
  int err = MILL_OK;
  char path[MILL_MAX_PATH];
  mill_simulate_history history;
  const mill_truth_shape shape = mill_simulate_truth_shape(m->plan, &history);
  mill_truth_writer *writer = NULL;
  mill_truth_row *row = NULL;
  mill_simulate_path(m->plan, MILL_SIMULATE_TRUTH, path);
  MILL_TRY(MILL_ALLOC(TRUTH_ROWS, &row));
  MILL_TRY(mill_truth_writer_open(path, 0, &shape, &writer));
  for (int64_t first = 0; first < shape.n_row; first += TRUTH_ROWS) {
    const int n = shape.n_row - first < TRUTH_ROWS ? (int)(shape.n_row - first) : TRUTH_ROWS;
    if (mill_stop_signal_seen())
      MILL_FAIL(MILL_ERR_STOPPED, "stopped while the truth table was written; give the same "
                                  "command again to continue");
    for (int i = 0; i < n; i++) {
      mill_mock_star star;
      mill_mock_draw(m->survey, first + i, &star);
      mill_simulate_truth_row(&star, m->plan->options.per_file, &row[i]);
    }
    MILL_TRY(mill_truth_writer_rows(writer, first, n, row));
  }
  MILL_TRY(mill_truth_writer_commit(writer));
done:
  mill_truth_writer_free(writer);
  mill_free(row);
  return err;
}

/* ---- all --------------------------------------------------------------------------------- */

/* Take the requests to stop that are under way, also after a failure, as MPI must not end with
 * one.  Collective; a failure of it replaces err. */
static int settle(mill_mpi *mpi, int err)
{
  mill_error_kept kept;
  mill_error_save(err, &kept);
  const int settled = mill_mpi_stop_settle(mpi);
  return settled != MILL_OK ? settled : mill_error_restore(&kept);
}

int mill_simulate_files_make(mill_mpi *mpi, const mill_simulate_plan *plan, int n_thread,
                             int64_t n_row)
{
  int err = MILL_OK;
  maker m = {.mpi = mpi, .plan = plan, .n_thread = n_thread};
  const int quiet = plan->options.quiet || mpi->rank != 0;
  int64_t n_file_done = 0, n_done = 0;
  if (plan->options.mock.n_template > 0 && !quiet)
    mill_log_info("%d templates are prepared", plan->options.mock.n_template);
  MILL_TRY(make_survey(&m));
  /* rank 0 shows its own rows, which stand for all */
  mill_progress_start(&m.progress, n_row, 0, quiet);
  err = write_share(&m, &n_file_done);
  mill_progress_end(&m.progress);
  if (err != MILL_ERR_MPI)
    err = settle(mpi, err);
  if (err == MILL_ERR_MPI)
    goto done;
  MILL_MPI(MPI_Allreduce(&n_file_done, &n_done, 1, MPI_INT64_T, MPI_SUM, mpi->comm));
  if (err == MILL_ERR_STOPPED)
    MILL_ERROR(err,
               "stopped with %lld of %d files complete; give the same command again to continue",
               (long long)n_done, plan->n_file);
  MILL_TRY(mill_mpi_agree(mpi, err));
  if (mpi->rank == 0)
    err = write_catalog(plan);
  if (mpi->rank == 0 && err == MILL_OK)
    err = write_truth(&m);
  MILL_TRY(mill_mpi_agree(mpi, err));
done:
  free_maker(&m);
  return err;
}
