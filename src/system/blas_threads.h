/* SPDX-License-Identifier: BSD-3-Clause */
/** BLAS in one thread a call, and with the memory that it needs.  A fit calls no BLAS. */
#ifndef MILL_BLAS_THREADS_H
#define MILL_BLAS_THREADS_H

/** Before the first of some calls, from up to n_thread threads at once.
 *
 *  OpenBLAS's own threads would share sums out by their number, so it is limited to one from now
 *  on; *n_before is what mill_blas_end restores.  It keeps 128 MiB for each thread that calls it,
 *  and retries forever if it cannot get them: so they are taken here, or refused.  MILL_ERR_MEMORY;
 *  mill_blas_end may still be called.  With another BLAS this does nothing. */
int mill_blas_begin(int n_thread, int *n_before);

void mill_blas_end(int n_before);

/** OPENBLAS_CORETYPE for this processor where OpenBLAS takes it for its oldest one, as a release does
 *  that is older than the processor: at a fifth of the rate.  NULL: it is well, or was set. */
const char *mill_blas_core(void);

#endif
