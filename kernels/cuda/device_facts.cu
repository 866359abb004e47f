#include "kernels/cuda/device_facts.h"

#include <stdio.h>
#include <string.h>

#include <cuda_runtime.h>

#include "kernels/error.h"

#ifndef MILL_CUDA_ARCHITECTURES
#error "MILL_CUDA_ARCHITECTURES must name the architectures of this build (kernels/CMakeLists.txt)"
#endif

enum { N_COPY = 8 };
static const size_t COPY_BYTES = (size_t)256 << 20;

static int is_absent(cudaError_t status)
{
  return status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver ||
         status == cudaErrorStubLibrary;
}

static int failed(cudaError_t status, const char *what, int line)
{
  (void)cudaGetLastError();
  const int code = status == cudaErrorMemoryAllocation ? MILL_ERR_MEMORY : MILL_ERR_BACKEND;
  return mill_error_set(code, __FILE__, line, "%s: %s (%s)", what, cudaGetErrorString(status),
                        cudaGetErrorName(status));
}

#define TRY_CUDA(call)                                                                             \
  do {                                                                                             \
    const cudaError_t status_ = (call);                                                            \
    if (status_ != cudaSuccess) {                                                                  \
      err = failed(status_, #call, __LINE__);                                                      \
      goto done;                                                                                   \
    }                                                                                              \
  } while (0)

static int look_at(int i, mill_gpu_facts *facts)
{
  int err = MILL_OK;
  int mode = cudaComputeModeDefault;
  cudaDeviceProp prop;
  TRY_CUDA(cudaGetDeviceProperties(&prop, i));
  TRY_CUDA(cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, i));
  snprintf(facts->name, sizeof facts->name, "%.*s", (int)sizeof facts->name - 1, prop.name);
  static_assert(sizeof prop.uuid == MILL_GPU_UUID_BYTES, "a UUID has 16 bytes");
  memcpy(facts->uuid, &prop.uuid, sizeof facts->uuid);
  facts->major = prop.major;
  facts->minor = prop.minor;
  facts->mode = mode == cudaComputeModeProhibited ? MILL_GPU_PROHIBITED
                : mode == cudaComputeModeDefault  ? MILL_GPU_SHARED
                                                  : MILL_GPU_EXCLUSIVE;
done:
  return err;
}

int mill_gpu_look(mill_gpu_node *node, mill_gpu_facts **gpu)
{
  int err = MILL_OK;
  int n = 0;
  cudaError_t status;
  memset(node, 0, sizeof *node);
  *gpu = NULL;
  node->architectures = MILL_CUDA_ARCHITECTURES;
  TRY_CUDA(cudaRuntimeGetVersion(&node->runtime));
  TRY_CUDA(cudaDriverGetVersion(&node->driver));
  if (node->driver == 0)
    goto done;
  status = cudaGetDeviceCount(&n);
  if (is_absent(status)) {
    (void)cudaGetLastError();
    goto done;
  }
  TRY_CUDA(status);
  MILL_TRY(MILL_ALLOC(n, gpu));
  for (int i = 0; i < n; i++)
    MILL_TRY(look_at(i, &(*gpu)[i]));
  node->n_gpu = n;
  node->gpu = *gpu;
done:
  if (err != MILL_OK) {
    mill_free(*gpu);
    *gpu = NULL;
  }
  return err;
}

int mill_gpu_try(int gpu, const char *name, size_t *free_bytes)
{
  int err = MILL_OK;
  size_t total = 0;
  cudaError_t status = cudaSetDevice(gpu);
  if (status == cudaSuccess)
    status = cudaFree(NULL); /* makes the context */
  if (status == cudaSuccess)
    status = cudaMemGetInfo(free_bytes, &total);
  if (status == cudaSuccess)
    goto done;
  (void)cudaGetLastError();
  if (status == cudaErrorDevicesUnavailable)
    MILL_FAIL(MILL_ERR_BACKEND,
              "the GPU %s is busy: another program has it for itself (exclusive mode); ask for one "
              "of your own, or use --backend cpu",
              name);
  if (status == cudaErrorMemoryAllocation)
    MILL_FAIL(MILL_ERR_MEMORY,
              "the GPU %s has no memory left for another program: free it, or use --backend cpu",
              name);
  MILL_FAIL(MILL_ERR_BACKEND,
            "the GPU %s cannot be used: %s (%s); see nvidia-smi, or use --backend cpu", name,
            cudaGetErrorString(status), cudaGetErrorName(status));
done:
  return err;
}

