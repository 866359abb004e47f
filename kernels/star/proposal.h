/* SPDX-License-Identifier: BSD-3-Clause */
/** Proposals of a star's posterior: mixtures of Student's t about its minima.
 *
 *  Coordinates are y: v sin i above its lower limit, mirrored there, and the other parameters
 *  without what they have in common with the inner parameter u of v sin i, y = x - bend u(v): where
 *  lines do not resolve v sin i, labels follow v^2 and their density is bent in v.  The Jacobian is
 *  1 (docs/science/numerics.md, "Posteriors").
 */
#ifndef MILL_PROPOSAL_H
#define MILL_PROPOSAL_H

#include "kernels/math/counter_random.h"
#include "kernels/math/weights.h"
#include "kernels/star/polish.h"

/** Variance of a proposal by that of what it is for: tails must not be cut. */
#define MILL_PART_WIDER 1.15
/** v sin i this close to its limit, in standard deviations, is proposed about the limit. */
#define MILL_PART_NEAR 2.5
/** Least share of the draws of each minimum, and of what a part has when it goes. */
#define MILL_PART_ORIGIN 0.125
#define MILL_PART_LEAST  0.01
/** F above the least at which the first density of v sin i ends, in even points. */
#define MILL_PART_REACH 36.0

enum {
  MILL_PART_T = 12,        /**< degrees of freedom, an even number */
  MILL_PART_POINTS = 64,   /**< of the first density of v sin i */
  MILL_PART_ENOUGH = 10,   /**< effective samples by parameter that a proposal is learned from */
  MILL_SAMPLE_PURPOSE = 19 /**< of the random numbers' key */
};

/** Draws of a point: which part, is it within the hulls; its normals. */
enum { MILL_DRAW_CHOICE, MILL_DRAW_PRIOR, MILL_DRAW_NORMAL = 32 };

MILL_HD static inline mill_counter_words mill_sample_words(const mill_model *m,
                                                           const mill_slot *slot, int i, int draw)
{
  const mill_counter_key key =
      mill_counter_key_of(m->set.sample.seed, slot->sample.identity, MILL_SAMPLE_PURPOSE);
  return mill_counter_at(key, 0, (uint32_t)i, (uint32_t)draw);
}

/** n standard normals of point i from `draw` on; room for one more. */
MILL_HD_CALLED static inline void mill_sample_normals(const mill_model *m, const mill_slot *slot,
                                                      int i, int draw, int n, double *z)
{
  for (int k = 0; k < n; k += 2) {
    const mill_counter_words w = mill_sample_words(m, slot, i, draw + k / 2);
    mill_counter_normals(&w, &z[k], &z[k + 1]);
  }
}

/** u of v sin i, less that of the solution. */
MILL_HD static inline double mill_part_u(const mill_model *m, const mill_slot *slot, double vsini)
{
  return mill_par_inner(m, MILL_PAR_VSINI, vsini) -
         mill_par_inner(m, MILL_PAR_VSINI, slot->best.end[MILL_PAR_VSINI]);
}

/** y [n_free] of a point x [n_free], given less the solution. */
MILL_HD static inline void mill_part_straight(const mill_model *m, const mill_slot *slot,
                                              const mill_part *part, const float *x, double *y)
{
  const int v = slot->sample.i_vsini;
  const double vsini = slot->best.end[MILL_PAR_VSINI] + (v < 0 ? 0.0 : (double)x[v]);
  const double u = v < 0 ? 0.0 : mill_part_u(m, slot, vsini);
  for (int k = 0; k < slot->n_free; k++)
    y[k] = k == v ? vsini - m->set.min_vsini_km_s : (double)x[k] - part->bend[k] * u;
}

/** Density of a part's t distribution at y; sign -1: at its mirror image. */
MILL_HD_CALLED static inline double mill_part_t(const mill_slot *slot, const mill_part *part,
                                                const double *y, double sign)
{
  const int n = slot->n_free;
  double d[MILL_MAX_PAR], sum = 0.0;
  for (int k = 0; k < n; k++)
    d[k] = (k == slot->sample.i_vsini ? sign * y[k] : y[k]) - part->mean[k];
  mill_cholesky_forward(n, part->axes, n, d);
  for (int k = 0; k < n; k++)
    sum += d[k] * d[k];
  return exp(part->ln_peak - 0.5 * (double)(MILL_PART_T + n) * log1p(sum / MILL_PART_T));
}

