/* SPDX-License-Identifier: BSD-3-Clause */
/** The fit of one star as a state machine: each round answers one request.
 *
 *  guess -> (Jacobian, simplex) -> polish -> other starts where there is a doubt -> velocity
 *  profile -> final evaluation -> result.  A start whose polish fails falls to the next
 *  method.  Serial code, run by one thread of a star's block after each round.
 */
#ifndef MILL_FIT_H
#define MILL_FIT_H

#include "kernels/star/epochs.h"
#include "kernels/star/pair.h"
#include "kernels/star/profile.h"
#include "kernels/star/row.h"
#include "kernels/star/sample.h"
#include "kernels/star/simplex.h"
#include "kernels/star/starts.h"

/** The simplex of nelder-mead begins after this many Jacobians at most, or when the next
 *  step promises less than this: until then their axes are those of another place. */
#define MILL_SIMPLEX_MAX_JAC 3
#define MILL_SIMPLEX_NEAR    25.0
/** hybrid inserts its short simplex where two steps in a row lead uphill, the second of which promised
 *  more than this: there F is not what its derivatives say. */
#define MILL_SIMPLEX_PROMISE 1.0
/** A start is led by one arm while its steps promise more than this, for so many Jacobians at most,
 *  where its lines have this squared significance: its solution is some errors from that of all. */
#define MILL_LEAD_PROMISE 100.0
#define MILL_LEAD_SIGNAL  1000.0
/** Tangents are rough while steps promise more than this, also for so many Jacobians at most: what
 *  they get wrong of a step is less than what its length does. */
#define MILL_ROUGH_PROMISE 25.0
enum { MILL_LEAD_MAX_JAC = 3 };
/** The model error is fixed for good where a step promises less than this: at most two errors from
 *  its end. */
#define MILL_SETTLE_PROMISE 4.0
/** Two minima tie when their F differ by less, in units of the reduced chi-square; they are two
 *  beyond this many errors. */
#define MILL_TWO_MINIMA_GAP      4.0
#define MILL_TWO_MINIMA_DISTANCE 3.0
/** A start repeats the best one when its next step leads to within this squared distance in errors
 * of its solution and promises an F above it by less than that, and below it by no more than the
 * other, all in units of the reduced chi-square: far from a minimum steps promise too much, but what
 * F is at that place is known. */
#define MILL_REPEAT_GAP  0.25
#define MILL_REPEAT_LESS 1.0
/** Farther away, the same to these, where the start is already this near in largest steps of the
 * polish, and F there is that of the solution and between these parts of what the curvature adds. */
#define MILL_BASIN_GAP   16.0
#define MILL_BASIN_LESS  4.0
#define MILL_BASIN_LEAST 0.5
#define MILL_BASIN_MOST  4.0
/** A start has lost when so many times what its next step promises would leave it above the best one
 *  by more than two minima that tie, after so many Jacobians of all arms. */
#define MILL_RACE_PROMISE 10.0
enum { MILL_RACE_JAC = 3 };
/** Another library's best template ties with this one's where it is as good as the guess's template
 *  of this number: of 1371 fits of MILES stars with two libraries none then missed the better one,
 *  whose best template was the worse one in 89. */
enum { MILL_GUESS_TIE = 2 };

/** Where the guess's best template lowers the chi-square of a continuum alone by less than this, about
 *  half of what a star needs, the spectrum is hardly a star's: one start with so many Jacobians at
 *  most, unless its solution explains more (mill_fit_no_star). */
#define MILL_BRIEF_GAIN 25.0
enum { MILL_BRIEF_JAC = 5 };

/** Run slot->method from theta, or from polish.at where the method before it ended. */
MILL_HD_CALLED static inline void mill_method_begin(const mill_model *m, mill_slot *slot,
                                                    const double *theta, int fallen)
{
  slot->stage = MILL_STAGE_POLISH;
  if (slot->method == MILL_OPT_NELDER_MEAD && slot->n_free > 0)
    slot->stage = MILL_STAGE_SIMPLEX;
  else if (slot->method == MILL_OPT_HYBRID && fallen)
    slot->stage = MILL_STAGE_SIMPLEX_SHORT;
  slot->simplex.done = slot->stage != MILL_STAGE_POLISH;
  if (slot->simplex.done && fallen)
    mill_simplex_begin(m, slot, theta, 0);
  else
    mill_polish_begin(m, slot, theta);
}

