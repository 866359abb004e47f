/* SPDX-License-Identifier: BSD-3-Clause */
/* The spectra of a grid: rounds in which every rank reads and cuts a few models, and all write
   together. */
#include "jobs/library/build_job.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/libraries/quantile.h"
#include "src/libraries/smooth_median.h"
#include "src/system/log.h"
#include "src/system/progress.h"
#include "src/system/stop_signal.h"

enum {
  MAX_ROUND_BYTES = 1 << 28, /* of the arms of a rank's models */
  ROUND = 8,                 /* models of a rank, or of its threads: a few seconds */
  LOG_S = 60
};

/* A rank's part of a round. */
typedef struct batch {
  int n_room, n;
  int *model; /* [n_room] rows of the grid */
  unsigned char *status;
  char (*why)[MILL_GRID_WHY];
  float *flux[MILL_MAX_ARM], *continuum[MILL_MAX_ARM]; /* [n_room][n_pix]; continuum may be NULL */
} batch;

static int batch_create(const mill_build_job *job, batch *r)
{
  size_t n_byte = 0;
  memset(r, 0, sizeof *r);
  for (int a = 0; a < job->info.n_arm; a++)
    n_byte += (size_t)job->info.arm[a].n_pix * sizeof(float) *
              (size_t)(1 + job->info.arm[a].has_continuum);
  const size_t n_room = ROUND * (size_t)(job->source ? 1 : job->options.n_thread);
  r->n_room = (int)(n_room * n_byte > MAX_ROUND_BYTES ? MAX_ROUND_BYTES / n_byte + 1 : n_room);
  MILL_CHECK(MILL_ALLOC(r->n_room, &r->model));
  MILL_CHECK(MILL_ALLOC(r->n_room, &r->status));
  MILL_CHECK(MILL_ALLOC(r->n_room, &r->why));
  for (int a = 0; a < job->info.n_arm; a++) {
    const size_t size = (size_t)r->n_room * (size_t)job->info.arm[a].n_pix;
    MILL_CHECK(MILL_ALLOC(size, &r->flux[a]));
    if (job->info.arm[a].has_continuum)
      MILL_CHECK(MILL_ALLOC(size, &r->continuum[a]));
  }
  return MILL_OK;
}

static void batch_clear(batch *r)
{
  for (int a = 0; a < MILL_MAX_ARM; a++)
    MILL_FREE(r->flux[a], r->continuum[a]);
  MILL_FREE(r->model, r->status, r->why);
}

/* ---- one model ------------------------------------------------------------------------------ */

/* Divisor of the flux of an arm; work [n]. */
static double level_of(int normalise, int n, const double *flux, double *work)
{
  if (normalise == MILL_BUILD_AS_IT_IS)
    return 1;
  for (int i = 0; i < n; i++)
    work[i] = normalise == MILL_BUILD_MEDIAN ? flux[i] : log(flux[i]);
  if (normalise == MILL_BUILD_SMOOTH_MEDIAN)
    return exp(mill_smooth_median((size_t)n, work, MILL_SMOOTH_MEDIAN_WIDTH));
  return mill_median((size_t)n, work);
}

/* An arm's flux or continuum [n] to out [n], divided by *level, which is found where it is 0; both
   medians of what is above 0 are above 0. */
static int store_arm(const mill_build_job *job, int arm, const char *what, const double *flux,
                     double *work, double *level, float *out)
{
  const mill_grid_arm *about = &job->info.arm[arm];
  for (int i = 0; i < about->n_pix; i++)
    if (!(flux[i] > 0) || !isfinite(flux[i]))
      return MILL_ERROR(MILL_ERR_INPUT, "its %s in arm %s is %g at %.6g A; it must be above 0",
                        what, about->name, flux[i], exp(about->ln_wave0 + i * about->ln_step));
  if (*level == 0)
    *level = level_of(job->options.normalise, about->n_pix, flux, work);
  for (int i = 0; i < about->n_pix; i++) {
    out[i] = (float)(flux[i] / *level);
    if (!(out[i] >= FLT_MIN && out[i] <= FLT_MAX))
      return MILL_ERROR(MILL_ERR_INPUT,
                        "its %s in arm %s, %g at %.6g A, is beyond the range of float32%s", what,
                        about->name, flux[i] / *level, exp(about->ln_wave0 + i * about->ln_step),
                        job->options.normalise == MILL_BUILD_AS_IT_IS ? "; see --normalise" : "");
  }
  return MILL_OK;
}

