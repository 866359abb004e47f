/* SPDX-License-Identifier: BSD-3-Clause */
/** Proposals for a star's posterior: mixtures of Student's t distributions about its minima.
 *
 *  A component has coordinates y.  For v sin i (v), y is v less its lower limit, mirrored at 0.
 *  For another parameter x, y = x - bend u.  u is mill_vsini_inner of v, and bend the slope of x's
 *  best value in u.  Where rotation is unresolved, labels follow v^2, and so does u
 *  (docs/science/numerics.md, "Posteriors"). */
#pragma once

#include "kernels/math/counter_random.h"
#include "kernels/math/linalg.h"
#include "kernels/star/logic/parameters.h"

/** A proposal's variance is at least this times its target's: it must cover the tails. */
#define MILL_PART_WIDER 1.15
/** A mean v sin i within this many standard deviations of its lower limit is put at the limit. */
#define MILL_PART_NEAR 2.5
/** Each minimum gets at least the fraction ORIGIN of the draws.  A new component needs at least the
 *  fraction LEAST of the weights. */
#define MILL_PART_ORIGIN 0.125
#define MILL_PART_LEAST  0.01
/** The first proposal covers v sin i up to where F is this much above its least value. */
#define MILL_PART_REACH 36.0

enum {
  MILL_PART_T = 12,        /**< degrees of freedom of a t distribution, an even number */
  MILL_PART_POINTS = 64,   /**< points of v sin i's density in the first proposal */
  MILL_PART_ENOUGH = 10,   /**< effective samples per free parameter that a new proposal needs */
  MILL_SAMPLE_PURPOSE = 19 /**< purpose in the key of the random numbers */
};

/** Indices of a draw's random numbers: CHOICE, to choose the component and to refuse points outside
 *  the hulls; from PRIOR on, for draws from priors; from NORMAL on, for the point. */
enum { MILL_DRAW_CHOICE, MILL_DRAW_PRIOR, MILL_DRAW_NORMAL = 32 };

/** Random numbers of index `draw` (MILL_DRAW_CHOICE ...) of the star's draw i. */
MILL_HD static inline mill_counter_words mill_sample_words(const mill_model *m,
                                                           const mill_slot *slot, int i, int draw)
{
  const mill_counter_key key =
      mill_counter_key_of(m->set.sample.seed, slot->sample.identity, MILL_SAMPLE_PURPOSE);
  return mill_counter_at(key, 0, (uint32_t)i, (uint32_t)draw);
}

/** Write n standard normals of draw i to z [n + 1], from the index `draw` on.  As each index gives
 *  two normals, an odd n writes z[n] too. */
MILL_HD_CALLED static inline void mill_sample_normals(const mill_model *m, const mill_slot *slot,
                                                      int i, int draw, int n, double *z)
{
  for (int k = 0; k < n; k += 2) {
    const mill_counter_words w = mill_sample_words(m, slot, i, draw + k / 2);
    mill_counter_normals(&w, &z[k], &z[k + 1]);
  }
}

/** Return u (mill_vsini_inner) of a v sin i, less u of the solution. */
MILL_HD static inline double mill_part_u(const mill_model *m, const mill_slot *slot, double vsini)
{
  return mill_par_inner(m, MILL_PAR_VSINI, vsini) -
         mill_par_inner(m, MILL_PAR_VSINI, slot->best.end[MILL_PAR_VSINI]);
}

/** Convert x [n_free], a point less the solution, to a component's coordinates y [n_free]. */
MILL_HD static inline void mill_part_straight(const mill_model *m, const mill_slot *slot,
                                              const mill_part *part, const float *x, double *y)
{
  const int v = slot->sample.i_vsini;
  const double vsini = slot->best.end[MILL_PAR_VSINI] + (v < 0 ? 0.0 : (double)x[v]);
  const double u = v < 0 ? 0.0 : mill_part_u(m, slot, vsini);
  for (int k = 0; k < slot->n_free; k++)
    y[k] = k == v ? vsini - m->set.min_vsini_km_s : (double)x[k] - part->bend[k] * u;
}

/** Return a component's t density at y, or with sign -1 at y mirrored in v sin i. */
MILL_HD_CALLED static inline double mill_part_t(const mill_slot *slot, const mill_part *part,
                                                const double *y, double sign)
{
  const int n = slot->n_free;
  double d[MILL_MAX_PAR], sum = 0.0;
  for (int k = 0; k < n; k++)
    d[k] = (k == slot->sample.i_vsini ? sign * y[k] : y[k]) - part->mean[k];
  mill_cholesky_forward(n, part->axes, n, d);
  for (int k = 0; k < n; k++)
    sum += d[k] * d[k];
  return exp(part->ln_peak - 0.5 * (double)(MILL_PART_T + n) * log1p(sum / MILL_PART_T));
}

