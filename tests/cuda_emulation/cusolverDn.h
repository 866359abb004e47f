/* SPDX-License-Identifier: BSD-3-Clause */
/** A CPU in the place of cuSOLVER: what kernels/cuda/train_directions.cu calls. */
#pragma once

#include "cuda_runtime.h"

typedef struct mill_emu_cusolver *cusolverDnHandle_t;
enum cusolverStatus_t { CUSOLVER_STATUS_SUCCESS = 0, CUSOLVER_STATUS_INVALID_VALUE = 3 };
enum cusolverEigMode_t { CUSOLVER_EIG_MODE_VECTOR = 1 };
enum cusolverEigRange_t { CUSOLVER_EIG_RANGE_I = 1002 };
