/* The CUDA backend: drives the kernels of rounds.h and product.h.
 *
 *  - Rounds and what begins a star run on one stream, in a graph that goes on by itself
 *    where the driver can do that, else launch by launch.
 *  - Uploads are collected in pinned memory and go on a second stream, rows and models come
 *    back on a third, so neither waits for rounds under way.
 *  - What CUDA itself takes of the memory is taken before stars get any: kernels are loaded
 *    when the device is opened, and rounds over nothing follow every binding.
 *  - A star's result does not depend on the batch: every output of a product is one sum in a
 *    fixed order, and the threads of a block add up in a fixed order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_facts.h"
#include "kernels/cuda/rounds.h"
#include "kernels/base/error.h"
#include "kernels/base/host_copy.h"
#include "kernels/base/nvtx.h"

/** Buffer of what comes back: the models of a star, several times. */
static const size_t BACK_BYTES = (size_t)1 << 20;
static const size_t ALIGN_BYTES = 256;
/** Arrays of a star begin at multiples of this (src/pipeline/pipeline.c): what lies between them is
 *  nobody's, so they are copied as one piece. */
static const size_t ARRAY_BYTES = 64;
/** Pieces from so many bytes on are refused where they would leave less than RESERVE_BYTES of
 *  the GPU's memory, or than a part of it: CUDA itself may want more when kernels run. */
static const size_t LARGE_BYTES = (size_t)64 << 10;
static const size_t RESERVE_BYTES = (size_t)512 << 20;
/** Memory of a star of a DESI-like survey with its work space, generously. */
static const size_t SLOT_BYTES = (size_t)3 << 20;

enum {
  MAX_COPY = 64,
  MIN_SLOT = 64,
  MAX_SLOT = MILL_GPU_SLOTS,
  PLAIN_ROUNDS = 4, /**< without a graph: rounds before the host looks */
  GRAPH_DRIVER = 12040,
  RESERVE_PART = 16,
  REMARK_BYTES = 1024,
  /** Jacobians of a star that are coarse where MILL_CUDA_LAST_LAYER asks for it: with a third one
   *  a star takes half as many evaluations again (docs/gpu.md). */
  N_EARLY = 2
};

/** Kernels of the last layer. */
enum last_layer { LAYER_FFMA, LAYER_TF32X3, LAYER_TF32_EARLY, N_LAST_LAYER };
static const char *const last_layer_name[N_LAST_LAYER] = {"ffma", "tf32x3", "tf32early"};

/** What the work space of a lane is made for. */
struct work_shape {
  int n_lane, n_par, n_label, max_pix_pad, max_seg_pix;
  int pitch; /**< of a row of hidden layers */
  int wide;  /**< float64 templates */
  int n_early;
};

/** Switches of the environment (docs/gpu.md). */
struct cuda_options {
  int graph;      /**< MILL_CUDA_GRAPH */
  int debug;      /**< MILL_CUDA_DEBUG */
  int last_layer; /**< MILL_CUDA_LAST_LAYER: enum last_layer */
};

