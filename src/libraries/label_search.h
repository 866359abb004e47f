/* SPDX-License-Identifier: BSD-3-Clause */
/** Labels that fit a spectrum best, by Levenberg-Marquardt. */
#ifndef MILL_LABEL_SEARCH_H
#define MILL_LABEL_SEARCH_H

#include "kernels/data/library.h"

enum { MILL_LABEL_SEARCH_MAX = MILL_MAX_LABEL + 1 };

/** Sum of squares at x [n], with the normal equations of its residuals: normal [n][n] and rhs [n],
 *  which points downhill.  Infinite or NaN where x is not possible. */
typedef double (*mill_misfit)(void *context, const double *x, double *normal, double *rhs);

/** Go from x [n] to the least sum near it, at most 1 a step along each x.
 *
 *  n       1 .. MILL_LABEL_SEARCH_MAX
 *  normal  [n][n] out, at the x where it ends; NULL: not wanted */
void mill_label_search(int n, mill_misfit misfit, void *context, double *x, double *normal);

#endif
