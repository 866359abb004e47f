/* SPDX-License-Identifier: BSD-3-Clause */
/** The model error of an arm from residuals of spectra whose labels are known
 *  (docs/science/numerics.md, "Model error"). */
#ifndef MILL_LIBRARIES_MODEL_ERROR_H
#define MILL_LIBRARIES_MODEL_ERROR_H

#include "kernels/data/library.h"

enum {
  MILL_MODEL_ERROR_MIN = 8,        /**< spectra that a measurement needs */
  MILL_MODEL_ERROR_COMPONENT = 8,  /**< components by default */
  MILL_MODEL_ERROR_CONTINUUM = 10, /**< functions of the continuum by default, as of the fit
                                        (npoly) */
  MILL_MODEL_ERROR_MAX_LAG = 64    /**< pixels over which correlation is looked for */
};

/** Residuals on an arm's pixels.
 *
 *  value [n][n_pix]  observed over template - 1, NaN where it is not known; the continuum may
 *                    still be in it
 *  weight [n]        0 or more; NULL: 1 for all
 *  noise             rms noise of a pixel of the spectra relative to their flux, 0: none
 *  n_continuum       functions of the continuum over the pixels that are known, 4 ...
 *                    MILL_MAX_CONT; 0: MILL_MODEL_ERROR_CONTINUUM
 *  level [n_pix]     flux of the templates there, any unit, above 0: continuum and components
 *                    are those of the flux, not of the ratio, which is large in the cores of strong
 *                    lines, and in units of their rms nearby (added to 2 %), so that a range where
 *                    data are poor does not take them all; NULL: of the ratio, alike everywhere */
typedef struct mill_residuals {
  int n, n_pix;
  double *value;
  const double *weight;
  double noise;
  int n_continuum;
  double *level;
} mill_residuals;

/** For people. */
typedef struct mill_model_error_report {
  int n;                 /**< spectra */
  double rms;            /**< of the residuals without continuum and noise */
  double left;           /**< part of their variance that the components leave */
  double correlation_aa; /**< length over which the rest is correlated, mid arm */
} mill_model_error_report;

/** Measure it.
 *
 *  wave_aa [n_pix]  in      of the arm
 *  residuals        in/out  the continuum is taken out of value, and NaN becomes 0
 *  n_component      in      0 ... MILL_MAX_ERROR, at most half of the spectra
 *  error            out     zeroed before, cleared on failure.  Pixels beyond all spectra have no
 *                           component; their fraction is the whole error, components and rest, of
 *                           the quarter of the others that is nearest
 *
 *  MILL_ERR_INPUT for too few spectra or pixels without one, MILL_ERR_RANGE, MILL_ERR_MEMORY. */
int mill_model_error_measure(const double *wave_aa, mill_residuals *residuals, int n_component,
                             mill_model_error *error, mill_model_error_report *report);

/** Residuals of labelled spectra of a library's arm: spectra [n][n_pix] on pixels wave_aa, vacuum,
 *  ascending, at rest; label [n][n_label].  A pixel of a spectrum that is not finite or not above 0
 *  is not known.
 *
 *  kernel_aa  Gaussian sigma by which the spectra are broader than the templates, which are
 *             convolved with it first; pixels within 5 of it of the arm's ends are not known then.
 *             0: spectra at the templates' resolution
 *
 *  residuals  out: n, n_pix of the arm, value and level, which the caller frees; the rest stays
 *
 *  MILL_ERR_INPUT for an arm without a pixel so far from its ends, MILL_ERR_MEMORY. */
int mill_model_error_residuals(const mill_library *lib, int arm, int n, int n_pix,
                               const double *wave_aa, const float *flux, const double *label,
                               double kernel_aa, mill_residuals *residuals);

#endif
