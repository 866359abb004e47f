/* SPDX-License-Identifier: BSD-3-Clause */
/** CUDA's facts about the GPUs of this process, for device_choice.h. */
#ifndef MILL_DEVICE_FACTS_H
#define MILL_DEVICE_FACTS_H

#include "kernels/cuda/device_choice.h"

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

MILL_EXTERN_C_END

#endif
