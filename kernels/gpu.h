/* SPDX-License-Identifier: BSD-3-Clause */
/** The GPU interface of every build: CUDA's facts about this process's GPUs, and what runs on one.
 *  Without CUDA each of these functions fails with MILL_ERR_CONFIG and a message that says so
 *  (kernels/no_gpu.c).
 */
#ifndef MILL_GPU_H
#define MILL_GPU_H

#include "kernels/backend.h"
#include "kernels/cuda/device_choice.h"
#include "kernels/particles/particles.h"
#include "kernels/train/train_ops.h"

MILL_EXTERN_C_BEGIN

/** 1 in a build with CUDA. */
int mill_gpu_is_built(void);

/** Fill node, whose gpu is memory of *gpu, to be freed with mill_free.  No context is made.
 *  Without driver or GPU node->driver or node->n_gpu is 0, which is no failure.
 *  MILL_ERR_BACKEND where a driver is there and fails; MILL_ERR_MEMORY. */
int mill_gpu_look(mill_gpu_node *node, mill_gpu_facts **gpu);

/** Make this process's context on a GPU and ask for its free memory.  MILL_ERR_BACKEND where it
 *  is busy (exclusive mode) or fails, MILL_ERR_MEMORY where no context fits. */
int mill_gpu_try(int gpu, const char *name, size_t *free_bytes);

/** Give up the context of the GPU that was tried last, with all memory there, and its assignment;
 *  none is allowed.  Nothing of the CUDA backend may be in use. */
void mill_gpu_release(void);

/** A GPU for doctor: PCI address, bytes of memory. */
typedef struct mill_cuda_device {
  char bus_id[32];
  size_t total, free;
} mill_cuda_device;
/** Describe device i of mill_gpu_look.  Creates a context there.  MILL_ERR_BACKEND. */
int mill_cuda_probe_device(int i, mill_cuda_device *device);
/** PCI address of the current device of this thread; empty when there is none. */
void mill_cuda_probe_bus(char *out, size_t size);

/** The backend for this rank's GPU, its name "cuda <GPU> sm_<xy>".
 *
 *  The GPU is the one that mill_gpu_assign named (kernels/cuda/device_choice.h), else the first
 *  that this build has code for and that admits programs.
 *
 *  NULL when there is none that can run this build; mill_error_message() then says
 *  why, and *err (may be NULL) is MILL_ERR_CONFIG where no driver, no GPU or no code
 *  for this GPU exists, MILL_ERR_BACKEND where a GPU is there and fails.  Call it from one thread
 *  only.
 *
 *  Failures of the table's functions are MILL_ERR_MEMORY where the GPU's memory is
 *  full (fewer slots help), else MILL_ERR_BACKEND; after the latter the device can only be closed.
 *  A mill_device belongs to one thread at a time.
 */
const mill_backend *mill_backend_cuda(int *err);

/** Particles: the engine, once the GPU of this rank (mill_gpu_assign; without it the first one) has
 *  been opened; NULL with *err: MILL_ERR_CONFIG where there is none, MILL_ERR_BACKEND.
 *
 *  Its evolve copies all problems of a call to the device at once and all results back at once if
 *  they fit the GPU's memory, else in groups.  MILL_ERR_MEMORY, with advice, if a single problem
 *  does not fit.  The bits depend on the kind of GPU alone. */
const mill_particle_ops *mill_particle_ops_cuda(int *err);

/** Training, by cuBLAS and a few kernels: the functions, once the GPU of this rank
 *  (mill_gpu_assign; without it the first one) has been opened and cuBLAS found; NULL with *err:
 *  MILL_ERR_CONFIG where one of them is not here, MILL_ERR_BACKEND. */
const mill_train_ops *mill_train_ops_cuda(int *err);

MILL_EXTERN_C_END

#endif
