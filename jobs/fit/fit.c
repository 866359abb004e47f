/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/fit/fit.h"

#include <errno.h>
#include <stdlib.h>

#include "io/hdf5/output_file.h"
#include "io/catalog/catalog_list.h"
#include "io/catalog/sampled_fit.h"
#include "io/result/result_inputs.h"
#include "jobs/fit/steps.h"
#include "jobs/jobs.h"
#include "src/config/text.h"
#include "src/system/log.h"
#include "src/system/status_process.h"
#include "src/system/stop_signal.h"

enum { EXIT_INCOMPLETE = 3, EXIT_STOPPED = 75 };

/* Return the CPU seconds of the process since *last, and set *last to now. */
static double lap_s(double *last)
{
  const double now = mill_process_cpu_s(), lap = now - *last;
  *last = now;
  return lap;
}

/* Data that the steps of a fit make and use. */
typedef struct fit_parts {
  mill_fit_setup setup;
  mill_inputs inputs;
  mill_fit_device device;
  mill_fit_output out;
  mill_fit_tally tally;
} fit_parts;

static int exit_status_of(const mill_inputs *inputs, const mill_fit_output *out, int is_limited)
{
  const int64_t *n_status = out->summary.n_status;
  if (n_status[MILL_STATUS_NOT_DONE] > 0 && !is_limited)
    return EXIT_STOPPED;
  /* a result without a fitted row must not look complete */
  const int is_void = n_status[MILL_STATUS_FITTED] == 0;
  const int has_unreadable = inputs->n_unreadable > 0 || n_status[MILL_STATUS_UNREADABLE] > 0;
  const int has_other = n_status[MILL_STATUS_OTHER_SPECTRUM] > 0;
  return is_void || has_unreadable || has_other ? EXIT_INCOMPLETE : 0;
}

/* Rank 0: find the result to continue: OUT.h5, or with --overwrite an earlier run's OUT.h5.new. */
static void find_existing(const mill_fit_options *options, mill_existing *existing)
{
  int is_new = 0;
  char begun[MILL_MAX_PATH];
  const char *path = options->output;
  if (options->overwrite && mill_result_begun(path, begun, sizeof begun - 128, &is_new) == MILL_OK)
    path = begun;
  mill_result_find(path, existing);
  existing->is_new = is_new;
}

/* Before the first star's fit: fail with MILL_ERR_STOPPED if there is a reason to stop.
 * step: words for the message that say when, such as "at the start". */
static int agree_to_go_on(const mill_fit_call *call, const mill_fit_setup *setup, const char *step)
{
  int err = MILL_OK;
  char why[MILL_STATUS_PATH + 64];
  if (mill_stop_reason() != MILL_STOP_NONE) {
    mill_stop_watch_text(setup->stop, why, sizeof why);
    err = MILL_ERROR(MILL_ERR_STOPPED,
                     "stopped %s (%s): nothing was fitted; give the same command again", step, why);
  }
  return mill_mpi_agree(call->mpi, err);
}

/* End the watching thread and receive stop requests still under way, also after a failure err:
 * MPI must not end before they have arrived. */
static int settle_stop(const mill_fit_call *call, mill_fit_setup *setup, int err)
{
  mill_error_kept kept;
  int settled = MILL_OK;
  mill_error_save(err, &kept);
  mill_stop_watch_end(setup->stop);
  setup->stop = NULL;
  if (err != MILL_ERR_MPI)
    settled = mill_mpi_stop_settle(call->mpi);
  return err == MILL_OK ? settled : mill_error_restore(&kept);
}

