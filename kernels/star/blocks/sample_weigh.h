/* SPDX-License-Identifier: BSD-3-Clause */
/** Answer MILL_REQ_WEIGH: compute the importance weights of a posterior's points.  If the points do
 *  not suffice, adapt the proposal to the weights, and set how many more points to draw. */
#pragma once

#include "kernels/math/weights.h"
#include "kernels/star/blocks/sample_summary.h"

/** Compute ln_w = ln_p - ln(density of the mixture of all proposals) (Veach & Guibas 1995; Cornuet
 *  et al. 2012, Scand. J. Stat. 39, 798).  Subtract the largest ln_w from all, and return it. */
MILL_BLOCK_FN double mill_block_points_weigh(mill_block *b, const mill_model *m,
                                             const mill_slot *slot)
{
  const mill_sample *s = &slot->sample;
  double most = -(double)INFINITY;
  MILL_FOR(b, i, s->n_point)
  {
    double q = 0.0;
    for (int p = 0; p < s->n_part; p++)
      q += s->part[p].n * mill_part_density(m, slot, &s->part[p], mill_sample_point(slot, i));
    s->ln_w[i] = (float)((double)s->ln_p[i] - log(q));
    most = fmax(most, (double)s->ln_w[i]);
  }
  most = mill_block_max(b, most);
  MILL_FOR(b, i, s->n_point)
  {
    if (most > -(double)INFINITY)
      s->ln_w[i] = (float)((double)s->ln_w[i] - most);
  }
  MILL_BARRIER(b);
  return most;
}

/** Divide point i's weight w = exp(power * ln_w) among the proposal's components in proportion to
 *  (share * density at the point).  Return the part of component i_part; add w to *all. */
MILL_HD_CALLED static inline double mill_part_claim(const mill_model *m, const mill_slot *slot,
                                                    int i_part, double power, int i, double *all)
{
  const mill_sample *s = &slot->sample;
  const float *x = mill_sample_point(slot, i);
  const double w = exp(power * (double)s->ln_w[i]);
  double own = 0.0, of_all = 0.0;
  for (int p = s->first_part; p < s->n_part; p++) {
    const double q = s->part[p].share * mill_part_density(m, slot, &s->part[p], x);
    of_all += q;
    own = p == i_part ? q : own;
  }
  *all += w;
  return of_all > 0.0 ? w * own / of_all : 0.0;
}

/** Return parameter k of point i, less the solution.  For k = n_free return u (mill_part_u). */
MILL_HD static inline double mill_part_place(const mill_model *m, const mill_slot *slot, int i,
                                             int k)
{
  const int v = slot->sample.i_vsini;
  const float *x = mill_sample_point(slot, i);
  if (k < slot->n_free)
    return (double)x[k];
  return v < 0 ? 0.0 : mill_part_u(m, slot, slot->best.end[MILL_PAR_VSINI] + (double)x[v]);
}

/** Make a component of the proposal, *to; returns 0 if c is not positive definite.
 *  mean [n_free + 1]  in   the points' mean, in the free parameters and u (mill_part_u)
 *  c [n_free + 1]^2   in   their covariance
 *  to->bend           out  regression of the free parameters on u; 0 for v sin i itself
 *  to->axes           out  Cholesky factor of wider * (covariance that the regression leaves) */
MILL_HD_CALLED static inline int mill_part_make(const mill_model *m, const mill_slot *slot,
                                                const double *mean, const double *c, double wider,
                                                mill_part *to)
{
  const int n = slot->n_free, v = slot->sample.i_vsini, n_all = n + 1;
  const double *of_u = c + n * n_all;
  for (int k = 0; k < n; k++) {
    to->bend[k] = k != v && of_u[n] > 0.0 ? of_u[k] / of_u[n] : 0.0;
    to->mean[k] = mean[k] - to->bend[k] * mean[n];
  }
  if (v >= 0)
    to->mean[v] += slot->best.end[MILL_PAR_VSINI] - m->set.min_vsini_km_s; /* v sin i - limit */
  /* covariance of the parameters less their regression on u */
  for (int k = 0; k < n; k++)
    for (int l = 0; l < n; l++)
      to->axes[k * n + l] = c[k * n_all + l] - to->bend[k] * of_u[l] - to->bend[l] * of_u[k] +
                            to->bend[k] * to->bend[l] * of_u[n];
  mill_part_mirror(slot, to);
  return mill_part_shape(slot, wider, to);
}

/** Make a new component from component i_part of the proposal, with the mean and covariance of the
 *  points weighted by mill_part_claim.  Returns the component's fraction of all weights, or 0 if
 *  this is too small or the covariance is not positive definite.  Overwrites sample.sorted. */
MILL_BLOCK_FN double mill_block_part_learn(mill_block *b, const mill_model *m, mill_slot *slot,
                                           int i_part, double power, mill_part *to)
{
  const mill_sample *s = &slot->sample;
  const int n_all = slot->n_free + 1, n_point = s->n_point; /* n_all: free parameters, and u */
  double *mean = slot->space.mean, *c = slot->space.moment, weight[2] = {0.0, 0.0}, sum[2];
  MILL_FOR(b, i, n_point)
  {
    s->sorted[i] = (float)mill_part_claim(m, slot, i_part, power, i, &weight[0]);
    weight[1] += (double)s->sorted[i];
  }
  mill_block_sum_n(b, weight, 2, sum); /* of all the points' weights, and of the component's */
  if (!(sum[1] > MILL_PART_LEAST * sum[0]))
    return 0.0;
  for (int k = 0; k < n_all; k++) {
    double mean_k = 0.0;
    MILL_FOR(b, i, n_point)
    {
      mean_k += (double)s->sorted[i] * mill_part_place(m, slot, i, k);
    }
    mean_k = mill_block_sum(b, mean_k) / sum[1];
    MILL_SERIAL(b)
    {
      mean[k] = mean_k;
    }
    MILL_BARRIER(b);
    for (int l = 0; l <= k; l++) {
      double both = 0.0;
      MILL_FOR(b, i, n_point)
      {
        both += (double)s->sorted[i] * (mill_part_place(m, slot, i, k) - mean_k) *
                (mill_part_place(m, slot, i, l) - mean[l]);
      }
      both = mill_block_sum(b, both) / sum[1];
      MILL_SERIAL(b)
      {
        c[k * n_all + l] = c[l * n_all + k] = both;
      }
    }
  }
  MILL_SERIAL(b)
  {
    /* few effective points may miss part of the posterior */
    const double wider = MILL_PART_WIDER * (2.0 - power);
    to->share = mill_part_make(m, slot, mean, c, wider, to) ? sum[1] / sum[0] : 0.0;
  }
  MILL_BARRIER(b);
  return to->share;
}

