/* SPDX-License-Identifier: BSD-3-Clause */
/** Descend from a start to a minimum of F by the polish (Levenberg-Marquardt) or a simplex.  If a
 *  method fails, the next one follows (mill_method_fall). */
#pragma once

#include "kernels/star/logic/simplex.h"
#include "kernels/star/logic/starts.h"

/** A start fits the leading arm alone while a step's predicted decrease of F is above PROMISE, for
 *  at most MAX_JAC Jacobians.  The arm's lines need a squared significance above SIGNAL. */
#define MILL_LEAD_PROMISE 100.0
#define MILL_LEAD_SIGNAL  1000.0
enum { MILL_LEAD_MAX_JAC = 3 };

/** Let a start begin with only the arm of the most significant lines, as Jacobians then cost less.
 *  A start has all arms if the fit has velocity offsets, or if it begins with a simplex
 *  (simplex.done).  A given start has all arms too, as it is near the minimum. */
MILL_HD static inline void mill_lead_begin(const mill_model *m, mill_slot *slot)
{
  int lead = 0, n_arm = 0; /* lead: 1 + arm */
  for (int a = 0; a < m->n_arm; a++) {
    if (slot->result.n_pix[a] == 0)
      continue;
    n_arm++;
    if (lead == 0 || slot->lead.signal[a] > slot->lead.signal[lead - 1])
      lead = a + 1;
  }
  const int is_given = slot->starts.has_given && slot->starts.i == 0;
  const int has_offsets = m->n_par > m->n_deriv;
  if (n_arm > 1 && !has_offsets && !slot->simplex.done && !is_given &&
      slot->lead.signal[lead - 1] > MILL_LEAD_SIGNAL)
    slot->lead.arm = lead;
}

/** Begin a start.  After the first solution, starts use the cheaper method levenberg-marquardt. */
MILL_HD_CALLED static inline void mill_start_begin(const mill_model *m, mill_slot *slot)
{
  slot->method = slot->best.have || slot->starts.brief ? MILL_OPT_LM : m->set.optimizer;
  if (slot->starts.i > 0)
    slot->result.info |= MILL_INFO_SECOND_START;
  slot->n_method_run = 0;
  slot->simplex.done = slot->method == MILL_OPT_NELDER_MEAD && slot->n_free > 0;
  mill_polish_begin(m, slot, slot->starts.theta[slot->starts.i]);
  mill_lead_begin(m, slot);
  mill_template_find(m, slot, slot->starts.i);
}

/** Digest a Jacobian of the leading arm, then go on with the leading arm or with all arms. */
MILL_HD_CALLED static inline void mill_lead_tell(const mill_model *m, mill_slot *slot, double f)
{
  const mill_polish *p = &slot->polish;
  const int outcome = mill_polish_tell(m, slot, f);
  slot->lead.n_jac++;
  if (outcome == MILL_POLISH_GO && p->pred > MILL_LEAD_PROMISE && p->n_jac < MILL_LEAD_MAX_JAC)
    return;
  const double *theta = slot->theta; /* where all arms begin: the next point, unless that failed */
  if (outcome == MILL_POLISH_FAILED)
    theta = p->have ? p->at.theta : slot->starts.theta[slot->starts.i];
  slot->lead.arm = 0;
  slot->fix_error = slot->starts.i == 0; /* the first start fixes the model error of all arms */
  mill_polish_begin(m, slot, theta);
}

/** Method hybrid runs a short simplex if two steps in a row raised F although the second one's
 *  predicted decrease was above this. */
#define MILL_SIMPLEX_PROMISE 1.0

/** Do the templates, or the width of the line-spread function, have a model error? */
MILL_HD static inline int mill_has_model_error(const mill_model *m, const mill_slot *slot)
{
  int has = mill_has_error(m);
  for (int i = 0; i < slot->n_segment; i++)
    has |= slot->segment[i].own_d != NULL;
  return has;
}

/** Below this predicted decrease of F, each Jacobian recomputes the model error at its point, at
 *  most MAX_SETTLE times.  The solution then does not depend on the start.  After WHOLE_SETTLE times
 *  a Jacobian goes only half the way from the last such point: two model errors, each computed at
 *  the minimum that the other gives, would alternate. */
#define MILL_SETTLE_PROMISE 4.0
enum { MILL_WHOLE_SETTLE = 3, MILL_MAX_SETTLE = 8 };

