/* SPDX-License-Identifier: BSD-3-Clause */
/** Wavelength sets of a run: found by their wavelengths, held by the slots, bounded in memory.
 *
 *  A set is everything that depends only on a segment's wavelengths: logarithms, continuum
 *  functions, masks, bins.  Segments with the same wavelengths share a set, and sets of about the
 *  same range share the templates of the initial guess (2 MB for an arm of DESI).  A slot holds the
 *  sets of its star.  The others stay until all sets together exceed a limit; then the least
 *  recently used leaves first.  So a run with one grid per spectrum needs memory for the stars
 *  under way only.
 */
#ifndef MILL_WAVESET_CACHE_H
#define MILL_WAVESET_CACHE_H

#include "kernels/backend.h"
#include "kernels/data/library.h"
#include "kernels/data/star.h"
#include "src/pipeline/guess_table.h"

/** Memory of all sets together, bytes, beyond which those that are not held are freed. */
#define MILL_WAVESET_CACHE_BYTES ((size_t)256 << 20)

typedef struct mill_waveset_cache mill_waveset_cache;

/** What a set was made from, and where it is. */
typedef struct mill_waveset_view {
  int n_pix;
  int n_block;                /**< blocks of the guess's bins */
  const double *wave_aa;      /**< [n_pix] host */
  const mill_waveset *device; /**< of the backend's memory */
} mill_waveset_view;

typedef struct mill_waveset_stats {
  int n_set, n_held; /**< sets in memory, of them held */
  size_t bytes;      /**< of all sets */
  int64_t n_made, n_evicted;
  double make_s; /**< CPU seconds of making sets, of the calling threads */
} mill_waveset_stats;

/** Everything is borrowed until destroy.  n_thread OpenMP threads make a set.
 *  MILL_ERR_MEMORY. */
int mill_waveset_cache_create(const mill_library *lib, const mill_fit_settings *set,
                              const mill_guess_table *guess, const mill_backend *backend,
                              mill_device *device, int n_thread, mill_waveset_cache **out);
void mill_waveset_cache_destroy(mill_waveset_cache *cache); /* NULL is allowed */

/** Limit in bytes; 0 keeps only what is held. */
void mill_waveset_cache_limit(mill_waveset_cache *cache, size_t bytes);
void mill_waveset_cache_add_stats(const mill_waveset_cache *cache, mill_waveset_stats *sum);

/** Find or make the set of a segment's wavelengths, hold it, and give its id.
 *
 *  The wavelengths are vacuum A, ascending; copied.  An id is a small number, used again after its set
 *  has been freed.  MILL_ERR_RANGE (the wavelengths cannot be used), MILL_ERR_MEMORY,
 *  MILL_ERR_BACKEND: nothing is held. */
int mill_waveset_cache_get(mill_waveset_cache *cache, const mill_raw_segment *segment, int *id);

/** Give a hold back. */
void mill_waveset_cache_release(mill_waveset_cache *cache, int id);

/** The next star begins: sets that were asked for since the last call may leave from now on. */
void mill_waveset_cache_next(mill_waveset_cache *cache);

/** Input and memory of a held set. */
mill_waveset_view mill_waveset_cache_view(const mill_waveset_cache *cache, int id);

/** Solvers for the Gaussian that the arm's templates carry, and one of sigma blur_ln in ln
 *  wavelength, for a resolution matrix of n_diag diagonals on these wavelengths, in memory of the
 *  backend that is the set's.  MILL_ERR_RANGE, MILL_ERR_MEMORY, MILL_ERR_BACKEND. */
int mill_waveset_cache_deconv(mill_waveset_cache *cache, int id, int n_diag, double blur_ln,
                              mill_deconv *out);

#endif
