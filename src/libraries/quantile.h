/* SPDX-License-Identifier: BSD-3-Clause */
/** Numbers in order. */
#ifndef MILL_QUANTILE_H
#define MILL_QUANTILE_H

#include <stddef.h>

/** Sort x [n], ascending; none may be NaN. */
void mill_sort(size_t n, double *x);

/** Median of x [n], n at least 1; x is sorted on return. */
double mill_median(size_t n, double *x);

#endif
