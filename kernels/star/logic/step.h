/* SPDX-License-Identifier: BSD-3-Clause */
/** A step of the polish: damped, within limits, held back by the penalty beyond hull facets. */
#pragma once

#include "kernels/math/linalg.h"
#include "kernels/star/logic/parameters.h"

/** State of a facet: inactive, active, or linearly dependent on the active ones. */
enum mill_facet_state { MILL_FACET_OFF = 0, MILL_FACET_ON, MILL_FACET_USELESS };
/** A point up to this distance beyond a facet, in mapped units, counts as inside. */
#define MILL_FACET_NEAR 1e-9

/** A step from polish->at under construction. */
typedef struct mill_polish_try {
  double delta[MILL_MAX_PAR]; /**< step of the inner parameters */
  int pin[MILL_MAX_PAR];      /**< -1, 1: the parameter is held at its lower, upper limit */
  int idx[MILL_MAX_PAR], n;   /**< parameters that are neither fixed nor pinned */
  mill_active_facet *facet;   /**< [n_facet] facets that the step has crossed */
  int n_facet;
} mill_polish_try;

/** Add facet i of hull h, with distance and slopes at `at`, to the facets that the step crosses. */
MILL_HD static inline void mill_polish_enter_facet(const mill_model *m, const double *at, int h,
                                                   int i, mill_polish_try *t)
{
  const mill_hull *hull = &m->hull[h];
  const double *normal = hull->facet + (size_t)i * (size_t)(hull->n_label + 1);
  double mapped[MILL_MAX_LABEL];
  mill_active_facet *f = &t->facet[t->n_facet++];
  mill_map_labels(m, at, mapped);
  f->hull = h;
  f->facet = i;
  f->value = mill_facet_value(hull, i, mapped);
  for (int j = 0; j < MILL_MAX_PAR; j++)
    f->slope[j] = 0.0;
  for (int l = 0; l < hull->n_label; l++) {
    const int j = MILL_PAR_LABEL0 + hull->label[l];
    f->slope[j] = normal[l] * mill_label_map_slope(&m->label[hull->label[l]], at[j]);
  }
}

/** Add the facets that the step from `at` crosses to t->facet.  Returns 1 if any is new. */
MILL_HD_CALLED static inline int mill_polish_cross(const mill_model *m, const double *at,
                                                   mill_polish_try *t)
{
  double end[MILL_MAX_PAR], end_mapped[MILL_MAX_LABEL];
  const int n_known = t->n_facet;
  for (int j = 0; j < m->n_par; j++)
    end[j] = at[j] + t->delta[j];
  mill_map_labels(m, end, end_mapped);
  for (int h = 0; h < m->n_hull; h++)
    for (int i = 0; i < m->hull[h].n_facet && t->n_facet < MILL_POLISH_MAX_FACET; i++) {
      int known = 0;
      for (int k = 0; k < n_known; k++)
        known |= t->facet[k].hull == h && t->facet[k].facet == i;
      if (!known && mill_facet_value(&m->hull[h], i, end_mapped) > MILL_FACET_NEAR)
        mill_polish_enter_facet(m, at, h, i, t);
    }
  return t->n_facet > n_known;
}

/** Compute the damped curvature a [n][n] of the n parameters that are neither fixed nor pinned. */
MILL_HD_CALLED static inline void mill_polish_curvature(const mill_model *m, const mill_polish *p,
                                                        const mill_polish_try *t, double *a)
{
  const int n = t->n;
  for (int r = 0; r < n; r++) {
    const int j = t->idx[r];
    const double unit = mill_par_scale(m, j), *hess = p->at.hess + j * m->n_par;
    for (int c = 0; c < n; c++)
      a[r * n + c] = hess[t->idx[c]] + p->second[j * m->n_par + t->idx[c]];
    a[r * n + r] += p->lambda * (hess[j] + 1e-6 / (unit * unit)); /* not 0 for flat F */
  }
}