/** The best rate of copying a buffer, in bytes of it a second. */
static int measure_copy(void *to, const void *from, cudaMemcpyKind kind, double *rate)
{
  int err = MILL_OK;
  cudaEvent_t start = NULL, end = NULL;
  float ms = 0;
  *rate = 0;
  TRY_CUDA(cudaEventCreate(&start));
  TRY_CUDA(cudaEventCreate(&end));
  for (int i = 0; i < N_COPY; i++) {
    TRY_CUDA(cudaEventRecord(start));
    TRY_CUDA(cudaMemcpyAsync(to, from, COPY_BYTES, kind, 0));
    TRY_CUDA(cudaEventRecord(end));
    TRY_CUDA(cudaEventSynchronize(end));
    TRY_CUDA(cudaEventElapsedTime(&ms, start, end));
    if (ms > 0 && (double)COPY_BYTES / (1e-3 * ms) > *rate)
      *rate = (double)COPY_BYTES / (1e-3 * ms);
  }
done:
  if (start)
    (void)cudaEventDestroy(start);
  if (end)
    (void)cudaEventDestroy(end);
  return err;
}

/** Lanes of a multiprocessor for fused multiply-adds in float32 and in float64 (CUDA C++
 *  Programming Guide, throughput of arithmetic instructions). */
static void lanes_of(int major, int minor, int *f32, int *f64)
{
  const int is_large = minor == 0; /* the ones for computing centres */
  *f32 = major == 7 || (major == 8 && is_large) ? 64 : 128;
  *f64 = major == 7                                ? (minor == 0 ? 32 : 2)
         : major == 8                              ? (is_large ? 32 : 2)
         : major == 9 || (major == 10 && is_large) ? 64
                                                   : 2;
}

int mill_gpu_measure(int gpu, mill_gpu_rates *rates)
{
  int err = MILL_OK;
  int major = 0, minor = 0, clock_khz = 0, f32 = 0, f64 = 0;
  void *host = NULL, *a = NULL, *b = NULL;
  memset(rates, 0, sizeof *rates);
  TRY_CUDA(cudaSetDevice(gpu));
  TRY_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu));
  TRY_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu));
  TRY_CUDA(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, gpu));
  TRY_CUDA(cudaDeviceGetAttribute(&rates->n_processor, cudaDevAttrMultiProcessorCount, gpu));
  lanes_of(major, minor, &f32, &f64);
  rates->f32_gflop_s = 2e-6 * clock_khz * rates->n_processor * f32;
  rates->f64_gflop_s = 2e-6 * clock_khz * rates->n_processor * f64;
  TRY_CUDA(cudaMallocHost(&host, COPY_BYTES));
  memset(host, 1, COPY_BYTES);
  TRY_CUDA(cudaMalloc(&a, COPY_BYTES));
  TRY_CUDA(cudaMalloc(&b, COPY_BYTES));
  MILL_TRY(measure_copy(a, host, cudaMemcpyHostToDevice, &rates->upload_gbyte_s));
  MILL_TRY(measure_copy(b, a, cudaMemcpyDeviceToDevice, &rates->copy_gbyte_s));
  rates->upload_gbyte_s *= 1e-9;
  rates->copy_gbyte_s *= 2e-9;
done:
  if (host)
    (void)cudaFreeHost(host);
  if (a)
    (void)cudaFree(a);
  if (b)
    (void)cudaFree(b);
  return err;
}
