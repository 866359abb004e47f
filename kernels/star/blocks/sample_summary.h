/* SPDX-License-Identifier: BSD-3-Clause */
/** Compute a star's posterior from its weighted points: effective size, samples of equal weight,
 *  statistics and flags (docs/science/numerics.md, "Posteriors").  All threads return the same. */
#pragma once

#include "kernels/math/select.h"
#include "kernels/math/weights.h"
#include "kernels/star/blocks/marginal.h"
#include "kernels/star/blocks/evidence.h"

#define MILL_POST_SHARE 0.01 /**< more samples than this at a limit set LIMIT, outside hulls HULL */
/** A marginal density covers the quantiles TAIL to 1 - TAIL. */
#define MILL_POST_TAIL   0.001
#define MILL_POST_DIFFER 0.15 /**< flag NOT_GAUSSIAN: mill_density_differs is above this */
#define MILL_POST_PARETO 0.7  /**< the weights are not reliable above this Pareto k */

enum {
  MILL_POST_COPIES = 8 /**< samples of equal weight per point; in all at most max_eval */
};

/** Set s->ess [n_free] to each parameter's variance / (variance of its mean), for points from
 *  `first` on.  Return the least of s->ess and mill_block_weights_size: effective sample size. */
MILL_BLOCK_FN double mill_block_points_size(mill_block *b, mill_slot *slot, int first)
{
  mill_sample *s = &slot->sample;
  double least = mill_block_weights_size(b, s->n_point - first, s->ln_w + first, 1.0);
  for (int k = 0; k < slot->n_free; k++) {
    double part[2] = {0.0, 0.0}, sum[2], spread[2];
    MILL_FOR(b, i, s->n_point - first)
    {
      const double w = exp((double)s->ln_w[first + i]);
      part[0] += w;
      part[1] += w * (double)mill_sample_point(slot, first + i)[k];
    }
    mill_block_sum_n(b, part, 2, sum);
    part[0] = part[1] = 0.0;
    MILL_FOR(b, i, s->n_point - first)
    {
      const double off = (double)mill_sample_point(slot, first + i)[k] - sum[1] / sum[0];
      const double d = exp((double)s->ln_w[first + i]) * off;
      part[0] += d * off;
      part[1] += d * d;
    }
    mill_block_sum_n(b, part, 2, spread);
    const double ess = spread[1] > 0.0 ? sum[0] * spread[0] / spread[1] : 0.0;
    MILL_SERIAL(b)
    {
      s->ess[k] = ess;
    }
    least = ess < least ? ess : least;
  }
  return least;
}

/** Set sample.sorted to the number of copies, of equal weight, that replace each weighted point, by
 *  systematic resampling (Carpenter et al. 1999, IEE Proc. Radar 146, 2).  ln_p becomes weights. */
MILL_BLOCK_FN void mill_block_post_spread(mill_block *b, const mill_model *m, mill_slot *slot)
{
  mill_sample *s = &slot->sample;
  const int most = m->set.sample.max_eval, n = s->n_point;
  const int n_all = n < most / MILL_POST_COPIES ? MILL_POST_COPIES * n : most; /* copies */
  double all = 0.0;
  MILL_FOR(b, i, n)
  {
    s->ln_p[i] = (float)exp((double)s->ln_w[i]);
    all += (double)s->ln_p[i];
  }
  all = mill_block_sum(b, all);
  MILL_SERIAL(b)
  {
    double sum = 0.0;
    s->n_sample = 0;
    for (int i = 0; i < n; i++) {
      sum += all > 0.0 ? (double)s->ln_p[i] * (n_all / all) : 0.0;
      const int end = sum + 0.5 < n_all ? (int)(sum + 0.5) : n_all; /* copies of points 0 to i */
      s->sorted[i] = (float)(end - s->n_sample);
      s->n_sample = end;
    }
    if (s->n_sample == 0) { /* all weights are 0: the solution is the sample */
      for (int k = 0; k < slot->n_free; k++)
        mill_sample_point(slot, 0)[k] = 0.0F;
      s->sorted[0] = 1.0F;
      s->n_sample = 1;
    }
  }
  MILL_BARRIER(b);
}

/** Return a view of the samples of equal weight that mill_block_post_spread has made. */
MILL_HD static inline mill_samples mill_sample_set(const mill_slot *slot)
{
  mill_samples s;
  s.x = slot->sample.x;
  s.copies = slot->sample.sorted; /* now numbers of copies; ln_p and ln_w are now work space */
  s.column = slot->sample.ln_p;
  s.own = slot->sample.ln_w;
  s.n = slot->sample.n_point > 0 ? slot->sample.n_point : 1; /* without points: the solution */
  s.n_sample = slot->sample.n_sample;
  s.n_free = slot->n_free;
  s.par = slot->free_par;
  s.at = slot->best.end;
  return s;
}