struct mill_device {
  int id;
  cuda_options options;
  cudaStream_t stream; /**< rounds */
  cudaStream_t up, down;
  cudaEvent_t uploaded, ended;
  char *stage[MILL_N_STAGE]; /**< pinned; uploads are collected here */
  cudaEvent_t stage_free[MILL_N_STAGE];
  int i_stage;
  size_t staged; /**< bytes in stage[i_stage] */
  int n_copier;
  mill_upload copy[MAX_COPY]; /**< into stage[i_stage], still to be done */
  int n_copy;
  char *pending_to; /**< where the last n_pending of them go; the copy waits for more */
  size_t n_pending;
  char *back;       /**< pinned [BACK_BYTES]; downloads pass through it */
  mill_model model; /**< host copy */
  int n_slot;
  char *book;  /**< device memory of lists and rows, owned */
  char *arena; /**< all work space, owned */
  work_shape shape;
  void *d_grid; /**< first of mill_work.grid; the others follow at grid_lane elements */
  size_t grid_lane;
  device_view view;
  /* pinned */
  int *h_fresh, *h_listed, *h_finished; /**< [n_slot] */
  mill_fit_result *h_result;            /**< [n_slot] */
  loop_state *h_state;
  int n_listed; /**< of the rounds under way */
  int is_busy;  /**< rounds are under way */
  void **grave; /**< to be freed when no rounds are */
  int n_grave, cap_grave;
  char remark[REMARK_BYTES]; /**< for the log; empty: nothing */
#if CUDART_VERSION >= 12040
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaGraphConditionalHandle go_on;
#endif
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
  case cudaErrorSystemNotReady:
  case cudaErrorSystemDriverMismatch:
    *advice = "the driver or fabric manager of this node is not ready: tell its administrator, or "
              "use --backend cpu";
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
/** A kernel on the stream of rounds.  Debug mode waits for it, so that a failure has its name. */
template <typename... want, typename... have>
static int launch(mill_device *d, const char *name, unsigned n_x, unsigned n_y, int n_thread,
                  void (*kernel)(want...), have &&...argument)
{
  int err = MILL_OK;
  cudaLaunchConfig_t config;
  memset((void *)&config, 0, sizeof config);
  config.gridDim = dim3(n_x, n_y, 1);
  config.blockDim = dim3((unsigned)n_thread, 1, 1);
  config.stream = d->stream;
  TRY_CUDA_AT(name, cudaLaunchKernelEx(&config, kernel, argument...));
  if (d->options.debug)
    TRY_CUDA_AT(name, cudaStreamSynchronize(d->stream));
done:
  return err;
}

/* ---- memory ---- */

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

/** Fill the buffer of uploads with what it is to have. */
static void fill_stage(mill_device *d)
{
  mill_host_copy(d->n_copier, d->copy, d->n_copy);
  d->n_copy = 0;
}

/** Send off the copy that waits. */
static int flush(mill_device *d)
{
  int err = MILL_OK;
  if (d->n_pending == 0)
    goto done;
  fill_stage(d);
  TRY_CUDA(cudaMemcpyAsync(d->pending_to, d->stage[d->i_stage] + d->staged - d->n_pending,
                           d->n_pending, cudaMemcpyHostToDevice, d->up));
  d->n_pending = 0;
  d->staged = padded(d->staged);
done:
  return err;
}

/** The next buffer of uploads, once the copies from it are done. */
static int next_stage(mill_device *d)
{
  int err = MILL_OK;
  MILL_TRY(flush(d));
  TRY_CUDA(cudaEventRecord(d->stage_free[d->i_stage], d->up));
  d->i_stage = (d->i_stage + 1) % MILL_N_STAGE;
  TRY_CUDA(cudaEventSynchronize(d->stage_free[d->i_stage]));
  d->staged = 0;
done:
  return err;
}

/** Does memory at `to` follow the copy that waits?  Then the bytes between them. */
static int follows(const mill_device *d, const char *to, size_t *gap)
{
  const uintptr_t end = (uintptr_t)d->pending_to + d->n_pending, begin = (uintptr_t)to;
  *gap = begin - end;
  return d->n_pending > 0 && begin >= end && *gap < ARRAY_BYTES && begin % ARRAY_BYTES == 0 &&
         d->staged + *gap < MILL_STAGE_BYTES;
}

/** Give a piece its place in the buffers. */
static int stage_piece(mill_device *d, const mill_upload *piece)
{
  int err = MILL_OK;
  char *dest = (char *)piece->to;
  const char *source = (const char *)piece->from;
  for (size_t left = piece->bytes; left > 0;) {
    size_t gap;
    if (follows(d, dest, &gap)) {
      d->staged += gap;
      d->n_pending += gap;
    } else {
      MILL_TRY(flush(d));
      if (d->staged >= MILL_STAGE_BYTES)
        MILL_TRY(next_stage(d));
      d->pending_to = dest;
    }
    const size_t room = MILL_STAGE_BYTES - d->staged, n = left < room ? left : room;
    if (d->n_copy == MAX_COPY)
      fill_stage(d);
    d->copy[d->n_copy++] = (mill_upload){d->stage[d->i_stage] + d->staged, source, n};
    d->staged += n;
    d->n_pending += n;
    dest += n;
    if (source)
      source += n;
    left -= n;
    if (d->staged >= MILL_STAGE_BYTES)
      MILL_TRY(next_stage(d));
  }
done:
  return err;
}

static int cuda_upload_all(mill_device *d, const mill_upload *piece, int n)
{
  int err = MILL_OK;
  TRY_CUDA(cudaSetDevice(d->id));
  for (int i = 0; i < n; i++)
    MILL_TRY(stage_piece(d, &piece[i]));
done:
  /* what is read may be changed from now on */
  fill_stage(d);
  return err;
}

static int cuda_upload(mill_device *d, void *to, const void *from, size_t bytes)
{
  const mill_upload piece = {to, from, bytes};
  return cuda_upload_all(d, &piece, 1);
}

static int cuda_zero(mill_device *d, void *to, size_t bytes)
{
  int err = MILL_OK;
  TRY_CUDA(cudaSetDevice(d->id));
  MILL_TRY(flush(d));
  if (bytes > 0)
    TRY_CUDA(cudaMemsetAsync(to, 0, bytes, d->up));
done:
  return err;
}

/** What was uploaded so far comes before the work on a stream that follows. */
static int after_uploads(mill_device *d, cudaStream_t stream)
{
  int err = MILL_OK;
  MILL_TRY(flush(d));
  TRY_CUDA(cudaEventRecord(d->uploaded, d->up));
  TRY_CUDA(cudaStreamWaitEvent(stream, d->uploaded, 0));
done:
  return err;
}

static int cuda_download(mill_device *d, void *to, const void *from, size_t bytes)
{
  int err = MILL_OK;
  char *dest = (char *)to;
  const char *source = (const char *)from;
  TRY_CUDA(cudaSetDevice(d->id));
  MILL_TRY(after_uploads(d, d->down));
  while (bytes > 0) {
    const size_t n = bytes < BACK_BYTES ? bytes : BACK_BYTES;
    TRY_CUDA(cudaMemcpyAsync(d->back, source, n, cudaMemcpyDeviceToHost, d->down));
    TRY_CUDA(cudaStreamSynchronize(d->down));
    memcpy(dest, d->back, n);
    dest += n;
    source += n;
    bytes -= n;
  }
done:
  return err;
}

/** cudaErrorMemoryAllocation where a piece would take what CUDA itself may want. */
static cudaError_t leave_reserve(size_t bytes)
{
  size_t n_free = 0, n_total = 0;
  if (bytes < LARGE_BYTES)
    return cudaSuccess;
  const cudaError_t status = cudaMemGetInfo(&n_free, &n_total);
  const size_t part = n_total / RESERVE_PART;
  const size_t reserve = part < RESERVE_BYTES ? part : RESERVE_BYTES;
  if (status != cudaSuccess || (bytes <= n_free && reserve <= n_free - bytes))
    return status;
  return cudaErrorMemoryAllocation;
}

static int cuda_alloc(mill_device *d, size_t bytes, void **out)
{
  int err = MILL_OK;
  *out = NULL;
  TRY_CUDA(cudaSetDevice(d->id));
  /* longer, so that no piece begins within ARRAY_BYTES of another's end: what is uploaded to
   * both must not become one copy, which CUDA refuses */
  bytes += ARRAY_BYTES;
  TRY_CUDA_AT("memory for a star", leave_reserve(bytes));
  TRY_CUDA_AT("memory for a star", cudaMalloc(out, bytes));
done:
  if (err)
    *out = NULL;
  return err;
}

/** Free what was released while rounds were under way. */
static void bury(mill_device *d)
{
  /* copies to it may be under way; a failure comes back with the next call */
  if (d->n_grave > 0)
    (void)cudaStreamSynchronize(d->up);
  for (int i = 0; i < d->n_grave; i++)
    (void)cudaFree(d->grave[i]);
  d->n_grave = 0;
}

static void cuda_release(mill_device *d, void *memory)
{
  if (!memory)
    return;
  (void)cudaSetDevice(d->id);
  /* the copy that waits may be for it; a failure comes back with the next call */
  (void)flush(d);
  if (d->is_busy && d->n_grave == d->cap_grave) {
    const int cap = 2 * d->cap_grave + 64;
    void **more = NULL;
    if (mill_alloc_bytes((size_t)cap, sizeof *more, (void **)&more) == MILL_OK) {
      if (d->n_grave > 0)
        memcpy(more, d->grave, (size_t)d->n_grave * sizeof *more);
      mill_free(d->grave);
      d->grave = more;
      d->cap_grave = cap;
    }
  }
  /* cudaFree waits for the device, which would keep the host from filling slots */
  if (d->is_busy && d->n_grave < d->cap_grave) {
    d->grave[d->n_grave++] = memory;
  } else {
    (void)cudaStreamSynchronize(d->up);
    (void)cudaFree(memory);
  }
}

/* ---- opening ---- */

/** Look for this build's code for every kernel, which also loads it: later there may be no memory
 *  for it, and nothing may be loaded while a graph is captured. */
static int load_kernels(void)
{
  int err = MILL_OK;
  const void *const kernel[] = {
    (const void *)star_start,
    (const void *)loop_begin,
    (const void *)round_list,
    (const void *)pass_begin,
    (const void *)round_begin,
    (const void *)front,
    (const void *)activate,
    (const void *)last_input,
    (const void *)answer_arm<0>,
    (const void *)answer_arm<1>,
    (const void *)round_digest,
    (const void *)round_end,
#if CUDART_VERSION >= 12040
    (const void *)round_end_graph,
#endif
    (const void *)find_nan<float>,
    (const void *)find_nan<double>,
    (const void *)product_f32,
    (const void *)product_f64,
    (const void *)product_tf32<1>,
    (const void *)product_tf32<3>,
  };
  cudaFuncAttributes attributes;
  for (size_t i = 0; i < sizeof kernel / sizeof kernel[0]; i++)
    TRY_CUDA_AT("looking for code for this GPU", cudaFuncGetAttributes(&attributes, kernel[i]));
done:
  return err;
}

/** The GPU of this rank, made the current one of this thread. */
static int choose_device(int *id)
{
  int err = MILL_OK;
  mill_gpu_place place;
  mill_gpu_node node;
  mill_gpu_facts *all = NULL;
  if (!mill_gpu_assigned(&place)) {
    MILL_TRY(mill_gpu_look(&node, &all));
    MILL_TRY(mill_gpu_choose(&node, 0, &place.gpu));
  }
  *id = place.gpu;
  TRY_CUDA(cudaSetDevice(*id));
  TRY_CUDA(cudaFree(NULL)); /* makes the context, where a busy GPU shows */
  MILL_TRY(load_kernels());
done:
  mill_free(all);
  return err;
}

/** A switch of the environment that has one of some words; the first one is the default. */
static int read_switch(const char *name, int n_word, const char *const *word, int *choice)
{
  int err = MILL_OK;
  const char *text = getenv(name);
  char words[128] = "";
  *choice = 0;
  if (!text || !*text)
    goto done;
  for (int i = 0; i < n_word; i++) {
    if (strcmp(text, word[i]) == 0) {
      *choice = i;
      goto done;
    }
    const size_t n = strlen(words);
    snprintf(words + n, sizeof words - n, "%s%s",
             i == 0           ? ""
             : i < n_word - 1 ? ", "
                              : " or ",
             word[i]);
  }
  MILL_FAIL(MILL_ERR_CONFIG, "%s is %s, not '%s'", name, words, text);
done:
  return err;
}

static int read_options(int major, cuda_options *options)
{
  int err = MILL_OK;
  static const char *const on_off[] = {"1", "0"}, *const off_on[] = {"0", "1"};
  int no_graph, driver = 0;
  MILL_TRY(read_switch("MILL_CUDA_GRAPH", 2, on_off, &no_graph));
  MILL_TRY(read_switch("MILL_CUDA_DEBUG", 2, off_on, &options->debug));
  MILL_TRY(
      read_switch("MILL_CUDA_LAST_LAYER", N_LAST_LAYER, last_layer_name, &options->last_layer));
  if (options->last_layer != LAYER_FFMA && major < 8)
    MILL_FAIL(MILL_ERR_CONFIG,
              "MILL_CUDA_LAST_LAYER=%s: this GPU's tensor cores have no TF32; take ffma",
              last_layer_name[options->last_layer]);
  TRY_CUDA(cudaDriverGetVersion(&driver));
  /* ranges of a profiler and the checks of debug mode stand between launches */
  options->graph = !no_graph && !options->debug && !mill_nvtx_listens && driver >= GRAPH_DRIVER &&
                   CUDART_VERSION >= GRAPH_DRIVER;
done:
  return err;
}

static void drop_graph(mill_device *d)
{
#if CUDART_VERSION >= 12040
  if (d->exec)
    (void)cudaGraphExecDestroy(d->exec);
  if (d->graph)
    (void)cudaGraphDestroy(d->graph);
  d->exec = NULL;
  d->graph = NULL;
#else
  (void)d;
#endif
}

static void free_book(mill_device *d)
{
  void *const pinned[] = {d->h_fresh, d->h_listed, d->h_finished, d->h_result, d->h_state};
  for (size_t i = 0; i < sizeof pinned / sizeof pinned[0]; i++)
    if (pinned[i])
      (void)cudaFreeHost(pinned[i]);
  if (d->book)
    (void)cudaFree(d->book);
  d->h_fresh = d->h_listed = d->h_finished = NULL;
  d->h_result = NULL;
  d->h_state = NULL;
  d->book = NULL;
  d->n_slot = 0;
}

static void cuda_close(mill_device *d)
{
  if (!d)
    return;
  (void)cudaSetDevice(d->id);
  /* nothing under way may still use what is freed; failures were reported, or belong to
   * work that nobody waits for */
  const cudaStream_t stream[] = {d->stream, d->up, d->down};
  for (int i = 0; i < 3; i++)
    if (stream[i])
      (void)cudaStreamSynchronize(stream[i]);
  bury(d);
  mill_free(d->grave);
  drop_graph(d);
  free_book(d);
  if (d->arena)
    (void)cudaFree(d->arena);
  for (int i = 0; i < MILL_N_STAGE; i++) {
    if (d->stage[i])
      (void)cudaFreeHost(d->stage[i]);
    if (d->stage_free[i])
      (void)cudaEventDestroy(d->stage_free[i]);
  }
  if (d->back)
    (void)cudaFreeHost(d->back);
  if (d->uploaded)
    (void)cudaEventDestroy(d->uploaded);
  if (d->ended)
    (void)cudaEventDestroy(d->ended);
  for (int i = 0; i < 3; i++)
    if (stream[i])
      (void)cudaStreamDestroy(stream[i]);
  mill_free(d);
}

/** Pinned memory of n elements. */
template <typename type> static int pin(type **out, size_t n)
{
  int err = MILL_OK;
  void *memory = NULL;
  TRY_CUDA_AT("pinned host memory", cudaMallocHost(&memory, n * sizeof(type)));
  *out = (type *)memory;
done:
  return err;
}

static int cuda_open(int n_thread, mill_device **out)
{
  int err = MILL_OK;
  mill_device *d = NULL;
  cudaDeviceProp prop;
  /* whoever waits for rounds or for a buffer sleeps: its core has readers to run.  Waking up
   * takes tens of microseconds, rounds between two waits take milliseconds. */
  const unsigned waited_for = cudaEventDisableTiming | cudaEventBlockingSync;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &d));
  MILL_TRY(mill_host_copiers(n_thread, &d->n_copier));
  MILL_TRY(choose_device(&d->id));
  TRY_CUDA(cudaGetDeviceProperties(&prop, d->id));
  MILL_TRY(read_options(prop.major, &d->options));
  TRY_CUDA(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking));
  TRY_CUDA(cudaStreamCreateWithFlags(&d->up, cudaStreamNonBlocking));
  TRY_CUDA(cudaStreamCreateWithFlags(&d->down, cudaStreamNonBlocking));
  TRY_CUDA(cudaEventCreateWithFlags(&d->uploaded, cudaEventDisableTiming));
  TRY_CUDA(cudaEventCreateWithFlags(&d->ended, waited_for));
  MILL_TRY(pin(&d->back, BACK_BYTES));
  for (int i = 0; i < MILL_N_STAGE; i++) {
    MILL_TRY(pin(&d->stage[i], MILL_STAGE_BYTES));
    TRY_CUDA(cudaEventCreateWithFlags(&d->stage_free[i], waited_for));
  }
  *out = d;
  d = NULL;
