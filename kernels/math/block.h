/** A block: the work of one star as loops over pixels between barriers.
 *
 *  The same source is compiled three ways.
 *   - CPU: a block is one thread; MILL_FOR is a plain loop and a barrier nothing.
 *   - CUDA: a block is a thread block; MILL_FOR strides over its threads and a
 *     barrier is __syncthreads.
 *   - fibers (MILL_BLOCK_FIBERS): a checking CPU build, in which a block is
 *     several fibers that run between barriers in a seeded random order, so
 *     that a missing barrier shows without a GPU (kernels/fiber/).
 *
 *  Rules for code in a block function: every thread reaches every barrier;
 *  a loop body writes only its own elements; what one loop writes and another
 *  reads has a MILL_BARRIER between; scalar work stands in MILL_SERIAL and is
 *  followed by a barrier before anybody reads what it wrote; sums go through
 *  mill_block_sum, which returns the total to all threads.
 */
#ifndef MILL_BLOCK_H
#define MILL_BLOCK_H

#include "kernels/base/common.h"

/** Sums that one call of mill_block_sum_n may take. */
enum { MILL_BLOCK_MAX_SUM = 640 };

#if defined(__CUDACC__)

typedef struct mill_block {
  double *shared; /**< [MILL_BLOCK_SHARED] shared by the threads of the block */
  void *stage;    /**< [warps][bytes by the type of templates], for splines; else NULL */
} mill_block;

/** Threads of a block at most, sums that cross it at once, and numbers that takes. */
enum {
  MILL_BLOCK_MAX_WARP = 8,
  MILL_BLOCK_SUMS_AT_ONCE = 16,
  MILL_BLOCK_SHARED = MILL_BLOCK_MAX_WARP * MILL_BLOCK_SUMS_AT_ONCE
};

#define MILL_BLOCK_FN          static __device__ inline
#define MILL_FOR(b, i, n)      for (int i = (int)threadIdx.x; i < (n); i += (int)blockDim.x)
#define MILL_FOR_SIMD(b, i, n) MILL_FOR(b, i, n)
#define MILL_SERIAL(b)         if (threadIdx.x == 0)
#define MILL_BARRIER(b)        __syncthreads()
#define MILL_SIMD
#define MILL_SIMD_SUM(...)
#define MILL_SIMD_PRODUCT(product, sum)
#define MILL_FOR_MIN(b, i, n, least, sum) MILL_FOR(b, i, n)
enum { MILL_CHUNK = 1 }; /* neighbouring threads at neighbouring pixels */

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

#elif defined(MILL_BLOCK_FIBERS)

typedef struct mill_block {
  int id;       /**< of the running fiber */
  int n;        /**< fibers of the block */
  double *sums; /**< [n][MILL_BLOCK_MAX_SUM] */
} mill_block;

/** Yield until all fibers of the block have come here (kernels/fiber/fiber.c). */
void mill_fiber_barrier(mill_block *b);

#define MILL_BLOCK_FN           static inline
#define MILL_FOR(b, i, n_)      for (int i = (b)->id; i < (n_); i += (b)->n)
#define MILL_FOR_SIMD(b, i, n_) MILL_FOR(b, i, n_)
#define MILL_SERIAL(b)          if ((b)->id == 0)
#define MILL_BARRIER(b)         mill_fiber_barrier(b)
#define MILL_SIMD
#define MILL_SIMD_SUM(...)
#define MILL_SIMD_PRODUCT(product, sum)
#define MILL_FOR_MIN(b, i, n, least, sum) MILL_FOR(b, i, n)
enum { MILL_CHUNK = 16 };

static inline void mill_block_sum_n(mill_block *b, const double *part, int n, double *total)
{
  for (int k = 0; k < n; k++)
    b->sums[b->id * MILL_BLOCK_MAX_SUM + k] = part[k];
  mill_fiber_barrier(b);
  for (int k = 0; k < n; k++) {
    double sum = 0.0;
    for (int i = 0; i < b->n; i++)
      sum += b->sums[i * MILL_BLOCK_MAX_SUM + k];
    total[k] = sum;
  }
  mill_fiber_barrier(b);
}

static inline double mill_block_max(mill_block *b, double x)
{
  b->sums[b->id * MILL_BLOCK_MAX_SUM] = x;
  mill_fiber_barrier(b);
  double largest = b->sums[0];
  for (int i = 1; i < b->n; i++)
    largest = fmax(largest, b->sums[i * MILL_BLOCK_MAX_SUM]);
  mill_fiber_barrier(b);
  return largest;
}

#else

typedef struct mill_block {
  int unused;
} mill_block;

#define MILL_PRAGMA(x)         _Pragma(#x)
#define MILL_BLOCK_FN          static inline
#define MILL_FOR(b, i, n)      for (int i = 0; i < (n); i++)
#define MILL_FOR_SIMD(b, i, n) MILL_PRAGMA(omp simd) for (int i = 0; i < (n); i++)
#define MILL_SERIAL(b)
#define MILL_BARRIER(b)    ((void)(b))
#define MILL_SIMD          MILL_PRAGMA(omp simd)
#define MILL_SIMD_SUM(...) MILL_PRAGMA(omp simd reduction(+ : __VA_ARGS__))
#define MILL_SIMD_PRODUCT(product, sum)                                                            \
  MILL_PRAGMA(omp simd reduction(* : product) reduction(+ : sum))
#define MILL_FOR_MIN(b, i, n, least, sum)                                                          \
  MILL_PRAGMA(omp simd reduction(min : least) reduction(+ : sum)) for (int i = 0; i < (n); i++)
enum { MILL_CHUNK = 64 };

static inline void mill_block_sum_n(mill_block *b, const double *part, int n, double *total)
{
  (void)b;
  for (int k = 0; k < n; k++)
    total[k] = part[k];
}

static inline double mill_block_max(mill_block *b, double x)
{
  (void)b;
  return x;
}

#endif

/** Sum over the threads of a block, the same on all of them. */
MILL_BLOCK_FN double mill_block_sum(mill_block *b, double part)
{
  double total;
  mill_block_sum_n(b, &part, 1, &total);
  return total;
}

#endif
