/* SPDX-License-Identifier: BSD-3-Clause */
/* The GPUs of a node, as kernels/cuda/device_facts.cu tells of them, which asks CUDA for more than
 * is emulated. */
#include <cstdio>

#include "kernels/gpu.h"
#include "tests/cuda_emulation/cuda_runtime.h"

/* GPUs of this machine: MILL_EMULATED_GPUS, else one. */
static int count_gpus()
{
  const char *text = getenv("MILL_EMULATED_GPUS");
  return text ? atoi(text) : 1;
}

cudaError_t cudaGetDeviceCount(int *n)
{
  *n = count_gpus();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int id)
{
  return id >= 0 && id < count_gpus() ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int)
{
  memset(prop, 0, sizeof *prop);
  snprintf(prop->name, sizeof prop->name, "no GPU, emulated on the CPU");
  prop->major = 9;
  return cudaSuccess;
}

int mill_gpu_is_built(void)
{
  return 1;
}

int mill_gpu_look(mill_gpu_node *node, mill_gpu_facts **gpu)
{
  int err = MILL_OK;
  const int n_gpu = count_gpus();
  memset(node, 0, sizeof *node);
  MILL_TRY(mill_alloc_bytes((size_t)n_gpu, sizeof **gpu, (void **)gpu));
  for (int i = 0; i < n_gpu; i++) {
    cudaDeviceProp prop;
    cudaGetDeviceProperties(&prop, i);
    snprintf((*gpu)[i].name, sizeof(*gpu)[i].name, "%.60s", prop.name);
    (*gpu)[i].major = prop.major;
    (*gpu)[i].uuid[0] = (unsigned char)(1 + i);
  }
  node->driver = node->runtime = CUDART_VERSION;
  node->architectures = "90";
  node->n_gpu = n_gpu;
  node->gpu = *gpu;
done:
  return err;
}

int mill_gpu_try(int gpu, const char *name, size_t *free_bytes)
{
  int err = MILL_OK;
  size_t total;
  if (cudaSetDevice(gpu) != cudaSuccess || cudaMemGetInfo(free_bytes, &total) != cudaSuccess)
    MILL_FAIL(MILL_ERR_BACKEND, "the GPU %s cannot be used", name);
done:
  return err;
}

void mill_gpu_release(void)
{
  mill_gpu_assign(NULL);
}

int mill_cuda_probe_device(int i, mill_cuda_device *device)
{
  memset(device, 0, sizeof *device);
  snprintf(device->bus_id, sizeof device->bus_id, "%d", i);
  cudaMemGetInfo(&device->free, &device->total);
  return MILL_OK;
}

/* No PCI address is a GPU's that NVML could find. */
void mill_cuda_probe_bus(char *out, size_t size)
{
  mill_gpu_place place;
  if (mill_gpu_assigned(&place))
    snprintf(out, size, "emulated %d", place.gpu);
}
