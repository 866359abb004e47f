/* SPDX-License-Identifier: BSD-3-Clause */
/** Chains of a star's ensemble, and the posterior that they end as.
 *
 *  Serial code, run by one thread of a star's block (docs/science/numerics.md, "Posteriors").
 */
#ifndef MILL_SAMPLE_SUMMARY_H
#define MILL_SAMPLE_SUMMARY_H

#include "kernels/math/chains.h"
#include "kernels/star/marginal.h"
#include "kernels/star/temper.h"

#define MILL_POST_SHARE 0.01 /**< of the samples, for the flags LIMIT and HULL */
/** Quantiles from which a marginal density reaches to the same one from above. */
#define MILL_POST_TAIL   0.001
#define MILL_POST_DIFFER 0.15 /**< for the flag NOT_GAUSSIAN */

/* ---- chains ---- */

MILL_HD static inline float *mill_sample_kept(const mill_model *m, const mill_slot *slot, int i)
{
  return slot->sample.chain + (size_t)i * (size_t)m->set.sample.n_walker * (size_t)slot->n_free;
}

/** Keep where the walkers are, as differences from the solution: float32 is then exact enough.
 *  Where there is no room every other sweep goes, and from now on too. */
MILL_HD_CALLED static inline void mill_sample_keep(const mill_model *m, mill_slot *slot)
{
  mill_sample *s = &slot->sample;
  const int n = slot->n_free, n_row = m->set.sample.n_walker * n;
  if (s->n_sweep % s->thin != 0)
    return;
  if (s->n_kept == MILL_SAMPLE_KEEP) {
    s->n_kept /= 2;
    s->thin *= 2;
    for (int i = 0; i < s->n_kept; i++) {
      for (int k = 0; k < n_row; k++)
        mill_sample_kept(m, slot, i)[k] = mill_sample_kept(m, slot, 2 * i + 1)[k];
      mill_temper_move_stone(m, slot, 2 * i + 1, i);
    }
    if (s->n_sweep % s->thin != 0)
      return;
  }
  mill_temper_keep_stone(m, slot, s->n_kept);
  float *to = mill_sample_kept(m, slot, s->n_kept++);
  for (int k = 0; k < n_row; k++)
    to[k] = (float)(slot->sample.walker[k] - slot->best.end[slot->free_par[k % n]]);
}

/** Mean [n_free], as difference from the solution, and covariance [n_free][n_free] of the kept
 *  sweeps from `first` on. */
