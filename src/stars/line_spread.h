/* SPDX-License-Identifier: BSD-3-Clause */
/** Line-spread functions of a star's segments, before its fit: their plausibility, their use, and
 *  their split into a blur on the templates' grid and a broadening on the pixels
 *  (docs/science/numerics.md, "Line-spread function"). */
#pragma once

#include "kernels/data/star.h"
#include "kernels/star/slot.h"

/** How templates are brought to a segment's resolution. */
enum mill_lsf_use {
  MILL_LSF_NO_USE = 0, /**< not at all: templates have it already, or it is unknown */
  MILL_LSF_BY_MATRIX,
  MILL_LSF_BY_SIGMA
};
enum mill_lsf_use mill_lsf_use_of(const mill_library *lib, const mill_fit_settings *set,
                                  const mill_raw_segment *segment);

/** Return sigma, in ln wavelength, of an arm's blur: the part of the line-spread functions that is
 *  applied on the templates' grid; 0: no blur.  It makes templates broad enough for pixels and for
 *  splines on a thinned grid, but not broader than the narrowest line-spread function. */
double mill_lsf_plan_blur(const mill_library *lib, const mill_fit_settings *set,
                          const mill_star *star, int arm);

/** Compute the broadening of templates for a segment with sigmas (MILL_LSF_BY_SIGMA).
 *
 *  blur_ln         in      the arm's mill_lsf_plan_blur
 *  lsf_aa [n_pix]  out     extra Gaussian sigma (A) from the blurred templates to the instrument's
 *                          resolution; 0: none needed, NaN: unusable pixel
 *  n_diag          out     diagonals of resolution rows for these sigmas; 0: none needed
 *  info            in/out  bits of FIT_INFO are added */
void mill_lsf_plan_sigma(const mill_library *lib, const mill_fit_settings *set,
                         const mill_raw_segment *segment, double blur_ln, float *lsf_aa,
                         int *n_diag, int *info);

/** Return the tenth percentile of sigma (A) of a segment's line-spread function over 20 pixels,
 *  without pixels that are not fitted; NaN: unknown.  A matrix row counts as the Gaussian with the
 *  same sum and sum of squares. */
double mill_lsf_width(const mill_fit_settings *set, const mill_raw_segment *segment);

/** Is sigma in the middle of a segment implausible for a spectrograph?  If so, set *sigma_aa, and
 *  the wavelength and pixel width there. */
int mill_lsf_is_odd(const mill_raw_segment *segment, double *sigma_aa, double *wave_aa,
                    double *pixel_aa);

/** Does the resolution matrix move light in the middle of a segment, by *shift_pix pixels? */
int mill_lsf_is_shifting(const mill_raw_segment *segment, double *shift_pix);

/** Make solvers, which remove the templates' Gaussian from a resolution matrix of n_diag diagonals.
 *  This Gaussian is the library's (sigma templ_aa, A), broadened by the blur (sigma blur_ln, in ln
 *  wavelength).  Its sigma in pixels varies along the segment; a solver inverts it for one sigma.
 *
 *  wave_aa [n_pix]  in   wavelengths of the segment
 *  plan             out  sigmas of the solvers; its pointers are not set
 *  solve            out  the solvers, n_solve doubles in all.  If there is more than one solver,
 *                        each pixel's fractional solver index follows (float).  Free by mill_free
 *  bytes            out  size of solve
 *
 *  MILL_ERR_RANGE if the Gaussian has no inverse, MILL_ERR_MEMORY. */
int mill_lsf_make_solvers(int n_diag, int n_pix, const double *wave_aa, double templ_aa,
                          double blur_ln, mill_deconv *plan, double **solve, size_t *n_solve,
                          size_t *bytes);
