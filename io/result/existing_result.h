/* SPDX-License-Identifier: BSD-3-Clause */
/** What is at an output's path before a run: nothing, a result, or something else.  One rank. */
#ifndef MILL_EXISTING_RESULT_H
#define MILL_EXISTING_RESULT_H

#include <hdf5.h>

#include "io/files/lock_file.h"
#include "io/result/columns.h"
#include "io/result/result_file.h"

enum mill_found { MILL_FOUND_NOTHING, MILL_FOUND_UNFINISHED, MILL_FOUND_FINISHED };

/** Is there a result of this very run at path?  The file is not changed.
 *
 *  retry_failed  input files without a fitted row may have changed in size and time; then the
 *                result counts as unfinished
 *  summary       out  of a finished result; a result with damaged rows counts as unfinished
 *
 *  MILL_ERR_OUTPUT, with the difference, when it is something else. */
int mill_result_inspect(const char *path, const mill_run_info *info, int retry_failed,
                        const mill_columns *columns, int *found, mill_result_summary *summary);

/** Identity of a result: settings, library and kind of device. */
typedef struct mill_result_origin {
  char *identity; /**< for mill_free, also after a failure */
  char hash[80], device[256];
} mill_result_origin;
int mill_result_origin_read(hid_t file, const char *path, mill_result_origin *origin);

/** Is nothing lost with the result at path: no rows, or none fitted?  0 for any other file. */
int mill_result_is_void(const char *path);

typedef struct mill_result_peek {
  int64_t n_row, n_status[MILL_N_STATUS];
  int finished;
  char device[256];
} mill_result_peek;

/** State of a run's output. */
typedef struct mill_existing {
  char path[MILL_MAX_PATH];
  int is_new;       /**< it is OUT.h5.new, which a start with --overwrite has begun */
  int found;        /**< a result, described by peek; else peek has at most the device */
  char error[1024]; /**< why the existing file cannot be continued; empty: it can */
  mill_result_peek peek;
} mill_existing;

/** Look at path, watched by the watchdog; a damaged file cannot end the program. */
void mill_result_find(const char *path, mill_existing *existing);

#endif
