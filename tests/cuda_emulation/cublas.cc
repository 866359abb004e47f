/* SPDX-License-Identifier: BSD-3-Clause */
/* Column-major products, in plain loops on the handle's stream; factors are rounded as the compute
 * type allows.  Those in float64, and eigenvectors, are the CPU's own, once the
 * stream is empty. */
#include "kernels/cuda/cublas.h"

#include <cmath>
#include <vector>

#include <cblas.h>
#include <lapacke.h>

#include "kernels/base/error.h"

struct mill_emu_cublas {
  cudaStream_t stream;
};
struct mill_emu_cusolver {
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

/* Of both libraries, whose status of success is 0. */
template <typename status, typename state> status create(state **out)
{
  *out = new state();
  return (status)0;
}

template <typename status, typename state> status destroy(state *handle)
{
  delete handle;
  return (status)0;
}

template <typename status, typename state> status set_stream(state *handle, cudaStream_t stream)
{
  handle->stream = stream;
  return (status)0;
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

/* What lies on the device, on the host, and back; the device is not for a host's eyes. */
std::vector<double> from_device(const double *at, size_t n, cudaStream_t stream)
{
  std::vector<double> out(n);
  if (cudaMemcpyAsync(out.data(), at, n * sizeof *at, cudaMemcpyDeviceToHost, stream) !=
          cudaSuccess ||
      cudaStreamSynchronize(stream) != cudaSuccess)
    out.clear();
  return out;
}

template <typename type> bool to_device(type *at, const type *from, size_t n, cudaStream_t stream)
{
  return cudaMemcpyAsync(at, from, n * sizeof *at, cudaMemcpyHostToDevice, stream) == cudaSuccess &&
         cudaStreamSynchronize(stream) == cudaSuccess;
}

cublasStatus_t dgemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                     int n, int k, const double *alpha, const double *a, int lda, const double *b,
                     int ldb, const double *beta, double *c, int ldc)
{
  if (op_a != CUBLAS_OP_N || op_b != CUBLAS_OP_N || lda < m || ldb < k || ldc != m || *beta != 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  const auto left = from_device(a, (size_t)lda * (size_t)k, handle->stream);
  const auto right = from_device(b, (size_t)ldb * (size_t)n, handle->stream);
  std::vector<double> out((size_t)m * (size_t)n);
  if (left.empty() || right.empty())
    return CUBLAS_STATUS_INVALID_VALUE;
  cblas_dgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, m, n, k, *alpha, left.data(), lda,
              right.data(), ldb, 0, out.data(), ldc);
  return to_device(c, out.data(), out.size(), handle->stream) ? CUBLAS_STATUS_SUCCESS
                                                              : CUBLAS_STATUS_INVALID_VALUE;
}

/* the half above the diagonal becomes NaN: nobody may read it */
cublasStatus_t dsyrk(cublasHandle_t handle, cublasFillMode_t, cublasOperation_t op, int n, int k,
                     const double *alpha, const double *a, int lda, const double *beta, double *c,
                     int ldc)
{
  if (op != CUBLAS_OP_T || lda < k || ldc != n || *beta != 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  const auto rows = from_device(a, (size_t)lda * (size_t)n, handle->stream);
  std::vector<double> out((size_t)n * (size_t)n, NAN);
  if (rows.empty())
    return CUBLAS_STATUS_INVALID_VALUE;
  cblas_dsyrk(CblasColMajor, CblasLower, CblasTrans, n, k, *alpha, rows.data(), lda, 0, out.data(),
              ldc);
  return to_device(c, out.data(), out.size(), handle->stream) ? CUBLAS_STATUS_SUCCESS
                                                              : CUBLAS_STATUS_INVALID_VALUE;
}

/* cuSOLVER's own need is unknown; this one is n, and looked at in dsyevdx. */
cusolverStatus_t dsyevdx_size(cusolverDnHandle_t, cusolverEigMode_t, cusolverEigRange_t,
                              cublasFillMode_t, int n, const double *, int, double, double, int,
                              int, int *, const double *, int *n_work)
{
  *n_work = n;
  return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t dsyevdx(cusolverDnHandle_t handle, cusolverEigMode_t, cusolverEigRange_t,
                         cublasFillMode_t, int n, double *a, int lda, double, double, int first,
                         int last, int *n_found, double *value, double *, int n_work, int *info)
{
  if (first < 1 || last > n || lda != n || n_work < n)
    return CUSOLVER_STATUS_INVALID_VALUE;
  auto vector = from_device(a, (size_t)n * (size_t)n, handle->stream);
  std::vector<double> all((size_t)n);
  if (vector.empty())
    return CUSOLVER_STATUS_INVALID_VALUE;
  const int end = (int)LAPACKE_dsyevd(LAPACK_COL_MAJOR, 'V', 'L', n, vector.data(), n, all.data());
  const size_t from = (size_t)first - 1, n_want = (size_t)(last - first) + 1;
  *n_found = (int)n_want;
  return to_device(info, &end, 1, handle->stream) &&
                 to_device(value, &all[from], n_want, handle->stream) &&
                 to_device(a, &vector[from * (size_t)n], n_want * (size_t)n, handle->stream)
             ? CUSOLVER_STATUS_SUCCESS
             : CUSOLVER_STATUS_INVALID_VALUE;
}

} // namespace

int mill_cublas_load(const mill_cublas **out)
{
  using status = cublasStatus_t;
  using state = mill_emu_cublas;
  static const mill_cublas cublas = {
      create<status, state>, destroy<status, state>, set_stream<status, state>, gemm, dgemm, dsyrk};
  *out = &cublas;
  return MILL_OK;
}

int mill_cusolver_load(const mill_cusolver **out)
{
  using status = cusolverStatus_t;
  using state = mill_emu_cusolver;
  static const mill_cusolver cusolver = {create<status, state>, destroy<status, state>,
                                         set_stream<status, state>, dsyevdx_size, dsyevdx};
  *out = &cusolver;
  return MILL_OK;
}
