/* SPDX-License-Identifier: BSD-3-Clause */
/** Templates of the initial guess, on the host.
 *
 *  For each run, the emulator makes templates at the library's guess labels.  They are broadened by
 *  rotation and averaged into bins.  For each range of bins that a wavelength set needs, they are
 *  divided by their continuum and Fourier transformed. */
#pragma once

#include "kernels/cpu/lanes.h"

/** An arm's templates over all bins of its grid. */
typedef struct mill_guess_arm {
  long bin0; /**< floor(ln wavelength / ln_step) of the first bin */
  int n_bin;
  int *count;       /**< [n_bin] grid points in a bin, owned */
  mill_lanes *mean; /**< [2 n_group][n_bin], 0 beyond n_templ, owned */
} mill_guess_arm;

typedef struct mill_guess_table {
  int n_templ; /**< n_guess * n_guess_vsini, rotation fastest */
  int n_group; /**< groups of MILL_GUESS_LANE templates */
  int half;    /**< velocity bins on each side of zero */
  double ln_step;
  int n_fourier; /**< length of the transforms, a power of two */
  float *root;   /**< [n_fourier / 2][2] (kernels/math/fourier.h), owned */
  mill_guess_arm arm[MILL_MAX_ARM];
} mill_guess_table;

/** The bins of a wavelength set's pixels, with a margin of up to MILL_GUESS_MARGIN on each side.
 *  Sets with the same range share templates. */
typedef struct mill_guess_range {
  int arm, n_cont;
  int n_bin, n_block; /**< bins; blocks to transform, up to the last with unmasked pixels */
  int n_used;         /**< bins in these blocks */
  long bin0;          /**< floor(ln wavelength / ln_step) of the first bin */
} mill_guess_range;

/** Widest margin of a range, km/s. */
#define MILL_GUESS_MARGIN 1000.0

/** Cost of the guess. */
typedef struct mill_guess_cost {
  int n_templ;
  double n_vel, n_bin; /**< velocities; bins of all arms */
  double bytes;        /**< memory of a rank: templates; 64 stars' [n_templ][n_vel] grids */
} mill_guess_cost;

/** Return the length of Fourier transforms: the least power of two that is >= 4 n_vel and >= 16. */
double mill_guess_fourier_length(double n_vel);

/** Return the cost of the guess for a star with one spectrum per arm, without making a table. */
mill_guess_cost mill_guess_cost_of(const mill_library *lib, const mill_fit_settings *set);

/** Make the templates in bins of guess_vel_step, for velocities up to the larger of |min_vel| and
 *  |max_vel|.  The result does not depend on n_thread, the number of OpenMP threads. */
int mill_guess_table_create(const mill_library *lib, const mill_fit_settings *set, int n_thread,
                            mill_guess_table *table);
void mill_guess_table_clear(mill_guess_table *table);

/** Return the range of bins for ascending wavelengths wave_aa [n_pix], vacuum A. */
mill_guess_range mill_guess_table_range(const mill_guess_table *table, const mill_fit_settings *set,
                                        int i_arm, int n_pix, const double *wave_aa);

/** bin_first [n_bin + 1] out: the first pixel of each bin of the range, then n_pix. */
void mill_guess_table_bins(const mill_guess_table *table, const mill_guess_range *range, int n_pix,
                           const double *wave_aa, int *bin_first);

/** Length of the array of a range's templates. */
size_t mill_guess_table_numbers(const mill_guess_table *table, const mill_guess_range *range);

/** Divide a range's templates by their continuum and Fourier-transform them for mill_waveset.
 *
 *  templ [mill_guess_table_numbers]  out  transforms, divided by n_fourier
 *
 *  The result does not depend on n_thread, the number of OpenMP threads.  MILL_ERR_RANGE if there
 *  are too few bins for the continuum functions, MILL_ERR_MEMORY. */
int mill_guess_table_fill(const mill_guess_table *table, const mill_library *lib,
                          const mill_fit_settings *set, const mill_guess_range *range, int n_thread,
                          float *templ);
