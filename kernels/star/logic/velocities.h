/* SPDX-License-Identifier: BSD-3-Clause */
/** Find the velocity of each arm or epoch, the minimum of F, by parabolas through three values. */
#pragma once

#include "kernels/math/quartic.h"
#include "kernels/star/logic/ask.h"

#define MILL_SEEK_ROUNDS 8    /**< a search without a minimum ends after these rounds */
#define MILL_SEEK_STEP   2.0  /**< in errors: first step, and step after a coarse one */
#define MILL_SEEK_LEAST  1.0  /**< least first step, km/s */
#define MILL_SEEK_MOST   60.0 /**< widest step, km/s */
#define MILL_SEEK_NOISE  0.5  /**< in errors: a smaller step is doubled, as F hardly changes */
#define MILL_SEEK_NEAR   0.5  /**< in steps: a minimum farther away becomes the next centre */
#define MILL_SEEK_COARSE 6.0  /**< in errors: a larger step is reduced first */

/** Begin a search at vel_km_s, where F is f (NaN if not known). */
MILL_HD_CALLED static inline void mill_seek_begin(const mill_slot *slot, double vel_km_s, double f,
                                                  mill_curve *c)
{
  const double step = MILL_SEEK_STEP * slot->result.vrad_err_km_s;
  c->go = 1;
  c->n_round = c->n = 0;
  c->centre = vel_km_s;
  c->f_centre = f;
  c->step = fmin(fmax(step, MILL_SEEK_LEAST), MILL_SEEK_MOST); /* a fixed VRAD has no error */
  c->found = c->err = (double)NAN;
}

/** Fit a parabola to F at the centre and a step to each side.  End the search, or set the step or
 *  the centre of its next round. */
MILL_HD_CALLED static inline void mill_seek_digest(double left, double middle, double right,
                                                   mill_curve *c)
{
  const double h = c->step;
  const double bend = 0.5 * (left + right - 2.0 * middle) / (h * h); /* curvature */
  const double slope = 0.5 * (right - left) / h;
  c->f_centre = middle;
  if (!isfinite(bend) || ++c->n_round >= MILL_SEEK_ROUNDS) {
    c->go = 0;
    return;
  }
  if (!(bend * h * h > MILL_SEEK_NOISE * MILL_SEEK_NOISE)) { /* F hardly rises: a longer step */
    c->go = h < MILL_SEEK_MOST;
    c->step = 2.0 * h < MILL_SEEK_MOST ? 2.0 * h : MILL_SEEK_MOST;
    return;
  }
  const double move = -0.5 * slope / bend;
  const int is_near = fabs(move) <= MILL_SEEK_NEAR * h;
  if (is_near && h > MILL_SEEK_LEAST && h * h * bend > MILL_SEEK_COARSE * MILL_SEEK_COARSE) {
    c->step = MILL_SEEK_STEP / sqrt(bend); /* shorter: h is too coarse for a parabola */
  } else if (is_near) {
    c->centre += move;
    c->f_centre += 0.5 * slope * move;
    c->found = c->centre;
    c->err = 1.0 / sqrt(bend);
    c->go = 0;
    return;
  }
  /* not found yet: the next round is about the minimum predicted here */
  const double most = 4.0 * h < MILL_SEEK_MOST ? 4.0 * h : MILL_SEEK_MOST;
  c->centre += fmin(fmax(move, -most), most);
  c->f_centre = (double)NAN;
}

/** Return the widest step (km/s) from the centre that stays within the limits despite rounding. */
MILL_HD static inline double mill_seek_room(const mill_model *m, const mill_curve *c)
{
  return 0.99 * fmin(c->centre - m->set.min_vel_km_s, m->set.max_vel_km_s - c->centre);
}

/** Return the curve of search i, an epoch's or an arm's; NULL: there is no search i. */
MILL_HD static inline mill_curve *mill_seek_of(const mill_model *m, mill_slot *slot, int i)
{
  if (slot->of_epochs)
    return i < slot->n_epoch ? &slot->epoch[i].curve : NULL;
  return i < m->n_arm ? &slot->arm[i] : NULL;
}

/** Let the search of each arm or epoch ask for three values, or end it at a velocity limit.
 *  Returns 0 if all searches have ended. */
MILL_HD_CALLED static inline int mill_seeks_next(const mill_model *m, mill_slot *slot)
{
  mill_curve *c;
  int go = 0;
  for (int i = 0; (c = mill_seek_of(m, slot, i)) != NULL; i++) {
    c->step = fmin(c->step, mill_seek_room(m, c));
    c->go = c->go && c->step > 0.0;
    c->n = c->go ? 3 : 0;
    go |= c->go;
  }
  return go;
}

/** Digest the three values of each running search. */
MILL_HD_CALLED static inline void mill_seeks_digest(const mill_model *m, mill_slot *slot)
{
  mill_curve *c;
  for (int i = 0; (c = mill_seek_of(m, slot, i)) != NULL; i++)
    if (c->n > 0)
      mill_seek_digest(c->f[0], c->f[1], c->f[2], c);
}

/** Run the searches that have begun, with the templates of slot->theta, to their ends. */
MILL_RESUMABLE(mill_seek_run)
{
  MILL_BEGIN;
  while (mill_seeks_next(m, slot)) {
    MILL_ASK_CURVES(slot->of_epochs ? MILL_OF_EPOCHS : MILL_OF_ARMS);
    mill_seeks_digest(m, slot);
  }
  MILL_END;
}

/** Begin an arm's search with its F on the velocity profile's first grid.  The quartic through the
 *  grid replaces the search's first two evaluations. */
MILL_HD_CALLED static inline void mill_arm_known(const mill_model *m, const mill_slot *slot,
                                                 int i_arm, mill_curve *c)
{
  const double v = slot->theta[MILL_PAR_VRAD], first_step = c->step;
  const double n_side = MILL_N_PROFILE_FEW / 2;
  const double reach = n_side * MILL_PROFILE_FEW_STEP * slot->profile.width;
  const double left = c->centre - mill_arm_vrad(m, slot, i_arm, v - reach);
  const double right = mill_arm_vrad(m, slot, i_arm, v + reach) - c->centre;
  double coef[MILL_N_QUARTIC];
  /* the grid is of no use if a limit cuts it, or if the arm's offset cancels changes of VRAD */
  if (!(right > 0.0 && fabs(right - left) < 1e-6 * right))
    return;
  mill_quartic(c->f, coef);
  c->step = fmin(c->step, right);
  const double x = n_side * c->step / right; /* the search's step in steps of the grid */
  mill_seek_digest(mill_quartic_at(coef, -x), c->f_centre, mill_quartic_at(coef, x), c);
  c->step = fmax(c->step, first_step); /* mill_seek_begin's step is the least one */
}

/** Begin each arm's velocity search at slot->theta, where the answered models have the arm's F. */
MILL_HD_CALLED static inline void mill_arms_begin(const mill_model *m, mill_slot *slot)
{
  slot->of_epochs = 0;
  for (int a = 0; a < m->n_arm; a++) {
    mill_curve *c = &slot->arm[a];
    const double f = mill_sum_models(m, slot, a, MILL_ANSWER_F);
    mill_seek_begin(slot, mill_arm_vrad(m, slot, a, slot->theta[MILL_PAR_VRAD]), f, c);
    c->go = isfinite(f) && (slot->arms >> a & 1);
    if (c->go && slot->profile.has_arm)
      mill_arm_known(m, slot, a, c);
  }
}
