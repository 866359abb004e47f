/* SPDX-License-Identifier: BSD-3-Clause */
/** Creation of a result file, and what identifies it. */
#ifndef MILL_RESULT_LAYOUT_H
#define MILL_RESULT_LAYOUT_H

#include <hdf5.h>

#include "io/result/columns.h"
#include "io/result/result_file.h"

enum { MILL_RESULT_FORMAT = 4, MILL_RUN_ID_SIZE = 33, MILL_TIME_SIZE = 21 };

/** Create the whole file with all space allocated, /catalog/files and /provenance written, no byte
 *  of the other tables.  One rank alone. */
int mill_result_layout_create(const char *path, const mill_run_info *info,
                              const mill_columns *columns, int64_t n_exposure, int n_rank);

/** Write this rank's share of /catalog, its exposures and /fits/TARGETID, in blocks of bounded size
 *  (result_catalog.c).  Not collective.
 *
 *  fd                        descriptor of the same file
 *  first_exposure  [n_file]  number of the first exposure of each file
 *
 *  MILL_ERR_STOPPED when the job is to stop or a file has changed; MILL_ERR_OUTPUT,
 *  MILL_ERR_MEMORY, or what info->load gives. */
int mill_result_catalog_write(hid_t file, int fd, const char *path, const mill_run_info *info,
                              const int64_t *first_exposure, int64_t n_exposure);

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
