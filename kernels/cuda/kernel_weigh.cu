/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel that weighs the points of posteriors. */
#define MILL_BLOCK_FN static __device__ __noinline__
#include "kernels/cuda/cuda_device.h"
#define MILL_KERNEL_WEIGH
#include "kernels/cuda/rounds.h"

void (*const mill_kernel_star_weigh)(device_view, int) = star_weigh;