/** Density of a component at x, mirror image included, up to a constant. */
MILL_HD_CALLED static inline double mill_part_density(const mill_model *m, const mill_slot *slot,
                                                      const mill_part *part, const float *x)
{
  double y[MILL_MAX_PAR];
  mill_part_straight(m, slot, part, x, y);
  const double f = mill_part_t(slot, part, y, 1.0);
  return slot->sample.i_vsini < 0 ? f : f + mill_part_t(slot, part, y, -1.0);
}

/** Replace the covariance in part->axes [n_free][n_free] by the Cholesky factor of a t distribution
 *  with `wider` times this covariance.  Returns 0 if it is not positive definite. */
MILL_HD_CALLED static inline int mill_part_shape(const mill_slot *slot, double wider,
                                                 mill_part *part)
{
  const int n = slot->n_free;
  /* with T degrees of freedom the covariance is the squared scale times T / (T - 2) */
  for (int k = 0; k < n * n; k++)
    part->axes[k] *= wider * (MILL_PART_T - 2) / MILL_PART_T;
  if (mill_cholesky(n, part->axes, n) != 0)
    return 0;
  part->ln_peak = -0.5 * mill_cholesky_logdet(n, part->axes, n);
  return isfinite(part->ln_peak);
}

/** Make draw i from a component.  x [n_free] out: the draw relative to the solution, in float32. */
MILL_HD_CALLED static inline void mill_part_draw(const mill_model *m, const mill_slot *slot,
                                                 const mill_part *part, int i, float *x)
{
  const int n = slot->n_free, v = slot->sample.i_vsini;
  double z[MILL_MAX_PAR + MILL_PART_T + 1], y[MILL_MAX_PAR], chi2 = 0.0, u = 0.0;
  mill_sample_normals(m, slot, i, MILL_DRAW_NORMAL, n + MILL_PART_T, z);
  for (int k = 0; k < MILL_PART_T; k++)
    chi2 += z[n + k] * z[n + k];
  const double scale = sqrt(MILL_PART_T / chi2); /* from a normal to a t distribution */
  for (int k = 0; k < n; k++) {
    double sum = 0.0;
    for (int l = 0; l <= k; l++)
      sum += part->axes[k * n + l] * z[l];
    y[k] = part->mean[k] + scale * sum;
  }
  if (v >= 0) {
    const double vsini = m->set.min_vsini_km_s + fabs(y[v]); /* mirrored at the lower limit */
    x[v] = (float)(vsini - slot->best.end[MILL_PAR_VSINI]);
    u = mill_part_u(m, slot, vsini);
  }
  for (int k = 0; k < n; k++)
    if (k != v)
      x[k] = (float)(y[k] + part->bend[k] * u); /* u (mill_part_u) is 0 if v sin i is fixed */
}

/* ---- the first proposal ---- */

/** Compute mean and variance of v sin i less its lower limit, km/s.  The density is exp(-F/2), with
 *  F = hess (u - at)^2 in the inner parameter u. */
MILL_HD_CALLED static inline void mill_part_vsini(const mill_model *m, double at, double hess,
                                                  double *mean, double *var)
{
  const int j = MILL_PAR_VSINI;
  const double lo = mill_par_inner(m, j, mill_par_min(m, j));
  const double hi = mill_par_inner(m, j, mill_par_max(m, j));
  /* off: distance of `at` beyond a limit, or 0.  At this distance w has its maximum, which is 1. */
  const double off = at < lo ? lo - at : (at > hi ? at - hi : 0.0);
  const double reach = sqrt(MILL_PART_REACH / hess + off * off);
  const double first = mill_par_outer(m, j, at - reach), last = mill_par_outer(m, j, at + reach);
  double sum[3] = {0.0, 0.0, 0.0};
  for (int i = 0; i < MILL_PART_POINTS; i++) {
    const double v = first + (last - first) * ((double)i + 0.5) / MILL_PART_POINTS;
    const double d = mill_par_inner(m, j, v) - at, y = v - mill_par_min(m, j);
    const double w = exp(-0.5 * hess * (d * d - off * off));
    sum[0] += w;
    sum[1] += w * y;
    sum[2] += w * y * y;
  }
  *mean = sum[1] / sum[0];
  *var = sum[2] / sum[0] - *mean * *mean;
}