/** Have the last steps of hybrid's polish gone so wrong, in spite of what the first of them taught of
 *  the curvature, that the simplex should look around? */
MILL_HD static inline int mill_polish_misled(const mill_model *m, const mill_slot *slot)
{
  const mill_polish *p = &slot->polish;
  return slot->method == MILL_OPT_HYBRID && !slot->simplex.done && m->set.n_simplex_round > 0 &&
         p->n_rejected > 1 && p->promised > MILL_SIMPLEX_PROMISE;
}

/** Does a polish begin that may be far from its end?  A start that was given is near. */
MILL_HD static inline int mill_begins_far(const mill_slot *slot)
{
  return slot->stage == MILL_STAGE_POLISH && !(slot->starts.has_given && slot->starts.i == 0);
}

/** Rough tangents lead a start from afar. */
MILL_HD static inline void mill_rough_begin(const mill_model *m, mill_slot *slot)
{
  slot->rough = m->has_rough && mill_begins_far(slot) ? MILL_ROUGH_ASKED : MILL_ROUGH_NONE;
}

/** Begin a start's polish with the arm that has most of the star's lines alone, until it is near:
 *  its Jacobian costs a third of one of all arms, and leads there as well.  Not where the arms have
 *  velocities of their own. */
MILL_HD static inline void mill_lead_begin(const mill_model *m, mill_slot *slot)
{
  int lead = 0, n_arm = 0;
  for (int a = 0; a < m->n_arm; a++) {
    if (slot->result.n_pix[a] == 0)
      continue;
    n_arm++;
    if (lead == 0 || slot->lead.signal[a] > slot->lead.signal[lead - 1])
      lead = a + 1;
  }
  if (n_arm > 1 && m->n_par == m->n_deriv && mill_begins_far(slot) &&
      slot->lead.signal[lead - 1] > MILL_LEAD_SIGNAL)
    slot->lead.arm = lead;
  mill_rough_begin(m, slot);
}

/** The leading arm has answered: go on with it, or with all arms from where it leads. */
MILL_HD_CALLED static inline void mill_lead_tell(const mill_model *m, mill_slot *slot, double f)
{
  const mill_polish *p = &slot->polish;
  const int outcome = mill_polish_tell(m, slot, f);
  slot->lead.n_jac++;
  if (outcome == MILL_POLISH_GO && p->pred > MILL_LEAD_PROMISE && p->n_jac < MILL_LEAD_MAX_JAC)
    return;
  const double *theta = slot->theta;
  if (outcome == MILL_POLISH_FAILED)
    theta = p->have ? p->at.theta : slot->starts.theta[slot->starts.i];
  slot->lead.arm = 0;
  slot->fix_error = slot->starts.i == 0; /* the model error of all arms */
  mill_polish_begin(m, slot, theta);
  mill_rough_begin(m, slot);
}

/** Digest a Jacobian of all arms while rough tangents are in use.  Rough tangents only approach the
 *  minimum; exact ones finish the polish.  1: the polish begins again. */
MILL_HD_CALLED static inline int mill_rough_tell(const mill_model *m, mill_slot *slot, int outcome)
{
  const mill_polish *p = &slot->polish;
  const double *theta = p->at.theta;
  if (slot->rough == MILL_ROUGH_ASKED && outcome == MILL_POLISH_GO) {
    slot->rough = p->pred > MILL_ROUGH_PROMISE && p->n_jac < MILL_LEAD_MAX_JAC ? MILL_ROUGH_ASKED
                                                                               : MILL_ROUGH_LEFT;
    return 0;
  }
  if (slot->rough == MILL_ROUGH_LEFT && p->gained > 0.0) {
    slot->rough = MILL_ROUGH_NONE;
    return 0;
  }
  /* it ended by rough derivatives, or their step led uphill */
  if (outcome == MILL_POLISH_CONVERGED)
    theta = p->end;
  else if (!p->have)
    theta = slot->starts.theta[slot->starts.i];
  mill_polish_begin(m, slot, theta);
  return 1;
}

/** First stage of one start.  Starts after the first do without a simplex: several of them
 *  look around more cheaply. */
