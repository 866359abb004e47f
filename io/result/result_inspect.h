/* SPDX-License-Identifier: BSD-3-Clause */
/** State of an output's path before a run: nothing, a result of this very run, or something else.
 *  One rank alone. */
#ifndef MILL_RESULT_INSPECT_H
#define MILL_RESULT_INSPECT_H

#include <hdf5.h>

#include "io/result/columns.h"
#include "io/result/result_file.h"

enum mill_found { MILL_FOUND_NOTHING, MILL_FOUND_UNFINISHED, MILL_FOUND_FINISHED };

/** Look at what is at path, read-only.  MILL_ERR_OUTPUT, with the difference, when it is not a
 *  result of this very run.  A finished file also fills summary; one with damaged rows counts as
 *  unfinished.  watch: token of src/system/watchdog.h, renewed while all rows are read.
 *  retry_failed: input files of which no row is fitted may have changed in size and time; a result
 *  with such ones counts as unfinished. */
int mill_result_inspect(const char *path, const mill_run_info *info, int retry_failed,
                        const mill_columns *columns, int watch, int *found,
                        mill_result_summary *summary);

/** Identity of a result: settings, library and kind of device. */
typedef struct mill_result_origin {
  char *identity; /**< for mill_free, also after a failure */
  char hash[80], device[256];
} mill_result_origin;
int mill_result_origin_read(hid_t file, const char *path, mill_result_origin *origin);

/** Job that created the file at path (mill_lock_job) into out [size]. */
int mill_result_job(const char *path, char *out, size_t size);

#endif
