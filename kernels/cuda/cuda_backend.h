/* SPDX-License-Identifier: BSD-3-Clause */
/** The CUDA backend behind the table of kernels/backend.h. */
#ifndef MILL_CUDA_BACKEND_H
#define MILL_CUDA_BACKEND_H

#include "kernels/backend.h"

MILL_EXTERN_C_BEGIN

/** The backend for this rank's GPU, its name "cuda <GPU> sm_<xy>".
 *
 *  The GPU is the one that mill_gpu_assign named (kernels/cuda/device_choice.h), else the first
 *  that this build has code for and that admits programs.
 *
 *  NULL when there is none that can run this build; mill_error_message() then says
 *  why, and *err (may be NULL) is MILL_ERR_CONFIG where no driver, no GPU or no code
 *  for this GPU exists, MILL_ERR_BACKEND where a GPU is there and fails.  Call it from one thread
 *  only.
 *
 *  Failures of the table's functions are MILL_ERR_MEMORY where the GPU's memory is
 *  full (fewer slots help), else MILL_ERR_BACKEND; after the latter the device can only be closed.
 *  A mill_device belongs to one thread at a time.
 */
const mill_backend *mill_backend_cuda(int *err);

MILL_EXTERN_C_END

#endif
