/* SPDX-License-Identifier: BSD-3-Clause */
/** Templates of the initial guess, on the host.
 *
 *  The library names some stars; their spectra come from the emulator once per
 *  run and are rotated and averaged into the guess's bins.  For every range of bins that
 *  wavelength sets ask for they are divided by their own continuum fits and transformed.
 */
#ifndef MILL_GUESS_TABLE_H
#define MILL_GUESS_TABLE_H

#include "kernels/data/library.h"
#include "kernels/data/settings.h"
#include "kernels/cpu/lanes.h"

/** An arm's templates over all bins that its grid reaches: they have one origin, so
 *  that every wavelength set takes a range of the same means. */
typedef struct mill_guess_arm {
  long bin0; /**< floor(ln wavelength / ln_step) of the first */
  int n_bin;
  int *count;       /**< [n_bin] grid points in a bin, owned */
  mill_lanes *mean; /**< [2 n_group][n_bin], 0 beyond n_templ, owned */
} mill_guess_arm;

typedef struct mill_guess_table {
  int n_templ; /**< n_guess * n_guess_vsini, rotation fastest */
  int n_group; /**< of MILL_GUESS_LANE templates */
  int half;    /**< velocity bins on each side of zero */
  double ln_step;
  int n_fourier; /**< length of the transforms, a power of two */
  float *root;   /**< [n_fourier / 2][2] (kernels/math/fourier.h), owned */
  mill_guess_arm arm[MILL_MAX_ARM];
} mill_guess_table;

/** Bins of an arm that wavelength sets share templates of: those of the pixels, and up to
 *  MILL_GUESS_MARGIN on each side so that few ranges serve spectra of slightly different ends. */
typedef struct mill_guess_range {
  int arm, n_cont;
  int n_bin, n_block; /**< bins; blocks of them that are transformed, to the last with data */
  int n_used;         /**< bins of these blocks */
  long bin0;          /**< floor(ln wavelength / ln_step) of the first */
} mill_guess_range;

/** Widest margin of a range, km/s. */
#define MILL_GUESS_MARGIN 1000.0

/** Cost of the guess for a step of velocity. */
typedef struct mill_guess_cost {
  int n_templ;
  double n_vel, n_bin; /**< velocities; bins of all arms */
  double bytes;        /**< memory of a rank: templates, and velocities of 64 stars */
} mill_guess_cost;

/** Length of the transforms of blocks of bins for n_vel velocities, whose bins are a quarter of a
 *  block at most: a power of two. */
double mill_guess_fourier_length(double n_vel);

/** Arithmetic only; for a star with one spectrum in every arm. */
mill_guess_cost mill_guess_cost_of(const mill_library *lib, const mill_fit_settings *set);

/** Emulate, rotate and bin the guess's templates; bins of guess_vel_step up to the
 *  larger of |min_vel|, |max_vel|.  n_thread OpenMP threads; the result does not depend on their
 *  number. */
int mill_guess_table_create(const mill_library *lib, const mill_fit_settings *set, int n_thread,
                            mill_guess_table *table);
void mill_guess_table_clear(mill_guess_table *table);

/** The range of ascending wavelengths wave_aa [n_pix], vacuum A. */
mill_guess_range mill_guess_table_range(const mill_guess_table *table, const mill_fit_settings *set,
                                        int i_arm, int n_pix, const double *wave_aa);

/** First pixel of each bin of the range into bin_first [n_bin + 1], and n_pix. */
void mill_guess_table_bins(const mill_guess_table *table, const mill_guess_range *range, int n_pix,
                           const double *wave_aa, int *bin_first);

/** Numbers of the templates of a range. */
size_t mill_guess_table_numbers(const mill_guess_table *table, const mill_guess_range *range);

/** Templates of a range, normalised and transformed, as mill_waveset has them, over n_fourier:
 *  templ [mill_guess_table_numbers].  n_thread OpenMP threads; the result does not depend on their
 *  number.  MILL_ERR_RANGE when the bins do not carry the continuum functions, MILL_ERR_MEMORY. */
int mill_guess_table_fill(const mill_guess_table *table, const mill_library *lib,
                          const mill_fit_settings *set, const mill_guess_range *range, int n_thread,
                          float *templ);

#endif
