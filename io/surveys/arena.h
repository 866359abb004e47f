/* SPDX-License-Identifier: BSD-3-Clause */
/** Memory that is handed out in pieces and freed as a whole. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct mill_backend;

/** An arena; zero it before use. */
typedef struct mill_arena {
  const struct mill_backend *backend; /**< its `pin` allocates; NULL: ordinary memory */
  struct mill_arena_block *block;
  int64_t n_block, room;
} mill_arena;

/** Get n_byte bytes, not zeroed, 64-byte aligned, valid until the next reset.  MILL_ERR_MEMORY. */
int mill_arena_take(mill_arena *arena, size_t n_byte, void **out);

/** Free all pieces but keep the memory, merged into one block, for the next pieces. */
int mill_arena_reset(mill_arena *arena);

/** Does p point into the arena? */
int mill_arena_has(const mill_arena *arena, const void *p);

/** Bytes allocated. */
size_t mill_arena_bytes(const mill_arena *arena);

void mill_arena_clear(mill_arena *arena);
