/* SPDX-License-Identifier: BSD-3-Clause */
/** Sample the posterior of a fitted star by importance sampling (docs/science/numerics.md,
 *  "Posteriors").
 *
 *  - The density is exp(-F/2); F includes the fit's priors and hull penalty.
 *  - A round evaluates one point of each star's proposal (kernels/star/logic/proposal.h).
 *  - A point beyond a limit is refused without an evaluation.  A point outside the hulls is refused
 *    with the probability 1 - exp(-penalty/2).
 *  - Points are drawn until the effective sample size suffices.  A bad proposal is replaced by one
 *    learned from the weights.
 *  - Random numbers depend on the seed, the star's identity and the number of the draw. */
#pragma once

#include "kernels/star/logic/ask.h"
#include "kernels/star/logic/proposal.h"
#include "kernels/star/logic/starts.h"

/** Another minimum gets a component of the first proposal if its F is less than ORIGIN_F above the
 *  solution's, and if it is more than APART errors from other minima. */
#define MILL_SAMPLE_ORIGIN_F 25.0
#define MILL_SAMPLE_APART    3.0

enum {
  MILL_SAMPLE_FIRST = 40,  /**< points of the first proposal for each free parameter */
  MILL_SAMPLE_REFUSED = 16 /**< most draws for each evaluation that max_eval allows */
};

/** Make the first proposal: a component about the solution, and one about each further minimum that
 *  MILL_SAMPLE_APART admits.  Shares of draws follow exp(-dF/2), where dF is the rise of F from the
 *  solution; small shares are raised.  Returns 0 if a covariance is not positive definite. */
MILL_HD_CALLED static inline int mill_sample_origins(const mill_model *m, mill_slot *slot)
{
  mill_sample *s = &slot->sample;
  const double apart = MILL_SAMPLE_APART * MILL_SAMPLE_APART;
  double sum = 0.0, all = 0.0;
  mill_part_of_fit(m, slot, &s->part[0]);
  s->part[0].share = 1.0;
  s->n_part = 1;
  for (int i = 0; i < slot->starts.n_minimum; i++) {
    const double *minimum = slot->starts.minimum[i];
    const double above = slot->starts.minimum_f[i] - slot->result.m2ll; /* dF */
    int is_new = above < MILL_SAMPLE_ORIGIN_F &&
                 mill_point_distance2(m, slot, slot->best.end, minimum) > apart;
    for (int e = 0; e < i; e++)
      is_new = is_new && (slot->starts.minimum_f[e] == (double)INFINITY ||
                          mill_point_distance2(m, slot, slot->starts.minimum[e], minimum) > apart);
    if (!is_new) { /* F = infinity marks this minimum as dropped */
      slot->starts.minimum_f[i] = (double)INFINITY;
      continue;
    }
    mill_part *part = &s->part[s->n_part++];
    *part = s->part[0];
    part->share = exp(-0.5 * above);
    mill_part_move(m, slot, minimum, part);
  }
  for (int p = 0; p < s->n_part; p++)
    sum += s->part[p].share;
  for (int p = 0; p < s->n_part; p++) {
    mill_part *part = &s->part[p];
    part->share = fmax(part->share / sum, s->n_part > 1 ? MILL_PART_ORIGIN : 1.0);
    all += part->share;
    if (!mill_part_shape(slot, MILL_PART_WIDER, part))
      return 0;
  }
  for (int p = 0; p < s->n_part; p++)
    s->part[p].share /= all; /* raised shares had made the sum exceed 1 */
  return 1;
}

/** Return R at slot->theta: draws are refused with probability 1 - exp(-R / 2), and weights omit R.
 *  R is the hull penalty, counted from the solution's distance outside the hulls.  Near a solution
 *  outside, F falls as the rest of the penalty rises: if draws were refused by all of it, the few
 *  accepted far outside would have nearly all weight. */
MILL_HD static inline double mill_sample_refusal(const mill_model *m, const mill_slot *slot)
{
  const double here = sqrt(mill_hull_penalty(m, slot, slot->theta));
  const double d = here - sqrt(mill_hull_penalty(m, slot, slot->best.end));
  return d > 0.0 ? d * d : 0.0;
}

/** Is slot->theta within the limits, and u (uniform, random) < exp(-mill_sample_refusal / 2)? */
MILL_HD static inline int mill_sample_allowed(const mill_model *m, const mill_slot *slot, double u)
{
  for (int k = 0; k < slot->n_free; k++) {
    const int j = slot->free_par[k];
    if (!(slot->theta[j] >= mill_par_min(m, j) && slot->theta[j] <= mill_par_max(m, j)))
      return 0;
  }
  return u < exp(-0.5 * mill_sample_refusal(m, slot));
}

/** Draw points into slot->theta until mill_sample_allowed takes one; beyond a hull chance decides.
 *  Returns 0 if too many points were refused. */
