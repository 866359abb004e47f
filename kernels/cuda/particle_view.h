/* SPDX-License-Identifier: BSD-3-Clause */
/** Particles in GPU memory, and block functions that sum their Gaussian kernels (particles.cu). */
#pragma once

#include "kernels/particles/density.h"

enum {
  /** Neighbouring points of a grid line that one thread sums: a segment. */
  MILL_SEGMENT = 16,
  MILL_SEGMENT_MIDDLE = MILL_SEGMENT / 2,
  /** Particles in shared memory at a time: a tile. */
  MILL_PARTICLE_TILE = MILL_BLOCK_THREADS
};

/** An evolution of n_cloud problems, given to its kernels by value. */
struct particle_view {
  mill_particle_setup setup; /**< without record */
  int n_cloud;
  int n_part;                   /**< parts of a cloud's particles, for steps */
  int n_slab;                   /**< parts of a cloud's particles, for densities */
  int n_segment;                /**< grid-line segments in a thread block, a power of 2 */
  int n_grid;                   /**< points of a density */
  int n_node;                   /**< 0 for the exact form */
  double node_unit;             /**< unit of the integer nodes, a power of 2 */
  double rounding;              /**< rounding errors of one particle's nodes, in kernel peaks */
  mill_particle_cloud *cloud;   /**< [n_cloud] */
  mill_particle_kernel *kernel; /**< [n_cloud] */
  double *total;                /**< [n_cloud][MILL_PARTICLE_STRIDE][MILL_PARTICLE_SUMS] */
  double *slab;                 /**< [n_cloud][n_slab][n_grid] */
  unsigned long long *node;     /**< [n_cloud][n_node] two's complement */
  double *work[2];              /**< [n_cloud][n_work] nodes convolved along some axes */
  size_t n_work;
  /* results, as in mill_particle_result, one problem after the other */
  double *density, *bound, *moment, *position;
  int *bad_step;
};

/** A tile of particles in a block's shared memory. */
struct particle_tile {
  double x[MILL_PARTICLE_DIM][MILL_PARTICLE_TILE], weight[MILL_PARTICLE_TILE];
};

static __device__ inline mill_particle_batch particle_batch_of(particle_tile *tile, int n)
{
  mill_particle_batch batch;
  batch.n = n;
  MILL_FOR_AXES(a, MILL_PARTICLE_DIM)
  batch.x[a] = tile->x[a];
  batch.weight = tile->weight;
  batch.work = NULL;
  return batch;
}

/** Position of a segment on the grid. */
struct particle_segment {
  int is_there;                    /**< 0: beyond the grid */
  double other[MILL_PARTICLE_DIM]; /**< places along the other axes */
  double middle;                   /**< place along the last axis, in grid steps, plus shear */
  double rho2;                     /**< (step / width)^2 */
  double inverse;                  /**< 1 / step */
};

/** Return the grid index of point q of segment i, or -1 beyond the grid. */
static __device__ inline int particle_segment_point(const particle_view &v,
                                                    const mill_particle_setup *s, int i, int q)
{
  const int n_point = s->n_grid[s->n_dim - 1];
  const int n_along = (n_point + MILL_SEGMENT - 1) / MILL_SEGMENT;
  const int at = i % n_along * MILL_SEGMENT + q;
  const int64_t point = (int64_t)(i / n_along) * n_point + at;
  return at < n_point && point < v.n_grid ? (int)point : -1;
}

/** Set *g for segment i of the grid: the segment's place and the kernel's constants. */
static __device__ inline void particle_segment_make(const particle_view &v,
                                                    const mill_particle_setup *s,
                                                    const mill_particle_kernel *k, int i,
                                                    particle_segment *g)
{
  const int n_point = s->n_grid[s->n_dim - 1];
  const int n_along = (n_point + MILL_SEGMENT - 1) / MILL_SEGMENT, line = i / n_along;
  const int at = i % n_along * MILL_SEGMENT;
  const double step = mill_grid_step(s, s->n_dim - 1);
  g->is_there = particle_segment_point(v, s, i, 0) >= 0;
  g->middle = at + MILL_SEGMENT_MIDDLE + mill_kernel_line(s, k, line, g->other);
  g->rho2 = step * step * k->along;
  g->inverse = 1.0 / step;
}