/** Compute the samples' mean [n_free], less the solution, and covariance [n_free][n_free]. */
MILL_BLOCK_FN void mill_block_post_moments(mill_block *b, const mill_samples *s, double *mean,
                                           double *covar)
{
  const int n = s->n_free;
  for (int k = 0; k < n; k++) {
    double mean_k, var;
    mill_block_column_moments(b, s, k, s->copies, s->n_sample, &mean_k, &var); /* and s->column */
    MILL_SERIAL(b)
    {
      mean[k] = mean_k;
      covar[k * n + k] = var;
    }
    for (int l = 0; l < k; l++) {
      double sum = 0.0;
      MILL_FOR(b, i, s->n)
      {
        sum += (double)s->copies[i] * ((double)s->column[i] - mean_k) *
               ((double)s->x[(size_t)i * (size_t)n + (size_t)l] - mean[l]);
      }
      sum = mill_block_sum(b, sum);
      MILL_SERIAL(b)
      {
        covar[k * n + l] = covar[l * n + k] = sum / (double)(s->n_sample > 1 ? s->n_sample - 1 : 1);
      }
    }
    MILL_BARRIER(b);
  }
}

/** Write all parameters of point i to theta [n_par]. */
MILL_HD static inline void mill_sample_at(const mill_model *m, const mill_slot *slot, int i,
                                          double *theta)
{
  const float *x = mill_sample_point(slot, i);
  for (int j = 0; j < m->n_par; j++)
    theta[j] = slot->best.end[j];
  for (int k = 0; k < slot->n_free; k++)
    theta[slot->free_par[k]] += (double)x[k];
}

/** Return the fit's formal error of parameter j, or 0 or NaN without one.  A label's error excludes
 *  the library's floor (in quadrature), which the likelihood does not contain. */
MILL_HD static inline double mill_sample_fit_error(const mill_model *m, const mill_fit_result *r,
                                                   int j)
{
  const int l = j - MILL_PAR_LABEL0;
  if (l < 0)
    return j == MILL_PAR_VRAD ? r->vrad_err_formal_km_s : r->vsini_err_formal_km_s;
  const double e = r->label_err_formal[l], floor = mill_label_floor(m, l);
  return sqrt(fmax((e - floor) * (e + floor), 0.0));
}

/** Return the flags of parameter j (rules: MILL_POST_LIST), whose samples are in s->column.
 *  shift, sigma  in  mean of the samples less the solution; their standard deviation
 *  range         in  difference between the samples' last and first percentile */
MILL_BLOCK_FN int mill_block_post_flags(mill_block *b, const mill_model *m, const mill_slot *slot,
                                        const mill_samples *s, int j, double shift, double sigma,
                                        double range)
{
  const double error = mill_sample_fit_error(m, &slot->result, j), near = 0.1 * sigma;
  double lo, hi, part[2] = {0.0, 0.0}, sum[2];
  mill_sample_range(m, j, &lo, &hi);
  int flag = 0;
  MILL_FOR(b, i, s->n)
  {
    const double x = s->at[j] + (double)s->column[i];
    part[0] += x < lo + near ? (double)s->copies[i] : 0.0;
    part[1] += x > hi - near ? (double)s->copies[i] : 0.0;
  }
  mill_block_sum_n(b, part, 2, sum);
  if (j < MILL_PAR_LABEL0 && fmax(sum[0], sum[1]) > MILL_POST_SHARE * (double)s->n_sample)
    flag |= MILL_POST_LIMIT;
  if (hi > lo && range > 0.8 * (hi - lo))
    flag |= MILL_POST_WIDE;
  if (error > 0.0 && fabs(shift) > 0.5 * error)
    flag |= MILL_POST_SHIFTED;
  if (error > 0.0 && (sigma < 0.8 * error || sigma > 1.25 * error))
    flag |= MILL_POST_RESIZED;
  return flag;
}

/** Are more than MILL_POST_SHARE of the samples outside the hulls? */
MILL_BLOCK_FN int mill_block_post_beyond_hull(mill_block *b, const mill_model *m,
                                              const mill_slot *slot, const mill_samples *s)
{
  double n_beyond = 0.0;
  MILL_FOR(b, i, s->n)
  {
    double theta[MILL_MAX_PAR], mapped[MILL_MAX_LABEL];
    if (!(s->copies[i] > 0.0F) || m->n_hull == 0)
      continue;
    mill_sample_at(m, slot, i, theta);
    mill_map_labels(m, theta, mapped);
    if (mill_hull_signed(m->n_hull, m->hull, mapped) > 0.0)
      n_beyond += (double)s->copies[i];
  }
  return mill_block_sum(b, n_beyond) > MILL_POST_SHARE * (double)s->n_sample;
}

