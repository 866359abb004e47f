/* The CUDA backend: one thread block per slot runs the block functions of
 * kernels/, and a tiled product of its own runs the emulator for all slots.
 *
 * A first version, written to be right: one stream, one kernel per step, no graph
 * (docs/gpu.md lists what remains).  A star's result does not depend on the batch:
 * every output of a product is one sum in a fixed order, and the threads of a block
 * add up in a fixed order.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime.h>

#include "kernels/activation.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/error.h"
#include "kernels/fit.h"
#include "kernels/guess.h"
#include "kernels/pixel.h"
#include "kernels/prepare.h"
#include "kernels/rbf.h"
#include "kernels/spline_grid.h"

enum {
  STAR_THREADS = 128,  /**< of the block that works on one star */
  SERIAL_THREADS = 32, /**< stars per block where each has one thread */
  TILE = 64,           /**< rows and columns of a block of a product */
  TILE_SIDE = 16,      /**< its threads along either */
  TILE_THREADS = TILE_SIDE * TILE_SIDE,
  PER_THREAD = TILE / TILE_SIDE,
  K_BLOCK = 32 /**< inputs summed before they are added to the total */
};
static_assert(MILL_COLUMN_PAD % TILE == 0, "padded outputs must be whole tiles");
static_assert(K_BLOCK == 32 && STAR_THREADS % 32 == 0, "loops below count in warps");

static const size_t STAGING_BYTES = (size_t)8 << 20;
static const size_t ALIGN_BYTES = 256;

/** What the work space of a slot is made for. */
struct work_shape {
  int n_slot, n_par, n_label, max_pix_pad, max_seg_pix;
  int pitch; /**< of a row of hidden layers */
  int wide;  /**< float64 templates */
};

/** Where the rows of a batch lie: row t of slot s at base + s slot + t row. */
template <typename real> struct row_layout {
  real *base;
  size_t slot, row;
};

/** Device memory of a call, given to its kernels by value. */
struct device_view {
  const mill_model *m;
  mill_slot *const *slot; /**< [n_slot] */
  mill_work *work;        /**< [n_slot] */
  int n_slot;             /**< of this call */
  int n_row;              /**< rows a slot may have: the value and a tangent per label */
  int *row_count;         /**< [MILL_MAX_ARM] rows of this round */
  int *row_list;          /**< [MILL_MAX_ARM][row_pitch] slot * n_row + row */
  size_t row_pitch;
  row_layout<double> input;     /**< mapped labels, [n_slot][n_row][MILL_MAX_LABEL] */
  row_layout<double> hidden[2]; /**< [n_slot][n_row][pitch] */
  row_layout<float> narrow;     /**< the last layer's input in float32 */
};

struct mill_device {
  int id;
  cudaStream_t stream;
  mill_model model; /**< host copy of the call's model */
  char *staging;    /**< pinned; uploads are collected here */
  size_t staged;
  work_shape shape;
  char *arena; /**< all memory of view, owned */
  mill_slot **d_slot;
  void *d_grid; /**< first of mill_work.grid; the others follow at grid_slot elements */
  size_t grid_slot;
  device_view view;
};

/* ---- errors ---- */

/** Code of a failure and what to do about it.  MILL_ERR_CONFIG where what was asked
 *  for is not here and nothing has failed. */
static int explain(cudaError_t status, const char **advice)
{
  switch (status) {
  case cudaErrorMemoryAllocation:
    *advice = "the GPU's memory is full: lower `slots`, or free it from other programs";
    return MILL_ERR_MEMORY;
  case cudaErrorInsufficientDriver:
  case cudaErrorCallRequiresNewerDriver:
  case cudaErrorNoDevice:
  case cudaErrorStubLibrary:
    *advice = "this machine has no GPU, or no driver new enough for this build (nvidia-smi tells): "
              "use --backend cpu";
    return MILL_ERR_CONFIG;
  case cudaErrorNoKernelImageForDevice:
  case cudaErrorInvalidDeviceFunction:
  case cudaErrorUnsupportedPtxVersion:
    *advice = "this build has no code for this GPU: build with MILL_CUDA_ARCHITECTURES for it, or "
              "use --backend cpu";
    return MILL_ERR_CONFIG;
  case cudaErrorDevicesUnavailable:
    *advice = "another program has the GPU for itself: ask for one of your own, or use "
              "--backend cpu";
    return MILL_ERR_BACKEND;
  case cudaErrorECCUncorrectable:
    *advice = "the GPU's memory is faulty: tell its administrator; rows written so far are good";
    return MILL_ERR_BACKEND;
  default:
    *advice = "give the same command again, with --backend cpu if it fails again; rows written so "
              "far are good";
    return MILL_ERR_BACKEND;
  }
}

