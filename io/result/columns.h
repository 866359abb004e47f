/* SPDX-License-Identifier: BSD-3-Clause */
/** The columns of the result and the models file.  Datasets, their attributes and the packing of
 *  rows follow from these tables; a test compares docs/use/formats.md.
 *
 *  The columns of /fits depend on the library (labels and arms) and on the settings.
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
  MILL_TYPE_TEXT, /**< fixed length, n_value bytes, padded with zeros, UTF-8 */
  MILL_TYPE_F32
};

/** Source of a value. */
enum mill_column_source {
  MILL_FROM_RESULT,    /**< a field of mill_fit_result, or of the table's own struct */
  MILL_FROM_CATALOG,   /**< a field of mill_catalog_row */
  MILL_FROM_FILE,      /**< index of the input file */
  MILL_FROM_TEXT,      /**< a text to which a field points */
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
  double missing;         /**< fill value: of rows that were never written */
  char unit[48];          /**< empty: none */
  const char *text;       /**< description, "%s" stands for the label or arm */
  char of[MILL_MAX_NAME]; /**< that label or arm */
} mill_column;

enum {
  MILL_MAX_COLUMN = 64 + 3 * MILL_MAX_LABEL + 10 * MILL_MAX_ARM,
  MILL_MAX_ROW_VALUES = MILL_MAX_DRAW * MILL_MAX_PAR /**< of one column */
};

/** A packed row holds the values of all columns without gaps, little-endian, in table order.
 *  /fits begins with TARGETID and ends with CRC and STATUS.  CRC, or CATALOG_CRC, covers the bytes
 *  before it. */
typedef struct mill_columns {
  int n_column;
  mill_column column[MILL_MAX_COLUMN];
  size_t row_size;               /**< bytes of a packed row */
  int i_target, i_crc, i_status; /**< TARGETID; CRC or CATALOG_CRC; STATUS; 0: none */
  int i_n_pix[MILL_MAX_ARM];     /**< good pixels, by arm; of /fits only */
  uint8_t backend;               /**< of this rank, enum mill_row_backend; set by the caller */
} mill_columns;

/** Optional columns of /fits. */
enum mill_columns_with {
  MILL_WITH_OFFSETS = 1,   /**< of velocity_offsets */
  MILL_WITH_BACKEND = 2,   /**< BACKEND: ranks fit on several backends */
  MILL_WITH_POSTERIOR = 4, /**< of `starmill sample` */
  MILL_WITH_LIBRARY = 8,   /**< LIBRARY: several libraries */
  MILL_WITH_EPOCHS = 16,   /**< of epochs */
  MILL_WITH_BINARIES = 32  /**< of two stars */
};

/** All optional columns of a fit; names of labels and arms must differ from theirs. */
enum {
  MILL_WITH_ANY_FIT = MILL_WITH_OFFSETS | MILL_WITH_BACKEND | MILL_WITH_LIBRARY | MILL_WITH_EPOCHS |
                      MILL_WITH_BINARIES
};

/** POST_DRAWS with n samples of each star. */
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

/** The other tables of a result and of a models file. */
enum mill_table_kind {
  MILL_TABLE_CATALOG,
  MILL_TABLE_EXPOSURES, /**< /catalog/exposures; fields are the arrays of mill_file_index */
  MILL_TABLE_FILES,     /**< /catalog/files; of mill_input_file */
  MILL_TABLE_EPOCHS,    /**< of mill_epoch_result, whose bytes are a packed row */
  MILL_TABLE_MODELS,    /**< /models of the models file, a row for each exposure */
  MILL_TABLE_ARM        /**< /models/ARM: models, and the wavelengths of each row */
};

enum { MILL_N_FILE_TEXT = 5 };

/** Columns of such a table.
 *
 *  length  /catalog/files: bytes of its texts, [MILL_N_FILE_TEXT], in order of its columns.
 *          Arm: pixels [2] of flux and of wavelength, which is 0 where all rows share their
 *          wavelengths.  Other tables: NULL. */
void mill_columns_of(enum mill_table_kind kind, const int *length, mill_columns *columns);

/** Add a column at the end of a table, whose row_size grows. */
mill_column *mill_columns_add(mill_columns *columns, const char *name, int type, int n_value);

/** Column of that name; -1: none. */
int mill_columns_find(const mill_columns *columns, const char *name);

/** Put a result into a packed row [row_size]; TARGETID and CRC are left alone.
 *  All NaNs get the same bits, so that equal results are equal files. */
void mill_columns_pack(const mill_columns *columns, const mill_fit_result *result, char *row);

/** The same of an epoch. */
void mill_columns_pack_epoch(const mill_columns *columns, const mill_epoch_result *epoch,
                             char *row);

/** The first value of an integer column in a packed row. */
int64_t mill_column_integer(const mill_column *column, const char *row);

/** CRC-32 (zlib's) of the bytes of a packed row before its CRC; store it there. */
uint32_t mill_columns_crc(const mill_columns *columns, const char *row);
void mill_columns_set_crc(const mill_columns *columns, char *row);

/** Description with the label or arm filled in. */
void mill_column_description(const mill_column *column, char *out, size_t size);

/** Bytes of a value of enum mill_column_type; a text's value is a byte. */
size_t mill_column_type_size(int type);

#endif
