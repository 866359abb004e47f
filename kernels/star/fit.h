/** The fit of one star as a state machine: each round answers one request.
 *
 *  guess -> (Jacobian, simplex) -> polish -> other starts where there is a doubt -> velocity
 *  profile -> final evaluation -> result.  A start whose polish fails falls to the next
 *  method.  Serial code, run by one thread of a star's block after each round.
 */
#ifndef MILL_FIT_H
#define MILL_FIT_H

#include "kernels/star/profile.h"
#include "kernels/star/sample.h"
#include "kernels/star/starts.h"

/** First step of a simplex along each axis and its tolerances in value and in each
 *  coordinate; coordinates are such that F rises by about their square. */
#define MILL_SIMPLEX_STEP        2.0
#define MILL_SIMPLEX_F_TOLERANCE 0.03
#define MILL_SIMPLEX_X_TOLERANCE 0.5
/** A simplex is flat when its smallest width is this part of its largest. */
#define MILL_SIMPLEX_FLAT 1e-8
/** The simplex of nelder-mead begins after this many Jacobians at most, or when the next
 *  step promises less than this: until then their axes are those of another place. */
#define MILL_SIMPLEX_MAX_JAC 3
#define MILL_SIMPLEX_NEAR    25.0
/** hybrid inserts its short simplex where a step that promised more than MILL_SIMPLEX_PROMISE
 *  brings less than this share of it: there F is not what its derivatives say. */
#define MILL_SIMPLEX_TRUST   0.5
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
/** Errors from a facet within which it cuts a sizeable part off the posterior. */
#define MILL_HULL_NEAR 1.0
/** v sin i this many errors (of its inner parameter) above its limit is resolved. */
#define MILL_VSINI_RESOLVED 2.0
/** Two minima tie when their F differ by less, in units of the reduced chi-square; they are two
 *  beyond this many errors. */
#define MILL_TWO_MINIMA_GAP      4.0
#define MILL_TWO_MINIMA_DISTANCE 3.0
/** A start repeats the best one when its next step leads to within this squared distance in errors
 * of its solution and promises an F above it by less than that, and below it by no more than the
 * other: far from a minimum steps promise too much, but what F is at that place is known. */
#define MILL_REPEAT_GAP  0.25
#define MILL_REPEAT_LESS 1.0
/** Waves of the residuals are reported when they are this part of an arm's chi-square and this
 *  many standard deviations above noise. */
#define MILL_STIFF_PART   0.2
#define MILL_STIFF_ERRORS 6.0

/** The simplex's next point as a request.  v sin i beyond its limits is evaluated at the
 *  limit with a quadratic penalty, velocities off theirs count as useless. */
MILL_HD_CALLED static inline void mill_simplex_propose(const mill_model *m, mill_slot *slot)
{
  const int n = slot->nm.n;
  const double *x = mill_nm_ask(&slot->nm), *l = slot->polish.at.hess;
  double delta[MILL_MAX_PAR];
  for (int j = 0; j < m->n_par; j++)
    slot->theta[j] = slot->nm_centre[j];
  slot->nm_off = 0.0;
  for (int i = n - 1; i >= 0; i--) {
    double sum = x[i];
    for (int k = i + 1; k < n; k++)
      sum -= l[k * n + i] * delta[k];
    delta[i] = sum / l[i * n + i];
    if (delta[i] == 0.0)
      continue;
    const int j = slot->nm_par[i];
    const double u = mill_par_inner(m, j, slot->nm_centre[j]) + delta[i];
    slot->theta[j] = mill_par_outer(m, j, u);
    const double lo = mill_par_inner(m, j, mill_par_min(m, j));
    const double hi = mill_par_inner(m, j, mill_par_max(m, j));
    if (u >= lo && u <= hi)
      continue;
    const double excess = u < lo ? u - lo : u - hi;
    double curvature = 0.0;
    for (int k = 0; k <= i; k++)
      curvature += l[i * n + k] * l[i * n + k];
    slot->nm_off += j == MILL_PAR_VRAD ? MILL_OFF_LIMITS : 4.0 * curvature * excess * excess;
  }
  slot->request = MILL_REQ_VALUE;
}

/** The simplex has ended: polish from its best point, or from where
 *  it began when that is lower. */
MILL_HD_CALLED static inline void mill_simplex_end(const mill_model *m, mill_slot *slot)
{
  double best, theta[MILL_MAX_PAR];
  const double *x = mill_nm_best(&slot->nm, &best);
  if (slot->polish.have && slot->polish.at.f <= best) {
    for (int j = 0; j < m->n_par; j++)
      theta[j] = slot->polish.at.theta[j];
  } else {
    for (int j = 0; j < slot->nm.n; j++)
      slot->nm.trial[j] = x[j];
    mill_simplex_propose(m, slot);
    for (int j = 0; j < m->n_par; j++)
      theta[j] = slot->theta[j];
  }
  slot->stage = MILL_STAGE_POLISH;
  mill_polish_begin(m, slot, theta);
}