static int cuda_error(cudaError_t status, const char *what, int line)
{
  const char *advice = NULL;
  const int code = explain(status, &advice);
  /* forget it, or the query after the next launch would report it again */
  (void)cudaGetLastError();
  return mill_error_set(code, __FILE__, line, "backend cuda: %s: %s (%s); %s", what,
                        cudaGetErrorString(status), cudaGetErrorName(status), advice);
}

#define TRY_CUDA_AT(what, call)                                                                    \
  do {                                                                                             \
    const cudaError_t status_ = (call);                                                            \
    if (status_ != cudaSuccess) {                                                                  \
      err = cuda_error(status_, (what), __LINE__);                                                 \
      goto done;                                                                                   \
    }                                                                                              \
  } while (0)
#define TRY_CUDA(call) TRY_CUDA_AT(#call, call)
/** After a launch, which cannot return an error itself. */
#define TRY_LAUNCH(kernel) TRY_CUDA_AT("kernel " kernel, cudaGetLastError())

/* ---- kernels ---- */

/** Has the slot something to evaluate in this arm?  The same on all threads. */
static __device__ inline int wants_arm(const mill_slot *slot, int arm)
{
  if (slot->request == MILL_REQ_NONE)
    return 0;
  for (int i = 0; i < slot->n_segment; i++)
    if (slot->segment[i].used && slot->segment[i].arm == arm)
      return 1;
  return 0;
}

static __device__ inline int n_tangent(const mill_model *m, const mill_slot *slot)
{
  return slot->request == MILL_REQ_JACOBIAN ? m->n_label : 0;
}

/** Prepare, guess and make the first request.  One block per slot. */
static __global__ void __launch_bounds__(STAR_THREADS) star_start(device_view v)
{
  __shared__ double shared[MILL_BLOCK_MAX_SUM + 32];
  mill_slot *slot = v.slot[blockIdx.x];
  mill_block b;
  b.shared = shared;
  for (int i = 0; i < slot->n_segment; i++)
    mill_block_prepare(&b, v.m, &slot->segment[i]);
  mill_block_guess(&b, v.m, slot, &v.work[blockIdx.x]);
  MILL_SERIAL(&b)
  {
    mill_fit_begin(v.m, slot);
  }
}

/** Clear the answer, write the emulator's input rows and enter them into the lists
 *  of the arms.  One block per slot.
 *
 *  The order within a list depends on the hardware; no result depends on it, as a
 *  product treats every row alike. */
static __global__ void __launch_bounds__(STAR_THREADS) round_begin(device_view v)
{
  mill_slot *slot = v.slot[blockIdx.x];
  if (slot->request == MILL_REQ_NONE)
    return;
  const mill_model *m = v.m;
  const int thread = (int)threadIdx.x, n = (int)blockDim.x;
  const int n_tan = n_tangent(m, slot), n_label = m->n_label;
  static_assert(sizeof(mill_eval) % sizeof(double) == 0, "an answer is made of doubles");
  double *eval = (double *)(void *)&slot->eval;
  for (int i = thread; i < (int)(sizeof(mill_eval) / sizeof(double)); i += n)
    eval[i] = 0.0;
  double *input = v.input.base + blockIdx.x * v.input.slot;
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
    if (!wants_arm(slot, a))
      continue;
    const int at = atomicAdd(&v.row_count[a], 1 + n_tan);
    for (int t = 0; t <= n_tan; t++)
      v.row_list[(size_t)a * v.row_pitch + (size_t)(at + t)] = (int)blockIdx.x * v.n_row + t;
  }
}

/** One layer for the rows of a list: out = W in (+ bias for values, not tangents).
 *
 *  Block (x, y) makes TILE rows of the list by TILE columns.  Every output is the
 *  sum over blocks of K_BLOCK inputs in turn, each summed in turn by fused
 *  multiply-add. */
