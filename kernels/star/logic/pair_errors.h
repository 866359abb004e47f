/* SPDX-License-Identifier: BSD-3-Clause */
/** Free velocities of both stars at each epoch, eliminated from F by a Schur complement.
 *
 *  The curvature of F (half its second derivatives) consists of blocks: A in the parameters that
 *  all epochs share, C_i in the two velocities of epoch i, and B_i between these.  With
 *  P_i = C_i^-1 and S = A - sum_i B_i^T P_i B_i, the shared parameters have the covariance S^-1,
 *  and epoch i's velocities P_i + (P_i B_i) S^-1 (P_i B_i)^T.  The first term holds the shared
 *  parameters fixed: mill_epoch.pair_err after the turns. */
#pragma once

#include "kernels/star/logic/pair_epochs.h"

/** Is companion parameter k free? k counts the companion's velocity, v sin i and labels (theta),
 *  then the arms' ln(flux ratio), then the velocity offsets. */
MILL_HD static inline int mill_pair_free(const mill_model *m, const mill_slot *slot,
                                         const double *theta, int k)
{
  if (k >= m->n_deriv + m->n_arm)
    return !slot->no_offset[k - m->n_deriv - m->n_arm + 1];
  if (k >= m->n_deriv)
    return slot->result.n_pix[k - m->n_deriv] > 0;
  return !m->set.fixed[k] && !mill_par_at_limit(m, k, theta[k]);
}

/** Typical uncertainty of ln(flux ratio). */
#define MILL_PAIR_SCALE 0.3

/** Write the indices (mill_map_of) of the free parameters that all epochs share to idx, and return
 *  their number: v sin i and labels of both stars, flux ratios, velocity offsets. */
MILL_HD_CALLED static inline int mill_pair_shared(const mill_model *m, const mill_slot *slot,
                                                  int *idx)
{
  const mill_pair *p = &slot->pair;
  int n = 0;
  for (int j = MILL_PAR_VRAD + 1; j < m->n_deriv; j++)
    if (mill_pair_free(m, slot, p->theta[0], j))
      idx[n++] = j;
  for (int k = MILL_PAR_VRAD + 1; k < mill_pair_n(m); k++)
    if (mill_pair_free(m, slot, p->theta[1], k))
      idx[n++] = m->n_par + k;
  return n;
}

/** Return the curvature of the prior of the parameter with index i, and of a prior of 1000 typical
 *  uncertainties: S must be positive definite even if spectra do not determine the parameter. */
MILL_HD_CALLED static inline double mill_pair_prior(const mill_model *m, mill_slot *slot, int i)
{
  const int star = i >= m->n_par, k = star ? i - m->n_par : i;
  const int is_ratio = k >= m->n_deriv && k < m->n_deriv + m->n_arm;
  const int j = k < m->n_deriv ? k : k - m->n_arm; /* the star's parameter */
  const double unit = is_ratio ? MILL_PAIR_SCALE : mill_par_scale(m, j);
  double stiff = 0.0;
  slot->pair.star = star; /* mill_prior_sigma uses its priors */
  if (!is_ratio) {
    (void)mill_prior_gradient(m, slot, j, slot->pair.theta[star][j], &stiff);
    stiff += mill_prior_bend(m, slot, j, slot->pair.theta[star][j]);
  }
  slot->pair.star = 0;
  return stiff + 1e-6 / (unit * unit);
}

/** Sum the gradient (g, [n_all]) and curvature (slot->space.part, [n_all][n_all]) of F over the
 *  segments of epoch i, in the parameters of two stars (mill_map_of).  Write P_i, the covariance of
 *  the epoch's velocities, to p (elements 00, 01, 11).  It is the inverse of their curvature C_i.
 *  But velocities that obey the mass-ratio relation v2 = v1 slope + constant (slope < 0) have
 *  P_i = d d^T / (d^T C_i d) with d = (1, slope), and unknown velocities have P_i = 0. */
MILL_HD_CALLED static inline void mill_pair_epoch_blocks(const mill_model *m, mill_slot *slot,
                                                         int i, double slope, double *g, double *p)
{
  const int np = m->n_par, n_all = np + mill_pair_n(m), is_free = !(slope < 0.0);
  const double *err = slot->epoch[i].pair_err;
  double *part = slot->space.part;
  for (int k = 0; k < n_all * n_all; k++)
    part[k] = 0.0;
  for (int k = 0; k < n_all; k++)
    g[k] = 0.0;
  for (int s = 0; s < slot->n_segment; s++)
    if (slot->segment[s].paired && slot->segment[s].epoch == i)
      mill_map_add(m, &slot->segment[s], mill_answer_of(m, slot, s), n_all, g, part);
  const int first = MILL_PAR_VRAD, second = np + MILL_PAR_VRAD;
  const double c00 = part[first * (n_all + 1)], c01 = part[first * n_all + second];
  const double c11 = part[second * (n_all + 1)];
  const double det = is_free ? c00 * c11 - c01 * c01 : c00 + slope * (2.0 * c01 + slope * c11);
  const double known = det > 0.0 && isfinite(err[0] + err[1]) ? 1.0 / det : 0.0;
  p[0] = known * (is_free ? c11 : 1.0);
  p[1] = known * (is_free ? -c01 : slope);
  p[2] = known * (is_free ? c00 : slope * slope);
}

