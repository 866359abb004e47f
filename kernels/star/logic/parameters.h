/* SPDX-License-Identifier: BSD-3-Clause */
/** A star's parameters: typical uncertainties, limits, hulls, priors, the inner parameter of v sin
 *  i (rotation.h), and the map to a segment's parameters. */
#pragma once

#include "kernels/math/hull.h"
#include "kernels/math/rotation.h"
#include "kernels/star/slot.h"

/** A label is at the edge if it is outside a facet, or inside by less than this (mapped units). */
#define MILL_HULL_EDGE 1e-3

/** Is parameter j fixed for this star?  With two stars, a turn eliminates velocity offsets. */
MILL_HD static inline int mill_par_held(const mill_model *m, const mill_slot *slot, int j)
{
  if (j < m->n_deriv)
    return m->set.fixed[j];
  return slot->pair.is_fitted || slot->no_offset[j - m->n_deriv + 1];
}

/** Does the star have its own prior of parameter j?  The second star of a pair never does. */
MILL_HD static inline int mill_prior_own(const mill_slot *slot, int j)
{
  return slot->prior_sigma[j] > 0.0 && !(slot->pair.is_fitted && slot->pair.star == 1);
}

/** Standard deviation of a parameter's Gaussian prior; 0: it has none. */
MILL_HD static inline double mill_prior_sigma(const mill_model *m, const mill_slot *slot, int j)
{
  if (j >= m->n_deriv)
    return m->set.velocity_offset_sigma_km_s;
  return mill_prior_own(slot, j) ? slot->prior_sigma[j] : m->set.prior_sigma[j];
}

/** Mean of a parameter's Gaussian prior. */
MILL_HD static inline double mill_prior_mean(const mill_model *m, const mill_slot *slot, int j)
{
  if (j >= m->n_deriv)
    return 0.0;
  return mill_prior_own(slot, j) ? slot->prior_mean[j] : m->set.prior_mean[j];
}

/** Penalty that the prior of parameter j adds to F at x. */
MILL_HD static inline double mill_prior_penalty(const mill_model *m, const mill_slot *slot, int j,
                                                double x)
{
  const double sigma = mill_prior_sigma(m, slot, j);
  if (!(sigma > 0.0))
    return 0.0;
  const double u = (x - mill_prior_mean(m, slot, j)) / sigma;
  return u * u;
}

/** Return a parameter's typical uncertainty, for velocities (km/s) that of a star at S/N 10-20. */
MILL_HD static inline double mill_par_scale(const mill_model *m, int j)
{
  if (j == MILL_PAR_VRAD || j >= m->n_deriv)
    return 3.0;
  if (j == MILL_PAR_VSINI)
    return 10.0;
  return m->label[j - MILL_PAR_LABEL0].scale;
}

/** Return the largest step of a parameter in one iteration (trust region), km/s or label's unit. */
MILL_HD static inline double mill_par_limit(const mill_model *m, int j)
{
  return j < MILL_PAR_LABEL0 || j >= m->n_deriv ? 60.0 : 7.0 * m->label[j - MILL_PAR_LABEL0].scale;
}

/** Return a parameter's lower limit.  Labels, which hulls bound, and velocity offsets have none. */
MILL_HD static inline double mill_par_min(const mill_model *m, int j)
{
  return j == MILL_PAR_VRAD ? m->set.min_vel_km_s
                            : (j == MILL_PAR_VSINI ? m->set.min_vsini_km_s : -INFINITY);
}

MILL_HD static inline double mill_par_max(const mill_model *m, int j)
{
  return j == MILL_PAR_VRAD ? m->set.max_vel_km_s
                            : (j == MILL_PAR_VSINI ? m->set.max_vsini_km_s : INFINITY);
}

/** Is the value x of parameter j exactly one of its limits? */
MILL_HD static inline int mill_par_at_limit(const mill_model *m, int j, double x)
{
  return x == mill_par_min(m, j) || x == mill_par_max(m, j);
}

/** Return the value in which fits make steps: u (rotation.h) for v sin i, x for all others. */
MILL_HD static inline double mill_par_inner(const mill_model *m, int j, double x)
{
  return j == MILL_PAR_VSINI ? mill_vsini_inner(m->set.rotation, x) : x;
}

/** Return parameter j for its inner value u.  A u beyond a limit gives exactly the limit. */
MILL_HD static inline double mill_par_outer(const mill_model *m, int j, double u)
{
  const double lo = mill_par_min(m, j), hi = mill_par_max(m, j);
  double x = u;
  if (j == MILL_PAR_VSINI)
    x = u <= mill_par_inner(m, j, lo)   ? lo
        : u >= mill_par_inner(m, j, hi) ? hi
                                        : mill_vsini_outer(m->set.rotation, u);
  return x < lo ? lo : (x > hi ? hi : x);
}

