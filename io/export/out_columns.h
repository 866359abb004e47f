/* SPDX-License-Identifier: BSD-3-Clause */
/** The columns of an exported table: name, unit and description of each, and the place of its value
 *  in the rows of the result. */
#ifndef MILL_OUT_COLUMNS_H
#define MILL_OUT_COLUMNS_H

#include "io/export/export_source.h"
#include "io/export/product_file.h"

enum { MILL_OUT_MAX_COLUMN = MILL_STORED_MAX_COLUMN + 48 };

typedef struct mill_out_column {
  char name[MILL_MAX_NAME + 24], unit[48], text[320];
  const mill_stored_column *from; /**< borrowed from the source; NULL: it has none, all missing */
  char form;                      /**< letter of its FITS type */
  int64_t n_value;                /**< values a row; bytes of a text */
  size_t out_byte;                /**< of its FITS value */
} mill_out_column;

typedef struct mill_out_table {
  int n_column;
  mill_out_column column[MILL_OUT_MAX_COLUMN];
  size_t row_size; /**< of a FITS row */
  char order[512]; /**< of the parameters of COVAR: "VRAD VSINI TEFF ..." */
} mill_out_table;

/** All columns of /fits, then those of /catalog but TARGETID.  MILL_ERR_OUTPUT. */
int mill_out_whole(const mill_export_source *source, mill_out_table *table);

/** The columns of rvspecfit's RVTAB in its order and types, with the arms and further labels of the
 *  result, then some that only starmill has. */
int mill_out_rvtab(const mill_export_source *source, mill_out_table *table);

/** Append the table as a new HDU with units, descriptions, and the meanings of warnings and states
 *  as keywords, and rows [lo, hi) of the result.  MILL_ERR_OUTPUT, MILL_ERR_STOPPED. */
int mill_out_write(const mill_out_table *table, const char *extname, mill_export_source *source,
                   int64_t lo, int64_t hi, const mill_product *product);

#endif
