#include "jobs/fit/fit_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/result/columns.h"
#include "io/result/result_file.h"
#include "io/stars/reader.h"
#include "jobs/fit/sampled_fit.h"
#include "kernels/base/error.h"
#include "kernels/gpu.h"
#include "src/config/config.h"
#include "src/ranks/usual_rate.h"
#include "src/system/log.h"

static const double SAMPLE_RATE = 1.0 / 300;

static int open_result(mill_fit_job *job, int *outcome)
{
  int err = MILL_OK;
  char *identity = NULL, *config = NULL;
  size_t config_size = 0;
  FILE *text = open_memstream(&config, &config_size);
  if (!text)
    err = MILL_ERROR(MILL_ERR_MEMORY, "no memory for the configuration");
  if (err == MILL_OK)
    err = mill_config_print(&job->setup.config, text);
  if (text && fclose(text) != 0 && err == MILL_OK)
    err = MILL_ERROR(MILL_ERR_MEMORY, "no memory for the configuration");
  if (err == MILL_OK)
    err = mill_config_identity(&job->setup.config, &identity);
  if (err == MILL_OK && job->options.fit)
    err = mill_sampled_extend(&job->options, &identity);
  MILL_TRY(mill_mpi_agree(&job->mpi, err));

  const mill_run_info info = {
      .lib = &job->setup.lib,
      .identity = identity,
      .config = config,
      .command = job->command,
      .device = job->device.name,
      .cpu = job->device.both[0] ? job->device.cpu : NULL,
      .gpu = job->device.both[0] ? job->device.gpu : NULL,
      .backend = job->device.has_gpu ? MILL_ROW_BACKEND_GPU : MILL_ROW_BACKEND_CPU,
      .n_thread = job->device.n_thread,
      .velocity_offsets = job->setup.config.fit.velocity_offsets,
      .posteriors = job->options.fit != NULL,
      .n_draw = job->options.sample.n_draw,
      .n_row = job->inputs.n_row,
      .n_file = job->inputs.n_file,
      .file = job->inputs.file,
      .file_start = job->inputs.file_start,
      .file_end = job->inputs.file_end,
      .index = job->inputs.index,
      .load = mill_inputs_load,
      .load_context = &job->inputs,
      .write_interval_s = job->setup.config.write_interval_s,
      .models = job->options.models,
  };
  MILL_TRY(mill_result_open(job->options.output, job->options.overwrite, job->options.retry_failed,
                            &info, job->mpi.comm, &job->out.result, outcome));
done:
  free(config);
  free(identity);
  return err;
}

/* The models' file comes first: rows without their models are not done. */
static int open_models(mill_fit_job *job)
{
  const mill_inputs *inputs = &job->inputs;
  const double *wave_aa[MILL_MAX_ARM];
  for (int a = 0; a < MILL_MAX_ARM; a++) {
    wave_aa[a] = inputs->wave_aa[a];
    if (inputs->n_pix[a] > 0 && !wave_aa[a] && job->mpi.rank == 0)
      mill_log_info("models: wavelengths differ in arm %s, so each row has its own",
                    job->setup.lib.arm[a].name);
  }
  MILL_CHECK(mill_mpi_agree(
      &job->mpi, mill_model_rows_open(&job->out.models, &job->setup.lib, inputs, job->out.result)));
  return mill_mpi_agree(&job->mpi,
                        mill_result_open_models(job->out.result, job->options.models,
                                                job->options.overwrite, wave_aa, inputs->n_pix));
}

static int open_board(mill_fit_job *job)
{
  mill_board_plan plan = {
      .path = job->observer ? NULL : job->setup.status_path,
      .interval_s = job->setup.config.write_interval_s,
      .output = job->options.output,
      .models = job->options.models,
      .command = job->command,
      .backend = job->device.name,
      .rank_backend = job->device.backend->name,
      .n_thread = job->device.n_thread,
      .n_slot = job->device.n_slot,
      .n_row = job->inputs.n_row,
      .n_file = job->inputs.n_file,
      .n_unreadable = job->inputs.n_unreadable,
      .file = job->inputs.file,
  };
  int64_t n_base = 0;
  for (int s = MILL_STATUS_FITTED; s < MILL_N_STATUS; s++)
    if (s == MILL_STATUS_FITTED || !job->options.retry_failed)
      n_base += plan.base[s] = job->out.existing.peek.n_status[s];
  /* rows that were not whole are fitted again, so they are not done */
  plan.base[MILL_STATUS_FITTED] -= n_base - mill_result_n_done(job->out.result);
  if (job->device.backend->kind == MILL_BACKEND_CUDA)
    mill_cuda_probe_bus(plan.gpu_bus, sizeof plan.gpu_bus);
  MILL_CHECK(mill_board_open(&job->mpi, &plan, &job->out.board));
  return mill_result_meet(job->out.result, mill_board_meet, job->out.board);
}

