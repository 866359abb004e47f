/* SPDX-License-Identifier: BSD-3-Clause */
/** Numbers in order. */
#ifndef MILL_QUANTILE_H
#define MILL_QUANTILE_H

#include <stddef.h>

/** Sort x [n], ascending; none may be NaN. */
void mill_sort(size_t n, double *x);

/** Median of x [n], n at least 1; x is sorted on return. */
double mill_median(size_t n, double *x);

/** Median of x [n], n at least 1, and 1.48 times the median distance from it; x is used up. */
void mill_robust(size_t n, double *x, double *median, double *scatter);

#endif