/** If the minimum is close, let the next Jacobian recompute the model error (fix_error), and
 *  return 1.  F values of different model errors cannot be compared: the polish forgets F, or
 *  restarts if the last Jacobian used an older model error (error_is_here is 0). */
MILL_HD_CALLED static inline int mill_polish_settle(const mill_model *m, mill_slot *slot)
{
  mill_polish *p = &slot->polish;
  const double promise = p->pred;
  if (!(p->pred < MILL_SETTLE_PROMISE) || !(p->lambda <= MILL_POLISH_LAMBDA_END) ||
      p->n_settle >= MILL_MAX_SETTLE || !mill_has_model_error(m, slot))
    return 0;
  p->n_settle++;
  slot->fix_error = 1;
  for (int j = 0; j < m->n_par; j++) {
    if (p->n_settle > MILL_WHOLE_SETTLE)
      slot->theta[j] = 0.5 * (p->settled[j] + slot->theta[j]);
    p->settled[j] = slot->theta[j];
  }
  if (slot->error_is_here) {
    p->at.f = (double)INFINITY; /* any next F is accepted */
    return 1;
  }
  /* restart, as the last Jacobian had an older model error; should this fail, the next method
   * begins at the present point */
  for (int j = 0; j < m->n_par; j++)
    slot->starts.theta[slot->starts.i][j] = p->at.theta[j];
  /* in a poor fit the updates of the curvature stay valid with the new model error */
  if (!mill_is_poor(m, slot, p->at.f))
    mill_polish_forget(m, p);
  mill_polish_restart(m, slot, slot->theta);
  p->pred = promise; /* which mill_polish_restart has cleared */
  return 1;
}

/** Most Jacobians of a brief start (mill_fit_admit). */
enum { MILL_BRIEF_JAC = 5 };

/** Digest a Jacobian of the leading arm or of all arms, and propose the next point.  Give the start
 *  up if its path meets an earlier start's.  Returns enum mill_polish_outcome. */
MILL_HD_CALLED static inline int mill_polish_digest(const mill_model *m, mill_slot *slot)
{
  const double f = slot->eval.f + mill_penalty(m, slot, slot->theta);
  if (slot->lead.arm > 0) { /* 1 + leading arm, while this arm is fitted alone */
    mill_lead_tell(m, slot, f);
  } else {
    const int outcome = mill_polish_tell(m, slot, f);
    if (outcome == MILL_POLISH_CONVERGED && !slot->error_is_here && mill_polish_settle(m, slot))
      return MILL_POLISH_GO; /* it converged with an older model error */
    if (outcome != MILL_POLISH_GO)
      return outcome;
    if (slot->method == MILL_OPT_HYBRID && !slot->simplex.done && m->set.n_simplex_round > 0 &&
        slot->polish.n_rejected > 1 && slot->polish.promised > MILL_SIMPLEX_PROMISE)
      return MILL_POLISH_MISLED;
    if (slot->starts.brief && slot->result.n_jac >= MILL_BRIEF_JAC)
      return MILL_POLISH_CUT;
    (void)mill_polish_settle(m, slot); /* near a minimum: renew the model error */
  }
  const int like = mill_start_merges(m, slot); /* an earlier start whose path this start meets */
  if (like < 0 || !slot->best.have || !slot->best.converged)
    return MILL_POLISH_GO;
  slot->starts.f[slot->starts.i] = slot->starts.f[like];
  return MILL_POLISH_GIVEN_UP;
}

/** The simplex of nelder-mead begins after MAX_JAC Jacobians, or sooner if the next step's
 *  predicted decrease of F is below NEAR.  Farther from the minimum its axes would be wrong. */
#define MILL_SIMPLEX_NEAR 25.0
enum { MILL_SIMPLEX_MAX_JAC = 3 };

/** Digest a Jacobian for the axes of a simplex.  Returns 1 if another Jacobian is needed. */
MILL_HD_CALLED static inline int mill_axes_digest(const mill_model *m, mill_slot *slot)
{
  const mill_polish *p = &slot->polish;
  const double f = slot->eval.f + mill_penalty(m, slot, slot->theta);
  return mill_polish_tell(m, slot, f) == MILL_POLISH_GO && p->n_jac < MILL_SIMPLEX_MAX_JAC &&
         !(p->pred < MILL_SIMPLEX_NEAR);
}

/** After a failed polish choose the next of the methods levenberg-marquardt, hybrid, nelder-mead,
 *  and nelder-mead again.  Returns 0 if none is left, or if an earlier start was better. */
