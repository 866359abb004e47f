/* SPDX-License-Identifier: BSD-3-Clause */
/** Creates a result file with its provenance, and checks that a file is a result. */
#pragma once

#include <hdf5.h>

#include "io/hdf5/hdf5_util.h"
#include "io/result/columns.h"
#include "io/result/result_file.h"

enum { MILL_RESULT_FORMAT = 4, MILL_RUN_ID_SIZE = 33, MILL_TIME_SIZE = 21 };

/** Create the file with all its space; write /catalog/files and /provenance, but no values of other
 *  tables.  Call on one rank. */
int mill_result_layout_create(const char *path, const mill_run_info *info,
                              const mill_columns *columns, int64_t n_exposure, int n_rank);

/** Write this rank's share of /catalog, /catalog/exposures and /fits/TARGETID, in blocks of bounded
 *  size (result_catalog.c).  Not collective.
 *
 *  fd                        descriptor of `file`
 *  first_exposure  [n_file]  row of /catalog/exposures of each file's first exposure
 *
 *  MILL_ERR_STOPPED: the job shall stop, or a file has changed.  MILL_ERR_OUTPUT, MILL_ERR_MEMORY,
 *  or the code of info->load. */
int mill_result_catalog_write(hid_t file, int fd, const char *path, const mill_run_info *info,
                              const int64_t *first_exposure, int64_t n_exposure);

/** Record in the file that some rows are written without models.  Call on one rank. */
int mill_result_layout_mark_unmodelled(hid_t file, const char *path);

/** Fail with MILL_ERR_OUTPUT if rows were already written without models, since the models file
 *  `models` would have gaps.  Call on one rank. */
int mill_result_layout_check_modelled(hid_t file, const char *path, const char *models);

/** Fail with `code` unless the file is a result of this format version. */
int mill_result_layout_check(hid_t file, const char *path, int code);

/** Open a stored result, scan and check it (mill_h5_scan, mill_result_layout_check). */
int mill_result_open_stored(const char *path, int code, mill_h5_file *file);
