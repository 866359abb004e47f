/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/existing_result.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/result/result_file_impl.h"
#include "io/result/result_inputs.h"
#include "io/result/result_layout.h"
#include "io/result/stored_rows.h"
#include "src/ranks/same_on_ranks.h"
#include "src/system/file_roles.h"
#include "src/system/log.h"
#include "src/system/regular_file.h"
#include "src/system/watchdog.h"

#define REFUSED(...) MILL_ERROR(MILL_ERR_OUTPUT, __VA_ARGS__)

int mill_result_origin_read(hid_t file, const char *path, mill_result_origin *o)
{
  MILL_CHECK(mill_output_read_text(file, path, "provenance/IDENTITY", &o->identity));
  MILL_CHECK(mill_h5_read_attr_text(MILL_OUTPUT(file, path), "provenance", "LIBRARY_HASH", o->hash,
                                    sizeof o->hash));
  return mill_h5_read_attr_text(MILL_OUTPUT(file, path), "provenance", "DEVICE", o->device,
                                sizeof o->device);
}

/* Fail unless the result was made with this run's settings, library, inputs and device. */
static int check_identity(hid_t file, const char *path, const mill_run_info *info, int finished)
{
  MILL_AT_END(mill_result_origin_clear) mill_result_origin was = {0};
  MILL_AT_END(mill_recorded_inputs_clear) mill_recorded_inputs inputs = {0};
  MILL_CHECK(mill_result_origin_read(file, path, &was));
  MILL_CHECK(mill_recorded_inputs_read(file, path, &inputs));
  /* Check for lost inputs first: the settings list the arms of readable inputs, so may differ. */
  MILL_CHECK(mill_result_inputs_lost(&inputs, path, info, finished));
  const char *then = was.identity, *now = info->identity;
  if (strcmp(then, now) != 0) {
    size_t n_then, n_now;
    mill_first_difference(&then, &n_then, &now, &n_now);
    return REFUSED("%s exists and was made with other settings (\"%.*s\", now \"%.*s\")", path,
                   (int)(n_then < 100 ? n_then : 100), then, (int)(n_now < 100 ? n_now : 100), now);
  }
  if (strcmp(was.hash, info->lib->hash) != 0)
    return REFUSED("%s exists and was made with another library (hash %.12s, now %.12s)", path,
                   was.hash, info->lib->hash);
  MILL_CHECK(mill_result_inputs_check(&inputs, path, info));
  if (strcmp(was.device, info->device) != 0)
    return REFUSED("%s was begun on another device (%s, now %s), whose results differ in the "
                   "last digits: continue it there, with the --backend that it was begun with",
                   path, was.device, info->device);
  return MILL_OK;
}

/* Is there a result of this run at path?  Set *found (enum mill_found), and count the rows of a
 * finished result in summary.  Fail if path holds anything else.  With retry_failed, an input may
 * have changed if none of its rows is fitted. */
static int inspect(const char *path, const mill_run_info *info, int retry_failed,
                   const mill_columns *columns, int *found, mill_result_summary *summary)
{
  mill_damaged_rows damaged = {0};
  char text[MILL_ROWS_TEXT];
  MILL_AT_END(mill_h5_id_close) hid_t file = H5I_INVALID_HID;
  MILL_AT_END(mill_table_close_at) mill_table *fits = NULL;
  uint8_t finished = 0;
  int n_repaired = 0;
  MILL_OWNED mill_input_file *recorded = NULL;
  mill_run_info then = *info; /* this run, but with inputs as the result recorded them */
  *found = MILL_FOUND_NOTHING;
  memset(summary, 0, sizeof *summary);
  MILL_CHECK(mill_output_open_existing(path, &file));
  if (file < 0)
    return MILL_OK;
  MILL_CHECK(mill_result_layout_check(file, path, MILL_ERR_OUTPUT));
  MILL_CHECK(
      mill_output_read_whole(file, path, "provenance/FINISHED", H5T_NATIVE_UINT8, 1, &finished));
  /* joined rows cannot be repaired, since their spectra come from several inputs */
  if (retry_failed && !strstr(info->identity, "join_by_name: true")) {
    MILL_CHECK(mill_result_inputs_repaired(file, path, info, &recorded, &n_repaired));
    then.file = recorded;
  }
  MILL_CHECK(check_identity(file, path, &then, finished));
  MILL_CHECK(mill_table_open(file, -1, path, "fits", info->n_row, "", columns, &fits));
  if (finished)
    MILL_CHECK(mill_stored_rows_count(file, path, info->n_row, 0, info->n_row, summary));
  MILL_CHECK(mill_damaged_rows_find(file, path, info, then.file, finished, &damaged));
  if (damaged.n_catalog > 0)
    return REFUSED("%s: %s; a fit cannot repair /catalog", path,
                   mill_damaged_rows_text(&damaged, text));
  const int is_complete = finished && n_repaired == 0 && damaged.n == 0; /* else fit some rows */
  *found = is_complete ? MILL_FOUND_FINISHED : MILL_FOUND_UNFINISHED;
  return MILL_OK;
}

