/* SPDX-License-Identifier: BSD-3-Clause */
/** Cache of the wavelength sets of a run.
 *
 *  A set is everything that depends only on a segment's wavelengths: logarithms, continuum
 *  functions, masks, bins.  Segments with equal wavelengths share a set, and sets of about the same
 *  range share templates of the initial guess.  A slot holds the sets of its star.  If all sets
 *  exceed a limit of memory, those that no slot holds are freed, the longest idle first. */
#pragma once

#include "kernels/backend.h"
#include "kernels/data/star.h"
#include "src/pipeline/guess_table.h"

/** Default limit of the memory of all sets, bytes. */
#define MILL_WAVESET_CACHE_BYTES ((size_t)256 << 20)

typedef struct mill_waveset_cache mill_waveset_cache;

/** What a set was made from, and where it is. */
typedef struct mill_waveset_view {
  int n_pix;
  int n_block;                /**< blocks of bins that the guess transforms */
  const double *wave_aa;      /**< [n_pix] host */
  const mill_waveset *device; /**< in the backend's memory */
} mill_waveset_view;

typedef struct mill_waveset_stats {
  int n_set, n_held; /**< sets in memory; sets that slots hold */
  size_t bytes;      /**< memory of all sets */
  int64_t n_made, n_evicted;
  double make_s; /**< CPU s of the calling threads for making sets */
} mill_waveset_stats;

/** Create an empty cache; arguments are borrowed until destroy.  n_thread OpenMP threads make a
 *  set.  MILL_ERR_MEMORY. */
int mill_waveset_cache_create(const mill_library *lib, const mill_fit_settings *set,
                              const mill_guess_table *guess, const mill_backend *backend,
                              mill_device *device, int n_thread, mill_waveset_cache **out);
void mill_waveset_cache_destroy(mill_waveset_cache *cache); /* NULL is allowed */

/** Set the limit in bytes; 0 keeps only sets that are held. */
void mill_waveset_cache_limit(mill_waveset_cache *cache, size_t bytes);
void mill_waveset_cache_add_stats(const mill_waveset_cache *cache, mill_waveset_stats *sum);

/** Find or make the set of a segment's wavelengths (vacuum A, ascending; copied), and hold it.
 *
 *  id  out  a small number, which is used again after the set has been freed
 *
 *  MILL_ERR_RANGE for wavelengths that cannot be fitted, MILL_ERR_MEMORY, MILL_ERR_BACKEND: then
 *  nothing is held. */
int mill_waveset_cache_get(mill_waveset_cache *cache, const mill_raw_segment *segment, int *id);

/** Give a hold back. */
void mill_waveset_cache_release(mill_waveset_cache *cache, int id);

/** Begin the next star: sets requested since the last call may now be freed, unless held. */
void mill_waveset_cache_next(mill_waveset_cache *cache);

/** View of a held set. */
mill_waveset_view mill_waveset_cache_view(const mill_waveset_cache *cache, int id);

/** Find or make the solvers that deconvolve a resolution matrix of n_diag diagonals by the Gaussian
 *  of the arm's templates after their blur (sigma blur_ln, in ln wavelength).  Solvers are in the
 *  backend's memory and belong to the set.  MILL_ERR_RANGE, MILL_ERR_MEMORY, MILL_ERR_BACKEND. */
int mill_waveset_cache_deconv(mill_waveset_cache *cache, int id, int n_diag, double blur_ln,
                              mill_deconv *out);
