/* SPDX-License-Identifier: BSD-3-Clause */
/** A result opened for reading its rows, also while a run writes it.  The file describes its
 *  columns; neither library nor MPI is needed. */
#ifndef MILL_RESULT_TABLE_H
#define MILL_RESULT_TABLE_H

#include <stdint.h>

#include "io/result/stored_rows.h"

typedef struct mill_result_table {
  mill_h5_file file;
  const char *path; /**< borrowed */
  int64_t n_row;
  mill_stored_rows fits, catalog;
} mill_result_table;

/** Open.  Fails with code: path is no result of this starmill; MILL_ERR_OUTPUT: it is damaged.
 *  Close it also after a failure; a zeroed one may be closed too. */
int mill_result_table_open(const char *path, int code, mill_result_table *table);
void mill_result_table_close(mill_result_table *table);

#endif
