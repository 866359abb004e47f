/* SPDX-License-Identifier: BSD-3-Clause */
/** Science settings of a fit, in plain data that a device can hold.
 *
 *  src/config/config_keys.c has their keys in the YAML configuration, with the defaults.
 */
#ifndef MILL_SETTINGS_H
#define MILL_SETTINGS_H

#include "kernels/base/common.h"

MILL_EXTERN_C_BEGIN

enum mill_optimizer { MILL_OPT_HYBRID = 0, MILL_OPT_NELDER_MEAD = 1, MILL_OPT_LM = 2 };
enum mill_likelihood_kind { MILL_LIKE_MARGINAL = 0, MILL_LIKE_PROFILE = 1 };
enum mill_continuum_kind { MILL_CONT_RBF = 0, MILL_CONT_CHEBYSHEV = 1 };
enum mill_precision { MILL_FLOAT32 = 0, MILL_FLOAT64 = 1 };
enum mill_rotation_kind { MILL_ROT_SPLINE = 0, MILL_ROT_LINEAR = 1 };
enum mill_epochs_kind { MILL_EPOCHS_NONE = 0, MILL_EPOCHS_EXPOSURE = 1, MILL_EPOCHS_NIGHT = 2 };
enum mill_resolution_use { MILL_RES_AUTO = 0, MILL_RES_MATRIX = 1, MILL_RES_NONE = 2 };

/** Parameters are ordered VRAD, VSINI, the library's labels, then with velocity offsets one for
 *  each arm of the library but the first. */
enum { MILL_PAR_VRAD = 0, MILL_PAR_VSINI = 1, MILL_PAR_LABEL0 = 2 };

typedef struct mill_wave_range {
  double min_aa, max_aa; /**< vacuum A, both ends excluded from the mask: min < w < max */
} mill_wave_range;

enum { MILL_MAX_WAVE_MASK = 32 };

/** How the posterior of a fitted star is sampled (kernels/star/logic/sample.h). */
typedef struct mill_sample_settings {
  int max_eval;     /**< likelihood evaluations of a star; 0: it is not */
  int n_draw;       /**< samples that are kept one by one */
  double least_ess; /**< a star is done when all parameters have this effective size */
  uint64_t seed;
} mill_sample_settings;

typedef struct mill_fit_settings {
  enum mill_optimizer optimizer;
  enum mill_likelihood_kind likelihood;
  enum mill_continuum_kind continuum;
  int n_cont; /**< continuum functions per segment (npoly), 1..MILL_MAX_CONT, at least */
  enum mill_precision precision; /**< of the emulator and the templates */
  enum mill_resolution_use resolution;
  enum mill_rotation_kind rotation; /**< how rotation acts below a grid step */
  double n_cont_per_1000aa;         /**< as many by width, where more: mill_continuum_count */
  int model_error; /**< 1: what the library knows of its templates' errors is used */
  /** Of the factor of a line-spread function's width: standard deviation; 0: it is 1, negative:
   *  that of the input's format. */
  double lsf_width_error;
  double min_vel_km_s, max_vel_km_s;
  double min_vsini_km_s, max_vsini_km_s;
  double guess_vel_step_km_s; /**< bins of the initial guess */
  double second_start_sn;     /**< below this S/N the fit always runs from the second guess */
  int max_starts;             /**< templates of the guess that a star may start from, 1 or more */
  int n_simplex_round;        /**< rounds of the short simplex of `hybrid` */
  double min_sn;              /**< largest S/N of the arms below it: LOW_SN, no fit; -inf: none */
  int max_eval;               /**< of one star; a simplex that reaches it goes on to the polish */
  int edge_pix;               /**< pixels dropped at each end when a resolution matrix is used */
  double sigma_floor;         /**< sigma of good pixels is at least this times its median */
  double bad_sigma_factor;    /**< sigma of bad pixels in units of |median flux| */
  int rescale_errors;         /**< errors times the root of the reduced chi-square, where above 1 */
  double vrad_floor_km_s;     /**< of the spectra's wavelengths, added to errors of velocities */
  /** 1: a star's arms but its first have velocities of their own, VRAD and an offset. */
  int velocity_offsets;
  double velocity_offset_sigma_km_s; /**< of the Gaussian prior of an offset, about 0 */
  enum mill_epochs_kind epochs;      /**< exposures of a star that get a velocity of their own */
  double epoch_floor_km_s; /**< added to its error for the probability of a constant velocity */
  int binaries; /**< 1: a second star where its lines are seen (kernels/star/logic/pair.h) */
  int n_wave_mask;
  mill_wave_range wave_mask[MILL_MAX_WAVE_MASK]; /**< never used for fitting: the dichroic */
  uint32_t mask_ignore;                          /**< mask bits that do not make a pixel bad */
  /** by parameter, offsets left out: fixed to a value; Gaussian priors (sigma 0: none) */
  int fixed[MILL_MAX_PAR];
  double fixed_value[MILL_MAX_PAR];
  double prior_mean[MILL_MAX_PAR], prior_sigma[MILL_MAX_PAR];
  mill_sample_settings sample;
} mill_fit_settings;

/** Is a wavelength never used? */
static inline int mill_wave_masked(const mill_fit_settings *set, double wave_aa)
{
  int is_masked = 0;
  for (int i = 0; i < set->n_wave_mask; i++)
    is_masked |= wave_aa > set->wave_mask[i].min_aa && wave_aa < set->wave_mask[i].max_aa;
  return is_masked;
}

MILL_EXTERN_C_END

#endif
