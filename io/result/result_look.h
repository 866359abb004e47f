/* SPDX-License-Identifier: BSD-3-Clause */
/** Facts about a run from its result file alone. */
#ifndef MILL_RESULT_LOOK_H
#define MILL_RESULT_LOOK_H

#include <stdint.h>

#include "io/files/lock_file.h"
#include "io/result/result_rows.h"
#include "kernels/data/result.h"

typedef struct mill_result_peek {
  int64_t n_row, n_status[MILL_N_STATUS], n_warned;
  int finished;
  int n_run;     /**< runs that ended in good order */
  double wall_s; /**< their time together */
  char start[24], end[24], device[256], host[256];
} mill_result_peek;

/** Look at a result file, also while a run writes it; MPI need not be initialised.
 *  *found 0: there is none.  MILL_ERR_OUTPUT when it is something else or damaged. */
int mill_result_look(const char *path, int *found, mill_result_peek *peek);

/** Is nothing lost with the result at path: no rows, or none fitted?  0 for any other file. */
int mill_result_is_void(const char *path);

/** Which rows of a finished result are damaged: reads all of them. */
int mill_result_damaged(const char *path, int64_t n_row, mill_damaged_rows *damaged);

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

/** Holder of the lock of an output. */
typedef struct mill_lock_holder {
  int is_locked;
  int is_gone;    /**< the process ran on this host and has ended */
  char host[256]; /**< empty: the lock does not say */
  int64_t pid;
} mill_lock_holder;
void mill_lock_look(const char *output, mill_lock_holder *holder);

#endif
