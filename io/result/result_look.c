/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/result_look.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "io/hdf5/hdf5_util.h"
#include "io/files/lock_file.h"
#include "io/hdf5/parallel_hdf5.h"
#include "io/result/result_layout.h"
#include "kernels/base/error.h"
#include "src/system/file_roles.h"
#include "src/system/status_process.h"
#include "src/system/watchdog.h"

/* A time, which may not have been written yet. */
static int read_time(const mill_h5_file *file, const char *name, char out[24])
{
  int err = MILL_OK;
  const hid_t dataset = H5Dopen2(file->id, name, H5P_DEFAULT);
  const hid_t type = mill_ph5_text_type(MILL_TIME_SIZE - 1);
  memset(out, 0, 24);
  if (dataset < 0 || type < 0 || H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out) < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s is damaged: %s cannot be read: %s", file->path, name,
              mill_h5_reason());
done:
  if (type >= 0)
    H5Tclose(type);
  if (dataset >= 0)
    H5Dclose(dataset);
  return err;
}

int mill_result_look(const char *path, int *found, mill_result_peek *peek)
{
  int err = MILL_OK;
  mill_h5_file file = {.id = H5I_INVALID_HID};
  mill_result_summary summary;
  struct stat status;
  size_t n_row = 0;
  const size_t one = 1;
  *found = 0;
  memset(peek, 0, sizeof *peek);
  memset(&summary, 0, sizeof summary);
  if (stat(path, &status) != 0 && (errno == ENOENT || errno == ENOTDIR))
    goto done;
  MILL_TRY(mill_h5_open(path, MILL_ERR_OUTPUT, &file));
  MILL_TRY(mill_h5_scan(&file));
  MILL_TRY(mill_result_layout_check(file.id, path, MILL_ERR_OUTPUT));
  /* first: it decides where the result can be continued */
  MILL_TRY(
      mill_h5_read_attr_text(&file, "provenance", "DEVICE", peek->device, sizeof peek->device));
  MILL_TRY(mill_h5_shape(&file, "fits/STATUS", 1, &n_row));
  peek->n_row = (int64_t)n_row;
  MILL_TRY(mill_result_layout_count(file.id, path, peek->n_row, 0, peek->n_row, &summary));
  memcpy(peek->n_status, summary.n_status, sizeof peek->n_status);
  peek->n_warned = summary.n_warned;
  MILL_TRY(mill_h5_read(&file, "provenance/FINISHED", H5T_NATIVE_INT, 1, &one, &peek->finished));
  MILL_TRY(mill_h5_read(&file, "provenance/N_RUN", H5T_NATIVE_INT, 1, &one, &peek->n_run));
  MILL_TRY(mill_h5_read(&file, "provenance/WALL_S", H5T_NATIVE_DOUBLE, 1, &one, &peek->wall_s));
  MILL_TRY(read_time(&file, "provenance/START_TIME", peek->start));
  MILL_TRY(read_time(&file, "provenance/END_TIME", peek->end));
  MILL_TRY(mill_h5_read_attr_text(&file, "provenance", "HOST", peek->host, sizeof peek->host));
  *found = 1;
done:
  mill_h5_close(&file);
  return err;
}

int mill_result_is_void(const char *path)
{
  int found = 0;
  mill_result_peek peek;
  return mill_h5_check_output(path) == MILL_OK &&
         mill_result_look(path, &found, &peek) == MILL_OK && found &&
         peek.n_status[MILL_STATUS_FITTED] == 0 &&
         !(peek.finished && peek.n_status[MILL_STATUS_NOT_DONE] > 0); /* that is damage */
}

int mill_result_damaged(const char *path, int64_t n_row, mill_damaged_rows *damaged)
{
  int err = MILL_OK;
  mill_h5_file file = {.id = H5I_INVALID_HID};
  memset(damaged, 0, sizeof *damaged);
  MILL_TRY(mill_h5_open(path, MILL_ERR_OUTPUT, &file));
  MILL_TRY(mill_result_rows_check(file.id, path, n_row, -1, damaged));
done:
  mill_h5_close(&file);
  return err;
}

void mill_result_find(const char *path, mill_existing *existing)
{
  memset(existing, 0, sizeof *existing);
  snprintf(existing->path, sizeof existing->path, "%s", path);
  const int watch = mill_watch_begin(MILL_WATCH_START, 0, "%s: looking at it", path);
  int err = mill_h5_check_output(path);
  if (err == MILL_OK)
    err = mill_result_look(path, &existing->found, &existing->peek);
  mill_watch_end(watch);
  if (err != MILL_OK) {
    existing->found = 0;
    snprintf(existing->error, sizeof existing->error, "%s", mill_error_message());
  }
}

void mill_lock_look(const char *output, mill_lock_holder *holder)
{
  char path[MILL_MAX_PATH], end[MILL_MAX_PATH - 8], here[64], text[1024];
  long long pid = 0;
  memset(holder, 0, sizeof *holder);
  if (mill_resolve_links(output, end, sizeof end) != MILL_OK)
    return;
  snprintf(path, sizeof path, "%s.lock", end);
  FILE *file = fopen(path, "re");
  if (!file) {
    holder->is_locked = errno != ENOENT && errno != ENOTDIR;
    return;
  }
  const size_t n = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[n] = '\0';
  holder->is_locked = 1;
  if (sscanf(text, "host %255s pid %lld", holder->host, &pid) != 2) {
    holder->host[0] = '\0';
    return;
  }
  holder->pid = (int64_t)pid;
  mill_host_name(here, sizeof here);
  holder->is_gone = strcmp(holder->host, here) == 0 && !mill_process_alive(holder->pid);
}
