/* SPDX-License-Identifier: BSD-3-Clause */
/** Motion of particles: start, steps, boundaries, moments.  A block moves a part of them. */
#pragma once

#include "kernels/math/counter_random.h"
#include "kernels/particles/potential.h"

/** Sums over particles: number alive, number of bad steps (NaN or too long), first and second
 *  moments about a reference point. */
enum { MILL_PARTICLE_SUMS = 2 + 9 };

/** Index of the sum over x_a x_e, a <= e, among the second moments. */
MILL_HD static inline int mill_particle_cross(int a, int e)
{
  return a * (2 * MILL_PARTICLE_DIM - 1 - a) / 2 + e;
}

/** Most steps for which a block moves its particles before all blocks' sums are added. */
enum { MILL_PARTICLE_STRIDE = 64 };

/** Purposes of random numbers, for mill_counter_key_of. */
enum { MILL_PARTICLE_DRAW_START = 1, MILL_PARTICLE_DRAW_STEP = 2 };

/** State of a problem, in the memory of its backend. */
typedef struct mill_particle_cloud {
  const mill_particle_setup *setup;
  const mill_particle_problem *problem;
  int n_part;                          /**< parts of the particles, one block each */
  double *x;                           /**< [n_dim][n_particle] */
  double *alive;                       /**< [n_particle] 1 or 0 */
  double *sums;                        /**< [n_part][MILL_PARTICLE_SUMS] */
  double reference[MILL_PARTICLE_DIM]; /**< point about which moments are summed */
  int bad_step;                        /**< as in mill_particle_result */
} mill_particle_cloud;

/** Set up a problem before its first step; the caller sets the arrays. */
static inline void mill_particle_cloud_begin(mill_particle_cloud *c,
                                             const mill_particle_setup *setup,
                                             const mill_particle_problem *problem, int n_part)
{
  c->setup = setup;
  c->problem = problem;
  c->n_part = n_part;
  c->bad_step = -1;
  for (int a = 0; a < MILL_PARTICLE_DIM; a++) {
    c->reference[a] = 0.0;
    if (a < setup->n_dim)
      c->reference[a] =
          problem->start == MILL_START_SAMPLES ? setup->sample[a] : problem->start_centre[a];
  }
}

/** Index of a part's first particle; for part n_part the number of particles. */
MILL_HD static inline int mill_particle_first(const mill_particle_cloud *c, int part)
{
  return (int)((int64_t)c->setup->n_particle * part / c->n_part);
}

/** Draw standard normals for every axis of particles [first, first + n) at a step: noise
 *  [MILL_PARTICLE_DIM][MILL_CHUNK]. */
MILL_HD static inline void mill_particle_noise(mill_counter_key key, int n_dim, int first, int n,
                                               uint32_t step, double noise[][MILL_CHUNK])
{
  if (n_dim == 1) { /* one pair is enough */
    MILL_SIMD
    for (int i = 0; i < n; i++) {
      float x, y;
      const mill_counter_words words = mill_counter_at(key, (uint32_t)(first + i), step, 0);
      mill_counter_pair(words.v[0], words.v[1], &x, &y);
      noise[0][i] = (double)x;
    }
    return;
  }
  MILL_SIMD
  for (int i = 0; i < n; i++) {
    float x, y, z, rest;
    const mill_counter_words words = mill_counter_at(key, (uint32_t)(first + i), step, 0);
    mill_counter_pair(words.v[0], words.v[1], &x, &y);
    mill_counter_pair(words.v[2], words.v[3], &z, &rest);
    noise[0][i] = (double)x;
    noise[1][i] = (double)y;
    noise[2][i] = (double)z;
  }
}

/** Apply the boundary of one axis to n coordinates x: mirror or wrap them. */
MILL_HD static inline void mill_particle_bound(int boundary, double low, double high, int n,
                                               double *x)
{
  const double length = high - low;
  if (boundary == MILL_REFLECTING) {
    MILL_SIMD
    for (int i = 0; i < n; i++) {
      double u = (x[i] - low) / length;
      u -= 2.0 * floor(0.5 * u);
      x[i] = low + length * (u > 1.0 ? 2.0 - u : u);
    }
  } else if (boundary == MILL_PERIODIC) {
    MILL_SIMD
    for (int i = 0; i < n; i++) {
      const double u = (x[i] - low) / length;
      x[i] = low + length * (u - floor(u));
    }
  }
}

