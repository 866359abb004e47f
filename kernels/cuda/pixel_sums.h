/** What the sums over pixels of a GPU are made of (pixel_sums_impl.h): products of rows by float64
 *  tensor cores, small matrices by the lanes of a warp.  Only the order of sums differs from the
 *  CPU's (kernels/cpu/pixel_sums.h). */
#ifndef MILL_CUDA_PIXEL_SUMS_H
#define MILL_CUDA_PIXEL_SUMS_H

#include <float.h>

#include "kernels/math/block.h"
#include "kernels/math/gram.h"
#include "kernels/star/slot.h"

enum {
  MILL_MMA_ROWS = 8,     /**< of a tile of products */
  MILL_MMA_PIXELS = 4,   /**< that one instruction adds up */
  MILL_GRAM_PIXELS = 16, /**< that a warp takes at a time */
  MILL_GRAM_GROUPS = (MILL_MAX_ROWS + MILL_MMA_ROWS - 1) / MILL_MMA_ROWS
};

/** c [8][8] += a [8][4] b [4][8], all of a warp.  A lane has a of row lane / 4 and column
 *  lane % 4, b of row lane % 4 and column lane / 4, c of row lane / 4 and columns
 *  2 (lane % 4) and the next: so the same numbers as a and b are products of rows. */
static __device__ __forceinline__ void mill_mma_f64(double a, double b, double *c)
{
#if defined(MILL_CUDA_EMULATION)
  const double mine[2] = {a, b};
  const unsigned char *all = mill_emu_exchange(mine, sizeof mine);
  const int lane = (int)threadIdx.x & 31;
  for (int k = 0; k < MILL_MMA_PIXELS; k++)
    for (int j = 0; j < 2; j++) {
      double x, y;
      memcpy(&x, all + (lane / 4 * 4 + k) * 64, sizeof x);
      memcpy(&y, all + ((2 * (lane % 4) + j) * 4 + k) * 64 + sizeof x, sizeof y);
      c[j] = fma(x, y, c[j]);
    }
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
               : "+d"(c[0]), "+d"(c[1])
               : "d"(a), "d"(b));
#else
  const int lane = (int)threadIdx.x & 31;
  for (int k = 0; k < MILL_MMA_PIXELS; k++) {
    const double x = __shfl_sync(0xffffffffu, a, (lane / 4) * 4 + k);
    const double y0 = __shfl_sync(0xffffffffu, b, (2 * (lane % 4)) * 4 + k);
    const double y1 = __shfl_sync(0xffffffffu, b, (2 * (lane % 4) + 1) * 4 + k);
    c[0] = fma(x, y0, c[0]);
    c[1] = fma(x, y1, c[1]);
  }
#endif
}

/** Add the tiles c of all warps in turn to sums: the products of rows [first, n_row) with
 *  the rows up to themselves, at mill_gram_at(r, c) - mill_gram_at(first, 0).  sums in
 *  shared memory; complete for all threads on return. */
template <int n_group>
static __device__ inline void mill_gram_collect(int first, int n_row, const double (*c)[2],
                                                double *sums)
{
  const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
  const int n_warp = (int)blockDim.x >> 5, origin = mill_gram_at(first, 0);
  __syncthreads(); /* other threads may still read the sums before these */
  for (int w = 0; w < n_warp; w++) {
    if (w == warp) {
#pragma unroll
      for (int g = 0; g < n_group; g++)
#pragma unroll
        for (int h = 0; h <= g; h++)
#pragma unroll
          for (int j = 0; j < 2; j++) {
            const int row = MILL_MMA_ROWS * g + lane / 4;
            const int column = MILL_MMA_ROWS * h + 2 * (lane % 4) + j;
            if (row < first || row >= n_row || column > row)
              continue;
            double *sum = sums + mill_gram_at(row, column) - origin;
            *sum = (w == 0 ? 0.0 : *sum) + c[g * (g + 1) / 2 + h][j];
          }
    }
    __syncthreads();
  }
}

/** Factor a [n][n] (lower triangle) as mill_cholesky does and solve for v [n], by one warp.
 *
 *  Both in shared memory, n <= 32.  out: [0] ln det, [1] |L^-1 v|^2.  0, or 1 + the row
 *  that failed; the same on all threads. */
static __device__ inline int mill_block_normal(mill_block *b, int n, double *a, double *v,
                                               double *out)
{
  const unsigned all = 0xffffffffu;
  (void)b;
  if (threadIdx.x < 32) {
    const int i = (int)threadIdx.x, mine = i < n;
    const double floor_rel = (double)n * DBL_EPSILON;
    const double diagonal = mine ? a[i * n + i] : 1.0;
    int failed = 0;
    for (int k = 0; k < n; k++) {
      const double pivot = a[k * n + k], from = __shfl_sync(all, diagonal, k);
      if (!(pivot > floor_rel * from)) {
        failed = 1 + k;
        break; /* all lanes */
      }
      const double root = sqrt(pivot);
      __syncwarp();
      if (i == k)
        a[k * n + k] = root;
      else if (mine && i > k)
        a[i * n + k] /= root;
      __syncwarp();
      if (mine && i > k)
        for (int j = k + 1; j <= i; j++)
          a[i * n + j] -= a[i * n + k] * a[j * n + k];
      __syncwarp();
    }
    if (!failed) {
      double y = mine ? v[i] : 0.0;
      for (int k = 0; k < n; k++) {
        const double yk = __shfl_sync(all, y, k) / a[k * n + k];
        if (i == k)
          y = yk;
        else if (mine && i > k)
          y -= a[i * n + k] * yk;
      }
      const double vv = mill_warp_sum(mine ? y * y : 0.0);
      const double ln_det = 2.0 * mill_warp_sum(mine ? log(a[i * n + i]) : 0.0);
      for (int k = n - 1; k >= 0; k--) {
        const double yk = __shfl_sync(all, y, k) / a[k * n + k];
        if (i == k)
          y = yk;
        else if (i < k)
          y -= a[k * n + i] * yk;
      }
      if (mine)
        v[i] = y;
      if (i == 0) {
        out[0] = ln_det;
        out[1] = vv;
      }
    }
    if (i == 0)
      out[2] = (double)failed;
  }
  __syncthreads();
  return (int)out[2];
}

/** |L^-1 p|^2 of one pixel, p_k at cont[k n], all numbers in registers.
 *  inverse [nk] of L's diagonal. */
template <int n_max>
static __device__ inline double mill_pixel_quadratic_of(int nk, int n, const double *chol,
                                                        const double *inverse, const float *cont)
{
  double z[n_max], sum = 0.0;
#pragma unroll
  for (int k = 0; k < n_max; k++) {
    z[k] = 0.0;
    if (k < nk) {
      double x = (double)cont[(ptrdiff_t)k * n];
#pragma unroll
      for (int l = 0; l < k; l++)
        x -= chol[k * nk + l] * z[l];
      z[k] = x * inverse[k];
      sum += z[k] * z[k];
    }
  }
  return sum;
}

#endif
