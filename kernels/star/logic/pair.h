/* SPDX-License-Identifier: BSD-3-Clause */
/** Fit two stars to one spectrum (a double-lined binary, SB2) if the residuals of the one-star fit
 *  show lines of a second star (docs/science/numerics.md, "Two stars").
 *
 *  The model is P a (T1(v1) + r T2(v2)), with continuum P a, the stars' templates T1 and T2 at
 *  their velocities, and their flux ratio r, free in each arm.
 *
 *  The stars take turns (pair_turn.h) until F stays.  If there are epochs, exchanges then test
 *  which velocity belongs to which star (pair_exchange.h), and the last turns fit velocities and
 *  labels together (pair_errors.h). */
#pragma once

#include "kernels/star/logic/pair_alone.h"

/** Two stars are tried if the significance of the residuals' peak is above PEAK_LEAST times the
 *  root of the reduced chi-square.  PEAK_BROAD suffices for broad lines (MILL_PAIR_BROAD). */
#define MILL_PAIR_PEAK_LEAST 4.0
#define MILL_PAIR_PEAK_BROAD 3.0
#define MILL_PAIR_PEAK_WRONG 2.5  /**< in reduced chi-squares: lower peaks may be template errors */
#define MILL_PAIR_BROAD      30.0 /**< v sin i, km/s: for broader lines PEAK_BROAD suffices */
#define MILL_PAIR_SHARP      10.0 /**< v sin i, km/s: if lower, a peak near VRAD is no star */
#define MILL_PAIR_WRONG      2.0  /**< factor on least_apart if there is a model error */
#define MILL_PAIR_RATIO      0.3  /**< flux of the second star over the first's, at the start */
/** A v sin i above SPLIT, km/s, may be the separation of two slow rotators' lines.  Two equal stars
 *  then start at SPLIT_PART times v sin i to each side.  They are kept only if the first star's v
 *  sin i falls below SLOWER times the single star's. */
#define MILL_PAIR_SPLIT      60.0
#define MILL_PAIR_SPLIT_PART 0.45
#define MILL_PAIR_SLOWER     0.7
enum { MILL_PAIR_AGAIN = 2 }; /**< searches of velocities before moving stars are fitted again */

/** Set least_apart, km/s, from the line width.  Returns 0 if no second star may be sought. */
MILL_HD_CALLED static inline int mill_pair_begin(const mill_model *m, mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  /* overestimated errors make the lines' signal too low: the template's gain is its lower limit */
  const double gain = slot->result.chisq_c_tot - slot->result.chisq_tot;
  const double signal = fmax(mill_lines_signal(m, slot), gain);
  if (slot->result.warn & (MILL_WARN_NOT_STELLAR | MILL_WARN_NONFINITE) || !(signal > 0.0) ||
      m->set.fixed[MILL_PAR_VRAD])
    return 0;
  p->n_eval = slot->result.n_eval;
  p->n_jac = slot->result.n_jac;
  p->least_apart =
      MILL_PAIR_APART * mill_line_width(m, slot, slot->result.vrad_err_formal_km_s, signal);
  p->is_fitted = 0;
  slot->profile.has_arm = 0; /* the arms' F are of one star */
  return 1;
}

/** Return the least velocity difference of two stars, km/s. */
MILL_HD static inline double mill_pair_least_apart(const mill_model *m, const mill_pair *p)
{
  return p->least_apart * (mill_has_error(m) ? MILL_PAIR_WRONG : 1.0);
}

/** May errors of the templates make the residuals' peak?  No if epochs show moving stars.  Else yes
 *  if other peaks are about as high, the peak is low (MILL_PAIR_PEAK_WRONG), or near VRAD. */
MILL_HD static inline int mill_pair_misled(const mill_model *m, const mill_slot *slot)
{
  const mill_pair *p = &slot->pair;
  const double off = p->peak_km_s - slot->best.end[MILL_PAR_VRAD];
  return !p->is_moving &&
         (!p->peak_stands || !(p->peak > MILL_PAIR_PEAK_WRONG * mill_pair_unit_of(slot)) ||
          (!m->set.fixed[MILL_PAR_VSINI] && slot->result.vsini_km_s < MILL_PAIR_SHARP &&
           fabs(off) * MILL_PAIR_APART < mill_pair_least_apart(m, p)));
}

/** May v sin i be the separation of two slow rotators' lines?  The fit must be poor, and within the
 *  hulls.  A star with epochs is no blend, since its epochs' peaks would show two stars. */
MILL_HD static inline int mill_pair_is_blend(const mill_model *m, const mill_slot *slot)
{
  const mill_fit_result *r = &slot->result;
  return slot->n_epoch < 2 && !m->set.fixed[MILL_PAR_VSINI] && r->vsini_km_s > MILL_PAIR_SPLIT &&
         (r->info & MILL_INFO_VSINI_ZERO) == 0 && (r->warn & MILL_WARN_HULL) == 0 &&
         r->chisq_data - (double)r->n_pix_tot > 2.0 * MILL_PAIR_GAIN * mill_pair_unit_of(slot);
}

