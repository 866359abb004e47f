/* SPDX-License-Identifier: BSD-3-Clause */
/** Sum the Gaussian kernels of a batch of particles on a CPU.  One thread does this, with vectors.
 *
 *  Particles are sorted by their grid cell along the last axis.  On a grid line, all kernels of a
 *  cell are computed outwards from the point nearest to the cell.  So MILL_KERNEL_LANES kernels are
 *  added together, with one multiplication per point (kernels/particles/density.h). */
#pragma once

#include <string.h>

#include "kernels/math/vector.h"
#include "kernels/particles/density.h"

enum {
  /** Particles of a batch: with fewer, cells would hold too few to fill the lanes. */
  MILL_PARTICLE_BATCH = 8192,
  MILL_KERNEL_LANES = 16,
  MILL_KERNEL_MAX_CELL = 16384
};

/** From this x on exp(-x^2 / 2) is 0 in float64. */
#define MILL_KERNEL_END 38.7

enum { MILL_KERNEL_VECS = MILL_KERNEL_LANES / MILL_VEC_N_F64 };

/** Work space of one thread: `work` of mill_particle_batch. */
typedef struct mill_kernel_work {
  double x[MILL_PARTICLE_DIM][MILL_PARTICLE_BATCH], weight[MILL_PARTICLE_BATCH];
  double sheared[MILL_PARTICLE_BATCH]; /* place along the last axis plus shear, in grid steps */
  int cell[MILL_PARTICLE_BATCH], first[MILL_KERNEL_MAX_CELL + 1];
  /* sorted by cell; offset: grid steps from the cell's centre */
  double offset[MILL_PARTICLE_BATCH], place[MILL_PARTICLE_DIM][MILL_PARTICLE_BATCH];
  double share[MILL_PARTICLE_BATCH];
  /* by lane: from mill_kernel_start */
  double up[MILL_KERNEL_LANES], down[MILL_KERNEL_LANES], start[MILL_KERNEL_LANES];
  double fade[MILL_PARTICLE_MAX_GRID];         /* exp(-rho^2 k^2 / 2) */
  mill_vec_f64 sum[2][MILL_PARTICLE_MAX_GRID]; /* upwards, downwards */
} mill_kernel_work;

/** Data common to all lines of the grid. */
typedef struct mill_kernel_lines {
  const mill_particle_setup *setup;
  const mill_particle_kernel *kernel;
  int last, n_point, n_line;
  int reach;            /**< most grid points of a kernel on each side of its centre */
  double rho2;          /**< (step / width)^2 along a line */
  int low_cell, n_cell; /**< first cell, and number of cells */
} mill_kernel_lines;

/** Set *l.  Its cells cover the last axis and beyond, as far as the shear (density.h) moves
 *  particles.  If there are too many cells, n_cell is MILL_KERNEL_MAX_CELL + 1. */
static inline void mill_kernel_lines_make(const mill_particle_setup *s,
                                          const mill_particle_kernel *k, mill_kernel_lines *l)
{
  const int last = s->n_dim - 1;
  const double rho = mill_grid_step(s, last) * sqrt(k->along);
  double low = 0.0, high = 0.0;
  *l = (mill_kernel_lines){.setup = s, .kernel = k, .last = last, .n_point = s->n_grid[last]};
  l->rho2 = rho * rho;
  l->reach = (int)fmin(MILL_KERNEL_END / rho + 2.0, l->n_point);
  l->n_line = 1;
  for (int a = 0; a < last; a++)
    l->n_line *= s->n_grid[a];
  /* the shear is linear: its extremes are at corners of the grid */
  for (int a = 0; a < last; a++) {
    const double x = k->shear[a] * s->grid_low[a], y = k->shear[a] * s->grid_high[a];
    low += fmin(x, y);
    high += fmax(x, y);
  }
  const double low_step = rint(low / mill_grid_step(s, last)) - 1.0;
  const double high_step = rint(high / mill_grid_step(s, last)) + 1.0;
  const int are_few = high_step - low_step < MILL_KERNEL_MAX_CELL - l->n_point;
  l->n_cell = are_few ? l->n_point + (int)(high_step - low_step) : MILL_KERNEL_MAX_CELL + 1;
  l->low_cell = are_few ? (int)low_step : 0;
}

