/* SPDX-License-Identifier: BSD-3-Clause */
/* The likelihood with float32 templates, also of two stars in one spectrum. */
#define MILL_PRECISION     32
#define MILL_HAS_PAIRS     1
#define MILL_KERNEL_ANSWER answer_pairs_f32
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/answer_arm.h"

void (*const mill_kernel_pairs_f32)(device_view, int, int) = answer_pairs_f32;
