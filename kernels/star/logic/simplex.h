/* SPDX-License-Identifier: BSD-3-Clause */
/** Minimise F by a simplex, in coordinates x in which F is about F0 + |x|^2. */
#pragma once

#include "kernels/star/logic/ask.h"
#include "kernels/star/logic/polish.h"

/** First step along each coordinate of x, and tolerances in F and in each coordinate. */
#define MILL_SIMPLEX_STEP        2.0
#define MILL_SIMPLEX_F_TOLERANCE 0.03
#define MILL_SIMPLEX_X_TOLERANCE 0.5

/** Write the simplex's next point, cut to the limits, to slot->theta.  The penalty simplex.off is
 *  MILL_OFF_LIMITS beyond a velocity limit.  Beyond a limit of v sin i it is 4 times the rise of F
 *  that the curvature predicts for the excess. */
MILL_HD_CALLED static inline void mill_simplex_propose(const mill_model *m, mill_slot *slot)
{
  const int n = slot->simplex.nm.n;
  const double *x = mill_nm_ask(&slot->simplex.nm);
  const double *l = slot->polish.at.hess; /* L of mill_simplex */
  double delta[MILL_MAX_PAR];
  for (int j = 0; j < m->n_par; j++)
    slot->theta[j] = slot->simplex.centre[j];
  slot->simplex.off = 0.0;
  for (int i = n - 1; i >= 0; i--) { /* solve L^T delta = x from the last row up */
    double sum = x[i];
    for (int k = i + 1; k < n; k++)
      sum -= l[k * n + i] * delta[k];
    delta[i] = sum / l[i * n + i];
    if (delta[i] == 0.0)
      continue; /* theta stays at the centre, without rounding by mill_par_outer */
    const int j = slot->simplex.par[i];
    const double u = mill_par_inner(m, j, slot->simplex.centre[j]) + delta[i];
    slot->theta[j] = mill_par_outer(m, j, u);
    const double lo = mill_par_inner(m, j, mill_par_min(m, j));
    const double hi = mill_par_inner(m, j, mill_par_max(m, j));
    if (u >= lo && u <= hi)
      continue;
    const double excess = u < lo ? u - lo : u - hi;
    double curvature = 0.0;
    for (int k = 0; k <= i; k++)
      curvature += l[i * n + k] * l[i * n + k];
    slot->simplex.off += j == MILL_PAR_VRAD ? MILL_OFF_LIMITS : 4.0 * curvature * excess * excess;
  }
}

/** After the simplex, begin a polish at its best point, or at polish.at if F is lower there. */
MILL_HD_CALLED static inline void mill_simplex_end(const mill_model *m, mill_slot *slot)
{
  double best, theta[MILL_MAX_PAR];
  const double *x = mill_nm_best(&slot->simplex.nm, &best);
  if (slot->polish.have && slot->polish.at.f <= best) {
    for (int j = 0; j < m->n_par; j++)
      theta[j] = slot->polish.at.theta[j];
  } else { /* mill_simplex_propose turns nm.trial into theta */
    for (int j = 0; j < slot->simplex.nm.n; j++)
      slot->simplex.nm.trial[j] = x[j];
    mill_simplex_propose(m, slot);
    for (int j = 0; j < m->n_par; j++)
      theta[j] = slot->theta[j];
  }
  mill_polish_begin(m, slot, theta);
}

/** Begin a simplex, a short one for method hybrid.
 *  - Centre: polish.at, or the polish's next point if `step` is 1.  A start without any evaluated
 *    point is itself the centre.
 *  - Axes: those of the curvature at polish.at.  If it is not positive definite, they are the
 *    parameters in units of typical uncertainties. */
MILL_HD_CALLED static inline void mill_simplex_begin(const mill_model *m, mill_slot *slot, int step)
{
  mill_polish *p = &slot->polish;
  const double *theta = p->have ? p->at.theta : slot->starts.theta[slot->starts.i];
  mill_polish_axes *axes = &slot->space.axes;
  double x0[MILL_MAX_PAR], first[MILL_MAX_PAR], *simplex = slot->space.simplex;
  axes->n = 0;
  slot->simplex.done = 1;         /* this start has had its simplex */
  p->lambda = MILL_POLISH_LAMBDA; /* damping of a first step */
  if (p->have && mill_polish_propose(m, slot, axes) && axes->n > 0) {
    for (int j = 0; j < m->n_par; j++)
      slot->simplex.centre[j] = step ? slot->theta[j] : p->at.theta[j];
  } else {
    axes->n = slot->n_free;
    for (int j = 0; j < m->n_par; j++)
      slot->simplex.centre[j] = theta[j];
    for (int i = 0; i < axes->n; i++) {
      axes->idx[i] = slot->free_par[i];
      for (int k = 0; k < axes->n; k++)
        axes->factor[i * axes->n + k] = i == k ? 1.0 / mill_par_scale(m, axes->idx[i]) : 0.0;
    }
  }
  for (int e = 0; e < axes->n * axes->n; e++)
    p->at.hess[e] = axes->factor[e]; /* L of mill_simplex replaces the curvature */
  for (int i = 0; i < axes->n; i++) {
    slot->simplex.par[i] = axes->idx[i];
    x0[i] = 0.0;
    first[i] = MILL_SIMPLEX_STEP;
  }
  mill_nm_simplex(axes->n, x0, first, simplex);
  const int left = m->set.max_eval - slot->result.n_eval;
  const int is_short = slot->method == MILL_OPT_HYBRID && m->set.n_simplex_round < left;
  const int most = is_short ? m->set.n_simplex_round : left;
  const mill_nm_options options = {most > 1 ? most : 1, MILL_SIMPLEX_F_TOLERANCE,
                                   MILL_SIMPLEX_X_TOLERANCE};
  mill_nm_start(&slot->simplex.nm, axes->n, simplex, &options);
}

/** Minimise F by the simplex that has begun; then begin a polish at its best point. */
MILL_RESUMABLE(mill_simplex_run)
{
  MILL_BEGIN;
  do {
    mill_simplex_propose(m, slot);
    MILL_ASK(MILL_REQ_VALUES);
  } while (mill_nm_tell(&slot->simplex.nm, slot->eval.f + mill_penalty(m, slot, slot->theta) +
                                               slot->simplex.off) == MILL_NM_GO);
  mill_simplex_end(m, slot);
  MILL_END;
}
