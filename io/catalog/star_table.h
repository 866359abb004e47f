/* SPDX-License-Identifier: BSD-3-Clause */
/** Shared by tables of starting points and of priors: column names, and the row of each star. */
#pragma once

#include "io/catalog/catalog_row.h"
#include "io/files/sha256.h"
#include "io/fits/fits_file.h"
#include "io/hdf5/hdf5_util.h"
#include "kernels/data/library.h"
#include "kernels/data/settings.h"

/** The names that a table may use for a parameter; name[1] is NULL if there is only one. */
void mill_star_table_names(const mill_library *lib, int i_par, const char *name[2]);

/** Get the fit's range of parameter j of lib[0]; for a label, all libraries' ranges together. */
void mill_star_table_range(const mill_library *lib, int n_lib, const mill_fit_settings *set, int j,
                           double range[2]);

/** Is the file HDF5?  what: the expected file ("a FITS table"), for messages.  MILL_ERR_CONFIG. */
int mill_star_table_is_hdf5(const char *path, const char *what, int *is_hdf5);

/** Turn a failure to read the table of a configuration key into MILL_ERR_CONFIG, which stops the
 *  run; MILL_ERR_INPUT would only skip a spectrum. */
int mill_star_table_code(int err, int is_hdf5, const char *key);

/** Does this HDU have a column `name`?  Yes also if several have this name: mill_fits_column_find
 *  refuses them later.  name NULL: no. */
int mill_star_table_has(mill_fits_file *file, int i_hdu, const char *name);

/* ---- the star of a row ---- */

/** Keys by which stars are found. */
enum mill_star_key {
  MILL_BY_TARGETID,
  MILL_BY_IDENTIFIER,
  MILL_BY_OBJECT,
  MILL_BY_PLACE, /**< sky position: RA, DEC within MILL_SAME_STAR_ARCSEC */
  MILL_N_STAR_KEY
};
#define MILL_SAME_STAR_ARCSEC 1.0

/** Indices of mill_star_column that follow enum mill_star_key: RA, DEC; and TARGET_RA, TARGET_DEC,
 *  used if a table lacks RA or DEC. */
enum {
  MILL_STAR_RA = MILL_BY_PLACE,
  MILL_STAR_DEC,
  MILL_STAR_RA_2,
  MILL_STAR_DEC_2,
  MILL_N_STAR_COLUMN
};
extern const mill_fits_wish mill_star_column[MILL_N_STAR_COLUMN];

/** Return how many columns of mill_star_column to read, counted from the first: MILL_BY_PLACE, i.e.
 *  no positions, if the table has names or TARGETIDs; all columns if it has only positions; 0 if it
 *  has neither.  has [k]: 1 if the table has column k. */
int mill_star_columns_wanted(const int has[MILL_N_STAR_COLUMN]);

/** mill_star_columns_wanted of a FITS table. */
int mill_star_columns_of(mill_fits_file *file, int i_hdu);

/** Read the wanted columns into v [MILL_N_STAR_COLUMN] of MILL_FITS_VALUES.  MILL_ERR_INPUT. */
int mill_star_columns_read(mill_fits_file *file, int i_hdu, mill_fits_values *v);

/** Read a text dataset [n_row] of HDF5 without trailing blanks, as FITS columns are read. */
int mill_star_texts_read(const mill_h5_file *file, const char *name, int64_t n_row,
                         mill_fits_values *out);

/** A row of a table and the key by which it is found. */
typedef struct mill_star_row {
  int64_t row;
  int rank, is_last; /* rank: position of the row's key in mill_star_rows.order */
  int64_t id;
  const char *name; /* NULL: found by number or position */
  double ra_deg, dec_deg;
} mill_star_row;

/** The rows of a table, indexed by star. */
typedef struct mill_star_rows {
  const char *key, *path;          /**< configuration key and file, for messages; borrowed */
  const enum mill_star_key *order; /**< [MILL_N_STAR_KEY] keys, best first; borrowed */
  mill_star_row *row;              /**< [n_row] sorted by key; of equal keys, is_last rows last */
  int64_t n_row, n_repeated;       /**< n_repeated: rows with the key of an earlier row */
  mill_star_row repeated;          /**< one of the repeated rows */
  char *text[2];                   /**< memory of the rows' names, owned */
  char hash[65];                   /**< SHA-256 (64 digits), set by the table's reader */
} mill_star_rows;

/** Index each row by the first key in rows->order that the row has; leave out rows without a key.
 *
 *  v        [MILL_N_STAR_COLUMN]  the wanted columns [n_row]; their texts move to rows
 *  is_last  [n_row]  1: use the row only if its star has no other; NULL: 0 for all
 *  rows     in/out   the caller sets key, path and order */
int mill_star_rows_make(mill_fits_values *v, int64_t n_row, const unsigned char *is_last,
                        mill_star_rows *rows);
void mill_star_rows_clear(mill_star_rows *rows);

/** Set *row to the star's first row in range[0] <= row < range[1] (NULL: any row), or to -1.
 *  MILL_ERR_CONFIG: two rows match the star's position; positions are looked up in all rows. */
int mill_star_rows_find(const mill_star_rows *rows, const mill_catalog_row *star,
                        const int64_t range[2], int64_t *row);

/** Is any row found by this key? */
int mill_star_rows_by(const mill_star_rows *rows, enum mill_star_key key);

/** The key of a row as text, e.g. "TARGETID 39", for messages. */
const char *mill_star_row_text(const mill_star_rows *rows, const mill_star_row *row,
                               char text[128]);

/** Add the key of a row to a digest. */
void mill_star_row_hash(const mill_star_row *row, mill_sha256 *sha);
