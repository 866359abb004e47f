/* SPDX-License-Identifier: BSD-3-Clause */
/** The guess's products on a CPU: vectors of templates.  Included by
 *  kernels/star/blocks/guess.h. */
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

/** Stars that a template is loaded for at a time: as many as have their sums in registers. */
enum { MILL_GUESS_STARS = MILL_VEC_BYTES == 64 ? 8 : 4 };

/** Add conj(D) T of n_block blocks at one frequency, for MILL_GUESS_TEMPLATES templates and n_star
 *  stars.
 *
 *  d    in      real parts of D of a star's blocks, imaginary parts MILL_GUESS_LANE on
 *  t    in      real parts of T of the first template, imaginary parts MILL_GUESS_LANE on; blocks
 *               lie 2 MILL_GUESS_LANE apart
 *  sum  in/out  of a star: real parts, imaginary parts MILL_GUESS_LANE on */
MILL_INLINE void mill_guess_products(const int n_star, int n_block, const float *const *d,
                                     const float *t, float *const *sum)
{
  enum { N = MILL_GUESS_LANE };
  for (int l = 0; l < N; l += MILL_VEC_N_F32) {
    mill_vec_f32 re[MILL_GUESS_STARS], im[MILL_GUESS_STARS];
#pragma GCC unroll 8
    for (int s = 0; s < n_star; s++) {
      re[s] = mill_vec_load_f32(sum[s] + l);
      im[s] = mill_vec_load_f32(sum[s] + N + l);
    }
    for (int i = 0; i < n_block; i++) {
      /* those of the next frequency come from afar meanwhile */
      __builtin_prefetch(t + (ptrdiff_t)(i + n_block) * 2 * N + l);
      __builtin_prefetch(t + (ptrdiff_t)(i + n_block) * 2 * N + N + l);
      const mill_vec_f32 a = mill_vec_load_f32(t + (ptrdiff_t)i * 2 * N + l);
      const mill_vec_f32 b = mill_vec_load_f32(t + (ptrdiff_t)i * 2 * N + N + l);
#pragma GCC unroll 8
      for (int s = 0; s < n_star; s++) {
        const float x = d[s][i], y = d[s][N + i];
        re[s] += x * a;
        im[s] += x * b;
        re[s] += y * b;
        im[s] -= y * a;
      }
    }
#pragma GCC unroll 8
    for (int s = 0; s < n_star; s++) {
      *(mill_vec_f32 *)(sum[s] + l) = re[s];
      *(mill_vec_f32 *)(sum[s] + N + l) = im[s];
    }
  }
}

/** A pair of a step of the inverse transform, each its real and its imaginary part. */
MILL_INLINE void mill_guess_turn(const float *root, mill_vec_f32 *x, mill_vec_f32 *y)
{
  const mill_vec_f32 re = root[0] * y[0] + root[1] * y[1], im = root[0] * y[1] - root[1] * y[0];
  y[0] = x[0] - re;
  y[1] = x[1] - im;
  x[0] += re;
  x[1] += im;
}

/** Two steps of the inverse transform, whose pairs lie half and 2 half apart, in one: fours number
 *  0 to n_four - 1.  Of the last steps only real parts of the first numbers are wanted. */
MILL_INLINE void mill_guess_fours(mill_block *b, int n, int half, int n_four, int is_last,
                                  const float *root, float *x)
{
  const ptrdiff_t apart = (ptrdiff_t)half * 2 * MILL_GUESS_LANE;
  const int unit = n / 2 / half;
  MILL_FOR(b, j, n_four)
  {
    const int k = j & (half - 1);
    float *at = x + (ptrdiff_t)(4 * j - 3 * k) * 2 * MILL_GUESS_LANE;
    const float *first = root + 2 * (k * unit), *second = root + k * unit;
    for (int l = 0; l < MILL_GUESS_LANE; l += MILL_VEC_N_F32) {
      mill_vec_f32 v[4][2];
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++) {
        v[i][0] = mill_vec_load_f32(at + i * apart + l);
        v[i][1] = mill_vec_load_f32(at + i * apart + MILL_GUESS_LANE + l);
      }
      mill_guess_turn(first, v[0], v[1]);
      mill_guess_turn(first, v[2], v[3]);
      mill_guess_turn(second, v[0], v[2]);
      mill_guess_turn(second + n / 2, v[1], v[3]);
      if (is_last) {
        *(mill_vec_f32 *)(at + l) = v[0][0];
        continue;
      }
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++) {
        *(mill_vec_f32 *)(at + i * apart + l) = v[i][0];
        *(mill_vec_f32 *)(at + i * apart + MILL_GUESS_LANE + l) = v[i][1];
      }
    }
  }
  MILL_BARRIER(b);
}

/** Transform sum back and put real parts of n_lane sequences, the last of nv <= n / 4 first, into
 *  chisq [n_lane][nv]. */
MILL_BLOCK_FN void mill_block_guess_back(mill_block *b, int n, int nv, int n_lane,
                                         const float *root, float *sum, double *chisq)
{
  int half = 1;
  if (!(n & 0x55555555)) { /* an odd number of steps */
    MILL_FOR(b, j, n / 2)
    {
      mill_fourier_pair(n, half, j, 1, root, MILL_GUESS_LANE, sum);
    }
    MILL_BARRIER(b);
    half = 2;
  }
  for (; 4 * half < n; half *= 4)
    mill_guess_fours(b, n, half, n / 4, 0, root, sum);
  mill_guess_fours(b, n, half, nv, 1, root, sum);
  MILL_FOR(b, k, n_lane)
  {
    MILL_SIMD
    for (int v = 0; v < nv; v++)
      chisq[k * nv + v] = (double)sum[(nv - 1 - v) * 2 * MILL_GUESS_LANE + k];
  }
  MILL_BARRIER(b);
}

/** The least of chisq [v0, v1), infinite where none is finite, and the first place where it is. */
MILL_INLINE int mill_guess_least(const double *chisq, int v0, int v1, double *least)
{
  double x = INFINITY;
  int at = v1;
  MILL_SIMD_MIN(x)
  for (int v = v0; v < v1; v++)
    x = chisq[v] < x ? chisq[v] : x;
  MILL_SIMD_MIN(at)
  for (int v = v0; v < v1; v++)
    at = chisq[v] == x && v < at ? v : at;
  *least = at < v1 ? x : INFINITY; /* clang begins with a finite one */
  return at < v1 ? at : v0;
}

/** mill_fourier_pair of them. */
MILL_INLINE void mill_guess_pair(int n, int half, int j, int inverse, const float *root, float *x)
{
  mill_fourier_pair(n, half, j, inverse, root, MILL_GUESS_TEMPLATES, x);
}

#endif