/** Begin the simplex of slot->stage with the curvature of polish.at (its point, or with
 *  step where a step from it leads, is the centre); without one, about theta in typical
 *  uncertainties. */
MILL_HD_CALLED static inline void mill_simplex_begin(const mill_model *m, mill_slot *slot,
                                                     const double *theta, int step)
{
  mill_polish *p = &slot->polish;
  mill_polish_axes *axes = &slot->space.axes;
  double x0[MILL_MAX_PAR], first[MILL_MAX_PAR], *simplex = slot->space.simplex;
  axes->n = 0;
  p->lambda = MILL_POLISH_LAMBDA;
  if (p->have && mill_polish_propose(m, slot, axes) && axes->n > 0) {
    for (int j = 0; j < m->n_par; j++)
      slot->nm_centre[j] = step ? slot->theta[j] : p->at.theta[j];
  } else {
    axes->n = slot->n_free;
    for (int j = 0; j < m->n_par; j++)
      slot->nm_centre[j] = theta[j];
    for (int i = 0; i < axes->n; i++) {
      axes->idx[i] = slot->free_par[i];
      for (int k = 0; k < axes->n; k++)
        axes->factor[i * axes->n + k] = i == k ? 1.0 / mill_par_scale(m, axes->idx[i]) : 0.0;
    }
  }
  for (int e = 0; e < axes->n * axes->n; e++)
    p->at.hess[e] = axes->factor[e];
  for (int i = 0; i < axes->n; i++) {
    slot->nm_par[i] = axes->idx[i];
    x0[i] = 0.0;
    first[i] = MILL_SIMPLEX_STEP;
  }
  mill_nm_simplex(axes->n, x0, first, simplex);
  mill_nm_options options = {0, MILL_SIMPLEX_F_TOLERANCE, MILL_SIMPLEX_X_TOLERANCE,
                             MILL_SIMPLEX_FLAT};
  const int left = m->set.max_eval - slot->result.n_eval;
  options.max_eval = slot->stage == MILL_STAGE_SIMPLEX_SHORT ? m->set.n_simplex_round : left;
  if (options.max_eval > left)
    options.max_eval = left;
  if (options.max_eval < 1)
    options.max_eval = 1;
  mill_nm_start(&slot->nm, axes->n, simplex, &options);
  mill_simplex_propose(m, slot);
}

/** Run slot->method from theta, or from polish.at where the method before it ended. */
MILL_HD_CALLED static inline void mill_method_begin(const mill_model *m, mill_slot *slot,
                                                    const double *theta, int fallen)
{
  slot->stage = MILL_STAGE_POLISH;
  if (slot->method == MILL_OPT_NELDER_MEAD && slot->n_free > 0)
    slot->stage = MILL_STAGE_SIMPLEX;
  else if (slot->method == MILL_OPT_HYBRID && fallen)
    slot->stage = MILL_STAGE_SIMPLEX_SHORT;
  slot->had_simplex = slot->stage != MILL_STAGE_POLISH;
  if (slot->had_simplex && fallen)
    mill_simplex_begin(m, slot, theta, 0);
  else
    mill_polish_begin(m, slot, theta);
}

/** Has the step of hybrid's polish that was just evaluated gone so wrong that the simplex
 *  should look around? */
MILL_HD static inline int mill_polish_misled(const mill_model *m, const mill_slot *slot)
{
  const mill_polish *p = &slot->polish;
  return slot->method == MILL_OPT_HYBRID && !slot->had_simplex && m->set.n_simplex_round > 0 &&
         p->n_jac > 1 && p->promised > MILL_SIMPLEX_PROMISE &&
         !(p->gained >= MILL_SIMPLEX_TRUST * p->promised);
}

/** Does a polish begin that may be far from its end?  A start that was given is near. */
MILL_HD static inline int mill_begins_far(const mill_slot *slot)
{
  return slot->stage == MILL_STAGE_POLISH && !(slot->has_given && slot->i_start == 0);
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
    if (lead == 0 || slot->arm_signal[a] > slot->arm_signal[lead - 1])
      lead = a + 1;
  }
  if (n_arm > 1 && m->n_par == m->n_deriv && mill_begins_far(slot) &&
      slot->arm_signal[lead - 1] > MILL_LEAD_SIGNAL)
    slot->lead = lead;
  mill_rough_begin(m, slot);
}

