/** cuBLAS, loaded when a training begins: fits do not need it, and it is no part of a driver. */
#ifndef MILL_CUBLAS_H
#define MILL_CUBLAS_H

#include <cublas_v2.h>
#include <cuda_runtime.h>

/** Of cuBLAS what training calls; the names are those of its header. */
typedef struct mill_cublas {
  cublasStatus_t (*create)(cublasHandle_t *);
  cublasStatus_t (*destroy)(cublasHandle_t);
  cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t);
  cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                         const void *, const void *, cudaDataType, int, const void *, cudaDataType,
                         int, const void *, void *, cudaDataType, int, cublasComputeType_t,
                         cublasGemmAlgo_t);
} mill_cublas;

/** MILL_ERR_CONFIG where there is no such library. */
int mill_cublas_load(const mill_cublas **out);

#endif
