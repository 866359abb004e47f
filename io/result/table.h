/* SPDX-License-Identifier: BSD-3-Clause */
/** A table of an HDF5 file: a group of datasets of equal length, one for each column of
 *  io/result/columns.h.  All rows of a result and of a models file pass through this file. */
#ifndef MILL_TABLE_H
#define MILL_TABLE_H

#include <hdf5.h>

#include "io/result/columns.h"
#include "src/system/order.h"

/** An open table. */
typedef struct mill_table {
  const char *path; /**< of the file, for messages; borrowed */
  hid_t file;       /**< borrowed */
  char group[MILL_MAX_NAME + 16];
  int64_t n_row;
  mill_columns columns;
  hid_t dataset[MILL_MAX_COLUMN];
  int fd;                         /**< to write by; -1: only read */
  haddr_t place[MILL_MAX_COLUMN]; /**< of each column in the file, where rows are written */
} mill_table;

/** Make the group and its datasets with all their space; mill_table_fill writes the missing values.
 *  One rank alone.  MILL_ERR_OUTPUT; MILL_ERR_STOPPED as mill_table_go_on. */
int mill_table_create(hid_t file, const char *path, const char *group, int64_t n_row,
                      const mill_columns *columns);

/** MILL_ERR_STOPPED when the job is to stop.  Making a large output takes minutes: asked between
 *  columns. */
int mill_table_go_on(void);

/** Open a table, whose columns must have these types and shapes; a text of one byte stands for any
 *  width.  n_row -1: as many rows as the file has.  Not collective.
 *
 *  fd     in   -1: only read.  Descriptor of the same file, borrowed, to write rows by: columns are
 *              contiguous, so a rank needs neither the others nor HDF5 for that
 *  table  out  NULL after a failure; to be closed before the file
 *
 *  MILL_ERR_OUTPUT, also when columns that are to be written are stored otherwise; MILL_ERR_MEMORY.
 */
int mill_table_open(hid_t file, int fd, const char *path, const char *group, int64_t n_row,
                    const mill_columns *columns, mill_table **table);

/** The same of columns by their names, which spaces separate; the file gives types and shapes. */
int mill_table_open_named(hid_t file, int fd, const char *path, const char *group, int64_t n_row,
                          const char *names, mill_table **table);
void mill_table_close(mill_table *table); /* NULL is allowed */

/** Some rows and columns of a table, packed in memory. */
typedef struct mill_table_part {
  const mill_table *table;
  int first, end; /**< columns [first, end) */
  int64_t n;      /**< rows */
  int64_t start;  /**< first row, where they follow one another */
  /** [n] row of the table, ascending, and its place in memory; NULL: rows [start, start + n) */
  const mill_keyed *at;
  char *row; /**< [places][stride] packed rows */
  size_t stride;
  /** Rows of an ownership block: this rank alone writes a block in which it has rows, so gaps there
   *  may be read and written again.  0: write the part's rows only. */
  int64_t n_own;
} mill_table_part;

/** All columns of the rows [start, start + n), which lie packed in row [n][row_size]. */
mill_table_part mill_table_range(const mill_table *table, int64_t start, int64_t n, char *row);

/** Write a part, its columns one after the other, into a table that was opened to write.
 *  Each write restarts the watchdog's time.  Not collective.  MILL_ERR_OUTPUT, MILL_ERR_MEMORY. */
int mill_table_write(const mill_table_part *part);

/** Writes of this process to tables so far, and their bytes; any thread. */
void mill_table_written(int64_t *n_write, int64_t *n_byte);

/** Write the missing values of a range of rows of a new table, but for columns whose missing value
 *  is 0, as a new file reads as zeros.  Failures as above; MILL_ERR_STOPPED as
 *  mill_table_go_on. */
int mill_table_fill(mill_table_part part);

/** Read a part into its rows; a list of rows only of a table that was opened to write.
 *  Not collective.  MILL_ERR_OUTPUT, MILL_ERR_MEMORY. */
int mill_table_read(mill_table_part part);

/** Packed rows that wait to be written, in any order.  Zeroed at first. */
typedef struct mill_waiting {
  int64_t n;
  mill_keyed *at; /**< [n] row of the table, place in row */
  char *row;      /**< [n][row_size] */
  int64_t at_room, row_room;
} mill_waiting;

/** Room for one more; *row is zeroed and valid until the next call.  MILL_ERR_MEMORY. */
int mill_waiting_add(mill_waiting *rows, const mill_columns *columns, int64_t at, char **row);

/** All columns of the rows, which are sorted. */
mill_table_part mill_waiting_part(mill_waiting *rows, const mill_table *table);
void mill_waiting_free(mill_waiting *rows);

/** HDF5 type of a number of enum mill_column_type, in file and memory; borrowed from HDF5. */
hid_t mill_column_hdf5_type(int type);

/** Enum mill_column_type of a dataset's type; -1: none. */
int mill_column_type_of(hid_t type);

#endif
