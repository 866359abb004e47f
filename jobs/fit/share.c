/* SPDX-License-Identifier: BSD-3-Clause */
#include <time.h>

#include "jobs/fit/steps.h"
#include "src/pipeline/pipeline.h"
#include "src/stars/epochs.h"
#include "src/stars/line_spread.h"
#include "src/system/log.h"
#include "src/system/progress.h"
#include "src/system/stop_signal.h"
#include "src/system/watchdog.h"

/* Seconds of one likelihood evaluation for the watchdog: a slow core takes less. */
static const double EVALUATION_S = 3e-3;

/* Why an arm of a row is left out of the fit, or is suspect. */
enum complaint {
  NO_LSF,  /* left out: no line-spread function, and the library needs one */
  UNFIT,   /* left out: the pipeline refuses the arm's wavelengths */
  BEYOND,  /* left out: a channel outside all arms.  It has no arm, and sets bit 0 */
  ODD_LSF, /* suspect: the line-spread function's sigma is implausible */
  SHIFTED, /* suspect: the resolution matrix moves light */
  N_COMPLAINT
};
/* The arms of a row that are left out or suspect, by reason. */
typedef struct left_out {
  unsigned arms[N_COMPLAINT]; /* a bit for each arm */
  int i_file;                 /* index of the row's file */
  /* details of the last arm with a reason: */
  double first_aa, last_aa; /* BEYOND: the channel's wavelength range */
  /* ODD_LSF: sigma, wavelength where it is measured, pixel width there */
  double sigma_aa, sigma_wave_aa, pixel_aa;
  double shift_pix; /* SHIFTED: shift of light by the matrix, pixels */
  char reason[512]; /* UNFIT: message of the pipeline */
} left_out;

/* Stars from the reader, prepared for the pipeline. */
typedef struct stars {
  const mill_fit_task *task;
  mill_fit_settings fit; /* fit settings for the pipeline */
  mill_reader *reader;
  mill_pipeline *pipeline;    /* NULL until fit_rows has created it */
  int i_told;                 /* file of the latest warning; -1: none yet */
  unsigned told[N_COMPLAINT]; /* arms of that file already warned about, a bit for each */
  mill_batch *batch;          /* batch whose stars are being taken; NULL: none */
  mill_batch *before;         /* previous batch, whose pixels may still be uploading; NULL: none */
  int i_row;                  /* index of the batch's next row */
  int stops;                  /* above 0: the reason to stop is logged */
} stars;

/* ---- warnings about arms that cannot be fitted or look wrong, once per file and arm ---- */

enum { LIST_SIZE = MILL_MAX_ARM * (MILL_MAX_NAME + 2) };

/* Write the names of the arms whose bits are set, separated by commas. */
static const char *list_arms(const mill_library *lib, unsigned arms, char list[LIST_SIZE])
{
  size_t n = 0;
  list[0] = '\0';
  for (int a = 0; a < lib->n_arm; a++)
    if (arms & 1u << a)
      n += (size_t)snprintf(list + n, LIST_SIZE - n, "%s%s", n > 0 ? ", " : "", lib->arm[a].name);
  return list;
}

/* Warn that a spectrum lies outside the library.  The warning asks whether the wavelengths are in
 * another unit, or logarithms, if the spectrum would then lie inside. */
static void complain_of_range(const mill_library *lib, const char *path, const left_out *left)
{
  static const struct {
    double factor;
    const char *name;
  } units[] = {{10.0, "nm"}, {1e4, "um"}, {1e10, "m"}, {0.1, "tenths of A"}};
  double first = INFINITY, last = 0.0;
  const char *hint = "";
  char question[64];
  for (int a = 0; a < lib->n_arm; a++) {
    const mill_arm *arm = &lib->arm[a];
    first = fmin(first, exp(arm->ln_wave0));
    last = fmax(last, exp(arm->ln_wave0 + arm->ln_step * (double)(arm->n_pix - 1)));
  }
  /* A spectrum that overlaps the library is in A, even if it is skipped because of the margin. */
  const int overlaps = left->last_aa >= first && left->first_aa <= last;
  if (exp(left->first_aa) < last && exp(left->last_aa) > first)
    hint = "; are these ln of A? Write the wavelengths in A instead";
  else if (pow(10.0, left->first_aa) < last && pow(10.0, left->last_aa) > first)
    hint = "; are these log10 of A? Write the wavelengths in A instead";
  for (size_t i = 0; i < sizeof units / sizeof units[0] && !overlaps && !hint[0]; i++)
    if (left->first_aa * units[i].factor < last && left->last_aa * units[i].factor > first) {
      snprintf(question, sizeof question, "; are these %s?", units[i].name);
      hint = question;
    }
  const int n_digit = left->last_aa < 100.0 ? 3 : 0; /* decimals for um and logarithms */
  mill_log_warning("%s: skipped: its spectra, %.*f to %.*f A, are outside all arms of the library "
                   "%s (%.0f to %.0f A, less a margin for the velocity limits)%s",
                   path, n_digit, left->first_aa, n_digit, left->last_aa, lib->path, first, last,
                   hint);
}

