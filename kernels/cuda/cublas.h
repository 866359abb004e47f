/* SPDX-License-Identifier: BSD-3-Clause */
/** cuBLAS and cuSOLVER, loaded when training begins, as fits do not need them. */
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cusolverDn.h>

/** Functions of cuBLAS that training calls, named as in its header. */
typedef struct mill_cublas {
  cublasStatus_t (*create)(cublasHandle_t *);
  cublasStatus_t (*destroy)(cublasHandle_t);
  cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t);
  cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                         const void *, const void *, cudaDataType, int, const void *, cudaDataType,
                         int, const void *, void *, cudaDataType, int, cublasComputeType_t,
                         cublasGemmAlgo_t);
  cublasStatus_t (*dgemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                          const double *, const double *, int, const double *, int, const double *,
                          double *, int);
  cublasStatus_t (*dsyrk)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int, int,
                          const double *, const double *, int, const double *, double *, int);
} mill_cublas;

/** Load cuBLAS.  MILL_ERR_CONFIG if it is not installed. */
int mill_cublas_load(const mill_cublas **out);

/** Functions of cuSOLVER that training calls, named as in its header. */
typedef struct mill_cusolver {
  cusolverStatus_t (*create)(cusolverDnHandle_t *);
  cusolverStatus_t (*destroy)(cusolverDnHandle_t);
  cusolverStatus_t (*set_stream)(cusolverDnHandle_t, cudaStream_t);
  cusolverStatus_t (*dsyevdx_size)(cusolverDnHandle_t, cusolverEigMode_t, cusolverEigRange_t,
                                   cublasFillMode_t, int, const double *, int, double, double, int,
                                   int, int *, const double *, int *);
  cusolverStatus_t (*dsyevdx)(cusolverDnHandle_t, cusolverEigMode_t, cusolverEigRange_t,
                              cublasFillMode_t, int, double *, int, double, double, int, int, int *,
                              double *, double *, int, int *);
} mill_cusolver;

int mill_cusolver_load(const mill_cusolver **out);

/** `directions` of kernels/train/train_ops.h on a GPU. */
int mill_train_directions_cuda(int n_row, int n_pix, const double *x, int n, double *value,
                               double *out);
