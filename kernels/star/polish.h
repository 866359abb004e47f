/* SPDX-License-Identifier: BSD-3-Clause */
/** Levenberg-Marquardt polish with variable projection, a box and hull facets.
 *
 *  Every trial point is evaluated with its derivatives, because a Jacobian
 *  brings the value too and most steps are accepted.  Steps are taken in v sin i's
 *  inner parameter u (kernels/math/rotation.h), and gradient and curvature are with respect
 *  to it; points hold v sin i itself.  Serial code: one thread of a star's block runs
 *  it.  Settings: docs/science/numerics.md.
 */
#ifndef MILL_POLISH_H
#define MILL_POLISH_H

#include "kernels/math/hull.h"
#include "kernels/math/linalg.h"
#include "kernels/math/rotation.h"
#include "kernels/star/slot.h"

/** Labels within this distance of a hull's facet are at the edge. */
#define MILL_HULL_EDGE 1e-3

#define MILL_POLISH_TOLERANCE      1e-2 /**< predicted decrease of -2 ln L that ends it */
#define MILL_POLISH_TOLERANCE_BENT 2e-3 /**< the same where the curvature was wrong */
#define MILL_POLISH_NOISE          1e-3 /**< noise of F, and what a step may promise in vain */
#define MILL_POLISH_NOISE_STEP     1e-2
#define MILL_POLISH_NOISE_LIGHT    0.1  /**< the same of a step with little damping */
#define MILL_POLISH_LAMBDA         1e-3 /**< first damping */
#define MILL_POLISH_LAMBDA_END     1e-2 /**< damping above which a small step proves nothing */
#define MILL_POLISH_LAMBDA_MAX     1e10
#define MILL_POLISH_LEARN          0.25 /**< curvature along a step that is wrong by more is learned from, */
#define MILL_POLISH_FLAT           0.1 /**< down to this part of what it was */
enum { MILL_POLISH_MAX_JAC = 41 };
/** A facet holds the step, need not, or cannot because the holding facets determine it. */
enum mill_facet_state { MILL_FACET_OFF = 0, MILL_FACET_ON, MILL_FACET_USELESS };
/** Distance from a hull, in its units, that does not count. */
#define MILL_FACET_NEAR 1e-9

/** Typical uncertainty of a parameter; velocities as of a star at S/N 10-20. */
MILL_HD static inline double mill_par_scale(const mill_model *m, int j)
{
  if (j == MILL_PAR_VRAD || j >= m->n_deriv)
    return 3.0;
  if (j == MILL_PAR_VSINI)
    return 10.0;
  return m->label[j - MILL_PAR_LABEL0].scale;
}

/** Largest step of a parameter in one iteration. */
MILL_HD static inline double mill_par_limit(const mill_model *m, int j)
{
  return j < MILL_PAR_LABEL0 || j >= m->n_deriv ? 60.0 : 7.0 * m->label[j - MILL_PAR_LABEL0].scale;
}

/** Box of a parameter; labels have none (the hulls bound them), nor have velocity offsets. */
MILL_HD static inline double mill_par_min(const mill_model *m, int j)
{
  return j == MILL_PAR_VRAD ? m->set.min_vel_km_s
                            : (j == MILL_PAR_VSINI ? m->set.min_vsini_km_s : -INFINITY);
}

MILL_HD static inline double mill_par_max(const mill_model *m, int j)
{
  return j == MILL_PAR_VRAD ? m->set.max_vel_km_s
                            : (j == MILL_PAR_VSINI ? m->set.max_vsini_km_s : INFINITY);
}

/** Is a parameter at a limit of its box? */
MILL_HD static inline int mill_par_at_limit(const mill_model *m, int j, double x)
{
  return x == mill_par_min(m, j) || x == mill_par_max(m, j);
}

/** A parameter as the fit steps in it: u for v sin i, itself otherwise. */
MILL_HD static inline double mill_par_inner(const mill_model *m, int j, double x)
{
  return j == MILL_PAR_VSINI ? mill_vsini_inner(m->set.rotation, x) : x;
}

/** The parameter whose inner value is u, within the box; the ends of the box exactly. */
MILL_HD static inline double mill_par_outer(const mill_model *m, int j, double u)
{
  const double lo = mill_par_min(m, j), hi = mill_par_max(m, j);
  if (j != MILL_PAR_VSINI)
    return u < lo ? lo : (u > hi ? hi : u);
  if (u <= mill_vsini_inner(m->set.rotation, lo))
    return lo;
  if (u >= mill_vsini_inner(m->set.rotation, hi))
    return hi;
  const double x = mill_vsini_outer(m->set.rotation, u);
  return x < lo ? lo : (x > hi ? hi : x);
}