/** Move a mean v sin i near the lower limit to this limit, where the component is mirrored. */
MILL_HD static inline void mill_part_mirror(const mill_slot *slot, mill_part *part)
{
  const int n = slot->n_free, v = slot->sample.i_vsini;
  double *c = part->axes;
  if (v < 0 || part->mean[v] > MILL_PART_NEAR * sqrt(c[v * n + v]))
    return;
  c[v * n + v] += part->mean[v] * part->mean[v]; /* variance about the limit */
  part->mean[v] = 0.0;
  for (int k = 0; k < n; k++)
    if (k != v)
      c[k * n + v] = c[v * n + k] = 0.0;
}

/** From the fit's curvature compute part->axes, the covariance at fixed v sin i, and part->bend (0
 *  on entry): how the other parameters' best values change with u (mill_vsini_inner of v sin i).
 *  Returns the curvature in u of F at these best values (a Schur complement), or 1 if v sin i is
 *  fixed.  A result <= 0 means that F has no minimum. */
MILL_HD_CALLED static inline double mill_part_bend(const mill_model *m, mill_slot *slot,
                                                   mill_part *part)
{
  const int n = slot->n_free, v = slot->sample.i_vsini;
  const double *hess = slot->best.at.hess, *of_u = hess + MILL_PAR_VSINI * m->n_par;
  double *a = slot->space.matrix[0], curvature = v < 0 ? 1.0 : of_u[MILL_PAR_VSINI];
  for (int k = 0; k < n; k++)
    for (int l = 0; l < n; l++) /* v sin i is held: its row is the identity's */
      a[k * n + l] = k == v || l == v ? (double)(k == l)
                                      : hess[slot->free_par[k] * m->n_par + slot->free_par[l]];
  if (mill_cholesky(n, a, n) != 0)
    return 0.0;
  mill_cholesky_inverse(n, a, n, part->axes, n);
  for (int k = 0; k < n && v >= 0; k++) { /* bend of v sin i itself stays 0 */
    for (int l = 0; l < n && k != v; l++)
      part->bend[k] -= l == v ? 0.0 : part->axes[k * n + l] * of_u[slot->free_par[l]];
    curvature += part->bend[k] * of_u[slot->free_par[k]];
  }
  return curvature;
}

/** Set mean, axes and bend of a component from the fit's curvature.  If F has no minimum, the
 *  component's widths are the typical uncertainties of the parameters, and bend is 0. */
MILL_HD_CALLED static inline void mill_part_of_fit(const mill_model *m, mill_slot *slot,
                                                   mill_part *part)
{
  const int n = slot->n_free, v = slot->sample.i_vsini;
  const double vsini = slot->best.end[MILL_PAR_VSINI];
  for (int k = 0; k < n; k++)
    part->mean[k] = part->bend[k] = 0.0;
  const double h = mill_part_bend(m, slot, part); /* curvature in u; above 0: a minimum */
  if (v >= 0)
    part->mean[v] = vsini - m->set.min_vsini_km_s;
  for (int k = 0; k < n && !(h > 0.0); k++) { /* no minimum */
    const double scale = mill_par_scale(m, slot->free_par[k]);
    part->bend[k] = 0.0;
    for (int l = 0; l < n; l++)
      part->axes[k * n + l] = k == l ? scale * scale : 0.0;
  }
  if (v >= 0 && h > 0.0) {
    double at = mill_par_inner(m, MILL_PAR_VSINI, vsini);
    if (mill_par_at_limit(m, MILL_PAR_VSINI, vsini)) /* the minimum may be beyond the limit */
      at -= 0.5 * slot->best.at.grad[MILL_PAR_VSINI] / h;
    mill_part_vsini(m, at, h, &part->mean[v], &part->axes[v * n + v]);
  }
  mill_part_mirror(slot, part);
}

/** Move a component from the solution to another minimum [n_par]. */
MILL_HD static inline void mill_part_move(const mill_model *m, const mill_slot *slot,
                                          const double *minimum, mill_part *part)
{
  const double u = mill_part_u(m, slot, minimum[MILL_PAR_VSINI]);
  for (int k = 0; k < slot->n_free; k++) {
    const int j = slot->free_par[k];
    if (k == slot->sample.i_vsini)
      part->mean[k] = minimum[j] - m->set.min_vsini_km_s;
    else
      part->mean[k] = minimum[j] - slot->best.end[j] - part->bend[k] * u;
  }
}

/** Point i of the sample [n_free], relative to the solution. */
MILL_HD static inline float *mill_sample_point(const mill_slot *slot, int i)
{
  return slot->sample.x + (size_t)i * (size_t)slot->n_free;
}
