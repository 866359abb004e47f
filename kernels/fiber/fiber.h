/* SPDX-License-Identifier: BSD-3-Clause */
/** Blocks as fibers: the checking build that finds missing barriers.
 *
 *  A block function runs as several cooperating fibers.  Each runs until its
 *  next barrier; then the fibers that still have to reach it run, in an order
 *  drawn from a seed.  Code that reads what another thread has yet to write
 *  therefore gives another result than the plain build, and tests compare.
 *  mill_block_run aborts the program with a message when fibers disagree about a
 *  barrier (some end while others wait): on a GPU that would hang.
 */
#ifndef MILL_FIBER_H
#define MILL_FIBER_H

#include "kernels/math/block.h"

/** Fibers of every block and the seed of their order; for tests. */
void mill_fiber_configure(int n_fiber, unsigned seed);

#endif
