/* SPDX-License-Identifier: BSD-3-Clause */
/** Doubts about a star's first solution, and the other starts that they justify
 *  (docs/science/numerics.md).
 *
 *  Candidate starts are the guess's best templates with labels apart from each other
 *  (kernels/star/blocks/guess.h).  An easy star has one start. */
#pragma once

#include "kernels/star/logic/polish.h"

/** A start agrees with the best start if its F is less than this above the best start's F. */
#define MILL_SAME_F 2.0
/** The first solution gets one doubt after more than DOUBT_JAC Jacobians, two after more than
 *  DOUBT_MORE_JAC.  All Jacobians of the leading arm together count as one.  A Jacobian that
 *  updated the curvature counts as two. */
enum { MILL_DOUBT_JAC = 6, MILL_DOUBT_MORE_JAC = 8 };
#define MILL_DOUBT_CHISQ 1.1  /**< a doubt if mill_reduced is 3 errors above this */
#define MILL_DOUBT_VSINI 30.0 /**< a doubt if v sin i is above this, km/s */
/** A start that did not converge or fell back on a simplex counts as all other doubts together. */
enum { MILL_DOUBT_LOST = 5 };
/** The guess's next template gets a start if its chi-square exceeds the best template's by less
 *  than mill_reduced times a limit: GAP without a doubt, ONE_GAP with one doubt. */
#define MILL_DOUBT_GAP     30.0
#define MILL_DOUBT_ONE_GAP 400.0
#define MILL_FAR_VSINI     100.0 /**< v sin i above which mill_start_far acts, km/s */
#define MILL_FAR_SHARE     0.9   /**< a candidate needs this fraction of the best chi-square drop */

/** Two points are near each other if each parameter but v sin i differs by less than NEAR, and the
 *  sum of squared differences is below NEAR_SUM.  The unit is the polish's longest step. */
#define MILL_NEAR     0.6
#define MILL_NEAR_SUM 0.5

/** Are the points a and b near each other (MILL_NEAR)? */
MILL_HD static inline int mill_near(const mill_model *m, const double *a, const double *b)
{
  double sum = 0.0;
  for (int j = 0; j < m->n_par; j++) {
    const double d = j == MILL_PAR_VSINI ? 0.0 : (a[j] - b[j]) / mill_par_limit(m, j);
    if (!(fabs(d) < MILL_NEAR))
      return 0;
    sum += d * d;
  }
  return sum < MILL_NEAR_SUM;
}

/** Return an earlier start whose polish passed near slot->theta: both starts then end in one
 *  minimum.  If there is none, record slot->theta and return -1.  If the first start did not
 *  converge, the second one is not compared, as the first one may have ended at no minimum. */
MILL_HD_CALLED static inline int mill_start_merges(const mill_model *m, mill_slot *slot)
{
  mill_starts *s = &slot->starts;
  const int least = slot->best.converged ? 1 : 2; /* index of the first start that is compared */
  for (int i = 0; i < s->n_trail && s->i >= least; i++)
    if (s->trail_start[i] < s->i && mill_near(m, s->trail[i], slot->theta))
      return s->trail_start[i];
  if (s->n_trail < MILL_MAX_TRAIL) {
    s->trail_start[s->n_trail] = s->i;
    for (int j = 0; j < m->n_par; j++)
      s->trail[s->n_trail][j] = slot->theta[j];
    s->n_trail++;
  }
  return -1;
}

/** Does the next start begin so near the best start's end that it would end there, too?
 *  In tests all but one of some 750 such starts did; the exception found no lower minimum. */
MILL_HD_CALLED static inline int mill_start_is_idle(const mill_model *m, const mill_slot *slot)
{
  const mill_starts *s = &slot->starts;
  return slot->best.have && slot->best.converged && !s->try_all && !s->low_sn &&
         mill_near(m, s->theta[s->i], slot->best.end);
}

/** Record where a start has ended, for the posterior. */
MILL_HD static inline void mill_start_note(mill_slot *slot, int n_par)
{
  mill_starts *s = &slot->starts;
  if (s->n_minimum == MILL_MAX_GUESS_START)
    return;
  for (int j = 0; j < n_par; j++)
    s->minimum[s->n_minimum][j] = slot->polish.end[j];
  s->minimum_f[s->n_minimum++] = slot->polish.at.f;
}

/** Return the squared distance of a and b in errors, which follow from best.at's curvature. */
MILL_HD_CALLED static inline double mill_point_distance2(const mill_model *m, const mill_slot *slot,
                                                         const double *a, const double *b)
{
  double d[MILL_MAX_PAR], sum = 0.0;
  for (int j = 0; j < m->n_par; j++)
    d[j] = mill_par_inner(m, j, b[j]) - mill_par_inner(m, j, a[j]);
  for (int j = 0; j < m->n_par; j++)
    for (int k = 0; k < m->n_par; k++)
      sum += d[j] * slot->best.at.hess[j * m->n_par + k] * d[k];
  return sum;
}

