/* SPDX-License-Identifier: BSD-3-Clause */
/** Order statistics without sorting. */
#ifndef MILL_SELECT_H
#define MILL_SELECT_H

static inline void mill_swap_float(float *a, float *b)
{
  const float t = *a;
  *a = *b;
  *b = t;
}

/** The k-th smallest, from 0, of x [n], which has no NaN (Hoare's selection).  x is reordered
 *  so that none before the k-th is larger and none behind it smaller. */
static inline float mill_select_float(int n, float *x, int k)
{
  int low = 0, high = n - 1;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    /* the median of three as pivot: sorted and reversed numbers cost no more than others */
    if (x[middle] < x[low])
      mill_swap_float(&x[middle], &x[low]);
    if (x[high] < x[low])
      mill_swap_float(&x[high], &x[low]);
    if (x[high] < x[middle])
      mill_swap_float(&x[high], &x[middle]);
    const float pivot = x[middle];
    int i = low, j = high;
    while (i <= j) {
      while (x[i] < pivot)
        i++;
      while (pivot < x[j])
        j--;
      if (i <= j)
        mill_swap_float(&x[i++], &x[j--]);
    }
    if (k <= j)
      high = j;
    else if (k >= i)
      low = i;
    else
      break;
  }
  return x[k];
}

#endif
