/* SPDX-License-Identifier: BSD-3-Clause */
/** Find exact order statistics by 32 parallel counts instead of sorting. */
#pragma once

#include "kernels/math/block.h"

/** Return the float of rank `key` among all floats, lowest first; NaN beyond the infinities. */
MILL_HD static inline float mill_float_from_key(uint32_t key)
{
  union {
    float f;
    uint32_t u;
  } v;
  v.u = key & 0x80000000u ? key & 0x7fffffffu : ~key;
  return v.f;
}

enum { MILL_SELECT_MOST = 8 /**< order statistics found in one pass */ };

/** Find order statistics of x [n]: value[q] gets the value of rank k[q], then of rank k[q] + 1.
 *
 *  x [n]              in   not NaN
 *  count [n]          in   times that each x counts, whole numbers; NULL: once
 *  k [n_want]         in   ranks, 0 for the least x; n_want <= MILL_SELECT_MOST
 *  value [n_want][2]  out  for the last rank value[q][1] is value[q][0] */
MILL_BLOCK_FN void mill_block_select(mill_block *b, int n, const float *x, const float *count,
                                     int n_want, const double *k, double (*value)[2])
{
  uint32_t key[MILL_SELECT_MOST] = {0}; /* of the largest float with at most k values below it */
  float limit[MILL_SELECT_MOST];
  double part[MILL_SELECT_MOST], sum[MILL_SELECT_MOST];
  for (uint32_t bit = 1u << 31; bit > 0; bit >>= 1) {
    for (int q = 0; q < n_want; q++) {
      limit[q] = mill_float_from_key(key[q] | bit);
      part[q] = 0.0;
    }
    MILL_FOR(b, i, n)
    {
      const double times = count ? (double)count[i] : 1.0;
      for (int q = 0; q < n_want; q++)
        part[q] += x[i] < limit[q] ? times : 0.0;
    }
    mill_block_sum_n(b, part, n_want, sum);
    /* a key beyond an infinity gives NaN: count it as above or below all values, by its sign */
    for (int q = 0; q < n_want; q++)
      if (limit[q] == limit[q] ? sum[q] <= k[q] : !((key[q] | bit) >> 31))
        key[q] |= bit;
  }
  for (int q = 0; q < n_want; q++) {
    const float found = mill_float_from_key(key[q]);
    double n_upto = 0.0, minus_next = -(double)INFINITY; /* next: least value above `found` */
    MILL_FOR(b, i, n)
    {
      const double times = count ? (double)count[i] : 1.0;
      n_upto += x[i] <= found ? times : 0.0;
      minus_next = x[i] > found && times > 0.0 ? fmax(minus_next, -(double)x[i]) : minus_next;
    }
    value[q][0] = value[q][1] = (double)found;
    n_upto = mill_block_sum(b, n_upto);
    minus_next = mill_block_max(b, minus_next);
    if (n_upto <= k[q] + 1.0 && minus_next > -(double)INFINITY) /* rank k + 1 is above `found` */
      value[q][1] = -minus_next;
  }
}

/** Compute quantiles out [n_want] of x at probabilities q [n_want], linear between neighbours
 *  (Hyndman & Fan 1996, definition 7).  n_all: sum of the counts of x (mill_block_select). */
MILL_BLOCK_FN void mill_block_quantiles(mill_block *b, int n, const float *x, const float *count,
                                        int n_all, int n_want, const double *q, double *out)
{
  double k[MILL_SELECT_MOST], value[MILL_SELECT_MOST][2];
  for (int e = 0; e < n_want; e++)
    k[e] = fmax(0.0, fmin(floor(q[e] * (double)(n_all - 1)), (double)(n_all - 2)));
  mill_block_select(b, n, x, count, n_want, k, value);
  for (int e = 0; e < n_want; e++)
    out[e] = value[e][0] + (q[e] * (double)(n_all - 1) - k[e]) * (value[e][1] - value[e][0]);
}
