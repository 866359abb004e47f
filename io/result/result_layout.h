/* SPDX-License-Identifier: BSD-3-Clause */
/** Creation of a result file, and what identifies it. */
#ifndef MILL_RESULT_LAYOUT_H
#define MILL_RESULT_LAYOUT_H

#include <hdf5.h>

#include "io/result/columns.h"
#include "io/result/result_file.h"
#include "src/ranks/mpi_context.h"

enum { MILL_RESULT_FORMAT = 4, MILL_RUN_ID_SIZE = 33, MILL_TIME_SIZE = 21 };

/** Create the whole file with all space allocated, rows missing, /catalog/files
 *  and /provenance written.  One rank alone. */
int mill_result_layout_create(const char *path, const mill_run_info *info,
                              const mill_columns *columns, int64_t n_exposure, int n_rank);

/** Note in the open file that rows are written without models, before the first of them.  One
 *  rank alone. */
int mill_result_layout_mark_unmodelled(hid_t file, const char *path);

/** MILL_ERR_OUTPUT when that was noted, so that a models file would have gaps.
 * One rank alone. */
int mill_result_layout_check_modelled(hid_t file, const char *path, const char *models);

/** Fail with code unless the root's attributes say that it is a result of this version. */
int mill_result_layout_check(hid_t file, const char *path, int code);

/** "2026-11-21T05:36:05Z" of now */
void mill_result_layout_time(char out[MILL_TIME_SIZE]);

#endif
