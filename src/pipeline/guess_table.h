/** Templates of the initial guess, on the host.
 *
 *  The library names some stars; their spectra come from the emulator once per
 *  run and are rotated.  For every wavelength set they are averaged into the
 *  guess's bins and divided by their own continuum fits.
 */
#ifndef MILL_GUESS_TABLE_H
#define MILL_GUESS_TABLE_H

#include "kernels/data/library.h"
#include "kernels/data/settings.h"
#include "kernels/star/slot.h"

/** Means are kept in groups of this many templates, side by side; two groups make one of
 *  the backend's. */
enum { MILL_HALF_LANE = MILL_GUESS_LANE / 2 };

/** An arm's templates over all bins that its grid reaches: they have one origin, so
 *  that every wavelength set takes a range of the same means. */
typedef struct mill_guess_arm {
  long bin0; /**< floor(ln wavelength / ln_step) of the first */
  int n_bin;
  int *count;   /**< [n_bin] grid points in a bin, owned */
  double *mean; /**< [2 n_group][n_bin][MILL_HALF_LANE], 0 beyond n_templ, owned */
} mill_guess_arm;

typedef struct mill_guess_table {
  int n_templ; /**< n_guess * n_guess_vsini, rotation fastest */
  int n_group; /**< of MILL_GUESS_LANE templates */
  int half;    /**< velocity bins on each side of zero */
  double ln_step;
  mill_guess_arm arm[MILL_MAX_ARM];
} mill_guess_table;

/** What the guess costs with a step of velocity. */
typedef struct mill_guess_cost {
  int n_templ;
  double n_vel, n_bin;      /**< velocities; bins of all arms */
  double bytes, n_multiply; /**< memory of the bins of a rank; products for one star */
} mill_guess_cost;

/** Arithmetic only; for a star with one spectrum in every arm. */
mill_guess_cost mill_guess_cost_of(const mill_library *lib, const mill_fit_settings *set);

/** Emulate, rotate and bin the guess's templates; bins of guess_vel_step up to the
 *  larger of |min_vel|, |max_vel|.  n_thread OpenMP threads, whose number changes nothing. */
int mill_guess_table_create(const mill_library *lib, const mill_fit_settings *set, int n_thread,
                            mill_guess_table *table);
void mill_guess_table_clear(mill_guess_table *table);

/** Number of bins that wavelengths reach. */
int mill_guess_table_n_bin(const mill_guess_table *table, int n_pix, const double *wave_aa);

/** Bins of one wavelength set.
 *
 *  wave_aa   in   [n_pix] ascending, vacuum A
 *  bin_first out  [n_bin + 1] first pixel of each bin, and n_pix
 *  templ     out  normalised template - 1 as mill_waveset has it, bin 0 of the data at
 *                 bin half: [n_group][n_bin + 2 half][MILL_GUESS_LANE]
 *
 *  n_bin as mill_guess_table_n_bin says; n_thread OpenMP threads, whose number changes
 *  nothing.  MILL_ERR_RANGE when the bins do not carry the continuum functions. */
int mill_guess_table_fill(const mill_guess_table *table, const mill_library *lib,
                          const mill_fit_settings *set, int i_arm, int n_pix, const double *wave_aa,
                          int n_thread, int *bin_first, float *templ);

#endif
