/* Column-major products, in plain loops on the handle's stream; factors are rounded as the compute
 * type allows. */
#include "kernels/cuda/cublas.h"

#include "kernels/base/error.h"

struct mill_emu_cublas {
  cudaStream_t stream;
};

namespace
{

/* x with so many bits behind the point, to nearest */
float rounded(float x, int bits)
{
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  const uint32_t drop = 23u - (unsigned)bits;
  u = (u + (1u << (drop - 1))) >> drop << drop;
  memcpy(&x, &u, sizeof u);
  return x;
}

float as(float x, cublasComputeType_t compute)
{
  if (compute == CUBLAS_COMPUTE_32F)
    return x;
  return rounded(x, compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? 10 : 7);
}

cublasStatus_t create(cublasHandle_t *out)
{
  *out = new mill_emu_cublas();
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t destroy(cublasHandle_t handle)
{
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t set_stream(cublasHandle_t handle, cudaStream_t stream)
{
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t gemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                    int n, int k, const void *alpha, const void *a_, cudaDataType, int lda,
                    const void *b_, cudaDataType, int ldb, const void *beta, void *c_, cudaDataType,
                    int ldc, cublasComputeType_t compute, cublasGemmAlgo_t)
{
  const float *a = (const float *)a_, *b = (const float *)b_;
  float *c = (float *)c_;
  if (m < 1 || n < 1 || k < 1 || lda < (op_a == CUBLAS_OP_N ? m : k) ||
      ldb < (op_b == CUBLAS_OP_N ? k : n) || ldc < m || *(const float *)alpha != 1 ||
      *(const float *)beta != 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  cudaLaunchConfig_t config;
  memset((void *)&config, 0, sizeof config);
  config.gridDim = dim3(1, 1, 1);
  config.blockDim = dim3(32, 1, 1);
  config.stream = handle->stream;
  const cudaError_t status = mill_emu_launch(&config, [=]() {
    for (int j = (int)threadIdx.x; j < n; j += 32)
      for (int i = 0; i < m; i++) {
        float sum = 0;
        for (int l = 0; l < k; l++) {
          const size_t at_a = op_a == CUBLAS_OP_N ? (size_t)l * (size_t)lda + (size_t)i
                                                  : (size_t)i * (size_t)lda + (size_t)l;
          const size_t at_b = op_b == CUBLAS_OP_N ? (size_t)j * (size_t)ldb + (size_t)l
                                                  : (size_t)l * (size_t)ldb + (size_t)j;
          sum += as(a[at_a], compute) * as(b[at_b], compute);
        }
        c[(size_t)j * (size_t)ldc + (size_t)i] = sum;
      }
  });
  return status == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

} // namespace

int mill_cublas_load(const mill_cublas **out)
{
  static const mill_cublas cublas = {create, destroy, set_stream, gemm};
  *out = &cublas;
  return MILL_OK;
}
