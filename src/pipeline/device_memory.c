/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/pipeline/device_memory.h"

#include "kernels/base/error.h"
#include "kernels/base/memory.h"

int mill_device_memory_take(mill_device_memory *memory, size_t bytes, const void *from, void **out)
{
  MILL_CHECK(MILL_GROW(&memory->block, &memory->n_room, memory->n_block + 1));
  MILL_CHECK(memory->backend->alloc(memory->device, bytes, out));
  memory->block[memory->n_block++] = *out;
  if (from) {
    memory->uploaded += bytes;
    MILL_CHECK(memory->backend->upload(memory->device, *out, from, bytes));
  }
  return MILL_OK;
}

void mill_device_memory_drop(mill_device_memory *memory)
{
  while (memory->n_block > 0)
    memory->backend->release(memory->device, memory->block[--memory->n_block]);
}

void mill_device_memory_clear(mill_device_memory *memory)
{
  mill_device_memory_drop(memory);
  mill_free((void *)memory->block);
  memory->block = NULL;
  memory->n_room = 0;
}
