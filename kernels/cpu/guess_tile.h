/* SPDX-License-Identifier: BSD-3-Clause */
/** The guess's products on a CPU: vectors of templates.  Included by kernels/star/guess.h. */
#ifndef MILL_CPU_GUESS_TILE_H
#define MILL_CPU_GUESS_TILE_H

#include "kernels/math/fourier.h"
#include "kernels/math/vector.h"
#include "kernels/star/slot.h"

/** All templates of a group. */
enum { MILL_GUESS_TEMPLATES = MILL_GUESS_LANE };

/** Clear a sum of products. */
MILL_INLINE void mill_guess_zero(float *sum)
{
  MILL_SIMD
  for (int l = 0; l < 2 * MILL_GUESS_LANE; l++)
    sum[l] = 0.0f;
}

/** Add conj(D) T of n_block blocks at one frequency, for MILL_GUESS_TEMPLATES templates.
 *
 *  d  in      real parts of D of the blocks, imaginary parts MILL_GUESS_LANE on
 *  t  in      real parts of T of the first template, imaginary parts MILL_GUESS_LANE on; blocks
 *             lie 2 MILL_GUESS_LANE apart
 *  sum  in/out  real parts, imaginary parts MILL_GUESS_LANE on */
MILL_INLINE void mill_guess_product(int n_block, const float *d, const float *t, float *sum)
{
  enum { N_VEC = MILL_GUESS_LANE / MILL_VEC_N_F32 };
  /* four sums, so that none waits for its last addition */
  mill_vec_f32 rr[N_VEC], ii[N_VEC], ri[N_VEC], ir[N_VEC];
#pragma GCC unroll 4
  for (int l = 0; l < N_VEC; l++) {
    rr[l] = mill_vec_load_f32(sum + l * MILL_VEC_N_F32);
    ri[l] = mill_vec_load_f32(sum + MILL_GUESS_LANE + l * MILL_VEC_N_F32);
    ii[l] = ir[l] = (mill_vec_f32){0.0f};
  }
  for (int i = 0; i < n_block; i++, t += 2 * MILL_GUESS_LANE) {
    const float x = d[i], y = d[MILL_GUESS_LANE + i];
#pragma GCC unroll 4
    for (int l = 0; l < N_VEC; l++) {
      const mill_vec_f32 a = mill_vec_load_f32(t + l * MILL_VEC_N_F32);
      const mill_vec_f32 b = mill_vec_load_f32(t + MILL_GUESS_LANE + l * MILL_VEC_N_F32);
      rr[l] += x * a;
      ii[l] += y * b;
      ri[l] += x * b;
      ir[l] += y * a;
    }
  }
#pragma GCC unroll 4
  for (int l = 0; l < N_VEC; l++) {
    *(mill_vec_f32 *)(sum + l * MILL_VEC_N_F32) = rr[l] + ii[l];
    *(mill_vec_f32 *)(sum + MILL_GUESS_LANE + l * MILL_VEC_N_F32) = ri[l] - ir[l];
  }
}

/** mill_fourier_pair of them. */
MILL_INLINE void mill_guess_pair(int n, int half, int j, int inverse, const float *root, float *x)
{
  mill_fourier_pair(n, half, j, inverse, root, MILL_GUESS_TEMPLATES, x);
}

#endif
