/* SPDX-License-Identifier: BSD-3-Clause */
/** Starting points of fits, from a table of parameters per star, instead of the initial guess.
 *
 *  The table is a FITS binary table, or a result of `starmill fit`, finished or not.  Rows of a
 *  result with a wrong CRC are left out with a warning.  Stars are found by TARGETID, else OBJECT,
 *  else IDENTIFIER, else position (io/catalog/star_table.h). */
#pragma once

#include "io/catalog/star_table.h"

typedef struct mill_start_table mill_start_table;

enum mill_start_found {
  MILL_START_GIVEN,      /**< the star's row has all parameters */
  MILL_START_ABSENT,     /**< the table has no row of this star */
  MILL_START_NOT_FINITE, /**< no row of the star has all values finite and within the limits */
  MILL_START_OF_OTHER    /**< the star was fitted with another library */
};

/** Read a result, or the first table of a FITS file that has all needed columns.
 *
 *  - Needed columns: keys of the stars, VRAD, VSINI, and each label of lib [0], named as in the
 *    library or in the result, in upper or lower case.
 *  - A fixed parameter (set->fixed) needs no column; all rows take the fixed value.
 *  - A star's first finite row is used.  A value outside the range of its parameter counts as
 *    not finite, unless exact is 1.
 *
 *  limits   may be NULL (io/fits/fits_guard.h)
 *  exact    1: look for a spectrum's own row, by IDENTIFIER, before any row of its star
 *  library  use only rows with this code in column LIBRARY; 0: all
 *
 *  Not collective.  MILL_ERR_CONFIG: something is missing; MILL_ERR_OUTPUT: no room for a .gz. */
int mill_start_table_read(const char *path, const mill_library *lib, int n_lib,
                          const mill_fit_settings *set, const mill_open_limits *limits, int exact,
                          int library, mill_start_table **out);
void mill_start_table_free(mill_start_table *table); /* NULL is allowed */

/** Find a star's row.  If the star has no start, *row is minus the reason (mill_start_found).
 *  path: the star's file; a table read with exact = 1 tells rows of one IDENTIFIER apart by file.
 *  MILL_ERR_CONFIG: two rows of the table match the star's position. */
int mill_start_table_find(const mill_start_table *table, const char *path,
                          const mill_catalog_row *star, int64_t *row);

/** Return VRAD, VSINI and labels [n_label + 2] of a row; NULL if row < 0 (no start). */
const double *mill_start_table_theta(const mill_start_table *table, int64_t row);

/** Figures of a result's row; chi-square and -2 ln L are 0 if the result lacks them. */
typedef struct mill_start_fit {
  uint64_t identity; /**< of the star (mill_star_identity) */
  int32_t info;      /**< FIT_INFO */
  int32_t is_other;  /**< was it fitted with another library? */
  double chisq_c_data, m2ll;
} mill_start_fit;

/** Return the fit of the row at theta (mill_start_table_theta); NULL: the table is no result. */
const mill_start_fit *mill_start_table_fit(const mill_start_table *table, const double *theta);

/** Key of a star's random numbers: target_id, unless it is -1; else a hash of object, unless it is
 *  empty; else a hash of identifier. */
uint64_t mill_star_identity(int64_t target_id, const char *object, const char *identifier);

/** The rows sorted by key; their hash covers keys and finite parameters. */
const mill_star_rows *mill_start_table_stars(const mill_start_table *table);
