/* SPDX-License-Identifier: BSD-3-Clause */
/** Facts about a run from its result file alone. */
#ifndef MILL_RESULT_LOOK_H
#define MILL_RESULT_LOOK_H

#include <stdint.h>

#include "io/files/lock_file.h"
#include "kernels/data/result.h"

typedef struct mill_result_peek {
  int64_t n_row, n_status[MILL_N_STATUS];
  int finished;
  char device[256];
} mill_result_peek;

/** Is nothing lost with the result at path: no rows, or none fitted?  0 for any other file. */
int mill_result_is_void(const char *path);

/** State of a run's output. */
typedef struct mill_existing {
  char path[MILL_MAX_PATH];
  int is_new;       /**< it is OUT.h5.new, which a start with --overwrite has begun */
  int found;        /**< a result, and peek is about it; else of peek at most the device */
  char error[1024]; /**< why the existing file cannot be continued; empty: it can */
  mill_result_peek peek;
} mill_existing;

/** Look there, where a damaged file cannot end the program; the watchdog knows of it. */
void mill_result_find(const char *path, mill_existing *existing);

#endif
