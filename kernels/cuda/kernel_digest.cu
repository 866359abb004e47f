/* SPDX-License-Identifier: BSD-3-Clause */
/* The logic of a fit. */
#include "kernels/cuda/cuda_device.h"
#define MILL_KERNEL_DIGEST
#include "kernels/cuda/rounds.h"

void (*const mill_kernel_digest)(device_view, int, int) = round_digest;
