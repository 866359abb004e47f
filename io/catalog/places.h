/* SPDX-License-Identifier: BSD-3-Clause */
/** Places on the sky of rows that have one name, which may be several stars'. */
#ifndef MILL_PLACES_H
#define MILL_PLACES_H

#include "kernels/base/common.h"

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

/** The places of one name so far; start with zeros. */
typedef struct mill_places {
  int n;
  struct {
    int64_t row;
    double ra_deg, dec_deg;
  } place[MILL_MOST_PLACES];
} mill_places;

/** The first row at the place of `row`: of rows in this order, each at most MILL_FAR_DEG from the
 *  first at its place; without a position the first of all.  A name of more than MILL_MOST_PLACES
 *  places names no star, and each further row has a place of its own. */
int64_t mill_places_first(mill_places *places, int64_t row, double ra_deg, double dec_deg);

MILL_EXTERN_C_END

#endif