/* Stars a second that this rank may be expected to fit, for sizing its work. */
static double expected_rate(const mill_fit_job *job)
{
  /* a posterior takes some thousand evaluations where a fit takes some ten */
  const double core = mill_usual_core_rate(job->setup.config.fit.optimizer) *
                      (job->options.fit ? SAMPLE_RATE : 1.0);
  if (job->device.backend->kind != MILL_BACKEND_CPU)
    return mill_usual_gpu_rate() * core / mill_usual_core_rate(MILL_OPT_HYBRID);
  const double rate = job->device.n_thread * core;
  /* Beside a GPU a slow rank must not hold the end of the run, and how much slower it is differs
   * between machines: with less work at a time, four times as much on top is still in time. */
  return job->device.both[0] ? 0.25 * rate : rate;
}

/* Group the rows into chunks, which the ranks draw. */
static int open_work(mill_fit_job *job)
{
  const mill_work_plan plan = {
      .inputs = &job->inputs,
      .result = job->out.result,
      .n_row_limit = job->observer ? job->observer->n_row_limit : 0,
      .rate = expected_rate(job),
      .n_held = mill_fit_held_rows(job),
      .n_ahead = mill_reader_rows_ahead(job->device.n_reader),
  };
  mill_work_stats stats;
  MILL_CHECK(mill_work_open(&job->mpi, &plan, &job->work));
  mill_work_get_stats(job->work, &stats);
  if (job->mpi.rank == 0 && job->mpi.size > 1)
    mill_log_debug("%lld rows are grouped into %lld chunks, the least of %.0f rows",
                   (long long)stats.sum.n_row, (long long)stats.sum.n_chunk, stats.sum.least_cost);
  return MILL_OK;
}

int mill_fit_open_output(mill_fit_job *job)
{
  MILL_CHECK(open_result(job, &job->out.outcome));
  if (job->out.outcome != MILL_OPEN_CONTINUE)
    memset(&job->out.existing, 0, sizeof job->out.existing);
  mill_inputs_drop_index(&job->inputs);
  if (job->out.outcome == MILL_OPEN_FINISHED && job->mpi.rank == 0 && job->options.models &&
      access(job->options.models, F_OK) != 0)
    mill_log_warning("%s is not written: %s was finished without models; --overwrite fits again",
                     job->options.models, job->options.output);
  return MILL_OK;
}

int mill_fit_open_work(mill_fit_job *job)
{
  if (job->options.models)
    MILL_CHECK(open_models(job));
  MILL_CHECK(open_board(job));
  return open_work(job);
}

int mill_fit_close_output(mill_fit_job *job, int err, int *is_settled)
{
  mill_result_summary *summary = &job->out.summary;
  const double start_s = mill_thread_cpu_s();
  const int closed = mill_result_close(job->out.result, summary);
  job->meters.close_s = mill_thread_cpu_s() - start_s;
  job->meters.io_s = summary->io_cpu_s;
  job->out.result = NULL;
  err = mill_mpi_agree(&job->mpi, err == MILL_OK ? closed : err);
  if (err != MILL_ERR_MPI) {
    const int settled = mill_work_settle(job->work);
    err = err == MILL_OK ? settled : err;
  }
  if (err != MILL_ERR_MPI) {
    const int settled = mill_board_settle(job->out.board, &job->mpi);
    *is_settled = settled == MILL_OK;
    err = err == MILL_OK ? settled : err;
  }
  return err;
}

void mill_fit_end_board(mill_fit_job *job, int code, int exit_status, int is_settled)
{
  mill_error_kept kept;
  mill_error_save(code, &kept);
  const mill_board_end end = {
      .code = code,
      .exit_status = code == MILL_OK ? exit_status : mill_error_exit_status(code),
      .message = kept.message,
      .summary = code == MILL_OK ? &job->out.summary : NULL,
  };
  mill_board_free(job->out.board, is_settled ? &end : NULL);
  job->out.board = NULL;
  mill_error_restore(&kept);
}