/** d(parameter)/d(inner); v sin i below 1 km/s has the slope of 1 km/s, so that it stays
 *  finite: only how well a step is predicted depends on it. */
MILL_HD static inline double mill_par_slope(const mill_model *m, int j, double x)
{
  if (j != MILL_PAR_VSINI)
    return 1.0;
  return mill_vsini_outer_slope(m->set.rotation,
                                mill_vsini_inner(m->set.rotation, x > 1.0 ? x : 1.0));
}

MILL_HD static inline void mill_map_labels(const mill_model *m, const double *theta, double *mapped)
{
  for (int l = 0; l < m->n_label; l++)
    mapped[l] = mill_label_map(&m->label[l], theta[MILL_PAR_LABEL0 + l]);
}

/** Labels this far outside the hulls (in mapped units) are rejected, like velocities outside their
 *  limits: the emulator is meaningless there, and its values can make the likelihood rounding
 *  noise, which a star with one pixel of 1e9 would take for a minimum. */
#define MILL_HULL_FAR 5.0
/** F of a point outside the limits (rvspecfit's value). */
#define MILL_OFF_LIMITS 1e30

/** Hull penalty at theta. */
MILL_HD_CALLED static inline double mill_hull_penalty(const mill_model *m, const mill_slot *slot,
                                                      const double *theta)
{
  double mapped[MILL_MAX_LABEL];
  mill_map_labels(m, theta, mapped);
  const double d = mill_hull_distance(m->n_hull, m->hull, mapped);
  return d < MILL_HULL_FAR ? slot->hull_weight * d * d : MILL_OFF_LIMITS;
}

/** Hull penalty and priors at theta, to be added to the segments' F. */
MILL_HD_CALLED static inline double mill_penalty(const mill_model *m, const mill_slot *slot,
                                                 const double *theta)
{
  double f = mill_hull_penalty(m, slot, theta);
  for (int j = 0; j < m->n_par; j++)
    f += mill_prior_penalty(m, slot, j, theta[j]);
  return f;
}

/** A step from polish->at under construction. */
typedef struct mill_polish_try {
  double delta[MILL_MAX_PAR]; /**< of the inner parameters */
  int pin[MILL_MAX_PAR];      /**< -1, 1: the parameter is held at its lower, upper limit */
  int idx[MILL_MAX_PAR], n;   /**< parameters that are neither fixed nor pinned */
  mill_active_facet *facet;   /**< [n_facet] that it has crossed */
  int n_facet;
} mill_polish_try;

/** Enter facet i of hull h among those that the step has crossed. */
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
  for (int j = 0; j < m->n_par; j++)
    f->slope[j] = 0.0;
  for (int l = 0; l < hull->n_label; l++) {
    const int j = MILL_PAR_LABEL0 + hull->label[l];
    f->slope[j] = normal[l] * mill_label_map_slope(&m->label[hull->label[l]], at[j]);
  }
}

/** Enter the facets that the step from `at` crosses; without a step those that `at` is beyond.
 *  Returns whether there are new ones. */
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

/** Damped curvature a [n][n] of the parameters that are neither fixed nor pinned. */
MILL_HD_CALLED static inline void mill_polish_curvature(const mill_model *m, const mill_polish *p,
                                                        const mill_polish_try *t, double *a)
{
  const int n = t->n;
  for (int r = 0; r < n; r++) {
    const int j = t->idx[r];
    const double unit = mill_par_scale(m, j), *hess = p->at.hess + j * m->n_par;
    for (int c = 0; c < n; c++)
      a[r * n + c] = hess[t->idx[c]] + p->second[j * m->n_par + t->idx[c]];
    a[r * n + r] += p->lambda * (hess[j] + 1e-6 / (unit * unit));
  }
}

/** Add the curvature of the hull penalty, shared among the facets as they hold the step. */
MILL_HD static inline void mill_polish_add_hulls(const mill_polish_try *t, double weight, double *a)
{
  const int n = t->n;
  double force = 0.0;
  for (int f = 0; f < t->n_facet; f++)
    force += t->facet[f].force;
  for (int f = 0; f < t->n_facet; f++) {
    const mill_active_facet *facet = &t->facet[f];
    for (int r = 0; r < n && facet->force > 0.0; r++)
      for (int c = 0; c < n; c++)
        a[r * n + c] +=
            weight * (facet->force / force) * facet->slope[t->idx[r]] * facet->slope[t->idx[c]];
  }
}

