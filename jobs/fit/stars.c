/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/fit/stars.h"

#include "src/stars/epochs.h"
#include "src/stars/line_spread.h"
#include "src/system/log.h"
#include "src/system/stop_signal.h"

/* Note that a segment's arm is left out or suspect, and why. */
static void leave_out(mill_left_out *left, enum mill_complaint why, const mill_raw_segment *s)
{
  left->arms[why] |= s->arm < 0 ? 1u : 1u << s->arm;
  left->i_file = s->i_file;
}

/* Keep the segments that can be fitted; record arms that are left out or suspect in *left. */
static int keep_segments(mill_stars *stars, mill_star *star, mill_left_out *left)
{
  const int n = star->n_segment;
  const mill_fit_setup *setup = stars->task->setup;
  star->n_segment = 0;
  for (mill_raw_segment *s = star->segment; s < star->segment + n; s++) {
    if (s->use == MILL_SEGMENT_OUTSIDE) {
      leave_out(left, MILL_BEYOND, s);
      left->first_aa = s->first_aa;
      left->last_aa = s->last_aa;
    } else if (s->use == MILL_SEGMENT_NO_LSF)
      leave_out(left, MILL_NO_LSF, s);
    if (s->use != MILL_SEGMENT_FIT)
      continue;
    const int code = mill_pipeline_accepts(stars->pipeline, s);
    if (code == MILL_ERR_RANGE) {
      leave_out(left, MILL_OUTSIDE, s);
      snprintf(left->reason, sizeof left->reason, "%s", mill_error_message());
      continue;
    }
    MILL_CHECK(code);
    if (s->sigma_aa && mill_lsf_is_odd(s, &left->sigma_aa, &left->sigma_wave_aa, &left->pixel_aa))
      leave_out(left, MILL_ODD_LSF, s);
    if (s->resolution && mill_lsf_is_shifting(s, &left->shift_pix))
      leave_out(left, MILL_SHIFTED, s);
    mill_width_note(&stars->task->tally->width, &setup->config, &setup->lib, s);
    if (stars->fit.resolution != MILL_RES_NONE)
      mill_narrow_note(&stars->task->tally->narrow, &stars->fit, &setup->lib, s);
    stars->task->tally->arms |= 1 << s->arm;
    star->segment[star->n_segment++] = *s;
  }
  return MILL_OK;
}

/* Write the row of a star that is not fitted. */
static int put_unfitted(const mill_fit_task *task, int64_t row, int status)
{
  mill_fit_result result;
  mill_fit_result_init(&result, &task->setup->lib, row, status);
  MILL_CHECK(mill_result_put(task->out->result, &result));
  task->tally->n_put++;
  mill_board_finished(task->out->board, status);
  return MILL_OK;
}

/* STATUS of a star without a segment: first the reason that a user can fix. */
static int status_of(const mill_left_out *left)
{
  if (left->arms[MILL_NO_LSF])
    return MILL_STATUS_NO_RESOLUTION;
  return left->arms[MILL_OUTSIDE] || left->arms[MILL_BEYOND] ? MILL_STATUS_OUTSIDE_LIBRARY
                                                             : MILL_STATUS_NO_ARM;
}

/* Prepare a star for the fit.  If it cannot be fitted, write its row and leave *is_ready 0. */
static int take_star(mill_stars *stars, mill_star *star, int *is_ready)
{
  const mill_fit_task *task = stars->task;
  mill_left_out left = {0};
  if (task->call->options->fit) {
    if (!star->start)
      return put_unfitted(task, star->row, MILL_STATUS_NO_FIT);
    const mill_start_fit *fit = mill_start_table_fit(task->setup->start, star->start);
    star->try_all = (fit->info & MILL_INFO_TWO_MINIMA) != 0;
    star->is_several = (fit->info & (MILL_INFO_PAIR | MILL_INFO_EPOCHS)) != 0;
    star->start_chisq = fit->chisq_c_data;
    /* the fit's M2LL identifies the spectrum if the sample has the same model and priors */
    star->start_f = star->is_several || task->call->options->prior_table ? INFINITY : fit->m2ll;
  }
  MILL_CHECK(keep_segments(stars, star, &left));
  mill_complain(&stars->complaints, &left);
  *is_ready = star->n_segment > 0;
  if (!*is_ready)
    return put_unfitted(task, star->row, status_of(&left));
  if (stars->fit.epochs)
    MILL_CHECK(mill_star_number_epochs(star, stars->fit.epochs == MILL_EPOCHS_NIGHT));
  star->taken_s = mill_wall_s();
  return MILL_OK;
}

/* Take the batch's next star; *star stays NULL if the star's row was written without a fit. */
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

/* Take the reader's next batch.  Release the last batch but one: the pipeline has its pixels. */
static int next_batch(mill_stars *stars)
{
  MILL_CHECK(mill_pipeline_settle(stars->pipeline));
  mill_reader_release(stars->reader, stars->before);
  stars->before = stars->batch;
  stars->batch = NULL;
  stars->i_row = 0;
  const double wait_s = mill_wall_s();
  MILL_CHECK(mill_reader_next(stars->reader, &stars->batch));
  stars->task->tally->read_wait_s += mill_wall_s() - wait_s;
  if (stars->batch) /* at each batch, since memory still grows during the first batches */
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

/* Start the threads that read this rank's stars. */
int mill_stars_begin(const mill_fit_task *task, mill_stars *stars)
{
  const mill_inputs *inputs = task->inputs;
  const mill_reader_plan plan = {
      .inputs = inputs,
      .work = task->out->work,
      .n_thread = task->device->n_reader,
      .backend = task->device->backend,
      .cost = &task->tally->read,
  };
  *stars = (mill_stars){.task = task, .fit = task->setup->config.fit};
  stars->complaints = (mill_complaints){
      .config = &task->setup->config, .lib = &task->setup->lib, .inputs = inputs, .i_file = -1};
  /* io/surveys has already chosen each segment's line-spread function by the key lsf */
  stars->fit.resolution = task->setup->config.lsf == MILL_LSF_OFF ? MILL_RES_NONE : MILL_RES_AUTO;
  return mill_reader_start(&plan, &stars->reader);
}

void mill_stars_end(mill_stars *stars)
{
  const mill_fit_task *task = stars->task;
  mill_reader_release(stars->reader, stars->before);
  mill_reader_release(stars->reader, stars->batch);
  mill_reader_stop(stars->reader);
  task->tally->meters.read_s = task->tally->read.cpu_s;
}
