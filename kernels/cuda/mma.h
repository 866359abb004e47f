/* SPDX-License-Identifier: BSD-3-Clause */
/** Tensor cores in float64. */
#pragma once

enum {
  MILL_MMA_ROWS = 8, /**< rows and columns of a tile of products */
  MILL_MMA_SUMS = 4  /**< products that one instruction adds up */
};

/** Add the product a [8][4] b [4][8] to c [8][8], by a warp.  A lane holds these elements:
 *
 *  a  row lane / 4, column lane % 4
 *  b  row lane % 4, column lane / 4
 *  c  row lane / 4, columns 2 (lane % 4) and 2 (lane % 4) + 1
 *
 *  With one value as both a and b, b is a^T, and c gains the products of a's rows. */
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
