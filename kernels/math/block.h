/* SPDX-License-Identifier: BSD-3-Clause */
/** A block: the threads that work on one star, in loops over pixels between barriers.
 *
 *  On the CPU a block is one thread, on a GPU a thread block, in the checking build several
 *  fibers (kernels/math/primitives.h).  Each backend's block.h gives:
 *
 *   MILL_BLOCK_FN                   qualifiers of a block function
 *   MILL_HAS_PAIRS                  1: spectra of two stars can be fitted
 *   MILL_ARM_FIRST(arm)             arm->first, where a part of an arm begins; on a GPU 0
 *   MILL_FOR(b, i, n)               a loop over i = 0 .. n - 1, shared among the threads
 *   MILL_FOR_SIMD(b, i, n)          MILL_FOR; the CPU works on several i at once
 *   MILL_FOR_BATCHES(b, first, n)   a loop over batches of elements: a thread loads a whole batch,
 *                                   computes, then stores it, so that loads overlap.  In its body:
 *   MILL_BATCH_LEN(first, n)        elements of the batch, MILL_BATCH at most
 *   MILL_BATCH_AT(b, first, i, n)   index of the batch's element i, one of 0 .. n - 1
 *   MILL_BATCH_HAS(b, first, i, n)  must this thread store element i?
 *   MILL_FOR_MIN(b, i, n, x, sum)   MILL_FOR_SIMD; each thread has its own minimum x and sum
 *   MILL_FOR_SUM(b, i, n, ...)      MILL_FOR_SIMD; each thread has its own sums (last arguments)
 *   MILL_SERIAL(b)                  work of one thread
 *   MILL_BARRIER(b)                 all threads wait for each other
 *   MILL_SIMD, MILL_SIMD_SUM(..), MILL_SIMD_PRODUCT(..), MILL_SIMD_MAX(..)
 *                                   before a loop inside one thread's work
 *   MILL_GLOBAL(p)                  p points to global memory of a GPU
 *   MILL_UNROLL                     before a loop whose array must stay in registers
 *   MILL_FOR_TILES(b, c, n)         a loop over tiles of elements with common inputs.  A thread of
 *                                   a CPU or a warp of a GPU takes a tile.  In its body:
 *   MILL_TILE_MEMORY(b, type, x, n) declares x [n], which a tile's elements share
 *   MILL_FOR_TILE(b, i, first, end) loops over elements [first, end) of the tile
 *   MILL_TILE_BARRIER(b)            separates two loops over a tile's elements
 *   MILL_FORGET()                   a GPU drops values in registers and loads them again
 *   MILL_CHUNK                      elements of a sum that a thread takes at a time
 *   MILL_PIXEL_CHUNK                pixels of a row that a thread takes at a time
 *   MILL_TILE                       elements of a tile
 *   mill_block_sum_n, mill_block_max  sums, or the maximum, over the threads; returned to all
 *
 *  Rules of a block function:
 *   - Every thread reaches every barrier.
 *   - A loop body writes only its own elements.
 *   - A MILL_BARRIER separates a loop that writes data from a loop that reads the data.
 *   - MILL_SERIAL holds scalar work; a barrier must come before other threads read the results. */
#pragma once

#include "kernels/base/common.h"
#include "kernels/math/primitives.h"

/** Most sums of one call of mill_block_sum_n. */
enum { MILL_BLOCK_MAX_SUM = 776 };

#include MILL_PRIMITIVES_BLOCK

/** Return the number of chunks of `size` elements (MILL_CHUNK, MILL_PIXEL_CHUNK) in n elements, and
 *  the length of the chunk that begins at element `first`. */
MILL_HD static inline int mill_chunks(int n, int size)
{
  return (n + size - 1) / size;
}
MILL_HD static inline int mill_chunk_len(int n, int first, int size)
{
  return n - first < size ? n - first : size;
}

/** Return the sum of part over the threads of a block, the same on all of them. */
MILL_BLOCK_FN double mill_block_sum(mill_block *b, double part)
{
  double total;
  mill_block_sum_n(b, &part, 1, &total);
  return total;
}
