/* SPDX-License-Identifier: BSD-3-Clause */
/** Find the velocity of each epoch: the minimum of the epoch's F with the template of the joint
 *  solution (docs/science/numerics.md, "Epochs").
 *
 *  If the epochs' velocities differ, the joint solution lies between them, with lines that are too
 *  broad.  Then wide scans restart the searches, the labels are fitted with each epoch at its
 *  velocity, and the searches are repeated with the new template. */
#pragma once

#include "kernels/star/logic/descend.h"
#include "kernels/star/logic/profile.h"
#include "kernels/star/logic/velocities.h"

/** First step of a search, in expected velocity errors of one epoch. */
#define MILL_EPOCH_STEP 2.0
/** All epochs are scanned if one epoch's velocity is more than this many errors from the star's. */
#define MILL_EPOCH_FAR 4.5
/** A far velocity counts only if it lowers the epoch's F by this much: less may be noise. */
#define MILL_EPOCH_GAIN (MILL_EPOCH_FAR * MILL_EPOCH_FAR)
/** To count, a far velocity of an arm must lower F by GAIN times chi-square per pixel (at least 1)
 *  plus PART * (chi-square - pixels) plus max(0, chi-square - chi-square of the continuum alone).
 *  All chi-squares are the arm's, at the star's velocity. */
#define MILL_ARM_GAIN 50.0
#define MILL_ARM_PART 0.25
/** Each epoch is fitted at its velocity if one velocity for all has a probability below this. */
#define MILL_EPOCH_PVAL 1e-4

/** Return P(chi-square > x) for n degrees of freedom (Abramowitz & Stegun 26.4.4 and 26.4.5). */
MILL_HD_CALLED static inline double mill_chisq_pval(double x, int n)
{
  const double max_exponent = 600.0; /* largest exponent, so that no term underflows */
  const int odd = n % 2;
  double left = fmax(0.5 * x - max_exponent, 0.0); /* sum and term lack the factor exp(-left) */
  double sum = odd ? exp(fmin(left, max_exponent)) * erfc(sqrt(0.5 * x)) : 0.0;
  double term = exp(left - 0.5 * x) * (odd ? sqrt(2.0 * x / MILL_PI) : 1.0);
  if (n < 1)
    return 1.0;
  for (int d = 2 + odd; d <= n; d += 2) {
    sum += term;
    term *= x / d;
    if (left > 0.0 && term > 1.0) { /* apply part of the factor exp(-left) */
      const double part = exp(-fmin(left, max_exponent));
      left = fmax(left - max_exponent, 0.0);
      sum *= part;
      term *= part;
    }
  }
  return sum * exp(-left);
}

/** Statistics of n epochs' velocities, km/s. */
typedef struct mill_epochs_mean {
  int n;
  double velocity, shift; /**< means of velocity and shift[0], weighted by 1 / error^2 */
  double chisq, pval;     /**< of a constant velocity; probability of a larger chi-square */
  double least, most;     /**< lowest and highest velocity */
} mill_epochs_mean;

/** Average the velocities of epochs not flagged EXCHANGEABLE.  err_scale is a factor on the errors.
 *  Chi-square includes epoch_floor; the means do not, as the joint fit has no floor either. */
MILL_HD_CALLED static inline void mill_epochs_average(const mill_model *m, const mill_slot *slot,
                                                      double err_scale, mill_epochs_mean *mean)
{
  const double floor = m->set.epoch_floor_km_s;
  double sum = 0.0, sum_shift = 0.0, weight = 0.0, sum_floor = 0.0, weight_floor = 0.0;
  mean->n = 0;
  mean->chisq = 0.0;
  mean->least = INFINITY;
  mean->most = -INFINITY;
  for (int pass = 0; pass < 2; pass++) { /* first the sums for the means, then chi-square */
    const double mean_floor = weight_floor > 0.0 ? sum_floor / weight_floor : (double)NAN;
    for (int i = 0; i < slot->n_epoch; i++) {
      const mill_curve *c = &slot->epoch[i].curve;
      const double v = c->found, err = c->err * err_scale, d = v - mean_floor;
      const double w = 1.0 / (err * err + floor * floor); /* of chi-square and the sums *_floor */
      if (!isfinite(v) || slot->epoch[i].result.flag & MILL_EPOCH_EXCHANGEABLE)
        continue;
      if (pass == 0) {
        mean->n++;
        weight_floor += w;
        sum_floor += w * v;
        weight += 1.0 / (err * err);
        sum += v / (err * err);
        sum_shift += slot->epoch[i].shift[0] / (err * err);
        mean->least = v < mean->least ? v : mean->least;
        mean->most = v > mean->most ? v : mean->most;
      } else {
        mean->chisq += w * d * d;
      }
    }
  }
  mean->velocity = sum / weight;
  mean->shift = sum_shift / weight;
  mean->pval = mill_chisq_pval(mean->chisq, mean->n - 1);
}

