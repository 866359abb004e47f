/* SPDX-License-Identifier: BSD-3-Clause */
/** Likelihood of the velocity about the solution: its grids, and the moments that are VRAD_ERR,
 *  VRAD_SKEW and VRAD_KURT.
 *
 *  docs/science/numerics.md, "Velocity profile".
 */
#ifndef MILL_PROFILE_H
#define MILL_PROFILE_H

#include "kernels/math/quartic.h"
#include "kernels/star/logic/parameters.h"
#include "kernels/star/resumable.h"

/** Where the quartic through the first grid is believed: F = F0 + c1 x + c2 x^2 + c3 x^3 + c4 x^4,
 * x in widths that the curvature promises, has its minimum within half a width, c2 about 1, and c3
 *  and c4 so small that what is left out, of the order of c3 c4 and c4^2, is nothing. */
#define MILL_PROFILE_MOST_C1  1.0
#define MILL_PROFILE_LEAST_C2 0.75
#define MILL_PROFILE_MOST_C2  1.25
#define MILL_PROFILE_MOST_C3  0.02
#define MILL_PROFILE_MOST_C4  0.006
/** Places at which the quartic is integrated, half a width apart: +-6 widths. */
enum { MILL_N_PROFILE_QUARTIC = 25 };

/** The grid's velocities. */
MILL_HD static inline void mill_profile_request(const mill_model *m, mill_slot *slot)
{
  const int n = slot->profile.n_vel;
  const double step = (n == MILL_N_PROFILE ? 0.5 : MILL_PROFILE_FEW_STEP) * slot->profile.width;
  mill_go_to_best(m, slot);
  for (int i = 0; i < MILL_N_PROFILE; i++)
    slot->profile.vel[i] =
        i < n ? slot->best.end[MILL_PAR_VRAD] + (i - n / 2) * step : (double)INFINITY;
}

/** The first grid, few or full, as wide as the curvature says. */
MILL_HD_CALLED static inline void mill_profile_begin(const mill_model *m, mill_slot *slot, int n)
{
  double h = slot->best.at.hess[MILL_PAR_VRAD * m->n_par + MILL_PAR_VRAD];
  for (int a = 1; a < m->n_arm; a++)
    if (mill_par_offset(m, a) >= 0)
      h += mill_offset_slope(m, slot, a) *
           slot->best.at.hess[MILL_PAR_VRAD * m->n_par + mill_par_offset(m, a)];
  const double widest = 0.1 * (m->set.max_vel_km_s - m->set.min_vel_km_s);
  slot->profile.n_vel = n;
  slot->profile.width = h > 0.0 ? 1.0 / sqrt(h) : 60.0;
  if (slot->profile.width > widest)
    slot->profile.width = widest;
  mill_profile_request(m, slot);
}

/** Priors of the velocity offsets where the star's velocity is VRAD. */
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

/** F of the velocities asked for with the priors of VRAD and the offsets, infinite where it has no
 *  weight.  The least of them. */
MILL_HD static inline double mill_profile_weigh(const mill_model *m, mill_slot *slot)
{
  double least = INFINITY;
  for (int i = 0; i < slot->profile.n_vel; i++) {
    const double v = slot->profile.vel[i];
    slot->eval.profile[i] +=
        mill_offset_penalty(m, slot, v) + mill_prior_penalty(m, slot, MILL_PAR_VRAD, v);
    if (v < m->set.min_vel_km_s || v > m->set.max_vel_km_s || !isfinite(slot->eval.profile[i]))
      slot->eval.profile[i] = INFINITY;
    if (slot->eval.profile[i] < least)
      least = slot->eval.profile[i];
  }
  return least;
}

/** Put the quartic through the first grid in its place, MILL_N_PROFILE_QUARTIC velocities; 0 where
 *  it is not to be believed. */
