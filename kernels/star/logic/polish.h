/* SPDX-License-Identifier: BSD-3-Clause */
/** Polish a solution by Levenberg-Marquardt steps within limits and hull facets.
 *
 *  Every trial point is evaluated with derivatives, as most steps are accepted.  Points
 *  have v sin i.  Steps, gradients and curvatures have u (kernels/math/rotation.h) in its place. */
#pragma once

#include "kernels/star/logic/step.h"

#define MILL_POLISH_TOLERANCE      1e-2 /**< the polish ends below this predicted decrease of F */
#define MILL_POLISH_TOLERANCE_BENT 2e-3 /**< the same if mill_polish_learn updated the curvature */
/** The polish also ends if the next step's predicted decrease of F is below NEAR_END, and the
 *  predicted decrease of the step after it below REST. */
#define MILL_POLISH_NEAR_END   0.2
#define MILL_POLISH_REST       5e-4
#define MILL_POLISH_NOISE      1e-3 /**< rounding noise of F */
#define MILL_POLISH_LAMBDA     1e-3 /**< first damping */
#define MILL_POLISH_LAMBDA_END 1e-2 /**< damping above which the polish does not end */
#define MILL_POLISH_LAMBDA_MAX 1e10
/** The curvature is updated if it was wrong along a step by more than the fraction LEARN.  An
 *  update keeps at least the fraction FLAT of the curvature along the step. */
#define MILL_POLISH_LEARN 0.25
#define MILL_POLISH_FLAT  0.1
enum { MILL_POLISH_MAX_JAC = 41 };

/** Forget the updates of the curvature. */
MILL_HD_CALLED static inline void mill_polish_forget(const mill_model *m, mill_polish *p)
{
  p->learned = 0;
  for (int e = 0; e < m->n_par * m->n_par; e++)
    p->second[e] = 0.0;
}

/** Start at theta, where the caller then asks for a Jacobian; keep the updates of the curvature. */
MILL_HD_CALLED static inline void mill_polish_restart(const mill_model *m, mill_slot *slot,
                                                      const double *theta)
{
  mill_polish *p = &slot->polish;
  p->have = p->n_jac = p->n_rejected = 0;
  p->lambda = MILL_POLISH_LAMBDA;
  p->pred = 0.0;
  for (int j = 0; j < m->n_par; j++) {
    const double lo = mill_par_min(m, j), hi = mill_par_max(m, j);
    slot->theta[j] = theta[j] < lo ? lo : (theta[j] > hi ? hi : theta[j]);
  }
}

/** Start at theta without updates of the curvature. */
MILL_HD_CALLED static inline void mill_polish_begin(const mill_model *m, mill_slot *slot,
                                                    const double *theta)
{
  slot->polish.n_settle = 0;
  mill_polish_forget(m, &slot->polish);
  mill_polish_restart(m, slot, theta);
}

enum mill_polish_outcome {
  MILL_POLISH_GO = 0,
  MILL_POLISH_CONVERGED,
  MILL_POLISH_FAILED,
  MILL_POLISH_MISLED,  /**< derivatives of F mislead: a simplex should look around */
  MILL_POLISH_CUT,     /**< no more Jacobians are allowed */
  MILL_POLISH_GIVEN_UP /**< the start met an earlier start; or no second star */
};

/** Accept slot->theta, with its last Jacobian and F (f), as the point from which steps start. */
MILL_HD_CALLED static inline void mill_polish_take(const mill_model *m, mill_slot *slot, double f)
{
  mill_polish *p = &slot->polish;
  const int np = m->n_par;
  p->have = 1;
  p->at.f = f;
  for (int j = 0; j < np; j++) {
    double stiff;
    p->at.theta[j] = slot->theta[j];
    p->at.grad[j] = slot->eval.grad[j] + mill_prior_gradient(m, slot, j, slot->theta[j], &stiff);
    for (int k = 0; k < np; k++)
      p->at.hess[j * np + k] = slot->eval.hess[j * np + k];
    p->at.hess[j * np + j] += stiff;
  }
}

/** Compute step [n_par], from polish->at to slot->theta, and rise [n_par] = (the gradient's change
 *  along the step) / 2 - (mean of the curvatures at the step's two ends) * step. */
MILL_HD_CALLED static inline void mill_polish_secant(const mill_model *m, const mill_slot *slot,
                                                     double *step, double *rise)
{
  const mill_point *at = &slot->polish.at;
  const int np = m->n_par;
  for (int j = 0; j < np; j++) {
    double stiff; /* the prior's curvature: at->hess contains it, eval.hess not */
    step[j] = mill_par_inner(m, j, slot->theta[j]) - mill_par_inner(m, j, at->theta[j]);
    const double prior = mill_prior_gradient(m, slot, j, slot->theta[j], &stiff);
    rise[j] = 0.5 * (slot->eval.grad[j] + prior - at->grad[j] - stiff * step[j]);
  }
  for (int j = 0; j < np; j++)
    for (int k = 0; k < np; k++)
      rise[j] -= 0.5 * (at->hess[j * np + k] + slot->eval.hess[j * np + k]) * step[k];
}

/** Update polish->second (BFGS) if the gradient's change along a step (mill_polish_secant) differs
 *  from the prediction of hess + second.  Curvature hess lacks the residuals' second derivatives,
 *  which matter for wrong templates.  Powell's (1978) damping keeps the sum positive definite. */
