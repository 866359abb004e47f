/* SPDX-License-Identifier: BSD-3-Clause */
/** Effective size of a star's weighted points, the evidence, and the posterior that they end as.
 *
 *  Serial code, run by one thread of a star's block (docs/science/numerics.md, "Posteriors").
 */
#ifndef MILL_SAMPLE_SUMMARY_H
#define MILL_SAMPLE_SUMMARY_H

#include "kernels/star/marginal.h"
#include "kernels/star/proposal.h"

#define MILL_POST_SHARE 0.01 /**< of the samples, for the flags LIMIT and HULL */
/** Quantiles from which a marginal density reaches to the same one from above. */
#define MILL_POST_TAIL   0.001
#define MILL_POST_DIFFER 0.15 /**< for the flag NOT_GAUSSIAN */
#define MILL_POST_PARETO 0.7  /**< Pareto k of the weights up to which they are believed */

enum {
  MILL_POST_COPIES = 8, /**< samples of a posterior by point, where there is room */
  MILL_POST_HULL_DRAWS = 256,
  MILL_POST_PRIOR_DRAWS = 4096 /**< for the part of the priors that the hulls leave */
};

/** Effective size of the weights of the points from `first` on, or of the mean of the free parameter
 *  where it is least; s->ess has those of the parameters: variance by that of the mean. */
MILL_HD_CALLED static inline double mill_sample_size(mill_slot *slot, int first)
{
  mill_sample *s = &slot->sample;
  double least = mill_weights_size(s->n_point - first, s->ln_w + first, 1.0);
  for (int k = 0; k < slot->n_free; k++) {
    double sum = 0.0, mean = 0.0, var = 0.0, of_mean = 0.0;
    for (int i = first; i < s->n_point; i++) {
      const double w = exp((double)s->ln_w[i]);
      sum += w;
      mean += w * (double)mill_sample_point(slot, i)[k];
    }
    mean /= sum;
    for (int i = first; i < s->n_point; i++) {
      const double w = exp((double)s->ln_w[i]);
      const double d = w * ((double)mill_sample_point(slot, i)[k] - mean);
      var += d * ((double)mill_sample_point(slot, i)[k] - mean);
      of_mean += d * d;
    }
    s->ess[k] = of_mean > 0.0 ? sum * var / of_mean : 0.0;
    least = s->ess[k] < least ? s->ess[k] : least;
  }
  return least;
}

/* ---- evidence ---- */

/** Where parameter j can be: between the limits of velocity and v sin i, the edges of a label's
 *  range. */
MILL_HD static inline void mill_sample_range(const mill_model *m, int j, double *low, double *high)
{
  const int is_label = j >= MILL_PAR_LABEL0 && j < m->n_deriv;
  *low = is_label ? m->label[j - MILL_PAR_LABEL0].min : mill_par_min(m, j);
  *high = is_label ? m->label[j - MILL_PAR_LABEL0].max : mill_par_max(m, j);
}

/** Is the prior of a free parameter normalisable? */
MILL_HD static inline int mill_prior_bounded(const mill_model *m, const mill_slot *slot, int j)
{
  int bounded = j < MILL_PAR_LABEL0 || mill_prior_sigma(m, slot, j) > 0.0;
  for (int h = 0; h < m->n_hull; h++)
    for (int i = 0; i < m->hull[h].n_label; i++)
      bounded = bounded || m->hull[h].label[i] == j - MILL_PAR_LABEL0;
  return bounded;
}

/** Integral of exp(-F_P/2), F_P being the priors and the hull penalty: Gaussians and ranges by
 *  formula, the part that the hulls leave of them by draws.  ln of it, and the variance of that;
 *  NaN: there is none. */