done:
  cuda_close(d);
  return err;
}

/* ---- work space ---- */

static work_shape shape_of(const mill_device *d, const mill_model *m, int n_lane)
{
  work_shape s;
  memset(&s, 0, sizeof s);
  s.n_lane = n_lane;
  s.n_par = m->n_par;
  s.n_label = m->n_label;
  s.max_pix_pad = m->max_pix_pad;
  s.max_seg_pix = m->max_seg_pix;
  s.wide = m->set.precision == MILL_FLOAT64;
  s.n_early = !s.wide && d->options.last_layer == LAYER_TF32_EARLY ? N_EARLY : 0;
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
  /* fronts have outputs as they are, and rows begin at multiples of 16 bytes (product_f32) */
  s.pitch = (s.pitch + MILL_COLUMN_PAD - 1) / MILL_COLUMN_PAD * MILL_COLUMN_PAD;
  return s;
}

/** Work space for n_lane lanes in one piece of memory.  arena NULL: only its size.
 *  work [n_lane] host copy of the blocks' structures, NULL with arena.
 *
 *  Sums, normal matrices and solutions are in shared memory (star_shared). */
static size_t lay_out(mill_device *d, const work_shape *s, char *arena, mill_work *work)
{
  const size_t real = s->wide ? sizeof(double) : sizeof(float);
  const size_t n = (size_t)s->n_lane, n_row = (size_t)s->n_label + 1;
  const size_t n_template = (size_t)s->n_par + 1;
  /* bytes of one lane, so that every lane's rows begin aligned */
  const size_t grid = padded(n_template * (size_t)s->max_pix_pad * real);
  /* the guess keeps a double a pixel there, the Jacobian two */
  const size_t pix = padded(n_template * (size_t)s->max_seg_pix * real);
  const size_t index = padded((size_t)s->max_seg_pix * sizeof(int));
  const size_t frac = padded((size_t)s->max_seg_pix * sizeof(float));
  const size_t kernel = padded((MILL_MAX_ROTATION + 1) * sizeof(double));
  size_t at = 0;
  device_view *v = &d->view;
  mill_work *d_work = take<mill_work>(arena, &at, n);
  int *row_count = take<int>(arena, &at, MILL_MAX_ARM);
  int *row_list = take<int>(arena, &at, MILL_MAX_ARM * n * n_row);
  int *fine_count = take<int>(arena, &at, MILL_MAX_ARM);
  int *coarse_count = take<int>(arena, &at, MILL_MAX_ARM);
  int *part_list = take<int>(arena, &at, s->n_early > 0 ? MILL_MAX_ARM * n * n_row : 0);
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
  if (!arena)
    return at;

  d->d_grid = grids;
  d->grid_lane = grid / real;
  v->work = d_work;
  v->n_lane = s->n_lane;
  v->n_row = (int)n_row;
  v->row_count = row_count;
  v->row_list = row_list;
  v->row_pitch = n * n_row;
  v->n_early = s->n_early;
  v->fine_count = fine_count;
  v->coarse_count = coarse_count;
  v->part_list = part_list;
  v->input.base = input;
  v->input.row = MILL_MAX_LABEL;
  v->input.lane = n_row * v->input.row;
  v->hidden[0].base = hidden0;
  v->hidden[1].base = hidden1;
  for (int i = 0; i < 2; i++) {
    v->hidden[i].row = (size_t)s->pitch;
    v->hidden[i].lane = n_row * v->hidden[i].row;
  }
  v->narrow.base = narrow;
  v->narrow.row = (size_t)s->pitch;
  v->narrow.lane = n_row * v->narrow.row;
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
  }
  return at;
}

