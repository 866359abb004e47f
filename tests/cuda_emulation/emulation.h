/* SPDX-License-Identifier: BSD-3-Clause */
/** What tests may ask of the emulated GPU (cuda_runtime.h). */
#ifndef MILL_CUDA_EMULATION_H
#define MILL_CUDA_EMULATION_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What no list of a few slots exceeds. */
enum { MILL_EMULATION_LIST_BYTES = 256 };

/** Seed of all orders that are random. */
void mill_emulation_seed(unsigned seed);

/** Device memory in all, bytes (1 GiB when never called). */
void mill_emulation_memory(size_t bytes);

/** Not 0: new pieces of device memory follow one another, as a GPU's often do, in the place of
 *  ending before a page that no access may touch.  A copy still has to stay within its piece. */
void mill_emulation_adjacent(int on);

/** Device memory that CUDA itself takes at the first launch from now on, bytes; a launch fails
 *  where there is none. */
void mill_emulation_launch_memory(size_t bytes);

/** The next call of this name ("cudaGraphInstantiate") fails; of those that make or launch a
 *  graph.  NULL: none. */
void mill_emulation_fail_graph(const char *call);

/** Kernel number n_more from now (0: the next one that is run) fails with a CUDA error of
 *  this number, as does every call after it until mill_emulation_reset; n_more < 0: none. */
void mill_emulation_fail(long n_more, int error);

/** What cudaDriverGetVersion says, 13000 when never called. */
void mill_emulation_driver(int version);

/** Forget failures, the limit of memory, what launches want of it, and the driver's version. */
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
#endif