/** Set alive [n] to 0 for particles that crossed an end of absorbing axis a within a step, even if
 *  they returned.  A path that begins and ends at distances p and q from an end crosses this end
 *  with probability exp(-p q / (D step)) (Gobet 2000, Stoch. Proc. Appl. 87, 167).
 *  from, to [n]: coordinates before and after the step; word [n]: random words of this axis */
MILL_HD static inline void mill_particle_absorb(const mill_particle_setup *s, double diffusion,
                                                int a, int n, const double *from, const double *to,
                                                const uint32_t *word, double *alive)
{
  const double scale = diffusion > 0.0 ? -1.0 / (diffusion * s->step) : -1e300; /* never */
  for (int i = 0; i < n; i++) {
    const double p0 = from[i] - s->low[a], p1 = to[i] - s->low[a];
    const double q0 = s->high[a] - from[i], q1 = s->high[a] - to[i];
    const double u = ((double)word[i] + 0.5) * 0x1p-32;
    if (!(p1 > 0.0 && q1 > 0.0) || u < exp(scale * p0 * p1) + exp(scale * q0 * q1))
      alive[i] = 0.0;
  }
}

/** Add to sum [MILL_PARTICLE_SUMS] the number of living particles, of n, and their first and second
 *  moments about the reference; sum[1] (bad steps) stays.  at[a][i]: coordinate of particle i. */
MILL_HD static inline void mill_particle_sum(const mill_particle_cloud *c, int n,
                                             double at[][MILL_CHUNK], const double *alive,
                                             double *sum)
{
  const int n_dim = c->setup->n_dim;
  double n_alive = 0.0;
  MILL_SIMD_SUM(n_alive)
  for (int i = 0; i < n; i++)
    n_alive += alive[i];
  sum[0] += n_alive;
  MILL_FOR_AXES(a, n_dim)
  {
    const double origin = c->reference[a];
    double first = 0.0;
    MILL_SIMD_SUM(first)
    for (int i = 0; i < n; i++)
      first += alive[i] * (at[a][i] - origin);
    sum[2 + a] += first;
    MILL_FOR_AXES(e, n_dim)
    {
      if (e < a)
        continue;
      const double other = c->reference[e];
      double second = 0.0;
      MILL_SIMD_SUM(second)
      for (int i = 0; i < n; i++)
        second += alive[i] * ((at[a][i] - origin) * (at[e][i] - other));
      sum[2 + MILL_PARTICLE_DIM + mill_particle_cross(a, e)] += second;
    }
  }
}

/** Move particles [first, first + n) by one step.  at[a][i]: coordinate of particle i; alive[i]
 *  becomes 0 for absorbed particles.  Returns how many steps along an axis are NaN or too long. */
