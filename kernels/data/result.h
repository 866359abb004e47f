/* SPDX-License-Identifier: BSD-3-Clause */
/** Result of a fit of one star: STATUS, warnings, parameters, errors. */
#pragma once

#include "kernels/base/common.h"
#include "kernels/data/library.h"
#include "kernels/data/posterior.h"

MILL_EXTERN_C_BEGIN

/** STATUS of a row: code, attribute name, meaning.  Never renumber: files keep them. */
#define MILL_STATUS_LIST(X)                                                                        \
  X(MILL_STATUS_NOT_DONE, 0, "NOT_DONE", "not done yet")                                           \
  X(MILL_STATUS_FITTED, 1, "FITTED", "fitted")                                                     \
  X(MILL_STATUS_LOW_SN, 2, "LOW_SN", "signal-to-noise below minsn")                                \
  X(MILL_STATUS_NO_ARM, 3, "NO_USABLE_ARM",                                                        \
    "no arm has a usable pixel; all are masked, zero, not finite or of unknown line width")        \
  X(MILL_STATUS_UNREADABLE, 4, "UNREADABLE", "pixels could not be read from the file")             \
  X(MILL_STATUS_NO_RESOLUTION, 5, "NO_RESOLUTION",                                                 \
    "the library needs a line-spread function, and none is known")                                 \
  X(MILL_STATUS_OUTSIDE_LIBRARY, 6, "OUTSIDE_LIBRARY",                                             \
    "wavelengths outside the library's templates")                                                 \
  X(MILL_STATUS_FIT_FAILED, 7, "FIT_FAILED", "no finite likelihood was found, or no memory")       \
  X(MILL_STATUS_BAD_LSF, 8, "BAD_LSF",                                                             \
    "line-spread function missing or out of range in all good pixels")                             \
  X(MILL_STATUS_NO_FIT, 9, "NO_FIT",                                                               \
    "sample: the result given by --fit has no solution with this library")                         \
  X(MILL_STATUS_OTHER_SPECTRUM, 10, "OTHER_SPECTRUM",                                              \
    "sample: the spectrum differs from the spectrum fitted in the result given by --fit")

#define MILL_STATUS_ENUM(symbol, code, name, meaning) symbol = code,
enum mill_status { MILL_STATUS_LIST(MILL_STATUS_ENUM) MILL_N_STATUS };
#undef MILL_STATUS_ENUM

/** RVS_WARN: bits 1..64 are rvspecfit's, ours start at 256.  SUCCESS is RVS_WARN = 0. */
#define MILL_WARN_LIST(X)                                                                          \
  X(MILL_WARN_CHISQ, 1, "CHISQ", "chi-square is less than 50 below that of a continuum alone")     \
  X(MILL_WARN_VEL_LIMIT, 2, "VEL_LIMIT", "velocity within 5 km/s of a limit")                      \
  X(MILL_WARN_VEL_ERR, 4, "VEL_ERR", "velocity error above 100 km/s")                              \
  X(MILL_WARN_LABEL_EDGE, 8, "LABEL_EDGE", "a label at the edge of rvspecfit's parameter range")   \
  X(MILL_WARN_VSINI, 16, "VSINI", "v sin i above 100 km/s")                                        \
  X(MILL_WARN_BAD_SPECTRUM, 32, "BAD_SPECTRUM", "bad spectrum")                                    \
  X(MILL_WARN_BAD_HESSIAN, 64, "BAD_HESSIAN", "curvature not positive definite: errors unusable")  \
  X(MILL_WARN_HULL, 256, "HULL", "labels at or outside the library's hulls: errors not Gaussian")  \
  X(MILL_WARN_NEGATIVE, 512, "NEGATIVE", "the model is negative in pixels: wrong sky or sign")     \
  X(MILL_WARN_OUTLIER, 1024, "OUTLIER", "one pixel dominates the chi-square")                      \
  X(MILL_WARN_POOR_FIT, 2048, "POOR_FIT", "reduced chi-square far above what the noise allows")    \
  X(MILL_WARN_NOT_CONVERGED, 4096, "NOT_CONVERGED", "the optimizer did not converge")              \
  X(MILL_WARN_NONFINITE, 8192, "NONFINITE", "NaN or infinity appeared in the fit")                 \
  X(MILL_WARN_NO_STAR, 16384, "NO_STAR",                                                           \
    "a template fits hardly better than a continuum alone: the library has no such star")          \
  X(MILL_WARN_CLASS, 32768, "CLASS", "redrock or the survey classifies it as galaxy or quasar")    \
  X(MILL_WARN_BROAD, 65536, "VSINI_LIMIT",                                                         \
    "v sin i at its upper limit, above 100 km/s: a white dwarf, or a star that the library lacks") \
  X(MILL_WARN_EMISSION, 131072, "EMISSION",                                                        \
    "the core of H alpha or H beta is in emission: labels are wrong, the velocity perhaps too")    \
  X(MILL_WARN_ARMS, 262144, "ARMS_DIFFER",                                                         \
    "the velocities of the arms differ: VRAD_ARMS_PVAL below 1e-6")

