/* SPDX-License-Identifier: BSD-3-Clause */
/** Order statistics without sorting, exact: up to 32 rounds of counting, which run in parallel. */
#ifndef MILL_SELECT_H
#define MILL_SELECT_H

#include "kernels/math/block.h"

/** The float of rank `key` when all of them are put in order, NaN aside: the inverse of
 *  an order-preserving map of their bits to unsigned. */
MILL_HD static inline float mill_float_from_key(uint32_t key)
{
  union {
    float f;
    uint32_t u;
  } v;
  v.u = key & 0x80000000u ? key & 0x7fffffffu : ~key;
  return v.f;
}

/** Values number k and k + 1 (or k again, where it is the last) in ascending order, from 0, of
 *  x[i * stride], i < n, each there count[i] times (whole numbers; NULL: once).  No NaNs. */
MILL_BLOCK_FN void mill_block_select(mill_block *b, int n, const float *x, int stride,
                                     const float *count, double k, double value[2])
{
  uint32_t key = 0; /* the largest one that at most k values are below, bit by bit */
  for (uint32_t bit = 1u << 31; bit > 0; bit >>= 1) {
    const float limit = mill_float_from_key(key | bit);
    double below = 0.0;
    MILL_FOR(b, i, n)
      if (x[(size_t)i * (size_t)stride] < limit)
        below += count ? (double)count[i] : 1.0;
    /* beyond the keys of both infinities there are NaN only: all, or none, lie below */
    below = mill_block_sum(b, below);
    if (limit == limit ? below <= k : !((key | bit) >> 31))
      key |= bit;
  }
  const float found = mill_float_from_key(key);
  double upto = 0.0, next = -(double)INFINITY;
  MILL_FOR(b, i, n)
  {
    const float at = x[(size_t)i * (size_t)stride];
    const double there = count ? (double)count[i] : 1.0;
    if (at <= found)
      upto += there;
    else if (there > 0.0)
      next = fmax(next, -(double)at);
  }
  value[0] = value[1] = (double)found;
  upto = mill_block_sum(b, upto);
  next = mill_block_max(b, next);
  if (upto <= k + 1.0 && next > -(double)INFINITY)
    value[1] = -next;
}

/** Quantile q of such values, n_all by their counts, linear between them (Hyndman & Fan 1996,
 *  definition 7). */
MILL_BLOCK_FN double mill_block_quantile(mill_block *b, int n, const float *x, int stride,
                                         const float *count, int n_all, double q)
{
  const double at = q * (double)(n_all - 1);
  const int i = at < (double)(n_all - 2) ? (int)at : (n_all > 1 ? n_all - 2 : 0);
  double value[2];
  mill_block_select(b, n, x, stride, count, (double)i, value);
  return value[0] + (at - (double)i) * (value[1] - value[0]);
}

#endif