template <typename real>
static __global__ void __launch_bounds__(TILE_THREADS)
    product(int n_row, const int *row_count, const int *row_list, int n_in, const real *weight,
            const real *bias, row_layout<const real> in, row_layout<real> out)
{
  const int panel = MILL_PANEL_BYTES / (int)sizeof(real);
  __shared__ real h[K_BLOCK][TILE + 1], w[K_BLOCK][TILE];
  __shared__ size_t from[TILE], to[TILE];
  __shared__ int is_value[TILE];
  const int first = (int)blockIdx.x * TILE, column = (int)blockIdx.y * TILE;
  const int n_left = *row_count - first;
  if (n_left <= 0)
    return; /* the grid is made for the most rows possible */
  const int thread = (int)threadIdx.x;
  const int tx = thread % TILE_SIDE, ty = thread / TILE_SIDE;
  if (thread < TILE && thread < n_left) {
    const int entry = row_list[first + thread];
    const size_t slot = (size_t)(entry / n_row), t = (size_t)(entry % n_row);
    from[thread] = slot * in.slot + t * in.row;
    to[thread] = slot * out.slot + t * out.row + (size_t)column;
    is_value[thread] = t == 0;
  }
  __syncthreads();

  real total[PER_THREAD][PER_THREAD];
  for (int k0 = 0; k0 < n_in; k0 += K_BLOCK) {
    for (int e = thread; e < TILE * K_BLOCK; e += TILE_THREADS) {
      const int k = e % K_BLOCK, r = e / K_BLOCK;
      h[k][r] = r < n_left && k0 + k < n_in ? in.base[from[r] + (size_t)(k0 + k)] : (real)0;
    }
    for (int e = thread; e < TILE * K_BLOCK; e += TILE_THREADS) {
      const int c = e % TILE, k = e / TILE;
      w[k][c] = k0 + k < n_in ? weight[mill_weight_at(n_in, panel, k0 + k, column + c)] : (real)0;
    }
    __syncthreads();
    real acc[PER_THREAD][PER_THREAD];
#pragma unroll
    for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
      for (int j = 0; j < PER_THREAD; j++)
        acc[i][j] = (real)0;
        /* inputs past the last one are zeros, which leave a sum as it is */
#pragma unroll 8
    for (int k = 0; k < K_BLOCK; k++)
#pragma unroll
      for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
        for (int j = 0; j < PER_THREAD; j++)
          acc[i][j] += h[k][ty * PER_THREAD + i] * w[k][tx + TILE_SIDE * j];
#pragma unroll
    for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
      for (int j = 0; j < PER_THREAD; j++) {
        const int r = ty * PER_THREAD + i;
        if (k0 > 0)
          total[i][j] += acc[i][j];
        else if (r < n_left && is_value[r])
          total[i][j] = acc[i][j] + bias[column + tx + TILE_SIDE * j];
        else
          total[i][j] = acc[i][j];
      }
    __syncthreads();
  }
  for (int i = 0; i < PER_THREAD; i++) {
    const int r = ty * PER_THREAD + i;
    if (r >= n_left)
      continue;
    for (int j = 0; j < PER_THREAD; j++)
      out.base[to[r] + (size_t)(tx + TILE_SIDE * j)] = total[i][j];
  }
}

/** The front of an emulator that is no network.  One block per slot. */
static __global__ void __launch_bounds__(STAR_THREADS)
    front(device_view v, int arm, row_layout<double> out)
{
  const mill_slot *slot = v.slot[blockIdx.x];
  if (!wants_arm(slot, arm))
    return;
  mill_block b;
  b.shared = NULL; /* no sums over threads */
  const mill_model_arm *a = &v.m->arm[arm];
  const double *in = v.input.base + blockIdx.x * v.input.slot;
  double *to = out.base + blockIdx.x * out.slot;
  if (a->kind == MILL_EMULATOR_GRID)
    mill_block_spline_grid(&b, &a->grid, n_tangent(v.m, slot), in, v.input.row, to, out.row);
  else
    mill_block_rbf(&b, &a->rbf, n_tangent(v.m, slot), in, v.input.row, to, out.row);
}