/** The leading arm has answered: go on with it, or with all arms from where it leads. */
MILL_HD_CALLED static inline void mill_lead_tell(const mill_model *m, mill_slot *slot, double f)
{
  const mill_polish *p = &slot->polish;
  const int outcome = mill_polish_tell(m, slot, f);
  slot->n_lead++;
  if (outcome == MILL_POLISH_GO && p->pred > MILL_LEAD_PROMISE && p->n_jac < MILL_LEAD_MAX_JAC)
    return;
  const double *theta = slot->theta;
  if (outcome == MILL_POLISH_FAILED)
    theta = p->have ? p->at.theta : slot->start[slot->i_start];
  slot->lead = 0;
  slot->fix_error = slot->i_start == 0; /* the model error of all arms */
  mill_polish_begin(m, slot, theta);
  mill_rough_begin(m, slot);
}

/** A Jacobian of all arms has been told while rough tangents were in use.  They lead to a place
 *  where those of all components go on, and end no polish.  1: it begins again. */
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
    theta = slot->start[slot->i_start];
  mill_polish_begin(m, slot, theta);
  return 1;
}

/** First stage of one start.  Starts after the first do without a simplex: several of them
 *  look around more cheaply. */
MILL_HD_CALLED static inline void mill_start_begin(const mill_model *m, mill_slot *slot)
{
  slot->method = m->set.optimizer;
  if (slot->have_best)
    slot->method = MILL_OPT_LM;
  if (slot->i_start > 0)
    slot->result.info |= MILL_INFO_SECOND_START;
  slot->n_method_run = 0;
  mill_method_begin(m, slot, slot->start[slot->i_start], 0);
  mill_lead_begin(m, slot);
  mill_template_find(m, slot, slot->i_start);
}

/** The polish failed: the next method, levenberg-marquardt -> hybrid -> nelder-mead ->
 *  nelder-mead once more; 0 when none is left, or an earlier start was better. */
MILL_HD static inline int mill_method_fall(const mill_model *m, mill_slot *slot)
{
  if (slot->n_free == 0 || slot->result.n_eval >= m->set.max_eval)
    return 0;
  if (slot->have_best && !(slot->polish.have && slot->polish.at.f < slot->best.f))
    return 0;
  if (slot->method == MILL_OPT_NELDER_MEAD && slot->n_method_run++ > 0)
    return 0;
  slot->method = slot->method == MILL_OPT_LM && m->set.n_simplex_round > 0 ? MILL_OPT_HYBRID
                                                                           : MILL_OPT_NELDER_MEAD;
  slot->result.info |= MILL_INFO_FALLBACK;
  mill_method_begin(m, slot, slot->polish.have ? slot->polish.at.theta : slot->start[slot->i_start],
                    1);
  return 1;
}

MILL_HD static inline void mill_fit_end(mill_slot *slot, int status)
{
  slot->result.status = status;
  if (status != MILL_STATUS_FITTED)
    slot->result.warn |= MILL_WARN_BAD_SPECTRUM;
  slot->stage = MILL_STAGE_DONE;
  slot->request = MILL_REQ_NONE;
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
  slot->low_sn = best_sn < m->set.second_start_sn;
  if (slot->n_start > m->set.max_starts)
    slot->n_start = m->set.max_starts;
  return 1;
}

/** The given start takes the place of the guesses, or with try_all the first one, within the limits
 * and with fixed parameters fixed.  Labels are kept to the range of the training stars. */