MILL_HD_CALLED static inline int mill_sample_next(const mill_model *m, mill_slot *slot)
{
  mill_sample *s = &slot->sample;
  float *x = mill_sample_point(slot, s->n_point);
  while (s->n_draw < MILL_SAMPLE_REFUSED * m->set.sample.max_eval) {
    const mill_counter_words w = mill_sample_words(m, slot, s->n_draw, MILL_DRAW_CHOICE);
    double u = mill_counter_uniform(w.v[0], w.v[1]);
    int choice = s->first_part; /* a component, by shares */
    for (; choice < s->n_part - 1 && u >= s->part[choice].share; choice++)
      u -= s->part[choice].share;
    mill_part_draw(m, slot, &s->part[choice], s->n_draw, x);
    s->n_draw++;
    for (int k = 0; k < slot->n_free; k++)
      slot->theta[slot->free_par[k]] = slot->best.end[slot->free_par[k]] + (double)x[k];
    if (mill_sample_allowed(m, slot, mill_counter_uniform(w.v[2], w.v[3])))
      return 1;
  }
  return 0;
}

/** A spectrum is not the row's if its chi-square differs from the row's by more than this fraction.
 *  Processors compute chi-squares of the same spectrum that differ by about 1e-6. */
#define MILL_SAMPLE_SAME 1e-4
/** A refit that ends this much above the row's F saw another spectrum; usual rises are 0.05. */
#define MILL_SAMPLE_RISE 5.0

/** Does the row of --fit belong to another spectrum than this one?  Another chi-square of the
 *  continuum means other pixels, another F means other wavelengths or line-spread functions. */
MILL_HD static inline int mill_sample_is_other(const mill_slot *slot)
{
  const double chisq = slot->starts.given_chisq, f = slot->starts.given_f;
  return chisq > 0.0 && (!(fabs(slot->result.chisq_c_data - chisq) <= MILL_SAMPLE_SAME * chisq) ||
                         slot->result.m2ll - f > MILL_SAMPLE_RISE + MILL_SAMPLE_SAME * fabs(f));
}

/** Set up a star's first proposal and number of points.  If there is no proposal, n_part is 0. */
MILL_HD_CALLED static inline void mill_sample_begin(const mill_model *m, mill_slot *slot)
{
  mill_sample *s = &slot->sample;
  const int most = m->set.sample.max_eval;
  s->n_point = s->n_draw = s->n_part = 0;
  s->first_point = s->first_draw = s->first_part = 0;
  s->is_last = s->has_ended = 0;
  s->i_vsini = -1;
  for (int k = 0; k < slot->n_free; k++)
    if (slot->free_par[k] == MILL_PAR_VSINI)
      s->i_vsini = k;
  s->n_target = MILL_SAMPLE_FIRST * slot->n_free < most ? MILL_SAMPLE_FIRST * slot->n_free : most;
  s->least = slot->result.m2ll;
  slot->result.status = MILL_STATUS_NOT_DONE;
  if (slot->n_free > 0 && !mill_sample_origins(m, slot))
    s->n_part = 0;
}

/** Let `copy`, a copy of a slot, ask for the point after the slot's.  The copy uses the next
 *  element of each segment's velocities and values.  Returns 0 if there is no next point. */
MILL_HD static inline int mill_sample_ahead(const mill_model *m, mill_slot *copy)
{
  if (copy->request != MILL_REQ_VALUES || copy->sample.n_point + 1 >= copy->sample.n_target)
    return 0;
  copy->sample.n_point++;
  if (!mill_sample_next(m, copy))
    return 0;
  copy->vel++;
  copy->answer++;
  mill_ask_point(m, copy);
  return 1;
}

/** Store the point's ln(density) without the part that mill_sample_allowed has applied. */
MILL_HD_CALLED static inline void mill_sample_keep(const mill_model *m, mill_slot *slot)
{
  mill_sample *s = &slot->sample;
  const double refusal = mill_sample_refusal(m, slot);
  const double f = slot->eval.f + mill_penalty(m, slot, slot->theta);
  s->least = f < s->least ? f : s->least;
  s->ln_p[s->n_point++] =
      isfinite(f) ? (float)(-0.5 * (f - refusal - slot->result.m2ll)) : -INFINITY;
}

/** Sample the posterior of a fitted star until the effective sample size suffices. */
MILL_RESUMABLE(mill_sample_run)
{
  mill_sample *s = &slot->sample;
  MILL_BEGIN;
  if (mill_sample_is_other(slot)) { /* the row of --fit belongs to another spectrum */
    slot->result.status = MILL_STATUS_OTHER_SPECTRUM;
    MILL_RETURN;
  }
  mill_sample_begin(m, slot);
  while (!s->has_ended) {
    while (s->n_part > 0 && s->n_point < s->n_target) {
      if (!mill_sample_next(m, slot)) {
        s->is_last = 1; /* too many draws were refused */
        break;
      }
      mill_ask_point(m, slot);
      MILL_WAIT(MILL_REQ_VALUES);
      mill_take_point(m, slot);
      mill_sample_keep(m, slot);
    }
    MILL_WAIT(MILL_REQ_WEIGH); /* sets has_ended, or raises n_target */
  }
  slot->result.status = MILL_STATUS_FITTED;
  MILL_END;
}