MILL_HD static inline int mill_method_fall(const mill_model *m, mill_slot *slot)
{
  if (slot->n_free == 0 || slot->result.n_eval >= m->set.max_eval || slot->starts.brief)
    return 0;
  if (slot->best.have && !(slot->polish.have && slot->polish.at.f < slot->best.at.f))
    return 0;
  if (slot->method == MILL_OPT_NELDER_MEAD && slot->n_method_run++ > 0)
    return 0;
  slot->method = slot->method == MILL_OPT_LM && m->set.n_simplex_round > 0 ? MILL_OPT_HYBRID
                                                                           : MILL_OPT_NELDER_MEAD;
  slot->result.info |= MILL_INFO_FALLBACK;
  return 1;
}

/** Descend to a minimum from the point that mill_start_begin or mill_polish_again has set.  Method
 *  nelder-mead begins with a simplex.  If a polish fails, a simplex and another polish follow. */
MILL_RESUMABLE(mill_descend)
{
  MILL_BEGIN;
  if (slot->simplex.done) { /* preset for nelder-mead: first find the axes by Jacobians */
    do {
      MILL_ASK(MILL_REQ_TANGENTS);
    } while (mill_axes_digest(m, slot));
    mill_simplex_begin(m, slot, 1);
    MILL_CALL(mill_simplex_run);
  }
  for (;;) {
    do {
      MILL_ASK(MILL_REQ_TANGENTS);
      slot->polish.outcome = mill_polish_digest(m, slot);
    } while (slot->polish.outcome == MILL_POLISH_GO);
    if (slot->polish.outcome != MILL_POLISH_MISLED &&
        !(slot->polish.outcome == MILL_POLISH_FAILED && mill_method_fall(m, slot)))
      break;
    mill_simplex_begin(m, slot, 0);
    MILL_CALL(mill_simplex_run);
  }
  MILL_END;
}

/** Solutions farther apart than this many errors are different minima. */
#define MILL_TWO_MINIMA_DISTANCE 3.0

/** After a start keep its point if F is the lowest.  Flag two distinct minima of about equal F. */
MILL_HD_CALLED static inline void mill_best_keep(const mill_model *m, mill_slot *slot,
                                                 int converged)
{
  const mill_polish *p = &slot->polish;
  const double gap = MILL_TWO_MINIMA_GAP * mill_reduced(m, slot, slot->best.at.f);
  if (p->have && slot->best.have && converged && slot->best.converged &&
      fabs(p->at.f - slot->best.at.f) < gap &&
      mill_point_distance2(m, slot, slot->best.at.theta, p->end) >
          MILL_TWO_MINIMA_DISTANCE * MILL_TWO_MINIMA_DISTANCE)
    slot->result.info |= MILL_INFO_TWO_MINIMA;
  if (m->set.sample.max_eval > 0 && p->have && converged)
    mill_start_note(slot, m->n_par); /* the posterior is drawn about all minima */
  if (p->have && (!slot->best.have || p->at.f < slot->best.at.f)) {
    if (slot->best.have && slot->best.at.f - p->at.f >= gap)
      slot->result.info &= ~MILL_INFO_TWO_MINIMA; /* the new minimum is below both */
    slot->best.at = p->at;
    slot->best.have = 1;
    slot->best.i_start = slot->starts.i;
    slot->best.converged = converged;
    for (int j = 0; j < m->n_par; j++)
      slot->best.end[j] = converged ? p->end[j] : p->at.theta[j];
  }
}

/** Fix the model error at the best point and polish once more from there. */
MILL_RESUMABLE(mill_polish_again)
{
  MILL_BEGIN;
  slot->best.i_start = slot->starts.i = 0; /* the best point takes the place of start 0 */
  for (int j = 0; j < m->n_par; j++)
    slot->starts.theta[0][j] = slot->best.end[j];
  slot->fix_error = 1;
  slot->best.have = 0; /* F with the old model error cannot be compared */
  slot->method = m->set.optimizer == MILL_OPT_NELDER_MEAD ? MILL_OPT_LM : m->set.optimizer;
  slot->n_method_run = 0;
  slot->simplex.done = 0;
  mill_polish_begin(m, slot, slot->best.end);
  MILL_CALL(mill_descend);
  mill_best_keep(m, slot, slot->polish.outcome == MILL_POLISH_CONVERGED);
  if (!slot->best.have) { /* F was never finite: keep the old point */
    slot->best.have = 1;
    slot->best.converged = 0;
  }
  MILL_END;
}
