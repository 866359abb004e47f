/** The block of a GPU: a thread block.  Included by kernels/math/block.h, which explains the
 *  names. */
#ifndef MILL_CUDA_BLOCK_H
#define MILL_CUDA_BLOCK_H

typedef struct mill_block {
  double *shared; /**< [MILL_BLOCK_SHARED] shared by the threads of the block */
  void *stage;    /**< [warps][numbers of a tile's memory] shared by a warp; NULL: no tiles */
} mill_block;

/** Threads of a block at most, sums that cross it at once, and numbers that takes. */
enum {
  MILL_BLOCK_MAX_WARP = 8,
  MILL_BLOCK_SUMS_AT_ONCE = 16,
  MILL_BLOCK_SHARED = MILL_BLOCK_MAX_WARP * MILL_BLOCK_SUMS_AT_ONCE
};

#define MILL_PRAGMA(x)                    _Pragma(#x)
#define MILL_BLOCK_FN                     static __device__ inline
#define MILL_FOR(b, i, n)                 for (int i = (int)threadIdx.x; i < (n); i += (int)blockDim.x)
#define MILL_FOR_SIMD(b, i, n)            MILL_FOR(b, i, n)
#define MILL_FOR_MIN(b, i, n, least, sum) MILL_FOR(b, i, n)
#define MILL_SERIAL(b)                    if (threadIdx.x == 0)
#define MILL_BARRIER(b)                   __syncthreads()
#define MILL_SIMD
#define MILL_SIMD_SUM(...)
#define MILL_SIMD_PRODUCT(product, sum)
#define MILL_UNROLL MILL_PRAGMA(unroll)

#define MILL_FOR_TILES(b, c, n)                                                                    \
  for (int c = (int)threadIdx.x >> 5; c < (n); c += (int)blockDim.x >> 5)
#define MILL_TILE_MEMORY(b, type, name, n)                                                         \
  type *name = (type *)(b)->stage + (size_t)(threadIdx.x >> 5) * (size_t)(n)
#define MILL_FOR_TILE(b, i, first, end)                                                            \
  for (int i = (first) + ((int)threadIdx.x & 31); i < (end); i += 32)
#define MILL_TILE_BARRIER(b) __syncwarp()

/** Chunks of one, so that neighbouring threads are at neighbouring elements. */
enum { MILL_CHUNK = 1, MILL_PIXEL_CHUNK = 1, MILL_TILE = 128 };

/** Sum over the lanes of a warp, the same on all of them; fixed order. */
static __device__ inline double mill_warp_sum(double x)
{
  for (int o = 16; o > 0; o >>= 1)
    x += __shfl_xor_sync(0xffffffffu, x, o);
  return x;
}

static __device__ inline void mill_block_sum_n(mill_block *b, const double *part, int n,
                                               double *total)
{
  /* fixed order: lanes of a warp by shuffles, then warps in turn */
  const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
  const int n_warp = ((int)blockDim.x + 31) >> 5;
  for (int first = 0; first < n; first += MILL_BLOCK_SUMS_AT_ONCE) {
    const int end = n - first < MILL_BLOCK_SUMS_AT_ONCE ? n : first + MILL_BLOCK_SUMS_AT_ONCE;
    for (int k = first; k < end; k++) {
      const double x = mill_warp_sum(part[k]);
      if (lane == 0)
        b->shared[warp * MILL_BLOCK_SUMS_AT_ONCE + k - first] = x;
    }
    __syncthreads();
    for (int k = first; k < end; k++) {
      double sum = 0.0;
      for (int w = 0; w < n_warp; w++)
        sum += b->shared[w * MILL_BLOCK_SUMS_AT_ONCE + k - first];
      total[k] = sum;
    }
    __syncthreads();
  }
}

static __device__ inline double mill_block_max(mill_block *b, double x)
{
  const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
  const int n_warp = ((int)blockDim.x + 31) >> 5;
  for (int o = 16; o > 0; o >>= 1)
    x = fmax(x, __shfl_xor_sync(0xffffffffu, x, o));
  if (lane == 0)
    b->shared[warp] = x;
  __syncthreads();
  double largest = b->shared[0];
  for (int w = 1; w < n_warp; w++)
    largest = fmax(largest, b->shared[w]);
  __syncthreads();
  return largest;
}

#endif
