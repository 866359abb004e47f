/* SPDX-License-Identifier: BSD-3-Clause */
/** Velocities of both stars of a pair at each epoch (docs/science/numerics.md, "Two stars").
 *
 *  - A turn (pair_turn.h) polishes one star; its Jacobians have the gradient and curvature of each
 *    epoch's F in both velocities.
 *  - A turn ends with a Newton step of both velocities of each epoch.  Each star's VRAD is then the
 *    mean over its epochs.
 *  - The stars move (is_moving) if the epochs' residual peaks together are more significant than
 *    the peak of all exposures.  Both velocities of moving stars are scanned.
 *  - Before some turns (MILL_PAIR_LATE) the epochs' velocities alone are fitted. */
#pragma once

#include "kernels/star/logic/epochs.h"

/** Two stars are kept only if their velocities differ by more than this fraction of a line's
 *  width.  A closer second star would fit template errors. */
#define MILL_PAIR_APART 0.25
#define MILL_PAIR_NOISE 2.7 /**< typical significance of a single star's residual peak */
/** If the stars move, turns number 0 and SCANNED each begin with a scan.  It tries, at each epoch,
 *  velocities of the second star for each of PLACES velocities of the first star. */
enum { MILL_PAIR_SCANNED = 2, MILL_PAIR_PLACES = 17 };
/** Before turn LATE only the epochs' velocities are fitted; for moving stars before turns 0,
 *  SCANNED, LATE + SCANNED and LATE + MOVING.  SETTLE Jacobians start from the present velocities,
 *  SETTLE more from each epoch's two velocities exchanged. */
enum { MILL_PAIR_LATE = 4, MILL_PAIR_SETTLE = 4 };
enum { MILL_PAIR_MOVING = 10 }; /**< moving stars get this many more turns */
/** An epoch tells which velocity belongs to which star if exchanging its velocities raises -2 ln L
 *  by more than this many reduced chi-squares. */
#define MILL_PAIR_TOLD 9.0
/** All epochs get the flag EXCHANGEABLE if no epoch's residual peak has a significance above SEEN,
 *  or if the stars are at no epoch more than RESOLVED line widths apart. */
#define MILL_PAIR_RESOLVED 0.8
#define MILL_PAIR_SEEN     4.0
/** Lines closer than this (in widths) are blended: their velocities also fit template errors. */
#define MILL_PAIR_BLENDED 1.2
/** With the mass-ratio relation (mill_pair_line) an epoch's velocities say which star is which if
 *  they differ by more than this many times the sum of their errors. */
#define MILL_PAIR_SIDED 2.0
/** An epoch's velocity is unknown if its error is above this (km/s), as in a one-star search. */
#define MILL_PAIR_ERR_MOST (MILL_SEEK_MOST / MILL_SEEK_NOISE)

/** Has the epoch data, and lines? */
MILL_HD static inline int mill_pair_has_lines(const mill_epoch *e)
{
  return (e->result.flag & MILL_EPOCH_NO_DATA) == 0 && !e->no_lines;
}

/** Return the reduced chi-square of the coadd of an epoch's exposures (epoch -1: of all).  Each
 *  exposure has the same template errors, so the excess over 1 grows with the number of exposures.
 *  Argument chisq: the sum over all exposures, without model error. */
MILL_HD_CALLED static inline double mill_pair_unit_at(const mill_slot *slot, double chisq,
                                                      int epoch)
{
  const double excess = chisq / (double)slot->result.n_pix_tot - 1.0;
  int n_exposure[MILL_MAX_ARM] = {0}, most = 1;
  for (int i = 0; i < slot->n_segment; i++) {
    const mill_segment *s = &slot->segment[i];
    n_exposure[s->arm] += s->used && s->n_good > 0 && (epoch < 0 || s->epoch == epoch);
    most = n_exposure[s->arm] > most ? n_exposure[s->arm] : most;
  }
  return 1.0 + (excess > 0.0 ? most * excess : 0.0);
}

/** Return the reduced chi-square of the coadd of all exposures, or of epoch 0's exposures if the
 *  epochs' velocities differ.  Limits on -2 ln L are multiples of it. */
