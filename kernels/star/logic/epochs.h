/* SPDX-License-Identifier: BSD-3-Clause */
/** A velocity for each epoch of a star: the template of the joint solution, its minimum of F by
 *  parabolas through three values as for an arm alone (kernels/star/arm_velocity.h).
 *
 *  Where the epochs differ the joint solution may lie between their minima, and its lines are too
 *  broad.  So a scan over many line widths begins the searches anew, then the labels are fitted
 *  with each epoch at its velocity, and the searches are repeated with that template.
 *
 *  docs/science/numerics.md, "Epochs".
 */
#ifndef MILL_EPOCHS_H
#define MILL_EPOCHS_H

#include "kernels/star/arm_velocity.h"
#include "kernels/star/logic/descend.h"
#include "kernels/star/logic/profile.h"

/** First step of a search, in errors of the epoch if all had the same weight. */
#define MILL_EPOCH_STEP 2.0
/** Epochs are scanned where one is further than this from the star's velocity, in its errors. */
#define MILL_EPOCH_FAR 4.0
/** Labels are fitted with each epoch at its velocity where a constant one has a smaller
 *  probability. */
#define MILL_EPOCH_PVAL 1e-4

/** Probability of a chi-square above x with n degrees of freedom (Abramowitz & Stegun 26.4.4, 5). */
MILL_HD_CALLED static inline double mill_chisq_pval(double x, int n)
{
  const double most = 600.0; /* of an exponent, so that no term underflows */
  const int odd = n % 2;
  double rest = 0.5 * x > most ? 0.5 * x - most : 0.0;
  double sum = odd ? erfc(sqrt(0.5 * x)) : 0.0;
  double term = exp(rest - 0.5 * x) * (odd ? sqrt(2.0 * x / MILL_PI) : 1.0);
  if (n < 1)
    return 1.0;
  for (int d = 2 + odd; d <= n; d += 2) {
    sum += term;
    term *= x / d;
    if (rest > 0.0 && term > 1.0) {
      const double part = exp(-(rest < most ? rest : most));
      rest = rest < most ? 0.0 : rest - most;
      sum *= part;
      term *= part;
    }
  }
  return sum * exp(-rest);
}

/** Mean of the epochs' velocities, and by error and a floor of it chi-square of a constant one, with
 *  the probability of more. */
typedef struct mill_epochs_mean {
  int n;
  double velocity, first, chisq, pval, least, most; /* first: mean of the epochs' */
} mill_epochs_mean;

MILL_HD_CALLED static inline void mill_epochs_average(const mill_model *m, const mill_slot *slot,
                                                      double err_scale, mill_epochs_mean *mean)
{
  const double floor = m->set.epoch_floor_km_s;
  double sum = 0.0, sum_first = 0.0, weight = 0.0;
  mean->n = 0;
  mean->chisq = 0.0;
  mean->least = INFINITY;
  mean->most = -INFINITY;
  for (int pass = 0; pass < 2; pass++) {
    mean->velocity = weight > 0.0 ? sum / weight : (double)NAN;
    mean->first = weight > 0.0 ? sum_first / weight : (double)NAN;
    for (int i = 0; i < slot->n_epoch; i++) {
      const double v = slot->epoch[i].search.found, err = slot->epoch[i].search.err * err_scale;
      const double w = 1.0 / (err * err + floor * floor), d = v - mean->velocity;
      if (!isfinite(v))
        continue;
      if (pass == 0) {
        mean->n++;
        weight += w;
        sum += w * v;
        sum_first += w * slot->epoch[i].first;
        mean->least = v < mean->least ? v : mean->least;
        mean->most = v > mean->most ? v : mean->most;
      } else {
        mean->chisq += w * d * d;
      }
    }
  }
  mean->pval = mill_chisq_pval(mean->chisq, mean->n - 1);
}

/** Begin the search of an epoch at a velocity. */
MILL_HD static inline void mill_epoch_search(const mill_slot *slot, double vel_km_s, mill_epoch *e)
{
  mill_arm_velocity_begin(slot, vel_km_s, 0.0, &e->search);
  const double step = MILL_EPOCH_STEP * slot->result.vrad_err_km_s * sqrt((double)slot->n_epoch);
  if (step > e->search.step)
    e->search.step = step < MILL_ARM_VEL_MOST ? step : MILL_ARM_VEL_MOST;
  e->search.go = (e->result.flag & MILL_EPOCH_NO_DATA) == 0;
}

/** Ask for F of an epoch at n velocities; within the limits, or not at all. */
MILL_HD static inline void mill_epoch_ask(const mill_model *m, mill_epoch *e, int n, double first,
                                          double step)
{
  e->n = n;
  e->first = first;
  e->step = step;
  for (int i = 0; i < n; i++)
    e->f[i] = 0.0;
  if (first >= m->set.min_vel_km_s && first + (n - 1) * step <= m->set.max_vel_km_s)
    return;
  e->n = e->search.go = 0;
  e->result.flag |= MILL_EPOCH_LIMIT;
}

