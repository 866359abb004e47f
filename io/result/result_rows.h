/* SPDX-License-Identifier: BSD-3-Clause */
/** Check that the rows of a result are undamaged: each carries the CRC of its values. */
#ifndef MILL_RESULT_ROWS_H
#define MILL_RESULT_ROWS_H

#include <hdf5.h>
#include <stdint.h>

#include "io/result/columns.h"

enum { MILL_SHOWN_ROWS = 8, MILL_ROWS_TEXT = 256 };

/** Rows of a finished result that are not done, or of which a CRC disagrees. */
typedef struct mill_damaged_rows {
  int64_t n;
  int64_t row[MILL_SHOWN_ROWS]; /**< the first of them */
  int64_t n_catalog;            /**< of them whose CATALOG_CRC disagrees */
} mill_damaged_rows;

/** Note one more. */
void mill_damaged_rows_add(mill_damaged_rows *damaged, int64_t row);

/** "3 rows (4, 17, 20) are damaged: their CRC or STATUS is wrong" */
const char *mill_damaged_rows_text(const mill_damaged_rows *damaged, char out[MILL_ROWS_TEXT]);

/** The order of the columns in a packed row becomes an attribute of its CRC, by which readers
 *  without the library know it. */
int mill_result_rows_put_order(hid_t file, const char *path, const char *crc,
                               const mill_columns *columns);

/** Read all n_row rows of /catalog of an open result, of a finished one also those of /fits, and
 *  add the damaged ones.  watch: token of src/system/watchdog.h, renewed at every block, or -1.
 *  Not collective.  MILL_ERR_OUTPUT, MILL_ERR_MEMORY. */
int mill_result_rows_check(hid_t file, const char *path, int64_t n_row, int is_finished, int watch,
                           mill_damaged_rows *damaged);

/** is_known [n_row]: does the CATALOG_CRC of each row agree?  Errors as above. */
int mill_result_catalog_known(hid_t file, const char *path, int64_t n_row, unsigned char *is_known);

#endif