MILL_HD_CALLED static inline double mill_pair_unit_of(const mill_slot *slot)
{
  return mill_pair_unit_at(slot, slot->result.chisq_data, slot->epochs_shifted ? 0 : -1);
}

/** Use only the segments of one epoch in the peak search; -1: use all. */
MILL_HD static inline void mill_pair_use(mill_slot *slot, int epoch)
{
  for (int i = 0; i < slot->n_segment; i++)
    if (slot->segment[i].used)
      slot->segment[i].used = epoch < 0 || slot->segment[i].epoch == epoch ? 1 : 2;
}

/** Find the largest peak of each epoch's residuals, then the peak of all exposures together. */
MILL_RESUMABLE(mill_pair_peaks)
{
  mill_pair *p = &slot->pair;
  MILL_BEGIN;
  for (p->n_scan = 0; slot->n_epoch > 1 && p->n_scan < slot->n_epoch; p->n_scan++) {
    mill_pair_use(slot, p->n_scan); /* n_scan: the epoch; a local index would be lost in the wait */
    MILL_WAIT(MILL_REQ_PEAK);
    slot->epoch[p->n_scan].peak = p->peak;
  }
  mill_pair_use(slot, -1);
  MILL_WAIT(MILL_REQ_PEAK);
  mill_answered(m, slot);
  MILL_END;
}

/** Begin with one velocity of the second star for all epochs.  Set is_moving: are the epochs' peaks
 *  together more significant than the peak of all exposures?  Returns the larger significance. */
MILL_HD_CALLED static inline double mill_pair_epochs_begin(mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  double sum = 0.0;
  p->is_moving = p->by_epoch = 0;
  if (slot->n_epoch < 2)
    return p->peak;
  for (int i = 0; i < slot->n_epoch; i++) {
    mill_epoch *e = &slot->epoch[i];
    e->shift[1] = 0.0;
    e->pair_err[0] = e->pair_err[1] = INFINITY;
    e->exchanged = 0.0;
    if (mill_pair_has_lines(e))
      sum += e->peak * e->peak - MILL_PAIR_NOISE * MILL_PAIR_NOISE; /* less a single star's peak */
  }
  p->is_moving = sum > p->peak * p->peak;
  return p->is_moving ? sqrt(sum) : p->peak;
}

/** Velocity of a star (0 or 1) at epoch i, km/s. */
MILL_HD static inline double mill_pair_epoch_vrad(const mill_slot *slot, int i, int star)
{
  return slot->pair.theta[star][MILL_PAR_VRAD] + slot->epoch[i].shift[star];
}

/** Exchange the two stars' velocities at an epoch. */
MILL_HD static inline void mill_pair_epoch_exchange(mill_slot *slot, int i)
{
  const double by = mill_pair_epoch_vrad(slot, i, 1) - mill_pair_epoch_vrad(slot, i, 0);
  slot->epoch[i].shift[0] += by;
  slot->epoch[i].shift[1] -= by;
}

/** Move a star's VRAD to the weighted mean of its epochs' velocities, which do not change. */
MILL_HD_CALLED static inline void mill_pair_epochs_centre(mill_slot *slot, int star)
{
  double sum = 0.0, weight = 0.0;
  for (int i = 0; i < slot->n_epoch; i++) {
    const double err = slot->epoch[i].pair_err[star];
    const double w = isfinite(err) ? 1.0 / (err * err) : 0.0;
    weight += w;
    sum += w * slot->epoch[i].shift[star];
  }
  const double mean = weight > 0.0 ? sum / weight : 0.0;
  slot->pair.theta[star][MILL_PAR_VRAD] += mean;
  for (int i = 0; i < slot->n_epoch; i++)
    slot->epoch[i].shift[star] -= mean;
}

/** Set a star's v sin i to its lower limit: the one-star fit's v sin i covers both stars' lines. */
MILL_HD static inline void mill_pair_sharpen(const mill_model *m, mill_slot *slot, int star)
{
  if (!m->set.fixed[MILL_PAR_VSINI])
    slot->pair.theta[star][MILL_PAR_VSINI] = m->set.min_vsini_km_s;
}

