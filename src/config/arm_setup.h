/* SPDX-License-Identifier: BSD-3-Clause */
/** Arms of template spectra, from a YAML file (config/templates/): wavelengths, pixels, resolution.
 *
 *    arms:
 *      - {name: b, min: 3550, max: 5860, ln_step: 6e-5, sigma: 0.5}
 *      - {name: r, min: 5700, max: 7700, ln_step: 5e-5,
 *         resolving_power: [[5700, 3000], [7700, 4000]]}
 *
 *  sigma (Gaussian, A) and resolving_power (wavelength / FWHM) are numbers, or points [wavelength,
 *  value] between which they are linear and beyond which they stay; without either an arm keeps the
 *  resolution of the input.  at_instrument: true: the spectra then have the instrument's
 *  resolution. */
#ifndef MILL_ARM_SETUP_H
#define MILL_ARM_SETUP_H

#include "kernels/base/common.h"

#define MILL_FWHM_PER_SIGMA 2.3548200450309493

enum { MILL_MAX_SETUP_POINT = 64 };

enum mill_setup_kind { MILL_SETUP_NATIVE = 0, MILL_SETUP_SIGMA, MILL_SETUP_RESOLVING_POWER };

typedef struct mill_setup_arm {
  char name[MILL_MAX_NAME];
  double min_aa, max_aa, ln_step; /**< vacuum */
  enum mill_setup_kind kind;
  int n_point;
  double wave_aa[MILL_MAX_SETUP_POINT], value[MILL_MAX_SETUP_POINT];
  int at_instrument;
} mill_setup_arm;

typedef struct mill_arm_setup {
  int n_arm;
  mill_setup_arm arm[MILL_MAX_ARM];
} mill_arm_setup;

/** MILL_ERR_CONFIG: "FILE:LINE: what is wrong; what to do". */
int mill_arm_setup_read(const char *path, mill_arm_setup *out);

/** Pixels of an arm: the first is at min_aa, the last at or beyond max_aa. */
int mill_setup_arm_n_pix(const mill_setup_arm *arm);

/** Gaussian sigma in A that the arm asks for at a wavelength; for all kinds but MILL_SETUP_NATIVE.
 */
double mill_setup_arm_sigma(const mill_setup_arm *arm, double wave_aa);

#endif