/** Warnings that make the velocity unreliable.  Not among them: fast rotation, and labels at an
 *  edge, outside the hulls or undetermined. */
#define MILL_WARN_VELOCITY                                                                         \
  (MILL_WARN_CHISQ | MILL_WARN_VEL_LIMIT | MILL_WARN_VEL_ERR | MILL_WARN_BAD_SPECTRUM |            \
   MILL_WARN_NEGATIVE | MILL_WARN_OUTLIER | MILL_WARN_POOR_FIT | MILL_WARN_NOT_CONVERGED |         \
   MILL_WARN_NONFINITE | MILL_WARN_NO_STAR | MILL_WARN_CLASS | MILL_WARN_BROAD | MILL_WARN_ARMS)

/** Warnings that say that the spectrum is hardly a star's. */
#define MILL_WARN_NOT_STELLAR (MILL_WARN_NO_STAR | MILL_WARN_CLASS)

#define MILL_WARN_ENUM(symbol, bit, name, meaning) symbol = bit,
enum mill_warn { MILL_WARN_LIST(MILL_WARN_ENUM) };
#undef MILL_WARN_ENUM

/** Two solutions tie if their -2 ln L differ by less than this times the reduced chi-square. */
#define MILL_TWO_MINIMA_GAP 4.0

/** FIT_INFO: bits of facts that are no warnings. */
#define MILL_INFO_LIST(X)                                                                          \
  X(MILL_INFO_VSINI_ZERO, 1, "VSINI_UNRESOLVED",                                                   \
    "no rotation is detected: (v sin i)^2 is within 2 errors of its lower limit; if VSINI "        \
    "is at its lower limit, VSINI + VSINI_ERR is a 1-sigma upper limit")                           \
  X(MILL_INFO_SECOND_START, 2, "SECOND_START", "the best solution of two or more starts is kept")  \
  X(MILL_INFO_FALLBACK, 4, "FALLBACK",                                                             \
    "Levenberg-Marquardt steps did not converge; another optimizer was used")                      \
  X(MILL_INFO_ARM_DROPPED, 8, "ARM_DROPPED", "an arm or exposure in the file had no good pixel")   \
  X(MILL_INFO_LSF_NARROW, 16, "LSF_NARROW",                                                        \
    "templates are broader than the line-spread function in a tenth of an arm or more")            \
  X(MILL_INFO_LSF_UNUSABLE, 32, "LSF_UNUSABLE",                                                    \
    "no usable line-spread function in a tenth of an arm or more; these pixels are not fitted")    \
  X(MILL_INFO_GIVEN_START, 64, "GIVEN_START", "fitted from the values of the start table")         \
  X(MILL_INFO_TWO_MINIMA, 128, "TWO_MINIMA",                                                       \
    "two starts or libraries ended in different minima of about equal quality, or, of three or "   \
    "more starts, only one found the best minimum")                                                \
  X(MILL_INFO_NEAR_HULL, 256, "NEAR_HULL",                                                         \
    "the labels are within one error of a hull's edge: errors of labels are not Gaussian")         \
  X(MILL_INFO_STIFF, 512, "STIFF_CONTINUUM",                                                       \
    "the residuals of an arm vary slowly with wavelength: too few continuum functions (npoly)")    \
  X(MILL_INFO_PRIOR, 1024, "PRIOR", "fitted with priors from prior_table")                         \
  X(MILL_INFO_EPOCHS, 2048, "EPOCHS_DIFFER",                                                       \
    "the velocities of the epochs differ: labels are fitted with each epoch at its own velocity, " \
    "and VRAD is the mean velocity")                                                               \
  X(MILL_INFO_PAIR, 4096, "PAIR",                                                                  \
    "fitted as two stars: the row describes the brighter star, columns ending in _2 the other")    \
  X(MILL_INFO_NOISE, 8192, "ODD_NOISE",                                                            \
    "CHISQ_NOISE is far from the number of pixels: wrong errors in the file, or S/N above 100")    \
  X(MILL_INFO_LSF_SCALED, 16384, "LSF_SCALED",                                                     \
    "row sums of the resolution matrix differ by more than 1 % in an arm: rows are scaled to "     \
    "the median sum")                                                                              \
  X(MILL_INFO_LSF_COARSE, 32768, "LSF_COARSE",                                                     \
    "pixels too coarse for the line-spread function in a tenth of an arm: v sin i is too large")

