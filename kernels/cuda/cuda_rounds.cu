/* SPDX-License-Identifier: BSD-3-Clause */
/* The launches of all kernels, and the kernels that compile quickly.
 *
 *  - Rounds and starts of stars run on one stream.  Rounds run in a graph that loops by itself, or
 *    kernel by kernel if the driver has no looping graphs.
 *  - A star's result does not depend on the batch: all sums have a fixed order. */
#include <stdio.h>
#include <string.h>

#include "kernels/base/nvtx.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/rounds.h"
#include "kernels/math/hull.h"
#include "kernels/math/activation.h"
#include "kernels/math/rbf.h"
#include "kernels/math/spline_grid.h"

enum {
  PLAIN_ROUNDS = 4 /**< without a graph: most rounds per advance */
};

/** Begin rounds over n_listed slots: max_round at most, fewer once n_want slots have finished. */
static __global__ void __launch_bounds__(DIGEST_THREADS)
    loop_begin(device_view v, int n_listed, int n_want, int max_round)
{
  if (threadIdx.x != 0)
    return;
  loop_state *s = v.state;
  s->n_listed = n_listed;
  s->n_want = n_want;
  s->max_round = max_round;
  s->n_round = 0;
}

/** Copy the slots of v.listed that have a request to v.active, in the same order.  One block. */
static __global__ void __launch_bounds__(LIST_THREADS) round_list(device_view v)
{
  __shared__ int of_warp[LIST_THREADS / 32];
  const int thread = (int)threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const int n = v.state->n_listed, each = (n + LIST_THREADS - 1) / LIST_THREADS;
  const int begin = thread * each < n ? thread * each : n;
  const int end = begin + each < n ? begin + each : n;
  int count = 0;
  for (int i = begin; i < end; i++)
    count += v.slot[v.listed[i]]->request != MILL_REQ_NONE;
  /* upto: prefix sum over the warp, the requests of this thread and of lanes before it */
  int upto = count;
  for (int apart = 1; apart < 32; apart *= 2) {
    const int before = __shfl_sync(0xffffffffu, upto, lane >= apart ? lane - apart : lane);
    upto += lane >= apart ? before : 0;
  }
  if (lane == 31)
    of_warp[warp] = upto;
  __syncthreads();
  int at = upto - count;
  for (int w = 0; w < warp; w++)
    at += of_warp[w];
  for (int i = begin; i < end; i++)
    if (v.slot[v.listed[i]]->request != MILL_REQ_NONE)
      v.active[at++] = v.listed[i];
  if (thread == LIST_THREADS - 1)
    v.state->n_active = at;
}

/** Clear the row counts of the previous pass.  One block. */
static __global__ void __launch_bounds__(DIGEST_THREADS) pass_begin(device_view v)
{
  static_assert((int)MILL_MAX_ARM <= (int)DIGEST_THREADS, "a thread clears each count");
  if (threadIdx.x < MILL_MAX_ARM)
    v.row_count[threadIdx.x] = 0;
}

/** Write a star's input rows for the emulators.  Append the indices of these rows to the list of
 *  each arm that needs templates.  One block per active slot.  The order within a list depends on
 *  the hardware; results do not. */
static __global__ void __launch_bounds__(STAR_THREADS) round_begin(device_view v, int first)
{
  mill_slot *slot = slot_of_block(v, first);
  if (!slot)
    return;
  const mill_model *m = v.m;
  const int thread = (int)threadIdx.x, n = (int)blockDim.x;
  const int n_tan = n_tangent(m, slot), n_label = m->n_label;
  double *input = v.input.base + blockIdx.x * v.input.lane;
  for (int e = thread; e < (1 + n_tan) * n_label; e += n) {
    const int t = e / n_label, l = e % n_label;
    const double value = slot->theta[MILL_PAR_LABEL0 + l];
    double x = 0.0;
    if (t == 0)
      x = mill_label_map(&m->label[l], value);
    else if (l == t - 1)
      x = mill_label_map_slope(&m->label[l], value);
    input[(size_t)t * v.input.row + (size_t)l] = x;
  }
  for (int a = thread; a < m->n_arm; a += n) {
    if (!wants_template(v, slot, a))
      continue;
    int *to = v.row_list + (size_t)a * v.row_pitch + atomicAdd(&v.row_count[a], 1 + n_tan);
    for (int t = 0; t <= n_tan; t++)
      to[t] = (int)blockIdx.x * v.n_row + t;
  }
}

