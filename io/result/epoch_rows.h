/* SPDX-License-Identifier: BSD-3-Clause */
/** Rows of /epochs: the velocity of each exposure, in the order of /catalog/exposures.  They are
 *  part of their star's row: its EPOCH_CRC is that of these rows, each the bytes of a
 *  mill_epoch_result. */
#ifndef MILL_EPOCH_ROWS_H
#define MILL_EPOCH_ROWS_H

#include <hdf5.h>

#include "io/hdf5/hdf5_util.h"
#include "io/result/columns.h"
#include "src/ranks/mpi_context.h"

enum { MILL_N_EPOCH_COLUMN = 7 };

/** A row that waits to be written. */
typedef struct mill_epoch_item {
  int64_t row; /**< of /epochs */
  mill_epoch_result epoch;
} mill_epoch_item;

typedef struct mill_epoch_rows {
  const char *path; /**< borrowed, for messages */
  int64_t n_row;    /**< of /fits */
  int64_t n_exposure;
  hid_t file; /**< borrowed */
  mill_columns columns;
  hid_t dataset[MILL_N_EPOCH_COLUMN];
} mill_epoch_rows;

/** Create /epochs with all rows missing.  One rank alone. */
int mill_epoch_rows_create(hid_t file, const char *path, int64_t n_exposure);

/** Open those of a result that has them (*rows is NULL where it has none); close them also after a
 *  failure.  MILL_ERR_OUTPUT, MILL_ERR_MEMORY. */
int mill_epoch_rows_open(hid_t file, const char *path, int64_t n_row, mill_epoch_rows **rows);
void mill_epoch_rows_close(mill_epoch_rows *rows); /* NULL is allowed */

/** All NaNs alike, and the CRC-32 (zlib's) of n rows. */
uint32_t mill_epoch_rows_seal(mill_epoch_result *epoch, int64_t n);

/** Collective: write items [n] (sorted here). */
int mill_epoch_rows_write(const mill_epoch_rows *rows, const mill_mpi *mpi, mill_epoch_item *item,
                          int64_t n);

/** CRC-32 of the exposures of each of the rows [at, at + n) of /fits; crc [n] out.  Not
 *  collective. */
int mill_epoch_rows_crc(const mill_epoch_rows *rows, int64_t at, int64_t n, uint32_t *crc);

#endif