/** Sort particles of weight > 0 by cell.  A particle's cell follows from its coordinate on the last
 *  axis plus the shear (density.h).  Particles of cell c begin at w->first[c]. */
static inline void mill_kernel_sort(const mill_kernel_lines *l, const mill_particle_batch *batch,
                                    mill_kernel_work *w)
{
  const mill_particle_setup *s = l->setup;
  const double inverse = 1.0 / mill_grid_step(s, l->last);
  const double lowest = l->low_cell, highest = l->low_cell + l->n_cell - 1;
  memcpy(w->sheared, batch->x[l->last], (size_t)batch->n * sizeof *w->sheared);
  for (int a = 0; a < l->last; a++) {
    const double shear = l->kernel->shear[a];
    MILL_SIMD
    for (int i = 0; i < batch->n; i++)
      w->sheared[i] += shear * batch->x[a][i];
  }
  MILL_SIMD
  for (int i = 0; i < batch->n; i++) {
    const double u = (w->sheared[i] - s->grid_low[l->last]) * inverse;
    double c = floor(u + 0.5);
    c = c > lowest ? c : lowest;
    c = c < highest ? c : highest;
    w->sheared[i] = u - c; /* from here on the offset from the cell's centre */
    w->cell[i] = (int)c - l->low_cell;
  }
  memset(w->first, 0, (size_t)(l->n_cell + 1) * sizeof *w->first);
  for (int i = 0; i < batch->n; i++)
    w->first[w->cell[i] + 1] += batch->weight[i] > 0.0;
  for (int c = 0; c < l->n_cell; c++)
    w->first[c + 1] += w->first[c];
  for (int i = 0; i < batch->n; i++) {
    if (!(batch->weight[i] > 0.0))
      continue;
    const int to = w->first[w->cell[i]]++;
    w->offset[to] = w->sheared[i];
    w->share[to] = batch->weight[i];
    for (int a = 0; a < l->last; a++)
      w->place[a][to] = batch->x[a][i];
  }
  /* first[c] has moved to the end of cell c */
  for (int c = l->n_cell; c > 0; c--)
    w->first[c] = w->first[c - 1];
  w->first[0] = 0;
}

/** Load particles into the lanes: at most n, from the particle `from` on.  Returns 0 if all their
 *  kernels are 0 at the start point.
 *
 *  other           in   the line's coordinates on all axes but the last
 *  delta           in   centre of the particles' cell minus the line's start point, in grid steps
 *  w->start        out  kernel of each lane at the start point; 0 in lanes without a particle
 *  w->up, w->down  out  the kernel is start * up^k * w->fade[k - 1] at the k-th point up the line,
 *                       and start * down^k * w->fade[k - 1] at the k-th point down the line */
static inline int mill_kernel_start(const mill_kernel_lines *l, const double *other, double delta,
                                    int from, int n, mill_kernel_work *w)
{
  const mill_particle_kernel *k = l->kernel;
  const double rho2 = l->rho2;
  double any = 0.0;
  double d[MILL_KERNEL_LANES], far[MILL_KERNEL_LANES]; /* along the line; off it, squared */
  n = n < MILL_KERNEL_LANES ? n : MILL_KERNEL_LANES;
  for (int q = 0; q < MILL_KERNEL_LANES; q++) {
    far[q] = 0.0;
    d[q] = q < n ? w->offset[from + q] + delta : 0.0;
    w->start[q] = q < n ? w->share[from + q] : 0.0;
  }
  for (int a = 0; a < l->last; a++)
    for (int e = 0; e < l->last; e++) {
      const double rest = k->rest[a][e], x = other[a], y = other[e];
      const double *at_a = w->place[a] + from, *at_e = w->place[e] + from;
      for (int q = 0; q < n; q++)
        far[q] += rest * (at_a[q] - x) * (at_e[q] - y);
    }
  MILL_SIMD_SUM(any)
  for (int q = 0; q < MILL_KERNEL_LANES; q++) {
    w->start[q] *= mill_exp_negative(-0.5 * (rho2 * d[q] * d[q] + far[q]));
    any += w->start[q];
  }
  if (any == 0.0)
    return 0;
  /* the kernel's ratio from one point to the next is exp(e) upwards, exp(-e) downwards */
  MILL_SIMD
  for (int q = 0; q < MILL_KERNEL_LANES; q++) {
    const double e = rho2 * d[q], less = mill_exp_negative(-fabs(e)), more = 1.0 / less;
    w->up[q] = e > 0.0 ? more : less;
    w->down[q] = e > 0.0 ? less : more;
  }
  return 1;
}

