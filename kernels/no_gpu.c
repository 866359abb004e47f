/* SPDX-License-Identifier: BSD-3-Clause */
/* Stubs for the CUDA backend in a build without CUDA. */
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/gpu.h"

static int missing(void)
{
  return MILL_ERROR(MILL_ERR_CONFIG,
                    "this program was built without CUDA: build it where nvcc is found");
}

static void *none(int *err)
{
  const int code = missing();
  if (err)
    *err = code;
  return NULL;
}

int mill_gpu_is_built(void)
{
  return 0;
}

int mill_gpu_look(mill_gpu_node *node, mill_gpu_facts **gpu)
{
  memset(node, 0, sizeof *node);
  *gpu = NULL;
  return missing();
}

int mill_gpu_try(int gpu, const char *name, size_t *free_bytes)
{
  (void)gpu;
  (void)name;
  *free_bytes = 0;
  return missing();
}

void mill_gpu_release(void)
{
  mill_gpu_assign(NULL);
}

int mill_cuda_probe_device(int i, mill_cuda_device *device)
{
  (void)i;
  memset(device, 0, sizeof *device);
  return missing();
}

void mill_cuda_probe_bus(char *out, size_t size)
{
  if (size > 0)
    out[0] = '\0';
}

const mill_backend *mill_backend_cuda(int *err)
{
  return none(err);
}

const mill_particle_ops *mill_particle_ops_cuda(int *err)
{
  return none(err);
}

const mill_train_ops *mill_train_ops_cuda(int *err)
{
  return none(err);
}