/* Warn about a row's arms, unless this file and arm had the same warning before. */
static void complain(stars *s, const left_out *left)
{
  const mill_library *lib = &s->task->setup->lib;
  const char *path = s->task->inputs->file[left->i_file].path;
  const int lsf = s->task->setup->config.lsf;
  char arms[LIST_SIZE];
  unsigned fresh[N_COMPLAINT], any = 0; /* fresh: arms that this file had no warning for */
  for (int why = 0; why < N_COMPLAINT; why++)
    any |= left->arms[why];
  if (!any)
    return;
  if (s->i_told != left->i_file)
    memset(s->told, 0, sizeof s->told);
  s->i_told = left->i_file;
  for (int why = 0; why < N_COMPLAINT; why++) {
    fresh[why] = left->arms[why] & ~s->told[why];
    s->told[why] |= left->arms[why];
  }
  if (fresh[NO_LSF])
    mill_log_warning("%s: skipped arm %s: it has no %s, which the library %s needs (set "
                     "resolving_power, or lsf: off to fit without)",
                     path, list_arms(lib, fresh[NO_LSF], arms),
                     lsf == MILL_LSF_MATRIX  ? "resolution matrix"
                     : lsf == MILL_LSF_SIGMA ? "sigma of the line-spread function"
                                             : "resolution matrix or other line-spread function",
                     lib->path);
  if (fresh[UNFIT])
    mill_log_warning("%s: skipped arm %s, which the library %s cannot fit (%s)", path,
                     list_arms(lib, fresh[UNFIT], arms), lib->path, left->reason);
  if (fresh[BEYOND])
    complain_of_range(lib, path, left);
  if (fresh[ODD_LSF])
    mill_log_warning("%s: sigma of the line-spread function is %.3g A at %.0f A, where pixels are "
                     "%.3g A wide: check its unit, or rebin to pixels of at least sigma / 3",
                     path, left->sigma_aa, left->sigma_wave_aa, left->pixel_aa);
  if (fresh[SHIFTED])
    mill_log_warning("%s: the resolution matrix moves light by %.1f pixels, which changes "
                     "velocities: are its diagonals in DESI's order?",
                     path, left->shift_pix);
}

/* Report that a star's fit met NaN or infinity, or had no memory; name the row and its file. */
static void complain_star(const mill_inputs *inputs, const mill_star *star)
{
  const mill_input_file *file = inputs->file;
  while (star->row >= file->row_start + file->n_row)
    file++;
  const long long row = star->row, here = star->row - file->row_start;
  if (star->is_too_large)
    mill_log_error("%s: row %lld of /fits (row %lld from this file) is marked FIT_FAILED: no "
                   "memory for its %d exposures",
                   file->path, row, here, star->n_exposure);
  else
    mill_log_warning("%s: row %lld of /fits (row %lld from this file) met NaN or infinity and "
                     "is flagged NONFINITE%s",
                     file->path, row, here,
                     star->result->status == MILL_STATUS_FITTED ? "" : "; its fit failed");
}

/* ---- stars from the reader ---- */

/* Record in *left that a segment's arm is left out or suspect, and the reason `why`. */
static void leave_out(left_out *left, enum complaint why, const mill_raw_segment *s)
{
  left->arms[why] |= s->arm < 0 ? 1u : 1u << s->arm;
  left->i_file = s->i_file;
}