/** Return element [k][c] of P_i B_i: the rise of star k's velocity if parameter c falls by 1. */
MILL_HD static inline double mill_pair_cross(const mill_model *m, const mill_slot *slot,
                                             const double *p, int k, int c)
{
  const int np = m->n_par, n_all = np + mill_pair_n(m);
  const double *b = slot->space.part + MILL_PAR_VRAD * n_all, *b1 = b + np * n_all;
  return p[k] * b[c] + p[k + 1] * b1[c];
}

/** Subtract B_i^T P_i B_i, P_i = p, from the joint curvature of all parameters but both VRAD. */
MILL_HD_CALLED static inline void mill_pair_subtract(const mill_model *m, mill_slot *slot,
                                                     const double *p)
{
  const int np = m->n_par, n_all = np + mill_pair_n(m);
  const int vrad[2] = {MILL_PAR_VRAD, np + MILL_PAR_VRAD};
  for (int r = 0; r < n_all; r++)
    for (int k = 0; k < 2 && r != vrad[0] && r != vrad[1]; k++) {
      const double pb = mill_pair_cross(m, slot, p, k, r), *b = slot->space.part + vrad[k] * n_all;
      for (int c = 0; c < n_all; c++)
        slot->space.joint[r * n_all + c] -= c == vrad[0] || c == vrad[1] ? 0.0 : pb * b[c];
    }
}

/** Weighted means of both stars' velocities over the epochs that are eliminated; k = 0 is the star
 *  whose turn it is.  If the shared parameters change by x, the means change by move - slope x;
 *  variance: for fixed x.  If epochs tell the stars apart (n_told), the means leave out the others,
 *  as the row's VRAD will. */
typedef struct mill_pair_mean {
  int n_told;
  double weight[2], move[2], variance[3]; /**< weight: sum over epochs; elements 00, 01, 11 */
  double *slope;                          /**< [2][n_all] */
} mill_pair_mean;

/** Weight of an epoch in the mean k.  As in mill_pair_epochs_centre, each star's errors count. */
MILL_HD static inline double mill_pair_weight(const mill_model *m, const mill_slot *slot,
                                              const mill_pair_mean *mean, int i, int k)
{
  if (mean->n_told > 0 && !mill_pair_is_told(m, slot, i))
    return 0.0;
  const double err = slot->epoch[i].pair_err[k == 0 ? slot->pair.star : 1 - slot->pair.star];
  return 1.0 / (err * err);
}

/** Eliminate the velocities of epoch i, with P_i = p, from slot->eval.f and slot->space's joint
 *  gradient and curvature, and add them to the means.  VRAD does not move the epoch any more. */
MILL_HD_CALLED static inline void mill_pair_eliminate_epoch(const mill_model *m, mill_slot *slot,
                                                            int i, const double *g, const double *p,
                                                            mill_pair_mean *mean)
{
  const int np = m->n_par, n_all = np + mill_pair_n(m);
  const int vrad[2] = {MILL_PAR_VRAD, np + MILL_PAR_VRAD};
  const double *part = slot->space.part;
  double *grad = slot->space.joint_grad;
  const double w[2] = {mill_pair_weight(m, slot, mean, i, 0) / mean->weight[0],
                       mill_pair_weight(m, slot, mean, i, 1) / mean->weight[1]};
  for (int k = 0; k < 3; k++)
    mean->variance[k] += w[k / 2] * w[(k + 1) / 2] * p[k];
  for (int k = 0; k < 2; k++) {
    const double step = -0.5 * (p[k] * g[vrad[0]] + p[k + 1] * g[vrad[1]]);
    mean->move[k] += w[k] * step;
    slot->eval.f += 0.5 * g[vrad[k]] * step;
    for (int r = 0; r < n_all; r++) {
      const int is_velocity = r == vrad[0] || r == vrad[1];
      const double slope = is_velocity ? 0.0 : mill_pair_cross(m, slot, p, k, r);
      mean->slope[k * n_all + r] += w[k] * slope;
      grad[r] += is_velocity ? 0.0 : 2.0 * part[vrad[k] * n_all + r] * step;
    }
    grad[vrad[k]] -= g[vrad[k]]; /* as VRAD does not move the epoch */
  }
  mill_pair_subtract(m, slot, p);
  for (int r = 0; r < n_all; r++) /* VRAD has no effect on this epoch */
    for (int c = 0; c < n_all; c++)
      if (r == vrad[0] || r == vrad[1] || c == vrad[0] || c == vrad[1])
        slot->space.joint[r * n_all + c] -= part[r * n_all + c];
}