MILL_HD static inline void mill_take_given_start(const mill_model *m, mill_slot *slot)
{
  /* with it and a faster rotator after them they are MILL_MAX_START at most */
  const int n_guess =
      slot->n_start < MILL_MAX_GUESS_START - 1 ? slot->n_start : MILL_MAX_GUESS_START - 1;
  for (int i = slot->try_all ? n_guess : 0; i > 0; i--) {
    slot->start_chisq[i] = slot->start_chisq[i - 1];
    slot->start_label[i] = slot->start_label[i - 1];
    for (int j = 0; j < m->n_par; j++)
      slot->start[i][j] = slot->start[i - 1][j];
  }
  for (int j = m->n_deriv; j < m->n_par; j++)
    slot->start[0][j] = 0.0;
  for (int j = 0; j < m->n_deriv; j++) {
    double lo = mill_par_min(m, j), hi = mill_par_max(m, j);
    if (j >= MILL_PAR_LABEL0) {
      lo = m->label[j - MILL_PAR_LABEL0].min;
      hi = m->label[j - MILL_PAR_LABEL0].max;
    }
    const double x = m->set.fixed[j] ? m->set.fixed_value[j] : slot->given[j];
    slot->start[0][j] = x < lo ? lo : (x > hi ? hi : x);
  }
  slot->n_start = slot->try_all ? n_guess + 1 : 1;
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

/** After preparation and guess: the first request. */
MILL_HD static inline void mill_fit_begin(const mill_model *m, mill_slot *slot)
{
  slot->have_best = 0;
  slot->i_start = 0;
  slot->nonfinite = 0;
  slot->stored = 0;
  slot->lead = 0;
  slot->rough = MILL_ROUGH_NONE;
  slot->n_lead = 0;
  slot->n_profile_round = 0;
  slot->has_profile_arm = 0;
  slot->settled = 0;
  slot->n_minimum = 0;
  slot->n_free = 0;
  if (!mill_fit_admit(m, slot))
    return;
  mill_offsets_begin(m, slot);
  for (int j = 0; j < m->n_par; j++)
    if (!mill_par_held(m, slot, j))
      slot->free_par[slot->n_free++] = j;
  if (slot->n_start > 0)
    slot->result.vrad_guess_km_s = slot->start[0][MILL_PAR_VRAD];
  if (slot->has_given)
    mill_take_given_start(m, slot);
  if (slot->n_start < 1) {
    slot->result.warn |= MILL_WARN_NONFINITE;
    mill_fit_end(slot, MILL_STATUS_FIT_FAILED);
    return;
  }
  slot->doubt = MILL_DOUBT_NONE;
  slot->fix_error = 1;
  mill_start_begin(m, slot);
}

MILL_HD static inline void mill_final_request(const mill_model *m, mill_slot *slot)
{
  for (int j = 0; j < m->n_par; j++)
    slot->theta[j] = slot->best_end[j];
  slot->stage = MILL_STAGE_FINAL;
  slot->request = MILL_REQ_FINAL;
}

MILL_HD static inline int mill_has_model_error(const mill_model *m)
{
  int has = 0;
  for (int a = 0; a < m->n_arm; a++)
    has |= m->arm[a].error.fraction != NULL;
  return has;
}

/** Is the next step of the first start's polish so close to its end that the model error, until
 *  then that of the guess, may be fixed there?  If so, the polish begins again with that step. */
MILL_HD_CALLED static inline void mill_polish_settle(const mill_model *m, mill_slot *slot)
{
  const mill_polish *p = &slot->polish;
  if (slot->settled || slot->i_start > 0 || !(p->pred < MILL_SETTLE_PROMISE) ||
      !(p->lambda <= MILL_POLISH_LAMBDA_END) || !mill_has_model_error(m))
    return;
  slot->settled = 1;
  slot->fix_error = 1;
  for (int j = 0; j < m->n_par; j++)
    slot->start[0][j] = p->at.theta[j]; /* where the next method begins if that step fails */
  mill_polish_begin(m, slot, slot->theta);
}

/** Has the model error been fixed elsewhere than at the solution?  All starts have it in common,
 *  so that their F can be compared.  If so, fix it there and polish once more. */
MILL_HD static inline int mill_fit_settle(const mill_model *m, mill_slot *slot)
{
  if (!slot->have_best || slot->settled > (slot->i_best > 0) || !mill_has_model_error(m))
    return 0;
  slot->settled = 2;
  slot->i_best = slot->i_start = 0;
  for (int j = 0; j < m->n_par; j++)
    slot->start[0][j] = slot->best_end[j];
  slot->fix_error = 1;
  slot->have_best = 0; /* its F was that of another covariance */
  slot->method = m->set.optimizer == MILL_OPT_NELDER_MEAD ? MILL_OPT_LM : m->set.optimizer;
  slot->n_method_run = 0;
  slot->had_simplex = 0;
  slot->stage = MILL_STAGE_POLISH;
  mill_polish_begin(m, slot, slot->best_end);
  return 1;
}

/** The next start after one that ended at f; after the last one the profile, or the end where none
 *  found a finite value. */
MILL_HD_CALLED static inline void mill_next_start(const mill_model *m, mill_slot *slot, double f)
{
  slot->rough = MILL_ROUGH_NONE;
  if (slot->settled < 2) {
    slot->start_f[slot->i_start++] = f;
    if (slot->i_start == 1)
      slot->doubt = slot->have_best ? mill_fit_doubt(m, slot) : MILL_DOUBT_LOST;
    if (mill_start_wanted(m, slot) || mill_start_faster(m, slot)) {
      mill_start_begin(m, slot);
      return;
    }
    if (slot->i_start > 2 && slot->have_best && mill_start_agree(slot) < 2)
      slot->result.info |= MILL_INFO_TWO_MINIMA;
    if (mill_fit_settle(m, slot))
      return;
  } else if (!slot->have_best) { /* nothing finite with the covariance of the solution */
    slot->have_best = 1;
    slot->best_converged = 0;
  }
  if (!slot->have_best) {
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
  const double gap = MILL_TWO_MINIMA_GAP * (slot->have_best ? mill_fit_reduced(slot) : 1.0);
  if (p->have && slot->have_best && converged && slot->best_converged &&
      fabs(p->at.f - slot->best.f) < gap &&
      mill_point_distance2(m, slot, slot->best.theta, p->end) >
          MILL_TWO_MINIMA_DISTANCE * MILL_TWO_MINIMA_DISTANCE)
    slot->result.info |= MILL_INFO_TWO_MINIMA;
  if (m->set.sample.n_walker > 0 && p->have && converged)
    mill_sample_note(m, slot);
  if (p->have && (!slot->have_best || p->at.f < slot->best.f)) {
    if (slot->have_best && slot->best.f - p->at.f >= gap)
      slot->result.info &= ~MILL_INFO_TWO_MINIMA; /* both of them are beaten */
    slot->best = p->at;
    slot->have_best = 1;
    slot->i_best = slot->i_start;
    slot->best_converged = converged;
    for (int j = 0; j < m->n_par; j++)
      slot->best_end[j] = converged ? p->end[j] : p->at.theta[j];
  }
  mill_next_start(m, slot, p->have ? p->at.f : (double)INFINITY);
}

/** Does the next step of a second start's polish lead to the minimum that the first one found?  It
 *  is not evaluated: both its place and the F that it promises agree by chance in no other one. */
MILL_HD static inline int mill_start_repeats(const mill_model *m, const mill_slot *slot)
{
  const mill_polish *p = &slot->polish;
  const double above = p->at.f - p->pred - slot->best.f;
  return slot->have_best && slot->best_converged && p->have && above >= -MILL_REPEAT_LESS &&
         above < MILL_REPEAT_GAP &&
         mill_point_distance2(m, slot, slot->best_end, slot->theta) < MILL_REPEAT_GAP;
}

/** Is a facet of a hull, or its far side, within MILL_HULL_NEAR errors of the labels?  cov
 *  [n][n] over the parameters idx. */
MILL_HD_CALLED static inline int mill_hull_near(const mill_model *m, const double *theta, int n,
                                                const int *idx, const double *cov)
{
  double mapped[MILL_MAX_LABEL];
  mill_map_labels(m, theta, mapped);
  for (int h = 0; h < m->n_hull; h++)
    for (int f = 0; f < m->hull[h].n_facet; f++) {
      const mill_hull *hull = &m->hull[h];
      const double *normal = hull->facet + (size_t)f * (size_t)(hull->n_label + 1);
      double slope[MILL_MAX_PAR], var = 0.0;
      for (int i = 0; i < n; i++) {
        slope[i] = 0.0;
        for (int l = 0; l < hull->n_label; l++)
          if (idx[i] == MILL_PAR_LABEL0 + hull->label[l])
            slope[i] = normal[l] * mill_label_map_slope(&m->label[hull->label[l]], theta[idx[i]]);
      }
      for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
          var += slope[i] * cov[i * n + k] * slope[k];
      if (mill_facet_value(hull, f, mapped) > -MILL_HULL_NEAR * sqrt(var) && var > 0.0)
        return 1;
    }
  return 0;
}

/** Error of v sin i, var the variance of its inner parameter: half the interval that one
 *  standard deviation of that covers, which far from the limit is the usual error. */
MILL_HD static inline double mill_vsini_error(const mill_model *m, double vsini, double var)
{
  const int kind = m->set.rotation;
  const double sigma = sqrt(var), u = mill_vsini_inner(kind, vsini);
  const double least = mill_vsini_inner(kind, m->set.min_vsini_km_s);
  const double low = u - sigma > least ? u - sigma : least;
  return 0.5 * (mill_vsini_outer(kind, u + sigma) - mill_vsini_outer(kind, low));
}

/** 1-sigma limit on the distance of a v sin i at a limit from that limit.  From there F rises
 *  by g x + h x^2, x of the inner parameter and the others at their best: x where that is 1.
 *  NaN when it rises nowhere. */
MILL_HD_CALLED static inline double mill_vsini_limit(const mill_model *m, const mill_slot *slot,
                                                     int n, const int *idx, const double *cov)
{
  const int np = m->n_par, j = MILL_PAR_VSINI, kind = m->set.rotation;
  const double *hess = slot->best.hess, *row = hess + j * np;
  double g = slot->best.grad[j], h = row[j];
  for (int k = 0; k < np; k++)
    g += 2.0 * row[k] *
         (mill_par_inner(m, k, slot->best_end[k]) - mill_par_inner(m, k, slot->best.theta[k]));
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++)
      h -= row[idx[i]] * cov[i * n + k] * row[idx[k]];
  const double v = slot->best_end[j], inwards = v <= m->set.min_vsini_km_s ? 1.0 : -1.0;
  g *= inwards;
  /* a fit that did not converge may still fall from the limit: g < 0 */
  const double root = sqrt(g * g + 4.0 * (h > 0.0 ? h : 0.0));
  const double x = g > 0.0 ? 2.0 / (g + root) : (h > 0.0 ? 0.5 * (root - g) / h : (double)NAN);
  const double u = mill_vsini_inner(kind, v) + inwards * x;
  return fabs(mill_vsini_outer(kind, u < 0.0 ? 0.0 : u) - v);
}

/** Covariance of the free parameters that are not at a limit, from the curvature without
 *  the hull term; 0 when it is not positive definite. */
MILL_HD_CALLED static inline int mill_fit_covariance(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  const int np = m->n_par, nd = m->n_deriv;
  int idx[MILL_MAX_PAR], n = 0;
  for (int j = 0; j < np; j++)
    if (!mill_par_held(m, slot, j) && !mill_par_at_limit(m, j, slot->best_end[j]))
      idx[n++] = j;
  double *a = slot->space.matrix[0], *inv = slot->space.matrix[1];
  for (int i = 0; i < MILL_MAX_COVAR; i++)
    r->covar[i] = 0.0;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++)
      a[i * n + k] = slot->best.hess[idx[i] * np + idx[k]];
  if (n > 0 && mill_cholesky(n, a, n) != 0)
    return 0;
  if (n > 0)
    mill_cholesky_inverse(n, a, n, inv, n);
  if (mill_hull_near(m, slot->best_end, n, idx, inv))
    r->info |= MILL_INFO_NEAR_HULL;
  double sigma[MILL_MAX_PAR], unit[MILL_MAX_PAR];
  for (int j = 0; j < np; j++) {
    sigma[j] = 0.0;
    unit[j] = 1.0;
  }
  for (int i = 0; i < n; i++) {
    const int j = idx[i];
    const double s = sqrt(inv[i * n + i]);
    sigma[j] = j == MILL_PAR_VSINI ? mill_vsini_error(m, slot->best_end[j], inv[i * n + i]) : s;
    unit[j] = sigma[j] / s; /* COVAR is of v sin i and has VSINI_ERR on its diagonal */
  }
  for (int i = 0; i < n; i++)
    for (int k = i; k < n; k++) {
      const int p = idx[i], q = idx[k];
      if (q < nd)
        r->covar[p * nd - p * (p - 1) / 2 + (q - p)] = inv[i * n + k] * unit[p] * unit[q];
    }
  for (int l = 0; l < m->n_label; l++)
    r->label_err[l] = sigma[MILL_PAR_LABEL0 + l];
  for (int i = 0; i < m->n_arm; i++)
    if (mill_par_offset(m, i) >= 0 && !slot->no_offset[i])
      r->vrad_offset_err_km_s[i] = sigma[mill_par_offset(m, i)];
  r->vsini_err_km_s = sigma[MILL_PAR_VSINI];
  if (m->set.fixed[MILL_PAR_VSINI])
    return 1;
  const double vsini = slot->best_end[MILL_PAR_VSINI];
  if (mill_par_at_limit(m, MILL_PAR_VSINI, vsini)) {
    r->vsini_err_km_s = mill_vsini_limit(m, slot, n, idx, inv);
    if (vsini <= m->set.min_vsini_km_s)
      r->info |= MILL_INFO_VSINI_ZERO;
    return 1;
  }
  for (int i = 0; i < n; i++)
    if (idx[i] == MILL_PAR_VSINI &&
        mill_par_inner(m, MILL_PAR_VSINI, vsini) -
                mill_par_inner(m, MILL_PAR_VSINI, m->set.min_vsini_km_s) <
            MILL_VSINI_RESOLVED * sqrt(inv[i * n + i]))
      r->info |= MILL_INFO_VSINI_ZERO;
  return 1;
}