/* Keep the segments that can be fitted; record arms that are left out or suspect in *left. */
static int keep_segments(stars *s, mill_star *star, left_out *left)
{
  const int n = star->n_segment;
  const mill_fit_setup *setup = s->task->setup;
  star->n_segment = 0;
  for (mill_raw_segment *r = star->segment; r < star->segment + n; r++) {
    if (r->use == MILL_SEGMENT_OUTSIDE) {
      leave_out(left, BEYOND, r);
      left->first_aa = r->first_aa;
      left->last_aa = r->last_aa;
    } else if (r->use == MILL_SEGMENT_NO_LSF)
      leave_out(left, NO_LSF, r);
    if (r->use != MILL_SEGMENT_FIT)
      continue;
    const int code = mill_pipeline_accepts(s->pipeline, r);
    if (code == MILL_ERR_RANGE) {
      leave_out(left, UNFIT, r);
      snprintf(left->reason, sizeof left->reason, "%s", mill_error_message());
      continue;
    }
    MILL_CHECK(code);
    if (r->sigma_aa && mill_lsf_is_odd(r, &left->sigma_aa, &left->sigma_wave_aa, &left->pixel_aa))
      leave_out(left, ODD_LSF, r);
    if (r->resolution && mill_lsf_is_shifting(r, &left->shift_pix))
      leave_out(left, SHIFTED, r);
    mill_segment_note(&s->task->tally->segments, &setup->config, &setup->lib, r);
    if (s->fit.resolution != MILL_RES_NONE)
      mill_narrow_note(&s->task->tally->narrow, &s->fit, &setup->lib, r);
    s->task->tally->arms |= 1 << r->arm;
    s->task->tally->segments.n_untimed += s->fit.epochs && star->n_exposure > 1 && isnan(r->mjd);
    star->segment[star->n_segment++] = *r;
  }
  return MILL_OK;
}

static int put_unfitted(const mill_fit_task *task, int64_t row, int status)
{
  mill_fit_result result;
  mill_fit_result_init(&result, &task->setup->lib, row, status);
  MILL_CHECK(mill_result_put(task->out->result, &result));
  task->tally->n_put++;
  mill_board_finished(task->out->board, status);
  return MILL_OK;
}

/* Prepare a star for the fit.  If it cannot be fitted, write its row and leave *is_ready 0. */
static int take_star(stars *s, mill_star *star, int *is_ready)
{
  const mill_fit_task *task = s->task;
  left_out left = {0};
  if (task->call->options->fit) {
    if (!star->start)
      return put_unfitted(task, star->row, MILL_STATUS_NO_FIT);
    const mill_start_fit *fit = mill_start_table_fit(task->setup->start, star->start);
    star->try_all = (fit->info & MILL_INFO_TWO_MINIMA) != 0;
    star->is_several = (fit->info & (MILL_INFO_PAIR | MILL_INFO_EPOCHS)) != 0;
    star->start_chisq = fit->chisq_c_data;
    /* M2LL shows whether the spectrum is the same.  Infinity: no check, since the earlier fit had
     * another model or other priors. */
    star->start_f = star->is_several || task->call->options->prior_table ? INFINITY : fit->m2ll;
  }
  MILL_CHECK(keep_segments(s, star, &left));
  complain(s, &left);
  *is_ready = star->n_segment > 0;
  if (!*is_ready) /* a reason that the user can mend comes first */
    return put_unfitted(task, star->row,
                        left.arms[NO_LSF]                       ? MILL_STATUS_NO_RESOLUTION
                        : left.arms[UNFIT] || left.arms[BEYOND] ? MILL_STATUS_OUTSIDE_LIBRARY
                                                                : MILL_STATUS_NO_ARM);
  if (s->fit.epochs)
    MILL_CHECK(mill_star_number_epochs(star, s->fit.epochs == MILL_EPOCHS_NIGHT));
  star->taken_s = mill_wall_s();
  return MILL_OK;
}

