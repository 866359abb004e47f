/* SPDX-License-Identifier: BSD-3-Clause */
/* The likelihood with float32 templates. */
#define MILL_PRECISION     32
#define MILL_KERNEL_ANSWER answer_arm_f32
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/answer_arm.h"

void (*const mill_kernel_answer_f32)(device_view, int, int) = answer_arm_f32;
