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

#include "kernels/math/chains.h"
#include "kernels/math/counter_random.h"
#include "kernels/star/marginal.h"

#define MILL_SAMPLE_STRETCH 2.0  /**< a of the stretch move */
#define MILL_SAMPLE_DE      2.38 /**< of the differential evolution's step, by sqrt(2 n) */
#define MILL_SAMPLE_JUMP    0.1  /**< part of its steps with factor 1, from mode to mode */
#define MILL_SAMPLE_JITTER  1e-5 /**< of typical uncertainties, which it adds to each parameter */
/** Part of the independent move among others.  Of a Gaussian in five parameters an effective sample
 *  takes 4 evaluations by it, 29 by differential evolution and 109 by the stretch. */
#define MILL_SAMPLE_INDEPENDENT 0.6
#define MILL_SAMPLE_CHECK       1.25 /**< between two looks at the chains, in sweeps */
/** What a first position may lie above the solution's F: beyond chance by far. */
#define MILL_SAMPLE_FIRST_F 50.0
#define MILL_POST_SHARE     0.01 /**< of the samples, for the flags LIMIT and HULL */
/** Quantiles from which a marginal density reaches to the same one from above. */
#define MILL_POST_TAIL   0.001
#define MILL_POST_DIFFER 0.15 /**< for the flag NOT_GAUSSIAN */

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
  MILL_DRAW_NORMAL = 16,
  MILL_DRAW_FIRST = 64
};

MILL_HD static inline mill_counter_words mill_sample_words(const mill_model *m,
                                                           const mill_slot *slot, int draw)
{
  const mill_counter_key key =
      mill_counter_key_of(m->set.sample.seed, slot->identity, MILL_SAMPLE_PURPOSE);
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
  return slot->walker + (size_t)i * (size_t)slot->n_free;
}

/** Is the request's point within limits and not far off the hulls? */
MILL_HD static inline int mill_sample_allowed(const mill_model *m, const mill_slot *slot)
{
  for (int k = 0; k < slot->n_free; k++) {
    const int j = slot->free_par[k];
    if (!(slot->theta[j] >= mill_par_min(m, j) && slot->theta[j] <= mill_par_max(m, j)))
      return 0;
  }
  return mill_penalty(m, slot, slot->theta) < MILL_OFF_LIMITS;
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

/** One of the moves asked for.  Before the first part of the burn-in is over there is no covariance
 *  to propose from, and the others take the place. */
MILL_HD static inline int mill_sample_move(const mill_model *m, const mill_slot *slot,
                                           uint32_t word)
{
  const int moves = m->set.sample.moves;
  int others = moves & (MILL_MOVE_STRETCH | MILL_MOVE_DE);
  double u = mill_sample_unit(word);
  if (slot->sample.has_axes && (moves & MILL_MOVE_INDEPENDENT) != 0) {
    if (!others || u < MILL_SAMPLE_INDEPENDENT)
      return MILL_MOVE_INDEPENDENT;
    u = (u - MILL_SAMPLE_INDEPENDENT) / (1.0 - MILL_SAMPLE_INDEPENDENT);
  }
  others = others ? others : MILL_MOVE_STRETCH | MILL_MOVE_DE;
  if (others == (MILL_MOVE_STRETCH | MILL_MOVE_DE))
    return u < 0.5 ? MILL_MOVE_STRETCH : MILL_MOVE_DE;
  return others;
}

/** The walker's proposal into slot->theta. */
MILL_HD_CALLED static inline void mill_sample_propose(const mill_model *m, mill_slot *slot)
{
  const int i = slot->sample.i_walker, n = m->set.sample.n_walker;
  const double *x = mill_sample_walker(slot, i);
  const mill_counter_words w = mill_sample_words(m, slot, MILL_DRAW_CHOICE);
  const int move = mill_sample_move(m, slot, w.v[2]);
  if (move == MILL_MOVE_INDEPENDENT) {
    mill_sample_independent(m, slot, x);
    return;
  }
  int a = mill_sample_one_of(w.v[3], n - 1);
  a += a >= i;
  if (move == MILL_MOVE_STRETCH) {
    mill_sample_stretch(m, slot, x, mill_sample_walker(slot, a));
    return;
  }
  const int low = a < i ? a : i, high = a < i ? i : a;
  int b = mill_sample_one_of(mill_sample_words(m, slot, MILL_DRAW_STEP).v[0], n - 2);
  b += b >= low;
  b += b >= high;
  mill_sample_differ(m, slot, x, mill_sample_walker(slot, a), mill_sample_walker(slot, b));
}

/* ---- the first positions ---- */

/** Axes of the fit's curvature, inner parameters; where it is not positive definite those of
 *  typical uncertainties. */
MILL_HD_CALLED static inline void mill_sample_fit_axes(const mill_model *m, mill_slot *slot)
{
  const int n = slot->n_free;
  double *a = slot->sample.axes;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++)
      a[i * n + k] = slot->best.hess[slot->free_par[i] * m->n_par + slot->free_par[k]];
  if (mill_cholesky(n, a, n) == 0)
    return;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++)
      a[i * n + k] = i == k ? 1.0 / mill_par_scale(m, slot->free_par[i]) : 0.0;
}