/** SiLU of the value row, its slope times the tangent rows.  One block per slot. */
static __global__ void __launch_bounds__(STAR_THREADS)
    activate(device_view v, int arm, int n_out, row_layout<double> rows)
{
  const mill_slot *slot = v.slot[blockIdx.x];
  if (!wants_arm(slot, arm))
    return;
  const int n_tan = n_tangent(v.m, slot);
  double *z = rows.base + blockIdx.x * rows.slot;
  for (int i = (int)threadIdx.x; i < n_out; i += (int)blockDim.x) {
    double slope;
    z[i] = mill_silu(z[i], &slope);
    for (int t = 1; t <= n_tan; t++)
      z[(size_t)t * rows.row + (size_t)i] *= slope;
  }
}

/** Mean over pixels of the last layer's output, from its input and in float64, and
 *  that input in float32 where the last layer is.  One block per slot, a warp a row. */
static __global__ void __launch_bounds__(STAR_THREADS)
    last_input(device_view v, int arm, int n_in, int narrow, row_layout<double> in)
{
  const mill_slot *slot = v.slot[blockIdx.x];
  if (!wants_arm(slot, arm))
    return;
  const mill_model_arm *a = &v.m->arm[arm];
  const int n_tan = n_tangent(v.m, slot);
  const int lane = (int)threadIdx.x % 32, n_warp = (int)blockDim.x / 32;
  for (int t = (int)threadIdx.x / 32; t <= n_tan; t += n_warp) {
    const double *h = in.base + blockIdx.x * in.slot + (size_t)t * in.row;
    float *copy = v.narrow.base + blockIdx.x * v.narrow.slot + (size_t)t * v.narrow.row;
    double sum = 0.0;
    for (int k = lane; k < n_in; k += 32) {
      sum += a->mean_weight[k] * h[k];
      if (narrow)
        copy[k] = (float)h[k];
    }
    for (int o = 16; o > 0; o >>= 1)
      sum += __shfl_down_sync(0xffffffffu, sum, o);
    if (lane == 0)
      v.work[blockIdx.x].mean[t] = sum + (t == 0 ? a->mean_bias : 0.0);
  }
}

/** The likelihood of one arm.  One block per slot. */
template <int wide>
static __global__ void __launch_bounds__(STAR_THREADS) answer_arm(device_view v, int arm)
{
  __shared__ double shared[MILL_BLOCK_MAX_SUM + 32];
  mill_slot *slot = v.slot[blockIdx.x];
  if (!wants_arm(slot, arm))
    return;
  mill_block b;
  b.shared = shared;
  if constexpr (wide != 0)
    mill_block_arm_f64(&b, v.m, slot, arm, &v.work[blockIdx.x]);
  else
    mill_block_arm_f32(&b, v.m, slot, arm, &v.work[blockIdx.x]);
}

/** Digest the answers and make the next requests.  One thread per slot. */
static __global__ void __launch_bounds__(SERIAL_THREADS) round_digest(device_view v)
{
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= v.n_slot || v.slot[i]->request == MILL_REQ_NONE)
    return;
  mill_fit_digest(v.m, v.slot[i]);
}

/* ---- memory ---- */

/** Wait for all that was asked for; staging is then free again. */
static int finish(mill_device *d)
{
  int err = MILL_OK;
  TRY_CUDA(cudaStreamSynchronize(d->stream));
  d->staged = 0;
done:
  return err;
}

static size_t padded(size_t bytes)
{
  return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

/** Room for n elements in an arena; without one only the size is counted. */
template <typename type> static type *take(char *arena, size_t *at, size_t n)
{
  type *here = arena ? (type *)(void *)(arena + *at) : (type *)NULL;
  *at += padded(n * sizeof(type));
  return here;
}

static int cuda_upload(mill_device *d, void *to, const void *from, size_t bytes)
{
  int err = MILL_OK;
  char *dest = (char *)to;
  const char *source = (const char *)from;
  TRY_CUDA(cudaSetDevice(d->id));
  while (bytes > 0) {
    if (d->staged >= STAGING_BYTES)
      MILL_TRY(finish(d));
    const size_t room = STAGING_BYTES - d->staged, n = bytes < room ? bytes : room;
    memcpy(d->staging + d->staged, source, n);
    TRY_CUDA(cudaMemcpyAsync(dest, d->staging + d->staged, n, cudaMemcpyHostToDevice, d->stream));
    d->staged += padded(n);
    dest += n;
    source += n;
    bytes -= n;
  }
done:
  return err;
}

static int cuda_zero(mill_device *d, void *to, size_t bytes)
{
  int err = MILL_OK;
  TRY_CUDA(cudaSetDevice(d->id));
  if (bytes > 0)
    TRY_CUDA(cudaMemsetAsync(to, 0, bytes, d->stream));
done:
  return err;
}

static int cuda_download(mill_device *d, void *to, const void *from, size_t bytes)
{
  int err = MILL_OK;
  TRY_CUDA(cudaSetDevice(d->id));
  if (bytes > 0)
    TRY_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, d->stream));
  MILL_TRY(finish(d));
