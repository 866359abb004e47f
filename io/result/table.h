/* SPDX-License-Identifier: BSD-3-Clause */
/** A table in an HDF5 file: a group of datasets of equal length, one per column of
 *  io/result/columns.h.  Results and models files are read and written through these functions. */
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
  int fd;                         /**< descriptor for writing; -1: read only */
  haddr_t place[MILL_MAX_COLUMN]; /**< byte offset of each column; set if fd is not -1 */
} mill_table;

/** Create the group and its datasets with all their space, but write no value.  One rank alone.
 *  MILL_ERR_OUTPUT; MILL_ERR_STOPPED as mill_table_go_on. */
int mill_table_create(hid_t file, const char *path, const char *group, int64_t n_row,
                      const mill_columns *columns);

/** MILL_ERR_STOPPED if the job shall stop; asked between columns, as making a large output takes
 *  minutes. */
int mill_table_go_on(void);

/** Open a table.  Not collective.
 *
 *  fd       in   borrowed descriptor of the same file, for writing rows without HDF5 and without
 *                other ranks; -1: read only
 *  n_row    in   required number of rows; -1: any
 *  columns  in   required types and shapes; a text of one byte stands for any width
 *  table    out  NULL after a failure; close it before the file
 *
 *  MILL_ERR_OUTPUT, also if a column to be written is not contiguous; MILL_ERR_MEMORY. */
int mill_table_open(hid_t file, int fd, const char *path, const char *group, int64_t n_row,
                    const mill_columns *columns, mill_table **table);

/** Open columns by name, separated by spaces, with the types and shapes that the file has. */
int mill_table_open_named(hid_t file, int fd, const char *path, const char *group, int64_t n_row,
                          const char *names, mill_table **table);
void mill_table_close(mill_table *table); /* NULL is allowed */

/** Part of a table: rows and columns, and where they are packed in memory. */
typedef struct mill_table_part {
  const mill_table *table;
  int first, end; /**< columns [first, end) */
  int64_t n;      /**< rows */
  int64_t start;  /**< first row, if at is NULL */
  /** [n] rows of the table, ascending (key), and their places in memory; NULL: [start, start +
   *  n) */
  const mill_keyed *at;
  char *row; /**< [places][stride] packed rows */
  size_t stride;
  /** Rows per ownership block.  Only this rank writes blocks in which it has rows, so it may read a
   *  gap between its rows and write it back.  0: never write other rows. */
  int64_t n_own;
} mill_table_part;

/** Part of all columns of the rows [start, start + n), packed in row [n][row_size]. */
mill_table_part mill_table_range(const mill_table *table, int64_t start, int64_t n, char *row);

/** Write a part, column by column, into a table opened with a descriptor.
 *  Each write restarts the watchdog's time.  Not collective.  MILL_ERR_OUTPUT, MILL_ERR_MEMORY. */
int mill_table_write(const mill_table_part *part);

/** Count of this process's writes to tables so far, and their bytes; any thread. */
void mill_table_written(int64_t *n_write, int64_t *n_byte);

/** Write the missing values into a range of rows of a new table.  Columns whose missing value is 0
 *  are skipped: a new file reads as zeros.  Failures as above; MILL_ERR_STOPPED as
 *  mill_table_go_on. */
int mill_table_fill(mill_table_part part);

/** Read a part into its rows; part.at needs a table opened with a descriptor.  Not collective.
 *  MILL_ERR_OUTPUT, MILL_ERR_MEMORY. */
int mill_table_read(mill_table_part part);

/** Packed rows that wait to be written, in any order; zero it first. */
typedef struct mill_waiting {
  int64_t n;
  mill_keyed *at; /**< [n] row of the table (key) and its place in row */
  char *row;      /**< [n][row_size] */
  int64_t at_room, row_room;
} mill_waiting;

/** Add a zeroed row for row `at` of the table; *row is valid until the next call. 
 *  MILL_ERR_MEMORY. */
int mill_waiting_add(mill_waiting *rows, const mill_columns *columns, int64_t at, char **row);

/** Sort the rows and return them as a part with all columns. */
mill_table_part mill_waiting_part(mill_waiting *rows, const mill_table *table);
void mill_waiting_free(mill_waiting *rows);

/** HDF5 type of a number of enum mill_column_type, in file and memory; borrowed from HDF5. */
hid_t mill_column_hdf5_type(int type);

/** Enum mill_column_type of a dataset's type; -1: none. */
int mill_column_type_of(hid_t type);

#endif