/** Distance of a facet at the end of the step that the forces of all of them make, less that
 *  which the forces belong to. */
MILL_HD static inline double mill_polish_beyond(const mill_polish_try *t, double weight, int i)
{
  const mill_active_facet *facet = &t->facet[i];
  double x = facet->reach;
  for (int f = 0; f < t->n_facet; f++)
    if (t->facet[f].force > 0.0) {
      double along = 1.0 / weight;
      for (int r = 0; r < t->n; r++)
        along += facet->half[r] * t->facet[f].half[r];
      x -= along * t->facet[f].force;
    }
  return x;
}

/** Solve for the forces of the facets that are on, as if all others were 0, and go from the
 *  present forces towards them until the first becomes 0, which is switched off.  1: some did;
 *  0: these are the forces; -1: the slopes of the facets depend on each other. */
MILL_HD_CALLED static inline int mill_polish_balance(mill_polish_try *t, double weight, double *a)
{
  int on[MILL_MAX_PAR], k = 0, first = -1;
  double z[MILL_MAX_PAR], way = 1.0;
  for (int f = 0; f < t->n_facet; f++)
    if (t->facet[f].state == MILL_FACET_ON) {
      if (k == MILL_MAX_PAR)
        return -1;
      on[k++] = f;
    }
  for (int i = 0; i < k; i++) {
    z[i] = t->facet[on[i]].reach;
    for (int l = 0; l <= i; l++) {
      a[i * k + l] = 1.0 / weight;
      for (int r = 0; r < t->n; r++)
        a[i * k + l] += t->facet[on[i]].half[r] * t->facet[on[l]].half[r];
    }
  }
  if (mill_cholesky(k, a, k) != 0)
    return -1;
  mill_cholesky_solve(k, a, k, z);
  for (int i = 0; i < k; i++) {
    const double now = t->facet[on[i]].force;
    if (!(z[i] > 0.0) && (first < 0 || now < way * (now - z[i]))) {
      way = now > 0.0 ? now / (now - z[i]) : 0.0;
      first = i;
    }
  }
  for (int i = 0; i < k; i++)
    t->facet[on[i]].force += way * (z[i] - t->facet[on[i]].force);
  if (first < 0)
    return 0;
  t->facet[on[first]].force = 0.0;
  t->facet[on[first]].state = MILL_FACET_OFF;
  return 1;
}

/** Forces of the facets.  The penalty is weight t^2, t the distance of the farthest one, so that a
 *  step d minimises grad.d + d.hess.d + weight t^2 with t not below any distance value + slope.d.
 *  The multipliers of these conditions, the forces, are 0 or more, sum to weight t, and are the
 *  non-negative least squares problem of Lawson & Hanson (1974, chapter 23), solved by their
 *  method: switch on the facet that the step is farthest beyond, balance the forces, and switch off
 *  those that would have to pull.  a [MILL_MAX_PAR^2]: work space. */
MILL_HD_CALLED static inline void mill_polish_forces(mill_polish_try *t, double weight, double *a)
{
  for (int f = 0; f < t->n_facet; f++) {
    t->facet[f].state = MILL_FACET_OFF;
    t->facet[f].force = 0.0;
  }
  for (int pass = 0; pass < 3 * MILL_POLISH_MAX_FACET; pass++) {
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
      t->facet[worst].state = MILL_FACET_USELESS;
  }
}