/** A walker's first position: of the Gaussian that the fit's curvature says, each try half as far
 *  from the solution as the one before; v sin i is mirrored at its lower limit. */
MILL_HD_CALLED static inline void mill_sample_first(const mill_model *m, mill_slot *slot)
{
  const int n = slot->n_free;
  double z[MILL_MAX_PAR + 1];
  do {
    const int tries = slot->sample.n_try;
    mill_sample_normals(m, slot, MILL_DRAW_FIRST + tries * MILL_MAX_PAR, n, z);
    mill_cholesky_backward(n, slot->sample.axes, n, z);
    const double shrink = ldexp(1.0, -tries);
    for (int j = 0; j < m->n_par; j++)
      slot->theta[j] = slot->best_end[j];
    for (int k = 0; k < n && tries < MILL_SAMPLE_FIRST_TRIES; k++) {
      const int j = slot->free_par[k];
      double u = mill_par_inner(m, j, slot->best_end[j]) + shrink * z[k];
      const double lo = mill_par_inner(m, j, mill_par_min(m, j));
      if (j == MILL_PAR_VSINI && u < lo)
        u = 2.0 * lo - u;
      slot->theta[j] = mill_par_outer(m, j, u);
    }
  } while (!mill_sample_allowed(m, slot) && slot->sample.n_try++ < MILL_SAMPLE_FIRST_TRIES);
  slot->request = MILL_REQ_VALUE;
}

/* ---- chains ---- */

MILL_HD static inline float *mill_sample_kept(const mill_model *m, const mill_slot *slot, int i)
{
  return slot->chain + (size_t)i * (size_t)m->set.sample.n_walker * (size_t)slot->n_free;
}

/** Keep where the walkers are, as differences from the solution: float32 is then exact enough.
 *  Where there is no room every other sweep goes, and from now on too. */
MILL_HD_CALLED static inline void mill_sample_keep(const mill_model *m, mill_slot *slot)
{
  mill_sample *s = &slot->sample;
  const int n = slot->n_free, n_row = m->set.sample.n_walker * n;
  if (s->n_sweep % s->thin != 0)
    return;
  if (s->n_kept == MILL_SAMPLE_KEEP) {
    s->n_kept /= 2;
    s->thin *= 2;
    for (int i = 0; i < s->n_kept; i++)
      for (int k = 0; k < n_row; k++)
        mill_sample_kept(m, slot, i)[k] = mill_sample_kept(m, slot, 2 * i + 1)[k];
    if (s->n_sweep % s->thin != 0)
      return;
  }
  float *to = mill_sample_kept(m, slot, s->n_kept++);
  for (int k = 0; k < n_row; k++)
    to[k] = (float)(slot->walker[k] - slot->best_end[slot->free_par[k % n]]);
}

/** Mean [n_free], as difference from the solution, and covariance [n_free][n_free] of the kept
 *  sweeps from `first` on. */
MILL_HD_CALLED static inline void mill_sample_moments(const mill_model *m, const mill_slot *slot,
                                                      int first, double *mean, double *covar)
{
  const int n = slot->n_free;
  const float *x = mill_sample_kept(m, slot, first);
  const int n_sample = (slot->sample.n_kept - first) * m->set.sample.n_walker;
  for (int k = 0; k < n; k++) {
    mean[k] = 0.0;
    for (int i = 0; i < n_sample; i++)
      mean[k] += (double)x[i * n + k];
    mean[k] /= (double)n_sample;
  }
  for (int k = 0; k < n; k++)
    for (int l = 0; l <= k; l++) {
      double sum = 0.0;
      for (int i = 0; i < n_sample; i++)
        sum += ((double)x[i * n + k] - mean[k]) * ((double)x[i * n + l] - mean[l]);
      covar[k * n + l] = covar[l * n + k] = sum / (double)(n_sample > 1 ? n_sample - 1 : 1);
    }
}