/** Begin the epochs' rows: set S/N and flag (NO_DATA, or 0), and the pair's velocities to NaN.
 *  Clear no_lines, unless the epochs are shifted already: then an earlier search has set it. */
MILL_HD static inline void mill_epochs_data(mill_slot *slot)
{
  for (int i = 0; i < slot->n_epoch; i++) {
    slot->epoch[i].result.sn = -1e9; /* below any S/N */
    slot->epoch[i].result.epoch = i;
    slot->epoch[i].result.flag = MILL_EPOCH_NO_DATA;
    slot->epoch[i].no_lines = slot->epochs_shifted && slot->epoch[i].no_lines;
    slot->epoch[i].result.pair_vrad_km_s = slot->epoch[i].result.pair_vrad_err_km_s = (double)NAN;
  }
  for (int i = 0; i < slot->n_segment; i++) {
    const mill_segment *s = &slot->segment[i];
    mill_epoch_result *r = &slot->epoch[s->epoch].result;
    r->sn = s->sn > r->sn ? s->sn : r->sn;
    r->flag = s->used && s->n_good > 0 ? 0 : r->flag;
  }
}

/** Begin the search of each epoch at the solution. */
MILL_HD_CALLED static inline void mill_epochs_begin(const mill_model *m, mill_slot *slot)
{
  mill_epochs_data(slot);
  mill_go_to_best(m, slot);
  slot->of_epochs = 1;
  const double step = MILL_EPOCH_STEP * slot->result.vrad_err_km_s * sqrt((double)slot->n_epoch);
  for (int i = 0; i < slot->n_epoch; i++) {
    mill_epoch *e = &slot->epoch[i];
    mill_seek_begin(slot, slot->best.end[MILL_PAR_VRAD] + e->shift[0], (double)NAN, &e->curve);
    e->curve.step = fmin(fmax(e->curve.step, step), MILL_SEEK_MOST);
    e->curve.go = (e->result.flag & MILL_EPOCH_NO_DATA) == 0;
  }
}

/** Return the factor on the variance of the epochs' velocities: with rescale_errors the solution's
 *  reduced chi-square, at least 1; else 1. */
MILL_HD static inline double mill_epochs_scale(const mill_model *m, const mill_slot *slot)
{
  return m->set.rescale_errors ? mill_reduced(m, slot, slot->best.at.f) : 1.0;
}

/** Return by how much the template at VRAD lowers an arm's chi-square; needs answered models. */
MILL_HD static inline double mill_arm_lines(const mill_model *m, const mill_slot *slot, int a)
{
  return mill_sum_models(m, slot, a, MILL_ANSWER_CHISQ_C) -
         mill_sum_models(m, slot, a, MILL_ANSWER_CHISQ);
}

/** May the velocity of search i be wrong?  An epoch's may be if it is missing or far from the
 *  star's, or the epoch has no lines; an arm's, if missing or if a continuum alone fits better. */
MILL_HD_CALLED static inline int mill_seek_doubt(const mill_model *m, mill_slot *slot, int i)
{
  const mill_fit_result *r = &slot->result;
  if (!slot->of_epochs)
    return r->n_pix[i] > 0 && r->n_pix[i] < r->n_pix_tot && !m->set.fixed[MILL_PAR_VRAD] &&
           !(isfinite(slot->arm[i].found) && mill_arm_lines(m, slot, i) >= 0.0);
  const mill_epoch *e = &slot->epoch[i];
  const double d = fabs(e->curve.found - slot->best.end[MILL_PAR_VRAD]);
  const double far = MILL_EPOCH_FAR * e->curve.err * sqrt(mill_epochs_scale(m, slot));
  return slot->n_epoch > 1 && (e->no_lines || !(d <= far)) &&
         (e->result.flag & MILL_EPOCH_NO_DATA) == 0;
}