MILL_HD static inline double mill_particle_step(const mill_particle_cloud *c, int step, int first,
                                                int n, double at[][MILL_CHUNK], double *alive)
{
  const mill_particle_setup *s = c->setup;
  const mill_particle_problem *p = c->problem;
  const int n_dim = s->n_dim;
  const double dt = s->step, time = s->start_time + (step - 1) * dt;
  const double spread = sqrt(2.0 * p->diffusion * dt);
  const mill_counter_key key = mill_counter_key_of(s->seed, p->id, MILL_PARTICLE_DRAW_STEP);
  double noise[MILL_PARTICLE_DIM][MILL_CHUNK], slope[MILL_PARTICLE_DIM][MILL_CHUNK];
  double next[MILL_PARTICLE_DIM][MILL_CHUNK], later[MILL_PARTICLE_DIM][MILL_CHUNK];
  double bad = 0.0;
  mill_particle_noise(key, n_dim, first, n, (uint32_t)step, noise);
  mill_particle_slope(s, p, time, n, at, slope);
  if (s->scheme == MILL_HEUN) {
    MILL_FOR_AXES(a, n_dim)
    {
      MILL_SIMD
      for (int i = 0; i < n; i++)
        next[a][i] = at[a][i] - dt * slope[a][i] + spread * noise[a][i];
      mill_particle_bound(s->boundary[a], s->low[a], s->high[a], n, next[a]);
    }
    mill_particle_slope(s, p, time + dt, n, next, later);
    MILL_FOR_AXES(a, n_dim)
    {
      MILL_SIMD
      for (int i = 0; i < n; i++)
        slope[a][i] = 0.5 * (slope[a][i] + later[a][i]);
    }
  }
  MILL_FOR_AXES(a, n_dim)
  {
    /* most: longest step allowed; without forces long steps are mirrored or wrapped exactly */
    const int is_exact = p->potential == MILL_FREE && mill_particle_has_images(s, a);
    const double most =
        s->boundary[a] == MILL_OPEN ? 1e300 : (s->high[a] - s->low[a]) * (is_exact ? 1e6 : 1.0);
    double n_bad = 0.0;
    MILL_SIMD_SUM(n_bad)
    for (int i = 0; i < n; i++) {
      const double way = spread * noise[a][i] - dt * slope[a][i];
      next[a][i] = at[a][i] + way;
      n_bad += fabs(way) <= most ? 0.0 : alive[i]; /* NaN is bad too */
    }
    bad += n_bad;
    if (s->boundary[a] == MILL_ABSORBING) {
      uint32_t word[MILL_CHUNK];
      for (int i = 0; i < n; i++) /* draw 1; draw 0 is the noise */
        word[i] = mill_counter_at(key, (uint32_t)(first + i), (uint32_t)step, 1).v[a];
      mill_particle_absorb(s, p->diffusion, a, n, at[a], next[a], word, alive);
    } else {
      mill_particle_bound(s->boundary[a], s->low[a], s->high[a], n, next[a]);
    }
  }
  MILL_FOR_AXES(a, n_dim)
  {
    MILL_SIMD
    for (int i = 0; i < n; i++) /* absorbed particles keep their position */
      at[a][i] = alive[i] > 0.0 ? next[a][i] : at[a][i];
  }
  return bad;
}

/** Set start positions at[a][i] and alive[i] of particles [first, first + n). */
MILL_HD static inline void mill_particle_begin(const mill_particle_cloud *c, int first, int n,
                                               double at[][MILL_CHUNK], double *alive)
{
  const mill_particle_setup *s = c->setup;
  const mill_particle_problem *p = c->problem;
  const mill_counter_key key = mill_counter_key_of(s->seed, p->id, MILL_PARTICLE_DRAW_START);
  double draw[MILL_PARTICLE_DIM][MILL_CHUNK]; /* distances from the centre, in spreads */
  if (p->start == MILL_START_NORMAL)
    mill_particle_noise(key, s->n_dim, first, n, 0, draw);
  for (int i = 0; i < n; i++)
    alive[i] = 1.0;
  MILL_FOR_AXES(a, s->n_dim)
  {
    for (int i = 0; i < n; i++) {
      if (p->start == MILL_START_SAMPLES) {
        at[a][i] = s->sample[(size_t)(first + i) * (size_t)s->n_dim + (size_t)a];
        continue;
      }
      if (p->start == MILL_START_UNIFORM) {
        const mill_counter_words words =
            mill_counter_at(key, (uint32_t)(first + i), 0, (uint32_t)a);
        draw[a][i] = 2.0 * mill_counter_uniform(words.v[0], words.v[1]) - 1.0;
      }
      at[a][i] = p->start_centre[a] + p->start_spread[a] * draw[a][i];
    }
    mill_particle_bound(s->boundary[a], s->low[a], s->high[a], n, at[a]);
    if (s->boundary[a] == MILL_ABSORBING)
      for (int i = 0; i < n; i++) /* a start at or beyond the boundary is absorbed */
        alive[i] = at[a][i] > s->low[a] && at[a][i] < s->high[a] ? alive[i] : 0.0;
  }
}

