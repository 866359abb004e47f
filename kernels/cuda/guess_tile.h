/* SPDX-License-Identifier: BSD-3-Clause */
/** Products and Fourier transforms of the initial guess on a GPU: a thread works on four templates,
 *  loaded as 16 bytes.  Included by kernels/star/blocks/guess.h. */
#pragma once

#include "kernels/math/vector.h"
#include "kernels/star/slot.h"

enum { MILL_GUESS_TEMPLATES = 4, MILL_GUESS_STARS = 1 };

/** One complex number of each of four sequences, in registers.  In the array of sequences, the
 *  imaginary parts lie MILL_GUESS_LANE numbers after the real parts. */
typedef struct mill_four {
  __align__(16) float re[MILL_GUESS_TEMPLATES];
  __align__(16) float im[MILL_GUESS_TEMPLATES];
} mill_four;

MILL_INLINE mill_four mill_four_at(const float *x)
{
  const float4 re = *(const float4 *)(const void *)x;
  const float4 im = *(const float4 *)(const void *)(x + MILL_GUESS_LANE);
  const mill_four four = {{re.x, re.y, re.z, re.w}, {im.x, im.y, im.z, im.w}};
  return four;
}

MILL_INLINE void mill_four_put(const mill_four *x, float *to)
{
  *(float4 *)(void *)to = make_float4(x->re[0], x->re[1], x->re[2], x->re[3]);
  *(float4 *)(void *)(to + MILL_GUESS_LANE) = make_float4(x->im[0], x->im[1], x->im[2], x->im[3]);
}

/** Transform `sum` back; write its real parts to chisq (arguments: kernels/cpu/guess_tile.h). */
MILL_BLOCK_FN void mill_block_guess_back(mill_block *b, int n, int nv, int n_lane,
                                         const float *root, float *sum, double *chisq)
{
  mill_block_fourier(b, n, 1, root, sum);
  MILL_FOR(b, e, nv * n_lane)
  {
    const int k = e / nv, v = e % nv;
    chisq[e] = (double)sum[(nv - 1 - v) * 2 * MILL_GUESS_LANE + k];
  }
  MILL_BARRIER(b);
}

MILL_INLINE int mill_guess_least(const double *chisq, int v0, int v1, double *least)
{
  int at = v0;
  *least = INFINITY;
  for (int v = v0; v < v1; v++)
    if (chisq[v] < *least) {
      *least = chisq[v];
      at = v;
    }
  return at;
}

/** Clear a sum of products. */
MILL_INLINE void mill_guess_zero(float *sum)
{
  const mill_four zero = {};
  mill_four_put(&zero, sum);
}

/** At one frequency, add conj(D) T of n_block blocks of bins to one star's sums.  D, T: transforms
 *  of data and of MILL_GUESS_TEMPLATES templates in a block; arrays: kernels/cpu/guess_tile.h. */
MILL_INLINE void mill_guess_products(int /*n_star is 1*/, int n_block, const float *const *of_star,
                                     const float *t, float *const *to_star)
{
  const float *d = *of_star;
  float *sum = *to_star;
  MILL_GLOBAL(d);
  MILL_GLOBAL(t);
  MILL_GLOBAL(sum);
  mill_four s = mill_four_at(sum);
  MILL_PRAGMA(unroll 4) /* overlap the loads of four blocks */
  for (int k = 0; k < n_block; k++) {
    const float x = d[k], y = d[MILL_GUESS_LANE + k];
    const mill_four of = mill_four_at(t + 2 * MILL_GUESS_LANE * k);
    MILL_UNROLL
    for (int l = 0; l < MILL_GUESS_TEMPLATES; l++) {
      s.re[l] += x * of.re[l] + y * of.im[l];
      s.im[l] += x * of.im[l] - y * of.re[l];
    }
  }
  mill_four_put(&s, sum);
}

/** Apply butterfly j, which joins numbers `half` apart, to MILL_GUESS_TEMPLATES sequences. */
MILL_INLINE void mill_guess_pair(int n, int half, int j, int inverse, const float *root, float *x)
{
  const int k = j & (half - 1), i_root = k * (n / 2 / half);
  MILL_GLOBAL(root);
  MILL_GLOBAL(x);
  const float2 w = *(const float2 *)(const void *)(root + 2 * i_root);
  float *at0 = x + (2 * j - k) * 2 * MILL_GUESS_LANE, *at1 = at0 + half * 2 * MILL_GUESS_LANE;
  mill_four a = mill_four_at(at0), b = mill_four_at(at1);
  MILL_UNROLL
  for (int l = 0; l < MILL_GUESS_TEMPLATES; l++) {
    if (inverse) {
      const float re = w.x * b.re[l] + w.y * b.im[l], im = w.x * b.im[l] - w.y * b.re[l];
      b.re[l] = a.re[l] - re;
      b.im[l] = a.im[l] - im;
      a.re[l] += re;
      a.im[l] += im;
    } else {
      const float re = a.re[l] - b.re[l], im = a.im[l] - b.im[l];
      a.re[l] += b.re[l];
      a.im[l] += b.im[l];
      b.re[l] = w.x * re - w.y * im;
      b.im[l] = w.x * im + w.y * re;
    }
  }
  mill_four_put(&a, at0);
  mill_four_put(&b, at1);
}
