/** Which GPU a rank takes, decided from what the runtime says about this machine.
 *
 *  Plain decisions over tables, without a call of CUDA, so that they are tested without a GPU;
 *  kernels/cuda/device_facts.h fills the tables.  Failures are MILL_ERR_CONFIG where what is
 *  here does not suit this build, MILL_ERR_BACKEND where a GPU is there but cannot be had, and
 *  MILL_ERR_MEMORY where its memory is taken; the message says what to do about the GPU.  Whether
 *  the CPU would do instead, the caller knows.
 */
#ifndef MILL_DEVICE_CHOICE_H
#define MILL_DEVICE_CHOICE_H

#include "kernels/base/common.h"

MILL_EXTERN_C_BEGIN

enum {
  /** As CUDA counts versions, 12.4: with an older driver, which must be of the build's major
   *  version, rounds are launched one by one instead of by a graph that goes on by itself. */
  MILL_GPU_GRAPH_DRIVER = 12040,
  MILL_GPU_SLOTS = 4096, /**< by default, where memory allows; more hardly fill a GPU better */
  MILL_GPU_UUID_BYTES = 16
};

/** Less free memory than this for a rank is no use: the driver, a library and a few slots. */
#define MILL_GPU_MIN_BYTES ((size_t)1 << 30)

/** Who may make a context on a GPU. */
enum mill_gpu_mode { MILL_GPU_SHARED, MILL_GPU_EXCLUSIVE, MILL_GPU_PROHIBITED };

typedef struct mill_gpu_facts {
  char name[64];
  unsigned char uuid[MILL_GPU_UUID_BYTES]; /**< the same for every process that sees this GPU */
  int major, minor;                        /**< compute capability */
  int mode;                                /**< enum mill_gpu_mode */
} mill_gpu_facts;

/** What one process sees. */
typedef struct mill_gpu_node {
  int driver, runtime;       /**< versions as CUDA counts them (13000 is 13.0); driver 0: none */
  const char *architectures; /**< of this build, as CMake has them: "80-real;90-real;90-virtual" */
  int n_gpu;
  const mill_gpu_facts *gpu; /**< [n_gpu] in the order of the runtime */
} mill_gpu_node;

/** Has a build for these architectures code for this compute capability?  Machine code runs on
 *  the same major and the same or a later minor version; PTX on any later one, when the driver
 *  can translate it.  Both for 90a run on 9.0 alone, for 100f on 10.0 and later 10.x.  Words it
 *  does not know (native, all) count as code. */
int mill_gpu_has_code(const char *architectures, int major, int minor, int may_translate);

/** The GPU of the rank that is the local_rank-th of its node: of those that this build runs on
 *  and that admit programs, number local_rank modulo their count. */
int mill_gpu_choose(const mill_gpu_node *node, int local_rank, int *gpu);

/** What the backend on this GPU is called: "cuda NVIDIA H200 sm_90", at most 59 bytes. */
void mill_gpu_backend_name(const mill_gpu_facts *gpu, char *name, size_t size);

/** Which ranks of a node have the same GPU.
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

/** A rank's part of a GPU's memory, bytes, of what is free when no rank has taken its own yet.
 *  MILL_ERR_MEMORY when it is less than MILL_GPU_MIN_BYTES. */
int mill_gpu_memory(const char *name, size_t free_bytes, int n_sharing, size_t *bytes);

/** The part of a GPU that this process has. */
typedef struct mill_gpu_place {
  int gpu;       /**< number in the order of the runtime */
  int n_sharing; /**< ranks that have it, this one included */
  size_t bytes;  /**< of its memory for this process; 0: all that is free */
} mill_gpu_place;

/** Tell the CUDA backend, before it is asked for, which GPU to take; NULL: none any more. */
void mill_gpu_assign(const mill_gpu_place *place);
/** 1 and the place; 0 where none was assigned: the GPU that mill_gpu_choose gives the first rank
 *  is to be taken then, all of it (gpu is -1). */
int mill_gpu_assigned(mill_gpu_place *place);

MILL_EXTERN_C_END

#endif