/** Density of a part at x, but for a constant. */
MILL_HD_CALLED static inline double mill_part_density(const mill_model *m, const mill_slot *slot,
                                                      const mill_part *part, const float *x)
{
  double y[MILL_MAX_PAR];
  mill_part_straight(m, slot, part, x, y);
  const double f = mill_part_t(slot, part, y, 1.0);
  return slot->sample.i_vsini < 0 ? f : f + mill_part_t(slot, part, y, -1.0);
}

/** Axes of a part from its covariance in axes [n_free][n_free], times wider; 0: it has none. */
MILL_HD_CALLED static inline int mill_part_shape(const mill_slot *slot, double wider,
                                                 mill_part *part)
{
  const int n = slot->n_free;
  for (int k = 0; k < n * n; k++)
    part->axes[k] *= wider * (MILL_PART_T - 2) / MILL_PART_T;
  if (mill_cholesky(n, part->axes, n) != 0)
    return 0;
  part->ln_peak = -0.5 * mill_cholesky_logdet(n, part->axes, n);
  return isfinite(part->ln_peak);
}

/** Point number i of the part: x less the solution, as float32 has it. */
MILL_HD_CALLED static inline void mill_part_draw(const mill_model *m, const mill_slot *slot,
                                                 const mill_part *part, int i, float *x)
{
  const int n = slot->n_free, v = slot->sample.i_vsini;
  double z[MILL_MAX_PAR + MILL_PART_T + 1], y[MILL_MAX_PAR], chi2 = 0.0, u = 0.0;
  mill_sample_normals(m, slot, i, MILL_DRAW_NORMAL, n + MILL_PART_T, z);
  for (int k = 0; k < MILL_PART_T; k++)
    chi2 += z[n + k] * z[n + k];
  const double scale = sqrt(MILL_PART_T / chi2);
  for (int k = 0; k < n; k++) {
    double sum = 0.0;
    for (int l = 0; l <= k; l++)
      sum += part->axes[k * n + l] * z[l];
    y[k] = part->mean[k] + scale * sum;
  }
  if (v >= 0) {
    const double vsini = m->set.min_vsini_km_s + fabs(y[v]);
    x[v] = (float)(vsini - slot->best.end[MILL_PAR_VSINI]);
    u = mill_part_u(m, slot, vsini);
  }
  for (int k = 0; k < n; k++)
    if (k != v)
      x[k] = (float)(y[k] + part->bend[k] * u);
}

/* ---- the first proposal ---- */

/** Mean and variance of v sin i above its limit where F is hess (u - at)^2. */
MILL_HD_CALLED static inline void mill_part_vsini(const mill_model *m, double at, double hess,
                                                  double *mean, double *var)
{
  const int j = MILL_PAR_VSINI;
  const double lo = mill_par_inner(m, j, mill_par_min(m, j));
  const double hi = mill_par_inner(m, j, mill_par_max(m, j));
  const double off = at < lo ? lo - at : (at > hi ? at - hi : 0.0);
  const double reach = sqrt(MILL_PART_REACH / hess + off * off);
  const double first = mill_par_outer(m, j, at - reach), last = mill_par_outer(m, j, at + reach);
  double sum[3] = {0.0, 0.0, 0.0};
  for (int i = 0; i < MILL_PART_POINTS; i++) {
    const double v = first + (last - first) * ((double)i + 0.5) / MILL_PART_POINTS;
    const double d = mill_par_inner(m, j, v) - at, y = v - mill_par_min(m, j);
    const double w = exp(-0.5 * hess * (d * d - off * off));
    sum[0] += w;
    sum[1] += w * y;
    sum[2] += w * y * y;
  }
  *mean = sum[1] / sum[0];
  *var = sum[2] / sum[0] - *mean * *mean;
}