/** Eliminate the free epochs' velocities from slot->eval.f and slot->space's joint gradient and
 *  curvature.  Each star's VRAD then stands for the weighted mean of its velocities. */
MILL_HD_CALLED static inline void mill_pair_eliminate(const mill_model *m, mill_slot *slot)
{
  const int np = m->n_par, n_all = np + mill_pair_n(m);
  const mill_pair_line line = mill_pair_line_of(m, slot);
  double *g = slot->space.matrix[0], p[3];
  mill_pair_mean mean = {0, {0.0, 0.0}, {0.0, 0.0}, {0.0, 0.0, 0.0}, slot->space.matrix[1]};
  for (int i = 0; i < slot->n_epoch; i++)
    mean.n_told += mill_pair_epoch_is_free(m, slot, &line, i) && mill_pair_is_told(m, slot, i);
  for (int i = 0; i < slot->n_epoch; i++)
    for (int k = 0; k < 2 && mill_pair_epoch_is_free(m, slot, &line, i); k++)
      mean.weight[k] += mill_pair_weight(m, slot, &mean, i, k);
  if (!(mean.weight[0] > 0.0))
    return;
  for (int c = 0; c < 2 * n_all; c++)
    mean.slope[c] = 0.0;
  for (int i = 0; i < slot->n_epoch; i++)
    if (mill_pair_epoch_is_free(m, slot, &line, i)) {
      mill_pair_epoch_blocks(m, slot, i, 0.0, g, p);
      mill_pair_eliminate_epoch(m, slot, i, g, p, &mean);
    }
  /* add (slope x - move)^T variance^-1 (slope x - move); each VRAD has slope 1 */
  mean.slope[MILL_PAR_VRAD] = mean.slope[n_all + np + MILL_PAR_VRAD] = 1.0;
  const double *v = mean.variance, det = v[0] * v[2] - v[1] * v[1];
  for (int k = 0; k < 2; k++)
    for (int l = 0; l < 2; l++) {
      const double inverse = (k == l ? v[2 - 2 * k] : -v[1]) / det;
      slot->eval.f += inverse * mean.move[k] * mean.move[l];
      for (int r = 0; r < n_all; r++) {
        const double slope = mean.slope[l * n_all + r];
        slot->space.joint_grad[r] -= 2.0 * inverse * mean.move[k] * slope;
        for (int c = 0; c < n_all; c++)
          slot->space.joint[r * n_all + c] += inverse * slope * mean.slope[k * n_all + c];
      }
    }
}

/** Add what errors of the shared parameters contribute to the epochs' errors (pair_err).  The last
 *  answer must be the first star's tangents at the solution.  Returns 0 if S is singular. */
MILL_HD_CALLED static inline int mill_pair_epochs_errors(const mill_model *m, mill_slot *slot)
{
  const int n_all = m->n_par + mill_pair_n(m);
  const mill_pair_line line = mill_pair_line_of(m, slot);
  double *s = slot->space.joint, *row = slot->space.matrix[0], *g = row + MILL_MAX_JOINT, p[3];
  int idx[MILL_MAX_JOINT];
  const int n = mill_pair_shared(m, slot, idx);
  for (int i = 0; i < slot->n_epoch; i++) /* s becomes S, the shared parameters' curvature */
    if (mill_pair_has_lines(&slot->epoch[i])) {
      mill_pair_epoch_blocks(m, slot, i, mill_pair_slope(m, slot, &line, i), g, p);
      mill_pair_subtract(m, slot, p);
    }
  for (int r = 0; r < n; r++) /* in place: no element is read after it is overwritten */
    for (int c = 0; c < n; c++)
      s[r * n + c] = s[idx[r] * n_all + idx[c]];
  for (int r = 0; r < n; r++)
    s[r * (n + 1)] += mill_pair_prior(m, slot, idx[r]);
  if (mill_cholesky(n, s, n) != 0)
    return 0;
  for (int i = 0; i < slot->n_epoch; i++) {
    mill_epoch *e = &slot->epoch[i];
    if (!mill_pair_has_lines(e))
      continue;
    mill_pair_epoch_blocks(m, slot, i, mill_pair_slope(m, slot, &line, i), g, p);
    for (int star = 0; star < 2; star++) {
      double var = 0.0;
      for (int r = 0; r < n; r++)
        row[r] = mill_pair_cross(m, slot, p, star, idx[r]);
      mill_cholesky_forward(n, s, n, row);
      for (int r = 0; r < n; r++)
        var += row[r] * row[r];
      e->label_err[star] = sqrt(var);
      e->pair_err[star] = hypot(e->pair_err[star], e->label_err[star]);
    }
  }
  return 1;
}
