/* SPDX-License-Identifier: BSD-3-Clause */
/** A block on a CPU: one thread.  Included by kernels/math/block.h, which explains the names. */
#pragma once

typedef struct mill_block {
  int unused;
} mill_block;

#define MILL_PRAGMA(x)                 _Pragma(#x)
#define MILL_BLOCK_FN                  static inline
#define MILL_HAS_PAIRS                 1
#define MILL_ARM_FIRST(arm)            ((arm)->first)
#define MILL_FOR(b, i, n)              for (int i = 0; i < (n); i++)
#define MILL_FOR_SIMD(b, i, n)         MILL_PRAGMA(omp simd) for (int i = 0; i < (n); i++)
#define MILL_FOR_BATCHES(b, first, n)  for (int first = 0; first < (n); first += MILL_BATCH)
#define MILL_BATCH_LEN(first, n)       ((n) - (first) < MILL_BATCH ? (n) - (first) : MILL_BATCH)
#define MILL_BATCH_AT(b, first, i, n)  ((first) + (i))
#define MILL_BATCH_HAS(b, first, i, n) 1
#define MILL_FOR_MIN(b, i, n, least, sum)                                                          \
  MILL_PRAGMA(omp simd reduction(min : least) reduction(+ : sum)) for (int i = 0; i < (n); i++)
#define MILL_FOR_SUM(b, i, n, ...) MILL_SIMD_SUM(__VA_ARGS__) for (int i = 0; i < (n); i++)
#define MILL_SERIAL(b)
#define MILL_BARRIER(b)    ((void)(b))
#define MILL_SIMD          MILL_PRAGMA(omp simd)
#define MILL_SIMD_SUM(...) MILL_PRAGMA(omp simd reduction(+ : __VA_ARGS__))
#define MILL_SIMD_MIN(x)   MILL_PRAGMA(omp simd reduction(min : x))
#define MILL_SIMD_MAX(x)   MILL_PRAGMA(omp simd reduction(max : x))
#define MILL_SIMD_PRODUCT(product, sum)                                                            \
  MILL_PRAGMA(omp simd reduction(* : product) reduction(+ : sum))
#define MILL_GLOBAL(p) ((void)(p))
#define MILL_UNROLL

#define MILL_FOR_TILES(b, c, n)            MILL_FOR(b, c, n)
#define MILL_TILE_MEMORY(b, type, name, n) type name[n]
#define MILL_FOR_TILE(b, i, first, end)    MILL_SIMD for (int i = (first); i < (end); i++)
#define MILL_TILE_BARRIER(b)               ((void)(b))
#define MILL_FORGET()                      ((void)0)

/** Numbers of elements (kernels/math/block.h) whose rows stay in the first-level cache. */
enum { MILL_CHUNK = 64, MILL_PIXEL_CHUNK = 128, MILL_BATCH = 128, MILL_TILE = 256 };

static inline void mill_block_run(void (*body)(mill_block *, void *), void *task)
{
  mill_block b = {0};
  body(&b, task);
}

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
