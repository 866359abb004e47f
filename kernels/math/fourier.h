/* SPDX-License-Identifier: BSD-3-Clause */
/** Discrete Fourier transforms of interleaved float32 sequences.
 *
 *  x [n][2][MILL_FOURIER_LANE] holds real and imaginary parts, one sequence per lane; n is a power
 *  of two.  The forward transform (decimation in frequency) leaves frequencies in bit-reversed
 *  order; the inverse (decimation in time) expects that order and does not divide by n.  Products
 *  of transforms work in any order. */
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

/** Apply butterfly j < n / 2 of the step with pairs `half` apart to the first n_lane lanes of x.
 *  root: from mill_fourier_roots. */
MILL_HD_INLINE void mill_fourier_pair(int n, int half, int j, int inverse, const float *root,
                                      int n_lane, float *x)
{
  const int k = j & (half - 1), i_root = k * (n / 2 / half);
  const float c = root[2 * i_root], s = root[2 * i_root + 1];
  float *re0 = x + (ptrdiff_t)(2 * j - k) * 2 * MILL_FOURIER_LANE, *im0 = re0 + MILL_FOURIER_LANE;
  float *re1 = re0 + (ptrdiff_t)half * 2 * MILL_FOURIER_LANE, *im1 = re1 + MILL_FOURIER_LANE;
  if (inverse) {
    MILL_SIMD
    for (int l = 0; l < n_lane; l++) {
      const float re = c * re1[l] + s * im1[l], im = c * im1[l] - s * re1[l];
      re1[l] = re0[l] - re;
      im1[l] = im0[l] - im;
      re0[l] += re;
      im0[l] += im;
    }
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
