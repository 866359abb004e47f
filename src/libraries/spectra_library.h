/* SPDX-License-Identifier: BSD-3-Clause */
/** A library from labelled spectra on one wavelength grid: observed stars or models at
 *  scattered labels (docs/use/libraries.md). */
#ifndef MILL_SPECTRA_LIBRARY_H
#define MILL_SPECTRA_LIBRARY_H

#include <stdio.h>

#include "kernels/data/library.h"
#include "src/libraries/model_error.h"
#include "src/libraries/model_set.h"

enum { MILL_SPECTRA_LIBRARY_MAX_CONTINUUM = 20 };

/** Spectra and their labels.
 *
 *  wave_aa [n_pix]              vacuum A, ascending; owned
 *  flux    [n_spectrum][n_pix]  flux density in any unit, each spectrum in its own; owned
 *  label   [n_spectrum][n_label]  in the labels' units, NaN: not known; owned
 *  weight  [n_spectrum]         of its residuals to begin with; NULL: 1; owned
 *  name    [n_spectrum]         of files with one spectrum each, else NULL; owned
 */
typedef struct mill_labelled_spectra {
  int n_spectrum, n_pix, n_label;
  double *wave_aa;
  float *flux;
  double *label, *weight;
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
  int hull_all;             /**< 1: hulls around all spectra; 0: without isolated ones */
  int n_guess;
  int n_error;     /**< components of a model error from spectra left out; -1: no model error */
  double error_sn; /**< S/N a pixel of the spectra, whose noise is no model error; inf: none */
  int n_thread;    /**< 1 or more; the library does not depend on it */
} mill_spectra_library_settings;

/** Defaults; labels, resolution, arm and source are the caller's. */
void mill_spectra_library_settings_init(mill_spectra_library_settings *settings);

/** Use of a spectrum. */
enum mill_spectrum_fate {
  MILL_SPECTRUM_USED = 0,
  MILL_SPECTRUM_NO_LABEL, /**< a label is not known */
  MILL_SPECTRUM_OUTSIDE,  /**< a label outside the range asked for */
  MILL_SPECTRUM_BAD_FLUX, /**< too many pixels in range are not finite or not above 0 */
  MILL_SPECTRUM_OUTLIER,  /**< unlike the spectra with similar labels */
  MILL_N_SPECTRUM_FATE
};

/** Text of a use, for messages. */
const char *mill_spectrum_fate_text(int fate);

/** What was done. */
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
  double *weight;                  /**< [n_spectrum] 0 where not used, owned */
  int n_component, degree;
  double kept_variance;                /**< part of the variance that the components carry */
  double smooth_min, smooth_max;       /**< smoothings chosen */
  mill_model_error_report model_error; /**< n 0: not measured */
} mill_spectra_report;

void mill_spectra_report_clear(mill_spectra_report *report); /* NULL is allowed */

/** Build it.  lib zeroed before, cleared on failure; hash and path stay empty.
 *
 *  used  out  spectra in use as the functions of the labels saw them: on the library's pixels,
 *             without velocity, continuum and level, gaps filled; in the order of the input.
 *             Zeroed before, cleared by the caller, also on failure; NULL: not wanted
 *
 *  MILL_ERR_INPUT when the spectra are too few or of no use, MILL_ERR_RANGE for settings,
 *  MILL_ERR_MEMORY.  The same bits whatever the number of threads. */
int mill_spectra_library_build(const mill_spectra_library_settings *settings,
                               const mill_labelled_spectra *spectra, mill_library *lib,
                               mill_spectra_report *report, mill_model_set *used);

/** For the report of a library (library_report.h): one made with the same settings and weights
 *  from a part of its spectra, and the others, which these lie around.
 *
 *  lib, report, used  from mill_spectra_library_build
 *  part               of the spectra to be left out; MILL_REPORT_MAX of them at most
 *  seed               of the choice
 *  without            out  zeroed before
 *  left_out           out  zeroed before; n 0: no spectrum has others on all sides, and without is
 *                          as before
 *
 *  Both are the caller's to clear, also on failure.  MILL_ERR_INPUT when too few are left. */
int mill_spectra_left_out(const mill_spectra_library_settings *settings, const mill_library *lib,
                          const mill_spectra_report *report, const mill_model_set *used,
                          double part, uint64_t seed, mill_library *without,
                          mill_model_set *left_out);

#endif