MILL_HD_CALLED static inline double mill_prior_integral(const mill_model *m, mill_slot *slot,
                                                        double *var)
{
  double ln_all = 0.0, left = 0.0, z[MILL_MAX_PAR + 1];
  *var = 0.0;
  for (int k = 0; k < slot->n_free; k++) {
    const int j = slot->free_par[k];
    const double sigma = mill_prior_sigma(m, slot, j);
    double lo, hi;
    mill_sample_range(m, j, &lo, &hi);
    ln_all += log(sigma > 0.0 ? sqrt(2.0 * MILL_PI) * sigma : hi - lo);
    if (!mill_prior_bounded(m, slot, j))
      return (double)NAN;
  }
  for (int i = 0; i < MILL_POST_PRIOR_DRAWS && m->n_hull > 0; i++) {
    mill_sample_normals(m, slot, i, MILL_DRAW_PRIOR, slot->n_free, z);
    for (int k = 0; k < slot->n_free; k++) {
      const int j = slot->free_par[k];
      const double sigma = mill_prior_sigma(m, slot, j);
      double lo, hi;
      mill_sample_range(m, j, &lo, &hi);
      slot->theta[j] = sigma > 0.0 ? mill_prior_mean(m, slot, j) + z[k] * sigma
                                   : lo + (hi - lo) * 0.5 * erfc(-z[k] * 0.70710678118654752);
    }
    left += exp(-0.5 * mill_hull_penalty(m, slot, slot->theta)) / MILL_POST_PRIOR_DRAWS;
  }
  if (m->n_hull == 0)
    return ln_all;
  *var = (1.0 - left) / (left * MILL_POST_PRIOR_DRAWS);
  return ln_all + log(left);
}

/** ln of the evidence and its error: the mean of the weights is the integral of exp(-F/2), of
 *  which a refused draw has none. */
MILL_HD_CALLED static inline void mill_sample_evidence(const mill_model *m, mill_slot *slot,
                                                       double *ln_z, double *error)
{
  const mill_sample *s = &slot->sample;
  const double n = (double)slot->n_free, t = MILL_PART_T;
  double sum = 0.0, var;
  for (int i = 0; i < s->n_point; i++)
    sum += exp((double)s->ln_w[i]);
  const double size = mill_weights_size(s->n_point, s->ln_w, 1.0);
  const double ln_t = lgamma(0.5 * (t + n)) - lgamma(0.5 * t) - 0.5 * n * log(t * MILL_PI);
  const double ln_prior = mill_prior_integral(m, slot, &var);
  *ln_z = s->ln_most + log(sum) - ln_t - 0.5 * slot->result.m2ll - ln_prior;
  *error = isfinite(*ln_z) ? sqrt(1.0 / size - 1.0 / (double)s->n_draw + var) : (double)NAN;
  *ln_z = isfinite(*ln_z) ? *ln_z : (double)NAN;
}

/* ---- the end ---- */

/** From points with weights to samples without: as many copies of each as its weight says, by
 *  systematic resampling (Carpenter et al. 1999, IEE Proc. Radar 146, 2), in their order. */
MILL_HD_CALLED static inline void mill_sample_spread(const mill_model *m, mill_slot *slot)
{
  mill_sample *s = &slot->sample;
  const int n = slot->n_free, most = m->set.sample.max_eval;
  const int n_all = s->n_point < most / MILL_POST_COPIES ? MILL_POST_COPIES * s->n_point : most;
  double all = 0.0, sum = 0.0;
  int n_left = 0;
  for (int i = 0; i < s->n_point; i++)
    all += exp((double)s->ln_w[i]);
  s->n_sample = 0;
  for (int i = 0; i < s->n_point && all > 0.0; i++) {
    sum += exp((double)s->ln_w[i]) / all * n_all;
    const int end = sum + 0.5 < n_all ? (int)(sum + 0.5) : n_all, copies = end - s->n_sample;
    for (int k = 0; k < n; k++)
      mill_sample_point(slot, n_left)[k] = mill_sample_point(slot, i)[k];
    s->sorted[n_left] = (float)copies;
    s->n_sample = copies > 0 ? end : s->n_sample;
    n_left += copies > 0;
  }
  for (int i = n_left - 1, to = s->n_sample; i >= 0; i--)
    for (int c = 0; c < (int)s->sorted[i]; c++) {
      to--;
      for (int k = 0; k < n; k++)
        mill_sample_point(slot, to)[k] = mill_sample_point(slot, i)[k];
    }
  if (s->n_sample > 0)
    return;
  for (int k = 0; k < n; k++) /* nothing has a weight: the solution */
    mill_sample_point(slot, 0)[k] = 0.0F;
  s->n_sample = 1;
}

/** Mean [n_free], as difference from the solution, and covariance [n_free][n_free] of the samples.
 */
