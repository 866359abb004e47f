/* SPDX-License-Identifier: BSD-3-Clause */
/** Choice of a rank's GPU from CUDA's description of this machine (mill_gpu_look of kernels/gpu.h).
 *  These functions make no CUDA calls, so they can be tested without a GPU.  Their failures:
 *
 *  MILL_ERR_CONFIG   the machine does not suit this build
 *  MILL_ERR_BACKEND  a GPU cannot be used
 *  MILL_ERR_MEMORY   a GPU's memory is taken */
#pragma once

#include "kernels/base/common.h"

MILL_EXTERN_C_BEGIN

enum {
  /** CUDA 12.4 is the first version with looping graphs.  With an older driver (of the same major
   *  version as the build) kernels are launched one by one. */
  MILL_GPU_GRAPH_DRIVER = 12040,
  MILL_GPU_SLOTS = 4096, /**< default if memory allows; more slots hardly help */
  MILL_GPU_UUID_BYTES = 16
};

/** A rank with less free memory refuses the GPU: driver, library and slots need room. */
#define MILL_GPU_MIN_BYTES ((size_t)1 << 30)

/** Compute mode: who may make a context on a GPU. */
enum mill_gpu_mode { MILL_GPU_SHARED, MILL_GPU_EXCLUSIVE, MILL_GPU_PROHIBITED };

typedef struct mill_gpu_facts {
  char name[64];
  unsigned char uuid[MILL_GPU_UUID_BYTES]; /**< the same for every process that sees this GPU */
  int major, minor;                        /**< compute capability */
  int mode;                                /**< enum mill_gpu_mode */
} mill_gpu_facts;

/** GPUs as one process sees them. */
typedef struct mill_gpu_node {
  int driver, runtime;       /**< versions as CUDA counts them (13000 is 13.0); driver 0: none */
  const char *architectures; /**< of this build, as CMake has them: "80-real;90-real;90-virtual" */
  int n_gpu;
  const mill_gpu_facts *gpu; /**< [n_gpu] in the order of the runtime */
} mill_gpu_node;

/** Does a build for these architectures have code for compute capability major.minor?
 *
 *  - Machine code runs on the same major and the same or a later minor version.
 *  - PTX runs on any later version if the driver can translate it.
 *  - 90a runs on 9.0 alone, 100f on 10.0 and later 10.x.
 *  - Unknown words (native, all) count as code. */
int mill_gpu_has_code(const char *architectures, int major, int minor, int may_translate);

/** Choose the GPU of rank local_rank of a node: number local_rank % n of the n GPUs that run this
 *  build and are not PROHIBITED. */
int mill_gpu_choose(const mill_gpu_node *node, int local_rank, int *gpu);

/** Name of the backend on this GPU: "cuda NVIDIA H200 sm_90", at most 59 bytes. */
void mill_gpu_backend_name(const mill_gpu_facts *gpu, char *name, size_t size);

/** Count the ranks of a node that share this rank's GPU, and number them.
 *
 *  chosen      [n_rank] the GPU of every rank of the node; all 0 for a rank without GPU
 *  rank        this rank, which has a GPU
 *  n_sharing   number of ranks that share this rank's GPU, itself included
 *  place       number of this rank among them, from 0 */
void mill_gpu_sharers(int n_rank, const mill_gpu_facts *chosen, int rank, int *n_sharing,
                      int *place);

/** Like mill_gpu_sharers; MILL_ERR_BACKEND if several ranks share a GPU in exclusive mode. */
int mill_gpu_share(int n_rank, const mill_gpu_facts *chosen, int rank, int *n_sharing, int *place);

/** Compute *bytes, a rank's share of a GPU's memory.  free_bytes: free before any rank has taken
 *  its share.  MILL_ERR_MEMORY if the share is below MILL_GPU_MIN_BYTES. */
int mill_gpu_memory(const char *name, size_t free_bytes, int n_sharing, size_t *bytes);

/** This process's share of a GPU. */
typedef struct mill_gpu_place {
  int gpu;       /**< number in the order of the runtime */
  int n_sharing; /**< ranks that share it, this one included */
  size_t bytes;  /**< GPU memory for this process; 0: all that is free */
} mill_gpu_place;

/** Choose the GPU that a later mill_backend_cuda will use; NULL: clear the choice. */
void mill_gpu_assign(const mill_gpu_place *place);
/** Get the place that mill_gpu_assign has set; returns 1.  If none is set, returns 0, with gpu -1:
 *  the process then uses the whole GPU that mill_gpu_choose finds for local_rank 0. */
int mill_gpu_assigned(mill_gpu_place *place);

MILL_EXTERN_C_END
