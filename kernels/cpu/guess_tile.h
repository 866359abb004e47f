/* SPDX-License-Identifier: BSD-3-Clause */
/** Products of the initial guess's Fourier transforms on a CPU, for vectors of templates. */
#pragma once

#include "kernels/math/fourier.h"
#include "kernels/math/vector.h"
#include "kernels/star/slot.h"

/** All templates of a group. */
enum { MILL_GUESS_TEMPLATES = MILL_GUESS_LANE };

MILL_INLINE void mill_guess_zero(float *sum)
{
  MILL_SIMD
  for (int l = 0; l < 2 * MILL_GUESS_LANE; l++)
    sum[l] = 0.0f;
}

/** Stars that share one load of a template.  The sums of this many stars fit into the registers. */
enum { MILL_GUESS_STARS = MILL_VEC_BYTES == 64 ? 8 : 4 };

/** At one frequency, add conj(D) T of n_block blocks of bins to each star's sums.  D and T are the
 *  Fourier transforms of the data and of a template in a block of wavelength bins.
 *
 *  Index [2] is 0 for real parts, 1 for imaginary parts.
 *  d    in      [n_star] pointers to D [2][MILL_GUESS_LANE], last index: block
 *  t    in      T [n_block][2][MILL_GUESS_LANE], last index: template
 *  sum  in/out  [n_star] pointers to sums [2][MILL_GUESS_LANE], last index: template */
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
      /* prefetch the next frequency's templates */
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

/** Transform sum [n][2][MILL_GUESS_LANE] back to correlations over n velocity bins.  A pass makes
 *  two steps of the transform (radix 4); the last but one may make a single step.  The last pass
 *  computes only the first nv <= n / 4 bins.  chisq [n_lane][nv] gets the real parts of these bins,
 *  in reverse order. */
MILL_BLOCK_FN void mill_block_guess_back(mill_block *b, int n, int nv, int n_lane,
                                         const float *root, float *sum, double *chisq)
{
  enum { INVERSE = 1, KEEP_ONE = 1, KEEP_ALL = 4 };
  for (int apart = 1, radix; apart < n / 4; apart *= radix) {
    radix = apart < n / 8 ? 4 : 2;
    MILL_FOR(b, j, n / radix)
    {
      if (radix == 4)
        mill_fourier_quad(n, apart, j, root, KEEP_ALL, sum);
      else
        mill_fourier_pair(n, apart, j, INVERSE, root, MILL_FOURIER_LANE, sum);
    }
    MILL_BARRIER(b);
  }
  MILL_FOR(b, v, nv)
  {
    mill_fourier_quad(n, n / 4, v, root, KEEP_ONE, sum);
  }
  MILL_BARRIER(b);
  MILL_FOR(b, k, n_lane)
  {
    MILL_SIMD
    for (int v = 0; v < nv; v++)
      chisq[k * nv + v] = (double)sum[(nv - 1 - v) * 2 * MILL_GUESS_LANE + k];
  }
  MILL_BARRIER(b);
}

/** Return the index of the least of chisq [v0, v1), and set *least to its value.  If all are NaN,
 *  return v0 and set *least to infinity. */
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
  *least = at < v1 ? x : INFINITY; /* clang's minimum starts from a finite number */
  return at < v1 ? at : v0;
}

/** mill_fourier_pair (a butterfly) of MILL_GUESS_TEMPLATES sequences. */
MILL_INLINE void mill_guess_pair(int n, int half, int j, int inverse, const float *root, float *x)
{
  mill_fourier_pair(n, half, j, inverse, root, MILL_GUESS_TEMPLATES, x);
}