MILL_HD_CALLED static inline void mill_sample_moments(const mill_slot *slot, double *mean,
                                                      double *covar)
{
  const int n = slot->n_free, n_sample = slot->sample.n_sample;
  const float *x = slot->sample.x;
  for (int k = 0; k < n; k++) {
    mean[k] = 0.0;
    for (int i = 0; i < n_sample; i++)
      mean[k] += (double)x[i * n + k];
    mean[k] /= (double)n_sample;
  }
  for (int k = 0; k < n; k++)
    for (int l = 0; l <= k; l++) {
      double sum = 0.0;
      for (int i = 0; i < n_sample; i++)
        sum += ((double)x[i * n + k] - mean[k]) * ((double)x[i * n + l] - mean[l]);
      covar[k * n + l] = covar[l * n + k] = sum / (double)(n_sample > 1 ? n_sample - 1 : 1);
    }
}

/** Sample number i, all parameters. */
MILL_HD static inline void mill_sample_at(const mill_model *m, const mill_slot *slot, int i,
                                          double *theta)
{
  const float *x = mill_sample_point(slot, i);
  for (int j = 0; j < m->n_par; j++)
    theta[j] = slot->best.end[j];
  for (int k = 0; k < slot->n_free; k++)
    theta[slot->free_par[k]] += (double)x[k];
}

/** Formal error of the fit without the label's floor, which the likelihood does not have; 0 or NaN:
 *  none. */
MILL_HD static inline double mill_sample_fit_error(const mill_model *m, const mill_fit_result *r,
                                                   int j)
{
  const int l = j - MILL_PAR_LABEL0;
  if (l < 0)
    return j == MILL_PAR_VRAD ? r->vrad_err_formal_km_s : r->vsini_err_formal_km_s;
  const double e = r->label_err_formal[l], floor = mill_has_error(m) ? m->label[l].floor : 0.0;
  return sqrt(fmax((e - floor) * (e + floor), 0.0));
}

/** Flags that one parameter gives; sorted [n]: its samples as differences from the solution. */
MILL_HD_CALLED static inline int mill_sample_par_flags(const mill_model *m, const mill_slot *slot,
                                                       int j, int n, const float *sorted,
                                                       double sigma)
{
  const mill_posterior *p = slot->sample.posterior;
  const double at = slot->best.end[j], error = mill_sample_fit_error(m, &slot->result, j);
  const double shift = p->mean[j] - at, near = 0.1 * sigma;
  const int is_label = j >= MILL_PAR_LABEL0;
  double lo, hi;
  mill_sample_range(m, j, &lo, &hi);
  int flag = 0, n_low = 0, n_high = 0;
  while (!is_label && n_low < n && at + (double)sorted[n_low] < lo + near)
    n_low++;
  while (!is_label && n_high < n && at + (double)sorted[n - 1 - n_high] > hi - near)
    n_high++;
  if ((double)n_low > MILL_POST_SHARE * (double)n || (double)n_high > MILL_POST_SHARE * (double)n)
    flag |= MILL_POST_LIMIT;
  if (hi > lo && p->percentile[4][j] - p->percentile[0][j] > 0.8 * (hi - lo))
    flag |= MILL_POST_WIDE;
  if (error > 0.0 && fabs(shift) > 0.5 * error)
    flag |= MILL_POST_SHIFTED;
  if (error > 0.0 && (sigma < 0.8 * error || sigma > 1.25 * error))
    flag |= MILL_POST_RESIZED;
  return flag;
}

/** Do too many samples lie beyond the hulls? */
MILL_HD_CALLED static inline int mill_sample_beyond_hull(const mill_model *m, const mill_slot *slot)
{
  const int n_sample = slot->sample.n_sample;
  const int n = n_sample < MILL_POST_HULL_DRAWS ? n_sample : MILL_POST_HULL_DRAWS;
  int n_beyond = 0;
  for (int i = 0; i < n; i++) {
    double theta[MILL_MAX_PAR], mapped[MILL_MAX_LABEL];
    mill_sample_at(m, slot, (int)((int64_t)i * n_sample / n), theta);
    mill_map_labels(m, theta, mapped);
    n_beyond += mill_hull_signed(m->n_hull, m->hull, mapped) > 0.0;
  }
  return (double)n_beyond > MILL_POST_SHARE * (double)n;
}

MILL_HD static inline mill_samples mill_sample_set(const mill_slot *slot)
{
  mill_samples s;
  s.x = slot->sample.x;
  s.n = slot->sample.n_sample;
  s.n_free = slot->n_free;
  s.par = slot->free_par;
  s.at = slot->best.end;
  return s;
}