done:
  return err;
}

static int cuda_alloc(mill_device *d, size_t bytes, void **out)
{
  int err = MILL_OK;
  void *memory = NULL;
  *out = NULL;
  TRY_CUDA(cudaSetDevice(d->id));
  if (bytes == 0)
    bytes = 1; /* a valid pointer, as on the CPU */
  TRY_CUDA_AT("memory for a star", cudaMalloc(&memory, bytes));
  TRY_CUDA(cudaMemsetAsync(memory, 0, bytes, d->stream));
  *out = memory;
  memory = NULL;
done:
  if (memory)
    (void)cudaFree(memory);
  return err;
}

static void cuda_release(mill_device *d, void *memory)
{
  if (!memory)
    return;
  /* nothing under way may still use it; a failure of the stream was or will be
   * reported by the call that it belongs to */
  (void)cudaSetDevice(d->id);
  (void)cudaStreamSynchronize(d->stream);
  (void)cudaFree(memory);
}

/* ---- opening ---- */

/** This rank's number on its node, 0 when it cannot be told. */
static int local_rank(void)
{
  static const char *const name[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                     "SLURM_LOCALID"};
  for (size_t i = 0; i < sizeof name / sizeof name[0]; i++) {
    const char *text = getenv(name[i]);
    if (!text || !*text)
      continue;
    char *end = NULL;
    const long rank = strtol(text, &end, 10);
    if (*end == '\0' && rank >= 0 && rank < 1000000)
      return (int)rank;
  }
  return 0;
}

/** The GPU of this rank, made the current one of this thread. */
static int choose_device(int *id)
{
  int err = MILL_OK;
  int n = 0;
  cudaFuncAttributes attributes;
  TRY_CUDA_AT("looking for a GPU", cudaGetDeviceCount(&n));
  TRY_CUDA_AT("looking for a GPU", n < 1 ? cudaErrorNoDevice : cudaSuccess);
  *id = local_rank() % n;
  TRY_CUDA(cudaSetDevice(*id));
  TRY_CUDA(cudaFree(NULL)); /* makes the context, where a busy GPU shows */
  TRY_CUDA_AT("looking for code for this GPU",
              cudaFuncGetAttributes(&attributes, (const void *)round_digest));
done:
  return err;
}

static void cuda_close(mill_device *d)
{
  if (!d)
    return;
  (void)cudaSetDevice(d->id);
  if (d->stream)
    (void)cudaStreamSynchronize(d->stream);
  if (d->arena)
    (void)cudaFree(d->arena);
  if (d->staging)
    (void)cudaFreeHost(d->staging);
  if (d->stream)
    (void)cudaStreamDestroy(d->stream);
  mill_free(d);
}

static int cuda_open(int n_thread, mill_device **out)
{
  int err = MILL_OK;
  mill_device *d = NULL;
  void *memory = NULL;
  (void)n_thread; /* of the CPU */
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &d));
  MILL_TRY(choose_device(&d->id));
  TRY_CUDA(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking));
  TRY_CUDA(cudaMallocHost(&memory, STAGING_BYTES));
  d->staging = (char *)memory;
  *out = d;
  d = NULL;
done:
  cuda_close(d);
  return err;
}

/* ---- a call ---- */