/* Index the rows of the inputs.  `starmill sample` checks that its fit had the same inputs. */
static int index_inputs(const mill_fit_call *call, const mill_fit_setup *setup,
                        const mill_existing *existing, mill_inputs *inputs)
{
  mill_input_request request;
  mill_fit_options_inputs(call->options, &request);
  inputs->tables = (mill_star_tables){setup->start, setup->priors};
  if (existing->found && !existing->peek.finished && mill_fit_begun_on(call, existing))
    inputs->begun = existing->path; /* the run continues it: its unreadable files stay so */
  MILL_CHECK(mill_inputs_index(call->mpi, &request, &setup->config, &setup->lib, setup->arm_wanted,
                               &setup->roles, inputs));
  MILL_CHECK(agree_to_go_on(call, setup, "while indexing"));
  int err = MILL_OK;
  if (call->mpi->rank == 0 && call->options->fit)
    err = mill_sampled_check_inputs(call->options->fit, inputs);
  return mill_mpi_agree(call->mpi, err);
}

/* Fit the remaining rows and close the result. */
static int fit_rows(const mill_fit_task *t, int *is_settled)
{
  int err = MILL_OK;
  if (t->out->outcome != MILL_OPEN_FINISHED) {
    err = mill_fit_open_work(t);
    MILL_STEP(mill_fit_share(t));
  }
  const double cpu_s = mill_thread_cpu_s();
  err = mill_fit_close_output(t->call, t->out, err, is_settled);
  t->tally->meters.close_s = mill_thread_cpu_s() - cpu_s;
  t->tally->meters.io_s = t->out->summary.io_cpu_s;
  return err;
}

/* ---- the table of inputs ---- */

enum { MAX_REASON = 64 };

/* Count the fitted and unreadable rows of each input, from the result's column STATUS. */
static int count_rows(const mill_inputs *inputs, const char *result, mill_input_entry *entry,
                      char (*reason)[MAX_REASON])
{
  MILL_OWNED int32_t *status = NULL;
  const size_t n_row = (size_t)inputs->n_row;
  MILL_AT_END(mill_h5_close) mill_h5_file file = {.id = H5I_INVALID_HID};
  MILL_CHECK(MILL_ALLOC(inputs->n_row, &status));
  MILL_CHECK(mill_h5_open(result, MILL_ERR_OUTPUT, &file));
  MILL_CHECK(mill_h5_read(&file, "fits/STATUS", H5T_NATIVE_INT32, 1, &n_row, status));
  for (int i = 0; i < inputs->n_file; i++) {
    const mill_input_file *input = &inputs->file[i];
    int64_t n_unreadable = 0;
    for (int64_t k = input->row_start; k < input->row_start + input->n_row; k++) {
      entry[i].n_fitted += status[k] == MILL_STATUS_FITTED;
      n_unreadable += status[k] == MILL_STATUS_UNREADABLE;
    }
    entry[i].n_row = input->n_row;
    entry[i].is_done = !input->error[0] && n_unreadable == 0;
    if (n_unreadable > 0)
      snprintf(reason[i], MAX_REASON, "%lld of its %lld rows could not be read",
               (long long)n_unreadable, (long long)input->n_row);
    entry[i].reason = input->error[0] ? input->error : reason[i];
  }
  return MILL_OK;
}

/* Append a line for each input to the table.  After a run that found the result finished, append
 * only if a line differs from the input's line in the table. */
