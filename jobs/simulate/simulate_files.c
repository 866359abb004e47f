/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/simulate/simulate_files.h"

#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "jobs/simulate/simulate_folder.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/progress.h"
#include "src/system/stop_signal.h"

enum { BLOCK_ROWS = 32 /* made by the threads together, then written */ };

typedef struct maker {
  mill_mpi *mpi;
  const mill_simulate_plan *plan;
  int n_thread;
  mill_mock_work **work; /* [n_thread] */
  /* a block: stars, their rows, and the rows' pixels [BLOCK_ROWS][n_pix] */
  mill_mock_star *star;
  mill_mock_row *row;
  float *flux[MILL_MOCK_N_ARM], *ivar[MILL_MOCK_N_ARM];
  int32_t *mask[MILL_MOCK_N_ARM];
  mill_progress progress;
  int64_t n_file_done, n_file_kept, n_row; /* of this rank */
} maker;

/* ---- set-up ------------------------------------------------------------------------------ */

static void free_maker(maker *m)
{
  for (int t = 0; m->work && t < m->n_thread; t++)
    mill_mock_work_destroy(m->work[t]);
  for (int a = 0; a < MILL_MOCK_N_ARM; a++)
    MILL_FREE(m->flux[a], m->ivar[a], m->mask[a]);
  MILL_FREE(m->work, m->star, m->row);
}

static int set_up(maker *m)
{
  MILL_CHECK(mill_alloc_bytes((size_t)m->n_thread, sizeof *m->work, (void **)&m->work));
  for (int t = 0; t < m->n_thread; t++)
    MILL_CHECK(mill_mock_work_create(m->plan->survey, &m->work[t]));
  MILL_CHECK(MILL_ALLOC(BLOCK_ROWS, &m->star));
  MILL_CHECK(MILL_ALLOC(BLOCK_ROWS, &m->row));
  for (int a = 0; a < MILL_MOCK_N_ARM; a++) {
    const size_t n_pix = (size_t)mill_mock_arm_of[a].n_pix;
    MILL_CHECK(MILL_ALLOC(BLOCK_ROWS * n_pix, &m->flux[a]));
    MILL_CHECK(MILL_ALLOC(BLOCK_ROWS * n_pix, &m->ivar[a]));
    MILL_CHECK(MILL_ALLOC(BLOCK_ROWS * n_pix, &m->mask[a]));
    for (size_t i = 0; i < BLOCK_ROWS; i++) {
      m->row[i].flux[a] = m->flux[a] + i * n_pix;
      m->row[i].ivar[a] = m->ivar[a] + i * n_pix;
      m->row[i].mask[a] = m->mask[a] + i * n_pix;
    }
  }
  return MILL_OK;
}

/* ---- files ------------------------------------------------------------------------------- */

static int check_stop(const maker *m)
{
  if (mill_stop_signal_seen() || mill_mpi_stop_asked(m->mpi))
    return MILL_ERROR(MILL_ERR_STOPPED, "stopped");
  return MILL_OK;
}

static int make_block(maker *m, int64_t first_star, int n)
{
  mill_error_kept failure = {.code = MILL_OK};
#pragma omp parallel for schedule(dynamic, 1) num_threads(m->n_thread)
  for (int i = 0; i < n; i++) {
    mill_mock_draw(m->plan->survey, first_star + i, &m->star[i]);
    const int err =
        mill_mock_observe(m->plan->survey, &m->star[i], m->work[omp_get_thread_num()], &m->row[i]);
#pragma omp critical(mill_simulate_failure)
    if (err != MILL_OK && failure.code == MILL_OK) /* messages belong to threads */
      mill_error_save(err, &failure);
  }
  return mill_error_restore(&failure);
}

static int write_coadd(maker *m, int i_file, const char *path)
{
  int err = MILL_OK;
  const int64_t n_row = mill_simulate_rows(m->plan, i_file);
  const int64_t first_star = (int64_t)i_file * m->plan->options.per_file;
  mill_mock_coadd *coadd = NULL;
  MILL_TRY(mill_mock_coadd_open(path, &m->plan->origin, m->plan->survey, n_row, &coadd));
  for (int64_t first = 0; first < n_row; first += BLOCK_ROWS) {
    const int n = n_row - first < BLOCK_ROWS ? (int)(n_row - first) : BLOCK_ROWS;
    MILL_TRY(check_stop(m));
    MILL_TRY(make_block(m, first_star + first, n));
    MILL_TRY(mill_mock_coadd_rows(coadd, n, m->star, m->row));
    m->n_row += n;
    mill_progress_update(&m->progress, m->n_row, 0);
  }
  MILL_TRY(mill_mock_coadd_commit(coadd));
done:
  mill_mock_coadd_free(coadd);
  return err;
}

