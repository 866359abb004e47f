/* SPDX-License-Identifier: BSD-3-Clause */
/** Layout of the sums of products of all pairs of rows (a Gram matrix). */
#pragma once

#include "kernels/base/common.h"

/** Index of the pair (r, c), c <= r, in a packed lower triangle. */
MILL_HD static inline int mill_gram_at(int r, int c)
{
  return r * (r + 1) / 2 + c;
}
