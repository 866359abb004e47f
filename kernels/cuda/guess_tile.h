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
  enum { AT_ONCE = 8 }; /* blocks whose loads are under way together */
  float r = sum[0], i = sum[MILL_GUESS_LANE];
  MILL_GLOBAL(d);
  MILL_GLOBAL(t);
  for (int first = 0; first < n_block; first += AT_ONCE) {
    float x[AT_ONCE], y[AT_ONCE], a[AT_ONCE], b[AT_ONCE];
    MILL_UNROLL
    for (int l = 0; l < AT_ONCE; l++) {
      const int k = first + l, has = k < n_block;
      x[l] = has ? d[k] : 0.0f;
      y[l] = has ? d[MILL_GUESS_LANE + k] : 0.0f;
      a[l] = has ? t[2 * MILL_GUESS_LANE * k] : 0.0f;
      b[l] = has ? t[2 * MILL_GUESS_LANE * k + MILL_GUESS_LANE] : 0.0f;
    }
    MILL_UNROLL
    for (int l = 0; l < AT_ONCE; l++) {
      r += x[l] * a[l] + y[l] * b[l];
      i += x[l] * b[l] - y[l] * a[l];
    }
  }
  sum[0] = r;
  sum[MILL_GUESS_LANE] = i;
}

#endif