static work_shape shape_of(const mill_model *m, int n_slot)
{
  work_shape s;
  s.n_slot = n_slot;
  s.n_par = m->n_par;
  s.n_label = m->n_label;
  s.max_pix_pad = m->max_pix_pad;
  s.max_seg_pix = m->max_seg_pix;
  s.wide = m->set.precision == MILL_FLOAT64;
  s.pitch = MILL_COLUMN_PAD; /* an emulator without hidden layers has its labels there */
  for (int a = 0; a < m->n_arm; a++) {
    for (int l = 0; l < m->arm[a].n_layer - 1; l++)
      if (m->arm[a].layer[l].n_out_pad > s.pitch)
        s.pitch = m->arm[a].layer[l].n_out_pad;
    if (m->arm[a].kind == MILL_EMULATOR_GRID && m->arm[a].grid.n_out > s.pitch)
      s.pitch = m->arm[a].grid.n_out;
    if (m->arm[a].kind == MILL_EMULATOR_RBF && m->arm[a].rbf.n_out > s.pitch)
      s.pitch = m->arm[a].rbf.n_out;
  }
  return s;
}

/** Work space for n_slot slots in one piece of memory.  arena NULL: only its size.
 *  work [n_slot] host copy of the blocks' structures, NULL with arena. */
static size_t lay_out(mill_device *d, const work_shape *s, char *arena, mill_work *work)
{
  const size_t real = s->wide ? sizeof(double) : sizeof(float);
  const size_t n = (size_t)s->n_slot, n_row = (size_t)s->n_label + 1;
  const size_t n_template = (size_t)s->n_par + 1;
  /* bytes of one slot, so that every slot's rows begin aligned */
  const size_t grid = padded(n_template * (size_t)s->max_pix_pad * real);
  const size_t pix = padded(n_template * (size_t)s->max_seg_pix * real);
  const size_t index = padded((size_t)s->max_seg_pix * sizeof(int));
  const size_t frac = padded((size_t)s->max_seg_pix * sizeof(float));
  const size_t kernel = padded((MILL_MAX_ROTATION + 1) * sizeof(double));
  const size_t normal = padded(MILL_MAX_CONT * MILL_MAX_CONT * sizeof(double));
  const size_t solve = padded(MILL_MAX_CONT * (MILL_MAX_PAR + 3) * sizeof(double));
  const size_t sums = padded(MILL_BLOCK_MAX_SUM * sizeof(double));
  size_t at = 0;
  device_view *v = &d->view;
  mill_slot **slot = take<mill_slot *>(arena, &at, n);
  mill_work *d_work = take<mill_work>(arena, &at, n);
  int *row_count = take<int>(arena, &at, MILL_MAX_ARM);
  int *row_list = take<int>(arena, &at, MILL_MAX_ARM * n * n_row);
  double *input = take<double>(arena, &at, n * n_row * MILL_MAX_LABEL);
  double *hidden0 = take<double>(arena, &at, n * n_row * (size_t)s->pitch);
  double *hidden1 = take<double>(arena, &at, n * n_row * (size_t)s->pitch);
  float *narrow = take<float>(arena, &at, n * n_row * (size_t)s->pitch);
  char *grids = take<char>(arena, &at, n * grid);
  char *rotated = take<char>(arena, &at, n * grid);
  char *bend = take<char>(arena, &at, n * grid);
  char *pixel = take<char>(arena, &at, n * pix);
  char *smooth = take<char>(arena, &at, n * pix);
  char *indices = take<char>(arena, &at, n * index);
  char *fracs = take<char>(arena, &at, n * frac);
  char *kernels = take<char>(arena, &at, n * kernel);
  char *slopes = take<char>(arena, &at, n * kernel);
  char *normals = take<char>(arena, &at, n * normal);
  char *solves = take<char>(arena, &at, n * solve);
  char *all_sums = take<char>(arena, &at, n * sums);
  if (!arena)
    return at;

  d->d_slot = slot;
  d->d_grid = grids;
  d->grid_slot = grid / real;
  v->slot = slot;
  v->work = d_work;
  v->n_row = (int)n_row;
  v->row_count = row_count;
  v->row_list = row_list;
  v->row_pitch = n * n_row;
  v->input.base = input;
  v->input.row = MILL_MAX_LABEL;
  v->input.slot = n_row * v->input.row;
  v->hidden[0].base = hidden0;
  v->hidden[1].base = hidden1;
  for (int i = 0; i < 2; i++) {
    v->hidden[i].row = (size_t)s->pitch;
    v->hidden[i].slot = n_row * v->hidden[i].row;
  }
  v->narrow.base = narrow;
  v->narrow.row = (size_t)s->pitch;
  v->narrow.slot = n_row * v->narrow.row;
  for (size_t i = 0; i < n; i++) {
    mill_work *w = &work[i];
    w->grid = grids + i * grid;
    w->rotated = rotated + i * grid;
    w->bend = bend + i * grid;
    w->pixel = pixel + i * pix;
    w->smooth = smooth + i * pix;
    w->index = (int *)(void *)(indices + i * index);
    w->frac = (float *)(void *)(fracs + i * frac);
    w->kernel = (double *)(void *)(kernels + i * kernel);
    w->kernel_slope = (double *)(void *)(slopes + i * kernel);
    w->normal = (double *)(void *)(normals + i * normal);
    w->solve = (double *)(void *)(solves + i * solve);
    w->sums = (double *)(void *)(all_sums + i * sums);
  }
  return at;
}