/* One arm of a spectrum. */
static int cut_arm(mill_build_job *job, int a, const mill_model_spectrum *spectrum, double *work,
                   float *flux, float *continuum)
{
  const int n_thread = job->options.n_thread, n_pix = job->info.arm[a].n_pix;
  double *arm = work + n_pix, level = 0;
  MILL_CHECK(mill_arm_cut_prepare(job->cut[a], spectrum->n_pix, spectrum->wave_aa, n_thread));
  MILL_CHECK(mill_arm_cut_apply(job->cut[a], spectrum->n_pix, spectrum->wave_aa, spectrum->flux,
                                n_thread, arm));
  MILL_CHECK(store_arm(job, a, "flux", arm, work, &level, flux));
  if (!spectrum->continuum)
    return MILL_OK;
  MILL_CHECK(mill_arm_cut_apply(job->cut[a], spectrum->n_pix, spectrum->wave_aa,
                                spectrum->continuum, n_thread, arm));
  return store_arm(job, a, "continuum", arm, work, &level, continuum);
}

int mill_build_cut(mill_build_job *job, int model, float *const *flux, float *const *continuum)
{
  int err = MILL_OK, n_most = 0;
  mill_model_spectrum spectrum = {0};
  double *work = NULL;
  for (int a = 0; a < job->info.n_arm; a++)
    n_most = job->info.arm[a].n_pix > n_most ? job->info.arm[a].n_pix : n_most;
  MILL_TRY(MILL_ALLOC(2 * (size_t)n_most, &work));
  MILL_TRY(mill_model_source_read(job->source, job->index[model], &spectrum));
  const double fwhm_aa = mill_model_source_origin(job->source)->fwhm_aa;
  if (isnan(job->options.native_sigma_aa) && isnan(job->options.native_resolving_power) &&
      !(fabs(fwhm_aa - job->origin.fwhm_aa) <= 1e-6 * job->origin.fwhm_aa))
    MILL_FAIL(MILL_ERR_INPUT,
              "its card FWHM is %g A, that of the first model %g A; build them separately, or give "
              "--native-sigma",
              fwhm_aa, job->origin.fwhm_aa);
  for (int a = 0; a < job->info.n_arm; a++)
    MILL_TRY(cut_arm(job, a, &spectrum, work, flux[a], continuum[a]));
done:
  mill_model_spectrum_clear(&spectrum);
  mill_free(work);
  return err;
}

/* ---- rounds --------------------------------------------------------------------------------- */

/* Where the name is a path, the message already begins with it. */
static void keep_why(const mill_build_job *job, const batch *r, int k)
{
  const char *message = mill_error_message();
  const char *path = job->is_many ? job->path[0] : job->path[job->index[r->model[k]]];
  const size_t n = strlen(path);
  if (strncmp(message, path, n) == 0)
    message += n + strspn(message + n, ": ");
  snprintf(r->why[k], MILL_GRID_WHY, "%s", message);
}

static int make_models(mill_build_job *job, batch *r)
{
  int err = MILL_OK;
  memset(r->why, 0, (size_t)r->n_room * sizeof *r->why);
  int k = 0;
  for (; k < r->n && mill_stop_reason() == MILL_STOP_NONE; k++) {
    float *flux[MILL_MAX_ARM], *continuum[MILL_MAX_ARM] = {NULL};
    for (int a = 0; a < job->info.n_arm; a++) {
      const size_t at = (size_t)k * (size_t)job->info.arm[a].n_pix;
      flux[a] = r->flux[a] + at;
      if (r->continuum[a])
        continuum[a] = r->continuum[a] + at;
    }
    err = mill_build_cut(job, r->model[k], flux, continuum);
    r->status[k] = err == MILL_OK ? MILL_GRID_GOOD : MILL_GRID_BAD;
    if (err == MILL_ERR_INPUT) {
      for (int a = 0; a < job->info.n_arm; a++) {
        memset(flux[a], 0, (size_t)job->info.arm[a].n_pix * sizeof(float));
        if (continuum[a])
          memset(continuum[a], 0, (size_t)job->info.arm[a].n_pix * sizeof(float));
      }
      keep_why(job, r, k);
      err = MILL_OK;
    }
    if (err != MILL_OK)
      break;
  }
  r->n = k; /* a stop leaves some for the next run */
  return err;
}

/* Progress of all ranks, and whether any of them or the stop file asks for the end. */
static int look_around(const mill_build_job *job, const batch *r, int64_t count[3])
{
  const char *file = job->options.stop_file;
  int64_t mine[3] = {r->n, 0, 0};
  for (int k = 0; k < r->n; k++)
    mine[1] += r->status[k] == MILL_GRID_BAD;
  if (job->mpi.rank == 0 && file && access(file, F_OK) == 0)
    mill_stop_note(MILL_STOP_FILE);
  mine[2] = mill_stop_reason() != MILL_STOP_NONE;
  MILL_CHECK_MPI(MPI_Allreduce(mine, count, 3, MPI_INT64_T, MPI_SUM, job->mpi.comm));
  return MILL_OK;
}

