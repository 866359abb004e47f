/* SPDX-License-Identifier: BSD-3-Clause */
/** Copies to and from a device, and within the host's memory. */
#pragma once

#include <string.h>

#include "kernels/base/common.h"

enum {
  /** Pinned buffers for uploads to a GPU, filled in turn.  A buffer is large enough for a DESI star
   *  and small enough to stay in the cache until the GPU reads it. */
  MILL_N_STAGE = 4,
  MILL_STAGE_BYTES = 1 << 19
};

/** A copy to or from a device, or to pinned memory. */
typedef struct mill_upload {
  void *to;
  const void *from; /**< NULL: set *to to zeros */
  size_t bytes;
  int stays; /**< uploads: from is pinned and unchanged until the backend's settle */
} mill_upload;

static inline void mill_host_copy(const mill_upload *piece)
{
  if (piece->bytes > 0 && piece->from)
    memcpy(piece->to, piece->from, piece->bytes);
  else if (piece->bytes > 0)
    memset(piece->to, 0, piece->bytes);
}
