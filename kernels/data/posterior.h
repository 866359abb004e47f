/* SPDX-License-Identifier: BSD-3-Clause */
/** Result of `starmill sample` for one star: its posterior by importance sampling. */
#pragma once

#include "kernels/base/common.h"

/** POST_FLAG: bit, attribute name, meaning.  Never renumber: files keep them. */
#define MILL_POST_LIST(X)                                                                          \
  X(MILL_POST_NOT_CONVERGED, 1, "NOT_CONVERGED",                                                   \
    "--max-evaluations was reached with POST_ESS below --ess or POST_PARETO_K above 0.7")          \
  X(MILL_POST_LIMIT, 2, "LIMIT",                                                                   \
    "a limit of VRAD or VSINI cuts the posterior: more than 1 % of it lies within 0.1 standard "   \
    "deviations of the limit")                                                                     \
  X(MILL_POST_WIDE, 4, "WIDE",                                                                     \
    "the spectrum says little about a parameter: 95 % of its posterior fill more than 80 % of "    \
    "the allowed range (for a label, the library's range)")                                        \
  X(MILL_POST_HULL, 8, "HULL", "more than 1 % of the samples lie outside the library's hulls")     \
  X(MILL_POST_SHIFTED, 16, "SHIFTED",                                                              \
    "a posterior mean differs from the fitted value by more than half of the formal error")        \
  X(MILL_POST_RESIZED, 32, "RESIZED",                                                              \
    "a posterior standard deviation is below 0.8 or above 1.25 times the fit's formal error")      \
  X(MILL_POST_LOWER, 64, "LOWER_MINIMUM",                                                          \
    "a sample's -2 ln L is more than 1 below the fit's or the refit's, which missed a minimum")    \
  X(MILL_POST_MODES, 128, "MODES", "the posterior has more than one mode")                         \
  X(MILL_POST_SHAPE, 256, "NOT_GAUSSIAN",                                                          \
    "a marginal density differs from the Gaussian of the fit's value and formal error: half the "  \
    "integral of |density - Gaussian| is above 0.15")                                              \
  X(MILL_POST_ONE_STAR, 512, "ONE_STAR",                                                           \
    "the posterior assumes one star of one velocity; the fit has two stars or several velocities")

#define MILL_POST_ENUM(symbol, bit, name, meaning) symbol = bit,
enum mill_post_flag { MILL_POST_LIST(MILL_POST_ENUM) };
#undef MILL_POST_ENUM

enum {
  MILL_N_PERCENTILE = 5, /**< percentiles 2.5, 16, 50, 84 and 97.5 */
  MILL_MAX_DRAW = 1000,
  MILL_N_DENSITY = 64, /**< points of a marginal density */
  MILL_MAX_MODE = 4
};

/** Posterior of one star.  Parameters are ordered VRAD, VSINI, labels.  A parameter fixed in the
 *  fit has its value as mean and percentiles, variance 0 and effective size NaN. */
typedef struct mill_posterior {
  int32_t flag;      /**< bits of enum mill_post_flag */
  int32_t n_eval;    /**< likelihood evaluations */
  double pareto;     /**< Pareto k of the weights */
  double m2ll_least; /**< lowest -2 ln L of a sample, with priors and hull penalty */
  /** ln of the likelihood averaged over the priors, and its error; NaN if a label has no bounds. */
  double ln_evidence, ln_evidence_err;
  double mean[MILL_MAX_PAR];
  double covar[MILL_MAX_COVAR]; /**< packed as mill_fit_result.covar */
  double percentile[MILL_N_PERCENTILE][MILL_MAX_PAR];
  double ess[MILL_MAX_PAR]; /**< effective sample size */
  /** Marginal densities [n_label + 2][MILL_N_DENSITY], 1/unit, at evenly spaced points from
   *  density_low to density_high, both included; NaN for a fixed parameter. */
  double density_low[MILL_MAX_PAR], density_high[MILL_MAX_PAR];
  double density[MILL_MAX_PAR * MILL_N_DENSITY];
  int64_t n_mode;
  double mode_weight[MILL_MAX_MODE]; /**< largest first, sum 1; NaN beyond n_mode */
  /** [MILL_MAX_MODE][n_label + 2] mean and standard deviation of each mode's samples. */
  double mode_mean[MILL_MAX_MODE * MILL_MAX_PAR], mode_sigma[MILL_MAX_MODE * MILL_MAX_PAR];
} mill_posterior;

/** Individual samples [n_draw][n_label + 2], stored directly after the structure. */
MILL_HD static inline double *mill_posterior_draw(const mill_posterior *posterior)
{
  return (double *)(void *)(posterior + 1);
}

/** Bytes of a posterior with its n_draw samples. */
static inline size_t mill_posterior_bytes(int n_draw, int n_deriv)
{
  return sizeof(mill_posterior) + (size_t)n_draw * (size_t)n_deriv * sizeof(double);
}