/** May there be a second star at the residuals' peak? */
MILL_HD_CALLED static inline int mill_pair_is_seen(const mill_model *m, mill_slot *slot)
{
  const double peak = mill_pair_epochs_begin(slot);
  const double least =
      slot->result.vsini_km_s > MILL_PAIR_BROAD ? MILL_PAIR_PEAK_BROAD : MILL_PAIR_PEAK_LEAST;
  slot->result.pair_peak = peak;
  return peak > least * sqrt(mill_pair_unit_of(slot)) && !mill_pair_misled(m, slot);
}

/** Set the start of a two-star fit: two equal stars in place of one with broad lines (is_split), or
 *  the star and a companion at the residuals' peak. */
MILL_HD_CALLED static inline void mill_pair_start(const mill_model *m, mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  const double apart = p->is_split ? MILL_PAIR_SPLIT_PART * slot->result.vsini_km_s : 0.0;
  p->is_fitted = 1;
  for (int j = 0; j < m->n_par; j++)
    p->theta[0][j] = p->theta[1][j] = slot->best.end[j];
  const double vrad = slot->best.end[MILL_PAR_VRAD];
  p->theta[0][MILL_PAR_VRAD] = mill_within_velocities(m, vrad - apart);
  p->theta[1][MILL_PAR_VRAD] = p->is_split ? mill_within_velocities(m, vrad + apart) : p->peak_km_s;
  mill_pair_sharpen(m, slot, 1); /* lowest v sin i */
  for (int a = 0; a < m->n_arm; a++)
    p->ln_ratio[a] = p->is_split ? 0.0 : log(MILL_PAIR_RATIO);
  if (p->is_moving || p->is_split) /* the one-star fit's v sin i covers both stars' lines */
    mill_pair_sharpen(m, slot, 0);
  p->star = p->n_turn = p->n_scan = p->is_joint = 0;
  mill_pair_epochs_settle(m, slot);
  p->trust = MILL_PAIR_TRUST;
}

/** Are both stars real, and do they lower F enough? */
MILL_HD_CALLED static inline int mill_pair_is_kept(const mill_model *m, mill_slot *slot)
{
  const mill_pair *p = &slot->pair;
  const mill_fit_result *r = &slot->result;
  /* decrease of F by chance, from the epochs' free velocities */
  const double chance = slot->n_epoch > 1 ? 4.0 * (slot->n_epoch - 1) : 0.0;
  return r->m2ll - mill_pair_f(m, slot) > MILL_PAIR_GAIN * mill_pair_unit_of(slot) + chance &&
         mill_pair_apart(slot) > mill_pair_least_apart(m, p) && mill_pair_is_star(m, slot) &&
         !(p->is_moving && p->theta[0][MILL_PAR_VSINI] >= MILL_VSINI_FAST) &&
         !(p->is_split && p->theta[0][MILL_PAR_VSINI] > MILL_PAIR_SLOWER * r->vsini_km_s);
}

/** Write both stars to the row, the second first: its errors pass through the first's columns. */
MILL_HD_CALLED static inline void mill_pair_keep(const mill_model *m, mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  mill_fit_result *r = &slot->result;
  r->pair_gain = r->m2ll - mill_pair_f(m, slot);
  r->pair = 1;
  r->warn = slot->best.warn;
  r->info = slot->best.info;
  slot->theta[MILL_PAR_VRAD] = p->theta[0][MILL_PAR_VRAD];
  mill_pair_row_of_second(m, slot);
  mill_pair_errors(m, slot, &slot->polish.at, 0);
  if (slot->n_epoch == 1)
    mill_pair_lone_epoch(slot);
  for (int a = 0; a < m->n_arm; a++)
    if (r->n_pix[a] > 0)
      r->flux_ratio[a] = p->flux[a][1] / p->flux[a][0];
  /* VSINI_ZERO is for the first star (mill_fit_finish), NEAR_HULL for both */
  r->info = slot->best.info | MILL_INFO_PAIR | (r->info & MILL_INFO_NEAR_HULL);
}

/** Make turns whose steps count on the epochs' velocities to follow: where lines are blended, turns
 *  with fixed velocities end early.  If F rises, go back and make turns with fixed velocities. */
MILL_RESUMABLE(mill_pair_joint)
{
  mill_pair *p = &slot->pair;
  MILL_BEGIN;
  MILL_CALL(mill_pair_evaluate);
  mill_pair_record(m, slot);
  p->was.f = mill_pair_f(m, slot);
  p->is_joint = 1;
  p->n_least = p->n_turn + 2; /* at least one turn of each star */
  MILL_CALL(mill_pair_turns_run);
  if (p->is_fitted) {
    MILL_CALL(mill_pair_evaluate);
    if (mill_pair_f(m, slot) < p->was.f + MILL_PAIR_STAYS)
      MILL_RETURN;
  }
  mill_pair_restore(m, slot);
  p->is_joint = 0;
  p->n_least = p->n_turn + 2; /* the row needs the derivatives of these turns */
  MILL_CALL(mill_pair_turns_run);
  if (p->is_fitted)
    MILL_CALL(mill_pair_evaluate);
  MILL_END;
}