MILL_HD_CALLED static inline void mill_polish_learn(const mill_model *m, mill_polish *p,
                                                    const double *step, const double *rise)
{
  const int np = m->n_par;
  double known[MILL_MAX_PAR], y[MILL_MAX_PAR], expected = 0.0, found = 0.0, damping = 1.0;
  for (int j = 0; j < np; j++) {
    known[j] = y[j] = 0.0; /* curvature times step: known so far, and found by this step */
    for (int k = 0; k < np; k++) {
      known[j] += p->second[j * np + k] * step[k];
      y[j] += p->at.hess[j * np + k] * step[k];
    }
    known[j] += y[j];
    y[j] += rise[j];
    expected += step[j] * known[j];
    found += step[j] * y[j];
  }
  if (!(expected > 0.0) || !(fabs(found - expected) > MILL_POLISH_LEARN * expected))
    return;
  if (found < MILL_POLISH_FLAT * expected)
    damping = (1.0 - MILL_POLISH_FLAT) * expected / (expected - found);
  p->learned = 1;
  p->n_learned++;
  found = damping * found + (1.0 - damping) * expected;
  for (int j = 0; j < np; j++)
    y[j] = damping * y[j] + (1.0 - damping) * known[j];
  for (int j = 0; j < np; j++)
    for (int k = 0; k < np; k++)
      p->second[j * np + k] += y[j] * y[k] / found - known[j] * known[k] / expected;
}

/** Increase the damping until a step from polish->at predicts no rise of F, and set slot->theta to
 *  the step's end.  Returns 0 if there is no such step. */
MILL_HD_CALLED static inline int mill_polish_propose(const mill_model *m, mill_slot *slot,
                                                     mill_polish_axes *axes)
{
  mill_polish *p = &slot->polish;
  for (;;) {
    if (p->lambda > MILL_POLISH_LAMBDA_MAX)
      return 0;
    if (mill_polish_step(m, slot, slot->theta, axes) && p->pred > -MILL_POLISH_TOLERANCE)
      return 1;
    if (p->learned) /* updates learned elsewhere may mislead here */
      mill_polish_forget(m, p);
    else
      p->lambda = p->lambda * 8.0 + 1e-6;
  }
}

/** Predict F's decrease in the step after the next, from the predictions for the last and the next
 *  step.  Infinity: the curvature was updated, or the next decrease is above half of the last. */
MILL_HD static inline double mill_polish_rest(const mill_polish *p)
{
  if (p->learned || !(p->pred >= 0.0 && p->pred < MILL_POLISH_NEAR_END) ||
      !(p->pred < 0.5 * p->promised))
    return (double)INFINITY;
  return p->pred * (p->pred / p->promised);
}

/** Digest the Jacobian at slot->theta, where F with penalties is f, and propose the next point.
 *  Returns enum mill_polish_outcome.  Convergence sets polish->end; F is not evaluated there. */
MILL_HD_CALLED static inline int mill_polish_tell(const mill_model *m, mill_slot *slot, double f)
{
  mill_polish *p = &slot->polish;
  const int np = m->n_par;
  int finite = isfinite(f);
  for (int j = 0; j < np; j++)
    finite = finite && isfinite(slot->eval.grad[j]);
  p->n_jac++;
  p->promised = p->pred; /* by the step to slot->theta; mill_polish_propose predicts the next */
  if (!p->have && !finite)
    return MILL_POLISH_FAILED;
  const int accept = finite && (!p->have || f < p->at.f);
  double step[MILL_MAX_PAR], rise[MILL_MAX_PAR];
  p->n_rejected = accept ? 0 : p->n_rejected + 1;
  if (p->n_rejected > 1) /* F rose twice in a row: the updates mislead */
    mill_polish_forget(m, p);
  const int learn = p->have && finite && p->n_rejected < 2;
  if (learn) /* before mill_polish_take replaces polish->at */
    mill_polish_secant(m, slot, step, rise);
  if (accept) {
    if (p->have) { /* damp less if F fell as predicted, more if it fell by less */
      const double ratio = (p->at.f - f) / (p->pred > 0.0 ? p->pred : 1e-300);
      p->lambda = fmax(p->lambda * (ratio > 0.75 ? 0.1 : (ratio > 0.25 ? 0.5 : 3.0)), 1e-12);
    }
    mill_polish_take(m, slot, f);
  } else {
    p->lambda = fmax(8.0 * p->lambda, MILL_POLISH_LAMBDA_END);
  }
  if (learn)
    mill_polish_learn(m, p, step, rise);
  if (!mill_polish_propose(m, slot, NULL))
    return MILL_POLISH_FAILED;
  const double tolerance = p->learned ? MILL_POLISH_TOLERANCE_BENT : MILL_POLISH_TOLERANCE;
  const int ends = p->pred < tolerance || (accept && mill_polish_rest(p) < MILL_POLISH_REST);
  if (ends && p->lambda <= MILL_POLISH_LAMBDA_END) {
    for (int j = 0; j < np; j++)
      p->end[j] = slot->theta[j];
    return MILL_POLISH_CONVERGED;
  }
  if (p->n_jac >= MILL_POLISH_MAX_JAC)
    return MILL_POLISH_FAILED;
  return MILL_POLISH_GO;
}
