/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/fit/stars.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jobs/fit/sampled_fit.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/star/blocks/prepare.h"
#include "src/system/log.h"
#include "src/system/stop_signal.h"

static const double LEAST_SIGMA = 0.1, MOST_SHIFT = 0.5; /* pixels; DESI's is below 0.1 */

/* Is the sigma in the middle of a segment implausible for a spectrograph? */
static int is_odd_sigma(const mill_raw_segment *s, mill_left_out *left)
{
  const int i = s->n_pix / 2;
  const double sigma = (double)s->sigma_aa[i];
  const double pixel =
      s->n_pix > 1 ? (s->wave_aa[s->n_pix - 1] - s->wave_aa[0]) / (s->n_pix - 1) : 0.0;
  /* beyond the largest kernel (src/pipeline/slots.c), or narrower than any pixel can be */
  const int is_odd = MILL_LSF_REACH * sigma > pixel * (double)(MILL_MAX_DIAG / 2) ||
                     (sigma > 0.0 && sigma < LEAST_SIGMA * pixel);
  if (is_odd) {
    left->sigma_aa = sigma;
    left->sigma_wave_aa = s->wave_aa[i];
    left->pixel_aa = pixel;
  }
  return is_odd;
}

/* Does the resolution matrix in the middle of a segment move light? */
static int is_shifting(const mill_raw_segment *s, mill_left_out *left)
{
  double sum = 0.0, moment = 0.0;
  for (int d = 0; d < s->n_diag; d++) {
    const double r = (double)s->resolution[(size_t)d * (size_t)s->n_pix + (size_t)s->n_pix / 2];
    sum += r;
    moment += r * (double)(s->n_diag / 2 - d);
  }
  const int is_far = sum > 0.0 && fabs(moment) > MOST_SHIFT * sum;
  if (is_far)
    left->shift_pix = fabs(moment) / sum;
  return is_far;
}

/* Keep the segments of a star that can be fitted; left says what could not be used. */
static int keep_segments(mill_stars *stars, mill_star *star, mill_left_out *left)
{
  const int n = star->n_segment;
  star->n_segment = 0;
  for (mill_raw_segment *s = star->segment; s < star->segment + n; s++) {
    if (s->use == MILL_SEGMENT_OUTSIDE) {
      left->beyond = 1;
      left->first_aa = s->first_aa;
      left->last_aa = s->last_aa;
    } else if (s->use == MILL_SEGMENT_NO_LSF)
      left->no_lsf |= 1u << s->arm;
    if (s->use != MILL_SEGMENT_FIT) {
      left->i_file = s->i_file;
      continue;
    }
    const int code = mill_pipeline_accepts(stars->pipeline, s);
    if (code == MILL_ERR_RANGE) {
      left->outside |= 1u << s->arm;
      left->i_file = s->i_file;
      snprintf(left->reason, sizeof left->reason, "%s", mill_error_message());
      continue;
    }
    MILL_CHECK(code);
    if (s->sigma_aa && is_odd_sigma(s, left)) {
      left->odd_lsf |= 1u << s->arm;
      left->i_file = s->i_file;
    }
    if (s->resolution && is_shifting(s, left)) {
      left->shifted |= 1u << s->arm;
      left->i_file = s->i_file;
    }
    mill_width_note(&stars->task->tally->width, &stars->task->setup->config,
                    &stars->task->setup->lib, s);
    if (stars->fit.resolution != MILL_RES_NONE)
      mill_narrow_note(&stars->task->tally->narrow, &stars->task->setup->lib, s);
    star->segment[star->n_segment++] = *s;
  }
  return MILL_OK;
}

/* A night ends where no exposure begins for so long, in days. */
static const double NIGHT_GAP = 0.5;

static int by_mjd(const void *a, const void *b)
{
  const mill_exposure_time *x = a, *y = b;
  return x->mjd != y->mjd ? (x->mjd > y->mjd) - (x->mjd < y->mjd)
                          : (x->exposure > y->exposure) - (x->exposure < y->exposure);
}

