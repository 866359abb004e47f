/* SPDX-License-Identifier: BSD-3-Clause */
/** A block on a GPU: a thread block.  kernels/math/block.h includes this and explains the names. */
#pragma once

typedef struct mill_block {
  int thread, n_thread; /**< constants after inlining */
  double *shared;       /**< [MILL_BLOCK_SHARED] shared by the threads of the block */
  void *stage;          /**< [warps][numbers of a tile's memory] shared memory; NULL: no tiles */
  struct mill_team_memory *team; /**< memory of warps that work alone; NULL: none do */
} mill_block;

enum {
  MILL_BLOCK_THREADS = 128,
  MILL_BLOCK_WARPS = MILL_BLOCK_THREADS / 32,
  MILL_BLOCK_SUMS_AT_ONCE = 16, /**< numbers that one pass adds up over the threads of a block */
  MILL_BLOCK_SHARED = MILL_BLOCK_WARPS * MILL_BLOCK_SUMS_AT_ONCE /**< size of mill_block.shared */
};

/** All threads of the thread block. */
static __device__ __forceinline__ mill_block mill_block_whole(double *shared, void *stage)
{
  mill_block b;
  b.thread = (int)threadIdx.x;
  b.n_thread = MILL_BLOCK_THREADS;
  b.shared = shared;
  b.stage = stage;
  b.team = NULL;
  return b;
}

/** Wait for all of n_thread threads: a warp, or the thread block. */
static __device__ __forceinline__ void mill_threads_wait(int n_thread)
{
  if (n_thread == 32)
    __syncwarp();
  else
    __syncthreads();
}

#define MILL_PRAGMA(x) _Pragma(#x)
/* Block functions are inlined, to keep the block in registers.  A file where this does not matter
 * defines MILL_BLOCK_FN as __noinline__ and compiles in half the time. */
#ifndef MILL_BLOCK_FN
#define MILL_BLOCK_FN static __device__ __forceinline__
#endif
#ifndef MILL_HAS_PAIRS /* 1: with code for two stars, which costs registers */
#define MILL_HAS_PAIRS 0
#endif
#define MILL_ARM_FIRST(arm) 0
#define MILL_FOR(b, i, n)   for (int i = (b)->thread; i < (n); i += (b)->n_thread)
/* overlap the loads of several elements */
#define MILL_FOR_SIMD(b, i, n) MILL_PRAGMA(unroll 4) MILL_FOR(b, i, n)
/* Neighbouring threads take neighbouring elements.  In place of an element beyond n, a thread loads
 * the first element of its batch: no other thread changes this one meanwhile. */
#define MILL_FOR_BATCHES(b, first, n)                                                              \
  for (int first = (b)->thread; first < (n); first += MILL_BATCH * (b)->n_thread)
#define MILL_BATCH_LEN(first, n)       MILL_BATCH
#define MILL_BATCH_HAS(b, first, i, n) ((first) + (i) * (b)->n_thread < (n))
#define MILL_BATCH_AT(b, first, i, n)                                                              \
  (MILL_BATCH_HAS(b, first, i, n) ? (first) + (i) * (b)->n_thread : (first))
#define MILL_FOR_MIN(b, i, n, least, sum) MILL_FOR(b, i, n)
#define MILL_FOR_SUM(b, i, n, ...)        MILL_FOR(b, i, n)
#define MILL_SERIAL(b)                    if ((b)->thread == 0)
#define MILL_BARRIER(b)                   mill_threads_wait((b)->n_thread)
#define MILL_SIMD
#define MILL_SIMD_SUM(...)
#define MILL_SIMD_MAX(x)
#define MILL_SIMD_PRODUCT(product, sum)
#if defined(__CUDA_ARCH__) /* the host's compiler has no such pragma */
#define MILL_UNROLL MILL_PRAGMA(unroll)
#else
#define MILL_UNROLL
#endif
/* MILL_GLOBAL and MILL_SHARED tell the compiler a pointer's memory space.  Never use them on a
 * pointer and on another derived from it: nvcc 13.0 then drops the whole function
 * (tests/cuda/kernel_gates.py checks).  After MILL_FORGET the compiler loads all values again. */
#if defined(__CUDA_ARCH__)
#define MILL_GLOBAL(p) __builtin_assume(__isGlobal(p))
#define MILL_SHARED(p) __builtin_assume(__isShared(p))
#define MILL_FORGET()  asm volatile("" ::: "memory")
#else
#define MILL_GLOBAL(p) ((void)0)
#define MILL_SHARED(p) ((void)0)
#define MILL_FORGET()  ((void)0)
#endif

#define MILL_FOR_TILES(b, c, n) for (int c = (b)->thread >> 5; c < (n); c += (b)->n_thread >> 5)
#define MILL_TILE_MEMORY(b, type, name, n)                                                         \
  type *name = (type *)(b)->stage + (size_t)((b)->thread >> 5) * (size_t)(n);                      \
  MILL_SHARED(name)
#define MILL_FOR_TILE(b, i, first, end)                                                            \
  MILL_PRAGMA(unroll 4) for (int i = (first) + ((b)->thread & 31); i < (end); i += 32)
#define MILL_TILE_BARRIER(b) __syncwarp()

/** A chunk is one element, so that neighbouring threads are at neighbouring elements. */
enum { MILL_CHUNK = 1, MILL_PIXEL_CHUNK = 1, MILL_BATCH = 4, MILL_TILE = 224 };

/** Sum over the lanes of a warp, in a fixed order, returned to all lanes. */
static __device__ inline double mill_warp_sum(double x)
{
  for (int o = 16; o > 0; o >>= 1)
    x += __shfl_xor_sync(0xffffffffu, x, o);
  return x;
}

/** Sum part [n] over the threads of a block, in a fixed order: the lanes of each warp, then the
 *  warps.  All threads get total [n]. */
static __device__ inline void mill_block_sum_n(mill_block *b, const double *part, int n,
                                               double *total)
{
  const int lane = b->thread & 31, warp = b->thread >> 5, n_warp = b->n_thread >> 5;
  for (int first = 0; first < n; first += MILL_BLOCK_SUMS_AT_ONCE) {
    const int end = n - first < MILL_BLOCK_SUMS_AT_ONCE ? n : first + MILL_BLOCK_SUMS_AT_ONCE;
    for (int k = first; k < end; k++) {
      const double x = mill_warp_sum(part[k]);
      if (lane == 0)
        b->shared[warp * MILL_BLOCK_SUMS_AT_ONCE + k - first] = x;
    }
    MILL_BARRIER(b);
    for (int k = first; k < end; k++) {
      double sum = 0.0;
      for (int w = 0; w < n_warp; w++)
        sum += b->shared[w * MILL_BLOCK_SUMS_AT_ONCE + k - first];
      total[k] = sum;
    }
    MILL_BARRIER(b);
  }
}

/** Return the largest x of all threads of a block to each of them. */
static __device__ inline double mill_block_max(mill_block *b, double x)
{
  const int lane = b->thread & 31, warp = b->thread >> 5, n_warp = b->n_thread >> 5;
  for (int o = 16; o > 0; o >>= 1)
    x = fmax(x, __shfl_xor_sync(0xffffffffu, x, o));
  if (lane == 0)
    b->shared[warp] = x;
  MILL_BARRIER(b);
  double largest = b->shared[0];
  for (int w = 1; w < n_warp; w++)
    largest = fmax(largest, b->shared[w]);
  MILL_BARRIER(b); /* all threads have read b->shared */
  return largest;
}
