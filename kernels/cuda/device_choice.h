/* SPDX-License-Identifier: BSD-3-Clause */
/** Choice of a rank's GPU from the runtime's facts about this machine.  Pure functions of tables
 *  without CUDA calls, so that they can be tested without a GPU; kernels/gpu.h fills
 *  the tables.  Failures are MILL_ERR_CONFIG where the machine does not suit this build,
 *  MILL_ERR_BACKEND where a GPU exists but cannot be used, and MILL_ERR_MEMORY where its memory is
 *  taken; the message gives advice about the GPU.  The caller decides whether to use the CPU
 *  instead.
 */
#ifndef MILL_DEVICE_CHOICE_H
#define MILL_DEVICE_CHOICE_H

#include "kernels/base/common.h"

MILL_EXTERN_C_BEGIN

enum {
  /** As CUDA counts versions, 12.4: with an older driver, which must be of the build's major
   *  version, rounds are launched one by one instead of by a looping graph. */
  MILL_GPU_GRAPH_DRIVER = 12040,
  MILL_GPU_SLOTS = 4096, /**< by default, where memory allows; more hardly use a GPU better */
  MILL_GPU_UUID_BYTES = 16
};

/** Least free memory for a rank: the driver, a library and a few slots. */
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

/** Does a build for these architectures have code for this compute capability?  Machine code runs
 *  on the same major and the same or a later minor version; PTX on any later one, when the driver
 *  can translate it.  Both for 90a run on 9.0 alone, for 100f on 10.0 and later 10.x.  Unknown
 *  words (native, all) count as code. */
int mill_gpu_has_code(const char *architectures, int major, int minor, int may_translate);

/** The GPU of the rank that is the local_rank-th of its node: of those that this build runs on
 *  and that admit programs, number local_rank modulo their count. */
int mill_gpu_choose(const mill_gpu_node *node, int local_rank, int *gpu);

/** Name of the backend on this GPU: "cuda NVIDIA H200 sm_90", at most 59 bytes. */
void mill_gpu_backend_name(const mill_gpu_facts *gpu, char *name, size_t size);

/** Ranks of a node that share a GPU.
 *
 *  chosen      [n_rank] the GPU of every rank of the node; all 0 where a rank has none
 *  rank        one that has a GPU
 *  n_sharing   of this rank's GPU, itself included
 *  place       this rank's number among them */
void mill_gpu_sharers(int n_rank, const mill_gpu_facts *chosen, int rank, int *n_sharing,
                      int *place);

/** The same, where they are to share it.  MILL_ERR_BACKEND where several have a GPU that admits one
 * program. */
int mill_gpu_share(int n_rank, const mill_gpu_facts *chosen, int rank, int *n_sharing, int *place);

/** A rank's share of a GPU's memory, bytes, from the memory free before any rank has taken its
 *  share.  MILL_ERR_MEMORY when it is less than MILL_GPU_MIN_BYTES. */
int mill_gpu_memory(const char *name, size_t free_bytes, int n_sharing, size_t *bytes);

/** This process's share of a GPU. */
typedef struct mill_gpu_place {
  int gpu;       /**< number in the order of the runtime */
  int n_sharing; /**< ranks that have it, this one included */
  size_t bytes;  /**< of its memory for this process; 0: all that is free */
} mill_gpu_place;

/** Set the GPU of the CUDA backend before it is requested; NULL: clear it. */
void mill_gpu_assign(const mill_gpu_place *place);
/** 1 and the share; 0 where none was assigned (gpu is -1): use the GPU that mill_gpu_choose gives
 *  the first rank, all of it. */
int mill_gpu_assigned(mill_gpu_place *place);

MILL_EXTERN_C_END

#endif