/* Number the epochs of a star: its exposures, or their nights; an exposure without a time is an
 * epoch of its own. */
static int number_epochs(mill_stars *stars, mill_star *star)
{
  mill_raw_segment *end = star->segment + star->n_segment;
  const int by_night = stars->fit.epochs == MILL_EPOCHS_NIGHT;
  int n = 0;
  MILL_CHECK(MILL_RENEW(&stars->time, &stars->cap_time, star->n_segment));
  for (const mill_raw_segment *s = star->segment; s < end; s++)
    if (n == 0 || s->exposure != stars->time[n - 1].exposure)
      stars->time[n++] = (mill_exposure_time){
          .mjd = by_night && isfinite(s->mjd) ? s->mjd : (double)INFINITY, .exposure = s->exposure};
  if (by_night)
    qsort(stars->time, (size_t)n, sizeof *stars->time, by_mjd);
  for (int i = 0; i < n; i++) {
    const mill_exposure_time *t = &stars->time[i];
    star->n_epoch += i == 0 || !(t->mjd - t[-1].mjd < NIGHT_GAP);
    for (mill_raw_segment *s = star->segment; s < end; s++)
      if (s->exposure == t->exposure)
        s->epoch = star->n_epoch - 1;
  }
  return MILL_OK;
}

/* Finish a star that is not fitted. */
static int put_unfitted(const mill_fit_task *task, int64_t row, int status)
{
  mill_fit_result result;
  mill_fit_result_init(&result, &task->setup->lib, row, status);
  MILL_CHECK(mill_result_put(task->out->result, &result));
  task->tally->n_put++;
  mill_board_finished(task->out->board, status);
  return MILL_OK;
}

/* Make a star that was read ready for the fit, or finish it here. */
static int take_star(mill_stars *stars, mill_star *star, int *is_ready)
{
  const mill_fit_task *task = stars->task;
  const mill_fit_observer *observer = task->call->observer;
  mill_left_out left = {0};
  if (task->call->options->fit) {
    if (!star->start)
      return put_unfitted(task, star->row, MILL_STATUS_NO_FIT);
    const mill_start_fit *fit = mill_start_table_fit(task->setup->start, star->start);
    star->try_all = (fit->info & MILL_INFO_TWO_MINIMA) != 0;
    star->is_several = (fit->info & (MILL_INFO_PAIR | MILL_INFO_EPOCHS)) != 0;
    star->start_chisq = fit->chisq_c_data;
    star->start_f = star->is_several || task->call->options->prior_table ? INFINITY : fit->m2ll;
  }
  MILL_CHECK(keep_segments(stars, star, &left));
  if (left.no_lsf || left.outside || left.beyond || left.odd_lsf || left.shifted)
    mill_complain(&stars->complaints, &left);
  *is_ready = star->n_segment > 0;
  if (!*is_ready)
    return put_unfitted(task, star->row,
                        /* the first reason can be fixed by the user */
                        left.no_lsf                   ? MILL_STATUS_NO_RESOLUTION
                        : left.outside || left.beyond ? MILL_STATUS_OUTSIDE_LIBRARY
                                                      : MILL_STATUS_NO_ARM);
  if (stars->fit.epochs)
    MILL_CHECK(number_epochs(stars, star));
  if (observer)
    observer->took(observer->context, &task->setup->lib, &stars->fit, star);
  star->taken_s = mill_wall_s();
  return MILL_OK;
}

/* Take the next star of the batch; NULL: it was finished here. */
static int take_next(mill_stars *stars, mill_star **star)
{
  mill_batch *batch = stars->batch;
  int is_ready = 0;
  mill_star *next = batch->star[stars->i_row];
  mill_board_took(stars->task->out->board, batch->i_file);
  if (batch->error[0] != '\0') {
    if (stars->i_row == 0)
      mill_log_error("%s (%d %s marked UNREADABLE)", batch->error, batch->n_row,
                     batch->n_row == 1 ? "row is" : "rows are");
    MILL_CHECK(put_unfitted(stars->task, next->row, MILL_STATUS_UNREADABLE));
  } else {
    MILL_CHECK(take_star(stars, next, &is_ready));
  }
  if (is_ready) {
    *star = next;
    batch->star[stars->i_row] = NULL;
  }
  stars->i_row++;
  return MILL_OK;
}

