/* SPDX-License-Identifier: BSD-3-Clause */
/** Check and count the rows of a stored result.  Columns, their types and the order of their CRC
 *  come from the file itself, so no library is needed. */
#ifndef MILL_STORED_ROWS_H
#define MILL_STORED_ROWS_H

#include "io/result/result_file.h"
#include "io/result/table.h"

enum { MILL_SHOWN_ROWS = 8, MILL_ROWS_TEXT = 256 };

/** Rows of /fits or /catalog.  With /epochs, a packed row of /fits ends with one more byte: 1 if
 *  its EPOCH_CRC agrees with /epochs. */
typedef struct mill_stored_rows {
  mill_table *table;
  mill_table *epochs;    /**< NULL: the result has no /epochs */
  mill_table *exposures; /**< range of rows of /epochs of each star */
} mill_stored_rows;

/** Open the rows of an open result; *rows is zeroed before, and closed by the caller also after a
 *  failure.  MILL_ERR_OUTPUT: the file is damaged; MILL_ERR_MEMORY. */
int mill_stored_rows_fits(hid_t file, const char *path, int64_t n_row, mill_stored_rows *rows);
int mill_stored_rows_catalog(hid_t file, const char *path, int64_t n_row, mill_stored_rows *rows);
void mill_stored_rows_close(mill_stored_rows *rows);

/** Call take with each packed row of [start, end); stop at its first failure.  Each block restarts
 *  the watchdog's time.  Not collective.  MILL_ERR_OUTPUT, MILL_ERR_MEMORY, or take's code. */
int mill_stored_rows_each(const mill_stored_rows *rows, int64_t start, int64_t end,
                          int (*take)(void *context, int64_t i, const char *row), void *context);

/** STATUS of a packed row of /fits.  *is_whole: the row is done and its CRCs agree. */
int32_t mill_stored_row_status(const mill_stored_rows *rows, const char *row, int *is_whole);

/** Store the names of the columns before the CRC, in order, as an attribute of the dataset crc. */
int mill_stored_rows_put_order(hid_t file, const char *path, const char *crc,
                               const mill_columns *columns);

/** Damaged rows: a CRC disagrees, or a row of a finished result is not done. */
typedef struct mill_damaged_rows {
  int64_t n;
  int64_t row[MILL_SHOWN_ROWS]; /**< the first of them */
  int64_t n_catalog;            /**< rows among them whose CATALOG_CRC disagrees */
} mill_damaged_rows;

/** Add a row. */
void mill_damaged_rows_add(mill_damaged_rows *damaged, int64_t row);

/** "3 rows (4, 17, 20) are damaged: their CRC or STATUS is wrong" */
const char *mill_damaged_rows_text(const mill_damaged_rows *damaged, char out[MILL_ROWS_TEXT]);

/** Check all rows of /catalog, and in a finished result all rows of /fits; add the damaged ones.
 *  Failures as above. */
int mill_damaged_rows_find(hid_t file, const char *path, int64_t n_row, int is_finished,
                           mill_damaged_rows *damaged);

/** Set is_known [n_row] to 1 for each row whose CATALOG_CRC agrees.  Failures as above. */
int mill_catalog_known(hid_t file, const char *path, int64_t n_row, unsigned char *is_known);

/** Count the rows [start, start + n) of /fits into summary.  Failures as above. */
int mill_stored_rows_count(hid_t file, const char *path, int64_t n_row, int64_t start, int64_t n,
                           mill_result_summary *summary);

#endif
