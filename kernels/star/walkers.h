/* SPDX-License-Identifier: BSD-3-Clause */
/** The walkers of a star's ensemble: their random numbers and their moves.
 *
 *  Serial code, run by one thread of a star's block (docs/science/numerics.md, "Posteriors").
 */
#ifndef MILL_WALKERS_H
#define MILL_WALKERS_H

#include "kernels/math/counter_random.h"
#include "kernels/star/polish.h"

#define MILL_SAMPLE_STRETCH 2.0  /**< a of the stretch move */
#define MILL_SAMPLE_DE      2.38 /**< of the differential evolution's step, by sqrt(2 n) */
#define MILL_SAMPLE_JUMP    0.1  /**< part of its steps with factor 1, from mode to mode */
#define MILL_SAMPLE_JITTER  1e-5 /**< of typical uncertainties, which it adds to each parameter */
/** Part of the independent move among others.  Of a Gaussian in five parameters an effective sample
 *  takes 4 evaluations by it, 29 by differential evolution and 109 by the stretch. */
#define MILL_SAMPLE_INDEPENDENT 0.6
/** Of the Langevin move: its step in standard deviations by n^(-1/6), which is the best of a
 *  Gaussian in many parameters (Roberts & Rosenthal 1998, J. R. Stat. Soc. B 60, 255), and the
 *  longest drift by sqrt(n). */
#define MILL_LANGEVIN_STEP  1.65
#define MILL_LANGEVIN_DRIFT 2.0
#define MILL_SAMPLE_CHECK   1.25 /**< between two looks at the chains, in sweeps */
/** What a first position may lie above the solution's F: beyond chance by far. */
#define MILL_SAMPLE_FIRST_F 50.0

enum {
  MILL_SAMPLE_FIRST_TRIES = 8, /**< each half as far from the solution as the one before */
  /** Sweeps of the burn-in, in two parts: after each the mean and covariance of the ensemble's
   *  last half become those of the move that proposes from them. */
  MILL_SAMPLE_BURN = 60,
  MILL_SAMPLE_BURN_FIRST = 40,
  MILL_SAMPLE_FIRST_CHECK = 24,
  MILL_SAMPLE_T = 5,        /**< degrees of freedom of that move */
  MILL_SAMPLE_PURPOSE = 19, /**< of the random numbers' key */
  MILL_SAMPLE_HULL_DRAWS = 256
};

/** Draws of one walker at one sweep. */
enum {
  MILL_DRAW_CHOICE,
  MILL_DRAW_STEP,
  MILL_DRAW_JITTER,
  MILL_DRAW_SWAP = 8,
  MILL_DRAW_NORMAL = 16,
  MILL_DRAW_FIRST = 64
};

MILL_HD static inline mill_counter_words mill_sample_words(const mill_model *m,
                                                           const mill_slot *slot, int draw)
{
  const mill_counter_key key =
      mill_counter_key_of(m->set.sample.seed, slot->sample.identity, MILL_SAMPLE_PURPOSE);
  return mill_counter_at(key, (uint32_t)slot->sample.i_walker, (uint32_t)slot->sample.n_sweep,
                         (uint32_t)draw);
}

/** One of n by a word. */
MILL_HD static inline int mill_sample_one_of(uint32_t word, int n)
{
  return (int)((uint64_t)word * (uint64_t)n >> 32);
}

MILL_HD static inline double mill_sample_unit(uint32_t word)
{
  return ((double)word + 0.5) * 0x1p-32;
}

/** n standard normals from `draw` on. */
MILL_HD_CALLED static inline void mill_sample_normals(const mill_model *m, const mill_slot *slot,
                                                      int draw, int n, double *z)
{
  for (int i = 0; i < n; i += 2) {
    const mill_counter_words w = mill_sample_words(m, slot, draw + i / 2);
    double spare;
    mill_counter_normals(&w, &z[i], i + 1 < n ? &z[i + 1] : &spare);
  }
}

