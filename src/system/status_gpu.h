/* SPDX-License-Identifier: BSD-3-Clause */
/** NVIDIA GPUs as their driver reports them, through its management library (NVML).
 *
 *  The library is looked for when it is first needed, so that builds without CUDA see GPUs too, and
 *  machines without a driver need nothing.  Thread-safe.
 */
#ifndef MILL_STATUS_GPU_H
#define MILL_STATUS_GPU_H

#include <stdint.h>

typedef struct mill_gpu {
  char name[96];
  char bus_id[32];         /**< PCI, "00000000:3B:00.0" */
  int64_t total, used;     /**< bytes of memory */
  int percent;             /**< share of the last second or so in which it worked; -1: unknown */
  int ecc;                 /**< 1 on, 0 off, -1: it has none or does not say */
  int64_t ecc_uncorrected; /**< errors since the driver was loaded; -1: unknown */
} mill_gpu;

/** How many there are; -1 when there is no driver, or it does not answer. */
int mill_gpu_count(void);

/** "535.104.05" into out [80]; empty when there is no driver. */
void mill_gpu_driver(char out[80]);

/** GPU number i of NVML, which is not CUDA's number.  1, or 0 when it cannot be read. */
int mill_gpu_read(int i, mill_gpu *gpu);

/** NVML's number of the GPU at a PCI address; -1: none. */
int mill_gpu_find(const char *bus_id);

#endif