/** Compute the spline grid or radial functions before the layers.  One block per active slot. */
static __global__ void __launch_bounds__(STAR_THREADS)
    front(device_view v, int first, int arm, row_layout<double> out)
{
  const mill_slot *slot = slot_of_block(v, first);
  if (!wants_template(v, slot, arm))
    return;
  mill_block b = mill_block_whole(NULL, NULL); /* no sums over threads, no tiles */
  const mill_model_arm *a = &v.m->arm[arm];
  const double *in = v.input.base + blockIdx.x * v.input.lane;
  double *to = out.base + blockIdx.x * out.lane;
  if (a->kind == MILL_EMULATOR_GRID)
    mill_block_spline_grid(&b, &a->grid, n_tangent(v.m, slot), in, v.input.row, to, out.row);
  else
    mill_block_rbf(&b, &a->rbf, n_tangent(v.m, slot), in, v.input.row, to, out.row);
}

/** Apply SiLU to the value row; multiply tangent rows by its slope.  One block per active slot. */
static __global__ void __launch_bounds__(STAR_THREADS)
    activate(device_view v, int first, int arm, int n_out, row_layout<double> rows)
{
  const mill_slot *slot = slot_of_block(v, first);
  if (!wants_template(v, slot, arm))
    return;
  const int n_tan = n_tangent(v.m, slot);
  double *z = rows.base + blockIdx.x * rows.lane;
  for (int i = (int)threadIdx.x; i < n_out; i += (int)blockDim.x) {
    double slope;
    z[i] = mill_silu(z[i], &slope);
    for (int t = 1; t <= n_tan; t++)
      z[(size_t)t * rows.row + (size_t)i] *= slope;
  }
}

/** Compute the mean over pixels of the last layer's output in float64, from the layer's input.  If
 *  narrow is set, also copy the input to float32.  One block per active slot, one warp per row. */
static __global__ void __launch_bounds__(STAR_THREADS)
    last_input(device_view v, int first, int arm, int n_in, int narrow, row_layout<double> in)
{
  const mill_slot *slot = slot_of_block(v, first);
  if (!wants_template(v, slot, arm))
    return;
  const mill_model_arm *a = &v.m->arm[arm];
  const int n_tan = n_tangent(v.m, slot);
  const int lane = (int)threadIdx.x % 32, n_warp = (int)blockDim.x / 32;
  for (int t = (int)threadIdx.x / 32; t <= n_tan; t += n_warp) {
    const double *h = in.base + blockIdx.x * in.lane + (size_t)t * in.row;
    float *copy = v.narrow.base + blockIdx.x * v.narrow.lane + (size_t)t * v.narrow.row;
    double sum = 0.0;
    for (int k = lane; k < n_in; k += 32) {
      sum += a->mean_weight[k] * h[k];
      if (narrow)
        copy[k] = (float)h[k];
    }
    sum = mill_warp_sum(sum);
    if (lane == 0) /* row 0 is the template; the other rows are derivatives, without a bias */
      v.work[blockIdx.x].mean[t] = sum + (t == 0 ? a->mean_bias : 0.0);
  }
}

/** Count the round; returns 1 if another is needed.  One thread, after round_digest. */
static __device__ inline int round_count(const device_view &v)
{
  loop_state *s = v.state;
  s->n_round++;
  return s->n_finished < s->n_want && s->n_finished < s->n_listed && s->n_round < s->max_round;
}

static __global__ void __launch_bounds__(DIGEST_THREADS) round_end(device_view v)
{
  if (threadIdx.x == 0)
    (void)round_count(v);
}

/** round_end in a graph: set the condition of its loop. */
static __global__ void __launch_bounds__(DIGEST_THREADS)
    round_end_graph(device_view v, cudaGraphConditionalHandle go_on)
{
  if (threadIdx.x == 0)
    cudaGraphSetConditional(go_on, round_count(v) ? 1u : 0u);
}