/** Return (F - mill_unit_part) / number of pixels, a reduced chi-square; at least 1. */
MILL_HD static inline double mill_reduced(const mill_model *m, const mill_slot *slot, double f)
{
  double chisq = f;
  for (int i = 0; i < slot->n_segment; i++)
    if (slot->segment[i].used)
      chisq -= mill_unit_part(m, &slot->segment[i]);
  return fmax(chisq / (double)slot->result.n_pix_tot, 1.0);
}

/** Is the fit with this F poor, as with wrong templates? */
MILL_HD static inline int mill_is_poor(const mill_model *m, const mill_slot *slot, double f)
{
  return mill_reduced(m, slot, f) >
         MILL_DOUBT_CHISQ + 3.0 * sqrt(2.0 / (double)slot->result.n_pix_tot);
}

/** Count the reasons to doubt the solution of the first start; MILL_DOUBT_LOST if it failed. */
MILL_HD_CALLED static inline int mill_fit_doubts(const mill_model *m, const mill_slot *slot)
{
  /* nelder-mead always has a simplex, and Jacobians for its axes: they raise no doubt */
  const int wants_simplex =
      m->set.optimizer == MILL_OPT_NELDER_MEAD && !(slot->result.info & MILL_INFO_FALLBACK);
  /* the leading arm's Jacobians count as one, those that updated the curvature as two */
  const int n_jac = slot->result.n_jac - slot->starts.n_jac - slot->lead.n_jac +
                    (slot->lead.n_jac > 0) + slot->polish.n_learned;
  if (!slot->best.have || !slot->best.converged || (!wants_simplex && slot->simplex.done))
    return MILL_DOUBT_LOST;
  return (!wants_simplex && n_jac > MILL_DOUBT_JAC) +
         (!wants_simplex && n_jac > MILL_DOUBT_MORE_JAC) + mill_is_poor(m, slot, slot->best.at.f) +
         (!m->set.fixed[MILL_PAR_VSINI] && slot->best.end[MILL_PAR_VSINI] > MILL_DOUBT_VSINI) +
         mill_at_hull(m, slot->best.end, 0);
}

/** Count the starts so far that ended where the best one did. */
MILL_HD static inline int mill_start_agree(const mill_slot *slot)
{
  int n = 0;
  for (int i = 0; i < slot->starts.i; i++)
    n += slot->starts.f[i] < slot->best.at.f + MILL_SAME_F;
  return n;
}

/** Is the next start worthwhile?  With n > 1 doubts, n + 1 starts must agree on the lowest F. */
MILL_HD static inline int mill_start_wanted(const mill_model *m, const mill_slot *slot)
{
  const mill_starts *s = &slot->starts;
  if (s->i >= s->n || (slot->best.have && (s->brief || slot->result.n_eval >= m->set.max_eval)))
    return 0;
  if (!slot->best.have || s->try_all || (s->low_sn && s->i == 1))
    return 1;
  const double gap = (s->chisq[s->i] - s->chisq[0]) / mill_reduced(m, slot, slot->best.at.f);
  const double most = s->n_doubt > 0 ? MILL_DOUBT_ONE_GAP : MILL_DOUBT_GAP;
  const int n_agree = mill_start_agree(slot);
  return s->n_doubt > 1 ? n_agree <= s->n_doubt : n_agree < 2 && gap < most;
}

/** Give a fast rotator one extra start, after mill_start_wanted has refused the next one: make the
 *  candidate farthest from the solution, in errors, the next start and return 1.  Many fast
 *  rotators are hot.  If a hot star's pixel errors follow its flux, the guess prefers cool
 *  templates, whose starts agree on a wrong minimum. */
MILL_HD_CALLED static inline int mill_start_far(const mill_model *m, mill_slot *slot)
{
  mill_starts *s = &slot->starts;
  double most = 0.0;
  int far = 0; /* 0: none, since start 0 has been made */
  if (s->had_far || s->i >= s->n || s->brief || slot->result.n_eval >= m->set.max_eval ||
      !(slot->best.end[MILL_PAR_VSINI] > MILL_FAR_VSINI))
    return 0;
  for (int k = s->i; k < s->n && s->chisq[k] < MILL_FAR_SHARE * s->chisq[0]; k++) {
    const double d = mill_point_distance2(m, slot, slot->best.end, s->theta[k]);
    far = d > most ? k : far;
    most = fmax(d, most);
  }
  if (far == 0)
    return 0;
  for (int j = 0; j < m->n_par; j++)
    s->theta[s->i][j] = s->theta[far][j];
  s->label[s->i] = s->label[far];
  s->had_far = 1;
  return 1;
}

/** Go to the next worthwhile start and return 1; return 0 if there is none.  Starts that would end
 *  where the best start did are passed over, and count as ending there. */
MILL_HD_CALLED static inline int mill_start_next(const mill_model *m, mill_slot *slot)
{
  while (mill_start_wanted(m, slot)) {
    if (!mill_start_is_idle(m, slot))
      return 1;
    slot->starts.f[slot->starts.i++] = slot->best.at.f;
  }
  return mill_start_far(m, slot);
}