/** Is any velocity in doubt? */
MILL_HD_CALLED static inline int mill_seeks_doubt(const mill_model *m, mill_slot *slot)
{
  int doubt = 0;
  for (int i = 0; mill_seek_of(m, slot, i) != NULL; i++)
    doubt |= mill_seek_doubt(m, slot, i);
  return doubt;
}

/** Return the squared significance of all arms' lines together.  Overestimated errors make
 *  lead.signal too low; the drop of chi-square by the guess's best template then replaces it. */
MILL_HD static inline double mill_lines_signal(const mill_model *m, const mill_slot *slot)
{
  double signal = 0.0;
  for (int a = 0; a < m->n_arm; a++)
    signal += fmax(slot->lead.signal[a], 0.0);
  return fmax(signal, -slot->result.guess_chisq);
}

/** Return the star's line width w, km/s, from VRAD's formal error err and the lines' signal G^2.
 *  At v km/s from VRAD, Gaussian lines raise F by G^2 (1 - exp(-v^2 / 2 w^2)): w = err G / sqrt(2).
 *  Velocity offsets enlarge err, and a prior reduces it.  In both cases VRAD's error by the data,
 *  with all other parameters fixed, replaces err. */
MILL_HD static inline double mill_line_width(const mill_model *m, const mill_slot *slot, double err,
                                             double signal)
{
  const double sigma = mill_prior_sigma(m, slot, MILL_PAR_VRAD);
  const double curvature =
      slot->best.at.hess[MILL_PAR_VRAD] - (sigma > 0.0 ? 1.0 / (sigma * sigma) : 0.0);
  const double own = m->n_par > m->n_deriv || sigma > 0.0 ? 1.0 / sqrt(curvature) : err;
  return own * sqrt(signal > 2.0 ? 0.5 * signal : 1.0);
}

/** Set up scans of all epochs, or of the arms in doubt, in steps of the star's line width. */
MILL_HD_CALLED static inline void mill_scan_begin(const mill_model *m, mill_slot *slot)
{
  const double signal = mill_lines_signal(m, slot), vrad = slot->theta[MILL_PAR_VRAD];
  const double width = mill_line_width(m, slot, slot->result.vrad_err_km_s, signal);
  mill_curve *c;
  for (int i = 0; (c = mill_seek_of(m, slot, i)) != NULL; i++) {
    const int is_asked = slot->of_epochs ? (slot->epoch[i].result.flag & MILL_EPOCH_NO_DATA) == 0
                                         : mill_seek_doubt(m, slot, i);
    c->n = is_asked ? MILL_N_PROFILE : 0;
    c->least = isfinite(c->found) ? c->f_centre : INFINITY;
    c->centre = slot->of_epochs ? vrad : mill_arm_vrad(m, slot, i, vrad);
    c->f_centre = (double)NAN;
    /* the first and last of MILL_N_PROFILE velocities stay within the limits */
    c->step = fmin(width, fmin(c->centre - m->set.min_vel_km_s, m->set.max_vel_km_s - c->centre) /
                              (MILL_N_PROFILE / 2 + 1));
  }
}

/** Return how far below F at the star's velocity F of an epoch or arm must be, to be low. */
MILL_HD_CALLED static inline double mill_scan_gain(const mill_model *m, mill_slot *slot, int i)
{
  if (slot->of_epochs)
    return MILL_EPOCH_GAIN * mill_epochs_scale(m, slot);
  const double n = (double)slot->result.n_pix[i], lines = mill_arm_lines(m, slot, i);
  const double chisq = fmax(mill_sum_models(m, slot, i, MILL_ANSWER_CHISQ), n);
  return MILL_ARM_GAIN * chisq / n + MILL_ARM_PART * (chisq - n) + fmax(-lines, 0.0);
}

