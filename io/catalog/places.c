/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/catalog/places.h"

#include <stdlib.h>

int mill_place_known(double ra_deg, double dec_deg)
{
  return fabs(ra_deg) <= 360 && fabs(dec_deg) <= 90 && (ra_deg != 0 || dec_deg != 0);
}

double mill_place_distance_deg(double ra_deg, double dec_deg, double other_ra_deg,
                               double other_dec_deg)
{
  /* haversine formula */
  const double deg = atan(1.0) / 45.0;
  const double s_dec = sin(0.5 * deg * (other_dec_deg - dec_deg));
  const double s_ra = sin(0.5 * deg * (other_ra_deg - ra_deg));
  const double h = s_dec * s_dec + cos(deg * dec_deg) * cos(deg * other_dec_deg) * s_ra * s_ra;
  return 2.0 * asin(sqrt(fmin(h, 1.0))) / deg;
}

/* The sky positions known for one name, with the first row at each. */
typedef struct known_places {
  int n;
  struct known_place {
    int64_t row;
    double ra_deg, dec_deg;
  } place[MILL_MOST_PLACES];
} known_places;

/* Return the name's first row at the position of `row`; if there is none, add and return `row`. */
static int64_t find_first(known_places *places, int64_t row, double ra_deg, double dec_deg)
{
  int i = 0; /* stays 0 if `row` has no position: it joins the name's first row */
  for (; i < places->n && mill_place_known(ra_deg, dec_deg); i++) {
    const double ra = places->place[i].ra_deg, dec = places->place[i].dec_deg;
    if (!mill_place_known(ra, dec)) { /* the first row lacks a position: give it this one */
      places->place[i].ra_deg = ra_deg;
      places->place[i].dec_deg = dec_deg;
      break;
    }
    if (fabs(dec - dec_deg) <= MILL_FAR_DEG &&
        mill_place_distance_deg(ra, dec, ra_deg, dec_deg) <= MILL_FAR_DEG)
      break;
  }
  if (i < places->n)
    return places->place[i].row;
  if (places->n < MILL_MOST_PLACES) /* else forget it: `row` is a star of its own */
    places->place[places->n++] = (struct known_place){row, ra_deg, dec_deg};
  return row;
}

int mill_places_group(mill_keyed *row, int64_t n, const double *ra_deg, const double *dec_deg)
{
  known_places places = {0};
  int has_several = 0;
  qsort(row, (size_t)n, sizeof *row, mill_by_key); /* by name */
  for (int64_t i = 0, number = -1; i < n; i++) {
    const int64_t at = row[i].place; /* index in ra_deg and dec_deg */
    if (i == 0 || row[i].key != number)
      places.n = 0;
    number = row[i].key;
    /* -1 means no name: the row is a star of its own */
    row[i].key = number == -1 ? at : find_first(&places, at, ra_deg[at], dec_deg[at]);
    has_several |= places.n > 1; /* this name has several positions */
  }
  qsort(row, (size_t)n, sizeof *row, mill_by_key); /* by star */
  return has_several;
}