/** Set up a scan of the second star's velocity at each epoch about the first star's.  Returns 0
 *  after the last scan.  Only moving stars have scans, before early turns of the second star. */
MILL_HD_CALLED static inline int mill_pair_scan(const mill_model *m, mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  const double step = 2.0 * p->least_apart; /* half a line's width (MILL_PAIR_APART) */
  if (!p->is_moving || p->n_turn > MILL_PAIR_SCANNED || p->star == 0 ||
      p->n_scan == MILL_PAIR_PLACES)
    return 0;
  for (int i = 0; i < slot->n_epoch; i++) {
    mill_epoch *e = &slot->epoch[i];
    e->curve.n = mill_pair_has_lines(e) ? MILL_N_PROFILE : 0;
    e->curve.step = step;
    e->curve.centre = mill_pair_epoch_vrad(slot, i, 0);
    e->curve.f_centre = (double)NAN;
    if (p->n_scan == 0) { /* mill_pair_scanned keeps the best velocities of all scans */
      e->curve.least = INFINITY;
      e->from = e->best[0] = e->shift[0];
      e->best[1] = e->shift[1];
    }
  }
  mill_pair_sharpen(m, slot, 1);
  for (int j = 0; j < m->n_par; j++)
    slot->theta[j] = p->theta[1][j];
  return 1;
}

/** Return the least F of a scan and its velocity *v, refined by a parabola; infinity: no minimum.
 *  The centre, where both stars have one velocity, does not count. */
MILL_HD static inline double mill_pair_least(const mill_curve *c, double *v)
{
  const double *f = c->f;
  int least = 0;
  for (int k = 1; k < c->n - 1; k++) {
    const int offset = k - c->n / 2;
    if (offset != 0 && fabs(offset * c->step) < MILL_PAIR_MOST_APART &&
        (least == 0 || f[k] < f[least]))
      least = k;
  }
  if (least == 0)
    return INFINITY;
  const double slope = 0.5 * (f[least + 1] - f[least - 1]);
  const double bend = 0.5 * (f[least + 1] + f[least - 1]) - f[least];
  const double x = bend > 0.0 && fabs(slope) < bend ? -0.5 * slope / bend : 0.0;
  *v = mill_curve_velocity(c, least) + x * c->step;
  return x == 0.0 ? f[least] : f[least] + 0.5 * x * slope; /* a neighbour may be infinite */
}

/** Take in scans of the second star's velocity at one velocity of the first star.  Each epoch keeps
 *  the pair of velocities with the least F so far.  The first star then goes to its next velocity
 *  or, after the last scan, to its velocity in the kept pair. */
MILL_HD_CALLED static inline void mill_pair_scanned(mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  /* velocities alternate about the first one, at 1, -1, 2, -2 ... steps */
  const int n = ++p->n_scan, place = n % 2 ? (n + 1) / 2 : -n / 2;
  for (int i = 0; i < slot->n_epoch; i++) {
    mill_epoch *e = &slot->epoch[i];
    double v = 0.0;
    const double f = mill_pair_least(&e->curve, &v);
    if (f < e->curve.least) {
      e->curve.least = f;
      e->best[0] = e->shift[0];
      e->best[1] = v - p->theta[1][MILL_PAR_VRAD];
    }
    e->shift[0] = n < MILL_PAIR_PLACES ? e->from + place * e->curve.step : e->best[0];
    e->shift[1] = e->best[1];
  }
}

/** Sum each epoch's F, and its gradient and curvature in both velocities, over its segments.  If F
 *  compares with the one-star fit's (by_epoch 0), set the pair's chi-square. */
