/* SPDX-License-Identifier: BSD-3-Clause */
/** Eliminate the companion's parameters from a star's fit by a Schur complement: at each step of
 *  the star, the companion's take their best values (docs/science/numerics.md, "Two stars"). */
#pragma once

#include "kernels/math/linalg.h"
#include "kernels/star/logic/parameters.h"

/** Is companion parameter k free? k counts the companion's velocity, v sin i and labels, then the
 *  arms' ln(flux ratio), then the velocity offsets. */
MILL_HD static inline int mill_pair_free(const mill_model *m, const mill_slot *slot, int k)
{
  const double *theta = slot->pair.theta[1 - slot->pair.star];
  if (k >= m->n_deriv + m->n_arm)
    return !slot->no_offset[k - m->n_deriv - m->n_arm + 1];
  if (k >= m->n_deriv)
    return slot->result.n_pix[k - m->n_deriv] > 0;
  return !m->set.fixed[k] && !mill_par_at_limit(m, k, theta[k]);
}

/** Typical uncertainty of ln(flux ratio). */
#define MILL_PAIR_SCALE 0.3

/** Typical uncertainty of companion parameter k. */
MILL_HD static inline double mill_pair_scale(const mill_model *m, int k)
{
  const int is_ratio = k >= m->n_deriv && k < m->n_deriv + m->n_arm;
  return is_ratio ? MILL_PAIR_SCALE : mill_par_scale(m, k);
}

/** Set the companion's parameters to their best values, and eliminate them from F's gradient and
 *  curvature (slot->space).  Then slot->eval has F and derivatives in the star's parameters.
 *  Returns 0 if the companion's damped curvature is not positive definite. */
MILL_HD_CALLED static inline int mill_pair_reduce(const mill_model *m, mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  mill_eval *e = &slot->eval;
  const int np = m->n_par, n_other = mill_pair_n(m), n_all = np + n_other;
  const double *grad = slot->space.joint_grad + np, *joint = slot->space.joint;
  int idx[MILL_MAX_PAR], n = 0;
  double *a = slot->space.matrix[0], *inverse = slot->space.matrix[1], slope[MILL_MAX_PAR],
         stiff[MILL_MAX_PAR];
  for (int k = 0; k < n_other; k++) { /* gradient with the priors of velocity offsets */
    const int offset = k < m->n_deriv + m->n_arm ? -1 : k - m->n_arm;
    const double sigma = offset < 0 ? INFINITY : mill_prior_sigma(m, slot, offset);
    p->next.follow[k] = p->next.variance[k] = 0.0;
    for (int j = 0; j < np; j++)
      p->next.along[k * MILL_MAX_PAR + j] = 0.0;
    slope[k] = grad[k] + (offset < 0 ? 0.0 : 2.0 * slot->theta[offset] / (sigma * sigma));
    stiff[k] = 1.0 / (sigma * sigma);
    if (mill_pair_free(m, slot, k))
      idx[n++] = k;
  }
  for (int r = 0; r < n; r++) { /* curvature, damped by the trust region */
    const double width = p->trust * mill_pair_scale(m, idx[r]);
    for (int c = 0; c < n; c++)
      a[r * n + c] = joint[(np + idx[r]) * n_all + np + idx[c]] +
                     (r == c ? stiff[idx[r]] + 1.0 / (width * width) : 0.0);
  }
  if (mill_cholesky(n, a, n) != 0)
    return 0;
  mill_cholesky_inverse(n, a, n, inverse, n);
  for (int r = 0; r < n; r++) {
    const int k = idx[r];
    p->next.variance[k] = inverse[r * n + r];
    /* if the star steps by d, the companion's best step is follow + along d */
    for (int c = 0; c < n; c++) {
      p->next.follow[k] -= 0.5 * inverse[r * n + c] * slope[idx[c]];
      for (int j = 0; j < np; j++)
        p->next.along[k * MILL_MAX_PAR + j] -=
            inverse[r * n + c] * joint[(np + idx[c]) * n_all + j];
    }
  }
  for (int j = 0; j < np; j++) {
    e->grad[j] = slot->space.joint_grad[j];
    for (int l = 0; l < np; l++)
      e->hess[j * np + l] = joint[j * n_all + l];
  }
  for (int r = 0; r < n; r++) {
    const int k = idx[r];
    const double *cross = joint + (np + k) * n_all; /* curvature in k and the star's parameters */
    e->f += 0.5 * slope[k] * p->next.follow[k];
    for (int j = 0; j < np; j++) {
      e->grad[j] += 2.0 * cross[j] * p->next.follow[k];
      for (int l = 0; l < np; l++)
        e->hess[j * np + l] += cross[j] * p->next.along[k * MILL_MAX_PAR + l];
    }
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

/** At the end of a star's turn, move flux ratios and velocity offsets to their best values. */
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
    p->ln_ratio[a] =
        ln < MILL_PAIR_LEAST ? MILL_PAIR_LEAST : (ln > -MILL_PAIR_LEAST ? -MILL_PAIR_LEAST : ln);
    p->flux[a][1 - p->star] *= exp(p->ln_ratio[a] - was); /* the companion's */
  }
}
