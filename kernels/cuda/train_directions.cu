/* SPDX-License-Identifier: BSD-3-Clause */
/* Principal directions of training spectra on a GPU, with cuBLAS and cuSOLVER. */

#include <string.h>

#include "kernels/base/error.h"
#include "kernels/cuda/cuda_device.h"

/* last: its header has a global `half` */
#include "kernels/cuda/cublas.h"

struct directions {
  const mill_cublas *cublas;
  const mill_cusolver *cusolver;
  cublasHandle_t products;
  cusolverDnHandle_t solver;
  cudaStream_t stream;
  double *x, *product, *value, *out, *work; /* on the device */
  int *info;
  int n_work;
};

/** Start cuBLAS and cuSOLVER on their own stream.  Call close_solvers even after a failure. */
static int open_solvers(directions *d)
{
  MILL_CHECK(mill_cublas_load(&d->cublas));
  MILL_CHECK(mill_cusolver_load(&d->cusolver));
  CHECK_CUDA(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking));
  if (d->cublas->create(&d->products) != CUBLAS_STATUS_SUCCESS ||
      d->cublas->set_stream(d->products, d->stream) != CUBLAS_STATUS_SUCCESS ||
      d->cusolver->create(&d->solver) != CUSOLVER_STATUS_SUCCESS ||
      d->cusolver->set_stream(d->solver, d->stream) != CUSOLVER_STATUS_SUCCESS)
    return MILL_ERROR(MILL_ERR_BACKEND,
                      "cuBLAS or cuSOLVER cannot be started on this GPU: end other programs on it "
                      "if its memory is full, or use --backend cpu");
  return MILL_OK;
}

static int reserve(double **out, size_t n)
{
  CHECK_CUDA_AT("memory of the principal components", cudaMalloc((void **)out, n * sizeof **out));
  return MILL_OK;
}

static void close_solvers(directions *d)
{
  double *const memory[] = {d->x, d->product, d->value, d->out, d->work, (double *)d->info};
  if (d->stream)
    (void)cudaStreamSynchronize(d->stream);
  if (d->solver)
    (void)d->cusolver->destroy(d->solver);
  if (d->products)
    (void)d->cublas->destroy(d->products);
  for (double *each : memory)
    (void)cudaFree(each);
  mill_cuda_drop_stream(d->stream);
}

/** Compute the n largest eigenvalues, d->value, of d->product [n_row][n_row], and replace the
 *  product by their eigenvectors. */
static int solve(directions *d, int n_row, int n)
{
  int n_found = 0, info = 0;
  cusolverStatus_t status = d->cusolver->dsyevdx_size(
      d->solver, CUSOLVER_EIG_MODE_VECTOR, CUSOLVER_EIG_RANGE_I, CUBLAS_FILL_MODE_LOWER, n_row,
      d->product, n_row, 0, 0, n_row - n + 1, n_row, &n_found, d->value, &d->n_work);
  if (status == CUSOLVER_STATUS_SUCCESS) {
    MILL_CHECK(reserve(&d->work, (size_t)d->n_work));
    status =
        d->cusolver->dsyevdx(d->solver, CUSOLVER_EIG_MODE_VECTOR, CUSOLVER_EIG_RANGE_I,
                             CUBLAS_FILL_MODE_LOWER, n_row, d->product, n_row, 0, 0, n_row - n + 1,
                             n_row, &n_found, d->value, d->work, d->n_work, d->info);
    CHECK_CUDA(cudaMemcpyAsync(&info, d->info, sizeof info, cudaMemcpyDeviceToHost, d->stream));
    CHECK_CUDA(cudaStreamSynchronize(d->stream));
  }
  if (status != CUSOLVER_STATUS_SUCCESS || info != 0 || n_found != n)
    return MILL_ERROR(
        MILL_ERR_INTERNAL,
        "cuSOLVER failed to find %d components (status %d, info %d): use --backend cpu", n,
        (int)status, info);
  return MILL_OK;
}

/* mill_train_ops.directions: eigenvectors of x x^T by cuSOLVER, then their products with x */
int mill_train_directions_cuda(int n_row, int n_pix, const double *x, int n, double *value,
                               double *out)
{
  int err = MILL_OK;
  const size_t rows = (size_t)n_row, pixels = (size_t)n_pix, size = (size_t)n * pixels;
  const double one = 1, zero = 0;
  directions d;
  memset((void *)&d, 0, sizeof d);
  MILL_TRY(open_solvers(&d));
  MILL_TRY(reserve(&d.x, rows * pixels));
  MILL_TRY(reserve(&d.product, rows * rows));
  MILL_TRY(reserve(&d.value, rows));
  MILL_TRY(reserve(&d.out, size));
  MILL_TRY(reserve((double **)&d.info, 1)); /* one int needs less than this */
  TRY_CUDA(cudaMemcpyAsync(d.x, x, rows * pixels * sizeof *x, cudaMemcpyHostToDevice, d.stream));
  /* cuBLAS is column-major: it sees x transposed */
  if (d.cublas->dsyrk(d.products, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_T, n_row, n_pix, &one, d.x,
                      n_pix, &zero, d.product, n_row) != CUBLAS_STATUS_SUCCESS)
    MILL_FAIL(MILL_ERR_BACKEND, "cuBLAS failed to multiply %d spectra: use --backend cpu", n_row);
  MILL_TRY(solve(&d, n_row, n)); /* d.product: now eigenvectors */
  if (d.cublas->dgemm(d.products, CUBLAS_OP_N, CUBLAS_OP_N, n_pix, n, n_row, &one, d.x, n_pix,
                      d.product, n_row, &zero, d.out, n_pix) != CUBLAS_STATUS_SUCCESS)
    MILL_FAIL(MILL_ERR_BACKEND, "cuBLAS failed to find %d components: use --backend cpu", n);
  TRY_CUDA(
      cudaMemcpyAsync(value, d.value, (size_t)n * sizeof *value, cudaMemcpyDeviceToHost, d.stream));
  TRY_CUDA(cudaMemcpyAsync(out, d.out, size * sizeof *out, cudaMemcpyDeviceToHost, d.stream));
  TRY_CUDA(cudaStreamSynchronize(d.stream));
done:
  close_solvers(&d);
  return err;
}