/** A part of the burn-in is over: the independent move learns from its last half. */
MILL_HD_CALLED static inline void mill_sample_adapt(const mill_model *m, mill_slot *slot)
{
  mill_sample *s = &slot->sample;
  double *axes = slot->space.matrix[0];
  const int n = slot->n_free;
  mill_sample_moments(m, slot, s->n_kept / 2, s->mean, axes);
  for (int k = 0; k < n; k++)
    s->mean[k] += slot->best_end[slot->free_par[k]];
  if (mill_cholesky(n, axes, n) == 0) {
    for (int e = 0; e < n * n; e++)
      s->axes[e] = axes[e];
    s->has_axes = 1;
  }
  s->n_kept = 0;
}

/** Steps of the kept chains that count: the first quarter is another burn-in, of any length that
 *  the chains may need. */
MILL_HD static inline int mill_sample_skipped(const mill_slot *slot)
{
  return slot->sample.n_kept / 4;
}

MILL_HD static inline mill_chains mill_sample_chains(const mill_model *m, const mill_slot *slot,
                                                     int k)
{
  const int first = mill_sample_skipped(slot);
  mill_chains c;
  c.x = mill_sample_kept(m, slot, first) + k;
  c.n_step = slot->sample.n_kept - first;
  c.n_walker = m->set.sample.n_walker;
  c.n_par = slot->n_free;
  return c;
}

/** Are the chains as long as they have to be? */
MILL_HD_CALLED static inline int mill_sample_enough(const mill_model *m, const mill_slot *slot)
{
  for (int k = 0; k < slot->n_free; k++) {
    const mill_chains c = mill_sample_chains(m, slot, k);
    double rhat, ess;
    mill_chains_diagnose(&c, &rhat, &ess);
    if (!(rhat <= m->set.sample.most_rhat) || !(ess >= m->set.sample.least_ess))
      return 0;
  }
  return 1;
}

/* ---- the end ---- */

/** Sample number i of those that count, all parameters. */
MILL_HD static inline void mill_sample_at(const mill_model *m, const mill_slot *slot, int i,
                                          double *theta)
{
  const float *x = mill_sample_kept(m, slot, mill_sample_skipped(slot)) + (size_t)i * slot->n_free;
  for (int j = 0; j < m->n_par; j++)
    theta[j] = slot->best_end[j];
  for (int k = 0; k < slot->n_free; k++)
    theta[slot->free_par[k]] += (double)x[k];
}

/** Formal error of the fit, 0 or NaN: none. */
MILL_HD static inline double mill_sample_fit_error(const mill_fit_result *r, int j)
{
  return j == MILL_PAR_VRAD    ? r->vrad_err_formal_km_s
         : j == MILL_PAR_VSINI ? r->vsini_err_formal_km_s
                               : r->label_err_formal[j - MILL_PAR_LABEL0];
}

/** Flags that one parameter gives; sorted [n]: its samples as differences from the solution. */
MILL_HD_CALLED static inline int mill_sample_par_flags(const mill_model *m, const mill_slot *slot,
                                                       int j, int n, const float *sorted,
                                                       double sigma)
{
  const mill_posterior *p = slot->posterior;
  const double at = slot->best_end[j], error = mill_sample_fit_error(&slot->result, j);
  const double shift = p->mean[j] - at, near = 0.1 * sigma;
  const int is_label = j >= MILL_PAR_LABEL0;
  const double lo = is_label ? m->label[j - MILL_PAR_LABEL0].min : mill_par_min(m, j);
  const double hi = is_label ? m->label[j - MILL_PAR_LABEL0].max : mill_par_max(m, j);
  int flag = 0, n_low = 0, n_high = 0;
  while (!is_label && n_low < n && at + (double)sorted[n_low] < lo + near)
    n_low++;
  while (!is_label && n_high < n && at + (double)sorted[n - 1 - n_high] > hi - near)
    n_high++;
  if ((double)n_low > MILL_POST_SHARE * (double)n || (double)n_high > MILL_POST_SHARE * (double)n)
    flag |= MILL_POST_LIMIT;
  if (hi > lo && p->percentile[4][j] - p->percentile[0][j] > 0.8 * (hi - lo))
    flag |= MILL_POST_WIDE;
  if (error > 0.0 && fabs(shift) > 0.5 * error)
    flag |= MILL_POST_SHIFTED;
  if (error > 0.0 && (sigma < 0.8 * error || sigma > 1.25 * error))
    flag |= MILL_POST_RESIZED;
  return flag;
}