/* A coadd file and its redrock file, those that are missing. */
static int write_file(maker *m, int i_file)
{
  int kept = 1;
  for (int redrock = 0; redrock <= m->plan->options.redrock; redrock++) {
    char name[MILL_SIMULATE_NAME], path[MILL_MAX_PATH];
    mill_simulate_name(i_file, redrock, name);
    mill_simulate_path(m->plan, name, path);
    if (mill_simulate_has(m->plan, name))
      continue;
    kept = 0;
    MILL_CHECK(check_stop(m));
    if (redrock)
      MILL_CHECK(mill_mock_redrock_write(
          path, &m->plan->origin, m->plan->survey, m->plan->options.mock.seed,
          (int64_t)i_file * m->plan->options.per_file, mill_simulate_rows(m->plan, i_file)));
    else
      MILL_CHECK(write_coadd(m, i_file, path));
  }
  m->n_file_kept += kept;
  m->n_file_done++;
  return MILL_OK;
}

/* This rank's files.  Not collective: a failure here reaches the other ranks as a request
 * to stop. */
static int write_share(maker *m)
{
  int err = MILL_OK;
  for (int f = m->mpi->rank; f < m->plan->n_file && err == MILL_OK; f += m->mpi->size)
    err = write_file(m, f);
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
  int ok = fprintf(file, "# of starmill simulate, for starmill fit --catalog; MOCKID  = '%s'\n",
                   plan->id) > 0;
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

static int write_tables(const maker *m)
{
  char path[MILL_MAX_PATH];
  const mill_simulate_plan *plan = m->plan;
  MILL_CHECK(write_catalog(plan));
  mill_simulate_path(plan, MILL_SIMULATE_TRUTH, path);
  return mill_mock_truth_write(path, &plan->origin, m->plan->survey, plan->options.mock.n_star,
                               plan->options.per_file, plan->n_file, plan->coadd,
                               mill_stop_signal_seen);
}

/* ---- all --------------------------------------------------------------------------------- */

/* Rows that this rank has to make. */
static int64_t count_rows(const maker *m)
{
  int64_t n = 0;
  char name[MILL_SIMULATE_NAME];
  for (int f = m->mpi->rank; f < m->plan->n_file; f += m->mpi->size) {
    mill_simulate_name(f, 0, name);
    n += mill_simulate_has(m->plan, name) ? 0 : mill_simulate_rows(m->plan, f);
  }
  return n;
}

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
                             mill_simulate_count *count)
{
  int err = MILL_OK;
  maker m = {.mpi = mpi, .plan = plan, .n_thread = n_thread};
  int64_t sum[3];
  MILL_TRY(mill_mpi_agree(mpi, set_up(&m)));
  /* rank 0 shows its own rows, which stand for all */
  mill_progress_start(&m.progress, "stars", count_rows(&m), plan->options.quiet || mpi->rank != 0);
  err = write_share(&m);
  mill_progress_end(&m.progress);
  if (err != MILL_ERR_MPI)
    err = settle(mpi, err);
  if (err == MILL_ERR_MPI)
    goto done;
  const int64_t mine[3] = {m.n_file_done, m.n_file_kept, m.n_row};
  MILL_MPI(MPI_Allreduce(mine, sum, 3, MPI_INT64_T, MPI_SUM, mpi->comm));
  *count = (mill_simulate_count){.n_file_kept = sum[1], .n_row = sum[2]};
  if (err == MILL_ERR_STOPPED)
    MILL_ERROR(err,
               "stopped with %lld of %d files complete; give the same command again to continue",
               (long long)sum[0], plan->n_file);
  MILL_TRY(mill_mpi_agree(mpi, err));
  MILL_TRY(mill_mpi_agree(mpi, mpi->rank == 0 ? write_tables(&m) : MILL_OK));
done:
  free_maker(&m);
  return err;
}
