/* SPDX-License-Identifier: BSD-3-Clause */
/** Turns of a fit of two stars (docs/science/numerics.md, "Two stars").
 *
 *  A turn polishes one star's parameters.  A Schur complement eliminates the parameters of the
 *  other star (the companion), so that F, gradient and curvature are those of the joint fit.  The
 *  epochs' velocities move between turns, so that blended lines need more turns. */
#pragma once

#include "kernels/star/logic/pair_epochs.h"
#include "kernels/star/logic/pair_follow.h"
#include "kernels/star/logic/pair_row.h"

#define MILL_PAIR_GAIN 40.0 /**< times reduced chi-square: two stars must lower F by more */
/** Trust region of the companion's parameters, in typical uncertainties: TRUST at first, WIDE in
 *  the last turns, which give the errors. */
#define MILL_PAIR_TRUST 3.0
#define MILL_PAIR_WIDE  30.0
/** The first turn is given up if F is expected to fall by less than half of MILL_PAIR_GAIN.  After
 *  JAC Jacobians the expected fall is the fall so far plus PROMISE times the next step's predicted
 *  fall.  If the stars do not move (is_moving), two rules change after LATER_JAC Jacobians: PROMISE
 *  is replaced by 1, and the turn is also given up if pair.star's v sin i is above BLUNT (km/s). */
#define MILL_PAIR_PROMISE 3.0
#define MILL_PAIR_BLUNT   250.0
#define MILL_PAIR_STAYS   0.02 /**< turns end once two of them lower F by less */
/** Numbers of turns (of both stars together) and of Jacobians. */
enum {
  MILL_PAIR_TURNS = 6,     /**< least turns of a fit; see also MILL_PAIR_MOVING */
  MILL_PAIR_MORE = 60,     /**< most turns after the least number (n_least) */
  MILL_PAIR_SWAP = 4,      /**< turns after which the brighter star becomes the first one */
  MILL_PAIR_JAC = 4,       /**< Jacobians before the first turn may be given up */
  MILL_PAIR_LATER_JAC = 6, /**< Jacobians before this becomes stricter */
  MILL_PAIR_MOST_JAC = 12  /**< most Jacobians of the first turn */
};

/** Even if F falls by `promised` more, does it fall by less than half of what two stars need? */
MILL_HD static inline int mill_pair_loses(const mill_slot *slot, double promised)
{
  return !(slot->result.m2ll - slot->polish.at.f + promised >
           0.5 * MILL_PAIR_GAIN * mill_pair_unit_of(slot));
}

/** Is this first turn not worth another Jacobian? */
MILL_HD static inline int mill_pair_is_hopeless(const mill_slot *slot)
{
  const mill_polish *polish = &slot->polish;
  /* lines of moving stars are too broad until each epoch has its velocities */
  const int later = polish->n_jac >= MILL_PAIR_LATER_JAC && !slot->pair.is_moving;
  return polish->n_jac >= MILL_PAIR_JAC &&
         (mill_pair_loses(slot, (later ? 1.0 : MILL_PAIR_PROMISE) * polish->pred) ||
          (later && polish->at.theta[MILL_PAR_VSINI] > MILL_PAIR_BLUNT));
}

/** Set in each segment the star whose tangents are asked, and ln(companion's flux / its flux). */
MILL_HD static inline void mill_pair_relate(mill_slot *slot)
{
  for (int i = 0; i < slot->n_segment; i++) {
    mill_segment *s = &slot->segment[i];
    const double ln_ratio = slot->pair.ln_ratio[s->arm];
    s->paired = s->used ? 1 + slot->pair.star : 0;
    s->pair_ln_ratio = slot->pair.star == 0 ? ln_ratio : -ln_ratio;
  }
}

/** Store this star's template and derivatives for the other star's Jacobians; then switch stars. */
MILL_RESUMABLE(mill_pair_keep_rows)
{
  mill_pair *p = &slot->pair;
  MILL_BEGIN;
  slot->keep_rows = 1; /* the tangents' answer also stores the rows */
  for (int i = 0; i < slot->n_segment; i++)
    slot->segment[i].paired = 0; /* a template of this star alone */
  for (int j = 0; j < m->n_par; j++)
    slot->theta[j] = p->theta[p->star][j];
  mill_ask_point(m, slot);
  MILL_WAIT(MILL_REQ_TANGENTS);
  mill_answered(m, slot);
  slot->keep_rows = 0;
  p->star = 1 - p->star;
  mill_pair_relate(slot);
  MILL_END;
}

