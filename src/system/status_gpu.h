/* SPDX-License-Identifier: BSD-3-Clause */
/** State of NVIDIA GPUs, from the driver's management library (NVML).
 *
 *  NVML is loaded when first needed, so starmill runs without NVIDIA's driver.  Thread-safe. */
#pragma once

#include <stdint.h>

typedef struct mill_gpu {
  char name[96];
  char bus_id[32];     /**< PCI, "00000000:3B:00.0" */
  int64_t total, used; /**< bytes of memory */
  int percent; /**< part of about the last second that the GPU was busy, percent; -1: unknown */
  int ecc;     /**< 1 on, 0 off, -1 none or unknown */
  int64_t ecc_uncorrected; /**< errors since the driver was loaded; -1: unknown */
} mill_gpu;

/** Number of GPUs; -1: no driver, or it does not answer. */
int mill_gpu_count(void);

/** The driver's version, "535.104.05"; empty: no driver. */
void mill_gpu_driver(char out[80]);

/** Read the state of GPU i; NVML's numbers differ from CUDA's.  Returns 0 if it cannot be read. */
int mill_gpu_read(int i, mill_gpu *gpu);

/** Return NVML's number of the GPU at a PCI address; -1: none. */
int mill_gpu_find(const char *bus_id);
