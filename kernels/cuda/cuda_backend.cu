/* SPDX-License-Identifier: BSD-3-Clause */
/* The CUDA backend: opening the device, and the table of functions, which call those of
 * cuda_copy.cu, cuda_work.cu and cuda_rounds.cu.
 *
 * CUDA must take its own memory before stars fill the GPU.  So opening the device loads all
 * kernels, and each bind runs an empty round. */
#include <stdlib.h>
#include <string.h>

#include "kernels/base/nvtx.h"
#include "kernels/gpu.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/base/memory.h"

/** More GPU memory, in bytes, than a star of a DESI-like survey takes with its work space. */
static const size_t SLOT_BYTES = (size_t)3 << 20;

enum { MIN_SLOT = 64, MAX_SLOT = MILL_GPU_SLOTS };

/** Return the error code of a CUDA failure; *advice: what the user can do.  MILL_ERR_CONFIG: the
 *  hardware, driver or code is missing. */
static int explain(cudaError_t status, const char **advice)
{
  switch (status) {
  case cudaErrorMemoryAllocation:
    *advice = "the GPU's memory is full: lower `slots`, or end other programs on this GPU";
    return MILL_ERR_MEMORY;
  case cudaErrorInsufficientDriver:
  case cudaErrorCallRequiresNewerDriver:
  case cudaErrorNoDevice:
  case cudaErrorStubLibrary:
    *advice = "this machine has no GPU, or no driver new enough for this build (see nvidia-smi): "
              "use --backend cpu";
    return MILL_ERR_CONFIG;
  case cudaErrorNoKernelImageForDevice:
  case cudaErrorInvalidDeviceFunction:
  case cudaErrorUnsupportedPtxVersion:
    *advice = "this build has no code for this GPU: build with MILL_CUDA_ARCHITECTURES for it, or "
              "use --backend cpu";
    return MILL_ERR_CONFIG;
  case cudaErrorDevicesUnavailable:
    *advice =
        "another program uses the GPU exclusively: request one of your own, or use --backend cpu";
    return MILL_ERR_BACKEND;
  case cudaErrorSystemNotReady:
  case cudaErrorSystemDriverMismatch:
    *advice = "the driver or fabric manager of this node is not ready: inform its administrator, "
              "or use --backend cpu";
    return MILL_ERR_BACKEND;
  case cudaErrorECCUncorrectable:
    *advice = "the GPU's memory is faulty: inform its administrator; rows written so far are good";
    return MILL_ERR_BACKEND;
  default:
    *advice = "give the same command again, with --backend cpu if it fails again; rows written so "
              "far are good";
    return MILL_ERR_BACKEND;
  }
}

int mill_cuda_check(cudaError_t status, const char *what, const char *file, int line)
{
  if (status == cudaSuccess)
    return MILL_OK;
  const char *advice = NULL;
  const int code = explain(status, &advice);
  /* clear the error, or the check after the next launch would report it again */
  (void)cudaGetLastError();
  return mill_error_set(code, file, line, "backend cuda: %s: %s (%s); %s", what,
                        cudaGetErrorString(status), cudaGetErrorName(status), advice);
}

/* open the GPU set by mill_gpu_assign, else the first usable GPU */
int mill_cuda_open(int *id)
{
  mill_gpu_place place;
  mill_gpu_node node;
  MILL_OWNED mill_gpu_facts *all = NULL;
  if (!mill_gpu_assigned(&place)) {
    MILL_CHECK(mill_gpu_look(&node, &all));
    MILL_CHECK(mill_gpu_choose(&node, 0, &place.gpu));
  }
  *id = place.gpu;
  CHECK_CUDA(cudaSetDevice(*id));
  CHECK_CUDA(cudaFree(NULL)); /* creates the context, which fails on a busy GPU */
  return MILL_OK;
}

static int choose_device(int *id)
{
  MILL_CHECK(mill_cuda_open(id));
  return mill_cuda_load_kernels();
}