MILL_HD static inline double *mill_sample_walker(const mill_slot *slot, int i)
{
  return slot->sample.walker + (size_t)i * (size_t)slot->n_free;
}

/** Gradient of F at a walker of the posterior itself; the first is NaN when it is not known. */
MILL_HD static inline double *mill_sample_gradient(const mill_slot *slot, int i)
{
  return slot->sample.walker_grad + (size_t)i * (size_t)slot->n_free;
}

/** Is the request's point within the limits and near the hulls? */
MILL_HD static inline int mill_sample_allowed(const mill_model *m, const mill_slot *slot)
{
  for (int k = 0; k < slot->n_free; k++) {
    const int j = slot->free_par[k];
    if (!(slot->theta[j] >= mill_par_min(m, j) && slot->theta[j] <= mill_par_max(m, j)))
      return 0;
  }
  return mill_penalty(m, slot, slot->theta) < MILL_OFF_LIMITS;
}

/** Where parameter j can be: between the limits of velocity and v sin i, the edges of a label's
 *  range, anywhere for an offset. */
MILL_HD static inline void mill_sample_range(const mill_model *m, int j, double *low, double *high)
{
  const int is_label = j >= MILL_PAR_LABEL0 && j < m->n_deriv;
  *low = is_label ? m->label[j - MILL_PAR_LABEL0].min : mill_par_min(m, j);
  *high = is_label ? m->label[j - MILL_PAR_LABEL0].max : mill_par_max(m, j);
}

/* ---- moves ---- */

/** The point of a walker on the line from another one through it, z times as far (stretch). */
MILL_HD static inline void mill_sample_stretch(const mill_model *m, mill_slot *slot,
                                               const double *x, const double *other)
{
  const mill_counter_words w = mill_sample_words(m, slot, MILL_DRAW_STEP);
  const double a = MILL_SAMPLE_STRETCH;
  const double root = 1.0 + (a - 1.0) * mill_counter_uniform(w.v[2], w.v[3]);
  const double z = root * root / a;
  for (int k = 0; k < slot->n_free; k++)
    slot->theta[slot->free_par[k]] = other[k] + z * (x[k] - other[k]);
  slot->sample.log_factor = (double)(slot->n_free - 1) * log(z);
}

/** The walker moved along the difference of two others (ter Braak 2006, Stat. Comp. 16, 239). */
MILL_HD static inline void mill_sample_differ(const mill_model *m, mill_slot *slot, const double *x,
                                              const double *a, const double *b)
{
  const mill_counter_words w = mill_sample_words(m, slot, MILL_DRAW_STEP);
  const double gamma = mill_sample_unit(w.v[1]) < MILL_SAMPLE_JUMP
                           ? 1.0
                           : MILL_SAMPLE_DE / sqrt(2.0 * (double)slot->n_free);
  mill_counter_words e = w;
  for (int k = 0; k < slot->n_free; k++) {
    const int j = slot->free_par[k];
    if (k % 4 == 0)
      e = mill_sample_words(m, slot, MILL_DRAW_JITTER + k / 4);
    const double jitter =
        MILL_SAMPLE_JITTER * mill_par_scale(m, j) * (2.0 * mill_sample_unit(e.v[k % 4]) - 1.0);
    slot->theta[j] = x[k] + gamma * (a[k] - b[k]) + jitter;
  }
  slot->sample.log_factor = 0.0;
}

/** ln of the density of the ensemble's t distribution at x [n_free], but for a constant. */
MILL_HD static inline double mill_sample_log_t(const mill_slot *slot, const double *x)
{
  double d[MILL_MAX_PAR], sum = 0.0;
  const int n = slot->n_free;
  for (int k = 0; k < n; k++)
    d[k] = x[k] - slot->sample.mean[k];
  mill_cholesky_forward(n, slot->sample.axes, n, d);
  for (int k = 0; k < n; k++)
    sum += d[k] * d[k];
  return -0.5 * (double)(MILL_SAMPLE_T + n) * log1p(sum / MILL_SAMPLE_T);
}

