/* SPDX-License-Identifier: BSD-3-Clause */
/** Inspect the file at an output's path before a run.  Call on one rank. */
#ifndef MILL_EXISTING_RESULT_H
#define MILL_EXISTING_RESULT_H

#include <hdf5.h>

#include "io/files/lock_file.h"
#include "io/result/columns.h"
#include "io/result/result_file.h"

enum mill_found { MILL_FOUND_NOTHING, MILL_FOUND_UNFINISHED, MILL_FOUND_FINISHED };

/** Is there a result of this run at path?  Reads only.
 *
 *  retry_failed  accept input files that have changed, if none of their rows is fitted
 *  found         out  enum mill_found; a result with damaged rows or changed inputs is unfinished
 *  summary       out  counts of a finished result
 *
 *  MILL_ERR_OUTPUT, with the difference: path holds something else. */
int mill_result_inspect(const char *path, const mill_run_info *info, int retry_failed,
                        const mill_columns *columns, int *found, mill_result_summary *summary);

/** What a result was made with. */
typedef struct mill_result_origin {
  char *identity; /**< text of the settings; mill_free it, also after a failure */
  char hash[80];  /**< hash of the library */
  char device[256];
} mill_result_origin;
int mill_result_origin_read(hid_t file, const char *path, mill_result_origin *origin);

/** 1 if path is a result without a fitted row; 0 for any other file. */
int mill_result_is_void(const char *path);

typedef struct mill_result_peek {
  int64_t n_row, n_status[MILL_N_STATUS];
  int finished;
  char device[256];
} mill_result_peek;

/** State of an output. */
typedef struct mill_existing {
  char path[MILL_MAX_PATH];
  int is_new;       /**< 1: path is OUT.h5.new, begun by a start with --overwrite */
  int found;        /**< 1: path is a result, see peek; 0: at most peek.device is set */
  char error[1024]; /**< why the file cannot be continued; empty if it can */
  mill_result_peek peek;
} mill_existing;

/** Inspect path; existing->error reports a damaged file. */
void mill_result_find(const char *path, mill_existing *existing);

#endif
