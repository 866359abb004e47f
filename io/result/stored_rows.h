/* SPDX-License-Identifier: BSD-3-Clause */
/** Check and count the rows of a stored result.  The file itself names its columns, their types and
 *  the order in which the CRC covers them, so no library is needed. */
#pragma once

#include "io/result/result_file.h"
#include "io/result/table.h"

enum { MILL_SHOWN_ROWS = 8, MILL_ROWS_TEXT = 256 };

/** Rows of /fits or /catalog in an open result.  If the result has epochs, a byte follows each
 *  packed row of /fits: 0 if the row's EPOCH_CRC disagrees with /epochs, else 1. */
typedef struct mill_stored_rows {
  mill_table *table;
  mill_table *epochs;    /**< NULL: the result has no /epochs */
  mill_table *exposures; /**< each star's range of rows in /epochs */
} mill_stored_rows;

/** Open /fits of an open result, also /epochs if any.  The caller zeroes *rows first, and closes it
 *  even after a failure.  MILL_ERR_OUTPUT: damaged file; MILL_ERR_MEMORY. */
int mill_stored_rows_open(hid_t file, const char *path, int64_t n_row, mill_stored_rows *rows);
void mill_stored_rows_close(mill_stored_rows *rows);

/** Call take for each packed row of [start, end), until it fails.  Reading a block restarts the
 *  watchdog's time.  Not collective.  MILL_ERR_OUTPUT, MILL_ERR_MEMORY, or take's code. */
int mill_stored_rows_each(const mill_stored_rows *rows, int64_t start, int64_t end,
                          int (*take)(void *context, int64_t i, const char *row), void *context);

/** Return STATUS of a packed row of /fits.  *is_whole 1: the row is done and its CRCs agree. */
int32_t mill_stored_row_status(const mill_stored_rows *rows, const char *row, int *is_whole);

/** Store the names of the columns that the CRC covers, in order, as an attribute of dataset crc. */
int mill_stored_rows_put_order(hid_t file, const char *path, const char *crc,
                               const mill_columns *columns);

/** Damaged rows: a CRC disagrees, or the result is finished but the row is not done. */
typedef struct mill_damaged_rows {
  int64_t n;
  int64_t row[MILL_SHOWN_ROWS]; /**< the first MILL_SHOWN_ROWS of them */
  int64_t n_catalog;            /**< number of them whose CATALOG_CRC disagrees */
} mill_damaged_rows;

void mill_damaged_rows_add(mill_damaged_rows *damaged, int64_t row);
/** Describe damaged rows: "3 rows (4, 17, 20) are damaged: their CRC or STATUS is wrong". */
const char *mill_damaged_rows_text(const mill_damaged_rows *damaged, char out[MILL_ROWS_TEXT]);

/** Find damaged rows of /catalog, and of /fits if is_finished.  damaged->n_catalog omits files
 *  changed since `then` [info->n_file]: they are written again.  MILL_ERR_OUTPUT,
 *  MILL_ERR_MEMORY. */
int mill_damaged_rows_find(hid_t file, const char *path, const mill_run_info *info,
                           const mill_input_file *then, int is_finished,
                           mill_damaged_rows *damaged);

/** Set is_known [n_row] to 1 for each row whose CATALOG_CRC agrees. */
int mill_catalog_known(hid_t file, const char *path, int64_t n_row, unsigned char *is_known);

/** Count the rows [start, start + n) of /fits into summary. */
int mill_stored_rows_count(hid_t file, const char *path, int64_t n_row, int64_t start, int64_t n,
                           mill_result_summary *summary);
