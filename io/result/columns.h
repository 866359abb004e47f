/* SPDX-License-Identifier: BSD-3-Clause */
/** The columns of the result file: one table, from which the datasets, their
 *  attributes and the packing of rows follow; a test compares docs/use/formats.md.
 *
 *  /fits depends on the library (labels and arms), so its table is built at run
 *  time; /catalog is always the same.
 */
#ifndef MILL_COLUMNS_H
#define MILL_COLUMNS_H

#include "io/catalog/catalog_row.h"
#include "kernels/data/library.h"
#include "kernels/data/result.h"

enum mill_column_type {
  MILL_TYPE_F64,
  MILL_TYPE_I64,
  MILL_TYPE_I32,
  MILL_TYPE_U32,
  MILL_TYPE_U8,
  MILL_TYPE_TEXT /**< fixed length, n_value bytes, padded with zeros, UTF-8 */
};

/** Source of a value. */
enum mill_column_source {
  MILL_FROM_RESULT,    /**< a field of mill_fit_result */
  MILL_FROM_CATALOG,   /**< a field of mill_catalog_row */
  MILL_FROM_FILE,      /**< index of the input file */
  MILL_FROM_OFFSET,    /**< first_exposure, counted over all files */
  MILL_FROM_TARGET,    /**< TARGETID, written when the file is created */
  MILL_FROM_VRAD_GOOD, /**< STATUS = FITTED and no warning that spoils a velocity */
  MILL_FROM_SUCCESS,   /**< RVS_WARN = 0 and STATUS = FITTED */
  MILL_FROM_BACKEND,   /**< mill_columns.backend */
  MILL_FROM_POSTERIOR, /**< a field of mill_posterior; missing in rows without one */
  MILL_FROM_DRAWS,     /**< the samples behind it */
  MILL_FROM_CRC,       /**< CRC-32 of the packed row before it */
  MILL_N_SOURCE
};

typedef struct mill_column {
  char name[MILL_MAX_NAME + 18];
  int type;               /**< enum mill_column_type */
  int n_value;            /**< values per row; bytes of a MILL_TYPE_TEXT */
  int source;             /**< enum mill_column_source */
  int vector;             /**< dataset is [n_row][n_value] although n_value may be 1 */
  size_t field;           /**< offset of the first value in the source's struct */
  size_t at;              /**< offset in a packed row */
  size_t n_byte;          /**< in a packed row */
  double missing;         /**< fill value: of rows that are not done */
  char unit[48];          /**< empty: none */
  const char *text;       /**< description, "%s" stands for the label or arm */
  char of[MILL_MAX_NAME]; /**< that label or arm */
} mill_column;

enum {
  MILL_MAX_COLUMN = 64 + 3 * MILL_MAX_LABEL + 10 * MILL_MAX_ARM,
  MILL_MAX_ROW_VALUES = MILL_MAX_DRAW * MILL_MAX_PAR /**< of one column */
};

/** A packed row holds the values of all columns without gaps, little-endian, in
 *  table order: of /fits TARGETID first, CRC and STATUS last.  CRC, or CATALOG_CRC, covers the bytes
 *  before it. */
typedef struct mill_columns {
  int n_column;
  mill_column column[MILL_MAX_COLUMN];
  size_t row_size;                       /**< bytes of a packed row */
  size_t widest;                         /**< bytes of the widest column in it */
  int i_target, i_crc, i_status, i_warn; /**< columns with a role of their own */
  int i_n_pix[MILL_MAX_ARM];             /**< good pixels, by arm; of /fits only */
  uint8_t backend; /**< of this rank, enum mill_row_backend; set by the caller */
} mill_columns;

/** Columns that not every run has. */
enum mill_columns_with {
  MILL_WITH_OFFSETS = 1,   /**< of velocity_offsets */
  MILL_WITH_BACKEND = 2,   /**< BACKEND: ranks fit on several backends */
  MILL_WITH_POSTERIOR = 4, /**< of `starmill sample` */
  MILL_WITH_LIBRARY = 8,   /**< LIBRARY: several libraries */
  MILL_WITH_EPOCHS = 16,   /**< of epochs */
  MILL_WITH_BINARIES = 32  /**< of two stars */
};

/** Those that some fit has; names of labels and arms must leave them alone. */
enum {
  MILL_WITH_ANY_FIT = MILL_WITH_OFFSETS | MILL_WITH_BACKEND | MILL_WITH_LIBRARY | MILL_WITH_EPOCHS |
                      MILL_WITH_BINARIES
};

/** And POST_DRAWS with n samples of each star. */
#define MILL_WITH_DRAWS(n) ((n) << 8)

/** BACKEND: where a row was fitted.  Never renumber: files keep them. */
enum mill_row_backend {
  MILL_ROW_BACKEND_NONE = 0,
  MILL_ROW_BACKEND_CPU = 1,
  MILL_ROW_BACKEND_GPU = 2
};

/** Columns of /fits.  with: bits of enum mill_columns_with.  where: of the library, for messages.
 *  MILL_ERR_LIBRARY when two of them would share a name, or one cannot name a column. */
int mill_columns_fits(const mill_library *lib, const char *where, int with, mill_columns *columns);

/** Columns of /catalog, and those of /epochs, whose fields are of mill_epoch_result. */
void mill_columns_catalog(mill_columns *columns);
void mill_columns_epochs(mill_columns *columns);

/** Put a result into a packed row [row_size]; TARGETID, CRC are left alone.
 *  NaNs all get the same bits, so that equal results are equal files. */
void mill_columns_pack(const mill_columns *columns, const mill_fit_result *result, char *row);

/** Store CRC-32 (zlib's) of a packed row's bytes before its CRC. */
void mill_columns_set_crc(const mill_columns *columns, char *row);

/** Description with the label or arm filled in. */
void mill_column_description(const mill_column *column, char *out, size_t size);

/** Bytes of a value of enum mill_column_type; of a text's byte. */
size_t mill_column_type_size(int type);

#endif
