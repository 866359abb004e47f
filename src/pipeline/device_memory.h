/* SPDX-License-Identifier: BSD-3-Clause */
/** Blocks of backend memory that are freed together. */
#pragma once

#include "kernels/backend.h"

typedef struct mill_device_memory {
  const mill_backend *backend; /**< borrowed */
  mill_device *device;         /**< borrowed */
  void **block;                /**< [n_block], owned */
  int n_block;
  int64_t n_room;
  size_t uploaded; /**< bytes of the blocks that have been filled */
} mill_device_memory;

/** Allocate a block of this many bytes, filled from `from` unless that is NULL.
 *  MILL_ERR_MEMORY, MILL_ERR_BACKEND. */
int mill_device_memory_take(mill_device_memory *memory, size_t bytes, const void *from, void **out);

void mill_device_memory_drop(mill_device_memory *memory);

/** Free all blocks and their list. */
void mill_device_memory_clear(mill_device_memory *memory);
