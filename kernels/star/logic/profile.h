/* SPDX-License-Identifier: BSD-3-Clause */
/** Compute the likelihood of the velocity on a grid about the solution.  Its moments are VRAD_ERR,
 *  VRAD_SKEW and VRAD_KURT (docs/science/numerics.md, "Velocity profile"). */
#pragma once

#include "kernels/math/quartic.h"
#include "kernels/star/logic/ask.h"

/** A quartic F = F0 + c1 x + c2 x^2 + c3 x^3 + c4 x^4 through the first grid replaces the full grid
 *  if its coefficients are within these limits.  Here x is the velocity in expected errors. */
#define MILL_PROFILE_MOST_C1  1.0
#define MILL_PROFILE_LEAST_C2 0.75
#define MILL_PROFILE_MOST_C2  1.25
#define MILL_PROFILE_MOST_C3  0.02
#define MILL_PROFILE_MOST_C4  0.006
enum { MILL_N_PROFILE_QUARTIC = 25 }; /**< points at which the quartic is integrated */
#define MILL_PROFILE_STEP 0.5         /**< their step, and the full grid's, in expected errors */

/** Set up a grid of n velocities about the solution. */
MILL_HD static inline void mill_profile_grid(mill_slot *slot, int n)
{
  mill_curve *c = &slot->profile.curve;
  c->n = n;
  c->centre = slot->best.end[MILL_PAR_VRAD];
  c->f_centre = (double)NAN;
  c->step =
      (n == MILL_N_PROFILE_FEW ? MILL_PROFILE_FEW_STEP : MILL_PROFILE_STEP) * slot->profile.width;
}

/** Set the velocity's expected error from the curvature, and set up a grid of n velocities. */
MILL_HD_CALLED static inline void mill_profile_begin(const mill_model *m, mill_slot *slot, int n)
{
  double h = slot->best.at.hess[MILL_PAR_VRAD * m->n_par + MILL_PAR_VRAD];
  for (int a = 1; a < m->n_arm; a++) /* each offset takes its best value */
    if (mill_par_offset(m, a) >= 0)
      h += mill_offset_slope(m, slot, a) *
           slot->best.at.hess[MILL_PAR_VRAD * m->n_par + mill_par_offset(m, a)];
  const double widest = 0.1 * (m->set.max_vel_km_s - m->set.min_vel_km_s);
  slot->profile.width = fmin(h > 0.0 ? 1.0 / sqrt(h) : 60.0, widest);
  mill_profile_grid(slot, n);
}

/** Return the prior penalty of the velocity offsets at the velocity vrad_km_s. */
MILL_HD static inline double mill_offset_penalty(const mill_model *m, const mill_slot *slot,
                                                 double vrad_km_s)
{
  double f = 0.0;
  for (int a = 1; a < m->n_arm; a++)
    if (mill_par_offset(m, a) >= 0) {
      const double u = mill_arm_offset(m, slot, a, vrad_km_s) / m->set.velocity_offset_sigma_km_s;
      f += u * u;
    }
  return f;
}

/** At each grid point, add the penalties of the priors of VRAD and of the velocity offsets to F.
 *  Return the least F.  F beyond the velocity limits becomes infinite. */
MILL_HD static inline double mill_profile_weigh(const mill_model *m, mill_slot *slot)
{
  double least = INFINITY;
  mill_curve *c = &slot->profile.curve;
  for (int i = 0; i < c->n; i++) {
    const double v = mill_curve_velocity(c, i);
    c->f[i] += mill_offset_penalty(m, slot, v) + mill_prior_penalty(m, slot, MILL_PAR_VRAD, v);
    if (v < m->set.min_vel_km_s || v > m->set.max_vel_km_s || !isfinite(c->f[i]))
      c->f[i] = INFINITY;
    least = fmin(least, c->f[i]);
  }
  return least;
}

/** Replace the first grid by values of the quartic through it.  Returns 0 if a coefficient or the
 *  new grid is outside its limits. */
