/* SPDX-License-Identifier: BSD-3-Clause */
/** Median of a row of numbers by a block. */
#pragma once

#include <float.h>

#include "kernels/math/block.h"
#include "kernels/math/select.h"

/** Count the values of x [n] below a limit, ignoring NaN. */
MILL_BLOCK_FN int mill_block_count_below(mill_block *b, int n, const float *x, float limit)
{
  int part = 0;
  MILL_GLOBAL(x);
  MILL_FOR(b, i, n)
  {
    part += x[i] < limit;
  }
  return (int)mill_block_sum(b, (double)part);
}

/** Find the two middle values of x [n], NaN aside, by up to 32 parallel counts instead of sorting.
 *  For an odd number of values both are the median; without a value both are NaN. */
MILL_BLOCK_FN void mill_block_middle(mill_block *b, int n, const float *x, float *low, float *high)
{
  int part = 0;
  MILL_FOR(b, i, n)
  {
    part += x[i] == x[i];
  }
  const int count = (int)mill_block_sum(b, (double)part);
  *low = *high = NAN;
  if (count < 1)
    return;
  /* bit by bit, find the largest float (by its key) with at most `rank` values below it */
  const int rank = (count - 1) / 2;
  uint32_t key = 0;
  for (int bit = 31; bit >= 0; bit--) {
    const uint32_t probe = key | (1u << bit);
    const float limit = mill_float_from_key(probe);
    /* a key beyond an infinity gives NaN: count it as above or below all values, by its sign */
    const int n_below =
        limit == limit ? mill_block_count_below(b, n, x, limit) : (probe & 0x80000000u ? count : 0);
    if (n_below <= rank)
      key = probe;
  }
  /* -0 and +0 compare equal, so a zero found is +0 */
  *low = *high = mill_float_from_key(key);
  if (count % 2 != 0)
    return;
  /* the upper middle value: *low again if it occurs often enough, else the least value above it */
  float least = INFINITY;
  int n_above = 0;
  MILL_FOR_MIN(b, i, n, least, n_above)
  {
    const float above = x[i] > *low ? x[i] : INFINITY;
    n_above += x[i] > *low;
    least = above < least ? above : least;
  }
  if (count - (int)mill_block_sum(b, (double)n_above) > rank + 1)
    return;
  if (least == FLT_MAX) /* clang's minimum begins at FLT_MAX: all values above *low are infinite */
    least = INFINITY;
  *high = (float)-mill_block_max(b, -(double)least);
}

/** Return the median of the values x [n] that are not NaN, like numpy.nanmedian; NaN if all are. */
MILL_BLOCK_FN double mill_block_median(mill_block *b, int n, const float *x)
{
  float low, high;
  mill_block_middle(b, n, x, &low, &high);
  return 0.5 * ((double)low + (double)high);
}
