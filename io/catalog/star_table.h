/* SPDX-License-Identifier: BSD-3-Clause */
/** What tables of parameters by star share: FITS or HDF5, the names of the columns, and which star a
 *  row is of. */
#ifndef MILL_STAR_TABLE_H
#define MILL_STAR_TABLE_H

#include "io/catalog/catalog_row.h"
#include "io/files/sha256.h"
#include "io/fits/fits_file.h"
#include "io/hdf5/hdf5_util.h"
#include "kernels/data/library.h"

/** The names that a parameter may have in a table; the second is NULL where there is one. */
void mill_star_table_names(const mill_library *lib, int i_par, const char *name[2]);

/** Is it an HDF5 file?  what: "a FITS table or ...", for the message.  MILL_ERR_CONFIG. */
int mill_star_table_is_hdf5(const char *path, const char *what, int *is_hdf5);

/** The code of reading a table for a configuration's key: unreadable spectra leave a finished run,
 *  an unreadable table does not. */
int mill_star_table_code(int err, int is_hdf5, const char *key);

/** Has this HDU the column?  name NULL: no. */
int mill_star_table_has(mill_fits_file *file, int i_hdu, const char *name);

/* ---- which star a row is of ---- */

/** What stars are found by. */
enum mill_star_key {
  MILL_BY_TARGETID,
  MILL_BY_IDENTIFIER,
  MILL_BY_OBJECT,
  MILL_BY_PLACE, /**< RA, DEC within MILL_SAME_STAR_ARCSEC */
  MILL_N_STAR_KEY
};
#define MILL_SAME_STAR_ARCSEC 1.0

/** The columns of these keys; places are in the first pair or in the second. */
enum {
  MILL_STAR_RA = MILL_BY_PLACE,
  MILL_STAR_DEC,
  MILL_STAR_RA_2,
  MILL_STAR_DEC_2,
  MILL_N_STAR_COLUMN
};
extern const mill_fits_wish mill_star_column[MILL_N_STAR_COLUMN];

/** How many of these columns are read of a table: the names' where it has any, else those of places
 *  too; 0: it has no columns to find stars by.  has: does `table` have this column? */
int mill_star_columns_wanted(int (*has)(const void *table, const char *name), const void *table);

/** The same of a table of FITS, and read them: v [MILL_N_STAR_COLUMN], zeroed before and freed by
 *  mill_fits_values_free also after a failure.  MILL_ERR_INPUT. */
int mill_star_columns_of(mill_fits_file *file, int i_hdu);
int mill_star_columns_read(mill_fits_file *file, int i_hdu, mill_fits_values *v);

/** Texts of a dataset [n_row] of HDF5 as those of a column of FITS: without trailing blanks, which
 *  other writers pad with. */
int mill_star_texts_read(const mill_h5_file *file, const char *name, int64_t n_row,
                         mill_fits_values *out);

/** A row of a table that is found by one key. */
typedef struct mill_star_row {
  int64_t row;
  int rank, is_last; /* rank: of its key in the order */
  int64_t id;
  const char *name; /* NULL: it is found by its number or place */
  double ra_deg, dec_deg;
} mill_star_row;

/** The rows of a table by the stars that they are of. */
typedef struct mill_star_rows {
  const char *key, *path;          /**< of the configuration, for messages; borrowed */
  const enum mill_star_key *order; /**< [MILL_N_STAR_KEY]; borrowed */
  mill_star_row *row;              /**< [n_row] in the order of the keys, one a star but by place */
  int64_t n_row, n_repeated;       /**< n_repeated: rows that a star has beyond the first */
  mill_star_row repeated;          /**< one of them */
  char *text[2];                   /**< behind names, owned */
} mill_star_rows;

/** Each row is found by the first key of rows->order that it has, or not at all.  rows has key, path
 *  and order.
 *
 *  v        [MILL_N_STAR_COLUMN]  columns [n_row], those that are wanted; their texts go to rows
 *  is_last  [n_row]               1: the row counts where its star has no other; NULL: none is
 */
int mill_star_rows_make(mill_fits_values *v, int64_t n_row, const unsigned char *is_last,
                        mill_star_rows *rows);
void mill_star_rows_clear(mill_star_rows *rows);

/** The table's row of a star, -1: none.  MILL_ERR_CONFIG: two rows are at the star's place. */
int mill_star_rows_find(const mill_star_rows *rows, const mill_catalog_row *star, int64_t *row);

/** Is any row found by this key? */
int mill_star_rows_by(const mill_star_rows *rows, enum mill_star_key key);

/** "TARGETID 39", for messages. */
const char *mill_star_row_text(const mill_star_rows *rows, const mill_star_row *row,
                               char text[128]);

/** Add the key of a row to a digest. */
void mill_star_row_hash(const mill_star_row *row, mill_sha256 *sha);

#endif
