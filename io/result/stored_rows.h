/* SPDX-License-Identifier: BSD-3-Clause */
/** Rows of a result in blocks, as stored: the file itself gives columns, types and the order of
 *  their CRC, so no library is needed. */
#ifndef MILL_STORED_ROWS_H
#define MILL_STORED_ROWS_H

#include <hdf5.h>
#include <stdint.h>

#include "io/hdf5/hdf5_util.h"
#include "io/result/columns.h"
#include "io/result/epoch_rows.h"

enum { MILL_STORED_MAX_COLUMN = MILL_MAX_COLUMN + 2 };

/** A column of the file, and where its value is in a packed row. */
typedef struct mill_stored_column {
  char name[MILL_MAX_NAME + 24]; /**< with its group: "fits/VRAD" */
  mill_h5_array array;
  int type; /**< enum mill_column_type */
  int n_dim;
  int64_t n_value; /**< values a row; of a text 1 */
  size_t at, n_byte;
} mill_stored_column;

typedef struct mill_stored_rows {
  const char *path; /**< borrowed, for messages */
  int64_t n_row;
  int n_column, i_crc;
  mill_stored_column column[MILL_STORED_MAX_COLUMN]; /**< of /fits: CRC and STATUS last */
  size_t row_size, widest;
  mill_epoch_rows *epochs; /**< those of /fits have; owned */
  int i_epoch_crc;
} mill_stored_rows;

/** Open /fits, or /catalog, whose columns are those of mill_columns_catalog, of an open result into
 *  zeroed rows; close them also after a failure.  MILL_ERR_OUTPUT: the file is damaged. */
int mill_stored_rows_fits(hid_t file, const char *path, int64_t n_row, mill_stored_rows *rows);
int mill_stored_rows_catalog(hid_t file, const char *path, int64_t n_row, mill_stored_rows *rows);

/** Read rows [at, at + n).
 *
 *  row    [n][row_size]  out  packed
 *  value  [n][widest]         scratch
 *
 *  MILL_ERR_OUTPUT. */
int mill_stored_rows_read(const mill_stored_rows *rows, int64_t at, int64_t n, char *row,
                          char *value);

/** Does the CRC of a packed row agree? */
int mill_stored_row_agrees(const mill_stored_rows *rows, const char *row);

/** STATUS of a packed row of /fits; *is_whole: it is done and its CRC agrees. */
int32_t mill_stored_row_status(const mill_stored_rows *rows, const char *row, int *is_whole);

void mill_stored_rows_close(mill_stored_rows *rows);

#endif
