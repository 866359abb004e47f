/* SPDX-License-Identifier: BSD-3-Clause */
/** Test which velocity belongs to which of two stars, epoch by epoch (docs/science/numerics.md,
 *  "Two stars").
 *
 *  If some epochs' velocities belong to the wrong stars, the turns end with labels between those of
 *  both stars.  With these labels fixed, an exchange of an epoch's velocities may raise F, although
 *  it lowers F once the labels follow. */
#pragma once

#include "kernels/star/logic/pair_turn.h"

/** Labels that follow an exchange may lower F by HOPE reduced chi-squares.  An exchange gets two
 *  turns or more, up to MILL_PAIR_TRIAL while F is less than HOPE above its former value. */
#define MILL_PAIR_HOPE 100.0
/** Most passes over all epochs, and the turn after which no exchange begins. */
enum { MILL_PAIR_TRIAL = 6, MILL_PAIR_PASSES = 3, MILL_PAIR_LAST_TURN = 100 };

/** Is the epoch's exchange worth turns?  It needs a velocity of each star, and F with labels fixed
 *  may rise by HOPE at most.  With model error, blended lines tell nothing (mill_pair_is_told). */
MILL_HD static inline int mill_pair_may_exchange(const mill_model *m, const mill_slot *slot, int i)
{
  const mill_epoch *e = &slot->epoch[i];
  return slot->pair.n_turn < MILL_PAIR_LAST_TURN && mill_pair_has_lines(e) &&
         isfinite(e->pair_err[0] + e->pair_err[1]) &&
         e->exchanged < MILL_PAIR_HOPE * mill_pair_unit_of(slot) &&
         (!mill_has_error(m) || mill_pair_is_clear(slot, i));
}

MILL_HD static inline void mill_pair_put(double *to, const double *from, int n)
{
  for (int i = 0; i < n; i++)
    to[i] = from[i];
}

/** Record the pair. */
MILL_HD_CALLED static inline void mill_pair_record(const mill_model *m, mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  p->was.n_turn = p->n_turn;
  p->was.f = p->f[0];
  for (int star = 0; star < 2; star++)
    mill_pair_put(p->was.theta[star], p->theta[star], m->n_par);
  mill_pair_put(p->was.ln_ratio, p->ln_ratio, m->n_arm);
  for (int i = 0; i < slot->n_epoch; i++) {
    mill_pair_put(slot->epoch[i].best, slot->epoch[i].shift, 2);
    mill_pair_put(slot->epoch[i].err_was, slot->epoch[i].pair_err, 2);
  }
}

/** Go back to the pair recorded after a turn of star 0, also if it has been dropped since. */
MILL_HD_CALLED static inline void mill_pair_restore(const mill_model *m, mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  p->is_fitted = 1;
  p->star = 0;
  p->f[0] = p->was.f;
  for (int star = 0; star < 2; star++)
    mill_pair_put(p->theta[star], p->was.theta[star], m->n_par);
  mill_pair_put(p->ln_ratio, p->was.ln_ratio, m->n_arm);
  for (int i = 0; i < slot->n_epoch; i++) {
    mill_pair_put(slot->epoch[i].shift, slot->epoch[i].best, 2);
    mill_pair_put(slot->epoch[i].pair_err, slot->epoch[i].err_was, 2);
  }
}

/** Is F still so low that more turns may show the exchange to be right? */
MILL_HD static inline int mill_pair_exchange_goes_on(const mill_slot *slot)
{
  const mill_pair *p = &slot->pair;
  const double most = p->was.f + MILL_PAIR_HOPE * mill_pair_unit_of(slot);
  return p->is_fitted &&
         (p->star == 1 || (p->n_turn < p->was.n_turn + MILL_PAIR_TRIAL && p->f[0] < most));
}

/** Keep the exchange if it has lowered F, or go back to the recorded pair. */
MILL_HD_CALLED static inline void mill_pair_exchange_end(const mill_model *m, mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  const double rise = p->is_fitted ? p->f[0] - p->was.f : INFINITY;
  if (p->is_fitted || mill_pair_loses(slot, 0.0)) /* else F was not the reason to drop the pair */
    slot->epoch[p->exchanged].exchanged = fabs(rise);
  if (rise < -MILL_PAIR_STAYS) {
    p->n_kept++;
    return;
  }
  mill_pair_restore(m, slot);
}

/** In passes over the epochs, exchange velocities; keep exchanges that lower F after some turns.
 *  Make turns until F stays after each pass.  At last the brighter star becomes the first. */
MILL_RESUMABLE(mill_pair_exchanges)
{
  mill_pair *p = &slot->pair;
  MILL_BEGIN;
  for (p->n_pass = 0; p->n_pass < MILL_PAIR_PASSES; p->n_pass++) {
    p->n_kept = p->was.n_turn = 0;
    for (p->exchanged = 0; p->exchanged < slot->n_epoch; p->exchanged++) {
      if (!mill_pair_may_exchange(m, slot, p->exchanged))
        continue;
      mill_pair_record(m, slot);
      mill_pair_epoch_exchange(slot, p->exchanged);
      do {
        MILL_CALL(mill_pair_turn);
      } while (mill_pair_exchange_goes_on(slot));
      mill_pair_exchange_end(m, slot);
    }
    if (p->was.n_turn > 0) { /* there was an exchange: the derivatives may be of a refused one */
      p->n_least = p->n_turn + 2; /* at least a turn of each star */
      MILL_CALL(mill_pair_turns_run);
    }
    if (p->n_kept == 0 || !p->is_fitted)
      break;
  }
  if (!p->is_fitted || !(mill_pair_brightness(m, slot) > 0.0))
    MILL_RETURN;
  mill_pair_swap(m, slot); /* the brighter star becomes the first one */
  p->n_least = p->n_turn + 2;
  MILL_CALL(mill_pair_turns_run);
  MILL_END;
}
