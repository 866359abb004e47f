/* SPDX-License-Identifier: BSD-3-Clause */
/** The device structure of the CUDA backend, shared by its source files.
 *
 *  - cuda_backend.cu: opens the device; table of functions
 *  - cuda_copy.cu: memory and copies
 *  - cuda_work.cu: work space
 *  - cuda_rounds.cu, kernel_*.cu: kernels and their launches */
#pragma once

#include <cuda_runtime.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/host_copy.h"
#include "kernels/cuda/device_view.h"

enum {
  MILL_CUDA_MAX_COPY = 256,
  MILL_CUDA_MAX_SEND = 64,
  /** Arrays of work space begin at multiples of this, bytes. */
  MILL_CUDA_ALIGN = 256,
  /** Size of the download buffer, which holds the models of many stars. */
  MILL_CUDA_BACK_BYTES = 4 << 20
};

/** Sizes of a lane's work space. */
struct work_shape {
  int n_lane, n_deriv, n_label, n_pixel_row, max_pix_pad, max_seg_pix, guess_n;
  int pitch; /**< numbers from row to row of hidden layers */
  int wide;  /**< 1: float64 templates */
};

struct mill_device {
  int id;
  int has_graph; /**< 1: rounds run as one CUDA graph; 0: they are launched kernel by kernel */
  cudaStream_t stream; /**< rounds */
  cudaStream_t up, down;
  cudaEvent_t uploaded, settled, ended;
  char *stage[MILL_N_STAGE]; /**< pinned buffers of uploads */
  cudaEvent_t stage_free[MILL_N_STAGE];
  int i_stage;
  size_t staged; /**< bytes in stage[i_stage] */
  /** Pending uploads, from stage[i_stage] or from pinned pieces, until mill_cuda_flush. */
  mill_upload send[MILL_CUDA_MAX_SEND];
  int n_send;
  char *back;       /**< pinned [MILL_CUDA_BACK_BYTES]; downloads pass through it */
  mill_model model; /**< host copy */
  int n_slot;
  mill_slot *const *slot; /**< [n_slot] the slots' current addresses, borrowed */
  char *book;             /**< device memory of the slots' lists and result rows, owned */
  char *arena;            /**< all work space, owned */
  work_shape shape;
  void *d_grid; /**< grid of lane 0's mill_workspace; lane i's is i * grid_lane elements further */
  size_t grid_lane;
  device_view view;
  /* pinned */
  int *h_fresh, *h_listed, *h_finished; /**< [n_slot] */
  mill_slot **h_slot;                   /**< [n_slot] addresses as last uploaded */
  mill_fit_result *h_result;            /**< [n_slot] */
  loop_state *h_state;
  int is_busy;  /**< rounds are under way */
  void **grave; /**< memory to free when no rounds are under way */
  int n_grave;
  int64_t cap_grave;
  char remark[1024]; /**< message for the log; empty: none */
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaGraphConditionalHandle go_on;
};

/** Return MILL_OK, or record a failure with advice and return its code: MILL_ERR_MEMORY,
 *  MILL_ERR_BACKEND, or MILL_ERR_CONFIG if hardware, driver or code is missing. */
int mill_cuda_check(cudaError_t status, const char *what, const char *file, int line);

/* A failure goes to `done`, or is returned. */
#define TRY_CUDA_AT(what, call)   MILL_TRY(mill_cuda_check((call), (what), __FILE__, __LINE__))
#define TRY_CUDA(call)            TRY_CUDA_AT(#call, call)
#define CHECK_CUDA_AT(what, call) MILL_CHECK(mill_cuda_check((call), (what), __FILE__, __LINE__))
#define CHECK_CUDA(call)          CHECK_CUDA_AT(#call, call)

/** Make this rank's GPU the current one of this thread. */
int mill_cuda_open(int *id);

/** Reserve n elements at *at of a block of memory; block NULL: only advance *at. */
template <typename type> static inline type *mill_cuda_take(char *block, size_t *at, size_t n)
{
  type *here = block ? (type *)(void *)(block + *at) : (type *)NULL;
  *at += mill_round_up(n * sizeof(type), MILL_CUDA_ALIGN);
  return here;
}