/** Add the kernel (peak 1) of particle i of a tile to the points of a segment.
 *
 *  For grid steps up to a kernel width, the k-th point above the segment's middle point gets
 *  middle * up^k, and the k-th point below gets middle * down^k; `middle` is the kernel at the
 *  middle point.  The caller must then multiply the sums by the kernel of each point's distance
 *  from the middle.  If `middle` underflows to 0, the kernel is below 1e-190 at all points, and
 *  nothing is added.  For wider grid steps the kernel itself is added at each point. */
static __device__ inline void particle_segment_add(const mill_particle_setup *s,
                                                   const mill_particle_kernel *k,
                                                   const particle_segment *g,
                                                   const particle_tile *tile, int i, double *sum)
{
  const int last = s->n_dim - 1;
  const double weight = tile->weight[i]; /* 1 or 0 */
  /* at: grid steps along the line from the segment's middle; far2: squared distance off the line */
  double at = (tile->x[last][i] - s->grid_low[last]) * g->inverse - g->middle, far2 = 0.0;
  MILL_FOR_AXES(a, last)
  {
    at += k->shear[a] * tile->x[a][i] * g->inverse;
    MILL_FOR_AXES(e, last)
    far2 += k->rest[a][e] * (tile->x[a][i] - g->other[a]) * (tile->x[e][i] - g->other[e]);
  }
  if (g->rho2 <= 1.0) {
    const double middle = weight * mill_exp_negative(-0.5 * (g->rho2 * at * at + far2));
    if (!(middle > 0.0))
      return;
    const double ln_up = g->rho2 * at, less = mill_exp_negative(-fabs(ln_up)), more = 1.0 / less;
    const double up = ln_up > 0.0 ? more : less, down = ln_up > 0.0 ? less : more;
    double high = middle, low = middle;
    sum[MILL_SEGMENT_MIDDLE] += middle;
    MILL_UNROLL
    for (int q = 1; q < MILL_SEGMENT_MIDDLE; q++) {
      high *= up;
      sum[MILL_SEGMENT_MIDDLE + q] += high;
    }
    MILL_UNROLL
    for (int q = 1; q <= MILL_SEGMENT_MIDDLE; q++) {
      low *= down;
      sum[MILL_SEGMENT_MIDDLE - q] += low;
    }
  } else if (weight > 0.0) {
    MILL_UNROLL
    for (int q = 0; q < MILL_SEGMENT; q++) {
      const double d = q - MILL_SEGMENT_MIDDLE - at;
      sum[q] += mill_exp_negative(-0.5 * (g->rho2 * d * d + far2));
    }
  }
}

/** Sum the kernels of a slab (part of a cloud's particles) at a tile of the grid (n_segment
 *  segments).  A segment has several threads, each for a part of the particles; their sums are
 *  added in a fixed order.
 *
 *  c     the cloud; its parts are the slabs
 *  meet  [MILL_SEGMENT][MILL_BLOCK_THREADS] shared memory for the threads' sums
 *  out   [n_grid], of which the tile's points are set */
