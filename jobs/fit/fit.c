#include "jobs/fit/fit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/files/lock_file.h"
#include "io/hdf5/parallel_hdf5.h"
#include "jobs/fit/fit_job.h"
#include "jobs/fit/fit_same.h"
#include "jobs/fit/plan.h"
#include "kernels/base/error.h"
#include "src/run/command_text.h"
#include "src/system/log.h"
#include "src/system/stop_signal.h"

enum { EXIT_INCOMPLETE = 3, EXIT_STOPPED = 75 };

/* CPU seconds of the process since *last, which becomes now. */
static double lap_s(double *last)
{
  const double now = mill_process_cpu_s(), lap = now - *last;
  *last = now;
  return lap;
}

static int print_plan(mill_fit_job *job, int *exit_status)
{
  const mill_plan plan = {.options = &job->options,
                          .config = &job->setup.config,
                          .lib = &job->setup.lib,
                          .inputs = &job->inputs,
                          .existing = &job->out.existing,
                          .running = job->setup.running,
                          .backend = job->device.backend,
                          .n_thread = job->device.n_thread,
                          .n_held = mill_fit_held_rows(job)};
  *exit_status = job->inputs.n_unreadable > 0 ? EXIT_INCOMPLETE : 0;
  return mill_plan_print(&job->mpi, &plan, stdout);
}

static int exit_status_of(const mill_fit_job *job)
{
  const int64_t *n_status = job->out.summary.n_status;
  const int is_limited = job->observer && job->observer->n_row_limit > 0;
  if (n_status[MILL_STATUS_NOT_DONE] > 0 && !is_limited)
    return EXIT_STOPPED;
  /* a result of which nothing can be used must not pass for one */
  if (n_status[MILL_STATUS_FITTED] == 0 &&
      (job->inputs.n_row > 0 || job->out.summary.old == MILL_OLD_KEPT))
    return EXIT_INCOMPLETE;
  return job->inputs.n_unreadable > 0 || n_status[MILL_STATUS_UNREADABLE] > 0 ||
                 job->out.products.n_failed > 0
             ? EXIT_INCOMPLETE
             : 0;
}

/* Rank 0: what is there of this result, if it is to be continued. */
static void find_existing(mill_fit_job *job)
{
  int is_new = 0;
  char begun[MILL_MAX_PATH];
  const char *path = job->options.output;
  if (job->options.overwrite &&
      mill_result_begun(path, begun, sizeof begun - 128, &is_new) == MILL_OK)
    path = begun;
  mill_result_find(path, &job->out.existing);
  job->out.existing.is_new = is_new;
}

static int run(mill_fit_job *job, int *exit_status)
{
  mill_input_request request;
  int err = MILL_OK, is_settled = 0;
  mill_fit_setup *setup = &job->setup;
  double cpu_s = mill_process_cpu_s();
  MILL_TRY(mill_fit_set_up(job));
  MILL_TRY(mill_fit_agree_to_go_on(job, "at the start"));
  job->meters.library_s = lap_s(&cpu_s);
  const double start_s = mill_wall_s();
  mill_fit_options_inputs(&job->options, &request);
  MILL_TRY(mill_inputs_index(&job->mpi, &request, &setup->config, &setup->lib, setup->arm_wanted,
                             &setup->roles, &job->inputs));
  job->meters.index_s = lap_s(&cpu_s);
  MILL_TRY(mill_fit_agree_to_go_on(job, "while indexing"));
  if (job->inputs.n_file == 0) {
    if (job->mpi.rank == 0 && !job->options.quiet)
      printf("inputs       all %d are done: nothing to fit\n", job->inputs.n_skipped);
    goto done;
  }
  MILL_TRY(mill_mpi_agree(&job->mpi, job->mpi.rank == 0 ? mill_fit_check_products(job) : MILL_OK));
  if (job->mpi.rank == 0) /* opening it says what is wrong with it */
    find_existing(job);
  MILL_TRY(mill_fit_settle_device(job));
  MILL_TRY(mill_fit_settle_rows(job));
  if (job->options.plan) {
    MILL_TRY(print_plan(job, exit_status));
    goto done;
  }
  MILL_TRY(mill_fit_open_output(job));
  job->meters.create_s = lap_s(&cpu_s);
  if (job->out.outcome != MILL_OPEN_FINISHED) {
    err = mill_fit_open_work(job);
    if (err == MILL_OK)
      err = mill_fit_share(job);
  }
  MILL_TRY(mill_fit_close_output(job, err, &is_settled));
  const double wall_s = mill_wall_s() - start_s;
  MILL_TRY(mill_fit_write_products(job));
  MILL_TRY(mill_fit_record_inputs(job));
  MILL_TRY(mill_fit_print_summary(job, wall_s));
  *exit_status = exit_status_of(job);
done:
  err = mill_fit_settle_stop(job, err);
  mill_fit_end_board(job, err, *exit_status, is_settled);
  return err;
}

