/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { CACHE_LINE = 64, HUGE_PAGE = 1 << 21 };

/* Whole cache lines, at least one. */
static int round_up(size_t n, size_t size, size_t *bytes)
{
  if (size != 0 && n > (SIZE_MAX - 2 * (size_t)HUGE_PAGE) / size)
    return MILL_ERROR(MILL_ERR_MEMORY, "no memory for %zu elements of %zu bytes", n, size);
  *bytes = n * size;
  *bytes = *bytes < CACHE_LINE ? CACHE_LINE : (*bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
  return MILL_OK;
}

const char *mill_memory_limit(void)
{
  static _Thread_local char text[64];
  struct rlimit limit;
  text[0] = '\0';
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    snprintf(text, sizeof text, "; the limit on address space (ulimit -v) is %llu MiB",
             (unsigned long long)limit.rlim_cur >> 20);
  return text;
}

/* map blocks as long as the address space has room, then unmap them in reverse order */
int mill_memory_room(int n, size_t n_byte)
{
  int n_map = 0;
  void *last = NULL; /* each block begins with the address of the one before */
  for (; n_map < n; n_map++) {
    void *map = mmap(NULL, n_byte, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
      break;
    *(void **)map = last;
    last = map;
  }
  while (last) {
    void *before = *(void **)last;
    munmap(last, n_byte);
    last = before;
  }
  return n_map;
}

/* from HUGE_PAGE bytes on, ask for large pages */
int mill_alloc_raw(size_t n, size_t size, void **out)
{
  size_t bytes = 0;
  *out = NULL;
  const int err = round_up(n, size, &bytes);
  if (err != MILL_OK)
    return err;
  /* C11 wants whole multiples of the alignment */
  void *p = bytes < HUGE_PAGE
                ? aligned_alloc(CACHE_LINE, bytes)
                : aligned_alloc(HUGE_PAGE, (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
  if (!p)
    return MILL_ERROR(MILL_ERR_MEMORY, "no memory for %zu bytes%s", bytes, mill_memory_limit());
#if defined(__linux__)
  /* large pages are faster to get; a refusal does no harm */
  if (bytes >= HUGE_PAGE)
    (void)madvise(p, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
  *out = p;
  return MILL_OK;
}

int mill_alloc_bytes(size_t n, size_t size, void **out)
{
  size_t bytes = 0;
  int err = mill_alloc_raw(n, size, out);
  MILL_STEP(round_up(n, size, &bytes));
  if (err == MILL_OK)
    memset(*out, 0, bytes);
  return err;
}

void mill_free(void *p)
{
  free(p);
}

void mill_free_at(const void *pointer)
{
  void *p;
  memcpy(&p, pointer, sizeof p);
  free(p);
}

void mill_free_list(int n, const void *const *p)
{
  for (int i = 0; i < n; i++)
    free((void *)p[i]);
}

/* double the room, at least to LEAST_ROOM elements, or to n_need if that is more */
int mill_grow_bytes(void **p, int64_t *n_room, int64_t n_need, size_t size)
{
  enum { LEAST_ROOM = 128 };
  if (n_need <= *n_room)
    return MILL_OK;
  int64_t n = *n_room <= INT64_MAX / 2 ? 2 * *n_room : n_need;
  if (n < LEAST_ROOM)
    n = LEAST_ROOM;
  if (n < n_need)
    n = n_need;
  void *more = (uint64_t)n > SIZE_MAX / size ? NULL : realloc(*p, (size_t)n * size);
  if (!more)
    return MILL_ERROR(MILL_ERR_MEMORY, "no memory for %lld elements of %zu bytes%s", (long long)n,
                      size, mill_memory_limit());
  *p = more;
  *n_room = n;
  return MILL_OK;
}

int mill_renew_bytes(void **p, size_t *n_room, size_t n_need, size_t size)
{
  if (n_need <= *n_room)
    return MILL_OK;
  mill_free(*p);
  *n_room = 0;
  const int err = mill_alloc_bytes(n_need, size, p);
  if (err == MILL_OK)
    *n_room = n_need;
  return err;
}