static __device__ inline void particle_slab_sum(mill_block *b, const particle_view &v,
                                                const mill_particle_cloud *c,
                                                const mill_particle_kernel *k, int i_tile,
                                                int i_slab, particle_tile *tile, double *meet,
                                                double *out)
{
  const mill_particle_setup *s = c->setup;
  const int begin = mill_particle_first(c, i_slab), end = mill_particle_first(c, i_slab + 1);
  const int n_segment = v.n_segment, n_group = b->n_thread / n_segment;
  const int group = b->thread / n_segment;
  double sum[MILL_SEGMENT];
  particle_segment g = {};
  particle_segment_make(v, s, k, i_tile * n_segment + b->thread % n_segment, &g);
  MILL_UNROLL
  for (int q = 0; q < MILL_SEGMENT; q++)
    sum[q] = 0.0;
  for (int image = 0; image < k->n_all_image; image++)
    for (int first = begin; first < end; first += MILL_PARTICLE_TILE) {
      const int n = end - first < MILL_PARTICLE_TILE ? end - first : MILL_PARTICLE_TILE;
      const mill_particle_batch batch = particle_batch_of(tile, n);
      mill_block_batch(b, c, k, image, first, n, &batch);
      for (int i = group; i < n && g.is_there; i += n_group)
        particle_segment_add(s, k, &g, tile, i, sum);
      MILL_BARRIER(b);
    }
  MILL_UNROLL
  for (int q = 0; q < MILL_SEGMENT; q++) {
    const double d = q - MILL_SEGMENT_MIDDLE; /* the factor that particle_segment_add leaves out */
    const double fade = g.rho2 <= 1.0 ? mill_exp_negative(-0.5 * g.rho2 * d * d) : 1.0;
    meet[q * MILL_BLOCK_THREADS + b->thread] = sum[q] * fade;
  }
  MILL_BARRIER(b);
  MILL_FOR(b, i, n_segment * MILL_SEGMENT)
  {
    const int segment = i / MILL_SEGMENT, q = i % MILL_SEGMENT;
    const int point = particle_segment_point(v, s, i_tile * n_segment + segment, q);
    double total = 0.0;
    for (int e = 0; e < n_group; e++)
      total += meet[q * MILL_BLOCK_THREADS + e * n_segment + segment];
    if (point >= 0)
      out[point] = total;
  }
}

/** Spread one slab of a cloud's particles over the nodes.  node [n_node]: integers in units of 1 /
 *  scale, so that sums do not depend on the order. */
static __device__ inline void particle_slab_spread(mill_block *b, const mill_particle_cloud *c,
                                                   const mill_particle_kernel *k, int i_slab,
                                                   double scale, particle_tile *tile,
                                                   unsigned long long *node)
{
  const mill_particle_setup *s = c->setup;
  const int begin = mill_particle_first(c, i_slab), end = mill_particle_first(c, i_slab + 1);
  /* nodes around a particle along the axes before the last: 4, or 1 without such an axis */
  const int n0 = s->n_dim > 1 ? 4 : 1, n1 = s->n_dim > 2 ? 4 : 1;
  double low[MILL_PARTICLE_DIM], inverse[MILL_PARTICLE_DIM], spacing;
  MILL_FOR_AXES(a, s->n_dim)
  {
    mill_node_axis(s, k, a, &low[a], &spacing);
    inverse[a] = 1.0 / spacing;
  }
  for (int image = 0; image < k->n_all_image; image++)
    for (int first = begin; first < end; first += MILL_PARTICLE_TILE) {
      const int n = end - first < MILL_PARTICLE_TILE ? end - first : MILL_PARTICLE_TILE;
      const mill_particle_batch batch = particle_batch_of(tile, n);
      mill_block_batch(b, c, k, image, first, n, &batch);
      MILL_FOR(b, i, n)
      {
        double weight[MILL_PARTICLE_DIM][4];
        int at[MILL_PARTICLE_DIM];
        if (!mill_node_place(s, &batch, i, low, inverse, at, weight))
          continue;
        MILL_UNROLL
        for (int j = 0; j < 4; j++)
          MILL_UNROLL
        for (int e = 0; e < 4; e++) {
          double part;
          if (j >= n0 || e >= n1)
            continue;
          unsigned long long *line = node + mill_node_row(s, at, weight, j, e, &part);
          MILL_UNROLL
          for (int q = 0; q < 4; q++)
            (void)atomicAdd(
                line + q, (unsigned long long)llrint(part * mill_node_along(s, weight, q) * scale));
        }
      }
      MILL_BARRIER(b);
    }
}
