/* SPDX-License-Identifier: BSD-3-Clause */
/** The convex hull of points in any number of dimensions, by qhull. */
#ifndef MILL_WHOLE_HULL_H
#define MILL_WHOLE_HULL_H

/** Hull of points as facets of mill_hull.
 *
 *  x [n][n_label]    n_label 2 or more
 *  facet [*n_facet][n_label + 1] from mill_alloc, the caller's; every point is inside
 *
 *  One facet for each face, however many points lie on it.  The number of facets goes with the
 *  power n_label / 2 of the points (Barber, Dobkin & Huhdanpaa 1996, ACM Trans. Math. Software 22,
 *  469).  MILL_ERR_INPUT for points in a plane, MILL_ERR_MEMORY, MILL_ERR_CONFIG without qhull. */
int mill_whole_hull(int n, int n_label, const double *x, int *n_facet, double **facet);

#endif
