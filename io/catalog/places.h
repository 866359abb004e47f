/* SPDX-License-Identifier: BSD-3-Clause */
/** Tell apart stars that share a name, by their positions on the sky. */
#pragma once

#include "kernels/base/common.h"
#include "src/system/order.h"

/** Rows further apart than this (1 arcmin) are different stars. */
#define MILL_FAR_DEG (1.0 / 60.0)

/** Does a row have a position?  NaN, two zeros or values such as -999 mark an unknown position. */
int mill_place_known(double ra_deg, double dec_deg);

/** Distance of two positions in degrees; accurate for small distances too. */
double mill_place_distance_deg(double ra_deg, double dec_deg, double other_ra_deg,
                               double other_dec_deg);

/** The mill_file_index.warning of a file in which one name has several places. */
#define MILL_TOLD_PLACES                                                                           \
  "rows of one name or TARGETID are more than 1 arcmin apart: each place is fitted as a separate " \
  "star"

enum { MILL_MOST_PLACES = 64 };

/** Group rows into stars: rows of one name (or TARGETID) within MILL_FAR_DEG of the first row.
 *
 *  row [n].place  in   index of the row in ra_deg and dec_deg
 *  row [n].key    in   number of the row's name; -1: no name, a star of its own
 *                 out  .place of the first row of the same star
 *  row [n]        out  sorted by .key, then by .place
 *
 *  - A row without a position joins the first row of its name.
 *  - Beyond MILL_MOST_PLACES positions of one name, a row at a new position is a star of its own.
 *  Returns 1 if any name has several positions. */
int mill_places_group(mill_keyed *row, int64_t n, const double *ra_deg, const double *dec_deg);