/** Make the work space fit n slots of the call's model. */
static int reserve(mill_device *d, int n)
{
  int err = MILL_OK;
  mill_work *work = NULL;
  void *memory = NULL;
  work_shape shape = shape_of(&d->model, n);
  if (d->arena && d->shape.n_slot >= n) {
    shape.n_slot = d->shape.n_slot;
    if (memcmp(&shape, &d->shape, sizeof shape) == 0)
      return MILL_OK;
  }
  MILL_TRY(MILL_ALLOC(shape.n_slot, &work));
  MILL_TRY(finish(d));
  if (d->arena) {
    memory = d->arena;
    d->arena = NULL;
    TRY_CUDA(cudaFree(memory));
    memory = NULL;
  }
  TRY_CUDA_AT("work space of the slots", cudaMalloc(&memory, lay_out(d, &shape, NULL, NULL)));
  d->arena = (char *)memory;
  d->shape = shape;
  lay_out(d, &shape, d->arena, work);
  MILL_TRY(cuda_upload(d, d->view.work, work, (size_t)shape.n_slot * sizeof *work));
done:
  mill_free(work);
  return err;
}

/** Model, work space and slots of a call. */
static int begin_call(mill_device *d, const mill_model *model, mill_slot *const *slot, int n)
{
  int err = MILL_OK;
  MILL_TRY(cuda_download(d, &d->model, model, sizeof d->model));
  MILL_TRY(reserve(d, n));
  MILL_TRY(cuda_upload(d, d->d_slot, slot, (size_t)n * sizeof *slot));
  d->view.m = model;
  d->view.n_slot = n;
done:
  return err;
}

static int cuda_start(mill_device *d, const mill_model *model, mill_slot *const *slot, int n)
{
  int err = MILL_OK;
  if (n < 1)
    return MILL_OK;
  MILL_TRY(begin_call(d, model, slot, n));
  star_start<<<(unsigned)n, STAR_THREADS, 0, d->stream>>>(d->view);
  TRY_LAUNCH("star_start");
  MILL_TRY(finish(d));
done:
  return err;
}

template <typename real>
static int layer(mill_device *d, int arm, const mill_layer *l, const row_layout<real> *in,
                 const row_layout<real> *out)
{
  int err = MILL_OK;
  const device_view *v = &d->view;
  const size_t n_row = (size_t)v->n_slot * (size_t)v->n_row;
  const dim3 grid((unsigned)((n_row + TILE - 1) / TILE), (unsigned)(l->n_out_pad / TILE));
  row_layout<const real> from;
  from.base = in->base;
  from.slot = in->slot;
  from.row = in->row;
  product<real><<<grid, TILE_THREADS, 0, d->stream>>>(
      v->n_row, v->row_count + arm, v->row_list + (size_t)arm * v->row_pitch, l->n_in,
      (const real *)l->weight, (const real *)l->bias, from, *out);
  TRY_LAUNCH("product");
done:
  return err;
}

/** One arm's templates for all slots that want it, into their work->grid and mean.
 *
 *  Labels, grids, radial functions and hidden layers are float64 in both precisions, see
 *  emulate() of kernels/cpu/cpu_backend.c. */