#define MILL_INFO_ENUM(symbol, bit, name, meaning) symbol = bit,
enum mill_info { MILL_INFO_LIST(MILL_INFO_ENUM) };
#undef MILL_INFO_ENUM

/** MGFE_FLAG and so on: why an element's value should not be used (bits). */
#define MILL_ELEMENT_LIST(X)                                                                       \
  X(MILL_ELEMENT_NONE, 1, "NO_VALUE", "the element was not fitted, or the row's library lacks it") \
  X(MILL_ELEMENT_WEAK, 2, "WEAK",                                                                  \
    "fixed, an error above element_max_err, or a prior that weighs more than the spectrum")        \
  X(MILL_ELEMENT_EDGE, 4, "EDGE", "abundance at the edge of the library's range, or beyond it")    \
  X(MILL_ELEMENT_LINES, 8, "POOR_LINES", "poor fit in the pixels that determine the element")

#define MILL_ELEMENT_ENUM(symbol, bit, name, meaning) symbol = bit,
enum mill_element_flag { MILL_ELEMENT_LIST(MILL_ELEMENT_ENUM) };
#undef MILL_ELEMENT_ENUM

/** EPOCH_FLAG: why an epoch has no velocity or uncertain velocities (bits). */
#define MILL_EPOCH_LIST(X)                                                                         \
  X(MILL_EPOCH_NO_DATA, 1, "NO_DATA", "no usable pixel")                                           \
  X(MILL_EPOCH_NO_MINIMUM, 2, "NO_MINIMUM", "no minimum of -2 ln L near the star's velocity")      \
  X(MILL_EPOCH_LIMIT, 4, "VEL_LIMIT", "the search for the velocity reached min_vel or max_vel")    \
  X(MILL_EPOCH_EXCHANGEABLE, 8, "EXCHANGEABLE",                                                    \
    "two stars: -2 ln L does not tell which velocity belongs to which star, or no epoch "          \
    "separates the two stars")                                                                     \
  X(MILL_EPOCH_MASS_RATIO, 16, "MASS_RATIO",                                                       \
    "two stars with blended lines: their velocities use the mass ratio that other epochs gave")

#define MILL_EPOCH_ENUM(symbol, bit, name, meaning) symbol = bit,
enum mill_epoch_flag { MILL_EPOCH_LIST(MILL_EPOCH_ENUM) };
#undef MILL_EPOCH_ENUM

/** Velocity of one epoch (kernels/star/logic/epochs.h); NaN if a flag says why it has none. */
typedef struct mill_epoch_result {
  double vrad_km_s, vrad_err_km_s;
  double pair_vrad_km_s, pair_vrad_err_km_s; /**< velocity of a second star; NaN: none */
  double sn;                                 /**< largest S/N of the epoch's arms; -1e9: none */
  int32_t epoch;                             /**< index of the epoch among the star's */
  int32_t flag;
} mill_epoch_result;

/** One star's row.  Missing values are NaN (chi-squares, errors), -1e9 (S/N, as rvspecfit has it)
 *  or 0 (counts).
 *
 *  covar: upper triangle, row by row, of the covariances of VRAD, VSINI and the labels,
 *  marginalised over velocity offsets.  Parameters that are fixed or at a limit have zeros. */
