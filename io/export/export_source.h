/* SPDX-License-Identifier: BSD-3-Clause */
/** A result to export: its rows in blocks, its inputs, and its provenance. */
#ifndef MILL_EXPORT_SOURCE_H
#define MILL_EXPORT_SOURCE_H

#include <stdint.h>

#include "io/result/result_inputs.h"
#include "io/result/result_table.h"

typedef struct mill_export_source {
  mill_result_table table;
  /** provenance */
  char run_id[64], version[64], revision[64], library[256], library_hash[80];
  char *command;
  mill_recorded_inputs inputs;
  /** the rows of the last mill_export_read */
  int64_t block_rows; /**< how many it reads at most */
  char *fits_row, *catalog_row, *scratch;
} mill_export_source;

/** Open a finished result of starmill fit or sample; path is borrowed.
 *  MILL_ERR_USAGE: there is none at path, or it is not finished; MILL_ERR_OUTPUT: it is damaged;
 *  MILL_ERR_MEMORY. */
int mill_export_open(const char *path, mill_export_source **out);

/** NULL is allowed. */
void mill_export_close(mill_export_source *source);

/** Read rows [at, at + n), n at most block_rows, into fits_row and catalog_row.
 *  MILL_ERR_OUTPUT: the CRC of a row is wrong; MILL_ERR_STOPPED: the job is to stop. */
int mill_export_read(mill_export_source *source, int64_t at, int64_t n);

/** Rows of input i: the first, and how many. */
int64_t mill_export_row_start(const mill_export_source *source, int i);
int64_t mill_export_n_row(const mill_export_source *source, int i);

/** MILL_ERR_STOPPED when the job is to stop. */
int mill_export_go_on(void);

#endif
