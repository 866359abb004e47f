/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels that prepare a star and compare its residuals with templates. */
#define MILL_PRECISION 32 /* the guess is float32 in both precisions */
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/rounds.h"
#include "kernels/star/blocks/peak.h"
#include "kernels/star/blocks/prepare.h"

/** Prepare a star's segments and compute its guess.  One block per fresh slot. */
static __global__ void __launch_bounds__(STAR_THREADS, 4) star_start(device_view v, int first)
{
  __shared__ star_shared<STAGE_SUMS> shared;
  mill_slot *slot = v.slot[v.fresh[first + (int)blockIdx.x]];
  mill_block b = use_shared(&shared, &v.work[blockIdx.x]);
  for (int i = 0; i < slot->n_segment; i++)
    mill_block_prepare(&b, v.m, &slot->segment[i]);
  mill_block_guess(&b, v.m, slot, &shared.work);
}

/** Compare a star's residuals with templates (second star).  One block per active slot. */
static __global__ void __launch_bounds__(STAR_THREADS, 4) star_peak(device_view v, int first)
{
  __shared__ star_shared<STAGE_SUMS> shared;
  mill_slot *slot = slot_of_block(v, first);
  if (!slot || slot->request != MILL_REQ_PEAK)
    return;
  mill_block b = use_shared(&shared, &v.work[blockIdx.x]);
  mill_block_peak(&b, v.m, slot, &shared.work);
}

void (*const mill_kernel_star_start)(device_view, int) = star_start;
void (*const mill_kernel_star_peak)(device_view, int) = star_peak;
