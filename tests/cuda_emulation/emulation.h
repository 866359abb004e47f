/* SPDX-License-Identifier: BSD-3-Clause */
/** What tests may ask of the emulated GPU (cuda_runtime.h). */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A list of a few slots has at most this many bytes. */
enum { MILL_EMULATION_LIST_BYTES = 256 };

/** What tests set, and mill_emulation_reset forgets. */
typedef struct mill_emulation_settings {
  size_t memory_bytes; /**< of the device; 1 GiB */
  size_t
      launch_bytes; /**< memory that CUDA takes at the next launch; without it the launch fails */
  const char *graph_call_to_fail; /**< "cudaGraphInstantiate", ...: its next call fails; or NULL */
  long n_kernel_to_fail; /**< kernels that still run; the next and all calls after it fail with
                              kernel_error.  Below 0: none fails */
  int kernel_error;
  int driver; /**< what cudaDriverGetVersion says; 13000 */
} mill_emulation_settings;
extern mill_emulation_settings mill_emulation;

/** Set all back, forget failures and what launches have taken. */
void mill_emulation_reset(void);

/** Since the program began. */
typedef struct mill_emulation_counts {
  long n_kernel;      /**< run, those of graphs too */
  long n_graph;       /**< graphs launched */
  long n_refused;     /**< pieces of device memory for which there was no room */
  long n_synchronize; /**< times that the host waited for a stream or an event */
  long download_bytes, upload_bytes;
  long n_upload; /**< copies to the device of more than MILL_EMULATION_LIST_BYTES */
  size_t n_byte_now, n_byte_most; /**< device memory */
} mill_emulation_counts;
mill_emulation_counts mill_emulation_count(void);

#ifdef __cplusplus
}
#endif
