/* SPDX-License-Identifier: BSD-3-Clause */
/** The guess's products on a GPU: one template a thread.  Included by kernels/star/guess.h. */
#ifndef MILL_CUDA_GUESS_TILE_H
#define MILL_CUDA_GUESS_TILE_H

#include "kernels/math/vector.h"
#include "kernels/star/slot.h"

enum { MILL_GUESS_TEMPLATES = 1 };

/** Clear a sum of products. */
MILL_INLINE void mill_guess_zero(float *sum)
{
  sum[0] = sum[MILL_GUESS_LANE] = 0.0f;
}

/** Add conj(D) T of n_block blocks at one frequency, for MILL_GUESS_TEMPLATES templates.
 *
 *  d  in      real parts of D of the blocks, imaginary parts MILL_GUESS_LANE on
 *  t  in      real parts of T of the first template, imaginary parts MILL_GUESS_LANE on; blocks
 *             lie 2 MILL_GUESS_LANE apart
 *  sum  in/out  real parts, imaginary parts MILL_GUESS_LANE on */
MILL_INLINE void mill_guess_product(int n_block, const float *d, const float *t, float *sum)
{
  float r = sum[0], i = sum[MILL_GUESS_LANE];
#pragma unroll 8
  for (int k = 0; k < n_block; k++) {
    const float x = d[k], y = d[MILL_GUESS_LANE + k];
    const float a = t[2 * MILL_GUESS_LANE * k], b = t[2 * MILL_GUESS_LANE * k + MILL_GUESS_LANE];
    r += x * a + y * b;
    i += x * b - y * a;
  }
  sum[0] = r;
  sum[MILL_GUESS_LANE] = i;
}

#endif