/** Reduced chi-squares.  A segment has as many continuum functions as its wavelength set says;
 *  one without a good pixel counts for nothing. */
MILL_HD static inline void mill_fit_reduce(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  int64_t n_cont[MILL_MAX_ARM] = {0}, n_left = r->n_pix_tot - slot->n_free;
  for (int i = 0; i < slot->n_segment; i++) {
    const mill_segment *s = &slot->segment[i];
    if (s->used && s->n_good > 0)
      n_cont[s->arm] += s->ws->n_cont;
  }
  for (int a = 0; a < m->n_arm; a++) {
    n_left -= n_cont[a];
    if (r->n_pix[a] > n_cont[a])
      r->rchisq[a] = r->chisq[a] / (double)(r->n_pix[a] - n_cont[a]);
  }
  if (n_left > 0)
    r->rchisq_tot = r->chisq_tot / (double)n_left;
}

/** Waves in the residuals of an arm, as a part of its chi-square, and whether they are more than
 *  noise and much of it. */
MILL_HD_CALLED static inline void mill_fit_stiffness(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  for (int a = 0; a < m->n_arm; a++) {
    const double n = (double)r->n_pix[a], n_block = slot->eval.n_block[a];
    if (!(n > 2.0 * n_block) || !(r->chisq[a] > 0.0))
      continue;
    /* what a pixel has without them */
    const double noise = (r->chisq[a] - slot->eval.block_gain[a]) / (n - n_block);
    const double excess = slot->eval.block_gain[a] - n_block * noise;
    r->stiff[a] = excess / r->chisq[a];
    if (r->stiff[a] > MILL_STIFF_PART && excess > MILL_STIFF_ERRORS * sqrt(2.0 * n_block) * noise)
      r->info |= MILL_INFO_STIFF;
  }
}

