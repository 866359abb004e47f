/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/base/host_copy.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/base/error.h"

/** Smallest share of a thread: waking it costs about as long as copying this. */
static const size_t SHARE_BYTES = (size_t)32 << 10;

/** Shares begin at cache lines of what is copied. */
static const size_t LINE_BYTES = 64;

int mill_host_copiers(int n_thread, int *n_copier)
{
  int err = MILL_OK;
  const char *text = getenv("MILL_CUDA_COPIERS");
  char *end = NULL;
  *n_copier = n_thread < 8 ? 1 : n_thread < 24 ? n_thread / 3 : 8;
  if (!text || !*text)
    goto done;
  const long n = strtol(text, &end, 10);
  if (*end != '\0' || n < 1 || n > MILL_MOST_COPIERS)
    MILL_FAIL(MILL_ERR_CONFIG, "MILL_CUDA_COPIERS is a number from 1 to %d, not '%s'",
              MILL_MOST_COPIERS, text);
  *n_copier = (int)n;
done:
  return err;
}

/** Bytes begin to end of all pieces one after the other. */
static void copy_share(const mill_upload *piece, int n, size_t begin, size_t end)
{
  size_t at = 0;
  for (int i = 0; i < n && at < end; at += piece[i++].bytes) {
    const size_t from = begin > at ? begin - at : 0;
    const size_t to = end - at < piece[i].bytes ? end - at : piece[i].bytes;
    if (from >= to)
      continue;
    char *target = (char *)piece[i].to + from;
    if (piece[i].from)
      memcpy(target, (const char *)piece[i].from + from, to - from);
    else
      memset(target, 0, to - from);
  }
}

void mill_host_copy(int n_copier, const mill_upload *piece, int n)
{
  size_t total = 0;
  for (int i = 0; i < n; i++)
    total += piece[i].bytes;
  if ((size_t)n_copier > total / SHARE_BYTES)
    n_copier = (int)(total / SHARE_BYTES);
  if (n_copier <= 1) {
    copy_share(piece, n, 0, total);
    return;
  }
  const size_t share =
      (total / (size_t)n_copier + LINE_BYTES) / LINE_BYTES * LINE_BYTES; /* more than a part */
#pragma omp parallel for num_threads(n_copier) schedule(static, 1)
  for (int t = 0; t < n_copier; t++) {
    const size_t begin = (size_t)t * share, end = begin + share;
    copy_share(piece, n, begin, end < total ? end : total);
  }
}
