/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels that prepare a star and compare its residuals with templates. */
#define MILL_PRECISION 32 /* the guess is float32 in both */
#include "kernels/cuda/cuda_device.h"
#define MILL_KERNEL_START
#include "kernels/cuda/rounds.h"

void (*const mill_kernel_star_start)(device_view, int) = star_start;
void (*const mill_kernel_star_peak)(device_view, int) = star_peak;