/** Start a part of a cloud (step 0) or move it by one step; then write its row of c->sums. */
MILL_BLOCK_FN void mill_block_particles(mill_block *b, const mill_particle_cloud *c, int part,
                                        int step)
{
  const int n_dim = c->setup->n_dim, begin = mill_particle_first(c, part);
  const int n_all = mill_particle_first(c, part + 1) - begin;
  const size_t row = (size_t)c->setup->n_particle;
  double sum[MILL_PARTICLE_SUMS], total[MILL_PARTICLE_SUMS];
  for (int k = 0; k < MILL_PARTICLE_SUMS; k++)
    sum[k] = 0.0;
  MILL_FOR(b, i_chunk, mill_chunks(n_all, MILL_CHUNK))
  {
    const int offset = i_chunk * MILL_CHUNK, first = begin + offset;
    const int n = mill_chunk_len(n_all, offset, MILL_CHUNK);
    double at[MILL_PARTICLE_DIM][MILL_CHUNK], alive[MILL_CHUNK];
    if (step == 0) {
      mill_particle_begin(c, first, n, at, alive);
    } else {
      for (int i = 0; i < n; i++)
        alive[i] = c->alive[first + i];
      MILL_FOR_AXES(a, n_dim)
      for (int i = 0; i < n; i++)
        at[a][i] = c->x[(size_t)a * row + (size_t)(first + i)];
      sum[1] += mill_particle_step(c, step, first, n, at, alive); /* bad steps */
    }
    for (int i = 0; i < n; i++)
      c->alive[first + i] = alive[i];
    MILL_FOR_AXES(a, n_dim)
    for (int i = 0; i < n; i++)
      c->x[(size_t)a * row + (size_t)(first + i)] = at[a][i];
    mill_particle_sum(c, n, at, alive, sum);
  }
  mill_block_sum_n(b, sum, MILL_PARTICLE_SUMS, total);
  MILL_SERIAL(b)
  for (int k = 0; k < MILL_PARTICLE_SUMS; k++)
    c->sums[(size_t)part * MILL_PARTICLE_SUMS + (size_t)k] = total[k];
}

/** After a step, compute a cloud's moments from the sums of the cloud's parts, in one thread.
 *  moment [MILL_PARTICLE_MOMENTS] out: NaN from the first bad step on */
MILL_HD static inline void mill_particle_moments(mill_particle_cloud *c, int step, double *moment)
{
  const int n_dim = c->setup->n_dim;
  double sum[MILL_PARTICLE_SUMS] = {0}; /* alive, bad steps, first and second moments */
  for (int part = 0; part < c->n_part; part++)
    for (int k = 0; k < MILL_PARTICLE_SUMS; k++)
      sum[k] += c->sums[(size_t)part * MILL_PARTICLE_SUMS + (size_t)k];
  const double n = sum[0];
  if (sum[1] > 0.0 && c->bad_step < 0)
    c->bad_step = step;
  for (int k = 0; k < MILL_PARTICLE_MOMENTS; k++)
    moment[k] = c->bad_step < 0 ? 0.0 : NAN;
  if (c->bad_step >= 0)
    return;
  moment[0] = n / c->setup->n_particle;
  for (int a = 0; a < n_dim; a++)
    for (int e = a; e < n_dim; e++) {
      const int k = 1 + MILL_PARTICLE_DIM + mill_particle_cross(a, e);
      /* `moment` lacks the bad steps, sum[1], so its element k belongs to sum[1 + k] */
      const double cross = sum[1 + k] - sum[2 + a] * sum[2 + e] / n;
      moment[k] = n > 1.0 ? cross / (n - 1.0) : 0.0;
    }
  for (int a = 0; a < n_dim; a++)
    moment[1 + a] = c->reference[a] + sum[2 + a] / n; /* NaN if no particle is left */
}

/** Compute moment [n_step][MILL_PARTICLE_MOMENTS] of steps [step, step + n_step).  Set
 *  c->reference, the reference point of later sums, to the last mean. */
MILL_HD static inline void mill_particle_settle(mill_particle_cloud *c, int step, int n_step,
                                                double *moment)
{
  double *const sums = c->sums;
  for (int k = 0; k < n_step; k++) {
    c->sums = sums + (size_t)k * (size_t)c->n_part * MILL_PARTICLE_SUMS;
    mill_particle_moments(c, step + k, moment + (size_t)k * MILL_PARTICLE_MOMENTS);
  }
  c->sums = sums;
  moment += (size_t)(n_step - 1) * MILL_PARTICLE_MOMENTS;
  for (int a = 0; a < c->setup->n_dim && moment[0] > 0.0; a++)
    c->reference[a] = moment[1 + a];
}
