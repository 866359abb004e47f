/* SPDX-License-Identifier: BSD-3-Clause */
/** Places on the sky of rows that have one name, which may be several stars'. */
#ifndef MILL_PLACES_H
#define MILL_PLACES_H

#include "kernels/base/common.h"
#include "src/system/order.h"

MILL_EXTERN_C_BEGIN

/** Rows further apart than this (1 arcmin) are not one star. */
#define MILL_FAR_DEG (1.0 / 60.0)

/** Does a row say where its star is?  Catalogues mark unknown positions by NaN, values such
 *  as -999, or two zeros. */
int mill_place_known(double ra_deg, double dec_deg);

/** Degrees between two positions; exact for small ones too. */
double mill_place_distance_deg(double ra_deg, double dec_deg, double other_ra_deg,
                               double other_dec_deg);

/** What mill_file_index.warning says where one name has several places. */
#define MILL_TOLD_PLACES                                                                           \
  "rows of one name or TARGETID are more than 1 arcmin apart: each place is a star of its own"

enum { MILL_MOST_PLACES = 64 };

/** Find stars: rows of one number that lie at one place.
 *
 *  row [n]  in   key: the number, of a name or TARGETID; negative: nobody's, a star of its own
 *                place: into ra_deg, dec_deg, ascending where numbers are equal
 *           out  sorted; key: the place of the star's first row
 *
 *  A row joins the earliest place whose first row is within MILL_FAR_DEG; a row without a position
 *  joins the number's first place.  A number of more than MILL_MOST_PLACES places names no
 *  star, and each further row has a place of its own.  Returns 1 where a number has several places.
 */
int mill_places_find(mill_keyed *row, int64_t n, const double *ra_deg, const double *dec_deg);

MILL_EXTERN_C_END

#endif
