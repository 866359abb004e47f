/* SPDX-License-Identifier: BSD-3-Clause */
/** The posterior of one star: an ensemble of walkers that goes on where its fit has ended.
 *
 *  Each round answers one walker's proposal, so that all stars of a batch are one batch of values;
 *  a walker moves with the others where they are, in turn (Goodman & Weare 2010, Comm. App. Math.
 *  Comp. Sci. 5, 65, section 2).  Density: exp(-F/2) with the fit's priors and hull
 *  penalty, flat within the limits in VRAD, v sin i itself, labels and velocity offsets.  A star's
 *  random numbers depend on the seed, its identity, the walker and the sweep alone.  Serial code,
 *  run by one thread of a star's block (docs/science/numerics.md, "Posteriors").
 */
#ifndef MILL_SAMPLE_H
#define MILL_SAMPLE_H

#include "kernels/star/sample_summary.h"
#include "kernels/star/starts.h"
#include "kernels/star/temper.h"

/** Minima about which walkers begin: above the solution's F by less than this, further apart than
 *  this in errors, and the least share of the walkers of each. */
#define MILL_SAMPLE_ORIGIN_F     25.0
#define MILL_SAMPLE_APART        3.0
#define MILL_SAMPLE_ORIGIN_SHARE 0.125

/* ---- the first positions ---- */

/** Axes of the fit's curvature, inner parameters; where it is not positive definite those of
 *  typical uncertainties. */
MILL_HD_CALLED static inline void mill_sample_fit_axes(const mill_model *m, mill_slot *slot)
{
  const int n = slot->n_free;
  double *a = slot->sample.axes;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++)
      a[i * n + k] = slot->best.at.hess[slot->free_par[i] * m->n_par + slot->free_par[k]];
  if (mill_cholesky(n, a, n) == 0)
    return;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++)
      a[i * n + k] = i == k ? 1.0 / mill_par_scale(m, slot->free_par[i]) : 0.0;
}

/** A start has ended: keep where, for the walkers. */
MILL_HD static inline void mill_sample_note(const mill_model *m, mill_slot *slot)
{
  if (slot->starts.n_minimum == MILL_MAX_START)
    return;
  for (int j = 0; j < m->n_par; j++)
    slot->starts.minimum[slot->starts.n_minimum][j] = slot->polish.end[j];
  slot->starts.minimum_f[slot->starts.n_minimum++] = slot->polish.at.f;
}

/** The minima about which walkers begin: the solution and those noted that lie apart from it and
 *  from each other and fit nearly as well.  Shares are those of Gaussians of one size, but no
 *  minimum goes without a share of its own. */
MILL_HD_CALLED static inline void mill_sample_origins(const mill_model *m, mill_slot *slot)
{
  mill_sample *s = &slot->sample;
  const double apart = MILL_SAMPLE_APART * MILL_SAMPLE_APART;
  double f[MILL_MAX_START + 1];
  int n = 0;
  f[0] = slot->result.m2ll;
  for (int i = 0; i < slot->starts.n_minimum; i++) {
    int is_new = slot->starts.minimum_f[i] < f[0] + MILL_SAMPLE_ORIGIN_F &&
                 mill_point_distance2(m, slot, slot->best.end, slot->starts.minimum[i]) > apart;
    for (int e = 0; e < n; e++)
      is_new = is_new && mill_point_distance2(m, slot, slot->starts.minimum[e],
                                              slot->starts.minimum[i]) > apart;
    if (!is_new)
      continue;
    for (int j = 0; j < m->n_par; j++)
      slot->starts.minimum[n][j] = slot->starts.minimum[i][j];
    f[++n] = slot->starts.minimum_f[i];
  }
  slot->starts.n_minimum = n;
  s->n_origin = n + 1;
  double sum = 0.0, all = 0.0;
  for (int i = 0; i <= n; i++)
    sum += exp(-0.5 * (f[i] - f[0]));
  for (int i = 0; i <= n; i++) {
    const double share = exp(-0.5 * (f[i] - f[0])) / sum;
    all += share > MILL_SAMPLE_ORIGIN_SHARE ? share : MILL_SAMPLE_ORIGIN_SHARE;
    s->share[i] = all;
  }
  for (int i = 0; i <= n; i++)
    s->share[i] /= all;
}

/** The minimum about which a walker begins. */
MILL_HD static inline const double *mill_sample_origin(const mill_model *m, const mill_slot *slot)
{
  const int n = m->set.sample.n_walker;
  const double at = ((double)(slot->sample.i_walker % n) + 0.5) / (double)n;
  int i = 0;
  while (i < slot->sample.n_origin - 1 && at > slot->sample.share[i])
    i++;
  return i == 0 ? slot->best.end : slot->starts.minimum[i - 1];
}

/** A walker's first position: of the Gaussian that the fit's curvature says about one of the
 * minima, as wide as its temperature makes it, or of the priors; each try half as far from there as
 * the one before.  v sin i is mirrored at its lower limit. */
MILL_HD_CALLED static inline void mill_sample_first(const mill_model *m, mill_slot *slot)
{
  const int n = slot->n_free;
  const double *origin = mill_sample_origin(m, slot);
  const double power = mill_temper_power(m, slot, slot->sample.i_walker);
  double z[MILL_MAX_PAR + 1];
  do {
    const int tries = slot->sample.n_try;
    const double shrink = ldexp(power > 0.0 ? 1.0 / sqrt(power) : 1.0, -tries);
    mill_sample_normals(m, slot, MILL_DRAW_FIRST + tries * MILL_MAX_PAR, n, z);
    if (power > 0.0)
      mill_cholesky_backward(n, slot->sample.axes, n, z);
    for (int j = 0; j < m->n_par; j++)
      slot->theta[j] = origin[j];
    for (int k = 0; k < n && tries < MILL_SAMPLE_FIRST_TRIES; k++) {
      const int j = slot->free_par[k];
      const double at = mill_par_inner(m, j, origin[j]);
      const double to =
          power > 0.0 ? at + z[k] : mill_par_inner(m, j, mill_temper_prior(m, slot, j, z[k]));
      double u = at + shrink * (to - at);
      const double lo = mill_par_inner(m, j, mill_par_min(m, j));
      if (j == MILL_PAR_VSINI && u < lo)
        u = 2.0 * lo - u;
      slot->theta[j] = mill_par_outer(m, j, u);
    }
  } while (!mill_sample_allowed(m, slot) && slot->sample.n_try++ < MILL_SAMPLE_FIRST_TRIES);
  slot->request = MILL_REQ_VALUE;
}

/* ---- rounds ---- */

/** A sweep is over; 1 when the star is done. */
MILL_HD_CALLED static inline int mill_sample_sweep(const mill_model *m, mill_slot *slot)
{
  mill_sample *s = &slot->sample;
  const int n_all = m->set.sample.n_walker * mill_n_temperature(&m->set.sample);
  s->i_walker = 0;
  mill_temper_swap(m, slot);
  s->n_sweep++;
  mill_sample_keep(m, slot);
  if (s->phase == MILL_SAMPLE_BURNS) {
    if (s->n_sweep == MILL_SAMPLE_BURN_FIRST || s->n_sweep == MILL_SAMPLE_BURN)
      mill_sample_adapt(m, slot);
    if (s->n_sweep < MILL_SAMPLE_BURN)
      return 0;
    s->phase = MILL_SAMPLE_MOVES;
    s->n_proposal = s->n_accepted = 0;
    return 0;
  }
  const int is_last =
      s->n_eval + n_all > m->set.sample.max_eval ||
      s->n_sweep > m->set.sample.max_eval; /* no end of proposals beyond the limits */
  const int n_kept_sweep = s->n_sweep - MILL_SAMPLE_BURN;
  if (n_kept_sweep < s->next_check && !is_last)
    return 0;
  s->next_check = (int)(MILL_SAMPLE_CHECK * (double)n_kept_sweep) + 1;
  const int enough = mill_sample_enough(m, slot);
  if (enough || is_last)
    mill_sample_end(m, slot, enough);
  return enough || is_last;
}

/** The next walker's proposal within the limits as the request, or the gradient where it stands;
 *  proposals beyond the limits are refused as they come. */
MILL_HD_CALLED static inline void mill_sample_next(const mill_model *m, mill_slot *slot)
{
  mill_sample *s = &slot->sample;
  const int n = m->set.sample.n_walker;
  for (;; s->i_walker++) {
    if (s->i_walker == n * mill_n_temperature(&m->set.sample) && mill_sample_sweep(m, slot))
      return;
    s->move = mill_sample_move(m, slot, mill_sample_words(m, slot, MILL_DRAW_CHOICE).v[2]);
    if (s->move == MILL_MOVE_LANGEVIN && isnan(mill_sample_gradient(slot, s->i_walker)[0])) {
      s->asks_gradient = 1;
      for (int k = 0; k < slot->n_free; k++)
        slot->theta[slot->free_par[k]] = mill_sample_walker(slot, s->i_walker)[k];
      break;
    }
    mill_sample_propose(m, slot);
    s->n_proposal += s->i_walker < n;
    if (mill_sample_allowed(m, slot))
      break;
  }
  slot->request = s->move == MILL_MOVE_LANGEVIN ? MILL_REQ_JACOBIAN : MILL_REQ_VALUE;
}