/** Do too many samples lie beyond the hulls? */
MILL_HD_CALLED static inline int mill_sample_beyond_hull(const mill_model *m, const mill_slot *slot,
                                                         int n_sample)
{
  const int n = n_sample < MILL_SAMPLE_HULL_DRAWS ? n_sample : MILL_SAMPLE_HULL_DRAWS;
  int n_beyond = 0;
  for (int i = 0; i < n; i++) {
    double theta[MILL_MAX_PAR], mapped[MILL_MAX_LABEL];
    mill_sample_at(m, slot, (int)((int64_t)i * n_sample / n), theta);
    mill_map_labels(m, theta, mapped);
    n_beyond += mill_hull_signed(m->n_hull, m->hull, mapped) > 0.0;
  }
  return (double)n_beyond > MILL_POST_SHARE * (double)n;
}

/** The samples that count. */
MILL_HD static inline mill_samples mill_sample_set(const mill_model *m, const mill_slot *slot)
{
  const int first = mill_sample_skipped(slot);
  mill_samples s;
  s.x = mill_sample_kept(m, slot, first);
  s.n = (slot->sample.n_kept - first) * m->set.sample.n_walker;
  s.n_free = slot->n_free;
  s.par = slot->free_par;
  s.at = slot->best_end;
  return s;
}

/** Marginal density of free parameter k, sorted as its samples are, and the flag of its shape. */
MILL_HD_CALLED static inline void mill_sample_density(const mill_model *m, mill_slot *slot, int k,
                                                      double sigma)
{
  mill_posterior *p = slot->posterior;
  const mill_samples s = mill_sample_set(m, slot);
  const int j = slot->free_par[k];
  const double error = mill_sample_fit_error(&slot->result, j);
  double *density = p->density + (size_t)j * MILL_N_DENSITY, *space = slot->space.density;
  double low = s.at[j] + mill_chains_quantile(s.n, slot->sorted, MILL_POST_TAIL);
  double high = s.at[j] + mill_chains_quantile(s.n, slot->sorted, 1.0 - MILL_POST_TAIL);
  mill_modes all;
  all.n = 1;
  all.n_cut = 0;
  if (!mill_marginal_density(m, &s, &all, 0, k, p->ess[j], sigma * sigma, &low, &high,
                             slot->space.node, space))
    return;
  for (int i = 0; i < MILL_N_DENSITY; i++)
    density[i] = space[i];
  p->density_low[j] = low;
  p->density_high[j] = high;
  if (error > 0.0 && mill_density_differs(space, low, high, s.at[j], error) > MILL_POST_DIFFER)
    p->flag |= MILL_POST_SHAPE;
}

/** Weight, mean and standard deviations of one mode as number `to`. */
MILL_HD_CALLED static inline void mill_sample_put_mode(const mill_model *m, mill_slot *slot,
                                                       const mill_samples *s,
                                                       const mill_modes *modes, int mode, int to)
{
  mill_posterior *p = slot->posterior;
  const int nd = m->n_deriv;
  double *at = p->mode_mean + to * nd, *spread = p->mode_sigma + to * nd;
  for (int j = 0; j < nd; j++) {
    at[j] = slot->best_end[j];
    spread[j] = 0.0;
  }
  for (int k = 0; k < s->n_free; k++) {
    double mean, var;
    const int n = mill_mode_moments(s, modes, mode, k, &mean, &var), j = s->par[k];
    p->mode_weight[to] = (double)n / (double)s->n;
    if (j >= nd)
      continue;
    at[j] += mean;
    spread[j] = sqrt(var);
  }
}

/** The modes, the heaviest first. */
MILL_HD_CALLED static inline void mill_sample_put_modes(const mill_model *m, mill_slot *slot)
{
  mill_posterior *p = slot->posterior;
  const mill_samples s = mill_sample_set(m, slot);
  mill_modes modes;
  double least = (double)INFINITY;
  int order[MILL_MAX_MODE], count[MILL_MAX_MODE];
  for (int k = 0; k < s.n_free; k++)
    if (s.par[k] < m->n_deriv && p->ess[s.par[k]] < least)
      least = p->ess[s.par[k]];
  mill_modes_find(m, &s, least, slot->space.node, slot->space.density, &modes);
  for (int a = 0; a < modes.n; a++)
    count[a] = 0;
  for (int i = 0; i < s.n; i++)
    count[mill_mode_of(&modes, s.x + (size_t)i * (size_t)s.n_free)]++;
  for (int a = 0; a < modes.n; a++) {
    int at = a;
    for (; at > 0 && count[order[at - 1]] < count[a]; at--)
      order[at] = order[at - 1];
    order[at] = a;
  }
  for (int a = 0; a < modes.n; a++)
    mill_sample_put_mode(m, slot, &s, &modes, order[a], a);
  p->n_mode = modes.n;
  if (modes.n > 1)
    p->flag |= MILL_POST_MODES;
}

