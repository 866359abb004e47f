/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/fit/steps.h"

#include <unistd.h>

#include "kernels/gpu.h"
#include "src/config/text.h"
#include "src/system/log.h"

/* Speed of sampling relative to fitting: a posterior takes some 300 times as many evaluations. */
static const double SAMPLE_RATE = 1.0 / 300;

/* Describe the run, and create the result or open the one to continue. */
static int open_result(const mill_fit_call *call, const mill_fit_setup *setup, mill_inputs *inputs,
                       const mill_fit_device *device, mill_fit_output *out)
{
  MILL_OWNED char *identity = NULL, *config = NULL;
  size_t config_size = 0;
  FILE *text = open_memstream(&config, &config_size);
  int code = text ? mill_config_print(&setup->config, text) : MILL_OK;
  code = mill_text_close(text, code, "the configuration");
  if (code == MILL_OK)
    code = mill_fit_identity(call->options, &setup->config, &identity);
  MILL_CHECK(mill_mpi_agree(call->mpi, code));
  const mill_run_info info = {
      .lib = &setup->lib,
      .library = setup->library,
      .n_library = setup->n_library,
      .identity = identity,
      .config = config,
      .command = call->command,
      .device = device->name,
      .cpu = device->both[0] ? device->cpu : NULL,
      .gpu = device->both[0] ? device->gpu : NULL,
      .backend = device->has_gpu ? MILL_ROW_BACKEND_GPU : MILL_ROW_BACKEND_CPU,
      .n_thread = device->n_thread,
      .velocity_offsets = setup->config.fit.velocity_offsets,
      .epochs = setup->config.fit.epochs != MILL_EPOCHS_NONE,
      .binaries = setup->config.fit.binaries,
      .posteriors = call->options->fit != NULL,
      .n_draw = call->options->sample.n_draw,
      .n_row = inputs->n_row,
      .n_file = inputs->n_file,
      .file = inputs->file,
      .file_start = inputs->file_start,
      .file_end = inputs->file_end,
      .index = inputs->index,
      .load = mill_inputs_load,
      .load_context = inputs,
      .write_interval_s = setup->config.write_interval_s,
      .models = call->options->models,
  };
  return mill_result_open(call->options->output, call->options->overwrite,
                          call->options->retry_failed, &info, call->mpi->comm, &out->result,
                          &out->outcome);
}

/* Open the models' file before any row is written, since a row without its models is not done. */
static int open_models(const mill_fit_call *call, const mill_fit_setup *setup,
                       const mill_inputs *inputs, mill_fit_output *out)
{
  const double *wave_aa[MILL_MAX_ARM];
  for (int a = 0; a < MILL_MAX_ARM; a++) {
    wave_aa[a] = inputs->wave_aa[a];
    if (inputs->n_pix[a] > 0 && !wave_aa[a] && call->mpi->rank == 0)
      mill_log_info("models: wavelengths differ between rows in arm %s, so each row stores its own",
                    setup->lib.arm[a].name);
  }
  return mill_mpi_agree(call->mpi,
                        mill_result_open_models(out->result, call->options->models,
                                                call->options->overwrite, wave_aa, inputs->n_pix));
}

/* Open the status file, and have mill_board_meet renew it at each meeting of the I/O threads.  Rows
 * done by earlier runs count as done. */
static int open_board(const mill_fit_call *call, const mill_fit_setup *setup,
                      const mill_inputs *inputs, const mill_fit_device *device,
                      mill_fit_output *out)
{
  mill_board_plan plan = {
      .path = call->observer ? NULL : setup->status_path,
      .interval_s = setup->config.write_interval_s,
      .output = call->options->output,
      .models = call->options->models,
      .command = call->command,
      .backend = device->name,
      .rank_backend = device->backend->name,
      .n_thread = device->n_thread,
      .n_slot = device->n_slot,
      .n_row = inputs->n_row,
      .n_file = inputs->n_file,
      .n_unreadable = inputs->n_unreadable,
      .file = inputs->file,
  };
  int64_t n_base = 0; /* rows that are done according to STATUS */
  for (int s = MILL_STATUS_FITTED; s < MILL_N_STATUS; s++)
    if (s == MILL_STATUS_FITTED || !call->options->retry_failed)
      n_base += plan.base[s] = out->existing.peek.n_status[s];
  /* Fewer rows may be done than STATUS says: a fitted row without its models is fitted again. */
  plan.base[MILL_STATUS_FITTED] -= n_base - mill_result_n_done(out->result);
  if (device->backend->kind == MILL_BACKEND_CUDA)
    mill_cuda_probe_bus(plan.gpu_bus, sizeof plan.gpu_bus);
  MILL_CHECK(mill_board_open(call->mpi, &plan, &out->board));
  return mill_result_meet(out->result, mill_board_meet, out->board);
}