template <typename... want, typename... have>
static int launch(mill_device *d, const char *name, unsigned n_x, unsigned n_y, int n_thread,
                  void (*kernel)(want...), have &&...argument)
{
  return mill_cuda_launch(d->stream, name, dim3(n_x, n_y), n_thread, kernel, argument...);
}

/* Asking for a kernel's attributes loads it, or fails if it has no code for this GPU. */
int mill_cuda_load_kernels(void)
{
  const void *const kernel[] = {
      (const void *)mill_kernel_star_start,
      (const void *)mill_kernel_star_peak,
      (const void *)mill_kernel_star_weigh,
      (const void *)loop_begin,
      (const void *)round_list,
      (const void *)pass_begin,
      (const void *)round_begin,
      (const void *)front,
      (const void *)activate,
      (const void *)last_input,
      (const void *)mill_kernel_answer_f32,
      (const void *)mill_kernel_pairs_f32,
      (const void *)mill_kernel_answer_f64,
      (const void *)mill_kernel_digest,
      (const void *)round_end,
      (const void *)round_end_graph,
      (const void *)product_f32,
      (const void *)product_f64,
  };
  cudaFuncAttributes attributes;
  for (size_t i = 0; i < sizeof kernel / sizeof kernel[0]; i++)
    CHECK_CUDA_AT("looking for code for this GPU", cudaFuncGetAttributes(&attributes, kernel[i]));
  return MILL_OK;
}

void mill_cuda_drop_graph(mill_device *d)
{
  if (d->exec)
    (void)cudaGraphExecDestroy(d->exec);
  if (d->graph)
    (void)cudaGraphDestroy(d->graph);
  d->exec = NULL;
  d->graph = NULL;
}

/** Launch the product of a layer, for n_most rows at most. */
template <typename real>
static int layer(mill_device *d, size_t n_most, const row_batch &batch, const mill_layer *l,
                 const row_layout<real> *in, const row_layout<real> *out, const char *name,
                 void (*kernel)(row_batch, int, const real *, const real *, row_layout<const real>,
                                row_layout<real>))
{
  typedef product_size<real> size;
  const row_layout<const real> from = {in->base, in->lane, in->row};
  return launch(d, name, (unsigned)((n_most + size::ROWS - 1) / size::ROWS),
                (unsigned)(l->n_out_pad / TILE), size::THREADS, kernel, batch, l->n_in,
                (const real *)l->weight, (const real *)l->bias, from, *out);
}

static int layer_f64(mill_device *d, size_t n_most, const row_batch &batch, const mill_layer *l,
                     const row_layout<double> *in, const row_layout<double> *out)
{
  return layer<double>(d, n_most, batch, l, in, out, "kernel product_f64", product_f64);
}

/** Compute one arm's templates, into work->grid and work->mean of each active slot that needs them.
 *  All layers but the last are float64, derivatives too (kernels/cpu/emulate.h says why). */
static int emulate(mill_device *d, int first, unsigned n, int i_arm)
{
  const mill_model_arm *arm = &d->model.arm[i_arm];
  const mill_layer *last = &arm->layer[arm->n_layer - 1];
  const row_layout<double> *in = &d->view.input, *out = NULL;
  const size_t pitch = (size_t)d->model.max_pix_pad, n_most = (size_t)n * (size_t)d->view.n_row;
  const row_batch rows = {d->view.n_row, d->view.row_count + i_arm, /* the arm's, in this pass */
                          d->view.row_list + (size_t)i_arm * d->view.row_pitch};
  if (arm->kind != MILL_EMULATOR_MLP) { /* these have one layer, the last */
    out = &d->view.hidden[0];
    MILL_CHECK(launch(d, "kernel front", n, 1, STAR_THREADS, front, d->view, first, i_arm, *out));
    in = out;
  }
  for (int l = 0; l < arm->n_layer - 1; l++) {
    out = &d->view.hidden[l % 2];
    MILL_CHECK(layer_f64(d, n_most, rows, &arm->layer[l], in, out));
    MILL_CHECK(launch(d, "kernel activate", n, 1, STAR_THREADS, activate, d->view, first, i_arm,
                      arm->layer[l].n_out, *out));
    in = out;
  }
  MILL_CHECK(launch(d, "kernel last_input", n, 1, STAR_THREADS, last_input, d->view, first, i_arm,
                    last->n_in, !d->shape.wide, *in));
  if (d->shape.wide) {
    const row_layout<double> grid = {(double *)d->d_grid, d->grid_lane, pitch};
    MILL_CHECK(layer_f64(d, n_most, rows, last, in, &grid));
  } else {
    const row_layout<float> grid = {(float *)d->d_grid, d->grid_lane, pitch};
    MILL_CHECK(layer<float>(d, n_most, rows, last, &d->view.narrow, &grid, "kernel product_f32",
                            product_f32));
  }
  return MILL_OK;
}

