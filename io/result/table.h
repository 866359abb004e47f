/* SPDX-License-Identifier: BSD-3-Clause */
/** A table in an HDF5 file: a group of equally long datasets, one per column of
 *  io/result/columns.h.  Results and models files are read and written through these functions. */
#pragma once

#include <hdf5.h>

#include "io/result/columns.h"
#include "kernels/base/memory.h"
#include "src/system/order.h"

typedef struct mill_table {
  const char *path; /**< of the file, for messages; borrowed */
  hid_t file;       /**< borrowed */
  char group[MILL_MAX_NAME + 16];
  int64_t n_row;
  mill_columns columns;
  hid_t dataset[MILL_MAX_COLUMN];
  int fd;                         /**< descriptor of the file, for writing; -1: read only */
  haddr_t place[MILL_MAX_COLUMN]; /**< byte offset of each column; set if fd is not -1 */
} mill_table;

/** Create the group and its datasets with all their space, without values.  Call on one rank.
 *  MILL_ERR_OUTPUT; MILL_ERR_STOPPED: the job shall stop. */
int mill_table_create(hid_t file, const char *path, const char *group, int64_t n_row,
                      const mill_columns *columns);

/** Fail with MILL_ERR_STOPPED if the job shall stop; called between columns of a large output. */
int mill_table_go_on(void);

/** Open a table.  Not collective.
 *
 *  fd       in   borrowed descriptor of the file, by which this rank writes rows without HDF5; -1:
 *                read only
 *  n_row    in   required number of rows; -1: any
 *  names    in   columns to open, separated by spaces, of any type; "": open `columns` instead
 *  columns  in   columns with required types and shapes; a text of one byte allows any width
 *  table    out  NULL after a failure; close it before the file
 *
 *  MILL_ERR_OUTPUT, also if a column to be written is not contiguous; MILL_ERR_MEMORY. */
int mill_table_open(hid_t file, int fd, const char *path, const char *group, int64_t n_row,
                    const char *names, const mill_columns *columns, mill_table **table);
void mill_table_close(mill_table *table); /* NULL is allowed */
MILL_CLOSER(mill_table, mill_table_close)

/** Part of a table: rows and columns, and their packed rows in memory. */
typedef struct mill_table_part {
  const mill_table *table;
  int first, end; /**< columns [first, end) */
  int64_t n;      /**< number of rows */
  int64_t start;  /**< if at is NULL: the part has the rows [start, start + n) */
  /** [n] any rows, ascending.  key: number of the row in the table; place: its index in `row` */
  const mill_keyed *at;
  char *row; /**< [places][stride] packed rows */
  size_t stride;
  /** Rows per ownership block.  Only this rank writes to the blocks of its rows, so a write may
   *  rewrite the gaps between the rows.  0: leave the gaps untouched. */
  int64_t n_own;
} mill_table_part;

/** Return the part with all columns of rows [start, start + n), packed in row [n][row_size]. */
mill_table_part mill_table_range(const mill_table *table, int64_t start, int64_t n, char *row);

/** Write a part, column by column; its table must be open with a descriptor (fd).  Each write
 *  restarts the watchdog's time.  Not collective.  MILL_ERR_OUTPUT, MILL_ERR_MEMORY. */
int mill_table_write(const mill_table_part *part);

/** Number and bytes of this process's writes to tables so far; any thread. */
void mill_table_written(int64_t *n_write, int64_t *n_byte);

/** Fill a range of rows of a new table with missing values; unwritten rows read as zeros.
 *  Returns the codes of mill_table_write and mill_table_go_on. */
int mill_table_fill(mill_table_part part);

/** Read rows of the table into part.row.  Scattered rows (part.at) are read by the table's
 *  descriptor, which must be open.  Not collective.  MILL_ERR_OUTPUT, MILL_ERR_MEMORY. */
int mill_table_read(mill_table_part part);

/** Packed rows waiting to be written, in any order; zero it before use. */
typedef struct mill_waiting {
  int64_t n;
  mill_keyed *at; /**< [n] key: row of the table; place: its index in row */
  char *row;      /**< [n][row_size] */
  int64_t at_room, row_room;
} mill_waiting;

/** Add a zeroed packed row for row `at` of the table.  *row is valid until the next call.
 *  MILL_ERR_MEMORY. */
int mill_waiting_add(mill_waiting *rows, const mill_columns *columns, int64_t at, char **row);

/** Sort the rows by their row in the table, and return them as a part with all columns. */
mill_table_part mill_waiting_part(mill_waiting *rows, const mill_table *table);
void mill_waiting_free(mill_waiting *rows);

/** Return the HDF5 type of a numeric enum mill_column_type.  The caller must not close it. */
hid_t mill_column_hdf5_type(int type);

/** The enum mill_column_type of an HDF5 type; -1: none. */
int mill_column_type_of(hid_t type);
