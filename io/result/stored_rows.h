/* SPDX-License-Identifier: BSD-3-Clause */
/** Rows of a result as stored: whether they are undamaged, and how many have each outcome.  The
 *  file itself gives columns, types and the order of their CRC, so no library is needed. */
#ifndef MILL_STORED_ROWS_H
#define MILL_STORED_ROWS_H

#include "io/result/result_file.h"
#include "io/result/table.h"

enum { MILL_SHOWN_ROWS = 8, MILL_ROWS_TEXT = 256 };

/** The rows of /fits or /catalog.  A packed row of /fits has a byte more at its end: does
 *  EPOCH_CRC agree with /epochs? */
typedef struct mill_stored_rows {
  mill_table *table;
  mill_table *epochs, *exposures; /**< /epochs, and which of its rows a star has; NULL: none */
} mill_stored_rows;

/** Open them in an open result; *rows is zeroed, close it also after a failure.
 *  MILL_ERR_OUTPUT: the file is damaged; MILL_ERR_MEMORY. */
int mill_stored_rows_fits(hid_t file, const char *path, int64_t n_row, mill_stored_rows *rows);
int mill_stored_rows_catalog(hid_t file, const char *path, int64_t n_row, mill_stored_rows *rows);
void mill_stored_rows_close(mill_stored_rows *rows);

/** Call take for each of the rows [start, end) with its packed values, and end at its first
 *  failure.  Each block restarts the watchdog's time.  Not collective.  MILL_ERR_OUTPUT, MILL_ERR_MEMORY, or what take gives. */
int mill_stored_rows_each(const mill_stored_rows *rows, int64_t start, int64_t end,
                          int (*take)(void *context, int64_t i, const char *row), void *context);

/** STATUS of a packed row of /fits; *is_whole: it is done and its CRCs agree. */
int32_t mill_stored_row_status(const mill_stored_rows *rows, const char *row, int *is_whole);

/** Store the order of the columns in a packed row as an attribute of its CRC, for readers without
 *  the library. */
int mill_stored_rows_put_order(hid_t file, const char *path, const char *crc,
                               const mill_columns *columns);

/** Rows of a finished result that are not done, or of which a CRC disagrees. */
typedef struct mill_damaged_rows {
  int64_t n;
  int64_t row[MILL_SHOWN_ROWS]; /**< the first of them */
  int64_t n_catalog;            /**< rows among them whose CATALOG_CRC disagrees */
} mill_damaged_rows;

/** Note one more. */
void mill_damaged_rows_add(mill_damaged_rows *damaged, int64_t row);

/** "3 rows (4, 17, 20) are damaged: their CRC or STATUS is wrong" */
const char *mill_damaged_rows_text(const mill_damaged_rows *damaged, char out[MILL_ROWS_TEXT]);

/** Check all rows of /catalog of an open result, of a finished one also those of /fits, and add
 *  the damaged ones.  Failures as above. */
int mill_damaged_rows_find(hid_t file, const char *path, int64_t n_row, int is_finished,
                           mill_damaged_rows *damaged);

/** is_known [n_row]: does the CATALOG_CRC of each row agree?  Failures as above. */
int mill_catalog_known(hid_t file, const char *path, int64_t n_row, unsigned char *is_known);

/** Add the rows [start, start + n) of /fits to a summary's counts.  Failures as above. */
int mill_stored_rows_count(hid_t file, const char *path, int64_t n_row, int64_t start, int64_t n,
                           mill_result_summary *summary);

#endif
