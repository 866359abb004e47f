/* SPDX-License-Identifier: BSD-3-Clause */
/** The velocity of an arm alone: a search by parabolas through three values of F. */
#ifndef MILL_ARM_VELOCITY_H
#define MILL_ARM_VELOCITY_H

#include "kernels/math/quartic.h"
#include "kernels/star/slot.h"

/** Rounds of the search, of two or three values each; its first steps, in errors of all arms and
 *  in km/s; its widest ones; errors below which the values at a step are mere noise, steps beyond
 *  which a parabola is not to be trusted, and errors beyond which a step is made smaller first. */
#define MILL_ARM_VEL_ROUNDS 8
#define MILL_ARM_VEL_STEP   2.0
#define MILL_ARM_VEL_LEAST  1.0
#define MILL_ARM_VEL_MOST   60.0
#define MILL_ARM_VEL_NOISE  0.5
#define MILL_ARM_VEL_NEAR   0.5
#define MILL_ARM_VEL_COARSE 6.0

MILL_HD static inline void mill_arm_velocity_begin(const mill_slot *slot, double vel_km_s, double f,
                                                   mill_arm_velocity *at)
{
  const double err = slot->result.vrad_err_km_s;
  at->go = isfinite(f);
  at->n_round = 0;
  at->v = vel_km_s;
  at->f = f;
  at->step = MILL_ARM_VEL_STEP * err;
  if (!(at->step > MILL_ARM_VEL_LEAST)) /* a fixed velocity has no error */
    at->step = MILL_ARM_VEL_LEAST;
  if (at->step > MILL_ARM_VEL_MOST)
    at->step = MILL_ARM_VEL_MOST;
  at->found = at->err = (double)NAN;
}

/** Digest F at v - step and v + step.  1: v has moved, and F there is wanted. */
MILL_HD static inline int mill_arm_velocity_digest(mill_arm_velocity *at, double left, double right)
{
  const double h = at->step;
  const double curve = 0.5 * (left + right - 2.0 * at->f) / (h * h);
  const double slope = 0.5 * (right - left) / h;
  if (!isfinite(curve) || ++at->n_round >= MILL_ARM_VEL_ROUNDS) {
    at->go = 0;
    return 0;
  }
  if (!(curve * h * h > MILL_ARM_VEL_NOISE * MILL_ARM_VEL_NOISE)) {
    at->go = h < MILL_ARM_VEL_MOST;
    at->step = 2.0 * h < MILL_ARM_VEL_MOST ? 2.0 * h : MILL_ARM_VEL_MOST;
    return 0;
  }
  double move = -0.5 * slope / curve;
  const int is_near = fabs(move) <= MILL_ARM_VEL_NEAR * h;
  if (is_near && h > MILL_ARM_VEL_LEAST &&
      h * h * curve > MILL_ARM_VEL_COARSE * MILL_ARM_VEL_COARSE) {
    at->step = MILL_ARM_VEL_STEP / sqrt(curve);
  } else if (is_near) {
    at->found = at->v + move;
    at->err = 1.0 / sqrt(curve);
    at->go = 0;
    return 0;
  }
  const double most = 4.0 * h < MILL_ARM_VEL_MOST ? 4.0 * h : MILL_ARM_VEL_MOST;
  move = move < -most ? -most : (move > most ? most : move);
  at->v += move;
  return 1;
}

/** Begin with what the velocity profile knows of the arm about the solution: the quartic through
 *  its values of F takes the place of the first two evaluations.  1: v has moved. */
MILL_HD_CALLED static inline int mill_arm_velocity_known(const mill_model *m, const mill_slot *slot,
                                                         int i_arm, mill_arm_velocity *at)
{
  const double v = slot->theta[MILL_PAR_VRAD], first = at->step;
  const double most = MILL_N_PROFILE_FEW / 2;
  const double along = most * MILL_PROFILE_FEW_STEP * slot->profile.width;
  if (!at->go || !slot->profile.has_arm)
    return 0;
  const double left = at->v - mill_arm_vrad(m, slot, i_arm, v - along);
  const double right = mill_arm_vrad(m, slot, i_arm, v + along) - at->v;
  /* not where offsets hold the arm's velocity, or a limit does */
  if (!(right > 0.0 && fabs(right - left) < 1e-6 * right))
    return 0;
  double c[MILL_N_QUARTIC];
  mill_quartic(slot->profile.arm[i_arm], c);
  if (at->step > right)
    at->step = right;
  const double x = most * at->step / right;
  const int has_moved = mill_arm_velocity_digest(at, mill_quartic_at(c, -x), mill_quartic_at(c, x));
  if (at->step < first)
    at->step = first;
  return has_moved;
}

#endif