/** Ask for F and its derivatives of both stars at the present velocities of the epochs. */
MILL_RESUMABLE(mill_pair_evaluate)
{
  MILL_BEGIN;
  slot->pair.star = 1; /* store its rows; then star 0's tangents are asked */
  MILL_CALL(mill_pair_keep_rows);
  for (int j = 0; j < m->n_par; j++)
    slot->theta[j] = slot->pair.theta[0][j];
  MILL_ASK(MILL_REQ_TANGENTS);
  MILL_END;
}

/** For both stars, sum the template over each arm's good pixels, from the last tangents.  In flux
 *  [arm], element 0 is of the star whose tangents were asked for, element 1 of its companion. */
MILL_HD_CALLED static inline void mill_pair_take_flux(const mill_model *m, mill_slot *slot)
{
  const int n = mill_n_row(m, 1), at = MILL_ANSWER_TANGENTS + n + n * (n + 1) / 2;
  for (int a = 0; a < m->n_arm; a++)
    slot->pair.flux[a][0] = slot->pair.flux[a][1] = 0.0;
  for (int i = 0; i < slot->n_segment; i++)
    for (int k = 0; k < 2 && slot->segment[i].paired; k++)
      slot->pair.flux[slot->segment[i].arm][k] += mill_answer_of(m, slot, i)[at + k];
}

/** Return the mean over pixels of ln(second star's flux / first star's), from the last Jacobian. */
MILL_HD static inline double mill_pair_brightness(const mill_model *m, const mill_slot *slot)
{
  const mill_pair *p = &slot->pair;
  double sum = 0.0;
  for (int a = 0; a < m->n_arm; a++)
    if (p->flux[a][0] > 0.0 && p->flux[a][1] > 0.0)
      sum += (double)slot->result.n_pix[a] * log(p->flux[a][1 - p->star] / p->flux[a][p->star]);
  return sum / (double)slot->result.n_pix_tot;
}

/** Set least_apart, km/s, from a star's line width, which F's curvature in velocity gives. */
MILL_HD_CALLED static inline void mill_pair_measured(const mill_model *m, mill_slot *slot)
{
  /* the stars share the signal by flux^2; minus: p->flux is of star 1's turn, but p->star is 0 */
  const double ratio2 = slot->of_epochs ? exp(-2.0 * mill_pair_brightness(m, slot)) : 0.0;
  const mill_curve *c;
  double curvature = 0.0;
  for (int i = 0; (c = mill_seek_of(m, slot, i)) != NULL; i++) {
    const double part = 0.5 * (c->f[0] + c->f[2] - 2.0 * c->f[1]) / (c->step * c->step);
    curvature += c->n > 0 && isfinite(part) ? part : 0.0;
  }
  if (curvature > 0.0)
    slot->pair.least_apart =
        MILL_PAIR_APART * sqrt(0.5 * mill_lines_signal(m, slot) / (1.0 + ratio2) / curvature);
}

/** Measure the lines' width from F without model error, since model error broadens minima. */
MILL_RESUMABLE(mill_pair_measure)
{
  const enum mill_group group = slot->of_epochs ? MILL_OF_EPOCHS : MILL_OF_ARMS;
  MILL_BEGIN;
  for (int i = 0; mill_seek_of(m, slot, i) != NULL; i++) {
    const double v = slot->of_epochs ? mill_pair_epoch_vrad(slot, i, 0)
                                     : mill_arm_vrad(m, slot, i, slot->theta[MILL_PAR_VRAD]);
    mill_seek_begin(slot, v, (double)NAN, mill_seek_of(m, slot, i));
  }
  if (!mill_seeks_next(m, slot))
    MILL_RETURN;
  mill_ask_curves(m, slot, group);
  slot->data_only = 1; /* without model error, for arms too */
  MILL_WAIT(MILL_REQ_VALUES);
  mill_answered(m, slot);
  mill_take_curves(m, slot, group);
  mill_pair_measured(m, slot);
  MILL_END;
}