/* Take the batch's next star; *star stays NULL if the star's row was written without a fit. */
static int take_next(stars *s, mill_star **star)
{
  mill_batch *batch = s->batch;
  int is_ready = 0;
  mill_star *next = batch->star[s->i_row];
  mill_board_took(s->task->out->board, batch->i_file);
  if (batch->error[0] != '\0') {
    if (s->i_row == 0)
      mill_log_error("%s (%d %s marked UNREADABLE)", batch->error, batch->n_row,
                     batch->n_row == 1 ? "row is" : "rows are");
    MILL_CHECK(put_unfitted(s->task, next->row, MILL_STATUS_UNREADABLE));
  } else {
    MILL_CHECK(take_star(s, next, &is_ready));
  }
  if (is_ready) {
    *star = next;
    batch->star[s->i_row] = NULL; /* so that mill_reader_release leaves the star to the caller */
  }
  s->i_row++;
  return MILL_OK;
}

static void note_memory(const stars *s)
{
  mill_board *board = s->task->out->board;
  mill_pipeline_bytes bytes;
  size_t batch_bytes = sizeof *s->batch;
  mill_pipeline_memory(s->pipeline, &bytes);
  mill_board_memory(board, MILL_MEMORY_EMULATOR, bytes.model);
  mill_board_memory(board, MILL_MEMORY_SLOTS, bytes.slots);
  mill_board_memory(board, MILL_MEMORY_WAVELENGTHS, bytes.wavesets);
  if (!s->batch)
    return;
  for (int p = 0; p < s->batch->n_part; p++)
    batch_bytes += mill_read_batch_bytes(&s->batch->part[p]);
  mill_board_memory(board, MILL_MEMORY_READER,
                    mill_reader_batches(s->task->device->n_reader) * batch_bytes);
}

/* Take the reader's next batch.  The batch whose stars are all taken becomes s->before.  The old
 * s->before is released: mill_pipeline_settle waits until its pixels are copied. */
static int next_batch(stars *s)
{
  MILL_CHECK(mill_pipeline_settle(s->pipeline));
  mill_reader_release(s->reader, s->before);
  s->before = s->batch;
  s->batch = NULL;
  s->i_row = 0;
  const double wait_s = mill_wall_s();
  MILL_CHECK(mill_reader_next(s->reader, &s->batch));
  s->task->tally->read_wait_s += mill_wall_s() - wait_s;
  if (s->batch) /* at each batch, since memory still grows during the first batches */
    note_memory(s);
  return MILL_OK;
}

/* Set *star to the next star that can be fitted; write the rows of the skipped stars.  *star NULL:
 * no more stars, or a reason to stop.  The caller calls mill_reader_release_star. */
static int next_fittable(stars *s, mill_star **star)
{
  const mill_fit_task *task = s->task;
  *star = NULL;
  while (!*star) {
    if (mill_stop_reason() != MILL_STOP_NONE) {
      char why[MILL_STATUS_PATH + 64];
      mill_stop_watch_text(task->setup->stop, why, sizeof why);
      if (!s->stops++)
        MILL_LOG(task->call->mpi->rank == 0 ? MILL_LOG_INFO : MILL_LOG_DEBUG,
                 "%s: the stars under way are %s, then the job stops", why,
                 task->call->options->fit ? "given up" : "finished and written");
      break;
    }
    if (!s->batch || s->i_row == s->batch->n_row) {
      MILL_CHECK(next_batch(s));
      if (!s->batch)
        break;
    }
    MILL_CHECK(take_next(s, star));
  }
  return MILL_OK;
}

static int begin_stars(const mill_fit_task *task, stars *s)
{
  const mill_reader_plan plan = {
      .inputs = task->inputs,
      .work = task->out->work,
      .n_thread = task->device->n_reader,
      .backend = task->device->backend,
      .cost = &task->tally->read,
  };
  *s = (stars){.task = task, .fit = task->setup->config.fit, .i_told = -1};
  /* io/surveys has already chosen each segment's line-spread function by the key lsf */
  s->fit.resolution = task->setup->config.lsf == MILL_LSF_OFF ? MILL_RES_NONE : MILL_RES_AUTO;
  return mill_reader_start(&plan, &s->reader);
}

/* ---- failures ---- */

/* Has another rank asked to stop?  Rank r waits r * 20 ms, at most 1 s, for the request: of ranks
 * that fail alike, only the lowest reports its failure. */