MILL_HD_CALLED static inline void mill_start_begin(const mill_model *m, mill_slot *slot)
{
  slot->method = m->set.optimizer;
  if (slot->best.have || slot->starts.brief)
    slot->method = MILL_OPT_LM;
  if (slot->starts.i > 0)
    slot->result.info |= MILL_INFO_SECOND_START;
  slot->n_method_run = 0;
  mill_method_begin(m, slot, slot->starts.theta[slot->starts.i], 0);
  mill_lead_begin(m, slot);
  mill_template_find(m, slot, slot->starts.i);
}

/** The polish failed: the next method, levenberg-marquardt -> hybrid -> nelder-mead ->
 *  nelder-mead once more; 0 when none is left, or an earlier start was better. */
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
  mill_method_begin(
      m, slot, slot->polish.have ? slot->polish.at.theta : slot->starts.theta[slot->starts.i], 1);
  return 1;
}

/** After preparation: can this star be fitted?  Fills S/N and pixel counts. */
MILL_HD_CALLED static inline int mill_fit_admit(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  int n_used = 0, n_dropped = 0;
  int64_t n_pix_all = 0, n_good = 0;
  double best_sn = -1e9;

  for (int a = 0; a < MILL_MAX_ARM; a++) {
    r->sn[a] = -1e9;
    r->n_pix[a] = 0;
  }
  for (int i = 0; i < slot->n_segment; i++) {
    const mill_segment *s = &slot->segment[i];
    /* exposures of an arm: the best of them */
    if (s->sn > r->sn[s->arm])
      r->sn[s->arm] = s->sn;
    if (s->sn > best_sn)
      best_sn = s->sn;
    if (!s->used || s->n_good == 0)
      n_dropped++;
    if (!s->used)
      continue;
    n_used++;
    n_pix_all += s->n_pix;
    n_good += s->n_good;
    r->n_pix[s->arm] += s->n_good;
    if (s->narrow)
      r->info |= MILL_INFO_LSF_NARROW;
    if (s->scaled)
      r->info |= MILL_INFO_LSF_SCALED;
  }
  r->n_pix_tot = n_good;
  slot->hull_weight = 10.0 * (double)n_pix_all * (double)n_used;
  if (n_dropped > 0)
    r->info |= MILL_INFO_ARM_DROPPED;
  if (n_good == 0) {
    mill_fit_end(slot, r->info & MILL_INFO_LSF_UNUSABLE ? MILL_STATUS_BAD_LSF : MILL_STATUS_NO_ARM);
    return 0;
  }
  if (best_sn < m->set.min_sn) {
    mill_fit_end(slot, MILL_STATUS_LOW_SN);
    return 0;
  }
  slot->starts.low_sn = best_sn < m->set.second_start_sn;
  if (slot->starts.n > m->set.max_starts)
    slot->starts.n = m->set.max_starts;
  return 1;
}

/** The given start takes the place of the guesses, or with try_all the first one, within the limits
 * and with fixed parameters fixed.  Labels are kept to the range of the training stars. */
MILL_HD static inline void mill_take_given_start(const mill_model *m, mill_slot *slot)
{
  /* with it and a faster rotator after them they are MILL_MAX_START at most */
  const int n_guess =
      slot->starts.n < MILL_MAX_GUESS_START - 1 ? slot->starts.n : MILL_MAX_GUESS_START - 1;
  for (int i = slot->starts.try_all ? n_guess : 0; i > 0; i--) {
    slot->starts.chisq[i] = slot->starts.chisq[i - 1];
    slot->starts.label[i] = slot->starts.label[i - 1];
    for (int j = 0; j < m->n_par; j++)
      slot->starts.theta[i][j] = slot->starts.theta[i - 1][j];
  }
  for (int j = m->n_deriv; j < m->n_par; j++)
    slot->starts.theta[0][j] = 0.0;
  for (int j = 0; j < m->n_deriv; j++) {
    double lo = mill_par_min(m, j), hi = mill_par_max(m, j);
    if (j >= MILL_PAR_LABEL0) {
      lo = m->label[j - MILL_PAR_LABEL0].min;
      hi = m->label[j - MILL_PAR_LABEL0].max;
    }
    const double x = m->set.fixed[j] ? m->set.fixed_value[j] : slot->starts.given[j];
    slot->starts.theta[0][j] = x < lo ? lo : (x > hi ? hi : x);
  }
  slot->starts.n = slot->starts.try_all ? n_guess + 1 : 1;
  slot->result.info |= MILL_INFO_GIVEN_START;
}