/** Marginal density of free parameter k, sorted as its samples are, and the flag of its shape. */
MILL_HD_CALLED static inline void mill_sample_density(const mill_model *m, mill_slot *slot, int k,
                                                      double sigma)
{
  mill_posterior *p = slot->sample.posterior;
  const mill_samples s = mill_sample_set(slot);
  const int j = slot->free_par[k];
  const double error = mill_sample_fit_error(m, &slot->result, j);
  double *density = p->density + (size_t)j * MILL_N_DENSITY, *space = slot->space.density;
  double low = s.at[j] + mill_sorted_quantile(s.n, slot->sample.sorted, MILL_POST_TAIL);
  double high = s.at[j] + mill_sorted_quantile(s.n, slot->sample.sorted, 1.0 - MILL_POST_TAIL);
  mill_modes all;
  all.n = 1;
  all.n_cut = 0;
  if (!mill_marginal_density(m, &s, &all, 0, k, p->ess[j], sigma * sigma, &low, &high,
                             slot->space.node, space))
    return;
  for (int i = 0; i < MILL_N_DENSITY; i++)
    density[i] = space[i];
  p->density_low[j] = low;
  p->density_high[j] = high;
  if (error > 0.0 && mill_density_differs(space, low, high, s.at[j], error) > MILL_POST_DIFFER)
    p->flag |= MILL_POST_SHAPE;
}

/** Weight, mean and standard deviations of one mode as number `to`. */
MILL_HD_CALLED static inline void mill_sample_put_mode(const mill_model *m, mill_slot *slot,
                                                       const mill_samples *s,
                                                       const mill_modes *modes, int mode, int to)
{
  mill_posterior *p = slot->sample.posterior;
  const int nd = m->n_deriv;
  double *at = p->mode_mean + to * nd, *spread = p->mode_sigma + to * nd;
  for (int j = 0; j < nd; j++) {
    at[j] = slot->best.end[j];
    spread[j] = 0.0;
  }
  for (int k = 0; k < s->n_free; k++) {
    double mean, var;
    const int n = mill_mode_moments(s, modes, mode, k, &mean, &var), j = s->par[k];
    p->mode_weight[to] = (double)n / (double)s->n;
    if (j >= nd)
      continue;
    at[j] += mean;
    spread[j] = sqrt(var);
  }
}

/** The modes, the heaviest first. */
MILL_HD_CALLED static inline void mill_sample_put_modes(const mill_model *m, mill_slot *slot)
{
  mill_posterior *p = slot->sample.posterior;
  const mill_samples s = mill_sample_set(slot);
  mill_modes modes;
  double least = (double)INFINITY;
  int order[MILL_MAX_MODE], count[MILL_MAX_MODE];
  for (int k = 0; k < s.n_free; k++)
    if (s.par[k] < m->n_deriv && p->ess[s.par[k]] < least)
      least = p->ess[s.par[k]];
  mill_modes_find(m, &s, least, slot->space.node, slot->space.density, &modes);
  for (int a = 0; a < modes.n; a++)
    count[a] = 0;
  for (int i = 0; i < s.n; i++)
    count[mill_mode_of(&modes, s.x + (size_t)i * (size_t)s.n_free)]++;
  for (int a = 0; a < modes.n; a++) {
    int at = a;
    for (; at > 0 && count[order[at - 1]] < count[a]; at--)
      order[at] = order[at - 1];
    order[at] = a;
  }
  for (int a = 0; a < modes.n; a++)
    mill_sample_put_mode(m, slot, &s, &modes, order[a], a);
  p->n_mode = modes.n;
  if (modes.n > 1)
    p->flag |= MILL_POST_MODES;
}

