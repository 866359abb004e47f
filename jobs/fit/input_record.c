/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/hdf5/hdf5_util.h"
#include "io/catalog/catalog_list.h"
#include "io/catalog/input_table.h"
#include "io/result/result_inputs.h"
#include "jobs/fit/steps.h"
#include "kernels/base/memory.h"
#include "src/system/status_process.h"

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

/* Append a line for each input to the table, unless an earlier run has recorded all inputs. */
static int record(const mill_fit_call *call, const mill_inputs *inputs, const mill_fit_output *out)
{
  const char *table_path = call->options->input_table;
  char result[PATH_MAX], now[MILL_UTC_SIZE];
  MILL_OWNED mill_input_entry *entry = NULL;
  MILL_AT_END(mill_input_table_free_at) mill_input_table *table = NULL;
  MILL_AT_END(mill_path_list_clear) mill_path_list path = {0};
  char absolute[PATH_MAX];
  MILL_OWNED char(*reason)[MAX_REASON] = NULL;
  MILL_CHECK(MILL_ALLOC(inputs->n_file, &entry));
  MILL_CHECK(mill_alloc_bytes((size_t)inputs->n_file, MAX_REASON, (void **)&reason));
  if (!realpath(call->options->output, result))
    return MILL_ERROR(MILL_ERR_OUTPUT, "--input-table: %s: %s", call->options->output,
                      strerror(errno));
  if (!mill_input_table_takes(result))
    return MILL_ERROR(MILL_ERR_OUTPUT, "--input-table: rename %s, whose path has a tab or newline",
                      call->options->output);
  for (int i = 0; i < inputs->n_file; i++) {
    MILL_CHECK(mill_input_absolute(inputs->file[i].path, absolute));
    MILL_CHECK(mill_path_list_add(&path, absolute));
    entry[i].path = path.path[i];
  }
  if (out->outcome == MILL_OPEN_FINISHED) {
    MILL_CHECK(mill_input_table_read(table_path, &table));
    int n_known = 0;
    for (int i = 0; i < inputs->n_file; i++)
      n_known += mill_input_table_has(table, result, entry[i].path);
    if (n_known == inputs->n_file)
      return MILL_OK;
  }
  mill_utc_text(mill_unix_s(), now);
  MILL_CHECK(count_rows(inputs, result, entry, reason));
  for (int i = 0; i < inputs->n_file; i++) {
    const mill_input_file *input = &inputs->file[i];
    entry[i].size = input->size;
    entry[i].mtime = input->mtime;
    entry[i].redrock_size = input->redrock_size;
    entry[i].redrock_mtime = input->redrock_mtime;
    entry[i].result = result;
    memcpy(entry[i].settings, inputs->settings_digest, sizeof entry[i].settings);
    snprintf(entry[i].time, sizeof entry[i].time, "%s", now);
  }
  return mill_input_table_append(table_path, entry, (size_t)inputs->n_file);
}

int mill_fit_record_inputs(const mill_fit_task *task)
{
  const mill_fit_call *call = task->call;
  const mill_result_summary *summary = &task->out->summary;
  if (!call->options->input_table || summary->n_status[MILL_STATUS_NOT_DONE] > 0 ||
      summary->old == MILL_OLD_KEPT)
    return MILL_OK;
  return mill_mpi_agree(call->mpi,
                        call->mpi->rank == 0 ? record(call, task->inputs, task->out) : MILL_OK);
}