/** Store free parameter k's density, summed over modes, from low to high and some kernel widths of
 *  the first mode beyond.  Returns MILL_POST_SHAPE unless the density is the fit's Gaussian. */
MILL_BLOCK_FN int mill_block_post_density(mill_block *b, const mill_model *m, mill_slot *slot,
                                          const mill_samples *s, const mill_modes *modes, int k,
                                          double low, double high)
{
  mill_posterior *p = slot->sample.posterior;
  const int j = s->par[k];
  const double error = mill_sample_fit_error(m, &slot->result, j), ess = slot->sample.ess[k];
  const double margin = MILL_MARGINAL_MARGIN * p->mode_sigma[j] * pow(fmax(ess, 1.0), -0.2);
  double *density = slot->space.density, *sum = p->density + (size_t)j * MILL_N_DENSITY;
  low = fmax(low - margin, mill_par_min(m, j));
  high = fmin(high + margin, mill_par_max(m, j));
  if (!(high > low))
    return 0;
  for (int a = 0; a < modes->n; a++) {
    double mean, var;
    const double n = mill_block_take_mode(b, s, modes, a), part = n / (double)s->n_sample;
    mill_block_column_moments(b, s, k, s->own, n, &mean, &var);
    mill_block_marginal_density(b, m, s, s->own, j, s->n_sample, ess * part, var, low, high,
                                density);
    MILL_FOR(b, i, MILL_N_DENSITY)
    {
      sum[i] = density[i] + (a > 0 ? sum[i] : 0.0);
    }
  }
  MILL_SERIAL(b)
  {
    p->density_low[j] = low;
    p->density_high[j] = high;
  }
  MILL_BARRIER(b);
  const double differs = mill_density_differs(sum, low, high, s->at[j], error);
  return error > 0.0 && differs > MILL_POST_DIFFER ? MILL_POST_SHAPE : 0;
}

/** Store percentiles, density and effective size of free parameter k; returns its flags.
 *  shift, sigma: mean of the samples less the solution; their standard deviation. */
MILL_BLOCK_FN int mill_block_post_par(mill_block *b, const mill_model *m, mill_slot *slot,
                                      const mill_samples *s, const mill_modes *modes, int k,
                                      double shift, double sigma)
{
  enum { N = MILL_N_PERCENTILE };
  mill_posterior *p = slot->sample.posterior;
  const double quantile[N + 2] = {
      0.025, 0.16, 0.5, 0.84, 0.975, MILL_POST_TAIL, 1.0 - MILL_POST_TAIL};
  const int j = s->par[k];
  double at[N + 2];
  mill_block_take_column(b, s, k);
  mill_block_quantiles(b, s->n, s->column, s->copies, s->n_sample, N + 2, quantile, at);
  MILL_SERIAL(b)
  {
    for (int q = 0; q < N; q++)
      p->percentile[q][j] = s->at[j] + at[q];
    p->ess[j] = slot->sample.ess[k];
  }
  return mill_block_post_flags(b, m, slot, s, j, shift, sigma, at[N - 1] - at[0]) |
         mill_block_post_density(b, m, slot, s, modes, k, s->at[j] + at[N], s->at[j] + at[N + 1]);
}

/** Store weight, mean and standard deviations of a mode as mode number `to`, without velocity
 *  offsets (parameters from n_deriv on).  n samples are in the mode; s->own: copies of each. */
MILL_BLOCK_FN void mill_block_post_mode(mill_block *b, const mill_model *m, mill_slot *slot,
                                        const mill_samples *s, double n, int to)
{
  mill_posterior *p = slot->sample.posterior;
  const int nd = m->n_deriv;
  double *at = p->mode_mean + to * nd, *spread = p->mode_sigma + to * nd;
  MILL_SERIAL(b)
  {
    p->mode_weight[to] = n / (double)s->n_sample;
    for (int j = 0; j < nd; j++) {
      at[j] = slot->best.end[j];
      spread[j] = 0.0;
    }
  }
  for (int k = 0; k < s->n_free; k++) {
    double mean, var;
    if (s->par[k] >= nd)
      continue;
    mill_block_column_moments(b, s, k, s->own, n, &mean, &var);
    MILL_SERIAL(b)
    {
      at[s->par[k]] += mean; /* which is relative to the solution */
      spread[s->par[k]] = sqrt(var);
    }
  }
}

