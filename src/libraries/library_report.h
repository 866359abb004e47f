/* SPDX-License-Identifier: BSD-3-Clause */
/** Quality of a library, from spectra left out of it: the report of library spectra and train
 *  (docs/use/libraries.md). */
#ifndef MILL_LIBRARY_REPORT_H
#define MILL_LIBRARY_REPORT_H

#include "kernels/data/library.h"
#include "src/libraries/model_error.h"
#include "src/libraries/model_set.h"

enum {
  MILL_REPORT_N_SN = 2,
  MILL_REPORT_WORST = 5,
  MILL_REPORT_MAX = 1000, /**< spectra left out: they are held in memory, with their errors */
  MILL_REPORT_FITS = 200  /**< of these, evenly taken, whose labels are fitted at most */
};

/** S/N a pixel of the fits. */
extern const double mill_report_sn[MILL_REPORT_N_SN]; /* 20, 100 */

/** Distribution of numbers in per cent. */
typedef struct mill_report_error {
  double median, p95, p99, max;
} mill_report_error;

/** A label, or the velocity in km/s, fitted to left-out spectra with noise.
 *
 *  The emulator's own part is the difference from the fit to its own spectrum of the true labels
 *  with the same noise.  Medians over the spectra; scatter: 1.48 MAD. */
typedef struct mill_report_label {
  double bias, scatter;         /**< fitted minus true */
  double sigma;                 /**< error that the fit gives */
  double own_bias, own_scatter; /**< of the emulator's own part */
  double own_in_sigma;          /**< own part over the error of its fit */
  double share;                 /**< (own_bias^2 + own_scatter^2) / (bias^2 + scatter^2) */
} mill_report_label;

typedef struct mill_library_report {
  int n;         /**< spectra measured */
  int n_outside; /**< left out of the report: labels outside the library's hulls */
  int of_continuum[MILL_MAX_ARM];
  mill_report_error pixel[MILL_MAX_ARM + 1]; /**< |error| of all pixels of all spectra; the last,
                                                  [n_arm], of all arms */
  mill_report_error model[MILL_MAX_ARM + 1]; /**< rms of each spectrum over its pixels */
  int n_worst;
  char worst[MILL_REPORT_WORST][64];
  double worst_rms[MILL_REPORT_WORST]; /**< per cent, all arms */
  int n_tried;                         /**< spectra whose labels were fitted */
  int n_fit[MILL_REPORT_N_SN];         /**< of them, fits that ended at finite labels */
  mill_report_label fit[MILL_REPORT_N_SN][MILL_MAX_LABEL + 1]; /**< labels, then velocity */
  mill_model_error_report residual[MILL_MAX_ARM];              /**< n 0: too few spectra */
  mill_model_error error[MILL_MAX_ARM]; /**< owned; fraction NULL: not measured */
} mill_library_report;

void mill_library_report_clear(mill_library_report *report); /* NULL is allowed */

/** Measure it.
 *
 *  spectra      took no part in making the library; fluxes above 0
 *  n_thread     1 or more; does not change the result
 *  n_component  of the residuals, 0 ... MILL_MAX_ERROR; fewer with fewer than twice as many spectra
 *  report       out, zeroed before, cleared on failure
 *
 *  The fits are done in the library's own pixels at its resolution, on ln flux with Gaussian noise
 *  of 1 / S/N in every pixel, with MILL_MODEL_ERROR_CONTINUUM Legendre polynomials an arm free, by
 *  Levenberg-Marquardt from the most alike template of the initial guess,
 *  at the second S/N from what was found at the first.
 *  MILL_ERR_INPUT without spectra inside the hulls, MILL_ERR_RANGE, MILL_ERR_MEMORY. */
int mill_library_report_make(const mill_library *lib, const mill_model_set *spectra, int n_thread,
                             int n_component, mill_library_report *report);

/** The report as lines of text, from mill_alloc: what lib->report keeps.
 *
 *  how  a line that says which spectra were left out, and how the library was made */
int mill_library_report_text(const mill_library *lib, const mill_library_report *report,
                             const char *how, char **text);

#endif
