/* SPDX-License-Identifier: BSD-3-Clause */
/** Copies within the host's memory by several threads.
 *
 *  A star of a DESI-like survey takes 446 kB; with a single copying thread, copies to pinned memory
 *  would limit a GPU (docs/develop/performance.md).
 */
#ifndef MILL_HOST_COPY_H
#define MILL_HOST_COPY_H

#include "kernels/base/common.h"

MILL_EXTERN_C_BEGIN

enum {
  MILL_MOST_COPIERS = 64,
  /** Buffers for uploads of stars to a GPU, filled in turn: large enough for some stars, small
   *  enough to stay in the cache until the GPU fetches them. */
  MILL_N_STAGE = 4,
  MILL_STAGE_BYTES = 2 << 20
};

/** A copy to or from a device, or to pinned memory. */
typedef struct mill_upload {
  void *to;
  const void *from; /**< NULL: zeros go there */
  size_t bytes;
  int stays; /**< uploads: the source stays as it is until the backend's settle */
} mill_upload;

/** Number of copying threads of a process with n_thread threads: a third, at most eight, since
 * readers use the others; the environment variable MILL_CUDA_COPIERS overrides it.  MILL_ERR_CONFIG
 * when that is not 1 to MILL_MOST_COPIERS. */
int mill_host_copiers(int n_thread, int *n_copier);

/** Copy pieces [n], each of n_copier threads an equal share of all bytes; fewer threads for small
 *  copies.  No piece overlaps another one's source or target. */
void mill_host_copy(int n_copier, const mill_upload *piece, int n);

MILL_EXTERN_C_END

#endif
