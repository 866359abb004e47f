/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/gpu.h"

#include <stdio.h>
#include <string.h>

#include <cuda_runtime.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"

#ifndef MILL_CUDA_ARCHITECTURES
#error "MILL_CUDA_ARCHITECTURES must name the architectures of this build (kernels/CMakeLists.txt)"
#endif

static int check(cudaError_t status, int line)
{
  if (status == cudaSuccess)
    return MILL_OK;
  (void)cudaGetLastError();
  const int code = status == cudaErrorMemoryAllocation ? MILL_ERR_MEMORY : MILL_ERR_BACKEND;
  return mill_error_set(code, __FILE__, line, "looking for a GPU: %s (%s); see nvidia-smi",
                        cudaGetErrorString(status), cudaGetErrorName(status));
}

#define CHECK_CUDA(call) MILL_CHECK(check((call), __LINE__))

/** Describe GPU i without making a context. */
static int look_at(int i, mill_gpu_facts *facts)
{
  int mode = cudaComputeModeDefault;
  cudaDeviceProp prop;
  CHECK_CUDA(cudaGetDeviceProperties(&prop, i));
  CHECK_CUDA(cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, i));
  snprintf(facts->name, sizeof facts->name, "%.*s", (int)sizeof facts->name - 1, prop.name);
  static_assert(sizeof prop.uuid == MILL_GPU_UUID_BYTES, "a UUID has 16 bytes");
  memcpy(facts->uuid, &prop.uuid, sizeof facts->uuid);
  facts->major = prop.major;
  facts->minor = prop.minor;
  facts->mode = mode == cudaComputeModeProhibited ? MILL_GPU_PROHIBITED
                : mode == cudaComputeModeDefault  ? MILL_GPU_SHARED
                                                  : MILL_GPU_EXCLUSIVE;
  return MILL_OK;
}

int mill_gpu_is_built(void)
{
  return 1;
}

int mill_gpu_look(mill_gpu_node *node, mill_gpu_facts **gpu)
{
  int n = 0;
  memset(node, 0, sizeof *node);
  *gpu = NULL;
  node->architectures = MILL_CUDA_ARCHITECTURES;
  CHECK_CUDA(cudaRuntimeGetVersion(&node->runtime));
  cudaError_t status = cudaDriverGetVersion(&node->driver);
  if (status == cudaSuccess && node->driver > 0)
    status = cudaGetDeviceCount(&n);
  /* no driver or no GPU is no failure */
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver ||
      status == cudaErrorStubLibrary) {
    (void)cudaGetLastError();
    return MILL_OK;
  }
  CHECK_CUDA(status);
  MILL_CHECK(MILL_ALLOC(n, gpu));
  int code = MILL_OK;
  for (int i = 0; code == MILL_OK && i < n; i++)
    code = look_at(i, &(*gpu)[i]);
  if (code != MILL_OK) {
    mill_free(*gpu);
    *gpu = NULL;
    return code;
  }
  node->n_gpu = n;
  node->gpu = *gpu;
  return MILL_OK;
}

int mill_gpu_try(int gpu, const char *name, size_t *free_bytes)
{
  size_t total = 0;
  cudaError_t status = cudaSetDevice(gpu);
  if (status == cudaSuccess)
    status = cudaFree(NULL); /* makes the context */
  if (status == cudaSuccess)
    status = cudaMemGetInfo(free_bytes, &total);
  if (status == cudaSuccess)
    return MILL_OK;
  (void)cudaGetLastError(); /* later checks must not find this failure */
  if (status == cudaErrorDevicesUnavailable)
    return MILL_ERROR(
        MILL_ERR_BACKEND,
        "the GPU %s is busy: another program uses it exclusively; request one of your own", name);
  if (status == cudaErrorMemoryAllocation)
    return MILL_ERROR(MILL_ERR_MEMORY, "the GPU %s has no memory left: end other programs on it",
                      name);
  return MILL_ERROR(MILL_ERR_BACKEND, "the GPU %s cannot be used: %s (%s); see nvidia-smi", name,
                    cudaGetErrorString(status), cudaGetErrorName(status));
}

void mill_gpu_release(void)
{
  (void)cudaDeviceReset();
  (void)cudaGetLastError();
  mill_gpu_assign(NULL);
}

int mill_cuda_probe_device(int i, mill_cuda_device *device)
{
  memset(device, 0, sizeof *device);
  CHECK_CUDA(cudaDeviceGetPCIBusId(device->bus_id, (int)sizeof device->bus_id, i));
  CHECK_CUDA(cudaSetDevice(i));
  CHECK_CUDA(cudaMemGetInfo(&device->free, &device->total));
  return MILL_OK;
}

void mill_cuda_probe_bus(char *out, size_t size)
{
  int id = 0;
  out[0] = '\0';
  if (cudaGetDevice(&id) != cudaSuccess ||
      cudaDeviceGetPCIBusId(out, (int)size, id) != cudaSuccess) {
    (void)cudaGetLastError();
    out[0] = '\0';
  }
}
