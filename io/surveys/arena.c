/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/surveys/arena.h"

#include "kernels/backend.h"
#include "kernels/base/layout.h"
#include "kernels/base/memory.h"

enum { ALIGN = MILL_ARRAY_BYTES }; /* as on the GPU, so that one copy uploads adjacent arrays */
#define STEP ((size_t)1 << 20)     /* spare bytes of a new block beyond the requested piece */

typedef struct mill_arena_block {
  char *data;
  size_t size, used;
} block;

static int is_pinned(const mill_arena *arena)
{
  return arena->backend && arena->backend->pin;
}

static void free_blocks(mill_arena *arena)
{
  while (arena->n_block > 0) {
    void *data = arena->block[--arena->n_block].data;
    if (is_pinned(arena))
      arena->backend->unpin(data);
    else
      mill_free(data);
  }
}

void mill_arena_clear(mill_arena *arena)
{
  free_blocks(arena);
  mill_free(arena->block);
  *arena = (mill_arena){0};
}

size_t mill_arena_bytes(const mill_arena *arena)
{
  size_t n = 0;
  for (int64_t i = 0; i < arena->n_block; i++)
    n += arena->block[i].size;
  return n;
}

/* Add a block of memory, pinned if the arena's backend asks for this. */
static int add_block(mill_arena *arena, size_t size)
{
  MILL_CHECK(MILL_GROW(&arena->block, &arena->room, arena->n_block + 1));
  block *b = &arena->block[arena->n_block];
  *b = (block){.size = size};
  if (is_pinned(arena))
    MILL_CHECK(arena->backend->pin(size, (void **)&b->data));
  else
    MILL_CHECK(mill_alloc_raw(size, 1, (void **)&b->data));
  arena->n_block++;
  return MILL_OK;
}

int mill_arena_reset(mill_arena *arena)
{
  size_t size = 0;
  for (int64_t i = 0; i < arena->n_block; i++)
    size += arena->block[i].used;
  if (arena->n_block > 1) { /* replace the blocks by one of their size */
    free_blocks(arena);
    MILL_CHECK(add_block(arena, size));
  } else if (arena->n_block == 1) {
    arena->block[0].used = 0;
  }
  return MILL_OK;
}

int mill_arena_take(mill_arena *arena, size_t n_byte, void **out)
{
  *out = NULL;
  if (n_byte > SIZE_MAX / 2)
    return MILL_ERROR(MILL_ERR_MEMORY, "no memory for %zu bytes: is the file damaged?", n_byte);
  const size_t size = (n_byte + ALIGN - 1) / ALIGN * ALIGN;
  const block *last = arena->n_block > 0 ? &arena->block[arena->n_block - 1] : NULL;
  if (!last || last->size - last->used < size)
    MILL_CHECK(add_block(arena, size + STEP));
  block *b = &arena->block[arena->n_block - 1];
  *out = b->data + b->used;
  b->used += size;
  return MILL_OK;
}

int mill_arena_has(const mill_arena *arena, const void *p)
{
  for (int64_t i = 0; i < arena->n_block; i++) {
    const uintptr_t start = (uintptr_t)arena->block[i].data;
    if ((uintptr_t)p >= start && (uintptr_t)p < start + arena->block[i].used)
      return 1;
  }
  return 0;
}