/** Percentiles, density and effective size of free parameter k, and its flags. */
MILL_HD_CALLED static inline void mill_sample_summarize_par(const mill_model *m, mill_slot *slot,
                                                            int k, double sigma)
{
  mill_posterior *p = slot->sample.posterior;
  const double quantile[MILL_N_PERCENTILE] = {0.025, 0.16, 0.5, 0.84, 0.975};
  const int j = slot->free_par[k], n = slot->sample.n_sample;
  if (j >= m->n_deriv)
    return; /* velocity offsets are integrated over */
  for (int i = 0; i < n; i++)
    slot->sample.sorted[i] = mill_sample_point(slot, i)[k];
  mill_sort(n, slot->sample.sorted);
  for (int q = 0; q < MILL_N_PERCENTILE; q++)
    p->percentile[q][j] =
        slot->best.end[j] + mill_sorted_quantile(n, slot->sample.sorted, quantile[q]);
  p->ess[j] = slot->sample.ess[k];
  p->flag |= mill_sample_par_flags(m, slot, j, n, slot->sample.sorted, sigma);
  mill_sample_density(m, slot, k, sigma);
}

/** What a parameter has that is not sampled; 0 beyond the parameters. */
MILL_HD_CALLED static inline void mill_sample_blank(const mill_model *m, mill_slot *slot)
{
  mill_posterior *p = slot->sample.posterior;
  for (int j = 0; j < MILL_MAX_PAR; j++) {
    const int is_par = j < m->n_deriv;
    p->mean[j] = is_par ? slot->best.end[j] : 0.0;
    for (int q = 0; q < MILL_N_PERCENTILE; q++)
      p->percentile[q][j] = p->mean[j];
    p->ess[j] = is_par ? (double)NAN : 0.0;
    p->density_low[j] = p->density_high[j] = is_par ? (double)NAN : 0.0;
    for (int i = 0; i < MILL_N_DENSITY; i++)
      p->density[j * MILL_N_DENSITY + i] = is_par ? (double)NAN : 0.0;
  }
  p->n_mode = 0;
  for (int a = 0; a < MILL_MAX_MODE; a++)
    p->mode_weight[a] = (double)NAN;
  for (int i = 0; i < MILL_MAX_MODE * MILL_MAX_PAR; i++)
    p->mode_mean[i] = p->mode_sigma[i] = i < MILL_MAX_MODE * m->n_deriv ? (double)NAN : 0.0;
  for (int i = 0; i < MILL_MAX_COVAR; i++)
    p->covar[i] = 0.0;
}

/** The points are there: the posterior. */
MILL_HD_CALLED static inline void mill_sample_end(const mill_model *m, mill_slot *slot,
                                                  int converged)
{
  mill_sample *s = &slot->sample;
  mill_posterior *p = slot->sample.posterior;
  double mean[MILL_MAX_PAR], *covar = slot->space.matrix[0];
  const int n = slot->n_free, nd = m->n_deriv, n_draw = m->set.sample.n_draw;
  p->flag = converged ? 0 : MILL_POST_NOT_CONVERGED;
  p->n_eval = s->n_point;
  p->pareto = n > 0 ? s->pareto : (double)NAN;
  p->m2ll_least = s->least;
  p->ln_evidence = p->ln_evidence_err = (double)NAN;
  mill_sample_blank(m, slot);
  if (n > 0)
    mill_sample_evidence(m, slot, &p->ln_evidence, &p->ln_evidence_err);
  mill_sample_spread(m, slot);
  mill_sample_moments(slot, mean, covar);
  for (int k = 0; k < n; k++) {
    const int j = slot->free_par[k];
    if (j >= nd)
      continue;
    p->mean[j] += mean[k];
    for (int l = k; l < n; l++)
      if (slot->free_par[l] < nd)
        p->covar[j * nd - j * (j - 1) / 2 + (slot->free_par[l] - j)] = covar[k * n + l];
    mill_sample_summarize_par(m, slot, k, sqrt(covar[k * n + k]));
  }
  if (n > 0)
    mill_sample_put_modes(m, slot);
  if (mill_sample_beyond_hull(m, slot))
    p->flag |= MILL_POST_HULL;
  if (s->least < slot->result.m2ll - 1.0)
    p->flag |= MILL_POST_LOWER;
  if (slot->starts.is_several)
    p->flag |= MILL_POST_ONE_STAR;
  for (int i = 0; i < n_draw; i++) {
    double theta[MILL_MAX_PAR];
    mill_sample_at(m, slot, (int)((2 * (int64_t)i + 1) * s->n_sample / (2 * n_draw)), theta);
    for (int j = 0; j < nd; j++)
      mill_posterior_draw(p)[i * nd + j] = theta[j];
  }
  slot->result.status = MILL_STATUS_FITTED;
  slot->stage = MILL_STAGE_DONE;
  slot->request = MILL_REQ_NONE;
}

#endif