/** The GPU's free memory that this process may have. */
static int free_bytes(size_t *n_free)
{
  int err = MILL_OK;
  mill_gpu_place place;
  size_t n_total = 0;
  TRY_CUDA(cudaMemGetInfo(n_free, &n_total));
  if (mill_gpu_assigned(&place) && place.bytes > 0 && place.bytes < *n_free)
    *n_free = place.bytes;
done:
  return err;
}

/** Make the work space fit the model: a lane for every slot, or a half, a quarter ... of
 *  that where it would take more than half of the free memory, as stars need some too; a
 *  round then takes several passes. */
static int reserve_lanes(mill_device *d)
{
  int err = MILL_OK;
  mill_work *work = NULL;
  void *memory = NULL;
  size_t n_free = 0, n_most = 0;
  work_shape shape = shape_of(d, &d->model, d->n_slot);
  cudaError_t status = cudaSuccess;
  if (d->arena && d->shape.n_lane <= d->n_slot) {
    shape.n_lane = d->shape.n_lane;
    if (memcmp(&shape, &d->shape, sizeof shape) == 0)
      return MILL_OK;
    shape.n_lane = d->n_slot;
  }
  if (d->arena) {
    /* stars have the rest of the memory by now: as much again as before is no more */
    n_most = lay_out(d, &d->shape, NULL, NULL);
    memory = d->arena;
    d->arena = NULL;
    TRY_CUDA(cudaFree(memory));
    memory = NULL;
  }
  MILL_TRY(free_bytes(&n_free));
  if (n_most < n_free / 2)
    n_most = n_free / 2;
  while (shape.n_lane > 1 && lay_out(d, &shape, NULL, NULL) > n_most)
    shape.n_lane /= 2;
  for (;;) {
    status = cudaMalloc(&memory, lay_out(d, &shape, NULL, NULL));
    if (status != cudaErrorMemoryAllocation || shape.n_lane == 1)
      break;
    (void)cudaGetLastError();
    shape.n_lane /= 2;
  }
  TRY_CUDA_AT("work space of the slots", status);
  d->arena = (char *)memory;
  d->shape = shape;
  MILL_TRY(MILL_ALLOC(shape.n_lane, &work));
  lay_out(d, &shape, d->arena, work);
  MILL_TRY(cuda_upload(d, d->view.work, work, (size_t)shape.n_lane * sizeof *work));
done:
  mill_free(work);
  return err;
}

