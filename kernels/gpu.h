/* SPDX-License-Identifier: BSD-3-Clause */
/** The GPU interface of every build: what CUDA reports about this process's GPUs, and the engines
 *  that run on one.  Without CUDA (kernels/no_gpu.c) its functions fail with MILL_ERR_CONFIG. */
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/device_choice.h"
#include "kernels/particles/particles.h"
#include "kernels/train/train_ops.h"

MILL_EXTERN_C_BEGIN

/** 1 in a build with CUDA. */
int mill_gpu_is_built(void);

/** Describe this process's GPUs in node, without making a context.  node->gpu points to *gpu, which
 *  the caller frees with mill_free.  Neither a missing driver (node->driver 0) nor a missing GPU
 *  (node->n_gpu 0) is a failure.  MILL_ERR_BACKEND if the driver fails; MILL_ERR_MEMORY. */
int mill_gpu_look(mill_gpu_node *node, mill_gpu_facts **gpu);

/** Make this process's context on a GPU and get the GPU's free memory.  MILL_ERR_BACKEND if the GPU
 *  is busy (exclusive mode) or fails, MILL_ERR_MEMORY if no context fits. */
int mill_gpu_try(int gpu, const char *name, size_t *free_bytes);

/** Destroy this process's context on the GPU of the last mill_gpu_try, with all memory there, and
 *  undo mill_gpu_assign.  Harmless without a context.  No mill_device may be open. */
void mill_gpu_release(void);

/** A GPU as `doctor` reports it: PCI address, bytes of memory. */
typedef struct mill_cuda_device {
  char bus_id[32];
  size_t total, free;
} mill_cuda_device;
/** Describe GPU i of mill_gpu_look, making a context there.  MILL_ERR_BACKEND. */
int mill_cuda_probe_device(int i, mill_cuda_device *device);
/** Write the PCI address of this thread's current device; "" without one. */
void mill_cuda_probe_bus(char *out, size_t size);

/** Return the backend for this rank's GPU, with the name "cuda <GPU> sm_<xy>", or NULL with a
 *  message.  Call it from one thread only.
 *
 *  - The GPU is set by mill_gpu_assign (kernels/cuda/device_choice.h); else it is the first GPU
 *    that is not PROHIBITED and for which this build has code.
 *  - *err (err may be NULL): MILL_ERR_CONFIG without driver, GPU or code; MILL_ERR_BACKEND if a GPU
 *    fails.
 *  - The table's functions fail with MILL_ERR_MEMORY if the GPU's memory is full, else with
 *    MILL_ERR_BACKEND: then the device can only be closed.
 *  - A mill_device belongs to one thread at a time. */
const mill_backend *mill_backend_cuda(int *err);

/** Open this rank's GPU (set by mill_gpu_assign, else the first usable GPU) and return the
 *  particle engine.  NULL on failure, with *err MILL_ERR_CONFIG (no GPU) or MILL_ERR_BACKEND.
 *
 *  A call of evolve computes as many problems together as fit the GPU's memory, then the others.
 *  MILL_ERR_MEMORY if a single problem does not fit.  GPUs of one kind give equal results. */
const mill_particle_ops *mill_particle_ops_cuda(int *err);

/** Open this rank's GPU (set by mill_gpu_assign, else the first usable GPU), load cuBLAS and
 *  cuSOLVER, and return the training functions.  NULL on failure, with *err MILL_ERR_CONFIG (no GPU
 *  or no such library) or MILL_ERR_BACKEND. */
const mill_train_ops *mill_train_ops_cuda(int *err);

MILL_EXTERN_C_END