/** The first arm that the star has data of has no velocity offset, those without data neither. */
MILL_HD static inline void mill_offsets_begin(const mill_model *m, mill_slot *slot)
{
  int first = 0;
  while (first < m->n_arm && slot->result.n_pix[first] == 0)
    first++;
  for (int a = 0; a < MILL_MAX_ARM; a++)
    slot->no_offset[a] = a >= m->n_arm || a == first || slot->result.n_pix[a] == 0;
}

/** Note for the choice between libraries how good the guess's n templates are, and what priors of
 *  labels that the library does not reach add to all of them. */
MILL_HD static inline void mill_guess_note(const mill_model *m, mill_slot *slot, int n)
{
  const double *chisq = slot->starts.chisq;
  double apart = 0.0;
  if (n < 1)
    return;
  for (int l = 0; l < m->n_label; l++) {
    const int j = MILL_PAR_LABEL0 + l;
    const double mean = mill_prior_mean(m, slot, j), lo = m->label[l].min, hi = m->label[l].max;
    apart += mill_prior_penalty(m, slot, j, mean < lo ? lo : (mean > hi ? hi : mean));
  }
  slot->result.guess_chisq = chisq[0] + apart;
  slot->result.guess_tie = chisq[n > MILL_GUESS_TIE ? MILL_GUESS_TIE : n - 1] + apart;
}

/** Begin the first start; brief: it is the only one, and short. */
MILL_HD_CALLED static inline void mill_search_begin(const mill_model *m, mill_slot *slot, int brief)
{
  slot->nonfinite = 0;
  slot->best.have = 0;
  slot->starts.i = 0;
  slot->starts.brief = brief;
  slot->starts.doubt = MILL_DOUBT_NONE;
  slot->starts.n_minimum = slot->starts.n_trail = 0;
  slot->lead.arm = 0;
  slot->lead.n_jac = 0;
  slot->polish.n_learned = 0;
  slot->profile.n_round = 0;
  slot->profile.has_arm = 0;
  slot->epochs_stage = MILL_EPOCHS_JOINT;
  slot->settled = 0;
  slot->fix_error = 1;
  mill_start_begin(m, slot);
}

/** After preparation and guess: the first request. */
MILL_HD static inline void mill_fit_begin(const mill_model *m, mill_slot *slot)
{
  slot->stored = 0;
  slot->rough = MILL_ROUGH_NONE;
  slot->n_free = 0;
  const int n_guess = slot->starts.n;
  if (!mill_fit_admit(m, slot))
    return;
  mill_offsets_begin(m, slot);
  for (int j = 0; j < m->n_par; j++)
    if (!mill_par_held(m, slot, j))
      slot->free_par[slot->n_free++] = j;
  if (slot->starts.n > 0)
    slot->result.vrad_guess_km_s = slot->starts.theta[0][MILL_PAR_VRAD];
  mill_guess_note(m, slot, n_guess);
  if (slot->starts.has_limit && !(slot->result.guess_chisq <= slot->starts.limit)) {
    mill_fit_end(slot, MILL_STATUS_NOT_DONE);
    return;
  }
  if (slot->starts.has_given)
    mill_take_given_start(m, slot);
  if (slot->starts.n < 1) {
    slot->result.warn |= MILL_WARN_NONFINITE;
    mill_fit_end(slot, MILL_STATUS_FIT_FAILED);
    return;
  }
  /* chi-squares of the guess are those of a flat template, the continuum alone, and more */
  mill_search_begin(m, slot, !slot->starts.has_given && slot->starts.chisq[0] > -MILL_BRIEF_GAIN);
}

MILL_HD static inline void mill_final_request(const mill_model *m, mill_slot *slot)
{
  for (int j = 0; j < m->n_par; j++)
    slot->theta[j] = slot->best.end[j];
  slot->stage = MILL_STAGE_FINAL;
  slot->request = MILL_REQ_FINAL;
}

MILL_HD static inline int mill_has_model_error(const mill_model *m, const mill_slot *slot)
{
  int has = mill_has_error(m);
  for (int i = 0; i < slot->n_segment; i++)
    has |= slot->segment[i].own_d != NULL;
  return has;
}