/* ---- a result of any run ---- */

/* Read the state of the result; *found 0: no file.  MILL_ERR_OUTPUT: a damaged or other file. */
static int look(const char *path, int *found, mill_result_peek *peek)
{
  MILL_AT_END(mill_h5_close) mill_h5_file file = {.id = H5I_INVALID_HID};
  mill_result_summary summary = {0};
  struct stat status;
  const size_t one = 1;
  size_t n_row = 0;
  *found = 0;
  memset(peek, 0, sizeof *peek);
  if (stat(path, &status) != 0 && (errno == ENOENT || errno == ENOTDIR))
    return MILL_OK;
  MILL_CHECK(mill_result_open_stored(path, MILL_ERR_OUTPUT, &file));
  /* read first: the caller needs the device even if the rest is damaged */
  MILL_CHECK(
      mill_h5_read_attr_text(&file, "provenance", "DEVICE", peek->device, sizeof peek->device));
  MILL_CHECK(mill_h5_shape(&file, "fits/STATUS", 1, &n_row));
  peek->n_row = (int64_t)n_row;
  MILL_CHECK(mill_stored_rows_count(file.id, path, peek->n_row, 0, peek->n_row, &summary));
  memcpy(peek->n_status, summary.n_status, sizeof peek->n_status);
  MILL_CHECK(mill_h5_read(&file, "provenance/FINISHED", H5T_NATIVE_INT, 1, &one, &peek->finished));
  MILL_CHECK(
      mill_h5_read(&file, "provenance/UNMODELLED", H5T_NATIVE_INT, 1, &one, &peek->unmodelled));
  *found = 1;
  return MILL_OK;
}

/* 1 if path is a result without a fitted row; 0 for any other file. */
static int is_void(const char *path)
{
  int found = 0;
  mill_result_peek peek;
  return mill_h5_check_output(path) == MILL_OK && look(path, &found, &peek) == MILL_OK && found &&
         peek.n_status[MILL_STATUS_FITTED] == 0 &&
         !(peek.finished && peek.n_status[MILL_STATUS_NOT_DONE] > 0); /* damaged, not empty */
}

void mill_result_find(const char *path, mill_existing *existing)
{
  memset(existing, 0, sizeof *existing);
  snprintf(existing->path, sizeof existing->path, "%s", path);
  MILL_WATCHED(MILL_WATCH_START, 0, "%s: looking at it", path);
  if (mill_h5_check_output(path) != MILL_OK ||
      look(path, &existing->found, &existing->peek) != MILL_OK) {
    existing->found = 0;
    snprintf(existing->error, sizeof existing->error, "%s", mill_error_message());
  }
}

/* ---- before a run writes ---- */

/* On rank 0: did this Slurm job begin the file before it was requeued?  If so, --overwrite must
 * continue the file, not start over after each requeue. */
static int is_own_work(const mill_result_file *file, const mill_run_info *info)
{
  char job[96], made_by[96] = "";
  int found = MILL_FOUND_NOTHING;
  mill_result_summary summary;
  if (mill_lock_restart() == 0 || mill_h5_check_output(file->path) != MILL_OK ||
      inspect(file->path, info, 0, &file->columns, &found, &summary) != MILL_OK ||
      found == MILL_FOUND_NOTHING ||
      mill_output_peek(file->path, "provenance", "JOB", made_by, sizeof made_by) != MILL_OK)
    return 0;
  mill_lock_job(job, sizeof job);
  return strcmp(job, made_by) == 0;
}

int mill_result_begun(const char *path, char *out, size_t size, int *is_new)
{
  *is_new = 0;
  MILL_CHECK(mill_resolve_links(path, out, size - sizeof MILL_NEW_END));
  const size_t n = strlen(out);
  memcpy(out + n, MILL_NEW_END, sizeof MILL_NEW_END);
  *is_new = access(out, F_OK) == 0;
  if (!*is_new)
    out[n] = '\0';
  return MILL_OK;
}

/* On rank 0, with --overwrite: if old files or PATH.new exist, set file->path to PATH.new, which
 * the run writes, and file->target to PATH, which it replaces. */