MILL_HD_CALLED static inline int mill_profile_quartic(const mill_model *m, mill_slot *slot)
{
  mill_curve *grid = &slot->profile.curve;
  const double h = MILL_PROFILE_FEW_STEP, v = grid->centre;
  const double new_reach = MILL_PROFILE_STEP * (MILL_N_PROFILE_QUARTIC / 2) * slot->profile.width;
  double c[MILL_N_QUARTIC];
  mill_quartic(grid->f, c);
  /* coefficients by expected errors in place of grid steps */
  const double c2 = c[2] / (h * h), c3 = c[3] / (h * h * h), c4 = c[4] / (h * h * h * h);
  if (!(c2 > MILL_PROFILE_LEAST_C2 && c2 < MILL_PROFILE_MOST_C2) ||
      !(fabs(c[1] / h) < MILL_PROFILE_MOST_C1) || !(fabs(c3) < MILL_PROFILE_MOST_C3) ||
      !(fabs(c4) < MILL_PROFILE_MOST_C4) ||
      !(v - new_reach >= m->set.min_vel_km_s && v + new_reach <= m->set.max_vel_km_s))
    return 0;
  mill_profile_grid(slot, MILL_N_PROFILE_QUARTIC);
  for (int i = 0; i < MILL_N_PROFILE_QUARTIC; i++)
    grid->f[i] = mill_quartic_at(c, MILL_PROFILE_STEP * (i - MILL_N_PROFILE_QUARTIC / 2) / h);
  slot->profile.has_arm = 1; /* slot->arm still has each arm's F on the first grid */
  return 1;
}

/** Set moment [3] to width (km/s), skewness and kurtosis of exp(-dF/2) over the velocities. */
MILL_HD_CALLED static inline void mill_profile_moments(const mill_curve *c, double *moment)
{
  const int n = c->n;
  const double *f = c->f;
  double least = f[0], sum = 0.0, mean = 0.0, m2 = 0.0, m3 = 0.0, m4 = 0.0;
  for (int i = 1; i < n; i++)
    least = f[i] < least ? f[i] : least;
  for (int i = 0; i < n; i++) {
    const double w = exp(-0.5 * (f[i] - least));
    sum += w; /* 0 where F is infinite, beyond the velocity limits */
    mean += w * mill_curve_velocity(c, i);
  }
  mean /= sum;
  for (int i = 0; i < n; i++) {
    const double w = exp(-0.5 * (f[i] - least)) / sum;
    const double d = mill_curve_velocity(c, i) - mean;
    m2 += w * d * d;
    m3 += w * d * d * d;
    m4 += w * d * d * d * d;
  }
  moment[0] = sqrt(m2);
  moment[1] = m2 > 0.0 ? m3 / (m2 * moment[0]) : 0.0;
  moment[2] = m2 > 0.0 ? m4 / (m2 * m2) : 0.0;
}

/** Set up another grid and return 1 if this one is too coarse (profile's width, km/s, below 1.6
 *  steps), or too short (width above 2.6 steps) and not yet twice as long as the velocity range. */
MILL_HD static inline int mill_profile_again(const mill_model *m, mill_slot *slot, double width)
{
  const double step = MILL_PROFILE_STEP * slot->profile.width;
  const double range = m->set.max_vel_km_s - m->set.min_vel_km_s;
  const int coarse = width < 1.6 * step;
  const int cut = width > 2.6 * step && step * (MILL_N_PROFILE - 1) < 2.0 * range;
  if (!(coarse || cut) || slot->profile.n_round >= MILL_MAX_PROFILE_ROUND)
    return 0;
  const double next = fmin(fmax(width, 0.25 * step), 0.1 * range);
  if (next == slot->profile.width)
    return 0;
  slot->profile.width = next;
  mill_profile_grid(slot, MILL_N_PROFILE);
  return 1;
}

/** Fill in the moments of exp(-dF/2) over the grid, or set up a better grid and return 1.  The
 *  first grid has few velocities; a full grid follows unless mill_profile_quartic takes its F. */
MILL_HD_CALLED static inline int mill_profile_digest(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  double moment[3];
  const int few = slot->profile.curve.n == MILL_N_PROFILE_FEW;
  const double least = mill_profile_weigh(m, slot);
  if (!few)
    slot->profile.n_round++;
  if (!isfinite(least)) {
    slot->nonfinite = 1;
    return 0;
  }
  if (few && !mill_profile_quartic(m, slot)) {
    mill_profile_begin(m, slot, MILL_N_PROFILE);
    return 1;
  }
  mill_profile_moments(&slot->profile.curve, moment);
  if (!few && mill_profile_again(m, slot, moment[0]))
    return 1;
  r->vrad_err_km_s = moment[0];
  r->vrad_skew = moment[1];
  r->vrad_kurt = moment[2];
  return 0;
}

/** Compute the moments of the velocity's likelihood, from five velocities if these suffice. */
MILL_RESUMABLE(mill_profile_run)
{
  MILL_BEGIN;
  mill_go_to_best(m, slot);
  slot->profile.n_round = 0; /* each profile counts its rounds from 0 */
  mill_profile_begin(m, slot, MILL_N_PROFILE_FEW);
  do {
    MILL_ASK_CURVES(MILL_OF_STAR);
  } while (mill_profile_digest(m, slot));
  MILL_END;
}