/** Moments, percentiles, density, R-hat and effective size of free parameter k, and its flags. */
MILL_HD_CALLED static inline void mill_sample_summarize_par(const mill_model *m, mill_slot *slot,
                                                            int k, double sigma)
{
  mill_posterior *p = slot->posterior;
  const double quantile[MILL_N_PERCENTILE] = {0.025, 0.16, 0.5, 0.84, 0.975};
  const mill_chains c = mill_sample_chains(m, slot, k);
  const int j = slot->free_par[k], n = c.n_step * c.n_walker;
  if (j >= m->n_deriv)
    return; /* velocity offsets are integrated over */
  for (int i = 0; i < n; i++)
    slot->sorted[i] = c.x[(size_t)i * (size_t)c.n_par];
  mill_chains_sort(n, slot->sorted);
  for (int q = 0; q < MILL_N_PERCENTILE; q++)
    p->percentile[q][j] = slot->best_end[j] + mill_chains_quantile(n, slot->sorted, quantile[q]);
  mill_chains_diagnose(&c, &p->rhat[j], &p->ess[j]);
  p->flag |= mill_sample_par_flags(m, slot, j, n, slot->sorted, sigma);
  mill_sample_density(m, slot, k, sigma);
}

/** What a parameter has that is not sampled; 0 beyond the parameters. */
MILL_HD_CALLED static inline void mill_sample_blank(const mill_model *m, mill_slot *slot)
{
  mill_posterior *p = slot->posterior;
  for (int j = 0; j < MILL_MAX_PAR; j++) {
    const int is_par = j < m->n_deriv;
    p->mean[j] = is_par ? slot->best_end[j] : 0.0;
    for (int q = 0; q < MILL_N_PERCENTILE; q++)
      p->percentile[q][j] = p->mean[j];
    p->rhat[j] = p->ess[j] = is_par ? (double)NAN : 0.0;
    p->density_low[j] = p->density_high[j] = is_par ? (double)NAN : 0.0;
    for (int i = 0; i < MILL_N_DENSITY; i++)
      p->density[j * MILL_N_DENSITY + i] = is_par ? (double)NAN : 0.0;
  }
  p->n_mode = 0;
  for (int a = 0; a < MILL_MAX_MODE; a++)
    p->mode_weight[a] = (double)NAN;
  for (int i = 0; i < MILL_MAX_MODE * MILL_MAX_PAR; i++)
    p->mode_mean[i] = p->mode_sigma[i] = i < MILL_MAX_MODE * m->n_deriv ? (double)NAN : 0.0;
  for (int i = 0; i < MILL_MAX_COVAR; i++)
    p->covar[i] = 0.0;
}

/** The chains are done: the posterior. */
MILL_HD_CALLED static inline void mill_sample_end(const mill_model *m, mill_slot *slot,
                                                  int converged)
{
  const mill_sample *s = &slot->sample;
  mill_posterior *p = slot->posterior;
  double mean[MILL_MAX_PAR], *covar = slot->space.matrix[0];
  const int n = slot->n_free, nd = m->n_deriv;
  const int n_sample = (s->n_kept - mill_sample_skipped(slot)) * m->set.sample.n_walker;
  p->flag = converged ? 0 : MILL_POST_NOT_CONVERGED;
  p->n_sweep = s->n_sweep - MILL_SAMPLE_BURN;
  p->n_eval = s->n_eval;
  p->accept = s->n_proposal > 0 ? (double)s->n_accepted / (double)s->n_proposal : (double)NAN;
  p->m2ll_least = s->least;
  mill_sample_blank(m, slot);
  mill_sample_moments(m, slot, mill_sample_skipped(slot), mean, covar);
  for (int k = 0; k < n; k++) {
    const int j = slot->free_par[k];
    if (j >= nd)
      continue;
    p->mean[j] += mean[k];
    for (int l = k; l < n; l++)
      if (slot->free_par[l] < nd)
        p->covar[j * nd - j * (j - 1) / 2 + (slot->free_par[l] - j)] = covar[k * n + l];
    mill_sample_summarize_par(m, slot, k, sqrt(covar[k * n + k]));
  }
  if (n > 0)
    mill_sample_put_modes(m, slot);
  if (mill_sample_beyond_hull(m, slot, n_sample))
    p->flag |= MILL_POST_HULL;
  if (s->least < slot->result.m2ll - 1.0)
    p->flag |= MILL_POST_LOWER;
  const int n_draw = m->set.sample.n_draw;
  for (int i = 0; i < n_draw; i++) {
    double theta[MILL_MAX_PAR];
    mill_sample_at(m, slot, (int)((2 * (int64_t)i + 1) * n_sample / (2 * n_draw)), theta);
    for (int j = 0; j < nd; j++)
      mill_posterior_draw(p)[i * nd + j] = theta[j];
  }
  slot->result.status = MILL_STATUS_FITTED;
  slot->stage = MILL_STAGE_DONE;
  slot->request = MILL_REQ_NONE;
}