/** Return d(parameter)/d(inner).  v sin i below 1 km/s has the slope at 1 km/s, which is finite. */
MILL_HD static inline double mill_par_slope(const mill_model *m, int j, double x)
{
  if (j != MILL_PAR_VSINI)
    return 1.0;
  return mill_vsini_outer_slope(m->set.rotation,
                                mill_vsini_inner(m->set.rotation, x > 1.0 ? x : 1.0));
}

/** Return the derivative of mill_prior_penalty at x by the inner parameter; stiff: curvature. */
MILL_HD static inline double mill_prior_gradient(const mill_model *m, const mill_slot *slot, int j,
                                                 double x, double *stiff)
{
  const double s = mill_prior_sigma(m, slot, j), slope = mill_par_slope(m, j, x);
  /* x dx/du of v sin i is finite at 0, where dx/du is not */
  const double rise = j == MILL_PAR_VSINI ? mill_vsini_rise(m->set.rotation, x) : x;
  *stiff = s > 0.0 ? slope * slope / (s * s) : 0.0;
  return s > 0.0 ? 2.0 * (rise - slope * mill_prior_mean(m, slot, j)) / (s * s) : 0.0;
}

/** The prior's curvature in the inner parameter u of v = v sin i is (dv/du)^2 / sigma^2 plus a term
 *  with d2v/du2.  Return this second term, or 0 where v is above the prior's mean.
 *  mill_prior_gradient omits the second term, which is huge at small v. */
MILL_HD static inline double mill_prior_bend(const mill_model *m, const mill_slot *slot, int j,
                                             double x)
{
  const double s = mill_prior_sigma(m, slot, j), slope = mill_par_slope(m, j, x);
  const double below = mill_prior_mean(m, slot, j) - x;
  return s > 0.0 && below > 0.0 ? below * (slope * slope - 1.0) / (fmax(x, 1.0) * s * s) : 0.0;
}

/** Map the labels of theta [n_par] to the emulator's coordinates, mapped [n_label]. */
MILL_HD static inline void mill_map_labels(const mill_model *m, const double *theta, double *mapped)
{
  for (int l = 0; l < m->n_label; l++)
    mapped[l] = mill_label_map(&m->label[l], theta[MILL_PAR_LABEL0 + l]);
}

/** Are theta's labels at or beyond the edge of a hull?  Hulls of elements count only on request
 *  (with_elements), as an element at its edge has a flag of its own. */
MILL_HD_CALLED static inline int mill_at_hull(const mill_model *m, const double *theta,
                                              int with_elements)
{
  double mapped[MILL_MAX_LABEL];
  int is_at = 0;
  mill_map_labels(m, theta, mapped);
  for (int h = 0; h < m->n_hull; h++)
    is_at |= (with_elements || !m->hull[h].of_element) &&
             mill_hull_signed(1, &m->hull[h], mapped) > -MILL_HULL_EDGE;
  return is_at;
}

/** Hull distance (mapped units) from which the emulator is useless: penalty MILL_OFF_LIMITS. */
#define MILL_HULL_FAR 5.0
/** F of a point outside the limits (rvspecfit's value). */
#define MILL_OFF_LIMITS 1e30

/** Penalty of labels outside the hulls at theta [n_par]. */
MILL_HD_CALLED static inline double mill_hull_penalty(const mill_model *m, const mill_slot *slot,
                                                      const double *theta)
{
  double mapped[MILL_MAX_LABEL];
  mill_map_labels(m, theta, mapped);
  const double d = mill_hull_distance(m->n_hull, m->hull, mapped);
  return d < MILL_HULL_FAR ? slot->hull_weight * d * d : MILL_OFF_LIMITS;
}

/** Hull penalty and priors at theta, to be added to the segments' F. */
MILL_HD_CALLED static inline double mill_penalty(const mill_model *m, const mill_slot *slot,
                                                 const double *theta)
{
  double f = mill_hull_penalty(m, slot, theta);
  for (int j = 0; j < m->n_par; j++)
    f += mill_prior_penalty(m, slot, j, theta[j]);
  return f;
}

/* ---- the map to a segment's parameters ---- */

/** Return d(best offset of an arm)/d(VRAD), from the curvature at the best point. */
MILL_HD static inline double mill_offset_slope(const mill_model *m, const mill_slot *slot,
                                               int i_arm)
{
  const int j = mill_par_offset(m, i_arm);
  const double h = j < 0 ? 0.0 : slot->best.at.hess[j * m->n_par + j];
  return h > 0.0 && !slot->no_offset[i_arm] ? -slot->best.at.hess[MILL_PAR_VRAD * m->n_par + j] / h
                                            : 0.0;
}

