/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>

#include "jobs/fit/stars.h"
#include "jobs/fit/steps.h"
#include "kernels/base/error.h"
#include "src/system/log.h"
#include "src/system/progress.h"
#include "src/system/stop_signal.h"
#include "src/system/watchdog.h"

/* Seconds of one likelihood evaluation for the watchdog: a slow core takes less. */
static const double EVALUATION_S = 3e-3;

typedef struct share {
  const mill_fit_task *task;
  mill_stars stars;
  int watch; /* watchdog token of the present round of fits; -1: none */
  mill_progress progress;
} share;

/* Let the watchdog end the run if no star is taken or finished in time.  Sampling gets extra time
 * for the evaluations of the stars under way. */
static void watch_fits(share *s)
{
  const mill_fit_task *task = s->task;
  const double extra_s = task->call->options->fit
                             ? EVALUATION_S * task->call->options->sample.max_eval *
                                   ((double)task->device->n_slot / task->device->n_thread)
                             : 0.0;
  s->watch = mill_watch_begin(MILL_WATCH_WORK, extra_s, "rank %d: fitting", task->call->mpi->rank);
}

static int next_star(void *context, mill_star **star)
{
  share *s = context;
  const double start_s = mill_fit_meter_s(s->task);
  mill_watch_end(s->watch); /* the reader announces its own calls */
  const int err = mill_stars_next(&s->stars, star);
  s->task->tally->meters.load_s += mill_fit_meter_s(s->task) - start_s;
  watch_fits(s);
  return err == MILL_OK ? *star != NULL : -err;
}

/* Hand a finished star to the I/O thread and count it; callback of mill_pipeline_run. */
static int take_result(void *context, mill_star *star)
{
  share *s = context;
  const mill_fit_task *task = s->task;
  int err = MILL_OK;
  int64_t n_done, n_failed;
  const mill_fit_result *result = star->result;
  mill_watch_end(s->watch); /* the I/O thread announces its own calls */
  /* a stop waits for the stars under way, but drops those of a sample */
  if (!task->call->options->fit)
    mill_stop_watch_star(task->setup->stop, mill_wall_s() - star->taken_s);
  mill_stop_watch_write(task->setup->stop, mill_result_longest_write_s(task->out->result));
  const double start_s = mill_fit_meter_s(task);
  if (result->warn & MILL_WARN_NONFINITE)
    mill_complain_nonfinite(task->inputs, result);
  const double wait_s = mill_wall_s();
  if (result->status == MILL_STATUS_OTHER_SPECTRUM) {
    mill_log_error("row %lld (counted from 0): its spectrum is not the one fitted in %s: restore "
                   "the inputs, or fit them again",
                   (long long)result->row, task->call->options->fit);
    mill_fit_result_init(star->result, &task->setup->lib, result->row, result->status);
  }
  MILL_TRY(mill_star_output_put(&task->out->star, star));
  task->tally->put_wait_s += mill_wall_s() - wait_s;
  task->tally->n_put++;
  mill_velocity_count(&task->tally->velocities, result);
  mill_board_finished(task->out->board, result->status);
  mill_board_count(task->out->board, &n_done, &n_failed);
  mill_progress_update(&s->progress, n_done, n_failed);
done:
  if (task->call->observer)
    task->call->observer->put(task->call->observer->context, result);
  mill_reader_release_star(s->stars.reader, star);
  task->tally->meters.put_s += mill_fit_meter_s(task) - start_s;
  watch_fits(s);
  return err;
}

/* Note the pipeline's times for an observer. */
static void note_run(const share *s)
{
  mill_fit_meters *meters = &s->task->tally->meters;
  const mill_pipeline *pipeline = s->stars.pipeline;
  mill_waveset_stats sets;
  snprintf(meters->backend, sizeof meters->backend, "%s", s->task->device->backend->name);
  meters->n_thread = s->task->device->n_thread;
  meters->n_slot = s->task->device->n_slot;
  mill_pipeline_timing(pipeline, &meters->timing);
  mill_pipeline_waveset_stats(pipeline, &sets);
  meters->waveset_s = sets.make_s;
  /* a star's load time excludes making its wavelength set, which counts as start-up */
  meters->load_s += mill_pipeline_load_s(pipeline) - sets.make_s;
}

/* Create the pipeline and run it on this rank's stars until none is left. */
static int fit_rows(share *s)
{
  const mill_fit_task *task = s->task;
  const mill_fit_device *device = task->device;
  MILL_CHECK(mill_stars_begin(task, &s->stars));
  const double start_s = mill_thread_cpu_s();
  s->watch =
      mill_watch_begin(MILL_WATCH_WORK, 0, "rank %d: preparing templates", task->call->mpi->rank);
  MILL_CHECK(mill_pipeline_create(task->setup->library, task->setup->n_library, &s->stars.fit,
                                  device->backend, device->n_slot, device->n_thread,
                                  task->call->options->models != NULL, &s->stars.pipeline));
  task->tally->meters.model_s = mill_thread_cpu_s() - start_s;
  mill_board_stage(task->out->board, MILL_RANK_FITTING);
  const double run_s = mill_wall_s();
  MILL_CHECK(mill_pipeline_run(s->stars.pipeline, next_star, s, take_result, s));
  task->tally->meters.run_wall_s = mill_wall_s() - run_s;
  note_run(s);
  mill_stars_note_memory(&s->stars);
  return MILL_OK;
}

/* Fit this rank's share of the rows.  A failure or a signal on this rank stops the others too. */
int mill_fit_share(const mill_fit_task *task)
{
  share s = {.task = task, .stars = {.task = task}, .watch = -1};
  const double start_s = mill_wall_s();
  mill_progress_start(&s.progress, "stars", task->inputs->n_row,
                      task->call->options->quiet || task->call->mpi->rank != 0);
  const int err = fit_rows(&s);
  mill_board_stage(task->out->board, MILL_RANK_WAITING);
  task->tally->fit_s = mill_wall_s() - start_s;
  mill_watch_end(s.watch);
  if (err != MILL_OK) {
    mill_board_failed(task->out->board, err, mill_error_message());
    mill_fit_tell_failure(task->call, err);
  }
  mill_stars_end(&s.stars);
  mill_pipeline_destroy(s.stars.pipeline);
  if (err != MILL_OK || mill_stop_signal_seen())
    mill_fit_stop_others(task->call, err);
  mill_progress_end(&s.progress);
  return err;
}
