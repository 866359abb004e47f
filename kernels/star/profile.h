/** Likelihood of the velocity about the solution: its grids, and the moments that are VRAD_ERR,
 *  VRAD_SKEW and VRAD_KURT.
 *
 *  Serial code, run by one thread of a star's block (docs/science/numerics.md, "Velocity profile").
 */
#ifndef MILL_PROFILE_H
#define MILL_PROFILE_H

#include "kernels/star/slot.h"

/** Where 13 velocities give the moments: width over step, and how far from a Gaussian. */
#define MILL_PROFILE_NARROW 0.95
#define MILL_PROFILE_WIDE   1.15
#define MILL_PROFILE_SKEW   0.2
#define MILL_PROFILE_KURT   0.2

MILL_HD static inline void mill_profile_request(const mill_model *m, mill_slot *slot)
{
  const int n = slot->n_profile;
  const double step = (n == MILL_N_PROFILE ? 0.5 : 1.0) * slot->profile_width;
  for (int j = 0; j < m->n_par; j++)
    slot->theta[j] = slot->best_end[j];
  for (int i = 0; i < MILL_N_PROFILE; i++)
    slot->profile_vel[i] =
        i < n ? slot->best_end[MILL_PAR_VRAD] + (i - n / 2) * step : (double)INFINITY;
  slot->stage = MILL_STAGE_PROFILE;
  slot->request = MILL_REQ_PROFILE;
}

/** The first grid, few or full, as wide as the curvature says. */
MILL_HD_CALLED static inline void mill_profile_begin(const mill_model *m, mill_slot *slot, int n)
{
  double h = slot->best.hess[MILL_PAR_VRAD * m->n_par + MILL_PAR_VRAD];
  for (int a = 1; a < m->n_arm; a++)
    if (mill_par_offset(m, a) >= 0)
      h += mill_offset_slope(m, slot, a) *
           slot->best.hess[MILL_PAR_VRAD * m->n_par + mill_par_offset(m, a)];
  const double widest = 0.1 * (m->set.max_vel_km_s - m->set.min_vel_km_s);
  slot->n_profile = n;
  slot->profile_width = h > 0.0 ? 1.0 / sqrt(h) : 60.0;
  if (slot->profile_width > widest)
    slot->profile_width = widest;
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

/** Moments of exp(-dF/2) over the velocities asked for; 0 when the grid does
 *  not resolve them and a new one was requested. */
MILL_HD_CALLED static inline int mill_profile_digest(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  const int n = slot->n_profile;
  double least = INFINITY;
  int n_finite = 0;
  for (int i = 0; i < n; i++) {
    const double v = slot->profile_vel[i];
    slot->eval.profile[i] += mill_offset_penalty(m, slot, v);
    if (v < m->set.min_vel_km_s || v > m->set.max_vel_km_s || !isfinite(slot->eval.profile[i]))
      slot->eval.profile[i] = INFINITY;
    else
      n_finite++;
    if (slot->eval.profile[i] < least)
      least = slot->eval.profile[i];
  }
  if (n == MILL_N_PROFILE)
    slot->n_profile_round++;
  if (!isfinite(least)) {
    slot->nonfinite = 1;
    return 1;
  }
  double sum = 0.0, mean = 0.0, m2 = 0.0, m3 = 0.0, m4 = 0.0;
  for (int i = 0; i < n; i++) {
    const double w = exp(-0.5 * (slot->eval.profile[i] - least));
    sum += w;
    if (w > 0.0)
      mean += w * slot->profile_vel[i];
  }
  mean /= sum;
  for (int i = 0; i < n; i++) {
    const double w = exp(-0.5 * (slot->eval.profile[i] - least)) / sum;
    const double d = slot->profile_vel[i] - mean;
    m2 += w * d * d;
    m3 += w * d * d * d;
    m4 += w * d * d * d * d;
  }
  const double width = sqrt(m2);
  const double skew = m2 > 0.0 ? m3 / (m2 * width) : 0.0, kurt = m2 > 0.0 ? m4 / (m2 * m2) : 0.0;
  if (n == MILL_N_PROFILE_FEW) {
    const double ratio = width / slot->profile_width;
    if (n_finite < n || !(ratio > MILL_PROFILE_NARROW && ratio < MILL_PROFILE_WIDE) ||
        !(fabs(skew) < MILL_PROFILE_SKEW) || !(fabs(kurt - 3.0) < MILL_PROFILE_KURT)) {
      mill_profile_begin(m, slot, MILL_N_PROFILE);
      return 0;
    }
  } else {
    const double step = 0.5 * slot->profile_width;
    const double range = m->set.max_vel_km_s - m->set.min_vel_km_s;
    /* too coarse, or so wide that the window cuts it (unless it spans the limits) */
    const int coarse = width < 1.6 * step;
    const int cut = width > 2.6 * step && step * (MILL_N_PROFILE - 1) < 2.0 * range;
    if ((coarse || cut) && slot->n_profile_round < MILL_MAX_PROFILE_ROUND) {
      double next = width < 0.25 * step ? 0.25 * step : width;
      if (next > 0.1 * range)
        next = 0.1 * range;
      if (next != slot->profile_width) {
        slot->profile_width = next;
        mill_profile_request(m, slot);
        return 0;
      }
    }
  }
  r->vrad_err_km_s = width;
  r->vrad_skew = skew;
  r->vrad_kurt = kurt;
  return 1;
}

#endif