MILL_HD_CALLED static inline void mill_pair_epochs_take(const mill_model *m, mill_slot *slot)
{
  const int nd = m->n_deriv, n_row = mill_n_row(m, 1), own = MILL_PAR_VRAD, other = nd + own;
  const int star = slot->pair.star;
  for (int i = 0; i < slot->n_epoch; i++)
    for (int k = 0; k < MILL_N_MOMENT; k++)
      slot->epoch[i].moment[k] = 0.0;
  for (int i = 0; i < slot->n_segment && slot->n_epoch > 1; i++) {
    const double *answer = mill_answer_of(m, slot, i), *g = answer + MILL_ANSWER_TANGENTS;
    const double *h = g + n_row;
    mill_epoch *e = &slot->epoch[slot->segment[i].epoch];
    double *moment = e->moment;
    if (!slot->segment[i].paired)
      continue;
    moment[MILL_MOMENT_F] += answer[MILL_ANSWER_F];
    if (e->no_lines) /* both velocities stay */
      continue;
    moment[MILL_MOMENT_SLOPE + star] += g[own];
    moment[MILL_MOMENT_SLOPE + 1 - star] += g[other];
    moment[MILL_MOMENT_BEND + star] += h[own * (own + 1) / 2 + own];
    moment[MILL_MOMENT_BEND + 1 - star] += h[other * (other + 1) / 2 + other];
    moment[MILL_MOMENT_BOTH] += h[other * (other + 1) / 2 + own];
  }
  if (!slot->pair.by_epoch) {
    slot->pair.chisq = slot->result.chisq_data - slot->result.m2ll;
    for (int i = 0; i < slot->n_epoch; i++)
      slot->pair.chisq += slot->epoch[i].moment[MILL_MOMENT_F];
  }
}

/** Does the epoch have data, and lines that are not blended? */
MILL_HD static inline int mill_pair_is_clear(const mill_slot *slot, int i)
{
  const double apart = mill_pair_epoch_vrad(slot, i, 1) - mill_pair_epoch_vrad(slot, i, 0);
  return mill_pair_has_lines(&slot->epoch[i]) &&
         fabs(apart) * MILL_PAIR_APART > MILL_PAIR_BLENDED * slot->pair.least_apart;
}

/** Does -2 ln L tell which of the epoch's velocities belongs to which star? */
MILL_HD_CALLED static inline int mill_pair_is_sided(const mill_slot *slot, int i)
{
  const double unit = mill_pair_unit_at(slot, slot->pair.chisq, i);
  return slot->epoch[i].exchanged > MILL_PAIR_TOLD * unit;
}

/** Does the epoch alone determine both velocities?  With model error, blended lines do not. */
MILL_HD static inline int mill_pair_is_told(const mill_model *m, const mill_slot *slot, int i)
{
  return mill_pair_is_sided(slot, i) && (!mill_has_error(m) || mill_pair_is_clear(slot, i));
}

/** The mass-ratio relation: in a binary the second star's velocity is a linear function of the
 *  first star's, v2 = v[1] + slope (v1 - v[0]), with slope = -(first mass / second mass). */
typedef struct mill_pair_line {
  double v[2], slope;      /**< v: mean velocities, km/s; slope 0: relation not known */
  double variance, spread; /**< variances, (km/s)^2: of v[1]; of the first star's velocities */
} mill_pair_line;

/** Fit the mass-ratio relation by total least squares to the epochs that determine both velocities
 *  and whose spectral lines are not blended.  The slope is 0 if the velocities vary too little. */
MILL_HD_CALLED static inline mill_pair_line mill_pair_line_of(const mill_model *m,
                                                              const mill_slot *slot)
{
  mill_pair_line line = {{0.0, 0.0}, 0.0, 0.0, 0.0};
  double sum = 0.0, xx = 0.0, xy = 0.0, yy = 0.0;
  const double least = slot->pair.least_apart * slot->pair.least_apart;
  for (int pass = 0; pass < 2; pass++) { /* first the means, then the moments about them */
    for (int i = 0; i < slot->n_epoch; i++) {
      const double *err = slot->epoch[i].pair_err;
      const double w = 1.0 / (err[0] * err[0] + err[1] * err[1]);
      const double v0 = mill_pair_epoch_vrad(slot, i, 0), v1 = mill_pair_epoch_vrad(slot, i, 1);
      if (!mill_pair_is_told(m, slot, i) || !mill_pair_is_clear(slot, i))
        continue;
      if (pass == 0) {
        sum += w;
        line.v[0] += w * v0;
        line.v[1] += w * v1;
      } else {
        xx += w * (v0 - line.v[0]) * (v0 - line.v[0]);
        xy += w * (v0 - line.v[0]) * (v1 - line.v[1]);
        yy += w * (v1 - line.v[1]) * (v1 - line.v[1]);
      }
    }
    for (int star = 0; star < 2 && pass == 0; star++)
      line.v[star] /= sum; /* NaN without such epochs; the slope then stays 0 */
  }
  if (xy < 0.0 && xx > sum * least && yy > sum * least) {
    /* the axis of largest variance */
    line.slope = 0.5 * (yy - xx + sqrt((yy - xx) * (yy - xx) + 4.0 * xy * xy)) / xy;
    line.variance = 1.0 / sum;
    line.spread = xx / sum;
  }
  return line;
}