static int hear_lower_rank(mill_mpi *mpi)
{
  const struct timespec ms = {.tv_nsec = 1000000};
  const double end_s = mill_wall_s() + 0.02 * (mpi->rank < 50 ? mpi->rank : 50);
  while (!mill_mpi_stop_asked(mpi)) {
    if (mill_wall_s() >= end_s)
      return 0;
    nanosleep(&ms, NULL);
  }
  return 1;
}

/* Log this rank's failure, and stop the other ranks at once, since they may fit for long. */
static void tell_failure(const mill_fit_call *call, int err)
{
  mill_error_kept kept;
  mill_error_save(err, &kept);
  /* no message for a failure to write: all ranks learn of it, and mill_mpi_tell prints it once */
  if (call->mpi->size > 1 && err != MILL_ERR_OUTPUT) {
    if (hear_lower_rank(call->mpi))
      mill_log_debug("this rank fails too (%s): %s", kept.place, kept.message);
    else
      mill_log_error("this rank fails (%s), all others stop: %s", kept.place, kept.message);
    (void)mill_mpi_stop_others(call->mpi);
  }
  mill_error_restore(&kept);
}

/* Ask the other ranks to stop, because this rank ended early by failure err or a signal. */
static void stop_others(const mill_fit_call *call, int err)
{
  mill_error_kept kept;
  mill_error_save(err, &kept);
  /* if all ranks stop together, one rank's messages are enough */
  if (call->mpi->size == 1 || !hear_lower_rank(call->mpi))
    (void)mill_mpi_stop_others(call->mpi);
  mill_error_restore(&kept);
}

/* ---- the fits ---- */

typedef struct share {
  const mill_fit_task *task;
  stars stars;
  int watch; /* watchdog token of the present round of fits; -1: none */
  mill_progress progress;
} share;

/* Let the watchdog end the run if no star is taken or finished in time.  Sampling gets extra time:
 * the stars of a thread take turns, so all may be evaluated max_eval times before one finishes. */
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
  const int err = next_fittable(&s->stars, star);
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
  /* a stop of a fit waits for the stars under way, so note their time; `sample` gives them up */
  if (!task->call->options->fit)
    mill_stop_watch_star(task->setup->stop, mill_wall_s() - star->taken_s);
  mill_stop_watch_write(task->setup->stop, mill_result_longest_write_s(task->out->result));
  const double start_s = mill_fit_meter_s(task);
  if (result->warn & MILL_WARN_NONFINITE || star->is_too_large)
    complain_star(task->inputs, star);
  const double put_start_s = mill_wall_s();
  if (result->status == MILL_STATUS_OTHER_SPECTRUM) {
    mill_log_error("row %lld (counted from 0): its spectrum is not the one fitted in %s: restore "
                   "the inputs, or fit them again",
                   (long long)result->row, task->call->options->fit);
    /* the values belong to another spectrum: set all columns but STATUS to missing */
    mill_fit_result_init(star->result, &task->setup->lib, result->row, result->status);
  }
  MILL_TRY(mill_star_output_put(&task->out->star, star));
  task->tally->put_wait_s += mill_wall_s() - put_start_s;
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
  /* load_s excludes the making of wavelength sets, which counts as start-up */
  meters->load_s += mill_pipeline_load_s(pipeline) - sets.make_s;
}

/* Create the pipeline and run it on this rank's stars until none is left. */
static int fit_rows(share *s)
{
  const mill_fit_task *task = s->task;
  const mill_fit_device *device = task->device;
  MILL_CHECK(begin_stars(task, &s->stars));
  const double start_s = mill_thread_cpu_s();
  /* next_star ends this watch, or mill_fit_share after a failure */
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
  note_memory(&s->stars);
  return MILL_OK;
}

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
    tell_failure(task->call, err);
  }
  mill_reader_release(s.stars.reader, s.stars.before);
  mill_reader_release(s.stars.reader, s.stars.batch);
  mill_reader_stop(s.stars.reader);
  task->tally->meters.read_s = task->tally->read.cpu_s;
  mill_pipeline_destroy(s.stars.pipeline);
  if (err != MILL_OK || mill_stop_signal_seen())
    stop_others(task->call, err); /* no new request if tell_failure has made one */
  mill_progress_end(&s.progress);
  return err;
}
