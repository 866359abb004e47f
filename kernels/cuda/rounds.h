/* SPDX-License-Identifier: BSD-3-Clause */
/** What the kernels of a fit share, in which one block of threads works on one star.  Those that
 *  take long to compile have a file each, kernel_*.cu; cuda_rounds.cu has the others, but for the
 *  matrix products (product.h).
 *
 *  Slots hold stars, lanes hold work space.  In a round, the slots with a request form a list; in a
 *  pass over it, lane i works on entry first + i. */
#ifndef MILL_CUDA_ROUNDS_H
#define MILL_CUDA_ROUNDS_H

#include "kernels/cuda/device_view.h"
#include "kernels/star/blocks/likelihood.h"

enum {
  STAR_THREADS = MILL_BLOCK_THREADS, /**< of the block that works on one star */
  STAR_WARPS = MILL_BLOCK_WARPS,
  DIGEST_THREADS = 32, /**< a warp, of which one thread runs the logic */
  LIST_THREADS = 1024  /**< of the block that makes the list of a round */
};

/** The slot of this block in a pass that begins at entry first of the list; NULL: none.
 *  The same on all threads. */
static __device__ inline mill_slot *slot_of_block(const device_view &v, int first)
{
  const int i = first + (int)blockIdx.x;
  return i < v.state->n_active ? v.slot[v.active[i]] : NULL;
}

/** Has the slot something to evaluate in this arm?  The same on all threads. */
static __device__ inline int wants_arm(const mill_slot *slot, int arm)
{
  return slot && mill_slot_wants(slot, arm);
}

/** Does its template need the emulator? */
static __device__ inline int wants_template(const device_view &v, const mill_slot *slot, int arm)
{
  return wants_arm(slot, arm) && !mill_template_there(v.m, slot);
}

static __device__ inline int n_tangent(const mill_model *m, const mill_slot *slot)
{
  return slot->request == MILL_REQ_TANGENTS ? m->n_label : 0;
}

/** Arrays that the blocks of a star keep in shared memory instead of the lane's work space. */
template <int n_stage> struct star_shared {
  double sum[MILL_BLOCK_SHARED];
  union {
    struct {
      double sums[MILL_BLOCK_MAX_SUM];
      double normal[MILL_MAX_CONT * MILL_MAX_CONT];
      double solve[MILL_MAX_CONT * (MILL_MAX_PAR + 3)];
    } own;
    double of_team[STAR_WARPS * MILL_TEAM_SPACE];
  };
  __align__(16) double stage[n_stage];
  mill_workspace work;
};

/** Sizes of stage, in doubles: for sums over pixels; for templates. */
enum {
  STAGE_SUMS = STAR_WARPS * MILL_N_BY * MILL_GRAM_PIXELS,
  STAGE_TEMPLATE = STAR_WARPS * MILL_SPLINE_STAGE * (int)sizeof(mill_real) / (int)sizeof(double)
};
static_assert(STAR_WARPS * MILL_SPLINE_STAGE % 2 == 0, "stages are counted in doubles");

/** A block over this shared memory and the rest of a lane's work space. */
template <int n_stage>
static __device__ inline mill_block use_shared(star_shared<n_stage> *shared,
                                               const mill_workspace *work)
{
  const mill_block b = mill_block_whole(shared->sum, shared->stage);
  if (threadIdx.x == 0) {
    shared->work = *work;
    shared->work.sums = shared->own.sums;
    shared->work.normal = shared->own.normal;
    shared->work.solve = shared->own.solve;
  }
  __syncthreads();
  return b;
}

#endif
