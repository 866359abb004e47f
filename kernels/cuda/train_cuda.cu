/* SPDX-License-Identifier: BSD-3-Clause */
/* Training on a GPU: the functions of kernels/train/train_ops.h.
 *
 *  Parameters, moments and gradients stay on the device while one process trains.  cuBLAS
 *  multiplies matrices, in the same order of sums in every run.  Two pinned buffers upload the next
 *  models during a step, so that no step waits for the host. */
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/gpu.h"
#include "kernels/train/train_math.h"

/* last: its header has a global `half` */
#include "kernels/cuda/cublas.h"

enum { THREADS = 256, N_STAGE = 2 };

/** Buffer for uploading a batch of models: x [n_room][n_in], then targets [n_room][n_out]. */
struct input {
  float *host, *device; /* host: pinned */
  cudaEvent_t is_up, is_free;
};

struct mill_train_work {
  mill_train_net net;
  const mill_cublas *cublas;
  cublasHandle_t handle;
  cublasComputeType_t compute;
  cudaStream_t stream, up;
  char *arena; /* device memory of all arrays below */
  float *param, *m, *v, *gradient, *scale;
  float *act[MILL_MAX_LAYER], *slope[MILL_MAX_LAYER], *delta[MILL_MAX_LAYER];
  float *out; /* [n_room][n_out] outputs, then d loss / d output */
  double *row_loss;
  double *sum; /* [2] sums of losses: of the function slopes, of the function losses */
  input in[N_STAGE];
  int i_stage;
  size_t x_size, target_at, stage_size; /* numbers */
  float *host_param, *host_m, *host_v;  /* the caller's */
  float *host_gradient, *h_back;        /* pinned: gradient for other ranks; hidden outputs */
  double *h_loss;                       /* pinned */
};

static __global__ void __launch_bounds__(THREADS)
    train_activate(int n, int width, const float *bias, float *z, float *slope)
{
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n)
    z[i] = mill_train_silu(z[i] + bias[i % width], &slope[i]);
}

static __global__ void __launch_bounds__(THREADS)
    train_multiply(int n, const float *slope, float *delta)
{
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n)
    delta[i] *= slope[i];
}

static __global__ void __launch_bounds__(THREADS)
    train_sum_rows(int n_row, int n, const float *delta, float *sum)
{
  const int j = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  float all = 0;
  for (int i = 0; j < n && i < n_row; i++)
    all += delta[(size_t)i * (size_t)n + (size_t)j];
  if (j < n)
    sum[j] = all;
}

/** Write a model's loss; replace its outputs by factor * d loss / d output.  A block per model. */
static __global__ void __launch_bounds__(THREADS)
    train_loss(int kind, int n, float delta, float factor, const float *bias, const float *scale,
               const float *target, float *out, double *row_loss)
{
  __shared__ double part[THREADS / 32];
  const int lane = (int)threadIdx.x % 32;
  double sum = 0;
  out += (size_t)blockIdx.x * (size_t)n;
  target += (size_t)blockIdx.x * (size_t)n;
  for (int j = (int)threadIdx.x; j < n; j += THREADS) {
    const float u = scale[j] * (out[j] + bias[j] - target[j]);
    sum += (double)mill_train_rho(kind, delta, u);
    out[j] = mill_train_rho_slope(kind, delta, factor, u) * scale[j];
  }
  for (int by = 16; by > 0; by /= 2)
    sum += __shfl_down_sync(0xffffffffu, sum, by);
  if (lane == 0)
    part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int k = 1; k < THREADS / 32; k++)
      sum += part[k];
    row_loss[blockIdx.x] = sum;
  }
}

/** Add the models' losses to *loss in their order, by one thread. */
static __global__ void train_add_losses(int n, const double *row_loss, double *loss)
{
  double sum = 0;
  if (threadIdx.x > 0)
    return;
  for (int i = 0; i < n; i++)
    sum += row_loss[i];
  *loss += sum;
}

static __global__ void __launch_bounds__(THREADS)
    train_adam(int n, mill_train_pace pace, const float *gradient, float *param, float *m, float *v)
{
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n)
    mill_train_adam_one(&pace, gradient[i], &param[i], &m[i], &v[i]);
}

static unsigned blocks(size_t n)
{
  return (unsigned)((n + THREADS - 1) / THREADS);
}

/** Compute c [m][n] = op(a) op(b) like gemm of train_cpu.c.  cuBLAS sees columns for rows, so it
 *  gets b first. */
