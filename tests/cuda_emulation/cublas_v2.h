/* SPDX-License-Identifier: BSD-3-Clause */
/** cuBLAS on the CPU: the functions that kernels/cuda/train_cuda.cu calls, on emulated streams. */
#pragma once

#include "cuda_runtime.h"

typedef struct mill_emu_cublas *cublasHandle_t;
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_INVALID_VALUE = 7 };
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasFillMode_t { CUBLAS_FILL_MODE_LOWER = 0 };
enum cudaDataType { CUDA_R_32F = 0 };
enum cublasComputeType_t {
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32F_FAST_16BF = 75,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77
};
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };
