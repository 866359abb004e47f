/* SPDX-License-Identifier: BSD-3-Clause */
/** Decide after the initial guess if a star can be fitted; set its free parameters and starts. */
#pragma once

#include "kernels/star/logic/polish.h"
#include "kernels/star/logic/row.h"

/** Does the star have enough data to be fitted?  Fills in S/N, pixel counts and INFO; sets
 *  hull_weight and starts.low_sn, and limits starts.n to max_starts. */
MILL_HD_CALLED static inline int mill_fit_has_data(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  int n_used = 0, n_dropped = 0;
  int64_t n_pix_all = 0, n_good = 0;
  double best_sn = -1e9;
  for (int a = 0; a < MILL_MAX_ARM; a++) {
    r->sn[a] = -1e9; /* of arms without data */
    r->n_pix[a] = 0;
  }
  for (int i = 0; i < slot->n_segment; i++) {
    const mill_segment *s = &slot->segment[i];
    r->sn[s->arm] = fmax(s->sn, r->sn[s->arm]); /* the best exposure's S/N */
    best_sn = fmax(s->sn, best_sn);
    n_dropped += !s->used || s->n_good == 0;
    if (!s->used)
      continue;
    n_used++;
    n_pix_all += s->n_pix;
    n_good += s->n_good;
    r->n_pix[s->arm] += s->n_good;
    r->info |= s->info;
  }
  r->n_pix_tot = n_good;
  slot->hull_weight = 10.0 * (double)n_pix_all * (double)n_used; /* numerics.md, "Likelihood" */
  r->info |= n_dropped > 0 ? MILL_INFO_ARM_DROPPED : 0;
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

/** Make `given` the only start, or with try_all the first one.  Values are cut to their limits,
 *  labels to the training range. */
MILL_HD static inline void mill_take_given_start(const mill_model *m, mill_slot *slot)
{
  const int n_guess =
      slot->starts.n < MILL_MAX_GUESS_START - 1 ? slot->starts.n : MILL_MAX_GUESS_START - 1;
  for (int i = slot->starts.try_all ? n_guess : 0; i > 0; i--) { /* make room for `given` */
    slot->starts.chisq[i] = slot->starts.chisq[i - 1];
    slot->starts.label[i] = slot->starts.label[i - 1];
    for (int j = 0; j < m->n_par; j++)
      slot->starts.theta[i][j] = slot->starts.theta[i - 1][j];
  }
  for (int j = m->n_deriv; j < m->n_par; j++)
    slot->starts.theta[0][j] = 0.0; /* velocity offsets */
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

/** Another library ties if its best guess template fits as well as this library's third best.
 *  Comparing only best templates would miss the better library for 89 of 1371 MILES stars. */
enum { MILL_GUESS_TIE = 2 };

/** Record the best guess template's chi-square (guess_chisq), and the highest chi-square at which
 *  another library ties (guess_tie): the third best or, of n < 3 starts, the last.  Both include
 *  the least penalty that priors of labels have within the library's ranges.  Priors of elements do
 *  not count (mill_guess_penalty). */
MILL_HD static inline void mill_guess_note(const mill_model *m, mill_slot *slot, int n)
{
  const double *chisq = slot->starts.chisq;
  double penalty = 0.0;
  if (n < 1)
    return;
  for (int l = 0; l < m->n_label; l++) {
    const int j = MILL_PAR_LABEL0 + l;
    const double mean = mill_prior_mean(m, slot, j), lo = m->label[l].min, hi = m->label[l].max;
    if (!m->label[l].is_element)
      penalty += mill_prior_penalty(m, slot, j, mean < lo ? lo : (mean > hi ? hi : mean));
  }
  slot->result.guess_chisq = chisq[0] + penalty;
  slot->result.guess_tie = chisq[n > MILL_GUESS_TIE ? MILL_GUESS_TIE : n - 1] + penalty;
}

/** If the guess's best template lowers the continuum's chi-square by less than this, the row gets
 *  one start of MILL_BRIEF_JAC Jacobians.  All starts follow if this start does not set NO_STAR. */
#define MILL_BRIEF_GAIN 25.0

/** Set free parameters and starts after the guess.  Returns 0 if the star cannot be fitted. */
MILL_HD_CALLED static inline int mill_fit_admit(const mill_model *m, mill_slot *slot)
{
  const int n_guess = slot->starts.n;
  slot->n_free = 0;
  if (!mill_fit_has_data(m, slot))
    return 0;
  /* arms with data have velocity offsets; the library's first arm never has one.  Without data in
   * the first arm, the offsets' prior thus enters VRAD's error. */
  for (int a = 0; a < MILL_MAX_ARM; a++)
    slot->no_offset[a] = a == 0 || a >= m->n_arm || slot->result.n_pix[a] == 0;
  for (int i = 0; i < slot->n_epoch; i++)
    slot->epoch[i].shift[0] = slot->epoch[i].shift[1] = 0.0;
  for (int j = 0; j < m->n_par; j++)
    if (!mill_par_held(m, slot, j))
      slot->free_par[slot->n_free++] = j;
  if (slot->starts.n > 0)
    slot->result.vrad_guess_km_s = slot->starts.theta[0][MILL_PAR_VRAD];
  mill_guess_note(m, slot, n_guess);
  if (slot->starts.has_limit && !(slot->result.guess_chisq <= slot->starts.limit)) {
    mill_fit_end(slot, MILL_STATUS_NOT_DONE);
    return 0;
  }
  if (slot->starts.has_given)
    mill_take_given_start(m, slot);
  if (slot->starts.n < 1) {
    slot->result.warn |= MILL_WARN_NONFINITE;
    mill_fit_end(slot, MILL_STATUS_FIT_FAILED);
    return 0;
  }
  /* the guess's chi-squares are differences from the chi-square of the continuum alone */
  slot->starts.brief = !slot->starts.has_given && slot->starts.chisq[0] > -MILL_BRIEF_GAIN;
  return 1;
}
