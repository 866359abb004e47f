/* SPDX-License-Identifier: BSD-3-Clause */
/** Compute the evidence of a star from its weighted points: the integral of likelihood times
 *  priors, divided by the integral of the priors (docs/science/numerics.md, "Posteriors"). */
#pragma once

#include "kernels/math/block.h"
#include "kernels/star/logic/proposal.h"

/** Draws that estimate which fraction of the priors lies within the hulls. */
enum { MILL_POST_PRIOR_DRAWS = 4096 };

/** Range of parameter j: the limits of velocity or v sin i, or the range of the label. */
MILL_HD static inline void mill_sample_range(const mill_model *m, int j, double *low, double *high)
{
  const int is_label = j >= MILL_PAR_LABEL0 && j < m->n_deriv;
  *low = is_label ? m->label[j - MILL_PAR_LABEL0].min : mill_par_min(m, j);
  *high = is_label ? m->label[j - MILL_PAR_LABEL0].max : mill_par_max(m, j);
}

/** Does the prior of the free parameter j have a finite integral? */
MILL_HD static inline int mill_prior_bounded(const mill_model *m, const mill_slot *slot, int j)
{
  int bounded = j < MILL_PAR_LABEL0 || mill_prior_sigma(m, slot, j) > 0.0;
  for (int h = 0; h < m->n_hull; h++)
    for (int i = 0; i < m->hull[h].n_label; i++)
      bounded = bounded || m->hull[h].label[i] == j - MILL_PAR_LABEL0;
  return bounded;
}

/** Return the integral of exp(-prior penalty / 2) of parameter j within j's limits.  Without a
 *  prior, return the width of j's range. */
MILL_HD_CALLED static inline double mill_prior_integral(const mill_model *m, const mill_slot *slot,
                                                        int j)
{
  const double sigma = mill_prior_sigma(m, slot, j), mean = mill_prior_mean(m, slot, j);
  double lo, hi;
  mill_sample_range(m, j, &lo, &hi);
  if (!(sigma > 0.0))
    return hi - lo;
  lo = (mill_par_min(m, j) - mean) / (sqrt(2.0) * sigma);
  hi = (mill_par_max(m, j) - mean) / (sqrt(2.0) * sigma);
  /* subtract the smaller tails: their difference keeps its digits */
  const double twice = lo > 0.0 ? erfc(lo) - erfc(hi) : erfc(-hi) - erfc(-lo);
  return sqrt(2.0 * MILL_PI) * sigma * (0.5 * twice);
}

/** Draw the free parameters from their priors or ranges (draw i); return exp(-hull penalty / 2). */
MILL_HD_CALLED static inline double mill_prior_left(const mill_model *m, const mill_slot *slot,
                                                    int i)
{
  double theta[MILL_MAX_PAR], z[MILL_MAX_PAR + 1]; /* an odd n_free writes z[n_free] too */
  for (int j = 0; j < m->n_par; j++)
    theta[j] = slot->best.end[j];
  mill_sample_normals(m, slot, i, MILL_DRAW_PRIOR, slot->n_free, z);
  for (int k = 0; k < slot->n_free; k++) {
    const int j = slot->free_par[k];
    const double sigma = mill_prior_sigma(m, slot, j);
    double lo, hi;
    mill_sample_range(m, j, &lo, &hi);
    /* without a prior the normal z gives a uniform number in the range */
    theta[j] = sigma > 0.0 ? mill_prior_mean(m, slot, j) + z[k] * sigma
                           : lo + (hi - lo) * 0.5 * erfc(-z[k] * 0.70710678118654752);
  }
  return exp(-0.5 * mill_hull_penalty(m, slot, theta));
}

/** Return ln of the integral of exp(-(penalty of priors and hulls) / 2); NaN: infinite.  *var: the
 *  variance of this ln, because the hulls' factor is a mean over random draws. */
MILL_BLOCK_FN double mill_block_prior_integral(mill_block *b, const mill_model *m,
                                               const mill_slot *slot, double *var)
{
  double ln_all = 0.0, left = 0.0; /* left: mean of exp(-hull penalty / 2) */
  *var = 0.0;
  for (int k = 0; k < slot->n_free; k++) {
    const int j = slot->free_par[k];
    ln_all += log(mill_prior_integral(m, slot, j));
    if (!mill_prior_bounded(m, slot, j))
      return (double)NAN;
  }
  if (m->n_hull == 0)
    return ln_all;
  MILL_FOR(b, i, MILL_POST_PRIOR_DRAWS)
  {
    left += mill_prior_left(m, slot, i) / MILL_POST_PRIOR_DRAWS;
  }
  left = mill_block_sum(b, left);
  *var = (1.0 - left) / (left * MILL_POST_PRIOR_DRAWS); /* binomial: as if each draw gave 0 or 1 */
  return ln_all + log(left);
}

/** Do exposures share template or width errors?  F counts the ln det of such an error once for each
 *  exposure, so F's normalisation, and with it the evidence, is wrong. */
MILL_HD static inline int mill_is_shared(const mill_model *m, const mill_slot *slot)
{
  int shared = 0;
  for (int i = 0; i < slot->n_segment; i++) {
    const mill_segment *s = &slot->segment[i];
    shared |= s->used && s->error_fixed && s->n_share > 1.0 &&
              (m->arm[s->arm].error.fraction || s->width_error > 0.0);
  }
  return shared;
}

/** Store ln of the evidence and its error in the posterior.  The integral of exp(-F/2) is the sum
 *  of the points' weights, which include 1 / (number of draws); refused draws have weight 0. */
MILL_BLOCK_FN void mill_block_evidence(mill_block *b, const mill_model *m, mill_slot *slot)
{
  const mill_sample *s = &slot->sample;
  const double n = (double)slot->n_free, t = MILL_PART_T;
  double part[2] = {0.0, 0.0}, sum[2], var = 0.0;
  MILL_FOR(b, i, s->n_point)
  {
    const double w = exp((double)s->ln_w[i]);
    part[0] += w;
    part[1] += w * w;
  }
  mill_block_sum_n(b, part, 2, sum);
  /* ln of the t distribution's normalisation, which the densities leave out */
  const double ln_t = lgamma(0.5 * (t + n)) - lgamma(0.5 * t) - 0.5 * n * log(t * MILL_PI);
  const double ln_prior = /* NaN: exposures share an error, so F lacks the right normalisation */
      mill_is_shared(m, slot) ? (double)NAN : mill_block_prior_integral(b, m, slot, &var);
  MILL_SERIAL(b)
  {
    const double ln_z = s->ln_most + log(sum[0]) - ln_t - 0.5 * slot->result.m2ll - ln_prior;
    const double size = sum[0] * sum[0] / sum[1];
    s->posterior->ln_evidence = isfinite(ln_z) ? ln_z : (double)NAN;
    s->posterior->ln_evidence_err =
        isfinite(ln_z) ? sqrt(1.0 / size - 1.0 / (double)s->n_draw + var) : (double)NAN;
  }
}
