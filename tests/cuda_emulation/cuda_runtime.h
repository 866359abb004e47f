/* SPDX-License-Identifier: BSD-3-Clause */
/** A CPU in the place of the CUDA runtime: what kernels/cuda/ uses of it, and no more.
 *
 *  It compiles kernels/cuda/cuda_*.cu as C++, to test without a GPU how the host drives the device.
 *  A simulator (MILL_PTXSIM) executes nvcc's code of the kernels.  This emulation shows what
 *  the simulator cannot show:
 *
 *   - A stream's work is done only when the host waits for it.  Streams run in a random order that
 *     only events restrict.  So tests fail if the host uses a pinned buffer too early.
 *   - The host cannot touch device memory.  Allocations have no gaps between them, and a copy must
 *     stay within one.
 *   - A test can have several GPUs, too little memory (also for a launch), and failures of a launch
 *     and of calls that make a graph (emulation.h).
 *   - Threads of a block that wait at different barriers, or end while others wait, abort the
 *  program. */
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <math.h>
#include <tuple>

#define CUDART_VERSION 13000
#define __host__
#define __device__
#define __global__
#define __shared__      static
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

/* as with nvcc, pointers to these types may point to arrays of other types */
struct __align__(16) __attribute__((may_alias)) float4
{
  float x, y, z, w;
};
static inline float4 make_float4(float x, float y, float z, float w)
{
  return {x, y, z, w};
}
struct __align__(8) __attribute__((may_alias)) float2
{
  float x, y;
};
struct __align__(16) __attribute__((may_alias)) double2
{
  double x, y;
};
static inline double2 make_double2(double x, double y)
{
  return {x, y};
}

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned nx = 1, unsigned ny = 1, unsigned nz = 1) : x(nx), y(ny), z(nz)
  {
  }
};

struct mill_emu_index {
  unsigned x, y, z;
};
/** Of the fiber that runs. */
extern mill_emu_index mill_emu_thread_idx, mill_emu_block_idx;
extern dim3 mill_emu_block_dim, mill_emu_grid_dim;
#define threadIdx mill_emu_thread_idx
#define blockIdx  mill_emu_block_idx
#define blockDim  mill_emu_block_dim
#define gridDim   mill_emu_grid_dim

/* ---- device code ---- */

void __syncthreads();
void __syncwarp(unsigned mask = 0xffffffffu);

/** Return what the warp's lanes pass, [32][64], valid until the call after next; bytes <= 64. */
const unsigned char *mill_emu_exchange(const void *mine, size_t bytes);

template <typename type> static inline type mill_emu_from(type x, int lane)
{
  const unsigned char *all = mill_emu_exchange(&x, sizeof x);
  type y;
  memcpy(&y, all + (size_t)lane * 64, sizeof y);
  return y;
}
template <typename type> static inline type __shfl_sync(unsigned, type x, int lane)
{
  return mill_emu_from(x, lane & 31);
}
template <typename type> static inline type __shfl_down_sync(unsigned, type x, int by)
{
  const int lane = (int)threadIdx.x & 31;
  return mill_emu_from(x, lane + by < 32 ? lane + by : lane);
}
template <typename type> static inline type __shfl_xor_sync(unsigned, type x, int with)
{
  return mill_emu_from(x, ((int)threadIdx.x & 31) ^ with);
}
static inline int atomicAdd(int *at, int more)
{
  const int before = *at;
  *at += more;
  return before;
}
static inline unsigned long long atomicAdd(unsigned long long *at, unsigned long long more)
{
  const unsigned long long before = *at;
  *at += more;
  return before;
}

/* ---- the runtime ---- */

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorStubLibrary = 34,
  cudaErrorInsufficientDriver = 35,
  cudaErrorCallRequiresNewerDriver = 36,
  cudaErrorDevicesUnavailable = 46,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorECCUncorrectable = 214,
  cudaErrorUnsupportedPtxVersion = 222,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotSupported = 801,
  cudaErrorSystemNotReady = 802,
  cudaErrorSystemDriverMismatch = 803,
  cudaErrorStreamCaptureInvalidated = 901
};
const char *cudaGetErrorString(cudaError_t);
const char *cudaGetErrorName(cudaError_t);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

typedef struct mill_emu_stream *cudaStream_t;
typedef struct mill_emu_event *cudaEvent_t;
typedef struct mill_emu_graph *cudaGraph_t;
typedef struct mill_emu_exec *cudaGraphExec_t;
typedef struct mill_emu_node *cudaGraphNode_t;
typedef unsigned long long cudaGraphConditionalHandle;

enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
enum { cudaStreamNonBlocking = 1, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
enum { cudaGraphCondAssignDefault = 1 };
enum cudaGraphNodeType { cudaGraphNodeTypeConditional = 13 };
enum cudaGraphConditionalNodeType { cudaGraphCondTypeWhile = 1 };
struct cudaGraphEdgeData {
  int unused;
};
struct cudaConditionalNodeParams {
  cudaGraphConditionalHandle handle;
  cudaGraphConditionalNodeType type;
  unsigned size;
  cudaGraph_t *phGraph_out;
};
struct cudaGraphNodeParams {
  cudaGraphNodeType type;
  cudaConditionalNodeParams conditional;
};
struct cudaDeviceProp {
  char name[256];
  int major, minor;
};
struct cudaFuncAttributes {
  int numRegs;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  void *attrs;
  unsigned numAttrs;
};

cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaSetDevice(int id);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int id);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *kernel);
cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_total);
cudaError_t cudaMalloc(void **memory, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaMallocHost(void **memory, size_t bytes);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle *handle, cudaGraph_t graph,
                                             unsigned first, unsigned flags);
cudaError_t cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph,
                             const cudaGraphNode_t *before, const cudaGraphEdgeData *edge,
                             size_t n_before, cudaGraphNodeParams *params);
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t *before,
                                          const cudaGraphEdgeData *edge, size_t n_before,
                                          cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags = 0);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned value);

cudaError_t mill_emu_launch(const cudaLaunchConfig_t *config, std::function<void()> thread);

template <typename... want, typename... have>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config,
                                             void (*kernel)(want...), have &&...argument)
{
  const std::tuple<want...> all(argument...);
  return mill_emu_launch(config, [kernel, all]() { std::apply(kernel, all); });
}