static int record(const mill_fit_call *call, const mill_inputs *inputs, const mill_fit_output *out)
{
  const char *table_path = call->options->input_table;
  int n_known = 0;
  char result[PATH_MAX], absolute[PATH_MAX], now[MILL_UTC_SIZE];
  MILL_OWNED mill_input_entry *entry = NULL;
  MILL_AT_END(mill_input_table_free_at) mill_input_table *table = NULL;
  MILL_AT_END(mill_path_list_clear) mill_path_list path = {0};
  MILL_OWNED char(*reason)[MAX_REASON] = NULL;
  MILL_CHECK(MILL_ALLOC(inputs->n_file, &entry));
  MILL_CHECK(mill_alloc_bytes((size_t)inputs->n_file, MAX_REASON, (void **)&reason));
  if (!realpath(call->options->output, result))
    return MILL_ERROR(MILL_ERR_OUTPUT, "--input-table: %s: %s", call->options->output,
                      strerror(errno));
  if (!mill_input_table_takes(result))
    return MILL_ERROR(MILL_ERR_OUTPUT, "--input-table: rename %s, whose path has a tab or newline",
                      call->options->output);
  if (out->outcome == MILL_OPEN_FINISHED)
    MILL_CHECK(mill_input_table_read(table_path, &table));
  mill_utc_text(mill_unix_s(), now);
  MILL_CHECK(count_rows(inputs, result, entry, reason));
  for (int i = 0; i < inputs->n_file; i++) {
    const mill_input_file *input = &inputs->file[i];
    MILL_CHECK(mill_input_absolute(input->path, absolute));
    MILL_CHECK(mill_path_list_add(&path, absolute));
    entry[i].path = path.path[i];
    entry[i].size = input->size;
    entry[i].mtime = input->mtime;
    entry[i].redrock_size = input->redrock_size;
    entry[i].redrock_mtime = input->redrock_mtime;
    entry[i].result = result;
    memcpy(entry[i].settings, inputs->settings_digest, sizeof entry[i].settings);
    snprintf(entry[i].time, sizeof entry[i].time, "%s", now);
    const mill_input_entry *known = table ? mill_input_table_find(table, absolute) : NULL;
    n_known += known && strcmp(known->result, result) == 0 && known->is_done == entry[i].is_done &&
               known->n_row == input->n_row && known->n_fitted == entry[i].n_fitted &&
               known->size == input->size && known->mtime == input->mtime &&
               known->redrock_size == input->redrock_size &&
               known->redrock_mtime == input->redrock_mtime &&
               strcmp(known->settings, entry[i].settings) == 0;
  }
  return n_known == inputs->n_file
             ? MILL_OK
             : mill_input_table_append(table_path, entry, (size_t)inputs->n_file);
}

/* If the result is finished, append each input's outcome to the table of inputs (if any). */
static int record_inputs(const mill_fit_task *task)
{
  const mill_fit_call *call = task->call;
  const mill_result_summary *summary = &task->out->summary;
  if (!call->options->input_table || summary->n_status[MILL_STATUS_NOT_DONE] > 0 ||
      summary->old == MILL_OLD_KEPT)
    return MILL_OK;
  return mill_mpi_agree(call->mpi,
                        call->mpi->rank == 0 ? record(call, task->inputs, task->out) : MILL_OK);
}

/* ---- the run ---- */

/* Do all steps of a fit.  After a failure only the last: end the stop watch, write the status. */
static int run(const mill_fit_call *call, fit_parts *p, int *exit_status)
{
  int err = MILL_OK, is_settled = 0;
  const mill_fit_options *options = call->options;
  mill_fit_setup *setup = &p->setup;
  mill_inputs *inputs = &p->inputs;
  mill_fit_output *out = &p->out;
  mill_fit_meters *meters = &p->tally.meters;
  const mill_fit_task task = {call, setup, inputs, &p->device, out, &p->tally};
  double cpu_s = mill_process_cpu_s();
  MILL_TRY(mill_fit_set_up(call, setup));
  MILL_TRY(mill_fit_find_device(call, setup, &p->device));
  MILL_TRY(agree_to_go_on(call, setup, "at the start"));
  meters->library_s = lap_s(&cpu_s);
  const double start_s = mill_wall_s();
  if (call->mpi->rank == 0) /* opening the result reports its problems */
    find_existing(options, &out->existing);
  MILL_TRY(index_inputs(call, setup, &out->existing, inputs));
  meters->index_s = lap_s(&cpu_s);
  if (inputs->n_file == 0) {
    if (call->mpi->rank == 0 && (options->plan || !options->quiet))
      printf("inputs       all %d are done: nothing to fit\n", inputs->n_skipped);
    goto done;
  }
  MILL_TRY(mill_fit_settle_device(call, setup, &out->existing, inputs->n_row, &p->device));
  MILL_TRY(mill_fit_settle_rows(call, setup, inputs));
  if (options->plan) {
    *exit_status = inputs->n_unreadable > 0 ? EXIT_INCOMPLETE : 0;
    MILL_TRY(mill_fit_print_plan(&task));
    goto done;
  }
  MILL_TRY(mill_fit_open_output(call, setup, inputs, &p->device, out));
  meters->create_s = lap_s(&cpu_s);
  MILL_TRY(fit_rows(&task, &is_settled));
  const double wall_s = mill_wall_s() - start_s;
  MILL_TRY(record_inputs(&task));
  MILL_TRY(mill_fit_print_summary(&task, wall_s));
  *exit_status = exit_status_of(inputs, out, call->observer && call->observer->n_row_limit > 0);
done:
  err = settle_stop(call, setup, err);
  mill_fit_end_board(out, err, *exit_status, is_settled);
  return err;
}

