/* SPDX-License-Identifier: BSD-3-Clause */
/** Gradients of potentials at many places. */
#pragma once

#include "kernels/math/block.h"
#include "kernels/particles/particles.h"

/** A loop over n axes, unrolled on a GPU so that arrays indexed by axis stay in registers. */
#define MILL_FOR_AXES(a, n)                                                                        \
  MILL_UNROLL                                                                                      \
  for (int a = 0; a < MILL_PARTICLE_DIM; a++)                                                      \
    if (a < (n))

/** Compute values and slopes of an interval's four uniform cubic B-splines at t in [0, 1]. */
MILL_HD static inline void mill_bspline(double t, double value[4], double slope[4])
{
  const double s = 1.0 - t, sixth = 1.0 / 6.0;
  value[0] = sixth * s * s * s;
  value[1] = sixth * (4.0 + t * t * (3.0 * t - 6.0));
  value[2] = sixth * (4.0 + s * s * (3.0 * s - 6.0));
  value[3] = sixth * t * t * t;
  slope[0] = -0.5 * s * s;
  slope[1] = t * (1.5 * t - 2.0);
  slope[2] = -s * (1.5 * s - 2.0);
  slope[3] = 0.5 * t * t;
}

/** Return the interval of axis a that contains x; *t: place of x in the interval, 0 to 1.  An x
 *  beyond the grid counts as the edge, NaN as the first node. */
MILL_HD static inline int mill_field_interval(const mill_particle_field *f, int a, double x,
                                              double *t)
{
  const int n_cell = f->periodic[a] ? f->n_node[a] : f->n_node[a] - 1;
  double u = (x - f->low[a]) / f->spacing[a];
  if (f->periodic[a])
    u -= n_cell * floor(u / n_cell);
  u = u > 0.0 ? u : 0.0;
  u = u < n_cell ? u : n_cell;
  int i = (int)u;
  i = i < n_cell - 1 ? i : n_cell - 1;
  *t = u - i;
  return i;
}

/** Index of coefficient i of an axis; on a periodic axis an i beyond the last one wraps around. */
MILL_HD static inline size_t mill_field_at(const mill_particle_field *f, int a, int i)
{
  return (size_t)(i < f->n_node[a] + 2 ? i : i - f->n_node[a]);
}

/** Return the first of the two time slices around a time; *part: the second slice's weight. */
MILL_HD static inline int mill_field_slice(const mill_particle_field *f, double time, double *part)
{
  int k = 0;
  while (k < f->n_time - 2 && time > f->time[k + 1])
    k++;
  *part = 0.0;
  if (f->n_time > 1) {
    const double p = (time - f->time[k]) / (f->time[k + 1] - f->time[k]);
    *part = p > 0.0 ? (p < 1.0 ? p : 1.0) : 0.0;
  }
  return k;
}

/** Coordinates of a place, or of a gradient. */
typedef struct mill_particle_place {
  double v[MILL_PARTICLE_DIM];
} mill_particle_place;

/** Compute the gradient at a place, from one time slice's coefficients; 0 along axes past n_dim. */
MILL_HD_CALLED static inline mill_particle_place
mill_field_slope(const mill_particle_field *f, const double *coef, mill_particle_place at)
{
  const int n_dim = f->n_dim;
  const int n_coef1 = n_dim > 1 ? f->n_node[1] + 2 : 1, n_coef2 = n_dim > 2 ? f->n_node[2] + 2 : 1;
  double value[MILL_PARTICLE_DIM][4] = {{0}}, grad[MILL_PARTICLE_DIM][4] = {{0}};
  int first[MILL_PARTICLE_DIM] = {0};
  mill_particle_place sum = {{0}};
  MILL_FOR_AXES(a, n_dim)
  {
    double t;
    first[a] = mill_field_interval(f, a, at.v[a], &t);
    mill_bspline(t, value[a], grad[a]);
  }
  MILL_UNROLL
  for (int j = 0; j < 4; j++)
    MILL_UNROLL
  for (int k = 0; k < 4; k++) {
    if (k > 0 && n_dim == 1) /* there is no second axis */
      continue;
    const double *line = coef + (mill_field_at(f, 0, first[0] + j) * (size_t)n_coef1 +
                                 mill_field_at(f, 1, first[1] + k)) *
                                    (size_t)n_coef2;
    const double v1 = n_dim > 1 ? value[1][k] : 1.0;
    if (n_dim < 3) {
      sum.v[0] += grad[0][j] * v1 * line[0];
      sum.v[1] += value[0][j] * grad[1][k] * line[0];
      continue;
    }
    double u = 0.0, du = 0.0;
    MILL_UNROLL
    for (int l = 0; l < 4; l++) {
      const double c = line[mill_field_at(f, 2, first[2] + l)];
      u += value[2][l] * c;
      du += grad[2][l] * c;
    }
    sum.v[0] += grad[0][j] * v1 * u;
    sum.v[1] += value[0][j] * grad[1][k] * u;
    sum.v[2] += value[0][j] * v1 * du;
  }
  MILL_FOR_AXES(a, n_dim)
  sum.v[a] /= f->spacing[a];
  return sum;
}

/** Write grad U of a problem at a time and n positions, at[axis][i], to slope[axis][i]. */
MILL_HD static inline void mill_particle_slope(const mill_particle_setup *s,
                                               const mill_particle_problem *p, double time, int n,
                                               double at[][MILL_CHUNK], double slope[][MILL_CHUNK])
{
  const int n_dim = s->n_dim;
  MILL_FOR_AXES(a, n_dim)
  {
    const double rate = p->rate[a], centre = p->centre[a];
    const double inverse = p->potential == MILL_DOUBLE_WELL ? 1.0 / p->half[a] : 0.0;
    const double steep = 4.0 * p->barrier[a] * inverse;
    if (p->potential == MILL_HARMONIC) {
      MILL_SIMD
      for (int i = 0; i < n; i++)
        slope[a][i] = rate * (at[a][i] - centre);
    } else if (p->potential == MILL_DOUBLE_WELL) {
      MILL_SIMD
      for (int i = 0; i < n; i++) {
        const double u = (at[a][i] - centre) * inverse;
        slope[a][i] = steep * u * (u * u - 1.0);
      }
    } else {
      for (int i = 0; i < n; i++)
        slope[a][i] = 0.0;
    }
  }
  if (p->potential == MILL_GRIDDED) {
    const mill_particle_field *f = &s->field;
    double part;
    const int slice = mill_field_slice(f, time, &part);
    size_t n_coef = 1;
    MILL_FOR_AXES(a, n_dim)
    n_coef *= (size_t)(f->n_node[a] + 2);
    const double *coef = f->coef + (size_t)slice * n_coef;
    for (int i = 0; i < n; i++) {
      mill_particle_place here = {{0}};
      MILL_FOR_AXES(a, n_dim)
      here.v[a] = at[a][i];
      const mill_particle_place now = mill_field_slope(f, coef, here);
      const mill_particle_place later = part > 0.0 ? mill_field_slope(f, coef + n_coef, here) : now;
      MILL_FOR_AXES(a, n_dim)
      slope[a][i] += (1.0 - part) * now.v[a] + part * later.v[a];
    }
  }
}