/** Lists and rows for n slots. */
static int reserve_book(mill_device *d, int n_slot)
{
  int err = MILL_OK;
  const size_t n = (size_t)n_slot;
  void *memory = NULL;
  device_view *v = &d->view;
  if (d->n_slot == n_slot)
    return MILL_OK;
  free_book(d);
  for (int pass = 0; pass < 2; pass++) {
    size_t at = 0;
    v->state = take<loop_state>(d->book, &at, 1);
    v->slot = take<mill_slot *>(d->book, &at, n);
    v->fresh = take<int>(d->book, &at, n);
    v->listed = take<int>(d->book, &at, n);
    v->active = take<int>(d->book, &at, n);
    v->finished = take<int>(d->book, &at, n);
    v->result = take<mill_fit_result>(d->book, &at, n);
    if (pass == 0) {
      TRY_CUDA_AT("lists of the slots", cudaMalloc(&memory, at));
      d->book = (char *)memory;
    }
  }
  MILL_TRY(pin(&d->h_fresh, n));
  MILL_TRY(pin(&d->h_listed, n));
  MILL_TRY(pin(&d->h_finished, n));
  MILL_TRY(pin(&d->h_result, n));
  MILL_TRY(pin(&d->h_state, 1));
  TRY_CUDA(cudaMemsetAsync(v->state, 0, sizeof *v->state, d->stream));
  d->n_slot = n_slot;
done:
  if (err)
    free_book(d);
  return err;
}

/* ---- a round ---- */

/** Debug mode: look for NaN in an arm's templates, of the pass that begins at first. */
static int search_nan(mill_device *d, int first, unsigned n, int arm)
{
  int err = MILL_OK;
  if (d->shape.wide) {
    const row_layout<const double> rows = {(const double *)d->d_grid, d->grid_lane,
                                           (size_t)d->model.max_pix_pad};
    MILL_TRY(launch(d, "kernel find_nan", n, 1, STAR_THREADS, find_nan<double>, d->view, first, arm,
                    rows));
  } else {
    const row_layout<const float> rows = {(const float *)d->d_grid, d->grid_lane,
                                          (size_t)d->model.max_pix_pad};
    MILL_TRY(launch(d, "kernel find_nan", n, 1, STAR_THREADS, find_nan<float>, d->view, first, arm,
                    rows));
  }
  TRY_CUDA(cudaMemcpyAsync(d->h_state, d->view.state, sizeof *d->h_state, cudaMemcpyDeviceToHost,
                           d->stream));
  TRY_CUDA(cudaStreamSynchronize(d->stream));
  if (d->h_state->n_nan > 0)
    MILL_FAIL(MILL_ERR_BACKEND,
              "backend cuda, debug mode: %d NaN in the templates of arm %d in round %d",
              d->h_state->n_nan, arm, d->h_state->n_round + 1);
done:
  return err;
}