/** Velocities of the searches under way; 0: all have ended. */
MILL_HD static inline int mill_epochs_request(const mill_model *m, mill_slot *slot)
{
  int n_asked = 0;
  for (int i = 0; i < slot->n_epoch; i++) {
    mill_epoch *e = &slot->epoch[i];
    const double h = e->search.step;
    e->n = 0;
    if (e->search.go)
      mill_epoch_ask(m, e, 3, e->search.v - h, h);
    n_asked += e->n;
  }
  mill_go_to_best(m, slot);
  return n_asked > 0;
}

/** S/N of the epochs, and which have no data. */
MILL_HD static inline void mill_epochs_data(mill_slot *slot)
{
  for (int i = 0; i < slot->n_epoch; i++) {
    slot->epoch[i].result.sn = -1e9;
    slot->epoch[i].result.epoch = i;
    slot->epoch[i].result.flag = MILL_EPOCH_NO_DATA;
    slot->epoch[i].result.pair_vrad_km_s = slot->epoch[i].result.pair_vrad_err_km_s = (double)NAN;
  }
  for (int i = 0; i < slot->n_segment; i++) {
    const mill_segment *s = &slot->segment[i];
    mill_epoch_result *r = &slot->epoch[s->epoch].result;
    r->sn = s->sn > r->sn ? s->sn : r->sn;
    r->flag = s->used && s->n_good > 0 ? 0 : r->flag;
  }
}

/** Begin the searches at the solution; 0: there are none. */
MILL_HD_CALLED static inline int mill_epochs_begin(const mill_model *m, mill_slot *slot)
{
  mill_epochs_data(slot);
  for (int i = 0; i < slot->n_epoch; i++)
    mill_epoch_search(slot, slot->best.end[MILL_PAR_VRAD], &slot->epoch[i]);
  for (int i = 0; i < slot->n_segment; i++)
    slot->epoch[slot->segment[i].epoch].search.v =
        slot->best.end[MILL_PAR_VRAD] + slot->segment[i].shift_km_s;
  return mill_epochs_request(m, slot);
}

/** Is a search so far from the star's velocity, or without an end, that its minimum may be a false
 *  one? */
MILL_HD static inline int mill_epochs_doubt(const mill_slot *slot)
{
  int doubt = 0;
  for (int i = 0; i < slot->n_epoch; i++) {
    const mill_epoch *e = &slot->epoch[i];
    const double d = e->search.found - slot->best.end[MILL_PAR_VRAD];
    doubt |=
        !(fabs(d) <= MILL_EPOCH_FAR * e->search.err) && (e->result.flag & MILL_EPOCH_NO_DATA) == 0;
  }
  return doubt && slot->n_epoch > 1;
}

/** Chi-square that the lines of all arms have. */
MILL_HD static inline double mill_lines_signal(const mill_model *m, const mill_slot *slot)
{
  double signal = 0.0;
  for (int a = 0; a < m->n_arm; a++)
    signal += slot->lead.signal[a] > 0.0 ? slot->lead.signal[a] : 0.0;
  return signal;
}

/** Ask for F of all epochs at even steps as wide as the star's lines: where these are Gaussian and
 *  of significance G^2, F is F0 + G^2 (1 - exp(-v^2 / 2 w^2)), and the error of v is 2^1/2 w / G. */
MILL_HD static inline void mill_epochs_scan(const mill_model *m, mill_slot *slot)
{
  const double v = slot->best.end[MILL_PAR_VRAD], most = m->set.max_vel_km_s - v;
  const double reach = v - m->set.min_vel_km_s < most ? v - m->set.min_vel_km_s : most;
  const int half = MILL_N_PROFILE / 2;
  const double signal = mill_lines_signal(m, slot);
  double step = slot->result.vrad_err_km_s * sqrt(signal > 2.0 ? 0.5 * signal : 1.0);
  if (step > reach / (half + 1))
    step = reach / (half + 1);
  for (int i = 0; i < slot->n_epoch; i++)
    if ((slot->epoch[i].result.flag & MILL_EPOCH_NO_DATA) == 0)
      mill_epoch_ask(m, &slot->epoch[i], MILL_N_PROFILE, v - half * step, step);
}

/** Begin a search at the least of the scan's values. */
MILL_HD static inline void mill_epoch_scanned(const mill_slot *slot, mill_epoch *e)
{
  int least = 0;
  for (int i = 1; i < e->n; i++)
    if (e->f[i] < e->f[least])
      least = i;
  e->result.flag &= ~MILL_EPOCH_LIMIT;
  mill_epoch_search(slot, e->first + least * e->step, e);
  e->search.step = 0.5 * e->step < MILL_ARM_VEL_MOST ? 0.5 * e->step : MILL_ARM_VEL_MOST;
}