/** End scans.  F is low if it is below F at the star's velocity by mill_scan_gain.  If a scan's
 *  least F is low and below the first search's minimum (c->least), search again from there.
 *  Otherwise keep the first search's velocity, unless it is an epoch's in doubt and not low. */
MILL_HD_CALLED static inline void mill_scan_end(const mill_model *m, mill_slot *slot)
{
  mill_curve *c;
  for (int i = 0; (c = mill_seek_of(m, slot, i)) != NULL; i++) {
    int least = 0;
    if (c->n == 0)
      continue;
    const double step = fmin(0.5 * c->step, MILL_SEEK_MOST);
    const double low = c->f[c->n / 2] - mill_scan_gain(m, slot, i); /* F is low below this */
    const int may_stay = c->least < low || !(slot->of_epochs && mill_seek_doubt(m, slot, i));
    for (int k = 1; k < c->n; k++)
      if (c->f[k] < c->f[least])
        least = k;
    if (c->f[least] < low && !(may_stay && c->least < c->f[least])) {
      mill_seek_begin(slot, mill_curve_velocity(c, least), (double)NAN, c);
      c->step = step;
    } else if (!may_stay) {
      c->found = c->err = (double)NAN;
    }
  }
}

/** If a velocity of an epoch or arm is in doubt, scan, then search from each scan's least F. */
MILL_RESUMABLE(mill_scan_run)
{
  MILL_BEGIN;
  if (!mill_seeks_doubt(m, slot))
    MILL_RETURN;
  mill_scan_begin(m, slot);
  MILL_ASK_CURVES(slot->of_epochs ? MILL_OF_EPOCHS : MILL_OF_ARMS);
  mill_scan_end(m, slot);
  MILL_CALL(mill_seek_run);
  MILL_END;
}

/** Drop each velocity in doubt unless the template lowers the continuum's chi-square by more than
 *  MILL_EPOCH_GAIN.  A spectrum without lines fits best where the template's lines are hidden. */
MILL_HD_CALLED static inline void mill_epochs_weigh(const mill_model *m, mill_slot *slot)
{
  for (int i = 0; i < slot->n_epoch; i++) {
    mill_epoch *e = &slot->epoch[i];
    double gain = -MILL_EPOCH_GAIN * mill_epochs_scale(m, slot);
    for (int k = 0; k < slot->n_segment; k++) {
      const double *answer = mill_answer_of(m, slot, k), v = mill_velocities_of(slot, k)[0];
      if (slot->segment[k].epoch == i && v == v) /* NaN: not asked */
        gain += answer[MILL_ANSWER_CHISQ_C_DATA] - answer[MILL_ANSWER_CHISQ_DATA];
    }
    e->no_lines = mill_seek_doubt(m, slot, i) && !(gain > 0.0);
    if (e->no_lines)
      e->curve.found = e->curve.err = (double)NAN;
  }
}

/** Search each epoch's velocity from the solution.  If a velocity is in doubt, and the fit did not
 *  use the epochs' own velocities, scan all epochs and search again from each scan's least F.  Then
 *  drop velocities in doubt of epochs that a continuum alone fits as well (mill_epochs_weigh). */
MILL_RESUMABLE(mill_epochs_search)
{
  MILL_BEGIN;
  mill_epochs_begin(m, slot);
  MILL_CALL(mill_seek_run);
  if (!mill_seeks_doubt(m, slot))
    MILL_RETURN;
  if (!slot->epochs_shifted)
    MILL_CALL(mill_scan_run);
  for (int i = 0; i < slot->n_epoch; i++) { /* ask for models at the searches' ends */
    mill_curve *c = &slot->epoch[i].curve;
    c->n = slot->epoch[i].result.flag & MILL_EPOCH_NO_DATA ? 0 : 1; /* one velocity, the centre */
    c->centre = isfinite(c->found) ? c->found : c->centre;          /* a scan has moved it */
    c->f_centre = (double)NAN;
  }
  mill_ask_curves(m, slot, MILL_OF_EPOCHS);
  MILL_WAIT(MILL_REQ_MODELS);
  mill_answered(m, slot);
  mill_epochs_weigh(m, slot);
  MILL_END;
}