/** The walker is where the request was; grad [n_free]: the gradient there, NULL: not known. */
MILL_HD static inline void mill_sample_put(const mill_model *m, mill_slot *slot, double f,
                                           double penalty, const double *grad)
{
  const int i = slot->sample.i_walker;
  double *x = mill_sample_walker(slot, i);
  for (int k = 0; k < slot->n_free; k++)
    x[k] = slot->theta[slot->free_par[k]];
  slot->sample.walker_f[i] = f;
  slot->sample.walker_penalty[i] = penalty;
  if ((m->set.sample.moves & MILL_MOVE_LANGEVIN) != 0 && i < m->set.sample.n_walker)
    for (int k = 0; k < slot->n_free; k++)
      mill_sample_gradient(slot, i)[k] = grad ? grad[k] : (double)NAN;
  if (f < slot->sample.least)
    slot->sample.least = f;
}

/** Digest the answer to a first position: take it, or try another one. */
MILL_HD_CALLED static inline void mill_sample_digest_first(const mill_model *m, mill_slot *slot,
                                                           double f, double penalty)
{
  mill_sample *s = &slot->sample;
  const int is_last = s->n_try >= MILL_SAMPLE_FIRST_TRIES;
  const int n_all = m->set.sample.n_walker * mill_n_temperature(&m->set.sample);
  const double power = mill_temper_power(m, slot, s->i_walker);
  const double above = power * (f - slot->result.m2ll) + (1.0 - power) * penalty;
  if (!(above < MILL_SAMPLE_FIRST_F) && !is_last) {
    s->n_try++;
    mill_sample_first(m, slot);
    return;
  }
  /* the last try is a minimum itself */
  mill_sample_put(m, slot, isfinite(f) ? f : slot->result.m2ll, penalty, NULL);
  s->n_try = 0;
  if (++s->i_walker < n_all) {
    mill_sample_first(m, slot);
    return;
  }
  s->phase = MILL_SAMPLE_BURNS;
  s->i_walker = 0;
  s->n_sweep = 1; /* the first positions are sweep 0 */
  mill_sample_next(m, slot);
}

/** After the fit of a star: its first walker.  With no free parameter nothing is sampled. */
MILL_HD_CALLED static inline void mill_sample_begin(const mill_model *m, mill_slot *slot)
{
  mill_sample *s = &slot->sample;
  s->phase = MILL_SAMPLE_POSITIONS;
  s->i_walker = s->n_try = s->n_sweep = s->n_kept = 0;
  s->thin = 1;
  s->next_check = MILL_SAMPLE_FIRST_CHECK;
  s->has_axes = 0;
  s->n_eval = s->n_jac = s->n_proposal = s->n_accepted = 0;
  s->asks_gradient = 0;
  s->least = slot->result.m2ll;
  slot->result.status = MILL_STATUS_NOT_DONE;
  slot->stage = MILL_STAGE_SAMPLE;
  if (slot->n_free == 0) {
    s->n_sweep = MILL_SAMPLE_BURN;
    mill_sample_end(m, slot, 1);
    return;
  }
  mill_sample_fit_axes(m, slot);
  mill_sample_origins(m, slot);
  mill_temper_ladder(m, slot);
  mill_sample_first(m, slot);
}

/** Digest slot->eval, the answer at slot->theta: accept or refuse (Metropolis-Hastings), go on. */
MILL_HD_CALLED static inline void mill_sample_digest(const mill_model *m, mill_slot *slot)
{
  mill_sample *s = &slot->sample;
  const double penalty = mill_penalty(m, slot, slot->theta), f = slot->eval.f + penalty;
  const int has_gradient = slot->request == MILL_REQ_JACOBIAN;
  double grad[MILL_MAX_PAR];
  s->n_eval++;
  s->n_jac += has_gradient;
  if (s->phase == MILL_SAMPLE_POSITIONS) {
    mill_sample_digest_first(m, slot, f, penalty);
    return;
  }
  if (has_gradient)
    mill_sample_take_gradient(m, slot, grad);
  if (s->asks_gradient) {
    s->asks_gradient = 0;
    for (int k = 0; k < slot->n_free; k++)
      mill_sample_gradient(slot, s->i_walker)[k] = grad[k];
    mill_sample_next(m, slot);
    return;
  }
  if (has_gradient)
    s->log_factor += mill_langevin_back(slot, mill_sample_walker(slot, s->i_walker), grad);
  const mill_counter_words w = mill_sample_words(m, slot, MILL_DRAW_CHOICE);
  const double u = mill_counter_uniform(w.v[0], w.v[1]);
  const double power = mill_temper_power(m, slot, s->i_walker);
  const double rise = power * (f - slot->sample.walker_f[s->i_walker]) +
                      (1.0 - power) * (penalty - slot->sample.walker_penalty[s->i_walker]);
  /* written so that NaN is refused */
  if (s->log_factor - 0.5 * rise > log(u)) {
    mill_sample_put(m, slot, f, penalty, has_gradient ? grad : NULL);
    s->n_accepted += s->i_walker < m->set.sample.n_walker;
  }
  s->i_walker++;
  mill_sample_next(m, slot);
}

#endif
