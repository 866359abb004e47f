/* SPDX-License-Identifier: BSD-3-Clause */
/** Discrete Fourier transforms of interleaved float32 sequences.
 *
 *  x [n][2][MILL_FOURIER_LANE] holds real and imaginary parts, one sequence per lane; n is a power
 *  of two.  The forward transform (decimation in frequency) leaves frequencies in bit-reversed
 *  order; the inverse (decimation in time) expects that order and does not divide by n. */
#pragma once

#include "kernels/math/vector.h"

enum { MILL_FOURIER_LANE = 16 /**< sequences side by side */ };

/** Fill root [n / 2][2] with exp(-2 pi i k / n) for k < n / 2, rounded from float64; n >= 2. */
static inline void mill_fourier_roots(int n, float *root)
{
  for (int k = 0; k < n / 2; k++) {
    const double angle = -2.0 * MILL_PI * (double)k / (double)n;
    root[2 * k] = (float)cos(angle);
    root[2 * k + 1] = (float)sin(angle);
  }
}

/** Apply a butterfly of the inverse transform, of root c + i s, to two complex numbers. */
MILL_HD_INLINE void mill_fourier_join(float c, float s, float *re0, float *im0, float *re1,
                                      float *im1)
{
  const float re = c * *re1 + s * *im1, im = c * *im1 - s * *re1;
  *re1 = *re0 - re;
  *im1 = *im0 - im;
  *re0 += re;
  *im0 += im;
}

/** Apply butterfly j < n / 2 of the step that joins numbers `half` apart, to the first n_lane lanes
 *  of x.  root: from mill_fourier_roots. */
MILL_HD_INLINE void mill_fourier_pair(int n, int half, int j, int inverse, const float *root,
                                      int n_lane, float *x)
{
  /* butterfly j joins the numbers 2 j - k and 2 j - k + half */
  const int k = j & (half - 1), i_root = k * (n / 2 / half);
  const float c = root[2 * i_root], s = root[2 * i_root + 1];
  float *re0 = x + (ptrdiff_t)(2 * j - k) * 2 * MILL_FOURIER_LANE, *im0 = re0 + MILL_FOURIER_LANE;
  float *re1 = re0 + (ptrdiff_t)half * 2 * MILL_FOURIER_LANE, *im1 = re1 + MILL_FOURIER_LANE;
  if (inverse) {
    MILL_SIMD
    for (int l = 0; l < n_lane; l++)
      mill_fourier_join(c, s, &re0[l], &im0[l], &re1[l], &im1[l]);
  } else {
    MILL_SIMD
    for (int l = 0; l < n_lane; l++) {
      const float re = re0[l] - re1[l], im = im0[l] - im1[l];
      re0[l] += re1[l];
      im0[l] += im1[l];
      re1[l] = c * re - s * im;
      im1[l] = c * im + s * re;
    }
  }
}

/** Make two steps of the inverse transform on the four numbers of group j < n / 4.  The first step
 *  joins numbers `half` apart, the second 2 * half apart.  Stores the first n_kept of the four. */
MILL_HD_INLINE void mill_fourier_quad(int n, int half, int j, const float *root, const int n_kept,
                                      float *x)
{
  enum { LANE = MILL_FOURIER_LANE };
  /* group j begins with the number 4 j - 3 k; its numbers are `half` apart.  near_root is for the
   * first step, left and right for the pairs (0, 2) and (1, 3) of the second. */
  const int k = j & (half - 1), far = n / 4 / half;
  const float *near_root = root + 4 * k * far;
  const float *left = root + 2 * k * far, *right = left + 2 * half * far;
  const ptrdiff_t apart = (ptrdiff_t)half * 2 * LANE;
  float *at = x + (ptrdiff_t)(4 * j - 3 * k) * 2 * LANE;
  MILL_SIMD
  for (int l = 0; l < LANE; l++) {
    float re[4], im[4];
    for (int i = 0; i < 4; i++) {
      re[i] = at[i * apart + l];
      im[i] = at[i * apart + LANE + l];
    }
    mill_fourier_join(near_root[0], near_root[1], &re[0], &im[0], &re[1], &im[1]);
    mill_fourier_join(near_root[0], near_root[1], &re[2], &im[2], &re[3], &im[3]);
    mill_fourier_join(left[0], left[1], &re[0], &im[0], &re[2], &im[2]);
    mill_fourier_join(right[0], right[1], &re[1], &im[1], &re[3], &im[3]);
    for (int i = 0; i < n_kept; i++) {
      at[i * apart + l] = re[i];
      at[i * apart + LANE + l] = im[i];
    }
  }
}