/** A point that does not depend on where the walker is (Tierney 1994, Ann. Stat. 22, 1701, section
 *  2.3.3), of a t distribution with the mean and the covariance that the ensemble had. */
MILL_HD static inline void mill_sample_independent(const mill_model *m, mill_slot *slot,
                                                   const double *x)
{
  const int n = slot->n_free;
  double z[MILL_MAX_PAR + MILL_SAMPLE_T + 1], to[MILL_MAX_PAR], chi2 = 0.0;
  mill_sample_normals(m, slot, MILL_DRAW_NORMAL, n + MILL_SAMPLE_T, z);
  for (int k = 0; k < MILL_SAMPLE_T; k++)
    chi2 += z[n + k] * z[n + k];
  const double scale = sqrt(MILL_SAMPLE_T / chi2);
  for (int k = 0; k < n; k++) {
    double sum = 0.0;
    for (int l = 0; l <= k; l++)
      sum += slot->sample.axes[k * n + l] * z[l];
    to[k] = slot->sample.mean[k] + scale * sum;
    slot->theta[slot->free_par[k]] = to[k];
  }
  slot->sample.log_factor = mill_sample_log_t(slot, x) - mill_sample_log_t(slot, to);
}

/** Half the step of the Langevin move that the gradient makes, in standard deviations, out [n]; no
 *  longer than MILL_LANGEVIN_DRIFT says (Roberts & Tweedie 1996, Bernoulli 2, 341, section 1.4.3).
 */
MILL_HD_CALLED static inline void mill_langevin_drift(const mill_slot *slot, const double *grad,
                                                      double h, double *drift)
{
  const int n = slot->n_free;
  double length2 = 0.0;
  for (int l = 0; l < n; l++) {
    drift[l] = 0.0;
    for (int k = l; k < n; k++)
      drift[l] -= 0.25 * h * h * slot->sample.axes[k * n + l] * grad[k];
    length2 += drift[l] * drift[l];
  }
  const double most = MILL_LANGEVIN_DRIFT * sqrt((double)n);
  for (int l = 0; l < n && length2 > most * most; l++)
    drift[l] *= most / sqrt(length2);
}

MILL_HD static inline double mill_langevin_step(int n)
{
  return MILL_LANGEVIN_STEP * pow((double)n, -1.0 / 6.0);
}

/** A step along the gradient and a random one (Roberts & Tweedie 1996), in the coordinates in which
 *  the ensemble was round.  log_factor becomes -ln of its density. */
MILL_HD static inline void mill_sample_langevin(const mill_model *m, mill_slot *slot,
                                                const double *x, const double *grad)
{
  const int n = slot->n_free;
  const double h = mill_langevin_step(n);
  double z[MILL_MAX_PAR + 1], drift[MILL_MAX_PAR], sum2 = 0.0;
  mill_sample_normals(m, slot, MILL_DRAW_NORMAL, n, z);
  mill_langevin_drift(slot, grad, h, drift);
  for (int k = 0; k < n; k++) {
    double to = x[k];
    for (int l = 0; l <= k; l++)
      to += slot->sample.axes[k * n + l] * (drift[l] + h * z[l]);
    slot->theta[slot->free_par[k]] = to;
    sum2 += z[k] * z[k];
  }
  slot->sample.log_factor = 0.5 * sum2;
}

/** ln of the density of the Langevin step from the request's point, where the gradient is grad, to
 *  x. */
MILL_HD_CALLED static inline double mill_langevin_back(const mill_slot *slot, const double *x,
                                                       const double *grad)
{
  const int n = slot->n_free;
  const double h = mill_langevin_step(n);
  double d[MILL_MAX_PAR], drift[MILL_MAX_PAR], sum2 = 0.0;
  for (int k = 0; k < n; k++)
    d[k] = x[k] - slot->theta[slot->free_par[k]];
  mill_cholesky_forward(n, slot->sample.axes, n, d);
  mill_langevin_drift(slot, grad, h, drift);
  for (int k = 0; k < n; k++)
    sum2 += (d[k] - drift[k]) * (d[k] - drift[k]);
  return -0.5 * sum2 / (h * h);
}