/** All rows of an arm. */
static row_batch all_rows(const device_view *v, int arm)
{
  return {v->n_row, v->row_count + arm, v->row_list + (size_t)arm * v->row_pitch, 1};
}

/** A layer of so many rows at most, by a kernel of so many threads. */
template <typename real>
static int layer(mill_device *d, size_t n_most, const row_batch &batch, const mill_layer *l,
                 const row_layout<real> *in, const row_layout<real> *out, int n_thread,
                 const char *name,
                 void (*kernel)(row_batch, int, const real *, const real *, row_layout<const real>,
                                row_layout<real>))
{
  const row_layout<const real> from = {in->base, in->lane, in->row};
  return launch(d, name, (unsigned)((n_most + TILE - 1) / TILE), (unsigned)(l->n_out_pad / TILE),
                n_thread, kernel, batch, l->n_in, (const real *)l->weight, (const real *)l->bias,
                from, *out);
}

static int layer_f64(mill_device *d, size_t n_most, const row_batch &batch, const mill_layer *l,
                     const row_layout<double> *in, const row_layout<double> *out)
{
  return layer<double>(d, n_most, batch, l, in, out, F64_THREADS, "kernel product_f64",
                       product_f64);
}

/** The last layer of an arm in float32. */
static int last_layer_f32(mill_device *d, size_t n_most, int arm, const mill_layer *l,
                          const row_layout<float> *out)
{
  int err = MILL_OK;
  const device_view *v = &d->view;
  const row_layout<float> *in = &v->narrow;
  if (d->options.last_layer == LAYER_FFMA)
    return layer<float>(d, n_most, all_rows(v, arm), l, in, out, F32_THREADS, "kernel product_f32",
                        product_f32);
  if (d->options.last_layer == LAYER_TF32X3)
    return layer<float>(d, n_most, all_rows(v, arm), l, in, out, MMA_THREADS, "kernel product_tf32",
                        product_tf32<3>);
  int *const list = v->part_list + (size_t)arm * v->row_pitch;
  const row_batch fine = {v->n_row, v->fine_count + arm, list, 1};
  const row_batch coarse = {v->n_row, v->coarse_count + arm, list + v->row_pitch - 1, -1};
  MILL_TRY(layer<float>(d, n_most, fine, l, in, out, MMA_THREADS, "kernel product_tf32",
                        product_tf32<3>));
  MILL_TRY(layer<float>(d, n_most, coarse, l, in, out, MMA_THREADS, "kernel product_tf32, coarse",
                        product_tf32<1>));
done:
  return err;
}

/** One arm's templates for all lanes that want it, into their work->grid and mean.
 *
 *  Labels, grids, radial functions and hidden layers are float64 in both precisions, see
 *  emulate() of kernels/cpu/cpu_backend.c. */
static int emulate(mill_device *d, int first, unsigned n, int i_arm)
{
  int err = MILL_OK;
  const mill_model_arm *arm = &d->model.arm[i_arm];
  const mill_layer *last = &arm->layer[arm->n_layer - 1];
  const row_layout<double> *in = &d->view.input, *out = NULL;
  const size_t pitch = (size_t)d->model.max_pix_pad, n_most = (size_t)n * (size_t)d->view.n_row;
  const row_batch rows = all_rows(&d->view, i_arm);
  if (arm->kind != MILL_EMULATOR_MLP) {
    out = &d->view.hidden[0];
    MILL_TRY(launch(d, "kernel front", n, 1, STAR_THREADS, front, d->view, first, i_arm, *out));
    in = out;
  }
  for (int l = 0; l < arm->n_layer - 1; l++) {
    out = &d->view.hidden[l % 2];
    MILL_TRY(layer_f64(d, n_most, rows, &arm->layer[l], in, out));
    MILL_TRY(launch(d, "kernel activate", n, 1, STAR_THREADS, activate, d->view, first, i_arm,
                    arm->layer[l].n_out, *out));
    in = out;
  }
  MILL_TRY(launch(d, "kernel last_input", n, 1, STAR_THREADS, last_input, d->view, first, i_arm,
                  last->n_in, !d->shape.wide, *in));
  if (d->shape.wide) {
    const row_layout<double> grid = {(double *)d->d_grid, d->grid_lane, pitch};
    MILL_TRY(layer_f64(d, n_most, rows, last, in, &grid));
  } else {
    const row_layout<float> grid = {(float *)d->d_grid, d->grid_lane, pitch};
    MILL_TRY(last_layer_f32(d, n_most, i_arm, last, &grid));
  }
  if (d->options.debug)
    MILL_TRY(search_nan(d, first, n, i_arm));
done:
  return err;
}

/** One pass: n lanes from entry first of the round's list. */
static int one_pass(mill_device *d, int first, unsigned n)
{
  int err = MILL_OK;
  MILL_TRY(launch(d, "kernel pass_begin", 1, 1, DIGEST_THREADS, pass_begin, d->view));
  MILL_TRY(launch(d, "kernel round_begin", n, 1, STAR_THREADS, round_begin, d->view, first));
  for (int a = 0; a < d->model.n_arm; a++) {
    mill_range_begin(MILL_RANGE_EMULATE);
    err = emulate(d, first, n, a);
    mill_range_end();
    MILL_TRY(err);
    mill_range_begin(MILL_RANGE_LIKELIHOOD);
    if (d->shape.wide)
      err = launch(d, "kernel answer_arm", n, 1, STAR_THREADS, answer_arm<1>, d->view, first, a);
    else
      err = launch(d, "kernel answer_arm", n, 1, STAR_THREADS, answer_arm<0>, d->view, first, a);
    mill_range_end();
    MILL_TRY(err);
  }
  mill_range_begin(MILL_RANGE_POLISH);
  err = launch(d, "kernel round_digest", n, 1, DIGEST_THREADS, round_digest, d->view, first);
  mill_range_end();
done:
  return err;
}