/** Is the next step of the first start's polish so close to its end that the model error, until
 *  then that of the guess, may be fixed there?  If so, the polish begins again with that step. */
MILL_HD_CALLED static inline void mill_polish_settle(const mill_model *m, mill_slot *slot)
{
  const mill_polish *p = &slot->polish;
  if (slot->settled || slot->starts.i > 0 || !(p->pred < MILL_SETTLE_PROMISE) ||
      !(p->lambda <= MILL_POLISH_LAMBDA_END) || !mill_has_model_error(m, slot))
    return;
  slot->settled = 1;
  slot->fix_error = 1;
  for (int j = 0; j < m->n_par; j++)
    slot->starts.theta[0][j] = p->at.theta[j]; /* where the next method begins if that step fails */
  /* what is learned near the end is worth keeping where it comes from wrong templates */
  if (!mill_is_poor(slot, p->at.f))
    mill_polish_forget(m, &slot->polish);
  mill_polish_restart(m, slot, slot->theta);
}

/** Fix the model error at the best point and polish once more from there, as the last start. */
MILL_HD static inline void mill_polish_again(const mill_model *m, mill_slot *slot)
{
  slot->settled = 2;
  slot->best.i_start = slot->starts.i = 0;
  for (int j = 0; j < m->n_par; j++)
    slot->starts.theta[0][j] = slot->best.end[j];
  slot->fix_error = 1;
  slot->best.have = 0; /* its F was that of another covariance */
  slot->method = m->set.optimizer == MILL_OPT_NELDER_MEAD ? MILL_OPT_LM : m->set.optimizer;
  slot->n_method_run = 0;
  slot->simplex.done = 0;
  slot->stage = MILL_STAGE_POLISH;
  mill_polish_begin(m, slot, slot->best.end);
}

/** Has the model error been fixed elsewhere than at the solution?  All starts have it in common,
 *  so that their F can be compared.  If so, fix it there and polish once more. */
MILL_HD static inline int mill_fit_settle(const mill_model *m, mill_slot *slot)
{
  if (!slot->best.have || slot->settled > (slot->best.i_start > 0) || slot->starts.brief ||
      !mill_has_model_error(m, slot))
    return 0;
  mill_polish_again(m, slot);
  return 1;
}

/** The next start after one that ended at f; after the last one the profile, or the end where none
 *  found a finite value. */
MILL_HD_CALLED static inline void mill_next_start(const mill_model *m, mill_slot *slot, double f)
{
  slot->rough = MILL_ROUGH_NONE;
  slot->lead.arm = 0;
  if (slot->settled < 2) {
    slot->starts.f[slot->starts.i++] = f;
    if (slot->starts.i == 1)
      slot->starts.doubt = slot->best.have ? mill_fit_doubt(m, slot) : MILL_DOUBT_LOST;
    if (mill_start_wanted(m, slot) || mill_start_faster(m, slot)) {
      mill_start_begin(m, slot);
      return;
    }
    if (slot->starts.i > 2 && slot->best.have && mill_start_agree(slot) < 2)
      slot->result.info |= MILL_INFO_TWO_MINIMA;
    if (mill_fit_settle(m, slot))
      return;
  } else if (!slot->best.have) { /* nothing finite with the covariance of the solution */
    slot->best.have = 1;
    slot->best.converged = 0;
  }
  if (!slot->best.have) {
    slot->result.warn |= MILL_WARN_NONFINITE;
    mill_fit_end(slot, MILL_STATUS_FIT_FAILED);
  } else if (m->set.fixed[MILL_PAR_VRAD]) {
    mill_final_request(m, slot);
  } else {
    mill_profile_begin(m, slot, MILL_N_PROFILE_FEW);
  }
}

