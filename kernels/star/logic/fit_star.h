/* SPDX-License-Identifier: BSD-3-Clause */
/** The fit of one star, a resumable function (kernels/star/resumable.h) that asks the device
 *  questions.  One thread of the star's block runs this code after each answer. */
#pragma once

#include "kernels/star/logic/admit.h"
#include "kernels/star/logic/elements.h"
#include "kernels/star/logic/epochs.h"
#include "kernels/star/logic/pair.h"
#include "kernels/star/logic/sample.h"

/** Reset the search before the first start. */
MILL_HD_CALLED static inline void mill_search_begin(mill_slot *slot)
{
  slot->nonfinite = slot->best.have = 0;
  slot->starts.i = slot->starts.n_doubt = slot->starts.had_far = 0;
  slot->starts.n_minimum = slot->starts.n_trail = 0;
  slot->starts.n_jac = slot->result.n_jac;
  slot->lead.n_jac = slot->polish.n_learned = 0;
  slot->profile.has_arm = 0;
  slot->fix_error = 1;
}

/** End a start: record its F, keep the best point, and count reasons to doubt the first start. */
MILL_HD_CALLED static inline void mill_start_end(const mill_model *m, mill_slot *slot, int end)
{
  const mill_polish *p = &slot->polish;
  slot->lead.arm = 0;
  if (end != MILL_POLISH_GIVEN_UP) {
    mill_best_keep(m, slot, end == MILL_POLISH_CONVERGED);
    slot->starts.f[slot->starts.i] = p->have ? p->at.f : (double)INFINITY;
  }
  slot->starts.i++;
  if (slot->starts.i == 1)
    slot->starts.n_doubt = mill_fit_doubts(m, slot);
}

/** After all starts, flag a solution that only one of three or more starts found (TWO_MINIMA).
 *  Returns 1 if the start that fixed the model error last is not the best start. */
MILL_HD_CALLED static inline int mill_starts_compare(const mill_model *m, mill_slot *slot)
{
  if (slot->starts.i > 2 && slot->best.have && mill_start_agree(slot) < 2)
    slot->result.info |= MILL_INFO_TWO_MINIMA;
  return slot->best.have && slot->error_start != slot->best.i_start && !slot->starts.brief &&
         mill_has_model_error(m, slot);
}

/** The solution's last step is evaluated only now: if F rose, undo the step and return 1. */
MILL_HD static inline int mill_step_back(const mill_model *m, mill_slot *slot)
{
  const double f = slot->eval.f + mill_penalty(m, slot, slot->theta);
  int moved = 0;
  for (int j = 0; j < m->n_par; j++)
    moved |= slot->best.end[j] != slot->best.at.theta[j];
  if (!moved || f <= slot->best.at.f + MILL_POLISH_NOISE)
    return 0;
  for (int j = 0; j < m->n_par; j++)
    slot->best.end[j] = slot->best.at.theta[j];
  slot->profile.has_arm = 0;
  return 1;
}

/** Fill in the row.  Returns 0 if a brief start found a star, so that all starts must follow. */
MILL_HD_CALLED static inline int mill_fit_row(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  slot->best.warn = r->warn;
  slot->best.info = r->info;
  mill_fit_finish(m, slot, slot->eval.f + mill_penalty(m, slot, slot->theta));
  if (!slot->starts.brief || r->warn & MILL_WARN_NO_STAR)
    return 1;
  r->warn = slot->best.warn;
  r->info = slot->best.info;
  slot->starts.brief = 0;
  return 0;
}

/** Fit a prepared star: its row, elements' flags, and on request a second star and a posterior. */
MILL_RESUMABLE(mill_fit_star)
{
  MILL_BEGIN;
  if (!mill_fit_admit(m, slot))
    MILL_RETURN;
  do { /* all starts follow if a brief start found a star */
    mill_search_begin(slot);
    do {
      mill_start_begin(m, slot);
      MILL_CALL(mill_descend);
      mill_start_end(m, slot, slot->polish.outcome);
    } while (mill_start_next(m, slot));
    if (mill_starts_compare(m, slot))
      MILL_CALL(mill_polish_again);
    if (!slot->best.have) {
      slot->result.warn |= MILL_WARN_NONFINITE;
      mill_fit_end(slot, MILL_STATUS_FIT_FAILED);
      MILL_RETURN;
    }
    if (!m->set.fixed[MILL_PAR_VRAD]) {
      MILL_CALL(mill_profile_run);
      MILL_CALL(mill_epochs_run);
    }
    do {
      mill_go_to_best(m, slot);
      MILL_ASK(MILL_REQ_MODELS);
    } while (mill_step_back(m, slot)); /* again where F was lower, if the last step raised F */
    mill_arms_begin(m, slot);
    MILL_CALL(mill_seek_run);
    MILL_CALL(mill_scan_run);
  } while (!mill_fit_row(m, slot));
  if (slot->result.status != MILL_STATUS_FITTED)
    MILL_RETURN;
  if (m->has_element)
    MILL_CALL(mill_elements_run);
  if (m->set.binaries)
    MILL_CALL(mill_pair_run);
  if (m->set.sample.max_eval > 0)
    MILL_CALL(mill_sample_run);
  MILL_END;
}

/** Continue the fit to its next question or end, unless libstarmill's caller asks (is_held). */
MILL_HD static inline void mill_fit_resume(const mill_model *m, mill_slot *slot)
{
  if (!slot->is_held && mill_fit_star(m, slot, slot->place) == MILL_HAS_ENDED)
    slot->request = MILL_REQ_NONE;
}