static int run_or_print(mill_fit_job *job, int *exit_status)
{
  int err = MILL_OK;
  MILL_TRY(mill_mpi_rank0_first(&job->mpi, mill_fit_load_config, job));
  if (!job->options.print_config)
    return run(job, exit_status);
  if (job->mpi.rank == 0)
    err = mill_config_print(&job->setup.config, stdout);
  err = mill_mpi_agree(&job->mpi, err);
done:
  return err;
}

int mill_fit_run(mill_mpi *mpi, const mill_fit_options *options, const char *command,
                 mill_fit_observer *observer, int *exit_status)
{
  int err = MILL_OK;
  const double start_cpu_s = mill_process_cpu_s();
  mill_fit_job *job = NULL;
  MILL_TRY(mill_mpi_agree(mpi, MILL_ALLOC(1, &job)));
  job->mpi = *mpi;
  job->options = *options;
  job->command = command;
  job->observer = observer;
  job->start_wall_s = mill_wall_s();
  mill_config_default(&job->setup.config);
  err = run_or_print(job, exit_status);
  mill_work_free(job->work);
  mill_log_close();
  mill_inputs_clear(&job->inputs);
  mill_start_table_free(job->setup.start);
  mill_library_clear(&job->setup.lib);
  mill_config_clear(&job->setup.config);
  mill_model_rows_clear(&job->out.models);
  *mpi = job->mpi;
  job->meters.cpu_s = mill_process_cpu_s() - start_cpu_s;
  job->meters.wall_s = mill_wall_s() - job->start_wall_s;
  if (observer)
    observer->meters = job->meters;
done:
  mill_free(job);
  return err;
}

static int start(mill_mpi *mpi, int argc, char **argv, const mill_fit_command_line *line,
                 mill_fit_options *options, int *exit_status)
{
  int err = MILL_OK;
  char *command = NULL;
  err = mill_command_text(argc, argv, &command);
  if (err == MILL_OK)
    err = line->parse(argc, argv, options);
  MILL_TRY(mill_mpi_agree(mpi, err));
  MILL_TRY(mill_fit_same_options(mpi, line->help->table, options));
  if (mill_option_helped(options->help, mpi->rank, line->help->table, line->help->usual))
    goto done;
  MILL_TRY(mill_fit_run(mpi, options, command, NULL, exit_status));
done:
  free(command);
  return err;
}

int mill_fit_main(int argc, char **argv, const mill_fit_command_line *line)
{
  int exit_status = 0;
  mill_mpi mpi;
  mill_fit_options options;
  memset(&options, 0, sizeof options);
  /* signals that come while MPI and the library are loaded stop in good order as well */
  int err = mill_stop_signal_catch();
  mpi = (mill_mpi){.comm = MPI_COMM_NULL, .stop_comm = MPI_COMM_NULL};
  if (err == MILL_OK)
    err = mill_mpi_start(&mpi);
  if (err == MILL_OK)
    err = start(&mpi, argc, argv, line, &options, &exit_status);
  if (err != MILL_OK)
    exit_status = mill_mpi_tell(&mpi, line->name, err);
  mill_fit_options_clear(&options);
  mill_ph5_leave_if_broken(&mpi, err, exit_status);
  mill_mpi_end(&mpi);
  return exit_status;
}

int mill_job_fit(int argc, char **argv)
{
  static const mill_fit_command_line line = {"starmill fit", mill_fit_options_parse,
                                             &mill_fit_help};
  return mill_fit_main(argc, argv, &line);
}
