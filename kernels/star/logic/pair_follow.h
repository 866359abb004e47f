/* SPDX-License-Identifier: BSD-3-Clause */
/** Eliminate the companion's parameters from a star's fit by a Schur complement: at each step of
 *  the star, the companion takes its best parameters (docs/science/numerics.md, "Two stars"). */
#pragma once

#include "kernels/star/logic/pair_errors.h"
#include "kernels/star/logic/step.h"

/** Find the companion's best step t->delta within its hulls while the other star stays.  Write the
 *  inverse of its damped curvature in the parameters t->idx [n] to slot->space.matrix[1] [n][n].
 *  Returns 0 if this curvature is not positive definite. */
MILL_HD_CALLED static inline int mill_pair_solve(const mill_model *m, mill_slot *slot,
                                                 mill_polish_try *t)
{
  const mill_pair *p = &slot->pair;
  const int np = m->n_par, n_all = np + mill_pair_n(m), n = t->n;
  double *a = slot->space.matrix[0], rhs[MILL_MAX_PAR];
  for (int pass = 0; pass < 2; pass++) { /* 0: step, until no crossed facet is new; 1: inverse */
    for (int r = 0; r < n; r++) {        /* curvature, damped by the trust region */
      const int k = t->idx[r], is_ratio = k >= m->n_deriv && k < m->n_deriv + m->n_arm;
      const double width = p->trust * (is_ratio ? MILL_PAIR_SCALE : mill_par_scale(m, k));
      for (int c = 0; c < n; c++)
        a[r * n + c] = slot->space.joint[(np + k) * n_all + np + t->idx[c]];
      a[r * n + r] += 1.0 / (width * width);
    }
    mill_polish_add_hulls(t, slot->hull_weight, a);
    if (mill_cholesky(n, a, n) != 0)
      return 0;
    for (int more = pass == 0; more; more = mill_polish_cross(m, p->theta[1 - p->star], t)) {
      for (int r = 0; r < n; r++)
        rhs[r] = -0.5 * slot->space.joint_grad[np + t->idx[r]];
      mill_polish_minimise(m, slot, rhs, t);
    }
  }
  mill_cholesky_inverse(n, a, n, slot->space.matrix[1], n);
  return 1;
}

/** Set the companion's parameters to their best values, and eliminate them from F's gradient and
 *  curvature (slot->space).  Then slot->eval has F and derivatives in the star's parameters, with
 *  the companion's priors and hull penalty.  Returns 0 if mill_pair_solve fails. */
MILL_HD_CALLED static inline int mill_pair_reduce(const mill_model *m, mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  mill_eval *e = &slot->eval;
  const int np = m->n_par, n_other = mill_pair_n(m), n_all = np + n_other;
  const double *theta = p->theta[1 - p->star], *inverse = slot->space.matrix[1];
  double *grad = slot->space.joint_grad, *joint = slot->space.joint, stiff;
  mill_polish_try t;
  t.facet = slot->space.facet;
  t.n_facet = t.n = 0;
  if (p->is_joint)
    mill_pair_eliminate(m, slot);
  p->star = 1 - p->star; /* the priors below are the companion's */
  for (int k = 0; k < n_other; k++) {
    /* the star's parameter j that is the companion's k; -1: k is a flux ratio */
    const int j = k < m->n_deriv ? k : (k < m->n_deriv + m->n_arm ? -1 : k - m->n_arm);
    if (j >= 0) {
      grad[np + k] += mill_prior_gradient(m, slot, j, theta[j], &stiff);
      joint[(np + k) * (n_all + 1)] += stiff;
    }
    if (j == k) /* no offset: the caller's mill_penalty has the offsets' priors */
      e->f += mill_prior_penalty(m, slot, j, theta[j]);
    p->next.follow[k] = p->next.variance[k] = t.delta[k] = 0.0;
    t.pin[k] = 0;
    for (int i = 0; i < np; i++)
      p->next.along[k * MILL_MAX_PAR + i] = 0.0;
    if (mill_pair_free(m, slot, theta, k))
      t.idx[t.n++] = k;
  }
  p->star = 1 - p->star;
  if (!mill_pair_solve(m, slot, &t))
    return 0;
  for (int j = 0; j < np; j++) {
    e->grad[j] = grad[j];
    for (int l = 0; l < np; l++)
      e->hess[j * np + l] = joint[j * n_all + l];
  }
  for (int f = 0; f < t.n_facet; f++)
    e->f += t.facet[f].force * t.facet[f].value;
  for (int r = 0; r < t.n; r++) {
    const int k = t.idx[r];
    const double *cross = joint + (np + k) * n_all; /* curvature in k and the star's parameters */
    /* if the star steps by d, the companion's best step is follow + along d */
    double *along = p->next.along + k * MILL_MAX_PAR;
    p->next.follow[k] = t.delta[k];
    p->next.variance[k] = inverse[r * t.n + r];
    e->f += 0.5 * grad[np + k] * t.delta[k];
    for (int j = 0; j < np; j++) {
      e->grad[j] += 2.0 * cross[j] * t.delta[k];
      for (int c = 0; c < t.n; c++)
        along[j] -= inverse[r * t.n + c] * joint[(np + t.idx[c]) * n_all + j];
    }
    for (int j = 0; j < np; j++)
      for (int l = 0; l < np; l++)
        e->hess[j * np + l] += cross[j] * along[l];
  }
  return 1;
}

/** Return companion parameter k's step to its best value after a star's turn, within +-most. */
MILL_HD static inline double mill_pair_step(const mill_model *m, const mill_slot *slot, int k,
                                            double most)
{
  const mill_pair *p = &slot->pair;
  const double *end = p->theta[p->star], *at = slot->polish.at.theta;
  double step = p->at.follow[k];
  for (int j = 0; j < m->n_par; j++)
    step += p->at.along[k * MILL_MAX_PAR + j] *
            (mill_par_inner(m, j, end[j]) - mill_par_inner(m, j, at[j]));
  return step < -most ? -most : (step > most ? most : step);
}

/** ln(flux ratio) changes by at most STEP in a turn, and stays between LEAST and -LEAST. */
#define MILL_PAIR_STEP  0.7
#define MILL_PAIR_LEAST (-4.0)

/** At the end of a star's turn, move flux ratios and velocity offsets to their best values.  Among
 *  the companion's parameters (mill_pair_step) the n_arm flux ratios precede the offsets. */
MILL_HD_CALLED static inline void mill_pair_follow(const mill_model *m, mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  for (int j = m->n_deriv; j < m->n_par; j++) {
    const double step = mill_pair_step(m, slot, j + m->n_arm, mill_par_limit(m, j));
    p->theta[0][j] += step;
    p->theta[1][j] += step;
  }
  for (int a = 0; a < m->n_arm; a++) {
    const double step = mill_pair_step(m, slot, m->n_deriv + a, MILL_PAIR_STEP);
    const double was = p->ln_ratio[a], ln = was + step;
    p->ln_ratio[a] = fabs(ln) > -MILL_PAIR_LEAST ? copysign(MILL_PAIR_LEAST, ln) : ln;
    p->flux[a][1 - p->star] *= exp(p->ln_ratio[a] - was); /* 1 - star: the second star's flux */
  }
}