MILL_HD_CALLED static inline void mill_sample_moments(const mill_model *m, const mill_slot *slot,
                                                      int first, double *mean, double *covar)
{
  const int n = slot->n_free;
  const float *x = mill_sample_kept(m, slot, first);
  const int n_sample = (slot->sample.n_kept - first) * m->set.sample.n_walker;
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

/** A part of the burn-in is over: the independent move learns from its last half. */
MILL_HD_CALLED static inline void mill_sample_adapt(const mill_model *m, mill_slot *slot)
{
  mill_sample *s = &slot->sample;
  double *axes = slot->space.matrix[0];
  const int n = slot->n_free;
  mill_sample_moments(m, slot, s->n_kept / 2, s->mean, axes);
  for (int k = 0; k < n; k++)
    s->mean[k] += slot->best.end[slot->free_par[k]];
  if (mill_cholesky(n, axes, n) == 0) {
    for (int e = 0; e < n * n; e++)
      s->axes[e] = axes[e];
    s->has_axes = 1;
  }
  s->n_kept = 0;
}

/** Steps of the kept chains that count: the first quarter is another burn-in, of any length that
 *  the chains may need. */
MILL_HD static inline int mill_sample_skipped(const mill_slot *slot)
{
  return slot->sample.n_kept / 4;
}

MILL_HD static inline mill_chains mill_sample_chains(const mill_model *m, const mill_slot *slot,
                                                     int k)
{
  const int first = mill_sample_skipped(slot);
  mill_chains c;
  c.x = mill_sample_kept(m, slot, first) + k;
  c.n_step = slot->sample.n_kept - first;
  c.n_walker = m->set.sample.n_walker;
  c.n_par = slot->n_free;
  return c;
}

/** Are the chains as long as they have to be? */
MILL_HD_CALLED static inline int mill_sample_enough(const mill_model *m, const mill_slot *slot)
{
  for (int k = 0; k < slot->n_free; k++) {
    const mill_chains c = mill_sample_chains(m, slot, k);
    double rhat, ess;
    mill_chains_diagnose(&c, &rhat, &ess);
    if (!(rhat <= m->set.sample.most_rhat) || !(ess >= m->set.sample.least_ess))
      return 0;
  }
  return 1;
}

/* ---- the end ---- */

/** Sample number i of those that count, all parameters. */
MILL_HD static inline void mill_sample_at(const mill_model *m, const mill_slot *slot, int i,
                                          double *theta)
{
  const float *x = mill_sample_kept(m, slot, mill_sample_skipped(slot)) + (size_t)i * slot->n_free;
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
MILL_HD_CALLED static inline int mill_sample_beyond_hull(const mill_model *m, const mill_slot *slot,
                                                         int n_sample)
{
  const int n = n_sample < MILL_SAMPLE_HULL_DRAWS ? n_sample : MILL_SAMPLE_HULL_DRAWS;
  int n_beyond = 0;
  for (int i = 0; i < n; i++) {
    double theta[MILL_MAX_PAR], mapped[MILL_MAX_LABEL];
    mill_sample_at(m, slot, (int)((int64_t)i * n_sample / n), theta);
    mill_map_labels(m, theta, mapped);
    n_beyond += mill_hull_signed(m->n_hull, m->hull, mapped) > 0.0;
  }
  return (double)n_beyond > MILL_POST_SHARE * (double)n;
}

/** The samples that count. */
MILL_HD static inline mill_samples mill_sample_set(const mill_model *m, const mill_slot *slot)
{
  const int first = mill_sample_skipped(slot);
  mill_samples s;
  s.x = mill_sample_kept(m, slot, first);
  s.n = (slot->sample.n_kept - first) * m->set.sample.n_walker;
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
  const mill_samples s = mill_sample_set(m, slot);
  const int j = slot->free_par[k];
  const double error = mill_sample_fit_error(m, &slot->result, j);
  double *density = p->density + (size_t)j * MILL_N_DENSITY, *space = slot->space.density;
  double low = s.at[j] + mill_chains_quantile(s.n, slot->sample.sorted, MILL_POST_TAIL);
  double high = s.at[j] + mill_chains_quantile(s.n, slot->sample.sorted, 1.0 - MILL_POST_TAIL);
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
  const mill_samples s = mill_sample_set(m, slot);
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

/** Moments, percentiles, density, R-hat and effective size of free parameter k, and its flags. */
MILL_HD_CALLED static inline void mill_sample_summarize_par(const mill_model *m, mill_slot *slot,
                                                            int k, double sigma)
{
  mill_posterior *p = slot->sample.posterior;
  const double quantile[MILL_N_PERCENTILE] = {0.025, 0.16, 0.5, 0.84, 0.975};
  const mill_chains c = mill_sample_chains(m, slot, k);
  const int j = slot->free_par[k], n = c.n_step * c.n_walker;
  if (j >= m->n_deriv)
    return; /* velocity offsets are integrated over */
  for (int i = 0; i < n; i++)
    slot->sample.sorted[i] = c.x[(size_t)i * (size_t)c.n_par];
  mill_chains_sort(n, slot->sample.sorted);
  for (int q = 0; q < MILL_N_PERCENTILE; q++)
    p->percentile[q][j] =
        slot->best.end[j] + mill_chains_quantile(n, slot->sample.sorted, quantile[q]);
  mill_chains_diagnose(&c, &p->rhat[j], &p->ess[j]);
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
    p->rhat[j] = p->ess[j] = is_par ? (double)NAN : 0.0;
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

/** The chains are done: the posterior. */
MILL_HD_CALLED static inline void mill_sample_end(const mill_model *m, mill_slot *slot,
                                                  int converged)
{
  const mill_sample *s = &slot->sample;
  mill_posterior *p = slot->sample.posterior;
  double mean[MILL_MAX_PAR], *covar = slot->space.matrix[0];
  const int n = slot->n_free, nd = m->n_deriv;
  const int n_sample = (s->n_kept - mill_sample_skipped(slot)) * m->set.sample.n_walker;
  p->flag = converged ? 0 : MILL_POST_NOT_CONVERGED;
  p->n_sweep = s->n_sweep - MILL_SAMPLE_BURN;
  p->n_eval = s->n_eval;
  p->n_jac = s->n_jac;
  p->accept = s->n_proposal > 0 ? (double)s->n_accepted / (double)s->n_proposal : (double)NAN;
  p->m2ll_least = s->least;
  mill_sample_blank(m, slot);
  mill_sample_moments(m, slot, mill_sample_skipped(slot), mean, covar);
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
  p->ln_evidence = p->ln_evidence_err = (double)NAN;
  if (n > 0) {
    mill_sample_put_modes(m, slot);
    mill_temper_evidence(m, slot, mill_sample_skipped(slot), &p->ln_evidence, &p->ln_evidence_err);
  }
  if (mill_sample_beyond_hull(m, slot, n_sample))
    p->flag |= MILL_POST_HULL;
  if (s->least < slot->result.m2ll - 1.0)
    p->flag |= MILL_POST_LOWER;
  const int n_draw = m->set.sample.n_draw;
  for (int i = 0; i < n_draw; i++) {
    double theta[MILL_MAX_PAR];
    mill_sample_at(m, slot, (int)((2 * (int64_t)i + 1) * n_sample / (2 * n_draw)), theta);
    for (int j = 0; j < nd; j++)
      mill_posterior_draw(p)[i * nd + j] = theta[j];
  }
  slot->result.status = MILL_STATUS_FITTED;
  slot->stage = MILL_STAGE_DONE;
  slot->request = MILL_REQ_NONE;
}

#endif
