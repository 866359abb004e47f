/* SPDX-License-Identifier: BSD-3-Clause */
/** Set-up of BLAS: one thread for each call, and memory taken in advance.  A fit calls no BLAS. */
#ifndef MILL_BLAS_THREADS_H
#define MILL_BLAS_THREADS_H

/** Prepare for calls of BLAS from up to n_thread threads at once.
 *
 *  OpenBLAS is limited to one thread a call, since with more its sums depend on their number;
 *  *n_before is the number that mill_blas_end restores.  OpenBLAS needs 128 MiB for each thread
 *  that calls it, and retries forever if it cannot get them; so this function takes them, or fails
 *  with MILL_ERR_MEMORY (mill_blas_end may still be called).  Does nothing with another BLAS. */
int mill_blas_begin(int n_thread, int *n_before);

void mill_blas_end(int n_before);

/** The OPENBLAS_CORETYPE to set.  A release older than the processor takes it for the oldest one,
 *  and is five times slower.  NULL: nothing to set, or it is set. */
const char *mill_blas_core(void);

#endif
