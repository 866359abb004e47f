/* SPDX-License-Identifier: BSD-3-Clause */
/* The logic of a fit. */
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/rounds.h"
#include "kernels/star/logic/fit_star.h"

/** Write a finished slot's result row, by one warp.  The order of rows depends on the hardware. */
static __device__ inline void finish_slot(const device_view &v, int i_slot)
{
  static_assert(sizeof(mill_fit_result) % sizeof(double) == 0, "a row is made of doubles");
  const int lane = (int)threadIdx.x & 31;
  int at = 0;
  if (lane == 0) {
    at = atomicAdd(&v.state->n_finished, 1);
    v.finished[at] = i_slot;
  }
  at = __shfl_sync(0xffffffffu, at, 0);
  const double *from = (const double *)(const void *)&v.slot[i_slot]->result;
  double *to = (double *)(void *)&v.result[at];
  for (int i = lane; i < (int)(sizeof(mill_fit_result) / sizeof(double)); i += 32)
    to[i] = from[i];
}

/** Continue the fits of slots to their next requests, one warp per slot.  is_fresh: the slots of
 *  v.fresh, whose guess is ready; else the slots of v.active, whose last request is answered. */
static __global__ void __launch_bounds__(DIGEST_THREADS, 16)
    round_digest(device_view v, int first, int is_fresh)
{
  const int i = first + (int)blockIdx.x;
  if (!is_fresh && i >= v.state->n_active)
    return;
  const int i_slot = is_fresh ? v.fresh[i] : v.active[i];
  mill_slot *slot = v.slot[i_slot];
  if (threadIdx.x == 0)
    mill_fit_resume(v.m, slot);
  __syncwarp();
  if (slot->request == MILL_REQ_NONE)
    finish_slot(v, i_slot);
}

void (*const mill_kernel_digest)(device_view, int, int) = round_digest;