/** Shall rounds run as a CUDA graph?  Not under a profiler: its ranges need separate launches. */
static int choose_graph(int *has_graph)
{
  int driver = 0;
  const char *text = getenv("MILL_CUDA_GRAPH");
  if (text && *text && strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
    return MILL_ERROR(MILL_ERR_CONFIG, "MILL_CUDA_GRAPH: expected 0 or 1, got '%s'", text);
  CHECK_CUDA(cudaDriverGetVersion(&driver));
  *has_graph = !(text && text[0] == '0') && !mill_nvtx_listens && driver >= MILL_GPU_GRAPH_DRIVER;
  return MILL_OK;
}

/** mill_backend.close: free what open and bind have made. */
static void cuda_close(mill_device *d)
{
  if (!d)
    return;
  (void)cudaSetDevice(d->id);
  /* queued work may still use this memory; its failures no longer matter */
  const cudaStream_t stream[] = {d->stream, d->up, d->down};
  for (int i = 0; i < 3; i++)
    if (stream[i])
      (void)cudaStreamSynchronize(stream[i]);
  mill_cuda_bury(d); /* frees the device memory that d->grave lists */
  mill_free(d->grave);
  mill_cuda_drop_graph(d);
  mill_cuda_free_book(d);
  (void)cudaFree(d->arena);
  for (int i = 0; i < MILL_N_STAGE; i++) {
    mill_cuda_unpin(d->stage[i]);
    mill_cuda_drop_event(d->stage_free[i]);
  }
  mill_cuda_unpin(d->back);
  const cudaEvent_t event[] = {d->uploaded, d->settled, d->ended};
  for (int i = 0; i < 3; i++) {
    mill_cuda_drop_event(event[i]);
    mill_cuda_drop_stream(stream[i]);
  }
  mill_free(d);
}

/** mill_backend.open: make streams, events and pinned buffers. */
static int cuda_open(int n_thread, mill_device **out)
{
  int err = MILL_OK;
  (void)n_thread; /* only the CPU backend starts threads */
  mill_device *d = NULL;
  /* a waiting thread sleeps, so that readers get its core; rounds take far longer than waking up */
  const unsigned waited_for = cudaEventDisableTiming | cudaEventBlockingSync;
  *out = NULL;
  MILL_TRY(MILL_ALLOC(1, &d));
  MILL_TRY(choose_device(&d->id));
  MILL_TRY(choose_graph(&d->has_graph));
  TRY_CUDA(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking));
  TRY_CUDA(cudaStreamCreateWithFlags(&d->up, cudaStreamNonBlocking));
  TRY_CUDA(cudaStreamCreateWithFlags(&d->down, cudaStreamNonBlocking));
  TRY_CUDA(cudaEventCreateWithFlags(&d->uploaded, cudaEventDisableTiming));
  TRY_CUDA(cudaEventCreateWithFlags(&d->settled, waited_for));
  TRY_CUDA(cudaEventCreateWithFlags(&d->ended, waited_for));
  MILL_TRY(mill_cuda_pin(&d->back, MILL_CUDA_BACK_BYTES));
  for (int i = 0; i < MILL_N_STAGE; i++) {
    MILL_TRY(mill_cuda_pin(&d->stage[i], MILL_STAGE_BYTES));
    TRY_CUDA(cudaEventCreateWithFlags(&d->stage_free[i], waited_for));
  }
  err = MILL_GIVE(&d, out);
done:
  cuda_close(d); /* after a failure; else d is NULL */
  return err;
}

/** mill_backend.pin; the message says what to do if host memory is full. */
static int cuda_pin(size_t bytes, void **out)
{
  int id = 0;
  MILL_CHECK(mill_cuda_open(&id));
  const cudaError_t status = cudaMallocHost(out, bytes);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return MILL_ERROR(
        MILL_ERR_MEMORY,
        "backend cuda: no %zu MiB of the host's memory can be pinned for spectra: give the "
        "job more memory, or lower `readers`",
        (bytes >> 20) + 1);
  }
  CHECK_CUDA_AT("pinned host memory", status);
  return MILL_OK;
}

/** Upload the slots' addresses if they have changed or `all` is set.  The GPU must have no work:
 *  work might read the pinned copy h_slot, which changes here. */
static int send_slots(mill_device *d, int all)
{
  const size_t bytes = (size_t)d->n_slot * sizeof *d->slot;
  if (!all && memcmp(d->h_slot, d->slot, bytes) == 0)
    return MILL_OK;
  memcpy(d->h_slot, d->slot, bytes);
  CHECK_CUDA(cudaMemcpyAsync((void *)(uintptr_t)d->view.slot, d->h_slot, bytes,
                             cudaMemcpyHostToDevice, d->stream));
  return MILL_OK;
}

/** mill_backend.bind: allocate lists and work space, then run an empty round. */
static int cuda_bind(mill_device *d, const mill_model *model, const mill_model *d_model,
                     mill_slot *const *slot, int n_slot)
{
  CHECK_CUDA(cudaSetDevice(d->id));
  d->model = *model;
  mill_cuda_drop_graph(d);
  MILL_CHECK(mill_cuda_reserve_book(d, n_slot));
  MILL_CHECK(mill_cuda_reserve_lanes(d));
  d->slot = slot;
  MILL_CHECK(send_slots(d, 1));
  d->view.m = d_model;
  return mill_cuda_rehearse(d);
}

static const char *cuda_remark(mill_device *d)
{
  return d->remark[0] ? d->remark : NULL;
}

/** Upload a list of slot numbers.  The GPU must have no work: work might read the pinned copy. */
static int send_list(mill_device *d, const int *index, int n, int *pinned, const int *to)
{
  memcpy(pinned, index, (size_t)n * sizeof *index);
  CHECK_CUDA(cudaMemcpyAsync((void *)(uintptr_t)to, pinned, (size_t)n * sizeof *index,
                             cudaMemcpyHostToDevice, d->stream));
  return MILL_OK;
}

