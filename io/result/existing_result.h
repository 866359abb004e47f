/* SPDX-License-Identifier: BSD-3-Clause */
/** Inspect the file at an output's path before a run.  Call on one rank. */
#pragma once

#include <hdf5.h>

#include "io/files/lock_file.h"
#include "io/result/columns.h"
#include "io/result/result_file.h"
#include "kernels/base/memory.h"

enum mill_found { MILL_FOUND_NOTHING, MILL_FOUND_UNFINISHED, MILL_FOUND_FINISHED };

/** What a result was made with. */
typedef struct mill_result_origin {
  char *identity; /**< text of the settings */
  char hash[80];  /**< hash of the library */
  char device[256];
} mill_result_origin;
int mill_result_origin_read(hid_t file, const char *path, mill_result_origin *origin);
static inline void mill_result_origin_clear(mill_result_origin *origin) /**< also after a failure */
{
  mill_free(origin->identity);
}

typedef struct mill_result_peek {
  int64_t n_row, n_status[MILL_N_STATUS];
  int finished, unmodelled; /**< /provenance/FINISHED and UNMODELLED */
  char device[256];
} mill_result_peek;

typedef struct mill_existing {
  char path[MILL_MAX_PATH];
  int is_new;       /**< 1: path is OUT.h5.new, begun by a start with --overwrite */
  int found;        /**< 1: a result, shown by peek; 0: no file, or bad (peek.device may be set) */
  char error[1024]; /**< why the file cannot be continued; empty if it can */
  mill_result_peek peek;
} mill_existing;

/** Inspect path; existing->error reports a damaged file. */
void mill_result_find(const char *path, mill_existing *existing);
