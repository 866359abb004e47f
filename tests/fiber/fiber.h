/* SPDX-License-Identifier: BSD-3-Clause */
/** Blocks as fibers: the checking build that finds missing barriers.
 *
 *  A block function runs as several fibers.  Each fiber runs to its next barrier, then the next
 *  fiber in an order drawn from a seed.  Code that reads a number before another thread has written
 *  it thus gives another result than the plain build, and tests compare the two.  mill_block_run
 *  aborts the program if some fibers end while others wait at a barrier: a GPU would hang.
 */
#pragma once

#include "kernels/backend.h"
#include "kernels/math/block.h"
#include "kernels/particles/particles.h"

/** Set the number of fibers per block and the seed of their order; for tests. */
void mill_fiber_configure(int n_fiber, unsigned seed);

/** The CPU's backend and particle engine, built with fibers. */
extern const mill_backend mill_backend_cpu_fiber;
extern const mill_particle_ops mill_particle_ops_cpu_fiber;