/** Add the hull penalty's curvature to a [n][n].  A facet's part is proportional to its force. */
MILL_HD static inline void mill_polish_add_hulls(const mill_polish_try *t, double weight, double *a)
{
  const int n = t->n;
  double all_forces = 0.0;
  for (int f = 0; f < t->n_facet; f++)
    all_forces += t->facet[f].force;
  for (int f = 0; f < t->n_facet; f++) {
    const mill_active_facet *facet = &t->facet[f];
    if (!(facet->force > 0.0))
      continue;
    for (int r = 0; r < n; r++)
      for (int c = 0; c < n; c++)
        a[r * n + c] += weight * (facet->force / all_forces) * facet->slope[t->idx[r]] *
                        facet->slope[t->idx[c]];
  }
}

/** Return how far the step ends beyond facet i, less the distance that the penalty lets it go: (sum
 *  of all forces) / weight.  mill_polish_forces activates the facet of the largest result > 0. */
MILL_HD static inline double mill_polish_beyond(const mill_polish_try *t, double weight, int i)
{
  const mill_active_facet *facet = &t->facet[i];
  double x = facet->reach; /* without forces */
  for (int f = 0; f < t->n_facet; f++)
    if (t->facet[f].force > 0.0) {
      double along = 1.0 / weight; /* decrease of x per unit of the force of facet f */
      for (int r = 0; r < t->n; r++)
        along += facet->half[r] * t->facet[f].half[r];
      x -= along * t->facet[f].force;
    }
  return x;
}

/** Solve for the active facets' forces (Lagrange multipliers).  Change facet.force towards the
 *  solution; if a force becomes 0 on the way, stop there and make its facet inactive.  Returns 1 if
 *  a facet became inactive, 0 at the solution, -1 if facets are linearly dependent. */
MILL_HD_CALLED static inline int mill_polish_balance(mill_polish_try *t, double weight, double *a)
{
  int active[MILL_MAX_PAR], k = 0, first = -1; /* first: index of the force that is first 0 */
  double goal[MILL_MAX_PAR], way = 1.0;        /* way: fraction of the way to goal */
  for (int f = 0; f < t->n_facet; f++)
    if (t->facet[f].state == MILL_FACET_ON) {
      if (k == MILL_MAX_PAR)
        return -1;
      active[k++] = f;
    }
  for (int i = 0; i < k; i++) { /* a: how much each force reduces each facet's reach */
    goal[i] = t->facet[active[i]].reach;
    for (int l = 0; l <= i; l++) {
      a[i * k + l] = 1.0 / weight;
      for (int r = 0; r < t->n; r++)
        a[i * k + l] += t->facet[active[i]].half[r] * t->facet[active[l]].half[r];
    }
  }
  if (mill_cholesky(k, a, k) != 0)
    return -1;
  mill_cholesky_solve(k, a, k, goal);
  for (int i = 0; i < k; i++) { /* force i is 0 after the fraction now / (now - goal) of the way */
    const double now = t->facet[active[i]].force;
    if (!(goal[i] > 0.0) && (first < 0 || now < way * (now - goal[i]))) {
      way = now > 0.0 ? now / (now - goal[i]) : 0.0;
      first = i;
    }
  }
  for (int i = 0; i < k; i++)
    t->facet[active[i]].force += way * (goal[i] - t->facet[active[i]].force);
  if (first < 0)
    return 0;
  t->facet[active[first]].force = 0.0;
  t->facet[active[first]].state = MILL_FACET_OFF;
  return 1;
}

/** Find the facets' forces on a step d.
 *
 *  The step minimises grad.d + d.hess.d + weight t^2.  Here t, the distance beyond the farthest
 *  facet, is at least value + slope.d for each facet.  The forces are the Lagrange multipliers of
 *  these conditions: none is negative, and their sum is weight t.
 *
 *  Active-set method for non-negative least squares (Lawson & Hanson 1974, chapter 23): activate
 *  the facet that the step is farthest beyond, then balance the active facets' forces; repeat.
 *  Work space: a [MILL_MAX_PAR^2]. */
