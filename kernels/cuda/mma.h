/* SPDX-License-Identifier: BSD-3-Clause */
/** Tensor cores in float64. */
#ifndef MILL_CUDA_MMA_H
#define MILL_CUDA_MMA_H

enum {
  MILL_MMA_ROWS = 8, /**< of a tile of products */
  MILL_MMA_SUMS = 4  /**< that one instruction adds up */
};

/** c [8][8] += a [8][4] b [4][8], all of a warp.  A lane has a of row lane / 4 and column
 *  lane % 4, b of row lane % 4 and column lane / 4, c of row lane / 4 and columns
 *  2 (lane % 4) and the next: so the same numbers as a and b are products of rows. */
static __device__ __forceinline__ void mill_mma_f64(double a, double b, double *c)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
               : "+d"(c[0]), "+d"(c[1])
               : "d"(a), "d"(b));
#else
  const int lane = (int)threadIdx.x & 31;
  for (int k = 0; k < MILL_MMA_SUMS; k++) {
    const double x = __shfl_sync(0xffffffffu, a, (lane / 4) * 4 + k);
    const double y0 = __shfl_sync(0xffffffffu, b, (2 * (lane % 4)) * 4 + k);
    const double y1 = __shfl_sync(0xffffffffu, b, (2 * (lane % 4) + 1) * 4 + k);
    c[0] = fma(x, y0, c[0]);
    c[1] = fma(x, y1, c[1]);
  }
#endif
}

#endif
