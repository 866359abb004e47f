/* SPDX-License-Identifier: BSD-3-Clause */
/** A spectrum cut into an arm: convolved with a Gaussian whose width varies along the arm, and
 *  averaged over pixels of uniform ln wavelength.
 *
 *  Pixel p spans [lo, hi] = exp(ln_wave0 + (p -+ 1/2) ln_step), and gets
 *
 *    F_p = int f(x) [Phi((hi - x) / s_p) - Phi((lo - x) / s_p)] dx / (hi - lo),
 *
 *  Phi the normal distribution, s_p the kernel of the pixel, f the natural cubic spline through
 *  the spectrum: flux density averaged over the pixel, so that the integral over pixels is that of
 *  the smoothed spectrum.  Where s_p is 0 it is the average of the spline itself.
 *
 *  The integral is a sum over equal steps in ln wavelength, no longer than those of the spectrum
 *  and than s_p / 2.5, where such sums of a Gaussian times a sampled function are exact to below
 *  1e-9; Gaussians end at 5 sigma (6e-7 of the area).
 */
#ifndef MILL_ARM_CUT_H
#define MILL_ARM_CUT_H

typedef struct mill_arm_cut mill_arm_cut;

/** kernel_aa [n_pix]: Gaussian sigma of the convolution, A, not negative; below 0.01 pixels it
 *  counts as 0 where all are, else as 0.01 pixels.  MILL_ERR_MEMORY. */
int mill_arm_cut_create(int n_pix, double ln_wave0, double ln_step, const double *kernel_aa,
                        mill_arm_cut **out);
void mill_arm_cut_destroy(mill_arm_cut *cut); /* NULL is allowed */

/** First and last wavelength in A that a spectrum must have. */
void mill_arm_cut_range(const mill_arm_cut *cut, double *min_aa, double *max_aa);

/** Prepare for spectra at these n ascending wavelengths (A), or with equal steps; does nothing when
 *  already prepared.  n_thread: 1 or more, does not change the result.  MILL_ERR_INPUT when they do
 *  not cover the arm or are too fine, MILL_ERR_MEMORY. */
int mill_arm_cut_prepare(mill_arm_cut *cut, int n, const double *wave_aa, int n_thread);

/** Cut a spectrum at the wavelengths that mill_arm_cut_prepare had last.
 *
 *  flux [n]      flux density by wavelength; ignored beyond mill_arm_cut_range
 *  out  [n_pix]  the same unit
 *
 *  MILL_ERR_INPUT where a flux is not finite, MILL_ERR_MEMORY. */
int mill_arm_cut_apply(const mill_arm_cut *cut, int n, const double *wave_aa, const double *flux,
                       int n_thread, double *out);

#endif
