/* SPDX-License-Identifier: BSD-3-Clause */
/** Find a pair's velocities at each epoch as if its exposures were the star's only ones, with
 *  labels and flux ratios of the joint fit (docs/science/numerics.md, "Two stars").
 *
 *  All N epochs have the same template error, so the joint fit multiplies its variance by N: errors
 *  of labels do not fall with N, but errors of an epoch's velocities rise with N. */
#pragma once

#include "kernels/star/logic/pair_exchange.h"

/** Fix the model error again, with the one-star fit's parameters and velocities of that time.  If
 *  by_epoch is 1, each epoch has a template error of its own. */
MILL_RESUMABLE(mill_pair_fix_error)
{
  mill_pair *p = &slot->pair;
  MILL_BEGIN;
  p->star = 0; /* the velocities are this star's, and then its rows are stored */
  for (int i = 0; i < slot->n_segment; i++)
    slot->segment[i].paired = 0;
  for (int i = 0; i < slot->n_epoch; i++) {
    slot->epoch[i].from = slot->epoch[i].shift[0];
    slot->epoch[i].shift[0] = slot->epoch[i].error_shift;
  }
  for (int j = 0; j < m->n_par; j++)
    slot->theta[j] = slot->error_theta[j];
  slot->fix_error = 1 + p->by_epoch;
  MILL_ASK(MILL_REQ_TANGENTS);
  for (int i = 0; i < slot->n_epoch; i++)
    slot->epoch[i].shift[0] = slot->epoch[i].from;
  MILL_CALL(mill_pair_keep_rows);
  MILL_END;
}

/** Find out which velocity belongs to which star at each epoch.  Each epoch takes the lower of its
 *  two minima.  If an epoch's velocities were exchanged, the labels would follow by 1 / N of the
 *  way, which would lower the rise of F by this fraction. */
MILL_RESUMABLE(mill_pair_tell)
{
  mill_pair *p = &slot->pair;
  int n = 0;
  MILL_BEGIN;
  p->by_epoch = 1;
  MILL_CALL(mill_pair_fix_error);
  p->n_settle = 2 * MILL_PAIR_SETTLE;
  MILL_CALL(mill_pair_epochs_look);
  for (int i = 0; i < slot->n_epoch; i++)
    n += mill_pair_has_lines(&slot->epoch[i]);
  for (int i = 0; i < slot->n_epoch; i++)
    slot->epoch[i].exchanged *= 1.0 - 1.0 / (double)n;
  p->by_epoch = 0;
  MILL_CALL(mill_pair_fix_error);
  MILL_END;
}

/** The epochs' velocities weigh lines differently from the joint fit's: shift each star's so that
 *  their mean difference from the joint fit's (mill_pair_record) is 0. */
MILL_HD_CALLED static inline void mill_pair_alone_shift(mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  for (int star = 0; star < 2; star++) {
    const double joint = p->was.theta[star][MILL_PAR_VRAD];
    double sum = 0.0, weight = 0.0;
    for (int i = 0; i < slot->n_epoch; i++) {
      mill_epoch *e = &slot->epoch[i];
      e->pair_err[star] = hypot(e->pair_err[star], e->label_err[star]);
      const double w = 1.0 / (e->pair_err[star] * e->pair_err[star]); /* 0 if infinite */
      weight += w;
      sum += w * (joint + e->best[star] - mill_pair_epoch_vrad(slot, i, star));
    }
    p->theta[star][MILL_PAR_VRAD] += weight > 0.0 ? sum / weight : 0.0;
  }
}

/** Go back to the joint fit's velocities of epochs, relative to the present VRAD of both stars. */
MILL_HD_CALLED static inline void mill_pair_alone_end(const mill_model *m, mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  for (int star = 0; star < 2; star++) {
    const double vrad = p->theta[star][MILL_PAR_VRAD], was = p->was.theta[star][MILL_PAR_VRAD];
    for (int i = 0; i < slot->n_epoch; i++)
      slot->epoch[i].best[star] += was - vrad;
    p->was.theta[star][MILL_PAR_VRAD] = vrad;
  }
  mill_pair_restore(m, slot);
}

/** Fill in the epochs' rows after the joint fit.  With model error, first make Newton steps to each
 *  epoch's own velocities (by_epoch); models and chi-squares keep those of the joint fit. */
MILL_RESUMABLE(mill_pair_epochs_end)
{
  mill_pair *p = &slot->pair;
  MILL_BEGIN;
  if (!mill_pair_epochs_errors(m, slot))
    slot->best.warn |= MILL_WARN_BAD_HESSIAN;
  if (!mill_has_model_error(m, slot)) {
    mill_pair_epochs_row(m, slot);
    MILL_RETURN;
  }
  mill_pair_record(m, slot);
  p->by_epoch = 1;
  MILL_CALL(mill_pair_fix_error);
  for (p->n_settle = MILL_PAIR_SETTLE; p->n_settle > 0; p->n_settle--) {
    for (int j = 0; j < m->n_par; j++)
      slot->theta[j] = p->theta[1][j];
    MILL_ASK(MILL_REQ_TANGENTS);
    mill_pair_epochs_take(m, slot);
    mill_pair_epochs_move(m, slot);
    p->star = 0;
    MILL_CALL(mill_pair_keep_rows);
  }
  mill_pair_alone_shift(slot);
  mill_pair_epochs_row(m, slot);
  mill_pair_alone_end(m, slot);
  p->by_epoch = 0;
  MILL_CALL(mill_pair_fix_error);
  MILL_CALL(mill_pair_evaluate);
  MILL_END;
}
