#include "jobs/fit/fit_job.h"

#include <stdio.h>
#include <string.h>

#include "jobs/fit/stars.h"
#include "kernels/base/error.h"
#include "src/pipeline/pipeline.h"
#include "src/system/log.h"
#include "src/system/progress.h"
#include "src/system/stop_signal.h"
#include "src/system/watchdog.h"

/* When a star was taken, by its row; another that falls on its place forgets it. */
typedef struct star_start {
  int64_t row;
  double s;
} star_start;

enum { N_STAR_START = 1 << 14 };

static const double EVALUATION_S = 3e-3; /* and rvspecfit's takes less */

typedef struct share {
  mill_fit_job *job;
  mill_stars stars;
  star_start *star_start; /* [N_STAR_START] */
  int watch;              /* token of the round of fits under way; -1: none */
  mill_progress progress;
} share;

/* No star takes long to fit, so something hangs when none is taken or finished for long. Posteriors
   take as long as all that are under way together may take. */
static void watch_fits(share *s)
{
  const mill_fit_job *job = s->job;
  const double extra_s = job->options.fit ? EVALUATION_S * job->options.sample.max_eval *
                                                ((double)job->device.n_slot / job->device.n_thread)
                                          : 0.0;
  s->watch = mill_watch_begin(MILL_WATCH_WORK, extra_s, "rank %d: fitting", job->mpi.rank);
}

static int next_star(void *context, mill_star *star)
{
  share *s = context;
  int is_star = 0;
  const double start_s = mill_fit_meter_s(s->job);
  mill_watch_end(s->watch); /* the reader has a watch of its own */
  const int err = mill_stars_next(&s->stars, star, &is_star);
  s->job->meters.load_s += mill_fit_meter_s(s->job) - start_s;
  if (err == MILL_OK && is_star)
    s->star_start[star->row % N_STAR_START] = (star_start){star->row, mill_wall_s()};
  watch_fits(s);
  return err == MILL_OK ? is_star : -err;
}

static int take_result(void *context, const mill_fit_result *result, const float *const *model)
{
  share *s = context;
  mill_fit_job *job = s->job;
  int err = MILL_OK;
  const star_start *begun = &s->star_start[result->row % N_STAR_START];
  mill_watch_end(s->watch); /* and so has the I/O thread */
  if (!job->options.fit && begun->row == result->row && begun->s > 0) /* a stop gives those up */
    mill_stop_watch_star(job->stop, mill_wall_s() - begun->s);
  mill_stop_watch_write(job->stop, mill_result_longest_write_s(job->out.result));
  const double start_s = mill_fit_meter_s(job);
  if (result->warn & MILL_WARN_NONFINITE)
    mill_complain_nonfinite(&job->inputs, result);
  /* the models go first: a row marked done must be whole */
  const double wait_s = mill_wall_s();
  if (job->options.models)
    MILL_TRY(mill_model_rows_put(&job->out.models, result->row, model));
  MILL_TRY(mill_result_put(job->out.result, result));
  job->balance.put_wait_s += mill_wall_s() - wait_s;
  job->n_put++;
  mill_velocity_count(&job->velocities, result);
  mill_board_finished(job->out.board, result->status);
  mill_progress_update(&s->progress, mill_result_n_done(job->out.result),
                       mill_board_n_failed(job->out.board));
done:
  if (job->observer && job->observer->put)
    job->observer->put(job->observer->context, &job->setup.lib, &s->stars.fit, result);
  job->meters.put_s += mill_fit_meter_s(job) - start_s;
  watch_fits(s);
  return err;
}

static void note_run(const share *s)
{
  mill_fit_meters *meters = &s->job->meters;
  const mill_pipeline *pipeline = s->stars.pipeline;
  snprintf(meters->library, sizeof meters->library, "%s", s->job->setup.lib.path);
  snprintf(meters->backend, sizeof meters->backend, "%s", s->job->device.backend->name);
  meters->n_thread = s->job->device.n_thread;
  meters->n_slot = s->job->device.n_slot;
  meters->set = s->stars.fit;
  mill_pipeline_timing(pipeline, &meters->timing);
  meters->load_s += mill_pipeline_load_s(pipeline);
  meters->load_wall_s = mill_pipeline_load_wall_s(pipeline);
}

static int fit_rows(share *s)
{
  mill_fit_job *job = s->job;
  const mill_fit_device *device = &job->device;
  MILL_CHECK(MILL_ALLOC(N_STAR_START, &s->star_start));
  MILL_CHECK(mill_stars_begin(job, &s->stars));
  const double start_s = mill_thread_cpu_s();
  s->watch = mill_watch_begin(MILL_WATCH_WORK, 0, "rank %d: preparing templates", job->mpi.rank);
  MILL_CHECK(mill_pipeline_create(&job->setup.lib, &s->stars.fit, device->backend, device->n_slot,
                                  device->n_thread, job->options.models != NULL,
                                  &s->stars.pipeline));
  job->meters.model_s = mill_thread_cpu_s() - start_s;
  mill_board_stage(job->out.board, MILL_RANK_FITTING);
  const double run_s = mill_wall_s(), main_s = mill_thread_cpu_s();
  MILL_CHECK(mill_pipeline_run(s->stars.pipeline, next_star, s, take_result, s));
  job->meters.run_wall_s = mill_wall_s() - run_s;
  job->meters.main_s = mill_thread_cpu_s() - main_s;
  note_run(s);
  mill_stars_note_memory(&s->stars);
  return MILL_OK;
}

int mill_fit_share(mill_fit_job *job)
{
  share s = {.job = job, .stars = {.job = job}, .watch = -1};
  job->balance.start_s = mill_wall_s();
  mill_progress_start(&s.progress, job->inputs.n_row, mill_result_n_done(job->out.result),
                      job->options.quiet || job->mpi.rank != 0);
  const int err = fit_rows(&s);
  mill_board_stage(job->out.board, MILL_RANK_WAITING);
  job->balance.end_s = mill_wall_s() - job->balance.start_s;
  mill_watch_end(s.watch);
  if (err != MILL_OK)
    mill_fit_tell_failure(job, err);
  mill_stars_end(&s.stars);
  mill_pipeline_destroy(s.stars.pipeline);
  mill_free(s.star_start);
  if (err != MILL_OK || mill_stop_signal_seen())
    mill_fit_stop_others(job, err);
  mill_progress_end(&s.progress);
  return err;
}