/** Add start * ratio^k of all lanes to sum[k - 1], k = 1 .. n.  Two points per pass halve the
 *  chain of dependent multiplications. */
static inline void mill_kernel_walk(const double *start, const double *ratio, int n,
                                    mill_vec_f64 *sum)
{
  mill_vec_f64 odd[MILL_KERNEL_VECS], even[MILL_KERNEL_VECS], two[MILL_KERNEL_VECS];
  for (int v = 0; v < MILL_KERNEL_VECS; v++) {
    const mill_vec_f64 r = *(const mill_vec_f64 *)(ratio + v * MILL_VEC_N_F64);
    odd[v] = *(const mill_vec_f64 *)(start + v * MILL_VEC_N_F64) * r;
    even[v] = odd[v] * r;
    two[v] = r * r;
  }
  for (int k = 0; k < n; k += 2) { /* sum has room for n + 1 points */
    mill_vec_f64 first = odd[0], second = even[0];
    odd[0] *= two[0];
    even[0] *= two[0];
    for (int v = 1; v < MILL_KERNEL_VECS; v++) {
      first += odd[v];
      second += even[v];
      odd[v] *= two[v];
      even[v] *= two[v];
    }
    sum[k] += first;
    sum[k + 1] += second;
  }
}

/** Add the kernels of one cell's particles to out [line][point].  On each line, start at the point
 *  nearest to the cell and go up and down from it.  w->fade is a factor common to all kernels. */
static inline void mill_kernel_cell(const mill_kernel_lines *l, int cell, mill_kernel_work *w,
                                    double *out)
{
  const int begin = w->first[cell], end = w->first[cell + 1];
  double other[MILL_PARTICLE_DIM] = {0}; /* the line's coordinates on all axes but the last */
  for (int line = 0; line < l->n_line; line++) {
    const double shift = mill_kernel_line(l->setup, l->kernel, line, other);
    const int nearest = l->low_cell + cell - (int)rint(shift), end_point = l->n_point - 1;
    const int point = nearest < 0 ? 0 : (nearest < end_point ? nearest : end_point);
    const double delta = (l->low_cell + cell) - shift - point; /* cell's centre minus point */
    const int n_up = point + l->reach < end_point ? l->reach : end_point - point;
    const int n_down = point < l->reach ? point : l->reach;
    mill_vec_f64 *up = w->sum[0], *down = w->sum[1];
    double *to = out + (size_t)line * (size_t)l->n_point + point, at_start = 0.0;
    int is_empty = 1;
    for (int from = begin; from < end; from += MILL_KERNEL_LANES) {
      if (!mill_kernel_start(l, other, delta, from, end - from, w))
        continue; /* these kernels are all 0 */
      if (is_empty) {
        memset(up, 0, (size_t)(n_up + 1) * sizeof *up);
        memset(down, 0, (size_t)(n_down + 1) * sizeof *down);
        is_empty = 0;
      }
      for (int q = 0; q < MILL_KERNEL_LANES; q++)
        at_start += w->start[q];
      mill_kernel_walk(w->start, w->up, n_up, up);
      mill_kernel_walk(w->start, w->down, n_down, down);
    }
    if (is_empty)
      continue;
    to[0] += at_start;
    for (int k = 0; k < n_up; k++)
      to[k + 1] += w->fade[k] * mill_vec_sum_f64(&up[k]);
    for (int k = 0; k < n_down; k++)
      to[-k - 1] += w->fade[k] * mill_vec_sum_f64(&down[k]);
  }
}

