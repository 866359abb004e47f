/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/quantile.h"

#include <stdlib.h>

static int compare_double(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

void mill_sort(size_t n, double *x)
{
  qsort(x, n, sizeof *x, compare_double);
}

double mill_median(size_t n, double *x)
{
  mill_sort(n, x);
  const double at = 0.5 * (double)(n - 1);
  const size_t i = (size_t)at;
  return i + 1 < n ? x[i] + (at - (double)i) * (x[i + 1] - x[i]) : x[i];
}