/** Return the velocity offset of an arm, km/s, if the star's velocity is vrad_km_s.  At another
 *  velocity than slot->theta's the offset takes its best value. */
MILL_HD static inline double mill_arm_offset(const mill_model *m, const mill_slot *slot, int i_arm,
                                             double vrad_km_s)
{
  const int j = mill_par_offset(m, i_arm);
  const double along = vrad_km_s - slot->theta[MILL_PAR_VRAD];
  const double offset = j < 0 ? 0.0 : slot->theta[j];
  return along == 0.0 ? offset : offset + mill_offset_slope(m, slot, i_arm) * along;
}

/** Velocity of an arm if the star's is vrad_km_s, km/s. */
MILL_HD static inline double mill_arm_vrad(const mill_model *m, const mill_slot *slot, int i_arm,
                                           double vrad_km_s)
{
  if (mill_par_offset(m, i_arm) < 0)
    return vrad_km_s;
  return mill_within_velocities(m, vrad_km_s + mill_arm_offset(m, slot, i_arm, vrad_km_s));
}

/** Whose velocity varies: the whole star's, an arm's or an epoch's. */
enum mill_group { MILL_OF_STAR, MILL_OF_ARMS, MILL_OF_EPOCHS };

/** Return the velocity, km/s, that a segment has when its star, arm or epoch (group) has the
 *  velocity vel_km_s.  All other parameters are those of slot->theta. */
MILL_HD_CALLED static inline double mill_velocity_of(const mill_model *m, const mill_slot *slot,
                                                     const mill_segment *s, enum mill_group group,
                                                     double vel_km_s)
{
  const double vrad = group == MILL_OF_EPOCHS ? slot->theta[MILL_PAR_VRAD] : vel_km_s;
  const double v = group == MILL_OF_ARMS ? vel_km_s : mill_arm_vrad(m, slot, s->arm, vrad);
  const int star = slot->pair.is_fitted ? slot->pair.star : 0;
  double shift = slot->n_epoch > 0 ? slot->epoch[s->epoch].shift[star] : 0.0;
  if (group == MILL_OF_EPOCHS)
    shift = vel_km_s - vrad;
  return shift == 0.0 ? v : mill_within_velocities(m, v + shift);
}

/** Return the number of the companion's parameters in a fit of two stars: n_par, which include the
 *  velocity offsets of both stars, and an ln(flux ratio) for each arm. */
MILL_HD static inline int mill_pair_n(const mill_model *m)
{
  return m->n_par + m->n_arm;
}

/** Write to `to` the indices of the fit's parameters on which a segment's parameter r depends, and
 *  return their number.  A velocity depends on two: VRAD and the arm's offset.  With two stars,
 *  indices from n_par on are the parameters that mill_pair_n counts. */
MILL_HD static inline int mill_map_of(const mill_model *m, const mill_segment *s, int r, int *to)
{
  const int nd = m->n_deriv, offset = mill_par_offset(m, s->arm);
  /* after the star's parameters: its companion's, then ln(flux ratio) by arm */
  to[0] = r < nd ? r : m->n_par + r - nd + (r == 2 * nd ? s->arm : 0);
  to[1] = s->paired ? m->n_par + m->n_arm + offset : offset;
  return 1 + (offset >= 0 && r < 2 * nd && r % nd == MILL_PAR_VRAD);
}

/** Add a segment's gradient g and curvature H (its lower triangle, row by row) to the star's:
 *  grad [n] += J^T g, hess [n][n] += J^T H J.  J = d(segment's parameters)/d(star's parameters) has
 *  elements 0 and 1. */
MILL_HD_CALLED static inline void mill_map_add(const mill_model *m, const mill_segment *s,
                                               const double *answer, int n, double *grad,
                                               double *hess)
{
  const int n_row = mill_n_row(m, s->paired);
  const double *g = answer + MILL_ANSWER_TANGENTS, *h = g + n_row;
  for (int r = 0; r < n_row; r++) {
    int of_r[2], of_l[2];
    const int n_r = mill_map_of(m, s, r, of_r);
    for (int i = 0; i < n_r; i++)
      grad[of_r[i]] += g[r];
    for (int l = 0; l <= r; l++, h++) {
      const int n_l = mill_map_of(m, s, l, of_l);
      for (int i = 0; i < n_r; i++)
        for (int k = 0; k < n_l; k++) {
          hess[of_r[i] * n + of_l[k]] += *h;
          if (l != r)
            hess[of_l[k] * n + of_r[i]] += *h;
        }
    }
  }
}

/** Copy the solution to slot->theta, where the next request is evaluated. */
MILL_HD static inline void mill_go_to_best(const mill_model *m, mill_slot *slot)
{
  for (int j = 0; j < m->n_par; j++)
    slot->theta[j] = slot->best.end[j];
}