/** Return the slope of the mass-ratio relation if an epoch's velocities must obey it, else 0. */
MILL_HD_CALLED static inline double mill_pair_slope(const mill_model *m, const mill_slot *slot,
                                                    const mill_pair_line *line, int i)
{
  return mill_pair_has_lines(&slot->epoch[i]) && !mill_pair_is_told(m, slot, i) ? line->slope : 0.0;
}

/** Are an epoch's velocities free, and so well known that F is a parabola within their errors?  If
 *  stars are not told apart, F has another minimum on the other side of equal velocities. */
MILL_HD_CALLED static inline int mill_pair_epoch_is_free(const mill_model *m, const mill_slot *slot,
                                                         const mill_pair_line *line, int i)
{
  const mill_epoch *e = &slot->epoch[i];
  const double apart = fabs(mill_pair_epoch_vrad(slot, i, 1) - mill_pair_epoch_vrad(slot, i, 0));
  if (!mill_pair_has_lines(e) || !(fmax(e->pair_err[0], e->pair_err[1]) < slot->pair.least_apart))
    return 0;
  return mill_pair_is_told(m, slot, i) ||
         (!(line->slope < 0.0) && apart > e->pair_err[0] + e->pair_err[1]);
}

/** Compute the Newton step [2], within +-most km/s, of both velocities of an epoch; all else is
 *  fixed.  A velocity with an error above `most` stays, and is unknown. */
MILL_HD static inline void mill_pair_step_free(double most, double *step, mill_epoch *e)
{
  const double *g = e->moment + MILL_MOMENT_SLOPE, *h = e->moment + MILL_MOMENT_BEND;
  const double mixed = e->moment[MILL_MOMENT_BOTH], det = h[0] * h[1] - mixed * mixed;
  for (int k = 0; k < 2; k++) {
    const double newton = -0.5 * (h[1 - k] * g[k] - mixed * g[1 - k]) / det;
    const int known = h[k] > 0.0 && det > 0.0 && h[1 - k] < most * most * det;
    e->pair_err[k] = known ? sqrt(h[1 - k] / det) : INFINITY;
    step[k] = known ? (newton < -most ? -most : (newton > most ? most : newton)) : 0.0;
  }
}

/** Compute a Newton step [2] (km/s; of v[0]: `most` or less) from an epoch's velocities v to ones
 *  that obey the mass-ratio relation and minimise F.  off: how far v[1] is above the relation. */
MILL_HD static inline void mill_pair_step_along(const mill_pair_line *line, const double *v,
                                                double most, double *step, mill_epoch *e)
{
  const double *g = e->moment + MILL_MOMENT_SLOPE, *h = e->moment + MILL_MOMENT_BEND;
  const double from = v[0] - line->v[0], off = v[1] - line->v[1] - line->slope * from;
  const double slope = line->slope, cross = e->moment[MILL_MOMENT_BOTH] + slope * h[1];
  const double bend = h[0] + slope * (e->moment[MILL_MOMENT_BOTH] + cross); /* along the relation */
  const double newton = bend > 0.0 ? (off * cross - 0.5 * (g[0] + slope * g[1])) / bend : 0.0;
  step[0] = newton < -most ? -most : (newton > most ? most : newton);
  step[1] = slope * step[0] - off;
  /* variance of the relation's v2; if that v2 rises by 1, the best v1 falls by `fall` */
  const double variance = line->variance * (1.0 + from * from / line->spread), fall = cross / bend;
  const double var0 = 1.0 / bend + variance * fall * fall;
  const double var1 = slope * slope / bend + variance * (1.0 - slope * fall) * (1.0 - slope * fall);
  e->pair_err[0] = bend > 0.0 ? sqrt(var0) : INFINITY;
  e->pair_err[1] = bend > 0.0 ? sqrt(var1) : INFINITY;
}