static int cuda_start(mill_device *d, const int *index, int n)
{
  CHECK_CUDA(cudaSetDevice(d->id));
  MILL_CHECK(mill_cuda_after_uploads(d, d->stream));
  MILL_CHECK(send_slots(d, 0));
  MILL_CHECK(send_list(d, index, n, d->h_fresh, d->view.fresh));
  /* drop rows of an earlier start that were not collected */
  CHECK_CUDA(cudaMemsetAsync(&d->view.state->n_finished, 0, sizeof(int), d->stream));
  return mill_cuda_start_stars(d, n);
}

/** mill_backend.advance: queue rounds and the download of their state, without waiting. */
static int cuda_advance(mill_device *d, const int *index, int n, int n_want, int max_round)
{
  CHECK_CUDA(cudaSetDevice(d->id));
  d->is_busy = 1;
  MILL_CHECK(mill_cuda_after_uploads(d, d->stream));
  MILL_CHECK(send_list(d, index, n, d->h_listed, d->view.listed));
  MILL_CHECK(mill_cuda_rounds(d, n, n_want, max_round));
  CHECK_CUDA(cudaMemcpyAsync(d->h_state, d->view.state, sizeof *d->h_state, cudaMemcpyDeviceToHost,
                             d->stream));
  CHECK_CUDA(cudaEventRecord(d->ended, d->stream));
  return MILL_OK;
}

/** mill_backend.collect: wait for the rounds, then download the rows that finished in them. */
static int cuda_collect(mill_device *d, int *index, mill_fit_result *result, int *n_finished)
{
  int err = MILL_OK, n = 0, in_range = 0;
  *n_finished = 0;
  TRY_CUDA(cudaSetDevice(d->id));
  TRY_CUDA_AT("rounds", cudaEventSynchronize(d->ended));
  d->is_busy = 0;
  mill_cuda_bury(d); /* free what was released during the rounds */
  n = d->h_state->n_finished;
  if (n < 0 || n > d->n_slot)
    MILL_TRY(MILL_BUG("backend cuda: the GPU reports %d finished stars of %d", n, d->n_slot));
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
  CHECK_CUDA(cudaSetDevice(d->id));
  MILL_CHECK(mill_cuda_flush(d));
  CHECK_CUDA(cudaStreamSynchronize(d->up));
  CHECK_CUDA(cudaStreamSynchronize(d->stream));
  CHECK_CUDA(cudaStreamSynchronize(d->down));
  return MILL_OK;
}

/** Choose the default number of slots by the GPU memory that this process may have. */
static int default_slots(int *n_slot)
{
  size_t n_free = 0;
  MILL_CHECK(mill_cuda_free_bytes(&n_free));
  *n_slot = MAX_SLOT;
  if (n_free / SLOT_BYTES < MAX_SLOT)
    *n_slot = n_free / SLOT_BYTES < MIN_SLOT ? (int)MIN_SLOT : (int)(n_free / SLOT_BYTES);
  return MILL_OK;
}

/* make the table of functions, with this GPU's name and default slots; *out: the error code */
const mill_backend *mill_backend_cuda(int *out)
{
  /* at most the length that jobs compare between ranks */
  static char name[60];
  static mill_backend table;
  int err = MILL_OK, id = 0, has_graph = 0;
  cudaDeviceProp prop;
  mill_gpu_facts facts;
  MILL_TRY(choose_device(&id));
  TRY_CUDA(cudaGetDeviceProperties(&prop, id));
  MILL_TRY(choose_graph(&has_graph)); /* only a check: cuda_open chooses */
  memset(&facts, 0, sizeof facts);
  memcpy(facts.name, prop.name, sizeof facts.name - 1);
  facts.major = prop.major;
  facts.minor = prop.minor;
  mill_gpu_backend_name(&facts, name, sizeof name);
  MILL_TRY(default_slots(&table.default_slot));
  table.name = name;
  table.kind = MILL_BACKEND_CUDA;
  table.overlaps = 1;
  table.open = cuda_open;
  table.close = cuda_close;
  table.alloc = mill_cuda_alloc;
  table.release = mill_cuda_release;
  table.upload = mill_cuda_upload;
  table.upload_all = mill_cuda_upload_all;
  table.pin = cuda_pin;
  table.unpin = mill_cuda_unpin;
  table.settle = mill_cuda_settle;
  table.zero = mill_cuda_zero;
  table.download = mill_cuda_download;
  table.download_all = mill_cuda_download_all;
  table.bind = cuda_bind;
  table.start = cuda_start;
  table.advance = cuda_advance;
  table.collect = cuda_collect;
  table.wait = cuda_wait;
  table.remark = cuda_remark;
  table.timing = NULL; /* no times by stage: use a profiler */
done:
  if (out)
    *out = err;
  return err == MILL_OK ? &table : NULL;
}