/** Velocities of the arms alone, with errors scaled by their own chi-squares. */
MILL_HD static inline void mill_fit_arm_velocities(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  for (int a = 0; a < m->n_arm; a++) {
    if (r->n_pix[a] == 0)
      continue;
    const int scaled = m->set.rescale_errors && r->rchisq[a] > 1.0;
    r->vrad_arm_km_s[a] = slot->eval.vrad_arm[a];
    r->vrad_arm_err_km_s[a] = slot->eval.vrad_arm_err[a] * (scaled ? sqrt(r->rchisq[a]) : 1.0);
  }
}

/** Keep the errors as the likelihood gives them, and scale them where that is asked for. */
MILL_HD static inline void mill_fit_scale_errors(const mill_model *m, mill_fit_result *r)
{
  r->vrad_err_formal_km_s = r->vrad_err_km_s;
  r->vsini_err_formal_km_s = r->vsini_err_km_s;
  for (int l = 0; l < m->n_label; l++)
    r->label_err_formal[l] = r->label_err[l];
  r->err_scale = m->set.rescale_errors && r->rchisq_tot > 1.0 ? sqrt(r->rchisq_tot) : 1.0;
  if (r->err_scale == 1.0)
    return;
  r->vrad_err_km_s *= r->err_scale;
  r->vsini_err_km_s *= r->err_scale;
  for (int l = 0; l < m->n_label; l++)
    r->label_err[l] *= r->err_scale;
  for (int a = 0; a < m->n_arm; a++)
    r->vrad_offset_err_km_s[a] *= r->err_scale;
  for (int i = 0; i < m->n_deriv * (m->n_deriv + 1) / 2; i++)
    r->covar[i] *= r->err_scale * r->err_scale;
}