/** Return the largest power, at most 1, such that weights^power give MILL_PART_ENOUGH effective
 *  samples per free parameter (Koblents & Miguez 2015, Stat. Comp. 25, 407).  If no tried power
 *  gives so many, return the least one tried. */
MILL_BLOCK_FN double mill_block_points_power(mill_block *b, const mill_slot *slot)
{
  const mill_sample *s = &slot->sample;
  const double least = MILL_PART_ENOUGH * (double)slot->n_free;
  double low = 0.0, high = 1.0, power = 1.0;
  for (int i = 0; i <= 20; i++) { /* try the power 1 first, then bisect */
    if (mill_block_weights_size(b, s->n_point, s->ln_w, power) >= least)
      low = power;
    else
      high = power;
    if (low == 1.0)
      break;
    power = 0.5 * (low + high);
  }
  return low > 0.0 ? low : high;
}

/** Make a new proposal by adapting each component to the weights (Cappe et al. 2008, Stat. Comp.
 *  18, 447).  Returns 0, keeping the old one, if sample.part is full or no component is usable. */
MILL_BLOCK_FN int mill_block_points_learn(mill_block *b, const mill_model *m, mill_slot *slot)
{
  mill_sample *s = &slot->sample;
  const int first = s->first_part, end = s->n_part;
  double sum = 0.0;
  int n = end;
  if (end + (end - first) > MILL_SAMPLE_PART)
    return 0;
  const double power = mill_block_points_power(b, slot);
  for (int p = first; p < end; p++) {
    const double share = mill_block_part_learn(b, m, slot, p, power, &s->part[n]);
    sum += share;
    n += share > 0.0; /* if it is 0, the next component takes the place of this one */
  }
  MILL_SERIAL(b)
  {
    for (int p = end; p < n; p++)
      s->part[p].share /= sum;
    s->first_part = n > end ? end : first;
    s->n_part = n;
  }
  MILL_BARRIER(b);
  return n > end;
}

/** A new proposal is made if the present one yields fewer effective samples per point than this. */
#define MILL_SAMPLE_GOOD 0.7
/** Draw SPARE times the number of missing points, at least STEP times the present number. */
#define MILL_SAMPLE_SPARE 1.03
#define MILL_SAMPLE_STEP  0.05

/** Weigh the points.  Then finish the posterior, or set how many more points to draw.  If points of
 *  the last proposal yield few effective samples (ess), learn a new proposal from the weights. */
MILL_BLOCK_FN void mill_block_points_look(mill_block *b, const mill_model *m, mill_slot *slot)
{
  mill_sample *s = &slot->sample;
  const int n = s->n_point, most = m->set.sample.max_eval;
  if (slot->n_free == 0 || s->n_part == 0) { /* no free parameter: success; no proposal: failure */
    mill_block_post_end(b, m, slot, slot->n_free == 0);
    return;
  }
  MILL_SERIAL(b) /* the weights need the number of draws from each component */
  {
    for (int p = s->first_part; p < s->n_part; p++)
      s->part[p].n = s->part[p].share * (double)(s->n_draw - s->first_draw);
  }
  MILL_BARRIER(b);
  const double ln_most = mill_block_points_weigh(b, m, slot);
  const double pareto = mill_block_weights_pareto(b, n, s->ln_w, s->sorted, slot->space.density);
  const double ess_last = mill_block_points_size(b, slot, s->first_point); /* last proposal's */
  const double ess = s->first_point > 0 ? mill_block_points_size(b, slot, 0) : ess_last;
  const int enough = ess >= m->set.sample.least_ess && pareto <= MILL_POST_PARETO;
  const double per_point = ess_last / (double)(n - s->first_point);
  const int is_good = per_point >= MILL_SAMPLE_GOOD && pareto <= MILL_POST_PARETO;
  MILL_SERIAL(b)
  {
    s->ln_most = ln_most;
    s->pareto = pareto;
  }
  MILL_BARRIER(b);
  if (enough || s->is_last || n == most) {
    mill_block_post_end(b, m, slot, enough);
    return;
  }
  const int has_learned = !is_good && mill_block_points_learn(b, m, slot);
  MILL_SERIAL(b)
  {
    const double missing = m->set.sample.least_ess - ess;
    /* if only the Pareto k is too large, double the points */
    double more = missing > 0.0 ? MILL_SAMPLE_SPARE * missing / per_point : (double)n;
    more = fmax(more, MILL_SAMPLE_STEP * (double)n);
    if (!is_good) /* look again before many points of a bad proposal are drawn */
      more = fmin(more, (double)n);
    if (has_learned) {
      s->first_point = n;
      s->first_draw = s->n_draw;
    }
    s->n_target = (double)n + more < (double)most ? n + (int)more + 1 : most;
  }
  MILL_BARRIER(b);
}
