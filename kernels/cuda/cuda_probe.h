/* SPDX-License-Identifier: BSD-3-Clause */
/** Description of this machine's GPUs, for doctor and status. */
#ifndef MILL_CUDA_PROBE_H
#define MILL_CUDA_PROBE_H

#include <stddef.h>

#include "kernels/base/common.h"

MILL_EXTERN_C_BEGIN

typedef struct mill_cuda_device {
  char name[96], bus_id[32];
  int major, minor;   /**< compute capability */
  int n_processor;    /**< streaming multiprocessors */
  int ecc;            /**< 1: on */
  size_t total, free; /**< bytes of memory */
} mill_cuda_device;

/** Versions as CUDA counts them (12040 is 12.4): of the driver (0: none) and of the runtime
 *  that this program has; and the devices that this process sees.
 *  MILL_ERR_CONFIG where there is no driver or device, MILL_ERR_BACKEND where it fails. */
int mill_cuda_probe(int *driver, int *runtime, int *n_device);

/** Describe device i.  Creates a context there.  MILL_ERR_BACKEND. */
int mill_cuda_probe_device(int i, mill_cuda_device *device);

/** PCI address of the current device of this thread; empty when there is none. */
void mill_cuda_probe_bus(char *out, size_t size);

MILL_EXTERN_C_END

#endif