static int run_or_print(const mill_fit_call *call, fit_parts *p, int *exit_status)
{
  MILL_CHECK(mill_fit_load_config(call, &p->setup));
  if (!call->options->print_config)
    return run(call, p, exit_status);
  return mill_mpi_agree(
      call->mpi, call->mpi->rank == 0 ? mill_config_print(&p->setup.config, stdout) : MILL_OK);
}

int mill_fit_run(mill_mpi *mpi, const mill_fit_options *options, const char *command,
                 mill_fit_observer *observer, int *exit_status)
{
  const double start_cpu_s = mill_process_cpu_s();
  const mill_fit_call call = {mpi, options, command, observer, mill_wall_s()};
  MILL_OWNED fit_parts *p = NULL;
  MILL_CHECK(mill_mpi_agree(mpi, MILL_ALLOC(1, &p)));
  mill_config_default(&p->setup.config);
  const int code = run_or_print(&call, p, exit_status);
  mill_work_free(p->out.work);
  mill_log_close();
  mill_inputs_clear(&p->inputs);
  mill_fit_setup_clear(&p->setup);
  mill_star_output_clear(&p->out.star);
  p->tally.meters.cpu_s = mill_process_cpu_s() - start_cpu_s;
  p->tally.meters.wall_s = mill_wall_s() - call.start_wall_s;
  if (observer)
    observer->meters = p->tally.meters;
  return code;
}

static int start(mill_mpi *mpi, int argc, char **argv, const mill_fit_command_line *line,
                 mill_fit_options *options, int *exit_status)
{
  MILL_OWNED char *command = NULL;
  int code = mill_command_text(argc, argv, &command);
  if (code == MILL_OK)
    code = line->parse(argc, argv, options);
  MILL_CHECK(mill_mpi_agree(mpi, code));
  MILL_CHECK(mill_fit_same_options(mpi, line->help->table, options));
  if (mill_option_helped(options->help, mpi->rank, line->help->table, line->help->usual))
    return MILL_OK;
  return mill_fit_run(mpi, options, command, NULL, exit_status);
}

int mill_fit_main(int argc, char **argv, const mill_fit_command_line *line)
{
  int exit_status = 0;
  mill_mpi mpi = {.comm = MPI_COMM_NULL, .stop_comm = MPI_COMM_NULL};
  mill_fit_options options = {0};
  /* first, so that a signal during start-up also stops in good order */
  int err = mill_stop_signal_catch();
  MILL_STEP(mill_mpi_start(&mpi));
  MILL_STEP(start(&mpi, argc, argv, line, &options, &exit_status));
  if (err != MILL_OK)
    exit_status = mill_mpi_tell(&mpi, line->name, err);
  mill_fit_options_clear(&options);
  mill_output_leave_if_broken(&mpi, err, exit_status);
  mill_mpi_end(&mpi);
  return exit_status;
}

int mill_job_fit(int argc, char **argv)
{
  static const mill_fit_command_line line = {"starmill fit", mill_fit_options_parse,
                                             &mill_fit_help};
  return mill_fit_main(argc, argv, &line);
}