/** If the epochs' velocities differ, shift each epoch to its velocity.
 *  - First call: VRAD becomes the mean velocity.  Returns 1: the caller fits again with the shifts.
 *  - Second call, after that fit: VRAD moves by the weighted mean shift.  Returns 0. */
MILL_HD_CALLED static inline int mill_epochs_shift(const mill_model *m, mill_slot *slot)
{
  const int is_first = !slot->epochs_shifted;
  mill_epochs_mean mean;
  mill_epochs_average(m, slot, sqrt(mill_epochs_scale(m, slot)), &mean);
  if (mean.n == 0 || (is_first && !(mean.pval < MILL_EPOCH_PVAL)))
    return 0;
  for (int i = 0; i < slot->n_epoch; i++) {
    const double v = slot->epoch[i].curve.found;
    slot->epoch[i].shift[0] = isfinite(v) ? v - mean.velocity : 0.0;
  }
  if (is_first) {
    slot->best.end[MILL_PAR_VRAD] = mean.velocity;
  } else {
    slot->best.end[MILL_PAR_VRAD] += mean.shift;
    slot->best.at.theta[MILL_PAR_VRAD] += mean.shift;
  }
  slot->profile.has_arm = 0; /* the arms' F are at other velocities */
  slot->epochs_shifted = 1;
  slot->result.info |= MILL_INFO_EPOCHS;
  return is_first;
}

/** Find the epochs' velocities.  If they differ, fit again with each epoch at its velocity, and
 *  repeat the searches with the new template. */
MILL_RESUMABLE(mill_epochs_run)
{
  MILL_BEGIN;
  if (slot->n_epoch == 0)
    MILL_RETURN;
  MILL_CALL(mill_epochs_search);
  if (!mill_epochs_shift(m, slot))
    MILL_RETURN;
  slot->starts.brief = 0; /* the guess used no shifts, and may have misjudged the star */
  MILL_CALL(mill_polish_again);
  MILL_CALL(mill_profile_run);
  MILL_CALL(mill_epochs_search);
  (void)mill_epochs_shift(m, slot); /* returns 0: no further fit */
  MILL_END;
}

/** Return the shift of the epochs' velocities, km/s, that makes VRAD their mean; 0 without model
 *  error.  With model error the joint fit weighs lines differently from fits of single epochs. */
MILL_HD static inline double mill_epochs_zero(const mill_model *m, const mill_slot *slot,
                                              const mill_epochs_mean *mean)
{
  const int is_measured = !(mill_prior_sigma(m, slot, MILL_PAR_VRAD) > 0.0);
  return mean->n > 0 && mill_has_model_error(m, slot) && is_measured
             ? slot->best.end[MILL_PAR_VRAD] - mean->velocity
             : 0.0;
}

/** Fill in the epochs' velocities, and the star's summary of them (VRAD_CHI2 ...). */
MILL_HD_CALLED static inline void mill_epochs_row(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  mill_epochs_mean mean;
  if (slot->n_epoch == 0)
    return;
  mill_epochs_average(m, slot, r->err_scale, &mean);
  const double shift = mill_epochs_zero(m, slot, &mean); /* makes VRAD the epochs' mean */
  for (int i = 0; i < slot->n_epoch; i++) {
    mill_epoch *e = &slot->epoch[i];
    e->result.vrad_km_s = e->curve.found + shift;
    e->result.vrad_err_km_s = e->curve.err * r->err_scale;
    if (!isfinite(e->curve.found) && e->result.flag == 0) /* LIMIT: a limit cut the last step */
      e->result.flag =
          e->curve.step < mill_seek_room(m, &e->curve) ? MILL_EPOCH_NO_MINIMUM : MILL_EPOCH_LIMIT;
  }
  r->n_epoch = mean.n;
  r->vrad_chi2 = mean.n > 0 ? mean.chisq : (double)NAN;
  r->vrad_pval = mean.n > 1 ? mean.pval : (double)NAN;
  r->vrad_range_km_s = mean.n > 0 ? mean.most - mean.least : (double)NAN;
}
