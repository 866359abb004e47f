/* SPDX-License-Identifier: BSD-3-Clause */
/** A library as a mill_model in a backend's memory. */
#pragma once

#include "kernels/backend.h"
#include "src/pipeline/guess_table.h"

/** Blocks of backend memory that are freed together. */
typedef struct mill_device_memory {
  const mill_backend *backend; /**< borrowed */
  mill_device *device;         /**< borrowed */
  void **block;                /**< [n_block], owned */
  int n_block;
  int64_t n_room;
  size_t bytes; /**< of all blocks */
} mill_device_memory;

/** Allocate a block of `bytes` bytes.  Copy the bytes at `from` into the block; NULL: copy nothing.
 *  out: address of the pointer to set to the block.  MILL_ERR_MEMORY, MILL_ERR_BACKEND. */
int mill_device_memory_take(mill_device_memory *memory, size_t bytes, const void *from, void *out);

void mill_device_memory_drop(mill_device_memory *memory);

/** Free all blocks and their list. */
void mill_device_memory_clear(mill_device_memory *memory);

/** Copy a library, with settings, into a backend's memory.
 *
 *  guess     in   the library's guess table
 *  n_thread  in   OpenMP threads; the result does not depend on their number
 *  memory    in   gets all blocks of the model
 *  model     out  host copy; its pointers are the backend's memory
 *  d_model   out  the model in the backend's memory
 *
 *  MILL_ERR_LIBRARY: an arm is too short for its splines; MILL_ERR_MEMORY, MILL_ERR_BACKEND. */
int mill_device_model_load(const mill_library *lib, const mill_fit_settings *settings,
                           const mill_guess_table *guess, int n_thread, mill_device_memory *memory,
                           mill_model *model, mill_model **d_model);

/** Check that a fit can handle the settings with this library.  MILL_ERR_CONFIG. */
int mill_device_model_check(const mill_library *lib, const mill_fit_settings *settings);
