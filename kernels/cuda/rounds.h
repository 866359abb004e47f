/* SPDX-License-Identifier: BSD-3-Clause */
/** Shared code of a fit's kernels, in which one thread block works on one star.  Slots hold stars,
 *  lanes hold work space.  A round lists the slots with a request; in a pass over the list, lane i
 *  works on entry first + i. */
#pragma once

#include "kernels/cuda/device_view.h"
#include "kernels/star/blocks/likelihood.h"

enum {
  STAR_THREADS = MILL_BLOCK_THREADS, /**< threads of the block that works on one star */
  STAR_WARPS = MILL_BLOCK_WARPS,
  DIGEST_THREADS = 32, /**< one warp; one of its threads runs the logic */
  LIST_THREADS = 1024  /**< threads of the block that makes a round's list */
};

/** Return the slot of this block in a pass that begins at entry `first` of the list; NULL: none.
 *  All threads get the same. */
static __device__ inline mill_slot *slot_of_block(const device_view &v, int first)
{
  const int i = first + (int)blockIdx.x;
  return i < v.state->n_active ? v.slot[v.active[i]] : NULL;
}

/** Does the slot's request need this arm?  All threads get the same. */
static __device__ inline int wants_arm(const mill_slot *slot, int arm)
{
  return slot && mill_slot_wants(slot, arm);
}

/** Does the slot's request need the emulator in this arm? */
static __device__ inline int wants_template(const device_view &v, const mill_slot *slot, int arm)
{
  return wants_arm(slot, arm) && !mill_template_there(v.m, slot);
}

static __device__ inline int n_tangent(const mill_model *m, const mill_slot *slot)
{
  return slot->request == MILL_REQ_TANGENTS ? m->n_label : 0;
}

/** A star's arrays in shared memory, instead of the lane's work space. */
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

/** Make a block.  Its work space, shared->work, is *work with three arrays in shared memory. */
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