/** Gradient of F by the free parameters at the request's point, out [n_free], from its answer; the
 *  hull penalty is left out, since any drift will do.  What is no number becomes 0. */
MILL_HD_CALLED static inline void mill_sample_take_gradient(const mill_model *m,
                                                            const mill_slot *slot, double *grad)
{
  for (int k = 0; k < slot->n_free; k++) {
    const int j = slot->free_par[k];
    const double sigma = mill_prior_sigma(m, slot, j);
    grad[k] = slot->eval.grad[j] / mill_par_slope(m, j, slot->theta[j]);
    if (sigma > 0.0)
      grad[k] += 2.0 * (slot->theta[j] - mill_prior_mean(m, slot, j)) / (sigma * sigma);
    if (!isfinite(grad[k]))
      grad[k] = 0.0;
  }
}

/** One of the moves asked for.  Before the first part of the burn-in is over, and at temperatures,
 *  there is no covariance to propose from, and the others take the place. */
MILL_HD static inline int mill_sample_move(const mill_model *m, const mill_slot *slot,
                                           uint32_t word)
{
  const int moves = m->set.sample.moves;
  const int learnt = slot->sample.has_axes && slot->sample.i_walker < m->set.sample.n_walker;
  int others = moves & (MILL_MOVE_STRETCH | MILL_MOVE_DE | (learnt ? MILL_MOVE_LANGEVIN : 0));
  double u = mill_sample_unit(word);
  if (learnt && (moves & MILL_MOVE_INDEPENDENT) != 0) {
    if (!others || u < MILL_SAMPLE_INDEPENDENT)
      return MILL_MOVE_INDEPENDENT;
    u = (u - MILL_SAMPLE_INDEPENDENT) / (1.0 - MILL_SAMPLE_INDEPENDENT);
  }
  others = others ? others : MILL_MOVE_STRETCH | MILL_MOVE_DE;
  int n = 0, bit = 1;
  for (int of = others; of; of >>= 1)
    n += of & 1;
  for (int left = (int)(u * (double)n); left > 0 || (others & bit) == 0; bit <<= 1)
    left -= (others & bit) != 0;
  return bit;
}

/** The walker's proposal by sample.move into slot->theta; the others are those of its temperature.
 */
MILL_HD_CALLED static inline void mill_sample_propose(const mill_model *m, mill_slot *slot)
{
  const int n = m->set.sample.n_walker, move = slot->sample.move;
  const int i = slot->sample.i_walker % n, first = slot->sample.i_walker - i;
  const double *x = mill_sample_walker(slot, first + i);
  const mill_counter_words w = mill_sample_words(m, slot, MILL_DRAW_CHOICE);
  if (move == MILL_MOVE_INDEPENDENT) {
    mill_sample_independent(m, slot, x);
    return;
  }
  if (move == MILL_MOVE_LANGEVIN) {
    mill_sample_langevin(m, slot, x, mill_sample_gradient(slot, i));
    return;
  }
  int a = mill_sample_one_of(w.v[3], n - 1);
  a += a >= i;
  if (move == MILL_MOVE_STRETCH) {
    mill_sample_stretch(m, slot, x, mill_sample_walker(slot, first + a));
    return;
  }
  const int low = a < i ? a : i, high = a < i ? i : a;
  int b = mill_sample_one_of(mill_sample_words(m, slot, MILL_DRAW_STEP).v[0], n - 2);
  b += b >= low;
  b += b >= high;
  mill_sample_differ(m, slot, x, mill_sample_walker(slot, first + a),
                     mill_sample_walker(slot, first + b));
}

#endif