/** Add one particle's kernel point by point: for wide grid steps or a steep shear. */
static inline void mill_kernel_one(const mill_kernel_lines *l, const mill_particle_batch *batch,
                                   int i, double *out)
{
  const mill_particle_kernel *k = l->kernel;
  const double step = mill_grid_step(l->setup, l->last), low = l->setup->grid_low[l->last];
  double other[MILL_PARTICLE_DIM] = {0};
  for (int line = 0; line < l->n_line; line++) {
    const double shift = mill_kernel_line(l->setup, k, line, other);
    double at = (batch->x[l->last][i] - low) / step - shift, far = 0.0;
    for (int a = 0; a < l->last; a++) {
      at += k->shear[a] * batch->x[a][i] / step;
      for (int e = 0; e < l->last; e++)
        far += k->rest[a][e] * (batch->x[a][i] - other[a]) * (batch->x[e][i] - other[e]);
    }
    const int first = (int)fmin(fmax(at - l->reach, 0.0), l->n_point);
    const int end = (int)fmin(fmax(at + l->reach + 1.0, 0.0), l->n_point);
    double *to = out + (size_t)line * (size_t)l->n_point;
    MILL_SIMD
    for (int p = first; p < end; p++)
      to[p] += batch->weight[i] * mill_exp_negative(-0.5 * (l->rho2 * (p - at) * (p - at) + far));
  }
}

/** Add the kernels of a batch to the grid `out`, in units of a kernel's peak. */
static inline void mill_kernel_sum(const mill_particle_setup *s, const mill_particle_kernel *k,
                                   const mill_particle_batch *batch, double *out)
{
  mill_kernel_work *w = (mill_kernel_work *)batch->work;
  mill_kernel_lines lines;
  mill_kernel_lines_make(s, k, &lines);
  /* steps above four widths would let the ratios overflow; a steep shear needs too many cells */
  if (lines.rho2 > 16.0 || lines.n_cell > MILL_KERNEL_MAX_CELL) {
    for (int i = 0; i < batch->n; i++)
      if (batch->weight[i] > 0.0)
        mill_kernel_one(&lines, batch, i, out);
    return;
  }
  for (int i = 0; i < lines.reach; i++)
    w->fade[i] = mill_exp_negative(-0.5 * lines.rho2 * (i + 1) * (i + 1));
  mill_kernel_sort(&lines, batch, w);
  for (int cell = 0; cell < lines.n_cell; cell++)
    if (w->first[cell] < w->first[cell + 1])
      mill_kernel_cell(&lines, cell, w, out);
}

/** Add each particle of a batch to its four nodes along each axis of `out`, the grid of nodes. */
static inline void mill_kernel_spread(const mill_particle_setup *s, const mill_particle_kernel *k,
                                      const mill_particle_batch *batch, double *out)
{
  double low[MILL_PARTICLE_DIM], inverse[MILL_PARTICLE_DIM], spacing;
  /* passes of the loops j and e, over the first and second axis; the loop q takes the last axis */
  const int n0 = s->n_dim > 1 ? 4 : 1, n1 = s->n_dim > 2 ? 4 : 1;
  for (int a = 0; a < s->n_dim; a++) {
    mill_node_axis(s, k, a, &low[a], &spacing);
    inverse[a] = 1.0 / spacing;
  }
  for (int i = 0; i < batch->n; i++) {
    double weight[MILL_PARTICLE_DIM][4];
    int at[MILL_PARTICLE_DIM] = {0};
    if (!mill_node_place(s, batch, i, low, inverse, at, weight))
      continue;
    for (int j = 0; j < n0; j++)
      for (int e = 0; e < n1; e++) {
        double part;
        double *line = out + mill_node_row(s, at, weight, j, e, &part);
        for (int q = 0; q < 4; q++)
          line[q] += part * mill_node_along(s, weight, q);
      }
  }
}
