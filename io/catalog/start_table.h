/* SPDX-License-Identifier: BSD-3-Clause */
/** Starting points of fits instead of the guess: a table of parameters by star.
 *
 *  A FITS binary table (a truth table of `starmill simulate`, an rvtab) or a result of
 *  `starmill fit` (finished or not), whose rows with a wrong CRC are left out, with a warning.
 *  Stars are found by TARGETID, else OBJECT, else IDENTIFIER, or by place (io/catalog/star_table.h).
 */
#ifndef MILL_START_TABLE_H
#define MILL_START_TABLE_H

#include "io/catalog/star_table.h"
#include "io/fits/fits_guard.h"
#include "kernels/data/library.h"
#include "kernels/data/settings.h"

typedef struct mill_start_table mill_start_table;

enum mill_start_found {
  MILL_START_GIVEN,     /**< all parameters are there */
  MILL_START_ABSENT,    /**< no row of the table is this star's */
  MILL_START_NOT_FINITE /**< it has rows, but each lacks a finite value */
};

/** Read a table; some (n_label + 10) * 8 bytes a row and its names are held until it is freed.
 *
 *  Columns, of any case: those that stars are found by, VRAD, VSINI, and each label of lib as
 *  its column of the result file or by its own name.  Of a FITS file the first table with
 *  all of them is taken.  A parameter that set->fixed fixes needs no column: its value is
 *  the fixed one.  Of several rows of one star the first that is finite counts.
 *  library: of a result of several libraries only the rows with this code count; 0: all.
 *
 *  MILL_ERR_CONFIG names the file and what is missing in it; MILL_ERR_MEMORY;
 *  MILL_ERR_OUTPUT when the scratch folder cannot take an unpacked .gz.  limits may be NULL
 *  (io/fits/fits_guard.h).  Not collective. */
int mill_start_table_read(const char *path, const mill_library *lib, const mill_fit_settings *set,
                          const mill_open_limits *limits, int library, mill_start_table **out);
void mill_start_table_free(mill_start_table *table); /* NULL is allowed */

/** Find a star.  *theta [n_label + 2] is VRAD, VSINI and the labels, borrowed from the table; NULL
 *  unless MILL_START_GIVEN.  MILL_ERR_CONFIG: two rows are at its place. */
int mill_start_table_find(const mill_start_table *table, const mill_catalog_row *star,
                          const double **theta, enum mill_start_found *found);

/** Does it find any star by this key? */
int mill_start_table_by(const mill_start_table *table, enum mill_star_key key);

/** What a result says of a row; chi-square and -2 ln L of 0: it does not. */
typedef struct mill_start_fit {
  int32_t info; /**< FIT_INFO */
  double chisq_c_data, m2ll;
} mill_start_fit;

/** The row that theta of mill_start_table_find is of; NULL: the table is no result. */
const mill_start_fit *mill_start_table_fit(const mill_start_table *table, const double *theta);

/** Identity of a star for its random numbers: target_id unless it is -1, else of its name. */
uint64_t mill_star_identity(int64_t target_id, const char *object);

/** Rows of stars that have an earlier row in the table. */
int64_t mill_start_table_n_repeated(const mill_start_table *table);

/** SHA-256 of the values that fits can take from the table, independent of the rest of the file: 64
 *  digits. */
const char *mill_start_table_hash(const mill_start_table *table);

#endif