typedef struct mill_fit_result {
  int64_t row; /**< row of /fits */
  int32_t status;
  int32_t n_label;
  int64_t warn;
  int32_t info;
  int32_t n_eval; /**< likelihood evaluations; a Jacobian or a velocity profile counts once */
  int32_t n_jac;  /**< Jacobians among them */
  double vrad_km_s, vrad_err_km_s, vrad_skew, vrad_kurt;
  double vrad_guess_km_s; /**< velocity of the initial guess (VRAD_CCF) */
  double vsini_km_s, vsini_err_km_s;
  double label[MILL_MAX_LABEL], label_err[MILL_MAX_LABEL];
  /** Scale factor of the errors, and the errors before scaling. */
  double err_scale, vrad_err_formal_km_s, vsini_err_formal_km_s;
  double label_err_formal[MILL_MAX_LABEL];
  int32_t label_flag[MILL_MAX_LABEL]; /**< of elements (enum mill_element_flag) */
  double covar[MILL_MAX_COVAR];
  double m2ll; /**< -2 ln L with priors and hull penalty at the solution */
  /** Measure by which libraries are compared: chisq_data less the number of good pixels, plus
   *  priors and hull penalty.  Model error and the continuum's determinant, which say nothing about
   *  the templates, are left out. */
  double excess;
  /** guess_chisq: chi-square of the guess's best template (only differences have a meaning).
   *  guess_tie: a library whose guess_chisq is at most this ties.  Both are infinite: no guess. */
  double guess_chisq, guess_tie;
  uint8_t library;  /**< 1 + index of the row's library; 0: not fitted, or the run has only one */
  double hull_dist; /**< distance outside the hulls, mapped labels; 0 inside */
  double chisq_tot, chisq_c_tot, rchisq_tot;
  /** chisq_data, chisq_c_data: chisq_tot and chisq_c_tot without model error.  chisq_noise: the
   *  part of chisq_data due to noise, from differences of residuals (mill_block_noise). */
  double chisq_data, chisq_c_data, chisq_noise;
  int64_t n_pix_tot;
  /** By arm of the library, summed over exposures. */
  double chisq[MILL_MAX_ARM], chisq_c[MILL_MAX_ARM];
  double rchisq[MILL_MAX_ARM]; /**< chisq over degrees of freedom; NaN if these are 0 */
  double stiff[MILL_MAX_ARM];  /**< fraction of chisq that more continuum functions might remove */
  double vrad_arm_km_s[MILL_MAX_ARM], vrad_arm_err_km_s[MILL_MAX_ARM]; /**< from this arm alone */
  /** An arm's velocity minus VRAD, fitted with all arms; 0 in the library's first arm. */
  double vrad_offset_km_s[MILL_MAX_ARM], vrad_offset_err_km_s[MILL_MAX_ARM];
  /** p-value of one velocity for all arms; NaN: fewer than two arms. */
  double vrad_arms_pval;
  double sn[MILL_MAX_ARM];
  int64_t n_pix[MILL_MAX_ARM]; /**< good pixels */
  /** n_epoch: epochs with a velocity.  vrad_chi2: chi-square of a constant velocity.  vrad_pval:
   *  probability of a larger vrad_chi2.  vrad_range_km_s: largest minus smallest velocity. */
  int64_t n_epoch;
  double vrad_chi2, vrad_pval, vrad_range_km_s;
  /** A second star at another velocity.  pair_peak: significance of the best match of a template
   *  with the first star's residuals.  The other values need MILL_INFO_PAIR.  pair_gain: decrease
   *  of -2 ln L by the second star.  flux_ratio: its flux over the first star's, by arm. */
  int32_t pair; /**< 1: two stars */
  double pair_peak, pair_gain;
  double pair_vrad_km_s, pair_vrad_err_km_s, pair_vsini_km_s, pair_vsini_err_km_s;
  double pair_label[MILL_MAX_LABEL], pair_label_err[MILL_MAX_LABEL];
  double flux_ratio[MILL_MAX_ARM], flux_ratio_err[MILL_MAX_ARM];
  uint32_t epoch_crc; /**< CRC-32 of the star's rows of /epochs, set when they are written */
  /** Posterior on the host, borrowed until the pipeline's sink returns; NULL: not sampled. */
  const mill_posterior *posterior;
  /** Results of the star's epochs, also borrowed; NULL: not wanted. */
  const mill_epoch_result *epoch;
} mill_fit_result;

/** Set n_label, and set the values of these labels to missing, for both stars. */
void mill_fit_result_clear_labels(mill_fit_result *result, int n_label);

/** Set row, status and n_label, and all other values to missing (mill_fit_result).  The status of a
 *  star that was not fitted also sets MILL_WARN_BAD_SPECTRUM, so that SUCCESS is false. */
void mill_fit_result_init(mill_fit_result *result, const mill_library *lib, int64_t row,
                          int status);

MILL_EXTERN_C_END