static int product(mill_train_work *w, int transpose_a, int transpose_b, int m, int n, int k,
                   const float *a, int lda, const float *b, int ldb, float *c, int ldc)
{
  const float one = 1, zero = 0;
  const cublasStatus_t status =
      w->cublas->gemm(w->handle, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                      transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, n, m, k, &one, b, CUDA_R_32F, ldb, a,
                      CUDA_R_32F, lda, &zero, c, CUDA_R_32F, ldc, w->compute, CUBLAS_GEMM_DEFAULT);
  if (status != CUBLAS_STATUS_SUCCESS)
    return MILL_ERROR(MILL_ERR_BACKEND,
                      "cuBLAS failed (status %d) to multiply %d x %d by %d x %d: use --backend cpu",
                      (int)status, m, k, k, n);
  return MILL_OK;
}

/** mill_train_ops.destroy, also for a half-made w. */
static void destroy(mill_train_work *w)
{
  if (!w)
    return;
  if (w->stream)
    (void)cudaStreamSynchronize(w->stream);
  if (w->handle)
    (void)w->cublas->destroy(w->handle);
  for (int i = 0; i < N_STAGE; i++) {
    mill_cuda_unpin(w->in[i].host);
    mill_cuda_drop_event(w->in[i].is_up);
    mill_cuda_drop_event(w->in[i].is_free);
  }
  mill_cuda_unpin(w->host_gradient);
  mill_cuda_unpin(w->h_back);
  mill_cuda_unpin(w->h_loss);
  (void)cudaFree(w->arena);
  mill_cuda_drop_stream(w->up);
  mill_cuda_drop_stream(w->stream);
  mill_free(w);
}

/** Return the bytes of all arrays; place them if the arena is allocated. */
static size_t lay_out(mill_train_work *w)
{
  const mill_train_shape *s = &w->net.shape;
  const int last = s->n_layer - 1;
  const size_t room = (size_t)w->net.n_room, n_out = (size_t)s->n_out[last];
  size_t at = 0;
  w->sum = mill_cuda_take<double>(w->arena, &at, 2);
  w->row_loss = mill_cuda_take<double>(w->arena, &at, room);
  w->param = mill_cuda_take<float>(w->arena, &at, s->n_param);
  w->m = mill_cuda_take<float>(w->arena, &at, s->n_param);
  w->v = mill_cuda_take<float>(w->arena, &at, s->n_param);
  w->gradient = mill_cuda_take<float>(w->arena, &at, s->n_param);
  w->scale = mill_cuda_take<float>(w->arena, &at, n_out);
  for (int l = 0; l <= last; l++) /* the first layer reads the upload buffer */
    w->act[l] = l > 0 ? mill_cuda_take<float>(w->arena, &at, room * (size_t)s->n_in[l]) : NULL;
  for (int l = 0; l < last; l++) {
    w->slope[l] = mill_cuda_take<float>(w->arena, &at, room * (size_t)s->n_out[l]);
    w->delta[l] = mill_cuda_take<float>(w->arena, &at, room * (size_t)s->n_out[l]);
  }
  w->out = mill_cuda_take<float>(w->arena, &at, room * n_out);
  w->x_size = room * (size_t)s->n_in[0];
  w->target_at = mill_round_up(w->x_size, MILL_CUDA_ALIGN / sizeof(float));
  w->stage_size = w->target_at + room * n_out;
  for (int i = 0; i < N_STAGE; i++)
    w->in[i].device = mill_cuda_take<float>(w->arena, &at, w->stage_size);
  return at;
}

