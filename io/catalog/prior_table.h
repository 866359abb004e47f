/* SPDX-License-Identifier: BSD-3-Clause */
/** Gaussian priors per star, from a table with columns NAME, NAME_ERR.
 *
 *  The table is a FITS binary table, or an HDF5 file with one dataset per column at its root. */
#pragma once

#include "io/catalog/star_table.h"
#include "kernels/data/library.h"
#include "kernels/data/settings.h"
#include "kernels/data/star.h"

typedef struct mill_prior_table mill_prior_table;

/** Check the configuration's priors (the same for all stars) against the ranges of a fit with n_lib
 *  libraries.  MILL_ERR_CONFIG names a prior whose mean is more than five sigma outside the range:
 *  it is probably in another unit or a placeholder.  is_loud: warn of other means outside. */
int mill_prior_check(const mill_library *lib, int n_lib, const mill_fit_settings *set, int is_loud);

/** Read a table.  Until freed it takes 56 bytes of memory a row, the stars' names, and 16 bytes for
 *  each prior.
 *
 *  Column names may have any case.  The first table that identifies stars (by IDENTIFIER, else
 *  TARGETID, else OBJECT, else position; io/catalog/star_table.h) is read.  It needs at least one
 *  pair NAME, NAME_ERR of a parameter: VRAD, VSINI, or a label of lib[0], named as in the library
 *  or as in the result.  Other columns are ignored.  A NaN as value or error means no prior; a
 *  row without a key (-1, empty) is ignored.
 *
 *  MILL_ERR_CONFIG names the file and the column or star: a pair of an unknown name, of a fixed
 *  parameter or without its other half, an error that is not positive, two rows of one star.
 *  MILL_ERR_MEMORY; MILL_ERR_OUTPUT if the scratch folder cannot take an unpacked .gz.  limits may
 *  be NULL (io/fits/fits_guard.h).  Not collective. */
int mill_prior_table_read(const char *path, const mill_library *lib, int n_lib,
                          const mill_fit_settings *set, const mill_open_limits *limits,
                          mill_prior_table **out);
void mill_prior_table_free(mill_prior_table *table); /* NULL is allowed */

/** Copy the table's priors for the star of a catalog row to *star; *has_any: 1 if there are any.
 *  MILL_ERR_CONFIG: two rows of the table match the star's position. */
int mill_prior_table_find(const mill_prior_table *table, const mill_catalog_row *row,
                          mill_star *star, int *has_any);

/** Is any row of the table found by this key? */
int mill_prior_table_by(const mill_prior_table *table, enum mill_star_key key);

/** Count the priors more than five errors beyond the fit's range; *first: the first, as text. */
int64_t mill_prior_table_beyond(const mill_prior_table *table, const char **first);

/** SHA-256 (64 digits) of keys and priors; other columns and the order of rows have no effect. */
const char *mill_prior_table_hash(const mill_prior_table *table);
