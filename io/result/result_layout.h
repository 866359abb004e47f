/** What stands in a result file besides the rows of fits: how it is created,
 *  recognised and compared with a run. For io/result/result_file.c. */
#ifndef MILL_RESULT_LAYOUT_H
#define MILL_RESULT_LAYOUT_H

#include <hdf5.h>

#include "io/result/columns.h"
#include "io/result/result_file.h"
#include "src/ranks/mpi_context.h"

enum { MILL_RESULT_FORMAT = 2, MILL_RUN_ID_SIZE = 33, MILL_TIME_SIZE = 21 };

/** Create the whole file with all space allocated, rows missing, /catalog/files
 *  and /provenance written.  One rank alone. */
int mill_result_layout_create(const char *path, const mill_run_info *info,
                              const mill_columns *columns, int64_t n_exposure, int n_rank);

/** Write this rank's share of /catalog and /fits/TARGETID, in pieces of bounded size.
 *  Collective; first_exposure [n_file]: number of the first exposure of each file; watch: of the
 *  watchdog (src/system/watchdog.h), told of every piece.
 *  MILL_ERR_STOPPED when the job is to stop or a file has changed; MILL_ERR_OUTPUT, MILL_ERR_MPI,
 * MILL_ERR_MEMORY, or what info->load gives. */
int mill_result_layout_catalog(hid_t file, const char *path, const mill_run_info *info,
                               const mill_mpi *mpi, const int64_t *first_exposure,
                               int64_t n_exposure, int watch);

enum mill_found { MILL_FOUND_NOTHING, MILL_FOUND_UNFINISHED, MILL_FOUND_FINISHED };

/** Look at what is at path, read-only.  One rank alone.  MILL_ERR_OUTPUT when it is
 *  no result of this very run, and says in what it differs.  A finished file
 *  also fills summary.  retry_failed: input files of which no row is fitted may have changed
 *  in size and time; a result with such ones counts as unfinished. */
int mill_result_layout_inspect(const char *path, const mill_run_info *info, int retry_failed,
                               const mill_columns *columns, int *found,
                               mill_result_summary *summary);

/** Job that created the file at path (mill_lock_job) into out [size].  One rank alone. */
int mill_result_layout_job(const char *path, char *out, size_t size);

/** Make the mark for that which follows.  One rank alone. */
int mill_result_layout_create_unmodelled(hid_t file, const char *path);

/** Note in the open file that rows are written without models, before the first of them.  One
 *  rank alone.  A file of an older program, which has no such mark, stays as it is. */
int mill_result_layout_mark_unmodelled(hid_t file, const char *path);

/** MILL_ERR_OUTPUT when that was noted or cannot be known, so that a models file would have gaps.
 * One rank alone. */
int mill_result_layout_check_modelled(hid_t file, const char *path, const char *models);

/** Add the rows [start, start + n) to a summary's counts. */
int mill_result_layout_count(hid_t file, const char *path, int64_t n_row, int64_t start, int64_t n,
                             mill_result_summary *summary);

/** The first line in which two identities differ, as: "was", now "is". */
void mill_result_layout_difference(const char *was, const char *is, char *out, size_t size);

/** "2026-11-21T05:36:05Z" of now */
void mill_result_layout_time(char out[MILL_TIME_SIZE]);

#endif
