/* SPDX-License-Identifier: BSD-3-Clause */
/** Gaussian priors per star, from a table with means in columns such as TEFF, sigmas in TEFF_ERR.
 *
 *  The table is a FITS binary table, or an HDF5 file with one dataset per column at its root. */
#pragma once

#include "io/catalog/star_table.h"
#include "kernels/data/star.h"

typedef struct mill_prior_table mill_prior_table;

/** Check that the means of the configuration's priors lie in the ranges of the fit.
 *  MILL_ERR_CONFIG: a mean is more than five sigma outside, probably in another unit.
 *  is_loud: warn of means that are less far outside. */
int mill_prior_check(const mill_library *lib, int n_lib, const mill_fit_settings *set, int is_loud);

/** Read a table of priors; of a FITS file, read the first table that has keys of stars.
 *
 *  - Stars are found by IDENTIFIER, else TARGETID, else OBJECT, else position (star_table.h).
 *  - A pair of columns NAME, NAME_ERR gives the priors of a parameter; NaN: no prior.
 *  - NAME is VRAD, VSINI or a label of lib[0], named as in the library or in the result.
 *  - Rows without a key and other columns are ignored; column names may have any case.
 *
 *  own: library of the fit; priors are in its order of labels; labels that it lacks are left out.
 *  set: settings that mill_config_bind made for own.  limits may be NULL.  Not collective.
 *  is_loud: warn of means over five sigma outside the range.
 *  MILL_ERR_CONFIG: no pair, a pair of a fixed or unknown parameter, half a pair, an error that is
 *  not positive, a TUNIT that is not the result's, two rows of one star.
 *  MILL_ERR_OUTPUT: no room for an unpacked .gz. */
int mill_prior_table_read(const char *path, const mill_library *lib, int n_lib,
                          const mill_library *own, const mill_fit_settings *set,
                          const mill_open_limits *limits, int is_loud, mill_prior_table **out);
void mill_prior_table_free(mill_prior_table *table); /* NULL is allowed */

/** Set *row to the table's row of the star's priors, or to -1 if the table has none for the star.
 *  MILL_ERR_CONFIG: two rows of the table match the star's position. */
int mill_prior_table_find(const mill_prior_table *table, const mill_catalog_row *star,
                          int64_t *row);

/** Copy to star the priors of a row found by mill_prior_table_find; row -1: copy nothing. */
void mill_prior_table_take(const mill_prior_table *table, int64_t row, mill_star *star);

/** The rows sorted by key; their hash covers keys and priors, not the table's order of rows. */
const mill_star_rows *mill_prior_table_stars(const mill_prior_table *table);
