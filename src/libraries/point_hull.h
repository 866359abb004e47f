/* SPDX-License-Identifier: BSD-3-Clause */
/** The region of a plane covered by scattered points. */
#ifndef MILL_POINT_HULL_H
#define MILL_POINT_HULL_H

#include <stddef.h>

/** Hull of points in a plane as facets of mill_hull.
 *
 *  x [n][2]; facet [*n_facet][3] from mill_alloc, the caller's
 *  all  1: of all points; 0: without isolated points (docs/use/libraries.md)
 *  MILL_ERR_INPUT when fewer than three points remain or they lie on a line. */
int mill_hull_of_points(int n, const double *x, int all, int *n_facet, double **facet);

#endif