/** At the end of a turn, make a step of both velocities of each epoch.  If an epoch does not
 *  determine both velocities, they must then obey the mass-ratio relation. */
MILL_HD_CALLED static inline void mill_pair_epochs_move(const mill_model *m, mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  const double most = 2.0 * p->least_apart;
  if (slot->n_epoch < 2)
    return;
  const mill_pair_line line = mill_pair_line_of(m, slot);
  for (int i = 0; i < slot->n_epoch; i++) {
    mill_epoch *e = &slot->epoch[i];
    const double v[2] = {mill_pair_epoch_vrad(slot, i, 0), mill_pair_epoch_vrad(slot, i, 1)};
    /* moving stars make half steps if the turn fitted the labels with fixed epochs' velocities */
    const int was_fixed =
        p->n_settle == 0 && !(p->is_joint && mill_pair_epoch_is_free(m, slot, &line, i));
    const double part = p->is_moving && was_fixed ? 0.5 : 1.0;
    double step[2];
    if (mill_pair_slope(m, slot, &line, i) < 0.0)
      mill_pair_step_along(&line, v, most, step, e);
    else
      mill_pair_step_free(most, step, e);
    e->shift[0] += part * step[0];
    e->shift[1] += part * step[1];
  }
  mill_pair_epochs_centre(slot, 0);
  mill_pair_epochs_centre(slot, 1);
}

/** Set the number of Jacobians that fit the epochs' velocities alone before the next turn. */
MILL_HD static inline void mill_pair_epochs_settle(const mill_model *m, mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  const int late = MILL_PAIR_LATE + (p->is_moving ? MILL_PAIR_SCANNED : 0), n = p->n_turn;
  const int due = n == late || (p->is_moving && (n == 0 || n == MILL_PAIR_SCANNED ||
                                                 n == MILL_PAIR_LATE + MILL_PAIR_MOVING));
  p->n_settle = due && slot->n_epoch > 1 ? 2 * MILL_PAIR_SETTLE : 0;
  for (int star = 0; star < 2 && p->n_settle > 0 && n <= late; star++)
    mill_pair_sharpen(m, slot, star);
}

/** Take in a Jacobian in the epochs' velocities: make a step.  After MILL_PAIR_SETTLE Jacobians,
 *  note the minimum and restart from exchanged velocities.  Each epoch keeps its lower minimum. */
MILL_HD_CALLED static inline void mill_pair_settled(const mill_model *m, mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  const int left = --p->n_settle; /* of twice MILL_PAIR_SETTLE */
  mill_pair_epochs_take(m, slot);
  if (left % MILL_PAIR_SETTLE != 0) {
    mill_pair_epochs_move(m, slot);
    return;
  }
  for (int i = 0; i < slot->n_epoch; i++) {
    mill_epoch *e = &slot->epoch[i];
    const double v0 = mill_pair_epoch_vrad(slot, i, 0), v1 = mill_pair_epoch_vrad(slot, i, 1);
    if (left > 0) { /* keep the first minimum and exchange its velocities */
      e->curve.least = e->moment[MILL_MOMENT_F];
      e->best[0] = v0;
      e->best[1] = v1;
      mill_pair_epoch_exchange(slot, i);
    } else { /* go back to the first minimum if it is lower */
      e->exchanged = fabs(e->moment[MILL_MOMENT_F] - e->curve.least);
      if (!(e->moment[MILL_MOMENT_F] < e->curve.least)) {
        e->shift[0] += e->best[0] - v0;
        e->shift[1] += e->best[1] - v1;
      }
    }
  }
}

MILL_HD static inline void mill_pair_exchange(double *x, double *y)
{
  const double was = *x;
  *x = *y;
  *y = was;
}