/** Everything known: the row. */
MILL_HD_CALLED static inline void mill_fit_finish(const mill_model *m, mill_slot *slot, double f)
{
  mill_fit_result *r = &slot->result;
  const double *theta = slot->best_end;
  double mapped[MILL_MAX_LABEL];
  r->vrad_km_s = theta[MILL_PAR_VRAD];
  r->vsini_km_s = theta[MILL_PAR_VSINI];
  for (int l = 0; l < m->n_label; l++)
    r->label[l] = theta[MILL_PAR_LABEL0 + l];
  for (int a = 0; a < m->n_arm; a++)
    if (m->n_par > m->n_deriv && r->n_pix[a] > 0) {
      const int j = slot->no_offset[a] ? -1 : mill_par_offset(m, a);
      r->vrad_offset_km_s[a] = j < 0 ? 0.0 : theta[j];
      r->vrad_offset_err_km_s[a] = j < 0 ? 0.0 : (double)NAN;
    }
  r->m2ll = f;
  mill_map_labels(m, theta, mapped);
  r->hull_dist = mill_hull_distance(m->n_hull, m->hull, mapped);
  r->chisq_tot = 0.0;
  r->chisq_c_tot = 0.0;
  for (int a = 0; a < m->n_arm; a++) {
    if (r->n_pix[a] == 0)
      continue;
    r->chisq[a] = slot->eval.chisq[a];
    r->chisq_c[a] = slot->eval.chisq_c[a];
    r->chisq_tot += r->chisq[a];
    r->chisq_c_tot += r->chisq_c[a];
  }
  if (!mill_fit_covariance(m, slot))
    r->warn |= MILL_WARN_BAD_HESSIAN;
  if (m->set.fixed[MILL_PAR_VRAD]) {
    r->vrad_err_km_s = 0.0;
    r->vrad_skew = 0.0;
    r->vrad_kurt = 0.0;
  }
  mill_fit_reduce(m, slot);
  mill_fit_scale_errors(m, r);
  mill_fit_stiffness(m, slot);
  mill_fit_arm_velocities(m, slot);
  if (!(r->chisq_c_tot - r->chisq_tot >= 50.0))
    r->warn |= MILL_WARN_CHISQ;
  if (r->vrad_km_s < m->set.min_vel_km_s + 5.0 || r->vrad_km_s > m->set.max_vel_km_s - 5.0)
    r->warn |= MILL_WARN_VEL_LIMIT;
  if (!(r->vrad_err_km_s <= 100.0))
    r->warn |= MILL_WARN_VEL_ERR;
  if (r->vsini_km_s > 100.0)
    r->warn |= MILL_WARN_VSINI;
  for (int l = 0; l < m->n_label; l++) {
    const mill_label *label = &m->label[l];
    if (label->edge_min < label->edge_max &&
        (r->label[l] < label->edge_min || r->label[l] > label->edge_max))
      r->warn |= MILL_WARN_LABEL_EDGE;
  }
  /* at a facet the penalty leaves a star on either side, by 1e-6 or so */
  if (mill_hull_signed(m->n_hull, m->hull, mapped) > -MILL_HULL_EDGE)
    r->warn |= MILL_WARN_HULL;
  if (slot->eval.negative > 100.0)
    r->warn |= MILL_WARN_NEGATIVE;
  if (slot->eval.max_resid2 > 100.0 && slot->eval.max_resid2 > 0.25 * r->chisq_tot)
    r->warn |= MILL_WARN_OUTLIER;
  if (r->chisq_tot > 10.0 * (double)r->n_pix_tot)
    r->warn |= MILL_WARN_POOR_FIT;
  if (!slot->best_converged)
    r->warn |= MILL_WARN_NOT_CONVERGED;
  if (slot->nonfinite || !isfinite(f) || !isfinite(r->chisq_tot))
    r->warn |= MILL_WARN_NONFINITE;
  mill_fit_end(slot, isfinite(f) ? MILL_STATUS_FITTED : MILL_STATUS_FIT_FAILED);
}

