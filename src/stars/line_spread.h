/* SPDX-License-Identifier: BSD-3-Clause */
/** Line-spread functions of a star's segments before its fit: which of them are used, how they are
 *  divided between grid and pixels (docs/science/numerics.md, "Line-spread function"), and which
 *  are implausible. */
#ifndef MILL_LINE_SPREAD_H
#define MILL_LINE_SPREAD_H

#include "kernels/data/library.h"
#include "kernels/data/settings.h"
#include "kernels/data/star.h"

/** What takes templates to a segment's resolution. */
enum mill_lsf_use {
  MILL_LSF_NO_USE = 0, /**< nothing: they have it, or nothing is known of it */
  MILL_LSF_BY_MATRIX,
  MILL_LSF_BY_SIGMA
};
enum mill_lsf_use mill_lsf_use_of(const mill_library *lib, const mill_fit_settings *set,
                                  const mill_raw_segment *segment);

/** Sigma in ln wavelength of the part of an arm's line-spread functions that acts on the grid: as
 *  much as makes templates broad enough for the pixels, and less than the pixels' least; 0 where
 *  they are broad enough.  On a grid coarser than the library's at least what its splines need.
 *  With a matrix in steps, for solvers are kept for each. */
double mill_lsf_plan_blur(const mill_library *lib, const mill_fit_settings *set,
                          const mill_star *star, int arm);

/** Difference lsf_aa [n_pix] between the sigmas of a segment of MILL_LSF_BY_SIGMA and the
 *  templates' resolution with this blur: 0 where there is none, NaN where it cannot be used.
 *  *n_diag: diagonals that it needs, 0: none.  Adds bits of FIT_INFO to *info. */
void mill_lsf_plan_sigma(const mill_library *lib, const mill_raw_segment *segment, double blur_ln,
                         float *lsf_aa, int *n_diag, int *info);

/** Sigma in A below which the line-spread function of about a tenth of a segment's pixels is: of
 *  its sigmas, or of the Gaussians with the sums of squares of its matrix' rows; NaN: it has
 *  neither. */
double mill_lsf_width(const mill_raw_segment *segment);

/** Is the sigma in the middle of a segment implausible for a spectrograph?  Then *sigma_aa is
 *  that, at *wave_aa, where pixels are *pixel_aa wide. */
int mill_lsf_is_odd(const mill_raw_segment *segment, double *sigma_aa, double *wave_aa,
                    double *pixel_aa);

/** Does the resolution matrix in the middle of a segment move light?  Then *shift_pix is by how
 *  much. */
int mill_lsf_is_shifting(const mill_raw_segment *segment, double *shift_pix);

#endif