/* Return the expected stars/s of this rank, by which its chunks of rows are sized. */
static double expected_rate(const mill_fit_call *call, const mill_fit_setup *setup,
                            const mill_fit_device *device)
{
  const double core =
      mill_usual_core_rate(setup->config.fit.optimizer) * (call->options->fit ? SAMPLE_RATE : 1.0);
  if (device->backend->kind != MILL_BACKEND_CPU)
    return mill_usual_gpu_rate() * core / mill_usual_core_rate(MILL_OPT_HYBRID);
  const double rate = device->n_thread * core;
  /* beside GPUs, a CPU rank gets smaller chunks, so that GPUs wait less for its last chunk */
  return device->both[0] ? 0.25 * rate : rate;
}

/* Group the rows into chunks; ranks draw chunks as they become free. */
static int open_work(const mill_fit_call *call, const mill_fit_setup *setup,
                     const mill_inputs *inputs, const mill_fit_device *device, mill_fit_output *out)
{
  const mill_work_plan plan = {
      .inputs = inputs,
      .result = out->result,
      .n_row_limit = call->observer ? call->observer->n_row_limit : 0,
      .rate = expected_rate(call, setup, device),
      .n_held = mill_fit_held_rows(device),
      .n_ahead = mill_reader_rows_ahead(device->n_reader),
  };
  mill_work_stats stats;
  MILL_CHECK(mill_work_open(call->mpi, &plan, &out->work));
  mill_work_get_stats(out->work, &stats);
  if (call->mpi->rank == 0 && call->mpi->size > 1)
    mill_log_debug("%lld rows are grouped into %lld chunks, the smallest of %.0f rows",
                   (long long)stats.sum.n_row, (long long)stats.sum.n_chunk, stats.sum.least_cost);
  return MILL_OK;
}

#define FIT_AGAIN "; --overwrite fits all rows again"

int mill_fit_open_output(const mill_fit_call *call, const mill_fit_setup *setup,
                         mill_inputs *inputs, const mill_fit_device *device, mill_fit_output *out)
{
  const char *models = call->options->models, *output = call->options->output;
  const mill_result_peek *was = &out->existing.peek; /* zero except on rank 0, which warns */
  MILL_CHECK(open_result(call, setup, inputs, device, out));
  if (out->outcome == MILL_OPEN_CONTINUE && !models && !was->unmodelled &&
      was->n_status[MILL_STATUS_FITTED] > 0)
    mill_log_warning("%s was begun with --models: give --models, or new rows lack models", output);
  if (out->outcome == MILL_OPEN_FINISHED && models && call->mpi->rank == 0) {
    if (was->unmodelled)
      mill_log_warning("%s has rows that were fitted without --models" FIT_AGAIN, output);
    else if (access(models, F_OK) != 0)
      mill_log_warning("%s is gone, or has another name than in the finished fit" FIT_AGAIN,
                       models);
  }
  if (out->outcome != MILL_OPEN_CONTINUE)
    memset(&out->existing, 0, sizeof out->existing); /* its rows do not count as done */
  mill_inputs_drop_index(inputs);
  return MILL_OK;
}

/* Open the writer.  The caller clears the writer, also after a failure. */
static int open_star(const mill_library *lib, const mill_inputs *inputs, mill_result_file *result,
                     mill_star_output *output)
{
  *output = (mill_star_output){.lib = lib, .inputs = inputs, .result = result};
  for (int a = 0; a < MILL_MAX_ARM; a++)
    output->n_pix = inputs->n_pix[a] > output->n_pix ? inputs->n_pix[a] : output->n_pix;
  MILL_CHECK(MILL_ALLOC(output->n_pix, &output->flux));
  return MILL_ALLOC(output->n_pix, &output->wave);
}

int mill_fit_open_work(const mill_fit_task *t)
{
  if (t->call->options->models) /* first: mill_result_close must know both new files */
    MILL_CHECK(open_models(t->call, t->setup, t->inputs, t->out));
  MILL_CHECK(mill_mpi_agree(t->call->mpi,
                            open_star(&t->setup->lib, t->inputs, t->out->result, &t->out->star)));
  MILL_CHECK(open_board(t->call, t->setup, t->inputs, t->device, t->out));
  return open_work(t->call, t->setup, t->inputs, t->device, t->out);
}

