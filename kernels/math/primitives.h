/* SPDX-License-Identifier: BSD-3-Clause */
/** Backend-specific primitives of block functions.
 *
 *  The mathematics of a star is written once, in kernels/math and kernels/star, over a few
 *  primitives.  Each backend has its own version of them in its own folder:
 *
 *   - block.h: loops over the elements of a block, barriers, sums over the threads of a
 *     block, tiles that neighbours share, lengths of chunks;
 *   - vector.h: vectors as wide as one instruction works on;
 *   - guess_tile.h: products of the guess's Fourier transforms;
 *   - spline_tile.h: second differences and filters of a spline;
 *   - convolve_tile.h: rotation and resolution matrix away from the ends of a row;
 *   - pixel_sums.h: sums of products over pixels, and the small matrices made of them;
 *     on a CPU also templates computed only at the pixels.
 *
 *  Only this header and kernels/base/common.h ask which backend is compiled.  The checking build
 *  sets MILL_PRIMITIVES_BLOCK to tests/fiber/block.h.  A block is then several fibers, which run in
 *  random order between barriers, so that a missing barrier shows without a GPU. */
#pragma once

#if defined(__CUDACC__)
#define MILL_PRIMITIVES_BLOCK      "kernels/cuda/block.h"
#define MILL_PRIMITIVES_VECTOR     "kernels/cuda/vector.h"
#define MILL_PRIMITIVES_GUESS      "kernels/cuda/guess_tile.h"
#define MILL_PRIMITIVES_SPLINE     "kernels/cuda/spline_tile.h"
#define MILL_PRIMITIVES_CONVOLVE   "kernels/cuda/convolve_tile.h"
#define MILL_PRIMITIVES_PIXEL_SUMS "kernels/cuda/pixel_sums.h"
#else
#ifndef MILL_PRIMITIVES_BLOCK
#define MILL_PRIMITIVES_BLOCK "kernels/cpu/block.h"
#endif
#define MILL_PRIMITIVES_VECTOR     "kernels/cpu/vector.h"
#define MILL_PRIMITIVES_GUESS      "kernels/cpu/guess_tile.h"
#define MILL_PRIMITIVES_SPLINE     "kernels/cpu/spline_tile.h"
#define MILL_PRIMITIVES_CONVOLVE   "kernels/cpu/convolve_tile.h"
#define MILL_PRIMITIVES_PIXEL_SUMS "kernels/cpu/pixel_sums.h"
#endif
