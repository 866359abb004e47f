/* SPDX-License-Identifier: BSD-3-Clause */
/** Device of a fit: backend, threads, and the number of stars at once on this rank. */
#pragma once

#include "io/result/existing_result.h"
#include "jobs/fit/call.h"

typedef struct mill_fit_device {
  const mill_backend *backend;
  const char *name; /**< name of the backend of all ranks; with cuda+cpu, the names of both */
  int n_thread, n_reader, n_slot;
  int has_gpu; /**< with auto and cuda+cpu: 1 if this rank has a GPU */
  char cpu[64], gpu[64],
      both[144]; /**< names of the backends, equal on all ranks; empty unless cuda+cpu */
} mill_fit_device;

/** Choose the configured backend; auto is left to mill_fit_settle_device.  A row must have the same
 *  bits on every rank: CPU ranks all use the oldest instruction set; GPUs must be of one kind. */
int mill_fit_find_device(const mill_fit_call *call, const mill_fit_setup *setup,
                         mill_fit_device *device);

/** Choose what depends on the number of rows: the backend if the setting is auto, then the numbers
 *  of slots and readers.  The backend replaces auto in the configuration that the result stores.
 *
 *  existing  result found at the output, on rank 0 */
int mill_fit_settle_device(const mill_fit_call *call, mill_fit_setup *setup,
                           const mill_existing *existing, int64_t n_row, mill_fit_device *device);

/** Return the rows that this rank takes before it finishes its first row.  Not collective. */
int64_t mill_fit_held_rows(const mill_fit_device *device);
