/** Numbers in order. */
#ifndef MILL_QUANTILE_H
#define MILL_QUANTILE_H

#include <stddef.h>

/** Sort x [n], ascending; none may be NaN. */
void mill_sort(size_t n, double *x);

/** Quantile of x [n], linear between neighbours, n at least 1; x is sorted on return. */
double mill_quantile(size_t n, double fraction, double *x);

#endif
