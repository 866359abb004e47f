/* SPDX-License-Identifier: BSD-3-Clause */
/** Memory: allocation with an error message, growing arrays, limits on address space. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/base/error.h"

MILL_EXTERN_C_BEGIN

/** Allocate zeroed memory for n elements of size bytes, 64-byte aligned; free it with mill_free.
 *  *out is valid for n = 0, too.  MILL_ERR_MEMORY (no memory, n * size too large): *out is NULL. */
int mill_alloc_bytes(size_t n, size_t size, void **out);

/** mill_alloc_bytes without zeroing, for large memory that is written before it is read. */
int mill_alloc_raw(size_t n, size_t size, void **out);
void mill_free(void *p);

/** Call function(&variable) where the variable's scope ends.  `unused` stops a warning of clang. */
#define MILL_AT_END(function) __attribute__((unused, cleanup(function)))

/** Free the declared pointer when its block ends: MILL_OWNED double *x = NULL; */
#define MILL_OWNED MILL_AT_END(mill_free_at)
void mill_free_at(const void *pointer); /**< pointer: address of the pointer to free */

/** Hand *from over to *to at the end of a function: return MILL_GIVE(&table, out); */
#define MILL_GIVE(from, to) (*(to) = *(from), *(from) = NULL, MILL_OK)

/** Define <close>_at(type *p) for MILL_AT_END: it closes the handle *p. */
#define MILL_CLOSER(type, close)                                                                   \
  static inline void close##_at(type *const *handle)                                               \
  {                                                                                                \
    close(*handle);                                                                                \
  }

/** Free n pointers; MILL_FREE(a, b, ...) counts them. */
void mill_free_list(int n, const void *const *p);

/** Grow the array *p, unless n_need elements fit already.  *n_room: how many elements of `size`
 *  bytes fit.  A growing array gets at least twice the room; the new part is not zeroed.  *p is
 *  NULL or from this function; free it with mill_free.  A failure changes nothing. */
int mill_grow_bytes(void **p, int64_t *n_room, int64_t n_need, size_t size);
#define MILL_GROW(p, n_room, n_need) mill_grow_bytes((void **)(p), n_room, n_need, sizeof(**(p)))

/** Like mill_grow_bytes, but an array that must grow loses its contents and becomes zero.  *p is
 *  NULL or from mill_alloc_bytes.  A failure sets *p NULL and *n_room 0. */
int mill_renew_bytes(void **p, size_t *n_room, size_t n_need, size_t size);
#define MILL_RENEW(p, n_room, n_need)                                                              \
  mill_renew_bytes((void **)(p), n_room, (size_t)(n_need), sizeof(**(p)))

/** Return a text to end a message about memory: "; the limit on address space (ulimit -v) is 600
 *  MiB", or "" without a limit.  Valid until the next call in this thread. */
const char *mill_memory_limit(void);

/** Return how many of n blocks of n_byte fit into the address space now; nothing stays allocated.
 *  Callers check this before they call a library that crashes without memory. */
int mill_memory_room(int n, size_t n_byte);

#define MILL_FREE(...)                                                                             \
  mill_free_list((int)(sizeof((const void *const[]){__VA_ARGS__}) / sizeof(void *)),               \
                 (const void *const[]){__VA_ARGS__})
#define MILL_ALLOC(n, out) mill_alloc_bytes((size_t)(n), sizeof(**(out)), (void **)(out))

MILL_EXTERN_C_END