/** Put the mean of v sin i near its limit at the limit. */
MILL_HD static inline void mill_part_mirror(const mill_slot *slot, mill_part *part)
{
  const int n = slot->n_free, v = slot->sample.i_vsini;
  double *c = part->axes;
  if (v < 0 || part->mean[v] > MILL_PART_NEAR * sqrt(c[v * n + v]))
    return;
  c[v * n + v] += part->mean[v] * part->mean[v];
  part->mean[v] = 0.0;
  for (int k = 0; k < n; k++)
    if (k != v)
      c[k * n + v] = c[v * n + k] = 0.0;
}

/** Bend of the part and its covariance but for v sin i, by the curvature of the fit; returns the
 *  curvature left in u, 0: there is no minimum. */
MILL_HD_CALLED static inline double mill_part_bend(const mill_model *m, mill_slot *slot,
                                                   mill_part *part)
{
  const int n = slot->n_free, v = slot->sample.i_vsini;
  const double *hess = slot->best.at.hess, *of_u = hess + MILL_PAR_VSINI * m->n_par;
  double *a = slot->space.matrix[0], left = v < 0 ? 1.0 : of_u[MILL_PAR_VSINI];
  for (int k = 0; k < n; k++)
    for (int l = 0; l < n; l++)
      a[k * n + l] = k == v || l == v ? (double)(k == l)
                                      : hess[slot->free_par[k] * m->n_par + slot->free_par[l]];
  if (mill_cholesky(n, a, n) != 0)
    return 0.0;
  mill_cholesky_inverse(n, a, n, part->axes, n);
  for (int k = 0; k < n && v >= 0; k++) {
    for (int l = 0; l < n && k != v; l++)
      part->bend[k] -= l == v ? 0.0 : part->axes[k * n + l] * of_u[slot->free_par[l]];
    left += part->bend[k] * of_u[slot->free_par[k]];
  }
  return left;
}

/** The Gaussian of the fit's curvature about the solution, without axes; where there is no minimum
 *  typical uncertainties. */
MILL_HD_CALLED static inline void mill_part_of_fit(const mill_model *m, mill_slot *slot,
                                                   mill_part *part)
{
  const int n = slot->n_free, v = slot->sample.i_vsini;
  const double vsini = slot->best.end[MILL_PAR_VSINI];
  for (int k = 0; k < n; k++)
    part->mean[k] = part->bend[k] = 0.0;
  const double h = mill_part_bend(m, slot, part);
  if (v >= 0)
    part->mean[v] = vsini - m->set.min_vsini_km_s;
  for (int k = 0; k < n && !(h > 0.0); k++) {
    const double scale = mill_par_scale(m, slot->free_par[k]);
    part->bend[k] = 0.0;
    for (int l = 0; l < n; l++)
      part->axes[k * n + l] = k == l ? scale * scale : 0.0;
  }
  if (v >= 0 && h > 0.0) {
    double at = mill_par_inner(m, MILL_PAR_VSINI, vsini);
    if (mill_par_at_limit(m, MILL_PAR_VSINI, vsini)) /* a minimum beyond it */
      at -= 0.5 * slot->best.at.grad[MILL_PAR_VSINI] / h;
    mill_part_vsini(m, at, h, &part->mean[v], &part->axes[v * n + v]);
  }
  mill_part_mirror(slot, part);
}

/** Move a part from the solution to another minimum [n_par]. */
MILL_HD static inline void mill_part_move(const mill_model *m, const mill_slot *slot,
                                          const double *minimum, mill_part *part)
{
  const double u = mill_part_u(m, slot, minimum[MILL_PAR_VSINI]);
  for (int k = 0; k < slot->n_free; k++) {
    const int j = slot->free_par[k];
    if (k == slot->sample.i_vsini)
      part->mean[k] = minimum[j] - m->set.min_vsini_km_s;
    else
      part->mean[k] = minimum[j] - slot->best.end[j] - part->bend[k] * u;
  }
}

/* ---- weights ---- */

MILL_HD static inline float *mill_sample_point(const mill_slot *slot, int i)
{
  return slot->sample.x + (size_t)i * (size_t)slot->n_free;
}

/** ln weights of the points by the mixture of all draws (Veach & Guibas 1995; Cornuet et al. 2012,
 *  Scand. J. Stat. 39, 798), less that of the largest, which is returned. */
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

/** What a part of the proposal has of a point's weight, exp(power ln_w), which is added to *all. */
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