/** Launch one pass over n slots: entries first, first + 1, ... of the round's list. */
static int one_pass(mill_device *d, int first, unsigned n)
{
  int err = MILL_OK;
  const auto answer = d->shape.wide           ? mill_kernel_answer_f64
                      : d->model.set.binaries ? mill_kernel_pairs_f32
                                              : mill_kernel_answer_f32;
  MILL_TRY(launch(d, "kernel pass_begin", 1, 1, DIGEST_THREADS, pass_begin, d->view));
  MILL_TRY(launch(d, "kernel round_begin", n, 1, STAR_THREADS, round_begin, d->view, first));
  for (int a = 0; a < d->model.n_arm; a++) {
    mill_range_begin(MILL_RANGE_EMULATE);
    err = emulate(d, first, n, a);
    mill_range_end();
    MILL_TRY(err);
    mill_range_begin(MILL_RANGE_LIKELIHOOD);
    err = launch(d, "kernel answer_arm", n, 1, STAR_THREADS, answer, d->view, first, a);
    mill_range_end();
    MILL_TRY(err);
  }
  if (d->model.set.binaries)
    MILL_TRY(
        launch(d, "kernel star_peak", n, 1, STAR_THREADS, mill_kernel_star_peak, d->view, first));
  if (d->model.set.sample.max_eval > 0)
    MILL_TRY(
        launch(d, "kernel star_weigh", n, 1, STAR_THREADS, mill_kernel_star_weigh, d->view, first));
  mill_range_begin(MILL_RANGE_POLISH);
  err = launch(d, "kernel round_digest", n, 1, DIGEST_THREADS, mill_kernel_digest, d->view, first,
               /*is_fresh=*/0);
  mill_range_end();
done:
  return err;
}

/** Launch the kernels of one round, except round_end, over at most n_listed slots. */
static int one_round(mill_device *d, int n_listed)
{
  MILL_CHECK(launch(d, "kernel round_list", 1, 1, LIST_THREADS, round_list, d->view));
  for (int first = 0; first < n_listed; first += d->shape.n_lane) {
    const int left = n_listed - first;
    MILL_CHECK(one_pass(d, first, (unsigned)(left < d->shape.n_lane ? left : d->shape.n_lane)));
  }
  return MILL_OK;
}

/** Build the graph of the rounds: a loop whose body is one round over all slots. */
static int build_graph(mill_device *d)
{
  int err = MILL_OK;
  cudaGraph_t body = NULL, captured = NULL;
  cudaGraphNode_t node = NULL;
  cudaGraphNodeParams params = {};
  cudaError_t status = cudaSuccess;
  int half_captured = 0;
  TRY_CUDA(cudaGraphCreate(&d->graph, 0));
  TRY_CUDA(cudaGraphConditionalHandleCreate(&d->go_on, d->graph, 1, cudaGraphCondAssignDefault));
  memset((void *)&params, 0, sizeof params);
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = d->go_on;
  params.conditional.type = cudaGraphCondTypeWhile;
  params.conditional.size = 1;
#if CUDART_VERSION >= 13000
  TRY_CUDA(cudaGraphAddNode(&node, d->graph, NULL, NULL, 0, &params));
#else
  TRY_CUDA(cudaGraphAddNode(&node, d->graph, NULL, 0, &params));
#endif
  body = params.conditional.phGraph_out[0];
  half_captured = 1;
  TRY_CUDA(cudaStreamBeginCaptureToGraph(d->stream, body, NULL, NULL, 0,
                                         cudaStreamCaptureModeThreadLocal));
  err = one_round(d, d->n_slot);
  MILL_STEP(launch(d, "kernel round_end_graph", 1, 1, DIGEST_THREADS, round_end_graph, d->view,
                   d->go_on));
  /* end the capture even after a failure, or the stream is lost; report the first failure */
  status = cudaStreamEndCapture(d->stream, &captured);
  MILL_TRY(err);
  TRY_CUDA_AT("capturing a round", status);
  half_captured = 0;
  TRY_CUDA(cudaGraphInstantiate(&d->exec, d->graph, 0));
done:
  /* keep a half-captured graph: destroying it can crash (NVIDIA/cuda-python, issue 2918) */
  if (half_captured)
    d->graph = NULL;
  if (err)
    mill_cuda_drop_graph(d);
  return err;
}