static void tell(const mill_build_job *job, int64_t n_done, int64_t n_first, int64_t n_bad,
                 double *next_s)
{
  char left[32];
  const double now_s = mill_wall_s(), rate = (double)(n_done - n_first) / (now_s - job->start_s);
  if (job->mpi.rank != 0 || now_s < *next_s)
    return;
  *next_s = now_s + LOG_S;
  mill_progress_eta((double)(job->info.n_model - n_done) / rate, left, sizeof left);
  mill_log_info("%lld of %d models, %lld of them bad, %.3g models/s, %s left", (long long)n_done,
                job->info.n_model, (long long)n_bad, rate, left);
}

/* Models that this rank has to do; *list [*n].  Those of a round are neighbours, and written in one
   piece. */
static int share(const mill_build_job *job, int n_room, int **list, int *n)
{
  int n_to_do = 0;
  *n = 0;
  MILL_CHECK(MILL_ALLOC(job->info.n_model / job->mpi.size + n_room, list));
  for (int i = 0; i < job->info.n_model; i++)
    if (job->info.status[i] == MILL_GRID_TO_DO &&
        n_to_do++ / n_room % job->mpi.size == job->mpi.rank)
      (*list)[(*n)++] = i;
  return MILL_OK;
}

static int run_rounds(mill_build_job *job, mill_grid_writer *writer, const int *list, int n_list,
                      batch *r)
{
  int err = MILL_OK;
  int64_t count[3], n_done = 0, n_bad = 0;
  double next_s = mill_wall_s() + LOG_S;
  mill_progress progress;
  for (int i = 0; i < job->info.n_model; i++) {
    n_done += job->info.status[i] != MILL_GRID_TO_DO;
    n_bad += job->info.status[i] == MILL_GRID_BAD;
  }
  const int64_t n_first = n_done;
  mill_progress_start(&progress, "models", job->info.n_model, job->mpi.rank != 0);
  for (int at = 0; n_done < job->info.n_model;) {
    r->n = n_list - at < r->n_room ? n_list - at : r->n_room;
    for (int k = 0; k < r->n; k++)
      r->model[k] = list[at + k];
    err = make_models(job, r);
    if (err == MILL_OK && job->mpi.rank == 0)
      err = mill_lock_keep(&job->lock);
    MILL_TRY(mill_mpi_agree(&job->mpi, err));
    at += r->n;
    err = mill_grid_write(writer, r->n, r->model, (const float *const *)r->flux,
                          (const float *const *)r->continuum, r->status,
                          (const char(*)[MILL_GRID_WHY])r->why);
    MILL_TRY(mill_mpi_agree(&job->mpi, err));
    MILL_TRY(look_around(job, r, count));
    n_done += count[0];
    n_bad += count[1];
    mill_progress_update(&progress, n_done, n_bad);
    tell(job, n_done, n_first, n_bad, &next_s);
    if (count[2] > 0 && n_done < job->info.n_model)
      MILL_FAIL(MILL_ERR_STOPPED,
                "stopped: %lld of %d models are done and kept in %s; the same command continues",
                (long long)n_done, job->info.n_model, job->output);
  }
done:
  mill_progress_end(&progress);
  return err;
}

int mill_build_spectra(mill_build_job *job)
{
  int err = MILL_OK, n_list = 0;
  int *list = NULL;
  batch r = {0};
  mill_grid_writer *writer = NULL;
  job->start_s = mill_wall_s();
  MILL_TRY(mill_mpi_agree(&job->mpi, batch_create(job, &r)));
  /* models are dealt out by the same number everywhere; ranks may differ in threads */
  MILL_MPI(MPI_Allreduce(MPI_IN_PLACE, &r.n_room, 1, MPI_INT, MPI_MIN, job->mpi.comm));
  err = share(job, r.n_room, &list, &n_list);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));
  err = mill_grid_writer_open(job->output, &job->info, job->mpi.comm, &writer);
  err = mill_mpi_agree(&job->mpi, err);
  if (err == MILL_OK)
    err = run_rounds(job, writer, list, n_list, &r);
  /* a stop in good order closes the file as an end does */
  const int stopped = err == MILL_ERR_STOPPED;
  mill_error_kept kept;
  mill_error_save(err, &kept);
  err = mill_grid_writer_close(writer, stopped ? MILL_OK : err);
  err = mill_mpi_agree(&job->mpi, err);
  if (err == MILL_OK && stopped)
    err = mill_error_restore(&kept);
done:
  batch_clear(&r);
  mill_free(list);
  return err;
}
