/* SPDX-License-Identifier: BSD-3-Clause */
/** Gaussian priors of each star: a table of columns NAME, NAME_ERR by star.
 *
 *  A FITS binary table, or an HDF5 file with a dataset for each column at its root.
 */
#ifndef MILL_PRIOR_TABLE_H
#define MILL_PRIOR_TABLE_H

#include "io/fits/fits_guard.h"
#include "kernels/data/library.h"
#include "kernels/data/settings.h"
#include "kernels/data/star.h"

typedef struct mill_prior_table mill_prior_table;

/** Check the settings' own priors against what a fit with n_lib libraries allows.  MILL_ERR_CONFIG
 *  names one that is beyond by more than five sigma, as numbers that stand for a missing one and
 *  other units are; is_loud: a warning of the others that are beyond. */
int mill_prior_check(const mill_library *lib, int n_lib, const mill_fit_settings *set, int is_loud);

/** Read a table; 24 bytes a row and 16 for each of its priors, 64 more for an IDENTIFIER, are
 *  held until it is freed.
 *
 *  Columns, of any case: IDENTIFIER, else TARGETID, of the first table that has either; pairs NAME,
 *  NAME_ERR of parameters (VRAD, VSINI, each label of lib[0] as its column of the result file or by
 *  its own name), at least one; others are ignored.  A value or error that is NaN is no prior; a
 *  row without a key (-1, empty) counts for no star.
 *
 *  MILL_ERR_CONFIG names the file, and the column or star: a pair of another name, of a fixed
 *  parameter or without its second half, an error that is not positive, two rows of one star.
 *  MILL_ERR_MEMORY; MILL_ERR_OUTPUT when the scratch folder cannot take an unpacked .gz.  limits
 *  may be NULL (io/fits/fits_guard.h).  Not collective. */
int mill_prior_table_read(const char *path, const mill_library *lib, int n_lib,
                          const mill_fit_settings *set, const mill_open_limits *limits,
                          mill_prior_table **out);
void mill_prior_table_free(mill_prior_table *table); /* NULL is allowed */

/** Give a star its priors; 1 where it has any. */
int mill_prior_table_find(const mill_prior_table *table, int64_t target_id, const char *identifier,
                          mill_star *star);

/** Whether it finds stars by IDENTIFIER. */
int mill_prior_table_by_name(const mill_prior_table *table);

/** How many values are far; *first: the first of them, for a message. */
int64_t mill_prior_table_beyond(const mill_prior_table *table, const char **first);

/** SHA-256 of keys and priors, independent of the rest of the file and the order of its rows: 64
 *  digits. */
const char *mill_prior_table_hash(const mill_prior_table *table);

#endif