/** Before a turn find both stars' velocities at each epoch, by scans and by n_settle Jacobians. */
MILL_RESUMABLE(mill_pair_epochs_look)
{
  mill_pair *p = &slot->pair;
  MILL_BEGIN;
  slot->of_epochs = slot->n_epoch > 1 && p->n_turn == (p->is_moving ? 1 : MILL_PAIR_SWAP + 1);
  if (slot->of_epochs) { /* once, after a turn of star 1: the one-star fit had smeared the lines */
    for (int j = 0; j < m->n_par; j++)
      slot->theta[j] = p->theta[0][j];
    MILL_CALL(mill_pair_measure);
  }
  while (mill_pair_scan(m, slot)) {
    MILL_ASK_CURVES(MILL_OF_EPOCHS);
    mill_pair_scanned(slot);
    p->star = 0; /* mill_pair_keep_rows stores its rows and returns to star 1 */
    MILL_CALL(mill_pair_keep_rows);
  }
  while (p->n_settle > 0) {
    mill_polish_begin(m, slot, p->theta[p->star]);
    MILL_ASK(MILL_REQ_TANGENTS);
    mill_pair_settled(m, slot);
    p->star = 0;
    MILL_CALL(mill_pair_keep_rows);
  }
  MILL_END;
}

/** Return the second star's velocity error, km/s, after its last turn; infinite: not known. */
MILL_HD_CALLED static inline double mill_pair_velocity_error(const mill_model *m, mill_slot *slot)
{
  const mill_pair *p = &slot->pair;
  double *a = slot->space.matrix[0], e[MILL_MAX_PAR] = {1.0}; /* becomes the inverse's column */
  int idx[MILL_MAX_PAR], n = 0;
  for (int j = 0; j < m->n_par; j++)
    if (!mill_par_held(m, slot, j) && !mill_par_at_limit(m, j, p->theta[1][j]))
      idx[n++] = j;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++)
      a[i * n + k] = p->point.hess[idx[i] * m->n_par + idx[k]];
  if (n == 0 || idx[0] != MILL_PAR_VRAD || mill_cholesky(n, a, n) != 0)
    return INFINITY; /* for example if the velocity is held, or at a limit */
  mill_cholesky_solve(n, a, n, e);
  return sqrt(e[0]);
}

/** Is the second star real?  A false star, which only fits template errors, has broad lines, or a
 *  velocity that is uncertain, at a limit, or far from the first star's.  The first star must be
 *  within the limits, too, since at a limit it has no velocity error. */
MILL_HD_CALLED static inline int mill_pair_is_star(const mill_model *m, mill_slot *slot)
{
  const mill_pair *p = &slot->pair;
  const double v0 = p->theta[0][MILL_PAR_VRAD], v1 = p->theta[1][MILL_PAR_VRAD];
  return mill_pair_apart(slot) < MILL_PAIR_MOST_APART &&
         fmin(v0, v1) > m->set.min_vel_km_s + MILL_VEL_LIMIT_KM_S &&
         fmax(v0, v1) < m->set.max_vel_km_s - MILL_VEL_LIMIT_KM_S &&
         p->theta[1][MILL_PAR_VSINI] < MILL_VSINI_FAST &&
         mill_pair_velocity_error(m, slot) < p->least_apart;
}

/** Return n turns, or n + MILL_PAIR_MOVING for moving stars. */
MILL_HD static inline int mill_pair_turns(const mill_pair *p, int n)
{
  return n + (p->is_moving ? MILL_PAIR_MOVING : 0);
}

/** Is another turn needed?  Both stars get equally many. */
MILL_HD static inline int mill_pair_goes_on(const mill_pair *p)
{
  return p->star == 1 || p->n_turn < p->n_least ||
         (p->fall > MILL_PAIR_STAYS && p->n_turn < p->n_least + MILL_PAIR_MORE);
}