/** Digest the values of the epochs. */
MILL_HD_CALLED static inline void mill_epochs_digest(mill_slot *slot)
{
  for (int i = 0; i < slot->n_epoch; i++) {
    mill_epoch *e = &slot->epoch[i];
    if (e->n == MILL_N_PROFILE) {
      mill_epoch_scanned(slot, e);
    } else if (e->n > 0) {
      e->search.f = e->f[1];
      (void)mill_arm_velocity_digest(&e->search, e->f[0], e->f[2]); /* F at v is asked anyway */
    }
  }
}

/** The velocity of each epoch from the solution, and where one is in doubt again from the least of a
 *  scan. */
MILL_RESUMABLE(mill_epochs_search)
{
  MILL_BEGIN;
  if (!mill_epochs_begin(m, slot))
    MILL_RETURN;
  do {
    MILL_ASK(MILL_REQ_EPOCHS);
    mill_epochs_digest(slot);
  } while (mill_epochs_request(m, slot));
  if (slot->epochs_shifted || !mill_epochs_doubt(slot))
    MILL_RETURN;
  mill_epochs_scan(m, slot);
  do {
    MILL_ASK(MILL_REQ_EPOCHS);
    mill_epochs_digest(slot);
  } while (mill_epochs_request(m, slot));
  MILL_END;
}

/** Where the epochs differ, give each its velocity.  1: for a fit with them, from their mean; 0: for
 *  the row, or the epochs do not differ.  After the fit the star's velocity moves by what the shifts
 *  that it was found with have for a mean in the new weights: then it is the mean of the epochs, but
 *  for what the model error weighs otherwise. */
MILL_HD_CALLED static inline int mill_epochs_shift(const mill_model *m, mill_slot *slot)
{
  const int is_first = !slot->epochs_shifted;
  mill_epochs_mean mean;
  for (int i = 0; i < slot->n_segment; i++)
    slot->epoch[slot->segment[i].epoch].first = slot->segment[i].shift_km_s;
  mill_epochs_average(m, slot, 1.0, &mean);
  if (mean.n == 0 || (is_first && !(mean.pval < MILL_EPOCH_PVAL)))
    return 0;
  for (int i = 0; i < slot->n_segment; i++) {
    const double v = slot->epoch[slot->segment[i].epoch].search.found;
    slot->segment[i].shift_km_s = isfinite(v) ? v - mean.velocity : 0.0;
  }
  if (is_first) {
    slot->best.end[MILL_PAR_VRAD] = mean.velocity;
  } else {
    slot->best.end[MILL_PAR_VRAD] += mean.first;
    slot->best.at.theta[MILL_PAR_VRAD] += mean.first;
  }
  slot->profile.has_arm = 0; /* it is about another place */
  slot->epochs_shifted = 1;
  slot->result.info |= MILL_INFO_EPOCHS;
  return is_first;
}

/** Velocities of the epochs; where they differ, the fit with each epoch at its own, and theirs with its
 *  template. */
MILL_RESUMABLE(mill_epochs_run)
{
  MILL_BEGIN;
  if (slot->n_epoch == 0)
    MILL_RETURN;
  MILL_CALL(mill_epochs_search);
  if (!mill_epochs_shift(m, slot))
    MILL_RETURN;
  slot->starts.brief = 0; /* as the guess knew no shifts */
  MILL_CALL(mill_polish_again);
  MILL_CALL(mill_profile_run);
  MILL_CALL(mill_epochs_search);
  (void)mill_epochs_shift(m, slot);
  MILL_END;
}

/** Velocities of the epochs and what they say together, for the star's row. */
MILL_HD_CALLED static inline void mill_epochs_row(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  mill_epochs_mean mean;
  if (slot->n_epoch == 0)
    return;
  mill_epochs_average(m, slot, r->err_scale, &mean);
  for (int i = 0; i < slot->n_epoch; i++) {
    mill_epoch *e = &slot->epoch[i];
    e->result.vrad_km_s = e->search.found;
    e->result.vrad_err_km_s = e->search.err * r->err_scale;
    if (!isfinite(e->search.found) && e->result.flag == 0)
      e->result.flag = MILL_EPOCH_NO_MINIMUM;
  }
  r->n_epoch = mean.n;
  r->vrad_chi2 = mean.n > 0 ? mean.chisq : (double)NAN;
  r->vrad_pval = mean.n > 1 ? mean.pval : (double)NAN;
  r->vrad_range_km_s = mean.n > 0 ? mean.most - mean.least : (double)NAN;
}

#endif
