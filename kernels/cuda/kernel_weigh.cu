/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel that weighs the points of posteriors. */
#define MILL_BLOCK_FN static __device__ __noinline__
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/rounds.h"
#include "kernels/star/blocks/sample_weigh.h"

/** Weigh the points of a star's posterior.  One block per active slot. */
static __global__ void __launch_bounds__(STAR_THREADS) star_weigh(device_view v, int first)
{
  __shared__ double sum[MILL_BLOCK_SHARED];
  mill_slot *slot = slot_of_block(v, first);
  if (!slot || slot->request != MILL_REQ_WEIGH)
    return;
  mill_block b = mill_block_whole(sum, NULL);
  mill_block_points_look(&b, v.m, slot);
}

void (*const mill_kernel_star_weigh)(device_view, int) = star_weigh;
