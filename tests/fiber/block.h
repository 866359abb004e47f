/* SPDX-License-Identifier: BSD-3-Clause */
/** A block as several fibers, in the checking build; kernels/math/block.h explains the names. */
#pragma once

typedef struct mill_block {
  int id;       /**< of the running fiber */
  int n;        /**< fibers of the block */
  double *sums; /**< [n][MILL_BLOCK_MAX_SUM] */
} mill_block;

/** Yield until all fibers of the block have come here (tests/fiber/fiber.c). */
void mill_fiber_barrier(mill_block *b);

/** Run body(block, task) as one block of fibers (tests/fiber/fiber.h). */
void mill_block_run(void (*body)(mill_block *, void *), void *task);

#define MILL_BLOCK_FN           static inline
#define MILL_HAS_PAIRS          1
#define MILL_ARM_FIRST(arm)     ((arm)->first)
#define MILL_FOR(b, i, n_)      for (int i = (b)->id; i < (n_); i += (b)->n)
#define MILL_FOR_SIMD(b, i, n_) MILL_FOR(b, i, n_)
#define MILL_FOR_BATCHES(b, first, n_)                                                             \
  for (int first = (b)->id * MILL_BATCH; first < (n_); first += (b)->n * MILL_BATCH)
#define MILL_BATCH_LEN(first, n)          ((n) - (first) < MILL_BATCH ? (n) - (first) : MILL_BATCH)
#define MILL_BATCH_AT(b, first, i, n)     ((first) + (i))
#define MILL_BATCH_HAS(b, first, i, n)    1
#define MILL_FOR_MIN(b, i, n, least, sum) MILL_FOR(b, i, n)
#define MILL_FOR_SUM(b, i, n_, ...)       MILL_FOR(b, i, n_)
#define MILL_SERIAL(b)                    if ((b)->id == 0)
#define MILL_BARRIER(b)                   mill_fiber_barrier(b)
#define MILL_SIMD
#define MILL_SIMD_SUM(...)
#define MILL_SIMD_MIN(x)
#define MILL_SIMD_MAX(x)
#define MILL_SIMD_PRODUCT(product, sum)
#define MILL_GLOBAL(p) ((void)(p))
#define MILL_UNROLL

#define MILL_FOR_TILES(b, c, n)            MILL_FOR(b, c, n)
#define MILL_TILE_MEMORY(b, type, name, n) type name[n]
#define MILL_FOR_TILE(b, i, first, end)    for (int i = (first); i < (end); i++)
#define MILL_TILE_BARRIER(b)               ((void)(b))
#define MILL_FORGET()                      ((void)0)

enum { MILL_CHUNK = 16, MILL_PIXEL_CHUNK = 16, MILL_BATCH = 16, MILL_TILE = 16 };

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