/** Digest a turn's Jacobian and propose the next point.  Returns enum mill_polish_outcome. */
MILL_HD_CALLED static inline int mill_pair_digest(const mill_model *m, mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  mill_pair_take_flux(m, slot);
  if (isfinite(slot->eval.f) && !mill_pair_reduce(m, slot))
    slot->eval.f = INFINITY;
  const double f = slot->eval.f + mill_penalty(m, slot, slot->theta);
  const int outcome = mill_polish_tell(m, slot, f);
  if (slot->polish.have && slot->polish.at.f == f) { /* the point was accepted */
    p->at = p->next;
    mill_pair_epochs_take(m, slot);
  }
  if (outcome != MILL_POLISH_GO || p->n_turn > 0)
    return outcome; /* only the first turn (n_turn is 0) is given up or cut short */
  if (mill_pair_is_hopeless(slot))
    return MILL_POLISH_GIVEN_UP;
  return slot->polish.n_jac < MILL_PAIR_MOST_JAC ? MILL_POLISH_GO : MILL_POLISH_CUT;
}

/** End a turn: store the star's parameters, make a step in flux ratios, offsets and epochs'
 *  velocities, and set up the next turn.  Returns 0 if the pair is dropped. */
MILL_HD_CALLED static inline int mill_pair_turned(const mill_model *m, mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  const mill_polish *polish = &slot->polish;
  const int converged = slot->polish.outcome == MILL_POLISH_CONVERGED;
  if (!polish->have || slot->polish.outcome == MILL_POLISH_GIVEN_UP)
    return 0;
  for (int j = 0; j < m->n_par; j++)
    p->theta[p->star][j] = converged ? polish->end[j] : polish->at.theta[j];
  mill_pair_follow(m, slot);
  if (slot->n_epoch > 1) /* the epochs' derivatives are at polish.at, not at the polish's end */
    p->theta[p->star][MILL_PAR_VRAD] = polish->at.theta[MILL_PAR_VRAD];
  mill_pair_epochs_move(m, slot);
  if (p->star == 1)
    p->point = polish->at; /* for mill_pair_velocity_error */
  /* both stars' last turns must converge; the second star's precedes the first star's */
  slot->best.converged = converged && (p->star == 1 || slot->best.converged);
  p->n_turn++;
  p->fall = p->f[p->star] - polish->at.f;
  p->f[p->star] = polish->at.f;
  p->n_scan = 0;
  const int early = p->is_moving && p->n_turn <= MILL_PAIR_SCANNED + 1; /* up to the last scan */
  if (!early && (mill_pair_loses(slot, 0.0) || (p->star == 1 && !mill_pair_is_star(m, slot))))
    return 0; /* an early pair is kept: a scan may still find its velocities */
  if (p->n_turn == mill_pair_turns(p, MILL_PAIR_SWAP)) {
    if (mill_pair_brightness(m, slot) > 0.0) /* the brighter star becomes the first one */
      mill_pair_swap(m, slot);
    p->trust = MILL_PAIR_WIDE;
  }
  if (early && p->star == 0)
    mill_pair_sharpen(m, slot, 0);
  mill_pair_epochs_settle(m, slot);
  return 1;
}

/** Make a turn; slot->pair.is_fitted becomes 0 if the pair is dropped. */
MILL_RESUMABLE(mill_pair_turn)
{
  MILL_BEGIN;
  MILL_CALL(mill_pair_keep_rows);
  MILL_CALL(mill_pair_epochs_look);
  mill_polish_begin(m, slot, slot->pair.theta[slot->pair.star]);
  do {
    MILL_ASK(MILL_REQ_TANGENTS);
    slot->polish.outcome = mill_pair_digest(m, slot);
  } while (slot->polish.outcome == MILL_POLISH_GO);
  slot->pair.is_fitted = mill_pair_turned(m, slot);
  MILL_END;
}

/** Make turns until F stays, at least until turn number n_least. */
MILL_RESUMABLE(mill_pair_turns_run)
{
  MILL_BEGIN;
  do {
    MILL_CALL(mill_pair_turn);
  } while (slot->pair.is_fitted && mill_pair_goes_on(&slot->pair));
  MILL_END;
}