template <typename... want, typename... have>
static inline int mill_cuda_launch(cudaStream_t stream, const char *name, dim3 grid, int n_thread,
                                   void (*kernel)(want...), have &&...argument)
{
  cudaLaunchConfig_t config;
  memset((void *)&config, 0, sizeof config);
  config.gridDim = grid;
  config.blockDim = dim3((unsigned)n_thread, 1, 1);
  config.stream = stream;
  CHECK_CUDA_AT(name, cudaLaunchKernelEx(&config, kernel, argument...));
  return MILL_OK;
}

/** Allocate pinned host memory for n elements. */
template <typename type> static inline int mill_cuda_pin(type **out, size_t n)
{
  void *memory = NULL;
  CHECK_CUDA_AT("pinned host memory", cudaMallocHost(&memory, n * sizeof(type)));
  *out = (type *)memory;
  return MILL_OK;
}

/* Free a resource; NULL is allowed.  A failure was reported before or cannot be handled. */
static inline void mill_cuda_unpin(void *memory)
{
  if (memory)
    (void)cudaFreeHost(memory);
}
static inline void mill_cuda_drop_event(cudaEvent_t event)
{
  if (event)
    (void)cudaEventDestroy(event);
}
static inline void mill_cuda_drop_stream(cudaStream_t stream)
{
  if (stream)
    (void)cudaStreamDestroy(stream);
}

/* ---- cuda_copy.cu: functions of the backend's table, and ---- */

int mill_cuda_alloc(mill_device *d, size_t bytes, void **out);
void mill_cuda_release(mill_device *d, void *memory);
int mill_cuda_upload(mill_device *d, void *to, const void *from, size_t bytes);
int mill_cuda_upload_all(mill_device *d, const mill_upload *piece, int n);
int mill_cuda_zero(mill_device *d, void *to, size_t bytes);
int mill_cuda_download(mill_device *d, void *to, const void *from, size_t bytes);
int mill_cuda_download_all(mill_device *d, const mill_upload *piece, int n);
int mill_cuda_settle(mill_device *d);
/** Start the pending copies. */
int mill_cuda_flush(mill_device *d);
/** Let a stream's next work wait for all uploads so far. */
int mill_cuda_after_uploads(mill_device *d, cudaStream_t stream);
/** Free what was released while rounds were under way. */
void mill_cuda_bury(mill_device *d);

/* ---- cuda_work.cu ---- */

/** Free GPU memory that this process may use, bytes. */
int mill_cuda_free_bytes(size_t *n_free);
/** Allocate `book`: lists and result rows for n_slot slots. */
int mill_cuda_reserve_book(mill_device *d, int n_slot);
void mill_cuda_free_book(mill_device *d);
/** Allocate the model's work space: a lane for each slot, or fewer if lanes would take more than
 *  half of the free memory.  With fewer, a round takes several passes. */
int mill_cuda_reserve_lanes(mill_device *d);

/* ---- kernel_*.cu: kernels that take long to compile ---- */

extern void (*const mill_kernel_star_start)(device_view v, int first);
extern void (*const mill_kernel_star_peak)(device_view v, int first);
extern void (*const mill_kernel_star_weigh)(device_view v, int first);
extern void (*const mill_kernel_answer_f32)(device_view v, int first, int arm);
extern void (*const mill_kernel_pairs_f32)(device_view v, int first, int arm);
extern void (*const mill_kernel_answer_f64)(device_view v, int first, int arm);
extern void (*const mill_kernel_digest)(device_view v, int first, int is_fresh);

/* ---- cuda_rounds.cu ---- */

/** Load every kernel now: CUDA must not load a kernel while it captures a graph, and memory may be
 *  short later.  Fails if this build has no code for this GPU. */
int mill_cuda_load_kernels(void);
/** Run an empty round, so that CUDA takes the memory it needs before stars take the rest. */
int mill_cuda_rehearse(mill_device *d);
void mill_cuda_drop_graph(mill_device *d);
/** Prepare the n slots of the list view.fresh, compute their guess and set their first request. */
int mill_cuda_start_stars(mill_device *d, int n);
/** Queue rounds over the n slots view.listed: max_round, or fewer once n_want have finished. */
int mill_cuda_rounds(mill_device *d, int n, int n_want, int max_round);