/** A start has come to its end: keep the better point, go on. */
MILL_HD_CALLED static inline void mill_start_end(const mill_model *m, mill_slot *slot,
                                                 int converged)
{
  const mill_polish *p = &slot->polish;
  const double gap = MILL_TWO_MINIMA_GAP * (slot->best.have ? mill_fit_reduced(slot) : 1.0);
  if (p->have && slot->best.have && converged && slot->best.converged &&
      fabs(p->at.f - slot->best.at.f) < gap &&
      mill_point_distance2(m, slot, slot->best.at.theta, p->end) >
          MILL_TWO_MINIMA_DISTANCE * MILL_TWO_MINIMA_DISTANCE)
    slot->result.info |= MILL_INFO_TWO_MINIMA;
  if (m->set.sample.max_eval > 0 && p->have && converged)
    mill_sample_note(m, slot);
  if (p->have && (!slot->best.have || p->at.f < slot->best.at.f)) {
    if (slot->best.have && slot->best.at.f - p->at.f >= gap)
      slot->result.info &= ~MILL_INFO_TWO_MINIMA; /* both of them are beaten */
    slot->best.at = p->at;
    slot->best.have = 1;
    slot->best.i_start = slot->starts.i;
    slot->best.converged = converged;
    for (int j = 0; j < m->n_par; j++)
      slot->best.end[j] = converged ? p->end[j] : p->at.theta[j];
  }
  mill_next_start(m, slot, p->have ? p->at.f : (double)INFINITY);
}

/** Is the point of a later start's polish in the basin of the best solution, by F and the curvature
 *  there? */
MILL_HD static inline int mill_start_in_basin(const mill_model *m, const mill_slot *slot)
{
  const mill_polish *p = &slot->polish;
  const double unit = mill_fit_reduced(slot), above = p->at.f - slot->best.at.f;
  const double rise = mill_point_distance2(m, slot, slot->best.end, p->at.theta);
  return mill_near(m, p->at.theta, slot->best.end) &&
         above > MILL_BASIN_LEAST * rise - 0.1 * unit &&
         above < MILL_BASIN_MOST * rise + 0.3 * unit;
}

/** Does the next step of a later start's polish lead to the minimum that the best one found?  It is
 *  not evaluated: both its place and the F that it promises agree by chance in no other one. */
MILL_HD_CALLED static inline int mill_start_repeats(const mill_model *m, const mill_slot *slot)
{
  const mill_polish *p = &slot->polish;
  const double unit = mill_fit_reduced(slot);
  const double above = (p->at.f - p->pred - slot->best.at.f) / unit;
  const double off = mill_point_distance2(m, slot, slot->best.end, slot->theta) / unit;
  return (above >= -MILL_REPEAT_LESS && above < MILL_REPEAT_GAP && off < MILL_REPEAT_GAP) ||
         (above >= -MILL_BASIN_LESS && above < MILL_BASIN_GAP && off < MILL_BASIN_GAP &&
          mill_start_in_basin(m, slot));
}

/** Will a later start end in a minimum that is worse than the best one?  `sample` wants to
 *  know such minima. */
MILL_HD static inline int mill_start_loses(const mill_model *m, const mill_slot *slot)
{
  const mill_polish *p = &slot->polish;
  return m->set.sample.max_eval == 0 && p->n_jac >= MILL_RACE_JAC &&
         p->at.f - MILL_RACE_PROMISE * p->pred >
             slot->best.at.f + MILL_TWO_MINIMA_GAP * mill_fit_reduced(slot);
}

/** Digest an answer of the polish, whose F with the penalty is f. */
MILL_HD static inline void mill_polish_digest(const mill_model *m, mill_slot *slot, double f)
{
  if (slot->lead.arm > 0) {
    mill_lead_tell(m, slot, f);
    return;
  }
  const int outcome = mill_polish_tell(m, slot, f);
  if (slot->rough != MILL_ROUGH_NONE && mill_rough_tell(m, slot, outcome))
    return;
  if (outcome == MILL_POLISH_GO && slot->best.have && slot->best.converged) {
    const int repeats = mill_start_repeats(m, slot);
    if (repeats || mill_start_loses(m, slot)) {
      mill_next_start(m, slot, repeats ? slot->best.at.f : slot->polish.at.f);
      return;
    }
  }
  if (outcome == MILL_POLISH_GO && mill_polish_misled(m, slot)) {
    slot->stage = MILL_STAGE_SIMPLEX_SHORT;
    slot->simplex.done = 1;
    mill_simplex_begin(m, slot, slot->starts.theta[slot->starts.i], 0);
    return;
  }
  const int cut = slot->starts.brief && slot->result.n_jac >= MILL_BRIEF_JAC;
  if (outcome == MILL_POLISH_GO && !cut)
    mill_polish_settle(m, slot);
  if ((outcome == MILL_POLISH_GO && !cut) ||
      (outcome == MILL_POLISH_FAILED && mill_method_fall(m, slot)))
    return;
  mill_start_end(m, slot, outcome == MILL_POLISH_CONVERGED);
}