/** Digest an answer of the polish, whose F with the penalty is f. */
MILL_HD static inline void mill_polish_digest(const mill_model *m, mill_slot *slot, double f)
{
  if (slot->lead > 0) {
    mill_lead_tell(m, slot, f);
    return;
  }
  const int outcome = mill_polish_tell(m, slot, f);
  if (slot->rough != MILL_ROUGH_NONE && mill_rough_tell(m, slot, outcome))
    return;
  if (outcome == MILL_POLISH_GO && mill_start_repeats(m, slot)) {
    mill_next_start(m, slot, slot->best.f);
    return;
  }
  if (outcome == MILL_POLISH_GO && mill_polish_misled(m, slot)) {
    slot->stage = MILL_STAGE_SIMPLEX_SHORT;
    slot->had_simplex = 1;
    mill_simplex_begin(m, slot, slot->start[slot->i_start], 0);
    return;
  }
  if (outcome == MILL_POLISH_GO)
    mill_polish_settle(m, slot);
  if (outcome == MILL_POLISH_GO || (outcome == MILL_POLISH_FAILED && mill_method_fall(m, slot)))
    return;
  mill_start_end(m, slot, outcome == MILL_POLISH_CONVERGED);
}

/** Digest the last evaluation, whose F with the penalty is f. */
MILL_HD static inline void mill_final_digest(const mill_model *m, mill_slot *slot, double f)
{
  /* the last step was not evaluated before: take it back where it led uphill */
  int moved = 0;
  for (int j = 0; j < m->n_par; j++)
    moved |= slot->best_end[j] != slot->best.theta[j];
  if (moved && !(f <= slot->best.f + MILL_POLISH_NOISE)) {
    for (int j = 0; j < m->n_par; j++)
      slot->best_end[j] = slot->best.theta[j];
    slot->has_profile_arm = 0;
    mill_final_request(m, slot);
    return;
  }
  mill_fit_finish(m, slot, f);
  if (m->set.sample.n_walker > 0 && slot->result.status == MILL_STATUS_FITTED)
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
  slot->result.n_eval++;
  slot->stored = 0;
  if (mill_template_keeps(slot)) {
    slot->has_kept = 1;
    for (int j = 0; j < m->n_par; j++)
      slot->kept_theta[j] = slot->theta[j];
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
        mill_simplex_begin(m, slot, slot->start[slot->i_start], 1);
      return;
    }
    f += slot->nm_off;
    if (mill_nm_tell(&slot->nm, f) == MILL_NM_GO)
      mill_simplex_propose(m, slot);
    else
      mill_simplex_end(m, slot);
    return;
  case MILL_STAGE_POLISH:
    mill_polish_digest(m, slot, f + mill_penalty(m, slot, slot->theta));
    return;
  case MILL_STAGE_PROFILE:
    if (mill_profile_digest(m, slot))
      mill_final_request(m, slot);
    return;
  case MILL_STAGE_FINAL:
    mill_final_digest(m, slot, f + mill_penalty(m, slot, slot->theta));
    return;
  default:
    return;
  }
}

#endif
