/* SPDX-License-Identifier: BSD-3-Clause */
/** Memory: allocation with a message, room that grows, and what limits there are. */
#ifndef MILL_MEMORY_H
#define MILL_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/base/common.h"

MILL_EXTERN_C_BEGIN

/** Zeroed memory for n elements of size bytes, 64-byte aligned; free with
 *  mill_free.  MILL_ERR_MEMORY when there is none or n * size overflows;
 *  *out is then NULL.  n = 0 gives a valid pointer. */
int mill_alloc_bytes(size_t n, size_t size, void **out);

/** The same, not zeroed: for large memory that is written before it is read. */
int mill_alloc_raw(size_t n, size_t size, void **out);
void mill_free(void *p);

/** Free n pointers; MILL_FREE(a, b, ...) counts them. */
void mill_free_list(int n, const void *const *p);

/** Room for n_need elements of size bytes at *p, of which *n_room have room now: memory at least
 *  doubles, so that appending n elements one by one costs n copies and not n * n.  *p is NULL or
 *  from this function; free with mill_free.  The new room is not zeroed.  On failure *p and
 *  *n_room stay as they are. */
int mill_grow_bytes(void **p, int64_t *n_room, int64_t n_need, size_t size);
#define MILL_GROW(p, n_room, n_need) mill_grow_bytes((void **)(p), n_room, n_need, sizeof(**(p)))

/** Zeroed memory for n_need elements of size bytes at *p, of which *n_room have room now,
 *  discarding the contents of *p.  *p is NULL or from mill_alloc_bytes; after a failure it is NULL
 *  and *n_room is 0. */
int mill_renew_bytes(void **p, size_t *n_room, size_t n_need, size_t size);
#define MILL_RENEW(p, n_room, n_need)                                                              \
  mill_renew_bytes((void **)(p), n_room, (size_t)(n_need), sizeof(**(p)))

/** "; the limit on address space (ulimit -v) is 600 MiB", or "" without a limit, to end a message
 *  about memory.  Valid until the next call in this thread. */
const char *mill_memory_limit(void);

/** How many of n blocks of n_byte fit into the address space now; all are freed again.  For
 *  libraries that crash without memory. */
int mill_memory_room(int n, size_t n_byte);

#define MILL_FREE(...)                                                                             \
  mill_free_list((int)(sizeof((const void *const[]){__VA_ARGS__}) / sizeof(void *)),               \
                 (const void *const[]){__VA_ARGS__})
#define MILL_ALLOC(n, out) mill_alloc_bytes((size_t)(n), sizeof(**(out)), (void **)(out))

MILL_EXTERN_C_END

#endif
