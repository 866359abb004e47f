/** Copies within the host's memory by several threads.
 *
 *  A star of a DESI-like survey is 446 kB, and one thread that brings stars to pinned memory is
 *  what a GPU would wait for first (docs/develop/performance.md, roofline of a GPU).
 */
#ifndef MILL_HOST_COPY_H
#define MILL_HOST_COPY_H

#include "kernels/base/common.h"

MILL_EXTERN_C_BEGIN

enum {
  MILL_MOST_COPIERS = 64,
  /** Buffers through which stars go to a GPU, filled in turn: small, so that what is written there
   *  stays in the cache until the GPU fetches it, and with room for some stars. */
  MILL_N_STAGE = 4,
  MILL_STAGE_BYTES = 2 << 20
};

/** Memory that is copied to a device or from one, or to pinned memory. */
typedef struct mill_upload {
  void *to;
  const void *from; /**< NULL: zeros go there */
  size_t bytes;
} mill_upload;

/** Threads that copy where the process may use n_thread of them: a quarter of them, at most four,
 * as readers have the others to themselves; MILL_CUDA_COPIERS of the environment gives another
 *  number.  MILL_ERR_CONFIG when that is not 1 to MILL_MOST_COPIERS. */
int mill_host_copiers(int n_thread, int *n_copier);

/** Copy pieces [n], each of n_copier threads an equal share of all bytes; fewer threads where
 *  that is not worth their start.  No piece overlaps another one's source or target. */
void mill_host_copy(int n_copier, const mill_upload *piece, int n);

MILL_EXTERN_C_END

#endif
