/* SPDX-License-Identifier: BSD-3-Clause */
/** Memory that a batch takes piece by piece and frees at once. */
#ifndef MILL_ARENA_H
#define MILL_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct mill_backend;

/** Zero it before use. */
typedef struct mill_arena {
  const struct mill_backend *backend; /**< whose `pin` gives the memory; NULL: ordinary memory */
  struct mill_arena_block *block;
  int64_t n_block, room;
} mill_arena;

/** n_byte bytes that last until the next reset, not zeroed, 64-byte aligned.  MILL_ERR_MEMORY. */
int mill_arena_take(mill_arena *arena, size_t n_byte, void **out);

/** Free everything.  Several blocks become one of their total size, so that the next batch of this
 *  size takes no new memory. */
int mill_arena_reset(mill_arena *arena);

/** Does p lie in it? */
int mill_arena_has(const mill_arena *arena, const void *p);

size_t mill_arena_bytes(const mill_arena *arena);

void mill_arena_clear(mill_arena *arena);

#endif
