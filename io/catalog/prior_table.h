/* SPDX-License-Identifier: BSD-3-Clause */
/** Gaussian priors of each star: a table of columns NAME, NAME_ERR by star.
 *
 *  A FITS binary table, or an HDF5 file with a dataset for each column at its root.
 */
#ifndef MILL_PRIOR_TABLE_H
#define MILL_PRIOR_TABLE_H

#include "io/catalog/star_table.h"
#include "kernels/data/library.h"
#include "kernels/data/settings.h"
#include "kernels/data/star.h"

typedef struct mill_prior_table mill_prior_table;

/** Check the settings' own priors against what a fit with n_lib libraries allows.  MILL_ERR_CONFIG
 *  names one that is beyond by more than five sigma, as numbers that stand for a missing one and
 *  other units are; is_loud: a warning of the others that are beyond. */
int mill_prior_check(const mill_library *lib, int n_lib, const mill_fit_settings *set, int is_loud);

/** Read a table; 56 bytes a row, its names and 16 for each of its priors are held until it is freed.
 *
 *  Columns, of any case, of the first table that has any to find stars by (io/catalog/star_table.h):
 *  IDENTIFIER, else TARGETID, else OBJECT, or the place; pairs NAME, NAME_ERR of parameters (VRAD, VSINI, each label of lib[0] as its column of the result file or by
 *  its own name), at least one; others are ignored.  A value or error that is NaN is no prior; a
 *  row without a key (-1, empty) is no star's.
 *
 *  MILL_ERR_CONFIG names the file, and the column or star: a pair of another name, of a fixed
 *  parameter or without its second half, an error that is not positive, two rows of one star.
 *  MILL_ERR_MEMORY; MILL_ERR_OUTPUT when the scratch folder cannot take an unpacked .gz.  limits
 *  may be NULL (io/fits/fits_guard.h).  Not collective. */
int mill_prior_table_read(const char *path, const mill_library *lib, int n_lib,
                          const mill_fit_settings *set, const mill_open_limits *limits,
                          mill_prior_table **out);
void mill_prior_table_free(mill_prior_table *table); /* NULL is allowed */

/** Give the star of a row its priors; *has_any: it has any.  MILL_ERR_CONFIG: two rows are at its
 *  place. */
int mill_prior_table_find(const mill_prior_table *table, const mill_catalog_row *row,
                          mill_star *star, int *has_any);

/** Does it find any star by this key? */
int mill_prior_table_by(const mill_prior_table *table, enum mill_star_key key);

/** How many values are far; *first: the first of them, for a message. */
int64_t mill_prior_table_beyond(const mill_prior_table *table, const char **first);

/** SHA-256 of keys and priors, independent of the rest of the file and the order of its rows: 64
 *  digits. */
const char *mill_prior_table_hash(const mill_prior_table *table);

#endif
