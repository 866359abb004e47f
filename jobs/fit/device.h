/* SPDX-License-Identifier: BSD-3-Clause */
/** Device of a fit, and the number of stars at once on this rank. */
#ifndef MILL_FIT_DEVICE_H
#define MILL_FIT_DEVICE_H

#include "io/result/existing_result.h"
#include "jobs/fit/call.h"

typedef struct mill_fit_device {
  const mill_backend *backend;
  const char *name; /**< what all ranks fit on: the backend's, with cuda+cpu those of both */
  int n_thread, n_reader, n_slot;
  int has_gpu; /**< 1: this rank has a GPU (with cuda+cpu) */
  char cpu[64], gpu[64],
      both[144]; /**< with cuda+cpu: the names, the same on all ranks; else empty */
} mill_fit_device;

/** Choose the configuration's backend; auto is left to mill_fit_settle_device.  Rows have the same
 *  bits only on one instruction set, so all ranks take the oldest of their instruction sets; GPUs
 *  must be of one kind. */
int mill_fit_find_device(const mill_fit_call *call, const mill_fit_setup *setup,
                         mill_fit_device *device);

/** Settle what depends on the number of rows: the backend of auto, which also replaces auto in the
 *  configuration that the result keeps; then slots and readers.
 *
 *  existing  result found at the output, on rank 0 */
int mill_fit_settle_device(const mill_fit_call *call, mill_fit_setup *setup,
                           const mill_existing *existing, int64_t n_row, mill_fit_device *device);

/** Rows that this rank takes before it finishes its first one.  Not collective. */
int64_t mill_fit_held_rows(const mill_fit_device *device);

#endif
