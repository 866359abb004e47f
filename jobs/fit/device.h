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
  int has_gpu; /**< with cuda+cpu: this rank has one */
  char cpu[64], gpu[64],
      both[144]; /**< with cuda+cpu: the names, the same on all ranks; else empty */
} mill_fit_device;

/** All ranks take the backend of the configuration; auto is a CPU until mill_fit_settle_device.
 *  Results are the same bit for bit only on one instruction set, so all ranks take the oldest
 *  one among them; GPUs must be of one kind. */
int mill_fit_find_device(const mill_fit_call *call, const mill_fit_setup *setup,
                         mill_fit_device *device);

/** Once the number of rows is known: auto becomes the choice for this run, also in the
 *  configuration that the result file keeps; slots and readers follow.
 *
 *  existing  what lies at the output, on rank 0 */
int mill_fit_settle_device(const mill_fit_call *call, mill_fit_setup *setup,
                           const mill_existing *existing, int64_t n_row, mill_fit_device *device);

/** Rows that this rank takes before it has finished any.  Not collective. */
int64_t mill_fit_held_rows(const mill_fit_device *device);

#endif
