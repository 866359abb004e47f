/* SPDX-License-Identifier: BSD-3-Clause */
/** Layout of a result file: its creation, its provenance, and the check that a file is a result. */
#ifndef MILL_RESULT_LAYOUT_H
#define MILL_RESULT_LAYOUT_H

#include <hdf5.h>

#include "io/result/columns.h"
#include "io/result/result_file.h"

enum { MILL_RESULT_FORMAT = 4, MILL_RUN_ID_SIZE = 33, MILL_TIME_SIZE = 21 };

/** Create the file with all space allocated; write /catalog/files and /provenance, but no values of
 *  other tables.  One rank alone. */
int mill_result_layout_create(const char *path, const mill_run_info *info,
                              const mill_columns *columns, int64_t n_exposure, int n_rank);

/** Write this rank's share of /catalog, /catalog/exposures and /fits/TARGETID, in blocks of bounded
 *  size (result_catalog.c).  Not collective.
 *
 *  fd                        descriptor of the same file
 *  first_exposure  [n_file]  row of /catalog/exposures of each file's first exposure
 *
 *  MILL_ERR_STOPPED if the job shall stop or a file has changed; MILL_ERR_OUTPUT, MILL_ERR_MEMORY,
 *  or the code of info->load. */
int mill_result_catalog_write(hid_t file, int fd, const char *path, const mill_run_info *info,
                              const int64_t *first_exposure, int64_t n_exposure);

/** Note in the file that rows without models will be written.  One rank alone. */
int mill_result_layout_mark_unmodelled(hid_t file, const char *path);

/** MILL_ERR_OUTPUT if that was noted, as the models file `models` would have gaps.  One rank
 *  alone. */
int mill_result_layout_check_modelled(hid_t file, const char *path, const char *models);

/** Fail with code unless the file is a result of this format version. */
int mill_result_layout_check(hid_t file, const char *path, int code);

/** Current time, as "2026-11-21T05:36:05Z". */
void mill_result_layout_time(char out[MILL_TIME_SIZE]);

#endif