/** Coordinate k of a point, less the solution; n_free: u of v sin i. */
MILL_HD static inline double mill_part_place(const mill_model *m, const mill_slot *slot, int i,
                                             int k)
{
  const int v = slot->sample.i_vsini;
  const float *x = mill_sample_point(slot, i);
  if (k < slot->n_free)
    return (double)x[k];
  return v < 0 ? 0.0 : mill_part_u(m, slot, slot->best.end[MILL_PAR_VSINI] + (double)x[v]);
}

/** A part from the mean [n_free + 1] and covariance [n_free + 1][n_free + 1] of its points and of u;
 *  0: it has no axes. */
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
    to->mean[v] += slot->best.end[MILL_PAR_VSINI] - m->set.min_vsini_km_s;
  for (int k = 0; k < n; k++)
    for (int l = 0; l < n; l++)
      to->axes[k * n + l] = c[k * n_all + l] - to->bend[k] * of_u[l] - to->bend[l] * of_u[k] +
                            to->bend[k] * to->bend[l] * of_u[n];
  mill_part_mirror(slot, to);
  return mill_part_shape(slot, wider, to);
}

/** A new part from a part of the proposal: means and covariance of the points by what it claims of
 *  their weights.  Returns its share of the weights; 0: there is none.  sample.sorted is work space.
 */
MILL_BLOCK_FN double mill_block_part_learn(mill_block *b, const mill_model *m, mill_slot *slot,
                                           int i_part, double power, mill_part *to)
{
  const mill_sample *s = &slot->sample;
  const int n_all = slot->n_free + 1, n_point = s->n_point;
  double *mean = slot->space.mean, *c = slot->space.moment, part[2] = {0.0, 0.0}, sum[2];
  MILL_FOR(b, i, n_point)
  {
    s->sorted[i] = (float)mill_part_claim(m, slot, i_part, power, i, &part[0]);
    part[1] += (double)s->sorted[i];
  }
  mill_block_sum_n(b, part, 2, sum);
  if (!(sum[1] > MILL_PART_LEAST * sum[0]))
    return 0.0;
  for (int k = 0; k < n_all; k++) {
    double own = 0.0;
    MILL_FOR(b, i, n_point)
    {
      own += (double)s->sorted[i] * mill_part_place(m, slot, i, k);
    }
    own = mill_block_sum(b, own) / sum[1];
    MILL_SERIAL(b)
    {
      mean[k] = own;
    }
    MILL_BARRIER(b);
    for (int l = 0; l <= k; l++) {
      double both = 0.0;
      MILL_FOR(b, i, n_point)
      {
        both += (double)s->sorted[i] * (mill_part_place(m, slot, i, k) - own) *
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
    /* few points that count may not yet reach all that there is */
    const double wider = MILL_PART_WIDER * (2.0 - power);
    to->share = mill_part_make(m, slot, mean, c, wider, to) ? sum[1] / sum[0] : 0.0;
  }
  MILL_BARRIER(b);
  return to->share;
}

/** Power of the weights at which MILL_PART_ENOUGH effective samples by parameter are left
 *  (Koblents & Miguez 2015, Stat. Comp. 25, 407). */
MILL_BLOCK_FN double mill_block_points_power(mill_block *b, const mill_slot *slot)
{
  const mill_sample *s = &slot->sample;
  const double least = MILL_PART_ENOUGH * (double)slot->n_free;
  double low = 0.0, high = 1.0, power = 1.0;
  for (int i = 0; i <= 20; i++) { /* the whole first */
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

/** A new proposal from the weights: each of its parts learns (Cappe et al. 2008, Stat. Comp. 18,
 *  447).  0: the old one stays, as there is no room or nothing to learn. */
MILL_BLOCK_FN int mill_block_points_learn(mill_block *b, const mill_model *m, mill_slot *slot)
{
  mill_sample *s = &slot->sample;
  const int first = s->first_part, end = s->n_part;
  double sum = 0.0;
  int n = end;
  if (2 * end - first > MILL_SAMPLE_PART)
    return 0;
  const double power = mill_block_points_power(b, slot);
  for (int p = first; p < end; p++) {
    const double share = mill_block_part_learn(b, m, slot, p, power, &s->part[n]);
    sum += share;
    n += share > 0.0;
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

#endif