/** Make the streams for work and for uploads, the events of the upload buffers, and cuBLAS. */
static int make_streams(mill_train_work *w)
{
  CHECK_CUDA(cudaStreamCreateWithFlags(&w->stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaStreamCreateWithFlags(&w->up, cudaStreamNonBlocking));
  for (int i = 0; i < N_STAGE; i++) {
    CHECK_CUDA(cudaEventCreateWithFlags(&w->in[i].is_up, cudaEventDisableTiming));
    CHECK_CUDA(cudaEventCreateWithFlags(&w->in[i].is_free, cudaEventDisableTiming));
    CHECK_CUDA(cudaEventRecord(w->in[i].is_free, w->stream)); /* an unused buffer is free */
  }
  if (w->cublas->create(&w->handle) != CUBLAS_STATUS_SUCCESS)
    return MILL_ERROR(MILL_ERR_BACKEND,
                      "cuBLAS cannot be started on this GPU: end other programs on it if its "
                      "memory is full, or use --backend cpu");
  if (w->cublas->set_stream(w->handle, w->stream) != CUBLAS_STATUS_SUCCESS)
    return MILL_ERROR(MILL_ERR_BACKEND,
                      "cublasSetStream failed: does nvidia-smi still see the GPU?");
  return MILL_OK;
}

/** mill_train_ops.create: load cuBLAS, allocate and zero the arrays. */
static int create(const mill_train_net *net, mill_train_work **out)
{
  static const cublasComputeType_t compute[] = {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32,
                                                CUBLAS_COMPUTE_32F_FAST_16BF};
  int err = MILL_OK;
  size_t bytes = 0;
  const int last = net->shape.n_layer - 1;
  mill_train_work *w = NULL;
  *out = NULL;
  MILL_TRY(mill_alloc_bytes(1, sizeof *w, (void **)&w));
  w->net = *net;
  w->compute = compute[net->precision];
  MILL_TRY(mill_cublas_load(&w->cublas));
  MILL_TRY(make_streams(w));
  bytes = lay_out(w); /* only measures: there is no arena yet */
  TRY_CUDA_AT("memory of the training", cudaMalloc((void **)&w->arena, bytes));
  lay_out(w); /* places the arrays */
  for (int i = 0; i < N_STAGE; i++)
    MILL_TRY(mill_cuda_pin(&w->in[i].host, w->stage_size));
  MILL_TRY(mill_cuda_pin(&w->host_gradient, net->shape.n_param));
  MILL_TRY(mill_cuda_pin(&w->h_back, (size_t)net->n_room * (size_t)net->shape.n_in[last]));
  MILL_TRY(mill_cuda_pin(&w->h_loss, 1));
  TRY_CUDA(cudaMemsetAsync(w->arena, 0, bytes, w->stream));
  TRY_CUDA(cudaMemcpyAsync(w->scale, net->scale, (size_t)net->shape.n_out[last] * sizeof *w->scale,
                           cudaMemcpyHostToDevice, w->stream));
  TRY_CUDA(cudaStreamSynchronize(w->stream));
  err = MILL_GIVE(&w, out);
done:
  destroy(w);
  return err;
}

static int to_device(mill_train_work *w, float *to, const float *from, size_t n)
{
  CHECK_CUDA(cudaMemcpyAsync(to, from, n * sizeof *to, cudaMemcpyHostToDevice, w->stream));
  CHECK_CUDA(cudaStreamSynchronize(w->stream));
  return MILL_OK;
}

static int to_host(mill_train_work *w, float *to, const float *from, size_t n)
{
  CHECK_CUDA(cudaMemcpyAsync(to, from, n * sizeof *to, cudaMemcpyDeviceToHost, w->stream));
  CHECK_CUDA(cudaStreamSynchronize(w->stream));
  return MILL_OK;
}

static int renew(mill_train_work *w)
{
  return to_device(w, w->param, w->host_param, w->net.shape.n_param);
}

/** mill_train_ops.bind: upload the parameters and, unless NULL, Adam's moments. */
static int bind(mill_train_work *w, float *param, float *m, float *v)
{
  const size_t n = w->net.shape.n_param;
  w->host_param = param;
  w->host_m = m;
  w->host_v = v;
  MILL_CHECK(renew(w));
  if (m) {
    MILL_CHECK(to_device(w, w->m, m, n));
    MILL_CHECK(to_device(w, w->v, v, n));
  }
  return MILL_OK;
}

static int fetch(mill_train_work *w)
{
  const size_t n = w->net.shape.n_param;
  MILL_CHECK(to_host(w, w->host_param, w->param, n));
  if (w->host_m) {
    MILL_CHECK(to_host(w, w->host_m, w->m, n));
    MILL_CHECK(to_host(w, w->host_v, w->v, n));
  }
  return MILL_OK;
}

/** Upload the models through a buffer, *in; later work of the stream waits for the copy.  After the
 *  work that reads the buffer, the caller records (*in)->is_free. */
static int send(mill_train_work *w, const mill_train_rows *rows, input **in)
{
  const mill_train_shape *s = &w->net.shape;
  const size_t n_in = (size_t)s->n_in[0], n_out = (size_t)s->n_out[s->n_layer - 1];
  input *q = &w->in[w->i_stage];
  size_t n = w->x_size;
  w->i_stage = (w->i_stage + 1) % N_STAGE;
  *in = q;
  CHECK_CUDA(cudaEventSynchronize(q->is_free));
  for (int i = 0; i < rows->n; i++)
    memcpy(q->host + (size_t)i * n_in, rows->x[i], n_in * sizeof *q->host);
  if (rows->target) {
    n = w->target_at + (size_t)rows->n * n_out;
    for (int i = 0; i < rows->n; i++)
      memcpy(q->host + w->target_at + (size_t)i * n_out, rows->target[i], n_out * sizeof *q->host);
  }
  CHECK_CUDA(
      cudaMemcpyAsync(q->device, q->host, n * sizeof *q->host, cudaMemcpyHostToDevice, w->up));
  CHECK_CUDA(cudaEventRecord(q->is_up, w->up));
  CHECK_CUDA(cudaStreamWaitEvent(w->stream, q->is_up, 0));
  w->act[0] = q->device;
  return MILL_OK;
}

/** Queue the hidden layers of n_row models: set each layer's inputs act [l] and SiLU slopes. */
static int forward(mill_train_work *w, int n_row)
{
  const mill_train_shape *s = &w->net.shape;
  for (int l = 0; l < s->n_layer - 1; l++) {
    const int n = n_row * s->n_out[l];
    MILL_CHECK(product(w, 0, 1, n_row, s->n_out[l], s->n_in[l], w->act[l], s->n_in[l],
                       w->param + s->weight[l], s->n_in[l], w->act[l + 1], s->n_out[l]));
    MILL_CHECK(mill_cuda_launch(
        w->stream, "train_activate", dim3(blocks((size_t)n)), THREADS, train_activate, n,
        s->n_out[l], (const float *)(w->param + s->bias[l]), w->act[l + 1], w->slope[l]));
  }
  return MILL_OK;
}

/** Copy the last layer's inputs for these models to h, on the host. */
static int hidden(mill_train_work *w, const mill_train_rows *rows, float *h)
{
  const int last = w->net.shape.n_layer - 1;
  const size_t n = (size_t)rows->n * (size_t)w->net.shape.n_in[last];
  const mill_train_rows without = {rows->n, rows->x, NULL};
  input *in = NULL;
  MILL_CHECK(send(w, &without, &in));
  MILL_CHECK(forward(w, rows->n));
  CHECK_CUDA(cudaEventRecord(in->is_free, w->stream));
  MILL_CHECK(to_host(w, w->h_back, w->act[last], n));
  memcpy(h, w->h_back, n * sizeof *h);
  return MILL_OK;
}

/** Queue kernels for outputs, losses and d loss / d output of uploaded models; *sum += losses. */
static int compare(mill_train_work *w, const input *in, int n_row, int n_all, double *sum)
{
  const mill_train_shape *s = &w->net.shape;
  const int last = s->n_layer - 1, width = s->n_in[last], n_out = s->n_out[last];
  const float factor = n_all > 0 ? (float)(1 / (w->net.n_norm * n_all)) : 0; /* 0: losses only */
  MILL_CHECK(forward(w, n_row));
  MILL_CHECK(product(w, 0, 1, n_row, n_out, width, w->act[last], width, w->param + s->weight[last],
                     width, w->out, n_out));
  MILL_CHECK(mill_cuda_launch(w->stream, "train_loss", dim3((unsigned)n_row), THREADS, train_loss,
                              w->net.loss, n_out, (float)w->net.huber, factor,
                              (const float *)(w->param + s->bias[last]), (const float *)w->scale,
                              (const float *)(in->device + w->target_at), w->out, w->row_loss));
  return mill_cuda_launch(w->stream, "train_add_losses", dim3((unsigned)1), 32, train_add_losses,
                          n_row, (const double *)w->row_loss, sum);
}

/** Read and clear a sum. */
static int take_sum(mill_train_work *w, double *sum, double *out)
{
  CHECK_CUDA(cudaMemcpyAsync(w->h_loss, sum, sizeof *sum, cudaMemcpyDeviceToHost, w->stream));
  CHECK_CUDA(cudaMemsetAsync(sum, 0, sizeof *sum, w->stream));
  CHECK_CUDA(cudaStreamSynchronize(w->stream));
  *out = *w->h_loss;
  return MILL_OK;
}

static int take_loss(mill_train_work *w, double *loss)
{
  return take_sum(w, &w->sum[0], loss);
}

static int losses(mill_train_work *w, const mill_train_rows *rows, double *loss)
{
  input *in = NULL;
  MILL_CHECK(send(w, rows, &in));
  MILL_CHECK(compare(w, in, rows->n, 0, &w->sum[1]));
  CHECK_CUDA(cudaEventRecord(in->is_free, w->stream));
  return take_sum(w, &w->sum[1], loss);
}

/** Compute the gradient in weights and biases of layer l from delta, d loss / d output. */
static int layer_slopes(mill_train_work *w, int l, int n_row, const float *delta)
{
  const mill_train_shape *s = &w->net.shape;
  const int n_out = s->n_out[l], n_in = s->n_in[l];
  MILL_CHECK(product(w, 1, 0, n_out, n_in, n_row, delta, n_out, w->act[l], n_in,
                     w->gradient + s->weight[l], n_in));
  return mill_cuda_launch(w->stream, "train_sum_rows", dim3(blocks((size_t)n_out)), THREADS,
                          train_sum_rows, n_row, n_out, delta, w->gradient + s->bias[l]);
}

/** Queue the gradient of these models, from the last layer back to the first (train_ops.h). */
static int slopes(mill_train_work *w, const mill_train_rows *rows, int n_all)
{
  const mill_train_shape *s = &w->net.shape;
  const int last = s->n_layer - 1, n_row = rows->n;
  const float *delta = w->out; /* compare leaves d loss / d output there */
  input *in = NULL;
  if (n_row == 0) { /* the batch has fewer models than there are ranks */
    CHECK_CUDA(cudaMemsetAsync(w->gradient, 0, s->n_param * sizeof *w->gradient, w->stream));
    return MILL_OK;
  }
  MILL_CHECK(send(w, rows, &in));
  MILL_CHECK(compare(w, in, n_row, n_all, &w->sum[0]));
  for (int l = last; l >= 0; l--) {
    if (l < last) {
      const int n = n_row * s->n_out[l];
      MILL_CHECK(mill_cuda_launch(w->stream, "train_multiply", dim3(blocks((size_t)n)), THREADS,
                                  train_multiply, n, (const float *)w->slope[l], w->delta[l]));
      delta = w->delta[l];
    }
    MILL_CHECK(layer_slopes(w, l, n_row, delta));
    if (l > 0)
      MILL_CHECK(product(w, 0, 0, n_row, s->n_in[l], s->n_out[l], delta, s->n_out[l],
                         w->param + s->weight[l], s->n_in[l], w->delta[l - 1], s->n_in[l]));
  }
  CHECK_CUDA(cudaEventRecord(in->is_free, w->stream));
  return MILL_OK;
}

static int gradient(mill_train_work *w, float **out)
{
  *out = w->host_gradient;
  return to_host(w, w->host_gradient, w->gradient, w->net.shape.n_param);
}

/** mill_train_ops.adam.  slope: the gradient on the host; then update the host's parameters too. */
static int adam(mill_train_work *w, const mill_train_adam *a, size_t first, size_t n,
                const float *slope)
{
  const mill_train_pace pace = mill_train_pace_of(a);
  if (n == 0)
    return MILL_OK;
  if (slope)
    MILL_CHECK(to_device(w, w->gradient + first, slope, n));
  MILL_CHECK(mill_cuda_launch(w->stream, "train_adam", dim3(blocks(n)), THREADS, train_adam, (int)n,
                              pace, (const float *)(w->gradient + first), w->param + first,
                              w->m + first, w->v + first));
  return slope ? to_host(w, w->host_param + first, w->param + first, n) : MILL_OK;
}

const mill_train_ops *mill_train_ops_cuda(int *err)
{
  static const mill_train_ops ops = {"cuda",    mill_train_directions_cuda,
                                     create,    destroy,
                                     bind,      fetch,
                                     renew,     hidden,
                                     losses,    slopes,
                                     take_loss, gradient,
                                     adam};
  const mill_cublas *cublas = NULL; /* loaded here so that a missing library shows at once */
  const mill_cusolver *cusolver = NULL;
  int id = 0;
  *err = mill_cuda_open(&id);
  if (*err == MILL_OK)
    *err = mill_cublas_load(&cublas);
  if (*err == MILL_OK)
    *err = mill_cusolver_load(&cusolver);
  return *err == MILL_OK ? &ops : NULL;
}