/* ---- rounds ---- */

/** A sweep is over; 1 when the star is done. */
MILL_HD_CALLED static inline int mill_sample_sweep(const mill_model *m, mill_slot *slot)
{
  mill_sample *s = &slot->sample;
  s->i_walker = 0;
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
      s->n_eval + m->set.sample.n_walker > m->set.sample.max_eval ||
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

/** The next walker's proposal within the limits as the request; those beyond are refused as they
 *  come. */
MILL_HD_CALLED static inline void mill_sample_next(const mill_model *m, mill_slot *slot)
{
  mill_sample *s = &slot->sample;
  for (;; s->i_walker++) {
    if (s->i_walker == m->set.sample.n_walker && mill_sample_sweep(m, slot))
      return;
    mill_sample_propose(m, slot);
    s->n_proposal++;
    if (mill_sample_allowed(m, slot))
      break;
  }
  slot->request = MILL_REQ_VALUE;
}

MILL_HD static inline void mill_sample_put(mill_slot *slot, double f)
{
  double *x = mill_sample_walker(slot, slot->sample.i_walker);
  for (int k = 0; k < slot->n_free; k++)
    x[k] = slot->theta[slot->free_par[k]];
  slot->walker_f[slot->sample.i_walker] = f;
  if (f < slot->sample.least)
    slot->sample.least = f;
}

/** Digest the answer to a first position: take it, or try another one. */
MILL_HD_CALLED static inline void mill_sample_digest_first(const mill_model *m, mill_slot *slot,
                                                           double f)
{
  mill_sample *s = &slot->sample;
  const int is_last = s->n_try >= MILL_SAMPLE_FIRST_TRIES;
  if (!(f < slot->result.m2ll + MILL_SAMPLE_FIRST_F) && !is_last) {
    s->n_try++;
    mill_sample_first(m, slot);
    return;
  }
  mill_sample_put(slot, isfinite(f) ? f : slot->result.m2ll); /* the last try is the solution */
  s->n_try = 0;
  if (++s->i_walker < m->set.sample.n_walker) {
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
  s->n_eval = s->n_proposal = s->n_accepted = 0;
  s->least = slot->result.m2ll;
  slot->result.status = MILL_STATUS_NOT_DONE;
  slot->stage = MILL_STAGE_SAMPLE;
  if (slot->n_free == 0) {
    s->n_sweep = MILL_SAMPLE_BURN;
    mill_sample_end(m, slot, 1);
    return;
  }
  mill_sample_fit_axes(m, slot);
  mill_sample_first(m, slot);
}

/** Digest slot->eval, the value at slot->theta: accept or refuse (Metropolis-Hastings), go on. */
MILL_HD_CALLED static inline void mill_sample_digest(const mill_model *m, mill_slot *slot)
{
  mill_sample *s = &slot->sample;
  const double f = slot->eval.f + mill_penalty(m, slot, slot->theta);
  s->n_eval++;
  if (s->phase == MILL_SAMPLE_POSITIONS) {
    mill_sample_digest_first(m, slot, f);
    return;
  }
  const mill_counter_words w = mill_sample_words(m, slot, MILL_DRAW_CHOICE);
  const double u = mill_counter_uniform(w.v[0], w.v[1]);
  /* written so that NaN is refused */
  if (s->log_factor - 0.5 * (f - slot->walker_f[s->i_walker]) > log(u)) {
    mill_sample_put(slot, f);
    s->n_accepted++;
  }
  s->i_walker++;
  mill_sample_next(m, slot);
}

#endif