/** Find the modes, and store them, the heaviest first. */
MILL_BLOCK_FN void mill_block_post_modes(mill_block *b, const mill_model *m, mill_slot *slot,
                                         const mill_samples *s, mill_modes *modes)
{
  double ess = (double)INFINITY, n[MILL_MAX_MODE]; /* ess: the least of the parameters */
  int order[MILL_MAX_MODE];                        /* modes by weight n, the heaviest first */
  for (int k = 0; k < s->n_free; k++)
    if (s->par[k] < m->n_deriv && slot->sample.ess[k] < ess)
      ess = slot->sample.ess[k];
  mill_block_modes(b, m, s, ess, slot->space.density, modes);
  for (int a = 0; a < modes->n; a++) {
    n[a] = mill_block_take_mode(b, s, modes, a);
    int at = a;
    for (; at > 0 && n[order[at - 1]] < n[a]; at--)
      order[at] = order[at - 1];
    order[at] = a;
  }
  for (int a = 0; a < modes->n; a++) {
    (void)mill_block_take_mode(b, s, modes, order[a]); /* sets s->own */
    mill_block_post_mode(b, m, slot, s, n[order[a]], a);
  }
  MILL_BARRIER(b);
}

/** Fill the posterior with its values before sampling: mean and percentiles of the solution, a
 *  covariance of 0, no modes, and NaN for all else.  Elements beyond n_deriv are 0. */
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

/** Store n_draw samples with all parameters, at even steps through the samples of equal weight. */
MILL_HD_CALLED static inline void mill_sample_put_draws(const mill_model *m, const mill_slot *slot)
{
  const mill_sample *s = &slot->sample;
  const int nd = m->n_deriv, n_draw = m->set.sample.n_draw;
  double theta[MILL_MAX_PAR];
  /* draw i is sample (i + 1/2) n_sample / n_draw; upto: number of samples of points 0 to `point` */
  for (int i = 0, point = -1, upto = 0; i < n_draw; i++) {
    while (upto <= (int)((2 * (int64_t)i + 1) * s->n_sample / (2 * n_draw))) /* sorted: copies */
      upto += (int)s->sorted[++point];
    mill_sample_at(m, slot, point, theta);
    for (int j = 0; j < nd; j++)
      mill_posterior_draw(s->posterior)[i * nd + j] = theta[j];
  }
}

/** Compute the posterior from the weighted points. */
MILL_BLOCK_FN void mill_block_post_end(mill_block *b, const mill_model *m, mill_slot *slot,
                                       int converged)
{
  mill_sample *s = &slot->sample;
  mill_posterior *p = s->posterior;
  double *mean = slot->space.mean, *covar = slot->space.matrix[0];
  const double refit = slot->result.m2ll, fit = slot->starts.given_f; /* fit: in --fit's row */
  const double worse = slot->starts.has_given && fit < INFINITY ? fmax(fit, refit) : refit;
  const int n = slot->n_free, nd = m->n_deriv;
  MILL_SERIAL(b)
  {
    p->n_eval = s->n_point;
    p->pareto = n > 0 ? s->pareto : (double)NAN;
    p->m2ll_least = s->least;
    p->ln_evidence = p->ln_evidence_err = (double)NAN;
    mill_sample_blank(m, slot);
  }
  if (n > 0)
    mill_block_evidence(b, m, slot);
  mill_block_post_spread(b, m, slot);
  const mill_samples samples = mill_sample_set(slot);
  mill_block_post_moments(b, &samples, mean, covar);
  int flag = converged ? 0 : MILL_POST_NOT_CONVERGED;
  mill_modes modes;
  modes.n = 0;
  if (n > 0)
    mill_block_post_modes(b, m, slot, &samples, &modes);
  for (int k = 0; k < n; k++) {
    const int j = slot->free_par[k];
    if (j >= nd)
      continue; /* velocity offsets are integrated over */
    MILL_SERIAL(b)
    {
      p->mean[j] += mean[k];
      for (int l = k; l < n; l++) /* covar: upper triangle, row after row */
        if (slot->free_par[l] < nd)
          p->covar[j * nd - j * (j - 1) / 2 + (slot->free_par[l] - j)] = covar[k * n + l];
    }
    flag |= mill_block_post_par(b, m, slot, &samples, &modes, k, mean[k], sqrt(covar[k * n + k]));
  }
  flag |= modes.n > 1 ? MILL_POST_MODES : 0;
  flag |= mill_block_post_beyond_hull(b, m, slot, &samples) ? MILL_POST_HULL : 0;
  flag |= s->least < worse - 1.0 ? MILL_POST_LOWER : 0; /* fit or refit missed a minimum */
  flag |= slot->starts.is_several ? MILL_POST_ONE_STAR : 0;
  MILL_SERIAL(b)
  {
    p->flag = flag;
    p->n_mode = modes.n;
    mill_sample_put_draws(m, slot);
    s->has_ended = 1;
  }
  MILL_BARRIER(b);
}
