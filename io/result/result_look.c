/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/result/result_look.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "io/hdf5/hdf5_util.h"
#include "io/hdf5/parallel_hdf5.h"
#include "io/result/result_layout.h"
#include "kernels/base/error.h"
#include "src/system/watchdog.h"

/* *found 0: there is none.  MILL_ERR_OUTPUT when it is something else or damaged. */
static int look(const char *path, int *found, mill_result_peek *peek)
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
  MILL_TRY(mill_h5_read(&file, "provenance/FINISHED", H5T_NATIVE_INT, 1, &one, &peek->finished));
  *found = 1;
done:
  mill_h5_close(&file);
  return err;
}

int mill_result_is_void(const char *path)
{
  int found = 0;
  mill_result_peek peek;
  return mill_h5_check_output(path) == MILL_OK && look(path, &found, &peek) == MILL_OK && found &&
         peek.n_status[MILL_STATUS_FITTED] == 0 &&
         !(peek.finished && peek.n_status[MILL_STATUS_NOT_DONE] > 0); /* that is damage */
}

void mill_result_find(const char *path, mill_existing *existing)
{
  memset(existing, 0, sizeof *existing);
  snprintf(existing->path, sizeof existing->path, "%s", path);
  const int watch = mill_watch_begin(MILL_WATCH_START, 0, "%s: looking at it", path);
  int err = mill_h5_check_output(path);
  if (err == MILL_OK)
    err = look(path, &existing->found, &existing->peek);
  mill_watch_end(watch);
  if (err != MILL_OK) {
    existing->found = 0;
    snprintf(existing->error, sizeof existing->error, "%s", mill_error_message());
  }
}