/** Digest the last evaluation, whose F with the penalty is f. */
MILL_HD static inline void mill_final_digest(const mill_model *m, mill_slot *slot, double f)
{
  /* the last step was not evaluated before: take it back where it led uphill */
  int moved = 0;
  for (int j = 0; j < m->n_par; j++)
    moved |= slot->best.end[j] != slot->best.at.theta[j];
  if (moved && !(f <= slot->best.at.f + MILL_POLISH_NOISE)) {
    for (int j = 0; j < m->n_par; j++)
      slot->best.end[j] = slot->best.at.theta[j];
    slot->profile.has_arm = 0;
    mill_final_request(m, slot);
    return;
  }
  const int64_t warn = slot->result.warn;
  const int info = slot->result.info;
  mill_fit_finish(m, slot, f);
  if (slot->starts.brief && !(slot->result.warn & MILL_WARN_NO_STAR)) {
    slot->result.warn = warn;
    slot->result.info = info;
    mill_search_begin(m, slot, 0);
    return;
  }
  if (slot->result.status != MILL_STATUS_FITTED)
    return;
  if (m->set.binaries)
    mill_pair_begin(m, slot, warn, info);
  if (m->set.sample.max_eval > 0)
    mill_sample_begin(m, slot);
}

/** Digest slot->eval, the answer to slot->request, and make the next request. */
MILL_HD static inline void mill_fit_digest(const mill_model *m, mill_slot *slot)
{
  double f = slot->eval.f;
  if (slot->stage == MILL_STAGE_SAMPLE) {
    mill_sample_digest(m, slot);
    return;
  }
  if (slot->stage == MILL_STAGE_PAIR) {
    mill_pair_digest(m, slot);
    return;
  }
  slot->result.n_eval++;
  slot->stored = 0;
  if (mill_template_keeps(slot)) {
    slot->kept.has = 1;
    for (int j = 0; j < m->n_par; j++)
      slot->kept.theta[j] = slot->theta[j];
  }
  if (slot->request == MILL_REQ_JACOBIAN) {
    slot->result.n_jac++;
    slot->fix_error = 0;
  }

  switch (slot->stage) {
  case MILL_STAGE_SIMPLEX_SHORT:
  case MILL_STAGE_SIMPLEX:
    f += mill_penalty(m, slot, slot->theta);
    if (slot->request == MILL_REQ_JACOBIAN) {
      if (mill_polish_tell(m, slot, f) != MILL_POLISH_GO ||
          slot->polish.n_jac >= MILL_SIMPLEX_MAX_JAC || slot->polish.pred < MILL_SIMPLEX_NEAR)
        mill_simplex_begin(m, slot, slot->starts.theta[slot->starts.i], 1);
      return;
    }
    f += slot->simplex.off;
    if (mill_nm_tell(&slot->simplex.nm, f) == MILL_NM_GO)
      mill_simplex_propose(m, slot);
    else
      mill_simplex_end(m, slot);
    return;
  case MILL_STAGE_POLISH: {
    const int i = slot->starts.i;
    mill_polish_digest(m, slot, f + mill_penalty(m, slot, slot->theta));
    if (slot->stage != MILL_STAGE_POLISH || slot->starts.i != i || slot->settled > 1)
      return;
    const int like = mill_start_merges(m, slot);
    if (like >= 0 && slot->best.have && slot->best.converged)
      mill_next_start(m, slot, slot->starts.f[like]);
    return;
  }
  case MILL_STAGE_PROFILE:
    if (mill_profile_digest(m, slot) && !mill_epochs_begin(m, slot))
      mill_final_request(m, slot);
    return;
  case MILL_STAGE_EPOCHS:
    if (!mill_epochs_digest(m, slot))
      return;
    if (mill_epochs_shift(m, slot)) {
      slot->starts.brief = 0; /* as the guess knew no shifts */
      mill_polish_again(m, slot);
    } else {
      mill_final_request(m, slot);
    }
    return;
  case MILL_STAGE_FINAL:
    mill_final_digest(m, slot, f + mill_penalty(m, slot, slot->theta));
    return;
  default:
    return;
  }
}

#endif
