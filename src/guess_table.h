/** Templates of the initial guess, on the host.
 *
 *  The library names some stars; their spectra come from the emulator once per
 *  run and are rotated.  For every wavelength set they are averaged into the
 *  guess's bins and divided by their own continuum fits.
 */
#ifndef MILL_GUESS_TABLE_H
#define MILL_GUESS_TABLE_H

#include "kernels/library.h"
#include "kernels/settings.h"

/** Spectrum of an arm's emulator at labels [n_label], float64 throughout with
 *  the weights cast up; flux [n_pix] out.  MILL_ERR_MEMORY. */
int mill_emulator_eval(const mill_library *lib, int arm, const double *label, double *flux);

typedef struct mill_guess_table {
  int n_templ; /**< n_guess * n_guess_vsini, rotation fastest */
  int half;    /**< velocity bins on each side of zero */
  double ln_step;
  float *flux[MILL_MAX_ARM]; /**< [n_templ][arm n_pix], owned */
} mill_guess_table;

/** Emulate and rotate the guess's templates; bins of vel_step_km_s up to the
 *  larger of |min_vel|, |max_vel|. */
int mill_guess_table_create(const mill_library *lib, const mill_fit_settings *set,
                            mill_guess_table *table);
void mill_guess_table_clear(mill_guess_table *table);

/** Bins of one wavelength set.
 *
 *  wave_aa [n_pix] ascending vacuum A; *n_bin bins; *bin_first [n_bin + 1] first
 *  pixel of each; *templ [n_templ][n_bin + 2 half] normalised template - 1, bin
 *  0 of the data at element half; both to be freed with mill_free. */
int mill_guess_table_bins(const mill_guess_table *table, const mill_library *lib,
                          const mill_fit_settings *set, int arm, int n_pix, const double *wave_aa,
                          int *n_bin, int **bin_first, float **templ);

#endif
