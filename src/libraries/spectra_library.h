/** A library from labelled spectra on one wavelength grid: observed stars or models at
 *  scattered labels (docs/use/libraries.md). */
#ifndef MILL_SPECTRA_LIBRARY_H
#define MILL_SPECTRA_LIBRARY_H

#include <stdio.h>

#include "kernels/data/library.h"
#include "src/libraries/model_error.h"

enum { MILL_SPECTRA_LIBRARY_MAX_CONTINUUM = 20 };

/** Spectra and their labels.
 *
 *  wave_aa [n_pix]              vacuum A, ascending; owned
 *  flux    [n_spectrum][n_pix]  flux density in any unit, each spectrum in its own; owned
 *  label   [n_spectrum][n_label]  in the labels' units, NaN: not known; owned
 *  name    [n_spectrum]         of files with one spectrum each, else NULL; owned
 */
typedef struct mill_labelled_spectra {
  int n_spectrum, n_pix, n_label;
  double *wave_aa;
  float *flux;
  double *label;
  char (*name)[MILL_MAX_NAME];
} mill_labelled_spectra;

void mill_labelled_spectra_clear(mill_labelled_spectra *spectra); /* NULL is allowed */

typedef struct mill_spectra_label {
  char name[MILL_MAX_NAME]; /**< of the library */
  double min, max;          /**< spectra outside are left out */
  double length;            /**< unit of distances along it, in standard deviations; 0: 1 */
} mill_spectra_label;

typedef struct mill_spectra_library_settings {
  mill_spectra_label label[MILL_MAX_GRID_AXIS]; /**< [n_label of the spectra] */
  char arm[MILL_MAX_NAME];
  double min_aa, max_aa;    /**< vacuum; 0 and inf: all */
  double template_sigma_aa; /**< of mill_arm */
  char sigma_origin[160];   /**< of mill_arm */
  char source[128];         /**< of mill_arm */
  int continuum;            /**< degree of the polynomials taken out of ln flux; -1: none */
  int n_component;          /**< 0: default */
  int degree;               /**< degree of the polynomial added to the radial functions */
  double smoothing;         /**< of all components; 0: by leave-one-out, for each */
  int keep_outliers;        /**< 1: no spectrum is weighted down or rejected */
  int align;                /**< 1: velocities of the spectra are found and taken out */
  int hull_all;             /**< 1: hulls around all spectra; 0: without those that stand alone */
  int n_guess;
  double recover_sn; /**< S/N a pixel at which the recovery of labels is measured; inf: without
                        noise, 0: not measured */
  int n_error;       /**< components of a model error from spectra left out; -1: no model error */
  double error_sn;   /**< S/N a pixel of the spectra, whose noise is no model error; inf: none */
  int n_thread;      /**< 1 or more; the library does not depend on it */
} mill_spectra_library_settings;

/** Defaults; labels, resolution, arm and source are the caller's. */
void mill_spectra_library_settings_init(mill_spectra_library_settings *settings);

/** What became of a spectrum. */
enum mill_spectrum_fate {
  MILL_SPECTRUM_USED = 0,
  MILL_SPECTRUM_NO_LABEL, /**< a label is not known */
  MILL_SPECTRUM_OUTSIDE,  /**< a label outside the range asked for */
  MILL_SPECTRUM_BAD_FLUX, /**< too many pixels in range are not finite or not above 0 */
  MILL_SPECTRUM_OUTLIER,  /**< unlike the spectra with like labels */
  MILL_N_SPECTRUM_FATE
};

/** Text of a fate, for messages. */
const char *mill_spectrum_fate_text(int fate);

/** What was done and how well it works.
 *
 *  Errors are those of spectra left out one at a time, the principal components and the
 *  weights staying.  Spectra: rms over pixels of ln flux, in per cent.  Labels: those
 *  that fit a spectrum best when it is left out, minus its own; the spectra get noise as
 *  of the S/N asked for, random numbers that depend on the spectrum's row alone.
 */
typedef struct mill_spectra_report {
  int n_spectrum;
  int n_fate[MILL_N_SPECTRUM_FATE];
  unsigned char *fate;             /**< [n_spectrum] enum mill_spectrum_fate, owned */
  int n_outside;                   /**< spectra in use that lie outside the hulls */
  unsigned char *outside;          /**< [n_spectrum] 1: it is one of them, owned */
  double *gap;                     /**< [n_spectrum] part of its pixels that were bad, owned */
  double good_min_aa, good_max_aa; /**< where no spectrum with labels has a bad pixel; 0: nowhere */
  double *velocity;                /**< [n_spectrum] km/s that was taken out, owned */
  int n_align;                     /**< rounds of --align */
  double align_step;               /**< km/s, robust scatter of the last round's changes */
  int n_velocity;                  /**< spectra whose velocity was recovered; 0: not measured */
  double velocity_bias, velocity_scatter; /**< km/s, median and 1.48 MAD */
  double *weight;                         /**< [n_spectrum] 0 where not used, owned */
  double *error;                          /**< [n_spectrum] per cent, NaN where not used, owned */
  int n_component, degree;
  double kept_variance;           /**< part of the variance that the components carry */
  double smooth_min, smooth_max;  /**< smoothings chosen */
  double error_median, error_p95; /**< per cent */
  int n_recovered;                /**< 0: not measured */
  double bias[MILL_MAX_GRID_AXIS], scatter[MILL_MAX_GRID_AXIS]; /**< median and 1.48 MAD */
  mill_model_error_report model_error;                          /**< n 0: not measured */
} mill_spectra_report;

void mill_spectra_report_clear(mill_spectra_report *report); /* NULL is allowed */

/** Build it.  lib zeroed before, cleared on failure; hash and path stay empty.
 *  MILL_ERR_INPUT when the spectra are too few or of no use, MILL_ERR_RANGE for settings,
 *  MILL_ERR_MEMORY.  The same bits whatever the number of threads. */
int mill_spectra_library_build(const mill_spectra_library_settings *settings,
                               const mill_labelled_spectra *spectra, mill_library *lib,
                               mill_spectra_report *report);

#endif