int mill_fit_close_output(const mill_fit_call *call, mill_fit_output *out, int err, int *is_settled)
{
  mill_result_summary *summary = &out->summary;
  const int closed = mill_result_close(out->result, summary);
  out->result = NULL;
  err = mill_mpi_agree(call->mpi, mill_error_of(err, closed));
  if (err != MILL_ERR_MPI) /* after an MPI error no collective call is safe */
    err = mill_error_of(err, mill_work_settle(out->work));
  if (err != MILL_ERR_MPI) {
    const int settled = mill_board_settle(out->board, call->mpi);
    *is_settled = settled == MILL_OK;
    err = mill_error_of(err, settled);
  }
  return err;
}

/* Close the status file.  If is_settled (mill_fit_close_output), first write to it why the run
 * ended.  A failure of mill_board_free must not replace the run's failure, which is kept here. */
void mill_fit_end_board(mill_fit_output *out, int code, int exit_status, int is_settled)
{
  mill_error_kept kept;
  mill_error_save(code, &kept);
  const mill_board_end end = {
      .code = code,
      .exit_status = code == MILL_OK ? exit_status : mill_error_exit_status(code),
      .message = kept.message,
      .summary = code == MILL_OK ? &out->summary : NULL,
  };
  mill_board_free(out->board, is_settled ? &end : NULL);
  out->board = NULL;
  mill_error_restore(&kept);
}

/* ---- a finished star ---- */

/* Write a row of the models' file: the models of segment i and of the next ones of the same arm and
 * exposure.  *end gets the index after the last of them.  The rest of the row is NaN. */
static int put_model(mill_star_output *o, const mill_star *star, int i, int *end)
{
  int n = 0;
  const mill_raw_segment *first = &star->segment[i];
  const int row_pix = o->inputs->n_pix[first->arm], has_own = !o->inputs->wave_aa[first->arm];
  for (; i < star->n_segment && star->segment[i].exposure == first->exposure &&
         star->segment[i].arm == first->arm;
       i++) {
    const size_t n_pix = (size_t)star->segment[i].n_pix;
    if (n + star->segment[i].n_pix > row_pix)
      return MILL_BUG("row %lld: its model in arm %s has more pixels than the models file (%d)",
                      (long long)star->row, o->lib->arm[first->arm].name, row_pix);
    memcpy(o->flux + n, star->model[i].flux, n_pix * sizeof *o->flux);
    if (has_own)
      memcpy(o->wave + n, star->model[i].wave_aa, n_pix * sizeof *o->wave);
    n += star->segment[i].n_pix;
  }
  for (; n < row_pix; n++) {
    o->flux[n] = NAN;
    o->wave[n] = NAN;
  }
  *end = i;
  return mill_result_put_model(o->result, first->arm, star->first_exposure + first->exposure,
                               o->flux, has_own ? o->wave : NULL, row_pix);
}

/* Write the epoch results of all exposures of a fitted star. */
static int put_epochs(mill_star_output *o, const mill_star *star)
{
  MILL_CHECK(MILL_GROW(&o->epoch, &o->epoch_room, star->n_exposure));
  for (int i = 0; i < star->n_exposure; i++)
    o->epoch[i] = (mill_epoch_result){NAN, NAN, NAN, NAN, -1e9, -1, MILL_EPOCH_NO_DATA};
  for (int i = 0; i < star->n_segment; i++)
    o->epoch[star->segment[i].exposure] = star->result->epoch[star->segment[i].epoch];
  return mill_result_put_epochs(o->result, star->first_exposure, o->epoch, star->n_exposure,
                                &star->result->epoch_crc);
}

int mill_star_output_put(mill_star_output *o, mill_star *star)
{
  /* models first: a row marked done must have its models */
  for (int i = 0; star->model && i < star->n_segment;)
    MILL_CHECK(put_model(o, star, i, &i));
  if (star->result->epoch)
    MILL_CHECK(put_epochs(o, star));
  return mill_result_put(o->result, star->result);
}

void mill_star_output_clear(mill_star_output *o)
{
  MILL_FREE(o->flux, o->wave, o->epoch);
  memset(o, 0, sizeof *o);
}
