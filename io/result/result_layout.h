/* SPDX-License-Identifier: BSD-3-Clause */
/** The parts of a result file other than the rows of fits: creation and counts.  For the other
 * files of this folder. */
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

/** MILL_ERR_STOPPED when the job is to stop: asked between two columns, for a large file takes
 *  minutes. */
int mill_result_go_on(void);

/** The text, or "" for NULL. */
const char *mill_result_text(const char *text);

/** Note in the open file that rows are written without models, before the first of them.  One
 *  rank alone. */
int mill_result_layout_mark_unmodelled(hid_t file, const char *path);

/** MILL_ERR_OUTPUT when that was noted, so that a models file would have gaps.
 * One rank alone. */
int mill_result_layout_check_modelled(hid_t file, const char *path, const char *models);

/** Add the rows [start, start + n) to a summary's counts. */
int mill_result_layout_count(hid_t file, const char *path, int64_t n_row, int64_t start, int64_t n,
                             mill_result_summary *summary);

/** The root's attributes that identify the file. */
int mill_result_layout_put_format(hid_t file, const char *path);

/** Fail with code unless they say that it is a result of this version. */
int mill_result_layout_check(hid_t file, const char *path, int code);

/** "2026-11-21T05:36:05Z" of now */
void mill_result_layout_time(char out[MILL_TIME_SIZE]);

#endif