/** Fit two stars by turns; slot->pair.is_fitted tells whether they are kept. */
MILL_RESUMABLE(mill_pair_try)
{
  mill_pair *p = &slot->pair;
  MILL_BEGIN;
  mill_pair_start(m, slot);
  p->n_least = mill_pair_turns(p, MILL_PAIR_TURNS);
  MILL_CALL(mill_pair_turns_run);
  if (p->is_fitted && slot->n_epoch > 1) /* each of these steps may drop the pair */
    MILL_CALL(mill_pair_exchanges);
  if (p->is_fitted && slot->n_epoch > 1 && mill_has_model_error(m, slot))
    MILL_CALL(mill_pair_tell);
  if (p->is_fitted && slot->n_epoch > 1)
    MILL_CALL(mill_pair_joint);
  if (!p->is_fitted) /* a single star */
    MILL_RETURN;
  if (slot->n_epoch < 2) { /* the last turn moved flux ratios: ask for F (with epochs F is known) */
    mill_pair_relate(slot);
    for (int j = 0; j < m->n_par; j++)
      slot->theta[j] = p->theta[0][j];
    MILL_ASK(MILL_REQ_VALUES);
  }
  p->is_fitted = mill_pair_is_kept(m, slot);
  MILL_END;
}

/** From a fit of two moving stars, go back to one star that follows the brighter star.  Keep the
 *  one-star rows (alone), in case two stars fail this time. */
MILL_HD_CALLED static inline void mill_pair_part(const mill_model *m, mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  p->alone = slot->result;
  p->is_fitted = 0;
  p->is_again = 1;
  for (int i = 0; i < slot->n_segment; i++)
    slot->segment[i].paired = 0;
  for (int i = 0; i < slot->n_epoch; i++)
    slot->epoch[i].alone = slot->epoch[i].result;
  for (int j = 0; j < m->n_par; j++)
    slot->best.end[j] = p->theta[0][j];
  if (!m->set.fixed[MILL_PAR_VSINI]) /* the fit could not leave v sin i = 0, where F is flat */
    slot->best.end[MILL_PAR_VSINI] = MILL_PAIR_BROAD;
  slot->epochs_shifted = 1;
}

/** Fit two moving stars again.  Their model error was fixed in the one-star fit, at velocities that
 *  depend on that fit's start.  Here one-star fits of the brighter star alternate with searches of
 *  its velocities: the last of these fits fixes the model error at the velocities found. */
MILL_RESUMABLE(mill_pair_again)
{
  mill_pair *p = &slot->pair;
  MILL_BEGIN;
  mill_pair_part(m, slot);
  for (p->n_again = 0; p->n_again < MILL_PAIR_AGAIN; p->n_again++) {
    MILL_CALL(mill_polish_again);
    MILL_CALL(mill_epochs_search);
    (void)mill_epochs_shift(m, slot);
  }
  MILL_CALL(mill_polish_again);
  p->is_again = 0;
  slot->result.m2ll = slot->best.at.f;
  (void)mill_pair_epochs_begin(slot);
  MILL_CALL(mill_pair_try);
  if (p->is_fitted) {
    slot->best.info |= MILL_INFO_EPOCHS;
    MILL_RETURN;
  }
  slot->result = p->alone;
  for (int i = 0; i < slot->n_epoch; i++)
    slot->epoch[i].result = slot->epoch[i].alone;
  MILL_END;
}

/** Look for a second star after the one-star fit; if there is one, the row describes both. */
MILL_RESUMABLE(mill_pair_run)
{
  mill_pair *p = &slot->pair;
  MILL_BEGIN;
  if (!mill_pair_begin(m, slot))
    MILL_RETURN;
  slot->of_epochs = 0;
  if (mill_has_error(m))
    MILL_CALL(mill_pair_measure);
  MILL_CALL(mill_pair_peaks);
  p->is_seen = mill_pair_is_seen(m, slot);
  p->is_split = mill_pair_is_blend(m, slot);
  if (p->is_split) /* first try two equal stars, one to each side of VRAD */
    MILL_CALL(mill_pair_try);
  if (!p->is_fitted && p->is_seen) {
    p->is_split = 0; /* then the star, with a companion at the residuals' peak */
    MILL_CALL(mill_pair_try);
  }
  if (p->is_fitted && (p->is_moving || slot->epochs_shifted) && mill_has_model_error(m, slot))
    MILL_CALL(mill_pair_again);
  if (!p->is_fitted) { /* the row describes one star */
    slot->result.n_eval = p->n_eval;
    slot->result.n_jac = p->n_jac;
    MILL_RETURN;
  }
  if (slot->n_epoch > 1)
    MILL_CALL(mill_pair_epochs_end);
  mill_pair_keep(m, slot);
  MILL_ASK(MILL_REQ_MODELS);
  mill_arms_begin(m, slot);
  MILL_CALL(mill_seek_run);
  mill_pair_finish(m, slot);
  MILL_END;
}
