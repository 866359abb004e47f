/* SPDX-License-Identifier: BSD-3-Clause */
/** Columns of results and models files: the datasets, their attributes and the packing of rows.
 *  The columns of /fits depend on the library's labels and arms and on the settings.
 *  A test compares docs/use/formats.md with the columns. */
#pragma once

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

/** Where a column's value comes from. */
enum mill_column_source {
  MILL_FROM_RESULT,    /**< a field of mill_fit_result, or of another table's struct */
  MILL_FROM_CATALOG,   /**< a field of mill_catalog_row */
  MILL_FROM_FILE,      /**< index of the input file */
  MILL_FROM_TEXT,      /**< a text, to which the field points */
  MILL_FROM_OFFSET,    /**< first_exposure, counted in /catalog/exposures */
  MILL_FROM_TARGET,    /**< TARGETID, which is written when the file is created */
  MILL_FROM_VRAD_GOOD, /**< 1: STATUS is FITTED and no warning concerns the velocity */
  MILL_FROM_SUCCESS,   /**< 1: STATUS is FITTED and RVS_WARN is 0 */
  MILL_FROM_BACKEND,   /**< mill_columns.backend */
  MILL_FROM_POSTERIOR, /**< a field of mill_posterior; missing value if the row has none */
  MILL_FROM_DRAWS,     /**< samples of the posterior */
  MILL_FROM_CRC,       /**< CRC-32 of the packed row before this column */
  MILL_N_SOURCE
};

typedef struct mill_column {
  char name[MILL_MAX_NAME + 18];
  int type;               /**< enum mill_column_type */
  int n_value;            /**< values per row; for MILL_TYPE_TEXT bytes */
  int source;             /**< enum mill_column_source */
  int vector;             /**< 1: the dataset is [n_row][n_value], even if n_value is 1 */
  size_t field;           /**< offset of the first value in the source's struct */
  size_t at;              /**< offset in a packed row */
  size_t n_byte;          /**< bytes in a packed row */
  double missing;         /**< value in rows that were never written */
  char unit[48];          /**< empty: none */
  const char *text;       /**< description; "%s" stands for the label or arm */
  char of[MILL_MAX_NAME]; /**< name of the label or arm */
} mill_column;

enum {
  MILL_MAX_COLUMN = 68 + 6 * MILL_MAX_LABEL + 12 * MILL_MAX_ARM,
  MILL_MAX_ROW_VALUES = MILL_MAX_DRAW * MILL_MAX_PAR /**< most values of a column per row */
};

/** Columns of a table.  A packed row holds the values of all columns in table order, little-endian,
 *  without gaps.  /fits begins with TARGETID and ends with CRC and STATUS.  CRC or CATALOG_CRC
 *  covers the row's bytes before it. */
typedef struct mill_columns {
  int n_column;
  mill_column column[MILL_MAX_COLUMN];
  size_t row_size;               /**< bytes of a packed row */
  int i_target, i_crc, i_status; /**< index of TARGETID, CRC or CATALOG_CRC, STATUS; 0: none */
  uint8_t backend;               /**< this rank's enum mill_row_backend; set by the caller */
} mill_columns;

/** Optional columns of /fits, and what they depend on. */
enum mill_columns_with {
  MILL_WITH_OFFSETS = 1,   /**< the key velocity_offsets */
  MILL_WITH_BACKEND = 2,   /**< BACKEND: ranks fit on several backends */
  MILL_WITH_POSTERIOR = 4, /**< `starmill sample` */
  MILL_WITH_LIBRARY = 8,   /**< LIBRARY: several libraries */
  MILL_WITH_EPOCHS = 16,   /**< the key epochs */
  MILL_WITH_BINARIES = 32  /**< the key binaries */
};

/** All optional columns of a fit; no label or arm may have one of their names. */
enum {
  MILL_WITH_ANY_FIT = MILL_WITH_OFFSETS | MILL_WITH_BACKEND | MILL_WITH_LIBRARY | MILL_WITH_EPOCHS |
                      MILL_WITH_BINARIES
};

/** The column POST_DRAWS, with n samples per star. */
#define MILL_WITH_DRAWS(n) ((n) << 8)

/** Values of BACKEND; files keep them, so never renumber. */
enum mill_row_backend {
  MILL_ROW_BACKEND_NONE = 0,
  MILL_ROW_BACKEND_CPU = 1,
  MILL_ROW_BACKEND_GPU = 2
};

/** Make the columns of /fits.
 *
 *  where  path of the library, for messages
 *  with   bits of enum mill_columns_with
 *
 *  MILL_ERR_LIBRARY: two columns would have the same name, or HDF5 does not allow a name. */
int mill_columns_fits(const mill_library *lib, const char *where, int with, mill_columns *columns);

/** Other tables of a result and of a models file. */
enum mill_table_kind {
  MILL_TABLE_CATALOG,
  MILL_TABLE_EXPOSURES, /**< /catalog/exposures; fields: arrays of mill_file_index */
  MILL_TABLE_FILES,     /**< /catalog/files; fields of mill_input_file */
  MILL_TABLE_EPOCHS,    /**< /epochs; a packed row is a mill_epoch_result */
  MILL_TABLE_MODELS,    /**< /models of the models file, a row per exposure */
  MILL_TABLE_ARM        /**< /models/ARM: model, and wavelengths if these differ among rows */
};

enum { MILL_N_FILE_TEXT = 5 };

/** Make the columns of a table of this kind.
 *
 *  length  /catalog/files: [MILL_N_FILE_TEXT] bytes of each text column
 *          /models/ARM: [2] pixels of flux and of wavelength (0: all rows share the wavelengths)
 *          other tables: NULL */
void mill_columns_of(enum mill_table_kind kind, const int *length, mill_columns *columns);

/** Append a column to a table; row_size grows. */
mill_column *mill_columns_add(mill_columns *columns, const char *name, int type, int n_value);

/** Index of the column with this name; -1: none. */
int mill_columns_find(const mill_columns *columns, const char *name);

/** Pack a result into row [row_size], except TARGETID and CRC.  All NaNs get the same bits. */
void mill_columns_pack(const mill_columns *columns, const mill_fit_result *result, char *row);

/** Pack an epoch into row [row_size]. */
void mill_columns_pack_epoch(const mill_columns *columns, const mill_epoch_result *epoch,
                             char *row);

/** First value of an integer column in a packed row. */
int64_t mill_column_integer(const mill_column *column, const char *row);

/** CRC-32 (zlib) of the bytes of a packed row before its CRC column; _set_crc stores it there. */
uint32_t mill_columns_crc(const mill_columns *columns, const char *row);
void mill_columns_set_crc(const mill_columns *columns, char *row);

/** Write the description, with the label or arm filled in, to out [size]. */
void mill_column_description(const mill_column *column, char *out, size_t size);

/** Bytes per value of an enum mill_column_type; 1 for texts. */
size_t mill_column_type_size(int type);