MILL_HD_CALLED static inline int mill_profile_quartic(const mill_model *m, mill_slot *slot)
{
  const double h = MILL_PROFILE_FEW_STEP, v = slot->best.end[MILL_PAR_VRAD];
  const double reach = 0.25 * (MILL_N_PROFILE_QUARTIC - 1) * slot->profile.width;
  double c[MILL_N_QUARTIC];
  mill_quartic(slot->eval.profile, c);
  const double c2 = c[2] / (h * h), c3 = c[3] / (h * h * h), c4 = c[4] / (h * h * h * h);
  if (!(c2 > MILL_PROFILE_LEAST_C2 && c2 < MILL_PROFILE_MOST_C2) ||
      !(fabs(c[1] / h) < MILL_PROFILE_MOST_C1) || !(fabs(c3) < MILL_PROFILE_MOST_C3) ||
      !(fabs(c4) < MILL_PROFILE_MOST_C4) ||
      !(v - reach >= m->set.min_vel_km_s && v + reach <= m->set.max_vel_km_s))
    return 0;
  slot->profile.n_vel = MILL_N_PROFILE_QUARTIC;
  for (int i = 0; i < MILL_N_PROFILE_QUARTIC; i++) {
    const double x = 0.5 * (i - MILL_N_PROFILE_QUARTIC / 2);
    slot->profile.vel[i] = v + x * slot->profile.width;
    slot->eval.profile[i] = mill_quartic_at(c, x / h);
  }
  slot->profile.has_arm = 1;
  for (int a = 0; a < m->n_arm; a++)
    for (int i = 0; i < MILL_N_PROFILE_FEW; i++)
      slot->profile.arm[a][i] = slot->eval.profile_arm[a][i];
  return 1;
}

/** Width, skewness and kurtosis of exp(-dF/2) over the velocities. */
MILL_HD_CALLED static inline void mill_profile_moments(const mill_slot *slot, double *moment)
{
  const int n = slot->profile.n_vel;
  const double *f = slot->eval.profile;
  double least = f[0], sum = 0.0, mean = 0.0, m2 = 0.0, m3 = 0.0, m4 = 0.0;
  for (int i = 1; i < n; i++)
    least = f[i] < least ? f[i] : least;
  for (int i = 0; i < n; i++) {
    const double w = exp(-0.5 * (f[i] - least));
    sum += w;
    if (w > 0.0)
      mean += w * slot->profile.vel[i];
  }
  mean /= sum;
  for (int i = 0; i < n; i++) {
    const double w = exp(-0.5 * (f[i] - least)) / sum;
    const double d = slot->profile.vel[i] - mean;
    m2 += w * d * d;
    m3 += w * d * d * d;
    m4 += w * d * d * d * d;
  }
  moment[0] = sqrt(m2);
  moment[1] = m2 > 0.0 ? m3 / (m2 * moment[0]) : 0.0;
  moment[2] = m2 > 0.0 ? m4 / (m2 * m2) : 0.0;
}

/** Is a full grid too coarse for this width, or so narrow that it cuts the profile (unless it spans
 *  the limits)?  If so, make the next one. */
MILL_HD static inline int mill_profile_again(const mill_model *m, mill_slot *slot, double width)
{
  const double step = 0.5 * slot->profile.width;
  const double range = m->set.max_vel_km_s - m->set.min_vel_km_s;
  const int coarse = width < 1.6 * step;
  const int cut = width > 2.6 * step && step * (MILL_N_PROFILE - 1) < 2.0 * range;
  if (!(coarse || cut) || slot->profile.n_round >= MILL_MAX_PROFILE_ROUND)
    return 0;
  double next = width < 0.25 * step ? 0.25 * step : width;
  if (next > 0.1 * range)
    next = 0.1 * range;
  if (next == slot->profile.width)
    return 0;
  slot->profile.width = next;
  mill_profile_request(m, slot);
  return 1;
}

/** Moments of exp(-dF/2) over the velocities asked for; 1: the grid does not resolve them, and there
 *  is another one. */
MILL_HD_CALLED static inline int mill_profile_digest(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  double moment[3];
  const int few = slot->profile.n_vel == MILL_N_PROFILE_FEW;
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
  mill_profile_moments(slot, moment);
  if (!few && mill_profile_again(m, slot, moment[0]))
    return 1;
  r->vrad_err_km_s = moment[0];
  r->vrad_skew = moment[1];
  r->vrad_kurt = moment[2];
  return 0;
}

/** The velocity's likelihood about the solution, at few velocities if these tell it. */
MILL_RESUMABLE(mill_profile_run)
{
  MILL_BEGIN;
  mill_profile_begin(m, slot, MILL_N_PROFILE_FEW);
  do {
    MILL_ASK(MILL_REQ_PROFILE);
  } while (mill_profile_digest(m, slot));
  MILL_END;
}

#endif
