#include "kernels/cuda/cuda_probe.h"

#include <cuda_runtime.h>
#include <string.h>

#include "kernels/base/error.h"

enum { N_TRY = 5 };
static const size_t COPY_BYTES = (size_t)256 << 20;

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

/** The best rate of copying a buffer, in bytes of it a second. */
static int measure(void *to, const void *from, cudaMemcpyKind kind, double *rate)
{
  int err = MILL_OK;
  cudaEvent_t start = NULL, end = NULL;
  float ms = 0;
  *rate = 0;
  TRY_CUDA(cudaEventCreate(&start));
  TRY_CUDA(cudaEventCreate(&end));
  for (int i = 0; i < N_TRY; i++) {
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

int mill_cuda_probe_rates(int i, double *to_device, double *from_device, double *on_device)
{
  int err = MILL_OK;
  void *host = NULL, *a = NULL, *b = NULL;
  *to_device = *from_device = *on_device = 0;
  TRY_CUDA(cudaSetDevice(i));
  TRY_CUDA(cudaMallocHost(&host, COPY_BYTES));
  memset(host, 1, COPY_BYTES);
  TRY_CUDA(cudaMalloc(&a, COPY_BYTES));
  TRY_CUDA(cudaMalloc(&b, COPY_BYTES));
  MILL_TRY(measure(a, host, cudaMemcpyHostToDevice, to_device));
  MILL_TRY(measure(host, a, cudaMemcpyDeviceToHost, from_device));
  MILL_TRY(measure(b, a, cudaMemcpyDeviceToDevice, on_device));
  *to_device *= 1e-9;
  *from_device *= 1e-9;
  *on_device *= 2e-9;
done:
  if (host)
    (void)cudaFreeHost(host);
  if (a)
    (void)cudaFree(a);
  if (b)
    (void)cudaFree(b);
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