static int settle_target(mill_result_file *file, const mill_run_info *info)
{
  int is_begun = 0;
  char begun[MILL_MAX_PATH]; /* only is_begun is needed */
  MILL_CHECK(mill_result_begun(file->path, begun, sizeof begun - MILL_PATH_SPARE, &is_begun));
  const int has_old =
      access(file->path, F_OK) == 0 || (info->models && access(info->models, F_OK) == 0);
  if (!is_begun && !has_old)
    return MILL_OK;
  MILL_CHECK(mill_refuse_foreign(file->path, "--output", "starmill result"));
  memcpy(file->target, file->path, sizeof file->target);
  strcat(file->path, MILL_NEW_END);
  return MILL_OK;
}

/* On rank 0: set file->path to the file to write, and inspect this file.  If --overwrite is to
 * replace an old file, file->path is PATH.new and file->target is `path`. */
static int choose(mill_result_file *file, const char *path, const mill_run_info *info,
                  int overwrite, int retry_failed, int *found)
{
  mill_result_summary *summary = &file->found;
  mill_error_kept kept;
  *found = MILL_FOUND_NOTHING;
  memcpy(file->path, path, strlen(path) + 1);
  file->target[0] = '\0';
  if (overwrite && !is_own_work(file, info)) { /* a requeued job continues its own file */
    MILL_CHECK(settle_target(file, info));
    if (!file->target[0]) /* neither old files nor PATH.new exist */
      return MILL_OK;
  }
  MILL_CHECK(mill_h5_check_output(file->path));
  int code = inspect(file->path, info, retry_failed, &file->columns, found, summary);
  mill_error_save(code, &kept); /* is_void may replace the message of code */
  file->was_void = code == MILL_ERR_OUTPUT && is_void(file->path);
  if (file->was_void) { /* another run's result without a fitted row: replace it */
    *found = MILL_FOUND_NOTHING;
    return MILL_OK;
  }
  code = code == MILL_OK ? code : mill_error_restore(&kept);
  if (code == MILL_ERR_OUTPUT && file->target[0])
    return MILL_ERROR(
        code, "%s; an unfinished run with --overwrite left the file: remove %s to begin again",
        mill_error_message(), file->path);
  if (code == MILL_ERR_OUTPUT)
    return MILL_ERROR(code, "%s; give another --output, or --overwrite to replace it",
                      mill_error_message());
  MILL_CHECK(code);
  const int64_t n_failed =
      info->n_row - summary->n_status[MILL_STATUS_NOT_DONE] - summary->n_status[MILL_STATUS_FITTED];
  /* continue a finished result to fit failed rows again, or to let PATH.new replace its target */
  if (*found == MILL_FOUND_FINISHED && ((retry_failed && n_failed > 0) || file->target[0]))
    *found = MILL_FOUND_UNFINISHED;
  return MILL_OK;
}

/* On rank 0: choose the file to write, and hold its lock unless its result is finished.  If
 * file->target is not empty, file->path is PATH.new, which will replace target. */
int mill_result_claim(mill_result_file *file, const char *path, const mill_run_info *info,
                      int overwrite, int retry_failed, int *found)
{
  MILL_CHECK(choose(file, path, info, overwrite, retry_failed, found));
  if (*found != MILL_FOUND_FINISHED) {
    MILL_CHECK(mill_lock_take(path, &file->lock));
    /* choose again: another job may have changed or renamed the file before we had the lock */
    MILL_CHECK(choose(file, path, info, overwrite, retry_failed, found));
  }
  if (*found == MILL_FOUND_FINISHED) {
    mill_lock_release(&file->lock); /* held unless the result was finished at first */
    mill_lock_tidy(path);           /* remove what a killed job left behind */
    if (info->models && access(info->models, F_OK) == 0 &&
        mill_models_check(info->models, file->path) != MILL_OK)
      return REFUSED("%s; give another --models, or --overwrite to start over",
                     mill_error_message());
  } else
    mill_lock_remove_leftovers(&file->lock, path);
  if (file->was_void) {
    mill_log_info("%s was made from other inputs or settings and has no fitted row: it is replaced",
                  file->path);
    if (info->models)
      mill_models_remove_of(info->models, file->path);
  }
  if (overwrite && *found == MILL_FOUND_NOTHING && !file->target[0]) /* no old files either */
    mill_log_info(
        "%s: there is nothing to overwrite; to continue this run after a stop, omit --overwrite",
        path);
  if (overwrite && *found != MILL_FOUND_NOTHING)
    mill_log_info("%s: continuing the result that an earlier start %s", file->path,
                  file->target[0] ? "with --overwrite began"
                                  : "of this Slurm job began with --overwrite");
  return MILL_OK;
}