MILL_HD_CALLED static inline void mill_polish_forces(mill_polish_try *t, double weight, double *a)
{
  for (int f = 0; f < t->n_facet; f++) {
    t->facet[f].state = MILL_FACET_OFF;
    t->facet[f].force = 0.0;
  }
  for (int pass = 0; pass < 3 * MILL_POLISH_MAX_FACET; pass++) { /* a limit, in case of rounding */
    int worst = -1;
    double most = MILL_FACET_NEAR;
    for (int f = 0; f < t->n_facet; f++) {
      if (t->facet[f].state != MILL_FACET_OFF)
        continue;
      const double x = mill_polish_beyond(t, weight, f);
      if (x > most) {
        most = x;
        worst = f;
      }
    }
    if (worst < 0)
      return;
    t->facet[worst].state = MILL_FACET_ON;
    int more = 1;
    while (more > 0)
      more = mill_polish_balance(t, weight, a);
    if (more < 0 || t->facet[worst].state == MILL_FACET_OFF)
      t->facet[worst].state = MILL_FACET_USELESS; /* do not choose it again in this call */
  }
}

/** Solve for the step of the parameters t->idx, with the crossed facets' penalty, from minus half
 *  the gradient (rhs [n], overwritten) and the curvature's Cholesky factor (slot->space.matrix). */
MILL_HD_CALLED static inline void mill_polish_minimise(const mill_model *m, mill_slot *slot,
                                                       double *rhs, mill_polish_try *t)
{
  const double *a = slot->space.matrix[0];
  const int n = t->n;
  mill_cholesky_forward(n, a, n, rhs);
  for (int f = 0; f < t->n_facet; f++) {
    mill_active_facet *facet = &t->facet[f];
    facet->reach = facet->value; /* becomes the distance at the end of the step without forces */
    for (int k = 0; k < m->n_par; k++)
      if (t->pin[k])
        facet->reach += facet->slope[k] * t->delta[k];
    for (int r = 0; r < n; r++)
      facet->half[r] = facet->slope[t->idx[r]];
    mill_cholesky_forward(n, a, n, facet->half);
    for (int r = 0; r < n; r++)
      facet->reach += facet->half[r] * rhs[r];
  }
  mill_polish_forces(t, slot->hull_weight, slot->space.matrix[1]);
  for (int f = 0; f < t->n_facet; f++)
    if (t->facet[f].force > 0.0)
      for (int r = 0; r < n; r++)
        rhs[r] -= t->facet[f].force * t->facet[f].half[r];
  mill_cholesky_backward(n, a, n, rhs);
  for (int r = 0; r < n; r++)
    t->delta[t->idx[r]] = rhs[r];
}

/** Solve for the damped step of the parameters that are neither fixed nor pinned, with the penalty
 *  of the crossed facets (t->facet).  Unless NULL, axes gets the Cholesky factor of the curvature.
 *  Returns 0 if the curvature is not positive definite. */
MILL_HD_CALLED static inline int mill_polish_solve(const mill_model *m, mill_slot *slot,
                                                   mill_polish_try *t, mill_polish_axes *axes)
{
  const mill_polish *p = &slot->polish;
  const int np = m->n_par;
  double *a = slot->space.matrix[0], rhs[MILL_MAX_PAR];
  int n = 0;
  for (int j = 0; j < np; j++)
    if (!mill_par_held(m, slot, j) && !t->pin[j])
      t->idx[n++] = j;
  t->n = n;
  mill_polish_curvature(m, p, t, a);
  if (n > 0 && mill_cholesky(n, a, n) != 0)
    return 0;
  for (int r = 0; r < n; r++) {
    const int j = t->idx[r];
    rhs[r] = -0.5 * p->at.grad[j];
    for (int k = 0; k < np; k++)
      if (t->pin[k]) /* the step of a pinned parameter changes the gradient */
        rhs[r] -= (p->at.hess[j * np + k] + p->second[j * np + k]) * t->delta[k];
  }
  mill_polish_minimise(m, slot, rhs, t);
  if (axes) {
    mill_polish_curvature(m, p, t, a); /* a was overwritten by its Cholesky factor */
    mill_polish_add_hulls(t, slot->hull_weight, a);
    if (n > 0 && mill_cholesky(n, a, n) != 0)
      return 0;
    axes->n = n;
    for (int r = 0; r < n; r++)
      axes->idx[r] = t->idx[r];
    for (int e = 0; e < n * n; e++)
      axes->factor[e] = a[e];
  }
  return 1;
}

/** Shorten the step to the trust region (mill_par_limit), and pin parameters that would leave their
 *  limits.  Returns 1 if it pinned some (solve for the rest), -1 if the step is not finite. */
