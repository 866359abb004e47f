/** The columns of an exported table, each with its name, unit and description, and where its value
 *  is in the rows of the result. */
#ifndef MILL_OUT_COLUMNS_H
#define MILL_OUT_COLUMNS_H

#include "io/export/export_source.h"
#include "io/export/product_file.h"

enum { MILL_OUT_MAX_COLUMN = MILL_STORED_MAX_COLUMN + 48 };

typedef struct mill_out_column {
  char name[MILL_MAX_NAME + 24], unit[48], text[320];
  int is_catalog;    /**< of /catalog, else of /fits */
  int type;          /**< enum mill_column_type, of the source */
  int64_t n_value;   /**< values a row; bytes of a text */
  size_t at, n_byte; /**< in the source's row; n_byte 0: the result has no such column */
  char form;         /**< letter of its FITS type */
  size_t out_byte;   /**< of its FITS value */
} mill_out_column;

typedef struct mill_out_table {
  int n_column;
  mill_out_column column[MILL_OUT_MAX_COLUMN];
  size_t row_size;    /**< of a FITS row */
  size_t source_size; /**< of the values as the result has them */
  char order[512];    /**< of the parameters of COVAR: "VRAD VSINI TEFF ..." */
} mill_out_table;

/** All columns of /fits, then those of /catalog but TARGETID.  MILL_ERR_OUTPUT. */
int mill_out_whole(const mill_export_source *source, mill_out_table *table);

/** The columns of rvspecfit's RVTAB in its order and types, with the arms and further labels of the
 *  result, then some that only starmill has. */
int mill_out_rvtab(const mill_export_source *source, mill_out_table *table);

/** Row k of the last mill_export_read as a row of a FITS table, out [row_size]. */
void mill_out_pack(const mill_out_table *table, const mill_export_source *source, int64_t k,
                   char *out);

/** Where the value of a column is in row k of the last mill_export_read; NULL: there is none. */
const char *mill_out_value(const mill_out_column *column, const mill_export_source *source,
                           int64_t k);

/** Make the table as the last HDU, without rows, with units, descriptions, and the meanings of
 *  warnings and states as keywords. */
int mill_out_create(const mill_out_table *table, const char *extname, const mill_product *product,
                    fitsfile *out);

#endif