static int emulate(mill_device *d, int i_arm)
{
  int err = MILL_OK;
  const mill_model_arm *arm = &d->model.arm[i_arm];
  const mill_layer *last = &arm->layer[arm->n_layer - 1];
  const unsigned n = (unsigned)d->view.n_slot;
  const row_layout<double> *in = &d->view.input, *out = NULL;
  if (arm->kind != MILL_EMULATOR_MLP) {
    out = &d->view.hidden[0];
    front<<<n, STAR_THREADS, 0, d->stream>>>(d->view, i_arm, *out);
    TRY_LAUNCH("front");
    in = out;
  }
  for (int l = 0; l < arm->n_layer - 1; l++) {
    out = &d->view.hidden[l % 2];
    MILL_TRY(layer<double>(d, i_arm, &arm->layer[l], in, out));
    activate<<<n, STAR_THREADS, 0, d->stream>>>(d->view, i_arm, arm->layer[l].n_out, *out);
    TRY_LAUNCH("activate");
    in = out;
  }
  last_input<<<n, STAR_THREADS, 0, d->stream>>>(d->view, i_arm, last->n_in, !d->shape.wide, *in);
  TRY_LAUNCH("last_input");
  if (d->shape.wide) {
    row_layout<double> grid;
    grid.base = (double *)d->d_grid;
    grid.slot = d->grid_slot;
    grid.row = (size_t)d->model.max_pix_pad;
    MILL_TRY(layer<double>(d, i_arm, last, in, &grid));
  } else {
    row_layout<float> grid;
    grid.base = (float *)d->d_grid;
    grid.slot = d->grid_slot;
    grid.row = (size_t)d->model.max_pix_pad;
    MILL_TRY(layer<float>(d, i_arm, last, &d->view.narrow, &grid));
  }
done:
  return err;
}

static int one_round(mill_device *d)
{
  int err = MILL_OK;
  const unsigned n = (unsigned)d->view.n_slot;
  TRY_CUDA(cudaMemsetAsync(d->view.row_count, 0, MILL_MAX_ARM * sizeof(int), d->stream));
  round_begin<<<n, STAR_THREADS, 0, d->stream>>>(d->view);
  TRY_LAUNCH("round_begin");
  for (int a = 0; a < d->model.n_arm; a++) {
    MILL_TRY(emulate(d, a));
    if (d->shape.wide)
      answer_arm<1><<<n, STAR_THREADS, 0, d->stream>>>(d->view, a);
    else
      answer_arm<0><<<n, STAR_THREADS, 0, d->stream>>>(d->view, a);
    TRY_LAUNCH("answer_arm");
  }
  round_digest<<<(n + SERIAL_THREADS - 1) / SERIAL_THREADS, SERIAL_THREADS, 0, d->stream>>>(
      d->view);
  TRY_LAUNCH("round_digest");
done:
  return err;
}

static int cuda_round(mill_device *d, const mill_model *model, mill_slot *const *slot, int n,
                      int n_round)
{
  int err = MILL_OK;
  if (n < 1)
    return MILL_OK;
  MILL_TRY(begin_call(d, model, slot, n));
  for (int i = 0; i < n_round; i++)
    MILL_TRY(one_round(d));
  MILL_TRY(finish(d));
done:
  return err;
}

/* ---- the table ---- */

const mill_backend *mill_backend_cuda(int *out)
{
  /* shorter than what jobs compare between ranks */
  static char name[60];
  static mill_backend table;
  int err = MILL_OK, id = 0;
  cudaDeviceProp prop;
  MILL_TRY(choose_device(&id));
  TRY_CUDA(cudaGetDeviceProperties(&prop, id));
  snprintf(name, sizeof name, "cuda %.40s sm_%d%d", prop.name, prop.major, prop.minor);
  table.name = name;
  table.open = cuda_open;
  table.close = cuda_close;
  table.alloc = cuda_alloc;
  table.release = cuda_release;
  table.upload = cuda_upload;
  table.zero = cuda_zero;
  table.download = cuda_download;
  table.start = cuda_start;
  table.round = cuda_round;
  table.timing = NULL; /* kernels run one after the other: a profiler tells more */
done:
  if (out)
    *out = err;
  return err == MILL_OK ? &table : NULL;
}
