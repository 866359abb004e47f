/* SPDX-License-Identifier: BSD-3-Clause */
/** Science settings of a fit, as plain data that can be copied to a device.
 *
 *  src/config/config_keys.c has their keys in the YAML configuration, with the defaults. */
#pragma once

#include "kernels/base/common.h"

enum mill_optimizer { MILL_OPT_HYBRID = 0, MILL_OPT_NELDER_MEAD = 1, MILL_OPT_LM = 2 };
enum mill_likelihood_kind { MILL_LIKE_MARGINAL = 0, MILL_LIKE_PROFILE = 1, MILL_LIKE_AUTO = 2 };
enum mill_continuum_kind { MILL_CONT_RBF = 0, MILL_CONT_CHEBYSHEV = 1 };
enum mill_precision { MILL_FLOAT32 = 0, MILL_FLOAT64 = 1 };
enum mill_rotation_kind { MILL_ROT_SPLINE = 0, MILL_ROT_LINEAR = 1 };
enum mill_epochs_kind { MILL_EPOCHS_NONE = 0, MILL_EPOCHS_EXPOSURE = 1, MILL_EPOCHS_NIGHT = 2 };
enum mill_resolution_use { MILL_RES_AUTO = 0, MILL_RES_MATRIX = 1, MILL_RES_NONE = 2 };

/** Parameters are ordered VRAD, VSINI, the library's labels, then, with velocity_offsets, one
 *  offset for each arm of the library except the first. */
enum { MILL_PAR_VRAD = 0, MILL_PAR_VSINI = 1, MILL_PAR_LABEL0 = 2 };

typedef struct mill_wave_range {
  double min_aa, max_aa; /**< vacuum A, both ends excluded from the mask: min < w < max */
} mill_wave_range;

enum { MILL_MAX_WAVE_MASK = 32 };

/** How the posterior of a fitted star is sampled (kernels/star/logic/sample.h). */
typedef struct mill_sample_settings {
  int max_eval;     /**< likelihood evaluations per star; 0: no sampling */
  int n_draw;       /**< individual samples kept per star */
  double least_ess; /**< sampling ends when every parameter has this effective sample size */
  uint64_t seed;
} mill_sample_settings;

typedef struct mill_fit_settings {
  enum mill_optimizer optimizer;
  enum mill_likelihood_kind likelihood;
  enum mill_continuum_kind continuum;
  int n_cont; /**< least number of continuum functions per segment (npoly), 1..MILL_MAX_CONT */
  enum mill_precision precision; /**< precision of emulator and templates */
  enum mill_resolution_use resolution;
  enum mill_rotation_kind rotation; /**< broadening kernel (kernels/math/rotation.h) */
  double n_cont_per_1000aa; /**< continuum functions per 1000 A, if this gives more than n_cont */
  int model_error;          /**< 1: use the library's model error */
  /** Relative standard deviation of the line-spread function's width; 0: the width is exact,
   *  negative: the value of the input's format. */
  double lsf_width_error;
  double min_vel_km_s, max_vel_km_s;
  double min_vsini_km_s, max_vsini_km_s;
  double guess_vel_step_km_s; /**< velocity step of the initial guess */
  double second_start_sn;     /**< below this S/N the second start always runs */
  int max_starts;             /**< most guess templates from which a star may start, 1 or more */
  int n_simplex_round;        /**< evaluations of the short simplex of `hybrid` */
  double min_sn; /**< a star below this S/N in every arm is not fitted (LOW_SN); -inf: no limit */
  int max_eval;  /**< evaluations that end a star's simplex; a last polish follows, but no start */
  int edge_pix;  /**< pixels dropped at each end of an arm with a resolution matrix */
  double sigma_floor;      /**< least sigma of good pixels, in units of the median sigma */
  double bad_sigma_factor; /**< sigma of bad pixels in units of |median flux| */
  double element_max_err;  /**< dex; an element with a larger error gets MILL_ELEMENT_WEAK */
  int rescale_errors;      /**< 1: multiply errors by sqrt(reduced chi-square), if above 1 */
  double vrad_floor_km_s;  /**< wavelength-scale error, added in quadrature to velocity errors */
  /** 1: each arm of a star except the first has the velocity VRAD + offset. */
  int velocity_offsets;
  double velocity_offset_sigma_km_s; /**< sigma of the offsets' Gaussian prior of mean 0, km/s */
  enum mill_epochs_kind epochs;      /**< velocities for each exposure or night, or none */
  double epoch_floor_km_s; /**< added in quadrature to epochs' errors, in weights and chi-square */
  int binaries; /**< 1: fit a second star if its lines are seen (kernels/star/logic/pair.h) */
  int n_wave_mask;
  mill_wave_range wave_mask[MILL_MAX_WAVE_MASK]; /**< ranges never fitted, such as the dichroic */
  uint32_t mask_ignore;                          /**< mask bits that do not make a pixel bad */
  /** Of each parameter; velocity offsets are not among these parameters. */
  int fixed[MILL_MAX_PAR]; /**< 1: the parameter stays at fixed_value */
  double fixed_value[MILL_MAX_PAR];
  double prior_mean[MILL_MAX_PAR], prior_sigma[MILL_MAX_PAR]; /**< sigma 0: no prior */
  mill_sample_settings sample;
} mill_fit_settings;

/** Is a wavelength (A) masked in all fits? */
static inline int mill_wave_masked(const mill_fit_settings *set, double wave_aa)
{
  int is_masked = 0;
  for (int i = 0; i < set->n_wave_mask; i++)
    is_masked |= wave_aa > set->wave_mask[i].min_aa && wave_aa < set->wave_mask[i].max_aa;
  return is_masked;
}