static int plain_rounds(mill_device *d, int n_listed, int max_round)
{
  int err = MILL_OK;
  for (int i = 0; err == MILL_OK && i < max_round && i < PLAIN_ROUNDS; i++) {
    mill_range_begin(MILL_RANGE_ROUND);
    err = one_round(d, n_listed);
    MILL_STEP(launch(d, "kernel round_end", 1, 1, DIGEST_THREADS, round_end, d->view));
    mill_range_end();
  }
  return err;
}

/** Launch the rounds that loop_begin has set up, over n_listed slots. */
static int launch_rounds(mill_device *d, int n_listed, int max_round)
{
  if (d->has_graph) {
    mill_range_begin(MILL_RANGE_ROUND);
    const cudaError_t status = cudaGraphLaunch(d->exec, d->stream);
    mill_range_end();
    CHECK_CUDA_AT("launching the rounds", status);
    return MILL_OK;
  }
  return plain_rounds(d, n_listed, max_round);
}

/** Build the CUDA graph and run it on an empty list of slots.  If this fails but the GPU works,
 *  write d->remark for the log; from now on kernels are launched one by one. */
static int try_graph(mill_device *d)
{
  const int n_most = (int)sizeof d->remark / 2; /* leaves the other half to our own words */
  int err = build_graph(d);
  MILL_STEP(launch_rounds(d, d->n_slot, 1));
  if (err == MILL_OK || cudaStreamSynchronize(d->stream) != cudaSuccess)
    return err;
  /* quote the message up to its advice, which is for failures that end the run */
  const char *why = mill_error_message();
  const int n_why = (int)strcspn(why, ";");
  snprintf(d->remark, sizeof d->remark,
           "kernels are launched one by one, without a CUDA graph: %.*s",
           n_why < n_most ? n_why : n_most, why);
  mill_cuda_drop_graph(d);
  d->has_graph = 0;
  return MILL_OK;
}

int mill_cuda_rehearse(mill_device *d)
{
  MILL_CHECK(mill_cuda_after_uploads(d, d->stream));
  MILL_CHECK(launch(d, "kernel loop_begin", 1, 1, DIGEST_THREADS, loop_begin, d->view, 0, 0, 1));
  if (d->has_graph)
    MILL_CHECK(try_graph(d));
  if (!d->has_graph)
    MILL_CHECK(launch_rounds(d, d->n_slot, 1));
  CHECK_CUDA_AT("a round over nothing", cudaStreamSynchronize(d->stream));
  return MILL_OK;
}

/* start n stars (guess, first request): n_lane at once, as each needs a lane of work space */
int mill_cuda_start_stars(mill_device *d, int n)
{
  int err = MILL_OK;
  mill_range_begin(MILL_RANGE_GUESS);
  for (int first = 0; first < n && err == MILL_OK; first += d->shape.n_lane) {
    const int left = n - first, now = left < d->shape.n_lane ? left : d->shape.n_lane;
    err = launch(d, "kernel star_start", (unsigned)now, 1, STAR_THREADS, mill_kernel_star_start,
                 d->view, first);
    MILL_STEP(launch(d, "kernel round_digest", (unsigned)now, 1, DIGEST_THREADS, mill_kernel_digest,
                     d->view, first, /*is_fresh=*/1));
  }
  mill_range_end();
  return err;
}

int mill_cuda_rounds(mill_device *d, int n, int n_want, int max_round)
{
  MILL_CHECK(launch(d, "kernel loop_begin", 1, 1, DIGEST_THREADS, loop_begin, d->view, n, n_want,
                    max_round));
  return launch_rounds(d, n, max_round);
}