void mill_stars_note_memory(const mill_stars *stars)
{
  mill_board *board = stars->task->out->board;
  mill_pipeline_bytes bytes;
  size_t n_batch = sizeof *stars->batch;
  mill_pipeline_memory(stars->pipeline, &bytes);
  mill_board_memory(board, MILL_MEMORY_EMULATOR, bytes.model);
  mill_board_memory(board, MILL_MEMORY_SLOTS, bytes.slots);
  mill_board_memory(board, MILL_MEMORY_WAVELENGTHS, bytes.wavesets);
  if (!stars->batch)
    return;
  for (int p = 0; p < stars->batch->n_part; p++)
    n_batch += mill_read_batch_bytes(&stars->batch->part[p]);
  mill_board_memory(board, MILL_MEMORY_READER,
                    mill_reader_batches(stars->task->device->n_reader) * n_batch);
}

static int next_batch(mill_stars *stars)
{
  MILL_CHECK(mill_pipeline_settle(stars->pipeline));
  mill_reader_release(stars->reader, stars->before);
  stars->before = stars->batch;
  stars->batch = NULL;
  stars->i_row = 0;
  const double wait_s = mill_wall_s();
  MILL_CHECK(mill_reader_next(stars->reader, &stars->batch));
  stars->task->tally->balance.read_wait_s += mill_wall_s() - wait_s;
  if (stars->batch) /* memory grows while the first stars come */
    mill_stars_note_memory(stars);
  return MILL_OK;
}

int mill_stars_next(mill_stars *stars, mill_star **star)
{
  const mill_fit_task *task = stars->task;
  *star = NULL;
  while (!*star) {
    if (mill_stop_reason() != MILL_STOP_NONE) {
      char why[MILL_STATUS_PATH + 64];
      mill_stop_watch_text(task->setup->stop, why, sizeof why);
      if (!stars->stops++)
        MILL_LOG(task->call->mpi->rank == 0 ? MILL_LOG_INFO : MILL_LOG_DEBUG,
                 "%s: the stars under way are %s, then the job stops", why,
                 task->call->options->fit ? "given up" : "finished and written");
      break;
    }
    if (!stars->batch || stars->i_row == stars->batch->n_row) {
      MILL_CHECK(next_batch(stars));
      if (!stars->batch)
        break;
    }
    MILL_CHECK(take_next(stars, star));
  }
  return MILL_OK;
}

int mill_stars_begin(const mill_fit_task *task, mill_stars *stars)
{
  const mill_inputs *inputs = task->inputs;
  const mill_reader_plan plan = {
      .inputs = inputs,
      .work = task->out->work,
      .n_thread = task->device->n_reader,
      .backend = task->device->backend,
      .start = task->setup->start,
      .priors = task->setup->priors,
  };
  *stars = (mill_stars){.task = task, .fit = task->setup->config.fit};
  stars->complaints = (mill_complaints){
      .config = &task->setup->config, .lib = &task->setup->lib, .inputs = inputs, .i_file = -1};
  /* spectra come with the line-spread function that is to be used, or none */
  stars->fit.resolution = task->setup->config.lsf == MILL_LSF_OFF ? MILL_RES_NONE : MILL_RES_AUTO;
  return mill_reader_start(&plan, &stars->reader);
}

void mill_stars_end(mill_stars *stars)
{
  const mill_fit_task *task = stars->task;
  mill_reader_release(stars->reader, stars->before);
  mill_reader_release(stars->reader, stars->batch);
  if (stars->reader) {
    task->tally->meters.read_s = mill_reader_cpu_s(stars->reader);
    task->tally->balance.n_opened = (double)mill_reader_n_opened(stars->reader);
  }
  mill_reader_stop(stars->reader);
  mill_free(stars->time);
}
