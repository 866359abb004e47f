/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cuda/cuda_probe.h"

#include <cuda_runtime.h>
#include <string.h>

#include "kernels/base/error.h"

static int failed(cudaError_t status, const char *what, int line)
{
  (void)cudaGetLastError();
  const int is_absent = status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver ||
                        status == cudaErrorNotSupported;
  return mill_error_set(status == cudaErrorMemoryAllocation ? MILL_ERR_MEMORY
                        : is_absent                         ? MILL_ERR_CONFIG
                                                            : MILL_ERR_BACKEND,
                        __FILE__, line, "%s: %s (%s)", what, cudaGetErrorString(status),
                        cudaGetErrorName(status));
}

#define TRY_CUDA(call)                                                                             \
  do {                                                                                             \
    const cudaError_t status_of_call = (call);                                                     \
    if (status_of_call != cudaSuccess) {                                                           \
      err = failed(status_of_call, #call, __LINE__);                                               \
      goto done;                                                                                   \
    }                                                                                              \
  } while (0)

int mill_cuda_probe(int *driver, int *runtime, int *n_device)
{
  int err = MILL_OK;
  *driver = *runtime = *n_device = 0;
  TRY_CUDA(cudaRuntimeGetVersion(runtime));
  TRY_CUDA(cudaDriverGetVersion(driver));
  TRY_CUDA(cudaGetDeviceCount(n_device));
done:
  return err;
}

int mill_cuda_probe_device(int i, mill_cuda_device *device)
{
  int err = MILL_OK;
  cudaDeviceProp prop;
  memset(device, 0, sizeof *device);
  TRY_CUDA(cudaGetDeviceProperties(&prop, i));
  memcpy(device->name, prop.name, sizeof device->name - 1);
  device->major = prop.major;
  device->minor = prop.minor;
  device->n_processor = prop.multiProcessorCount;
  device->ecc = prop.ECCEnabled;
  TRY_CUDA(cudaDeviceGetPCIBusId(device->bus_id, (int)sizeof device->bus_id, i));
  TRY_CUDA(cudaSetDevice(i));
  TRY_CUDA(cudaMemGetInfo(&device->free, &device->total));
done:
  return err;
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
