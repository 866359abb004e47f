/* SPDX-License-Identifier: BSD-3-Clause */
/** Set-up of BLAS, for training only: one thread per call, and memory allocated in advance. */
#pragma once

/** Prepare for calls of BLAS from up to n_thread threads at once.
 *
 *  - Limit OpenBLAS to one thread per call, as its sums depend on the number of threads;
 *    mill_blas_end restores the previous number, *n_before.
 *  - Make OpenBLAS allocate its 128 MiB per thread now: without memory a later call would hang.
 *
 *  Does nothing with another BLAS.  MILL_ERR_MEMORY; mill_blas_end may still be called. */
int mill_blas_begin(int n_thread, int *n_before);

void mill_blas_end(const int *n_before);

/** Return the value to set OPENBLAS_CORETYPE to; NULL: leave it.  If OpenBLAS does not know the
 *  processor, it uses its code for the oldest processors, which is five times slower. */
const char *mill_blas_core(void);