/** Exchange the two stars. */
MILL_HD_CALLED static inline void mill_pair_swap(const mill_model *m, mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  for (int j = 0; j < m->n_par; j++)
    mill_pair_exchange(&p->theta[0][j], &p->theta[1][j]);
  for (int i = 0; i < slot->n_epoch; i++) {
    mill_pair_exchange(&slot->epoch[i].shift[0], &slot->epoch[i].shift[1]);
    mill_pair_exchange(&slot->epoch[i].pair_err[0], &slot->epoch[i].pair_err[1]);
  }
  for (int a = 0; a < m->n_arm; a++)
    p->ln_ratio[a] = -p->ln_ratio[a];
}

/** Return the stars' velocity difference, km/s.  Moving stars: the largest difference, in VRAD
 *  or an epoch.  Other stars: the difference in VRAD, since noise makes an epoch's too large. */
MILL_HD_CALLED static inline double mill_pair_apart(const mill_slot *slot)
{
  const mill_pair *p = &slot->pair;
  double most = fabs(p->theta[1][MILL_PAR_VRAD] - p->theta[0][MILL_PAR_VRAD]);
  for (int i = 0; p->is_moving && i < slot->n_epoch; i++)
    if (mill_pair_has_lines(&slot->epoch[i]))
      most = fmax(most, fabs(mill_pair_epoch_vrad(slot, i, 1) - mill_pair_epoch_vrad(slot, i, 0)));
  return most;
}

/** Fill in both stars' velocities, errors and flags at each epoch.  EXCHANGEABLE means that it is
 *  not sure which velocity belongs to which star; then VRAD leaves the epoch out. */
MILL_HD_CALLED static inline void mill_pair_epochs_row(const mill_model *m, mill_slot *slot)
{
  double peak = 0.0;
  for (int i = 0; i < slot->n_epoch; i++)
    peak = slot->epoch[i].peak > peak ? slot->epoch[i].peak : peak;
  const int is_resolved = peak > MILL_PAIR_SEEN && mill_pair_apart(slot) * MILL_PAIR_APART >
                                                       MILL_PAIR_RESOLVED * slot->pair.least_apart;
  const mill_pair_line line = mill_pair_line_of(m, slot);
  for (int i = 0; i < slot->n_epoch; i++) {
    mill_epoch *e = &slot->epoch[i];
    const double v0 = mill_pair_epoch_vrad(slot, i, 0), v1 = mill_pair_epoch_vrad(slot, i, 1);
    const int has_first = e->pair_err[0] < MILL_PAIR_ERR_MOST;
    const int has_second = e->pair_err[1] < MILL_PAIR_ERR_MOST;
    const int has_relation = mill_pair_slope(m, slot, &line, i) < 0.0; /* obeys the mass ratio */
    const int is_apart = fabs(v1 - v0) > MILL_PAIR_SIDED * (e->pair_err[0] + e->pair_err[1]);
    const int is_sure = is_resolved && (mill_pair_is_told(m, slot, i) ||
                                        (has_relation && is_apart && mill_pair_is_sided(slot, i)));
    e->result.flag &= MILL_EPOCH_NO_DATA;
    if (has_first && has_second && has_relation)
      e->result.flag |= MILL_EPOCH_MASS_RATIO;
    if ((has_first || has_second) && !is_sure)
      e->result.flag |= MILL_EPOCH_EXCHANGEABLE;
    if (!(has_first && has_second) && (e->result.flag & MILL_EPOCH_NO_DATA) == 0)
      e->result.flag |= MILL_EPOCH_NO_MINIMUM;
    e->curve.found = has_first ? v0 : (double)NAN;
    e->curve.err = has_first ? e->pair_err[0] : (double)NAN;
    e->result.pair_vrad_km_s = has_second ? v1 : (double)NAN;
    e->result.pair_vrad_err_km_s = has_second ? e->pair_err[1] : (double)NAN;
    if (e->result.flag & MILL_EPOCH_EXCHANGEABLE)
      e->pair_err[0] = e->pair_err[1] = INFINITY;
  }
  mill_pair_epochs_centre(slot, 0);
  mill_pair_epochs_centre(slot, 1);
}