MILL_HD static inline int mill_polish_bound(const mill_model *m, const mill_polish *p,
                                            mill_polish_try *t)
{
  double shrink = 1.0;
  int changed = 0;
  for (int r = 0; r < t->n; r++) {
    const double limit = mill_par_limit(m, t->idx[r]), length = fabs(t->delta[t->idx[r]]);
    if (!(length * shrink <= limit))
      shrink = limit / length;
  }
  if (!(shrink > 0.0)) /* the step is not finite */
    return -1;
  for (int r = 0; r < t->n; r++) {
    const int j = t->idx[r];
    const double here = mill_par_inner(m, j, p->at.theta[j]);
    const double lo = mill_par_inner(m, j, mill_par_min(m, j)) - here;
    const double hi = mill_par_inner(m, j, mill_par_max(m, j)) - here;
    const double d = t->delta[j] * shrink;
    if (d < lo || d > hi) {
      t->delta[j] = d < lo ? lo : hi;
      t->pin[j] = d < lo ? -1 : 1;
      changed = 1;
    }
  }
  for (int r = 0; r < t->n; r++)
    if (!t->pin[t->idx[r]])
      t->delta[t->idx[r]] *= shrink;
  return changed;
}

/** Return by how much the step is predicted to lower the sum of F and the hull penalty.  The
 *  Hessian of F is 2 (at.hess + second) of slot->polish. */
MILL_HD static inline double mill_polish_promise(const mill_model *m, const mill_slot *slot,
                                                 const mill_polish_try *t)
{
  const mill_polish *p = &slot->polish;
  const mill_point *at = &p->at;
  const double weight = slot->hull_weight;
  double change = 0.0, before = 0.0, after = 0.0; /* before, after: distance beyond the hulls */
  for (int j = 0; j < m->n_par; j++) {
    change += at->grad[j] * t->delta[j];
    for (int k = 0; k < m->n_par; k++)
      change +=
          t->delta[j] * (at->hess[j * m->n_par + k] + p->second[j * m->n_par + k]) * t->delta[k];
  }
  for (int f = 0; f < t->n_facet; f++) {
    const double v = t->facet[f].value;
    double end = v; /* to first order */
    for (int j = 0; j < m->n_par; j++)
      end += t->facet[f].slope[j] * t->delta[j];
    before = v > before ? v : before;
    after = end > after ? end : after;
  }
  return weight * before * before - (change + weight * after * after);
}

/** Set theta to a trial point, a step from polish->at.  Returns 0 if there is no step.  Unless
 *  NULL, axes gets the Cholesky factor of the step's curvature (mill_polish_solve). */
MILL_HD_CALLED static inline int mill_polish_step(const mill_model *m, mill_slot *slot,
                                                  double *theta, mill_polish_axes *axes)
{
  mill_polish *p = &slot->polish;
  mill_polish_try t;
  t.facet = slot->space.facet;
  t.n_facet = t.n = 0;
  for (int j = 0; j < m->n_par; j++) {
    t.pin[j] = 0;
    t.delta[j] = 0.0;
  }
  /* each pass adds a facet or pins a parameter */
  int changed = 1;
  for (int pass = 0; pass <= MILL_POLISH_MAX_FACET + MILL_MAX_PAR; pass++) {
    const int has_new = mill_polish_cross(m, p->at.theta, &t);
    if (!has_new && !changed)
      break;
    if (!mill_polish_solve(m, slot, &t, axes))
      return 0;
    changed = mill_polish_bound(m, p, &t);
    if (changed < 0)
      return 0;
  }
  p->pred = mill_polish_promise(m, slot, &t);
  for (int j = 0; j < m->n_par; j++) {
    /* set limits exactly: v sin i converted to u and back is rounded, coarsely near 0 */
    if (t.pin[j] != 0)
      theta[j] = t.pin[j] < 0 ? mill_par_min(m, j) : mill_par_max(m, j);
    else if (t.delta[j] == 0.0)
      theta[j] = p->at.theta[j];
    else
      theta[j] = mill_par_outer(m, j, mill_par_inner(m, j, p->at.theta[j]) + t.delta[j]);
  }
  return 1;
}
