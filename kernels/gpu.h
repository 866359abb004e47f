/* SPDX-License-Identifier: BSD-3-Clause */
/** The GPU interface of every build: without CUDA, each of these functions fails with
 *  MILL_ERR_CONFIG and a message that says so (kernels/no_gpu.c).
 */
#ifndef MILL_GPU_H
#define MILL_GPU_H

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_probe.h"
#include "kernels/cuda/device_choice.h"
#include "kernels/cuda/device_facts.h"
#include "kernels/cuda/particles_cuda.h"
#include "kernels/cuda/train_cuda.h"

#endif