/** Solve for the step of the parameters that are neither fixed nor pinned, with damping and the
 *  facets that it has crossed.  The factor of the curvature goes to axes too, unless NULL.
 *  0: the curvature is not positive definite. */
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
      if (t->pin[k])
        rhs[r] -= (p->at.hess[j * np + k] + p->second[j * np + k]) * t->delta[k];
  }
  mill_cholesky_forward(n, a, n, rhs);
  for (int f = 0; f < t->n_facet; f++) {
    mill_active_facet *facet = &t->facet[f];
    facet->reach = facet->value;
    for (int k = 0; k < np; k++)
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
  if (axes) {
    mill_polish_curvature(m, p, t, a);
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

/** Distance of a facet at the end of the step, as far as its slope tells. */
MILL_HD static inline double mill_polish_facet_end(const mill_model *m, const mill_polish_try *t,
                                                   const mill_active_facet *facet)
{
  double v = facet->value;
  for (int j = 0; j < m->n_par; j++)
    v += facet->slope[j] * t->delta[j];
  return v;
}

/** Shorten the step to the largest one allowed.  A parameter that would leave its box is pinned to
 *  it, and the rest has to be solved again: 1.  0: nothing was pinned, -1: there is no step. */
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
  if (!(shrink > 0.0))
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

/** Decrease of F that the step promises, hull penalty included. */
MILL_HD static inline double mill_polish_promise(const mill_model *m, const mill_slot *slot,
                                                 const mill_polish_try *t)
{
  const mill_polish *p = &slot->polish;
  const mill_point *at = &p->at;
  const double weight = slot->hull_weight;
  double model = 0.0, before = 0.0, after = 0.0; /* the farthest facet's distance */
  for (int j = 0; j < m->n_par; j++) {
    model += at->grad[j] * t->delta[j];
    for (int k = 0; k < m->n_par; k++)
      model +=
          t->delta[j] * (at->hess[j * m->n_par + k] + p->second[j * m->n_par + k]) * t->delta[k];
  }
  for (int f = 0; f < t->n_facet; f++) {
    const double v = t->facet[f].value, end = mill_polish_facet_end(m, t, &t->facet[f]);
    before = v > before ? v : before;
    after = end > after ? end : after;
  }
  return weight * before * before - (model + weight * after * after);
}

/** Step from polish->at into theta (trial); returns 0 when there is none.  axes, unless
 *  NULL, gets the curvature that the step was solved with: over the parameters that are
 *  neither fixed nor pinned, with damping and with the facets that hold the step. */
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
  /* each pass enters a facet or pins a parameter */
  int changed = 1;
  for (int pass = 0; pass <= MILL_POLISH_MAX_FACET + MILL_MAX_PAR; pass++) {
    if (!(mill_polish_cross(m, p->at.theta, &t) | changed))
      break;
    if (!mill_polish_solve(m, slot, &t, axes))
      return 0;
    changed = mill_polish_bound(m, p, &t);
    if (changed < 0)
      return 0;
  }
  p->pred = mill_polish_promise(m, slot, &t);
  for (int j = 0; j < m->n_par; j++) {
    /* limits exactly: the way to u and back rounds, and near 0 the root of that is large */
    if (t.pin[j] != 0)
      theta[j] = t.pin[j] < 0 ? mill_par_min(m, j) : mill_par_max(m, j);
    else if (t.delta[j] == 0.0)
      theta[j] = p->at.theta[j];
    else
      theta[j] = mill_par_outer(m, j, mill_par_inner(m, j, p->at.theta[j]) + t.delta[j]);
  }
  return 1;
}

/** Forget what steps taught of the curvature. */
MILL_HD_CALLED static inline void mill_polish_forget(const mill_model *m, mill_polish *p)
{
  p->learned = 0;
  for (int e = 0; e < m->n_par * m->n_par; e++)
    p->second[e] = 0.0;
}

/** Start at theta, with what is known of the curvature; the next question is for its Jacobian. */
MILL_HD_CALLED static inline void mill_polish_restart(const mill_model *m, mill_slot *slot,
                                                      const double *theta)
{
  mill_polish *p = &slot->polish;
  p->have = 0;
  p->n_jac = 0;
  p->lambda = MILL_POLISH_LAMBDA;
  p->pred = 0.0;
  p->n_rejected = 0;
  slot->rough = MILL_ROUGH_NONE;
  for (int j = 0; j < m->n_par; j++) {
    const double lo = mill_par_min(m, j), hi = mill_par_max(m, j);
    slot->theta[j] = theta[j] < lo ? lo : (theta[j] > hi ? hi : theta[j]);
  }
}

/** Start at theta. */
MILL_HD_CALLED static inline void mill_polish_begin(const mill_model *m, mill_slot *slot,
                                                    const double *theta)
{
  mill_polish_forget(m, &slot->polish);
  mill_polish_restart(m, slot, theta);
}

enum mill_polish_outcome {
  MILL_POLISH_GO = 0,
  MILL_POLISH_CONVERGED,
  MILL_POLISH_FAILED,
  MILL_POLISH_MISLED,  /**< F is not what its derivatives say: a simplex should look around */
  MILL_POLISH_CUT,     /**< it has had the Jacobians of a brief start */
  MILL_POLISH_GIVEN_UP /**< it would end where an earlier start did, or in vain */
};

/** Gradient of the Jacobian at slot->theta with respect to parameter j, prior included. */
MILL_HD static inline double mill_polish_gradient(const mill_model *m, const mill_slot *slot, int j)
{
  const double s = mill_prior_sigma(m, slot, j), x = slot->theta[j];
  if (!(s > 0.0))
    return slot->eval.grad[j];
  /* x dx/du of v sin i is finite at 0, where dx/du is not */
  const double rise = j == MILL_PAR_VSINI ? mill_vsini_rise(m->set.rotation, x) : x;
  return slot->eval.grad[j] +
         2.0 * (rise - mill_par_slope(m, j, x) * mill_prior_mean(m, slot, j)) / (s * s);
}

/** Curvature that the prior of parameter j adds at slot->theta. */
MILL_HD static inline double mill_polish_stiffness(const mill_model *m, const mill_slot *slot,
                                                   int j)
{
  const double s = mill_prior_sigma(m, slot, j), slope = mill_par_slope(m, j, slot->theta[j]);
  return s > 0.0 ? slope * slope / (s * s) : 0.0;
}

/** Make the Jacobian at slot->theta, whose total F is f, the point that steps start from. */
MILL_HD_CALLED static inline void mill_polish_take(const mill_model *m, mill_slot *slot, double f)
{
  mill_polish *p = &slot->polish;
  const int np = m->n_par;
  p->have = 1;
  p->at.f = f;
  for (int j = 0; j < np; j++) {
    p->at.theta[j] = slot->theta[j];
    p->at.grad[j] = mill_polish_gradient(m, slot, j);
    for (int k = 0; k < np; k++)
      p->at.hess[j * np + k] = slot->eval.hess[j * np + k];
    p->at.hess[j * np + j] += mill_polish_stiffness(m, slot, j);
  }
}

/** Step from the point that steps start from to the Jacobian at slot->theta, and by how much half the
 *  gradient rises more along it than both curvatures say. */
MILL_HD_CALLED static inline void mill_polish_secant(const mill_model *m, const mill_slot *slot,
                                                     double *step, double *rise)
{
  const mill_point *at = &slot->polish.at;
  const int np = m->n_par;
  for (int j = 0; j < np; j++) {
    step[j] = mill_par_inner(m, j, slot->theta[j]) - mill_par_inner(m, j, at->theta[j]);
    rise[j] = 0.5 * (mill_polish_gradient(m, slot, j) - at->grad[j]);
  }
  for (int j = 0; j < np; j++) {
    rise[j] -= 0.5 * mill_polish_stiffness(m, slot, j) * step[j];
    for (int k = 0; k < np; k++)
      rise[j] -= 0.5 * (at->hess[j * np + k] + slot->eval.hess[j * np + k]) * step[k];
  }
}

/** Learn from a step, where it was not what the curvature says, what that lacks: residuals times
 *  second derivatives, which are large where templates are wrong.  The update of Broyden, Fletcher,
 *  Goldfarb and Shanno keeps the sum positive definite, with what Powell (1978) does where the
 *  gradient hardly rises. */
MILL_HD_CALLED static inline void mill_polish_learn(const mill_model *m, mill_polish *p,
                                                    const double *step, const double *rise)
{
  const int np = m->n_par;
  double with[MILL_MAX_PAR], y[MILL_MAX_PAR], expected = 0.0, found = 0.0, share = 1.0;
  for (int j = 0; j < np; j++) {
    with[j] = y[j] = 0.0;
    for (int k = 0; k < np; k++) {
      with[j] += p->second[j * np + k] * step[k];
      y[j] += p->at.hess[j * np + k] * step[k];
    }
    with[j] += y[j];
    y[j] += rise[j];
    expected += step[j] * with[j];
    found += step[j] * y[j];
  }
  if (!(expected > 0.0) || !(fabs(found - expected) > MILL_POLISH_LEARN * expected))
    return;
  if (found < MILL_POLISH_FLAT * expected)
    share = (1.0 - MILL_POLISH_FLAT) * expected / (expected - found);
  p->learned = 1;
  p->n_learned++;
  found = share * found + (1.0 - share) * expected;
  for (int j = 0; j < np; j++)
    y[j] = share * y[j] + (1.0 - share) * with[j];
  for (int j = 0; j < np; j++)
    for (int k = 0; k < np; k++)
      p->second[j * np + k] += y[j] * y[k] / found - with[j] * with[k] / expected;
}

/** Is the answer to a Jacobian finite? */
MILL_HD static inline int mill_polish_finite(const mill_model *m, const mill_slot *slot, double f)
{
  int finite = isfinite(f);
  for (int j = 0; j < m->n_par; j++)
    finite = finite && isfinite(slot->eval.grad[j]);
  return finite;
}

/** Put a step from polish->at into slot->theta, damping more until there is one that
 *  promises no rise (which is the work of cut-off passes); 0: there is none. */
MILL_HD_CALLED static inline int mill_polish_propose(const mill_model *m, mill_slot *slot,
                                                     mill_polish_axes *axes)
{
  mill_polish *p = &slot->polish;
  for (;;) {
    if (p->lambda > MILL_POLISH_LAMBDA_MAX)
      return 0;
    if (mill_polish_step(m, slot, slot->theta, axes) && p->pred > -MILL_POLISH_TOLERANCE)
      return 1;
    if (p->learned) /* elsewhere */
      mill_polish_forget(m, p);
    else
      p->lambda = p->lambda * 8.0 + 1e-6;
  }
}

/** Digest the Jacobian at slot->theta whose total F (with penalties) is f.
 *
 *  When it has converged, polish->end is the point that the last step leads to, which
 *  promises less than the tolerance and has not been evaluated. */
MILL_HD_CALLED static inline int mill_polish_tell(const mill_model *m, mill_slot *slot, double f)
{
  mill_polish *p = &slot->polish;
  const int np = m->n_par;
  const int finite = mill_polish_finite(m, slot, f);
  p->n_jac++;
  p->promised = p->pred;
  p->gained = p->have ? p->at.f - f : 0.0;
  int accept = finite && (!p->have || f < p->at.f);
  if (!p->have && !finite)
    return MILL_POLISH_FAILED;
  double step[MILL_MAX_PAR], rise[MILL_MAX_PAR];
  p->n_rejected = accept ? 0 : p->n_rejected + 1;
  /* two steps from a place that led uphill: derivatives are not what F does there */
  if (p->n_rejected > 1)
    mill_polish_forget(m, p);
  const int learn = p->have && finite && p->n_rejected < 2;
  if (learn)
    mill_polish_secant(m, slot, step, rise);
  if (accept) {
    if (p->have) {
      const double ratio = (p->at.f - f) / (p->pred > 0.0 ? p->pred : 1e-300);
      p->lambda *= ratio > 0.75 ? 0.1 : (ratio > 0.25 ? 0.5 : 3.0);
      if (p->lambda < 1e-12)
        p->lambda = 1e-12;
    }
    mill_polish_take(m, slot, f);
  } else {
    /* a rejected step that promised no more than the noise of F ends it, unless it was
     * small only because of its damping */
    if (finite && p->pred < MILL_POLISH_NOISE_STEP && f - p->at.f < MILL_POLISH_NOISE) {
      const double lambda = p->lambda;
      p->lambda = lambda < MILL_POLISH_LAMBDA_END ? lambda : MILL_POLISH_LAMBDA_END;
      const int small =
          mill_polish_step(m, slot, slot->theta, NULL) && fabs(p->pred) < MILL_POLISH_NOISE_LIGHT;
      p->lambda = lambda;
      if (small) {
        for (int j = 0; j < np; j++)
          p->end[j] = p->at.theta[j];
        return MILL_POLISH_CONVERGED;
      }
    }
    p->lambda = 8.0 * p->lambda < MILL_POLISH_LAMBDA_END ? MILL_POLISH_LAMBDA_END : 8.0 * p->lambda;
  }
  if (learn)
    mill_polish_learn(m, p, step, rise);
  if (!mill_polish_propose(m, slot, NULL))
    return MILL_POLISH_FAILED;
  const double tolerance = p->learned ? MILL_POLISH_TOLERANCE_BENT : MILL_POLISH_TOLERANCE;
  if (p->pred < tolerance && p->lambda <= MILL_POLISH_LAMBDA_END) {
    for (int j = 0; j < np; j++)
      p->end[j] = slot->theta[j];
    return MILL_POLISH_CONVERGED;
  }
  if (p->n_jac >= MILL_POLISH_MAX_JAC)
    return MILL_POLISH_FAILED;
  return MILL_POLISH_GO;
}

#endif