/** One round over at most n_listed slots, without its end. */
static int one_round(mill_device *d, int n_listed)
{
  int err = MILL_OK;
  MILL_TRY(launch(d, "kernel round_list", 1, 1, LIST_THREADS, round_list, d->view));
  for (int first = 0; first < n_listed; first += d->shape.n_lane) {
    const int left = n_listed - first;
    MILL_TRY(one_pass(d, first, (unsigned)(left < d->shape.n_lane ? left : d->shape.n_lane)));
  }
done:
  return err;
}

#if CUDART_VERSION >= 12040
/** The rounds as a graph: a loop whose body is one round over all slots. */
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
  if (err == MILL_OK)
    err = launch(d, "kernel round_end_graph", 1, 1, DIGEST_THREADS, round_end_graph, d->view,
                 d->go_on);
  /* also after a failure, or the stream would be lost; the first failure counts */
  status = cudaStreamEndCapture(d->stream, &captured);
  MILL_TRY(err);
  TRY_CUDA_AT("capturing a round", status);
  half_captured = 0;
  TRY_CUDA(cudaGraphInstantiate(&d->exec, d->graph, 0));
done:
  /* left alone: to destroy a graph has ended in a segmentation fault where the capture of a
   * conditional node's body had failed (github.com/NVIDIA/cuda-python, issue 2918) */
  if (half_captured)
    d->graph = NULL;
  if (err)
    drop_graph(d);
  return err;
}
#endif

/** Rounds one by one. */
static int plain_rounds(mill_device *d, int max_round)
{
  int err = MILL_OK;
  for (int i = 0; i < max_round && i < PLAIN_ROUNDS; i++) {
    mill_range_begin(MILL_RANGE_ROUND);
    err = one_round(d, d->n_listed);
    if (err == MILL_OK)
      err = launch(d, "kernel round_end", 1, 1, DIGEST_THREADS, round_end, d->view);
    mill_range_end();
    MILL_TRY(err);
  }
done:
  return err;
}

/** The rounds that loop_begin has described, of n_listed slots. */
static int launch_rounds(mill_device *d, int n_listed, int max_round)
{
  int err = MILL_OK;
  d->n_listed = n_listed;
#if CUDART_VERSION >= 12040
  if (d->options.graph) {
    mill_range_begin(MILL_RANGE_ROUND);
    const cudaError_t status = cudaGraphLaunch(d->exec, d->stream);
    mill_range_end();
    TRY_CUDA_AT("launching the rounds", status);
    goto done;
  }
#endif
  MILL_TRY(plain_rounds(d, max_round));
done:
  return err;
}

#if CUDART_VERSION >= 12040
/** Make the graph and run it over nothing.  Where CUDA fails at that and nothing else is wrong,
 *  rounds are launched one by one from now on. */
static int try_graph(mill_device *d)
{
  const char *why;
  int n_why, err = build_graph(d);
  if (err == MILL_OK)
    err = launch_rounds(d, d->n_slot, 1);
  if (err == MILL_OK || cudaStreamSynchronize(d->stream) != cudaSuccess)
    goto done;
  /* what failed, without the advice for a failure that ends the run */
  why = mill_error_message();
  n_why = (int)strcspn(why, ";");
  snprintf(d->remark, sizeof d->remark, "rounds are launched one by one, without a graph: %.*s",
           n_why < REMARK_BYTES / 2 ? n_why : REMARK_BYTES / 2, why);
  drop_graph(d);
  d->options.graph = 0;
  err = MILL_OK;
done:
  return err;
}
#endif

/** A round over nothing, whose kernels get all the memory that they want beside ours: code,
 *  graphs, the threads' own.  Stars may take the rest. */
static int rehearse(mill_device *d)
{
  int err = MILL_OK;
  MILL_TRY(after_uploads(d, d->stream));
  MILL_TRY(launch(d, "kernel loop_begin", 1, 1, DIGEST_THREADS, loop_begin, d->view, 0, 0, 1));
#if CUDART_VERSION >= 12040
  if (d->options.graph)
    MILL_TRY(try_graph(d));
#endif
  if (!d->options.graph)
    MILL_TRY(launch_rounds(d, d->n_slot, 1));
  TRY_CUDA_AT("a round over nothing", cudaStreamSynchronize(d->stream));
done:
  return err;
}

static int cuda_bind(mill_device *d, const mill_model *model, const mill_model *d_model,
                     mill_slot *const *slot, int n_slot)
{
  int err = MILL_OK;
  TRY_CUDA(cudaSetDevice(d->id));
  d->model = *model;
  drop_graph(d);
  MILL_TRY(reserve_book(d, n_slot));
  MILL_TRY(reserve_lanes(d));
  MILL_TRY(cuda_upload(d, (void *)(uintptr_t)d->view.slot, slot, (size_t)n_slot * sizeof *slot));
  d->view.m = d_model;
  d->view.n_slot = n_slot;
  MILL_TRY(rehearse(d));
done:
  return err;
}

static const char *cuda_remark(mill_device *d)
{
  return d->remark[0] ? d->remark : NULL;
}

/** A list of slots to the device.  The pinned one is free: nothing is under way. */
static int send_list(mill_device *d, const int *index, int n, int *pinned, const int *to)
{
  int err = MILL_OK;
  memcpy(pinned, index, (size_t)n * sizeof *index);
  TRY_CUDA(cudaMemcpyAsync((void *)(uintptr_t)to, pinned, (size_t)n * sizeof *index,
                           cudaMemcpyHostToDevice, d->stream));
done:
  return err;
}

