/* SPDX-License-Identifier: BSD-3-Clause */
/* The likelihood with float64 templates, also of two stars in one spectrum. */
#define MILL_PRECISION     64
#define MILL_HAS_PAIRS     1
#define MILL_KERNEL_ANSWER answer_arm_f64
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/answer_arm.h"

void (*const mill_kernel_answer_f64)(device_view, int, int) = answer_arm_f64;
