/* SPDX-License-Identifier: BSD-3-Clause */
/** The kernel of the likelihood.  The including file defines its name, MILL_KERNEL_ANSWER, and
 *  MILL_PRECISION and MILL_HAS_PAIRS. */
#pragma once

#include "kernels/cuda/rounds.h"
#include "kernels/star/blocks/likelihood.h"

/** Answer a slot's request for one arm: its likelihood.  One block per active slot. */
static __global__ void __launch_bounds__(STAR_THREADS, 4)
    MILL_KERNEL_ANSWER(device_view v, int first, int arm)
{
  __shared__ star_shared<STAGE_TEMPLATE> shared;
  __shared__ mill_team_memory team;
  mill_slot *slot = slot_of_block(v, first);
  if (!wants_arm(slot, arm))
    return;
  mill_block b = use_shared(&shared, &v.work[blockIdx.x]);
  b.team = &team;
  if (threadIdx.x == 0)
    team.space = shared.of_team;
  __syncthreads();
  mill_block_arm(&b, v.m, slot, arm, &shared.work);
}