static int cuda_start(mill_device *d, const int *index, int n)
{
  int err = MILL_OK;
  TRY_CUDA(cudaSetDevice(d->id));
  MILL_TRY(after_uploads(d, d->stream));
  MILL_TRY(send_list(d, index, n, d->h_fresh, d->view.fresh));
  /* rows of an earlier start that nobody collected */
  TRY_CUDA(cudaMemsetAsync(&d->view.state->n_finished, 0, sizeof(int), d->stream));
  mill_range_begin(MILL_RANGE_GUESS);
  for (int first = 0; first < n && err == MILL_OK; first += d->shape.n_lane) {
    const int left = n - first;
    err =
        launch(d, "kernel star_start", (unsigned)(left < d->shape.n_lane ? left : d->shape.n_lane),
               1, STAR_THREADS, star_start, d->view, first);
  }
  mill_range_end();
done:
  return err;
}

static int cuda_advance(mill_device *d, const int *index, int n, int n_want, int max_round)
{
  int err = MILL_OK;
  TRY_CUDA(cudaSetDevice(d->id));
  d->is_busy = 1;
  MILL_TRY(after_uploads(d, d->stream));
  MILL_TRY(send_list(d, index, n, d->h_listed, d->view.listed));
  MILL_TRY(launch(d, "kernel loop_begin", 1, 1, DIGEST_THREADS, loop_begin, d->view, n, n_want,
                  max_round));
  MILL_TRY(launch_rounds(d, n, max_round));
  TRY_CUDA(cudaMemcpyAsync(d->h_state, d->view.state, sizeof *d->h_state, cudaMemcpyDeviceToHost,
                           d->stream));
  TRY_CUDA(cudaEventRecord(d->ended, d->stream));
done:
  return err;
}

static int cuda_collect(mill_device *d, int *index, mill_fit_result *result, int *n_finished)
{
  int err = MILL_OK;
  int n = 0, in_range = 0;
  *n_finished = 0;
  TRY_CUDA(cudaSetDevice(d->id));
  TRY_CUDA_AT("rounds", cudaEventSynchronize(d->ended));
  d->is_busy = 0;
  bury(d);
  n = d->h_state->n_finished;
  if (n < 0 || n > d->n_slot)
    MILL_FAIL(MILL_ERR_INTERNAL, "backend cuda: %d of %d slots have finished", n, d->n_slot);
  if (n == 0)
    goto done;
  mill_range_begin(MILL_RANGE_DOWNLOAD);
  in_range = 1;
  TRY_CUDA(cudaMemcpyAsync(d->h_finished, d->view.finished, (size_t)n * sizeof *index,
                           cudaMemcpyDeviceToHost, d->down));
  TRY_CUDA(cudaMemcpyAsync(d->h_result, d->view.result, (size_t)n * sizeof *result,
                           cudaMemcpyDeviceToHost, d->down));
  TRY_CUDA(cudaMemsetAsync(&d->view.state->n_finished, 0, sizeof(int), d->stream));
  TRY_CUDA(cudaStreamSynchronize(d->down));
  memcpy(index, d->h_finished, (size_t)n * sizeof *index);
  memcpy(result, d->h_result, (size_t)n * sizeof *result);
  *n_finished = n;
done:
  if (in_range)
    mill_range_end();
  return err;
}

static int cuda_wait(mill_device *d)
{
  int err = MILL_OK;
  TRY_CUDA(cudaSetDevice(d->id));
  MILL_TRY(flush(d));
  TRY_CUDA(cudaStreamSynchronize(d->up));
  TRY_CUDA(cudaStreamSynchronize(d->stream));
  TRY_CUDA(cudaStreamSynchronize(d->down));
done:
  return err;
}

/** Slots for the memory that this process may have. */
static int default_slots(int *n_slot)
{
  int err = MILL_OK;
  size_t n_free = 0;
  MILL_TRY(free_bytes(&n_free));
  *n_slot = MAX_SLOT;
  if (n_free / SLOT_BYTES < MAX_SLOT)
    *n_slot = n_free / SLOT_BYTES < MIN_SLOT ? (int)MIN_SLOT : (int)(n_free / SLOT_BYTES);
done:
  return err;
}

/* ---- the table ---- */

const mill_backend *mill_backend_cuda(int *out)
{
  /* shorter than what jobs compare between ranks */
  static char name[60];
  static mill_backend table;
  int err = MILL_OK, id = 0, n_copier = 0;
  cudaDeviceProp prop;
  mill_gpu_facts facts;
  cuda_options options;
  MILL_TRY(choose_device(&id));
  TRY_CUDA(cudaGetDeviceProperties(&prop, id));
  MILL_TRY(read_options(prop.major, &options));
  MILL_TRY(mill_host_copiers(1, &n_copier)); /* before any output is made */
  memset(&facts, 0, sizeof facts);
  memcpy(facts.name, prop.name, sizeof facts.name - 1);
  facts.major = prop.major;
  facts.minor = prop.minor;
  mill_gpu_backend_name(&facts, name, sizeof name);
  /* other sums than those of the other kernel: not to be mixed in one file */
  if (options.last_layer != LAYER_FFMA) {
    strncat(name, " ", sizeof name - strlen(name) - 1);
    strncat(name, last_layer_name[options.last_layer], sizeof name - strlen(name) - 1);
  }
  MILL_TRY(default_slots(&table.default_slot));
  table.name = name;
  table.where = MILL_ON_GPU;
  table.overlaps = 1;
  table.open = cuda_open;
  table.close = cuda_close;
  table.alloc = cuda_alloc;
  table.release = cuda_release;
  table.upload = cuda_upload;
  table.upload_all = cuda_upload_all;
  table.zero = cuda_zero;
  table.download = cuda_download;
  table.bind = cuda_bind;
  table.start = cuda_start;
  table.advance = cuda_advance;
  table.collect = cuda_collect;
  table.wait = cuda_wait;
  table.remark = cuda_remark;
  table.timing = NULL; /* kernels run one after the other: a profiler tells more */
done:
  if (out)
    *out = err;
  return err == MILL_OK ? &table : NULL;
}
