/* SPDX-License-Identifier: BSD-3-Clause */
/** Kernel density estimate of particles on a grid, with a Gaussian kernel.
 *
 *  A line of grid points along the last axis costs two exponentials per particle (kernel_sum.h of
 *  the CPU).  Let rho be the grid's step in kernel widths.  Count steps from some grid point, and
 *  let the particle be at step delta.  The kernel at grid point k is then
 *    exp(-rho^2 (k - delta)^2 / 2)
 *      = exp(-rho^2 delta^2 / 2) exp(rho^2 delta)^k exp(-rho^2 k^2 / 2).
 *  All particles have the last factor in common. */
#pragma once

#include "kernels/math/activation.h"
#include "kernels/particles/move.h"

/** Beyond this many kernel widths the kernel is below 3e-18 of its peak.  A mirror or periodic
 *  image of a particle that is further than this from the grid is left out. */
#define MILL_KERNEL_REACH 9.0

/** The kernel of one cloud of particles after one step. */
typedef struct mill_particle_kernel {
  int is_there;                    /**< 0: the cloud has no width, so no kernel */
  double width[MILL_PARTICLE_DIM]; /**< standard deviations */
  int n_image[MILL_PARTICLE_DIM];  /**< images of a particle along each axis, itself included */
  int n_all_image;                 /**< product of n_image over the axes */
  double peak;  /**< peak of one particle's kernel, divided by the number of particles */
  double along; /**< inverse variance along the last axis at fixed other axes */
  double shear[MILL_PARTICLE_DIM]; /**< minus the regression slopes of the last axis */
  double rest[MILL_PARTICLE_DIM][MILL_PARTICLE_DIM]; /**< inverse covariance of the other axes */
} mill_particle_kernel;

MILL_HD static inline double mill_grid_step(const mill_particle_setup *s, int a)
{
  return s->n_grid[a] > 1 ? (s->grid_high[a] - s->grid_low[a]) / (s->n_grid[a] - 1) : 1.0;
}

/** Number of images of a particle along axis a that may reach the grid, the particle included.  The
 *  kernel's width counts up to the axis's length; no kernel is wider (check_axis). */
MILL_HD static inline int mill_particle_images(const mill_particle_setup *s, int a, double width)
{
  const double reach = MILL_KERNEL_REACH * fmin(1.0, width / (s->high[a] - s->low[a]));
  return mill_particle_has_images(s, a) ? 1 + 2 * (int)(1.0 + reach) : 1;
}

/** Set all of k except width and images from a kernel's covariance [3][3] over n_dim axes. */
MILL_HD static inline void mill_kernel_split(int n_dim, double cov[][MILL_PARTICLE_DIM],
                                             mill_particle_kernel *k)
{
  const int last = n_dim - 1;
  /* det: determinant of the other axes' covariance; left: last axis's variance at fixed others */
  double det = 1.0, left = cov[last][last];
  k->is_there = 1;
  if (last == 1) {
    det = cov[0][0];
    k->rest[0][0] = 1.0 / det;
  } else if (last == 2) {
    det = cov[0][0] * cov[1][1] - cov[0][1] * cov[0][1];
    k->rest[0][0] = cov[1][1] / det;
    k->rest[1][1] = cov[0][0] / det;
    k->rest[0][1] = k->rest[1][0] = -cov[0][1] / det;
  }
  for (int a = 0; a < last; a++) {
    k->shear[a] = 0.0;
    for (int e = 0; e < last; e++)
      k->shear[a] -= k->rest[a][e] * cov[e][last];
    left += k->shear[a] * cov[a][last];
  }
  k->along = 1.0 / left;
  for (int a = 0; a < n_dim; a++)
    k->is_there = k->is_there && cov[a][a] > 0.0;
  /* below 1e-12 float64 cannot tell a covariance from a singular one */
  k->is_there = k->is_there && left > 1e-12 * cov[last][last] &&
                (last < 2 || det > 1e-12 * cov[0][0] * cov[1][1]);
  k->peak = pow(2.0 * MILL_PI, -0.5 * n_dim) / sqrt(det * left);
}

/** Make a cloud's kernel from its moments [MILL_PARTICLE_MOMENTS], by the setup's bandwidth. */
MILL_HD static inline void mill_kernel_make(const mill_particle_setup *s, const double *moment,
                                            mill_particle_kernel *k)
{
  const int n_dim = s->n_dim;
  const double n = rint(moment[0] * s->n_particle); /* the particles left */
  const double base = s->bandwidth == MILL_SCOTT ? n : 0.25 * n * (n_dim + 2);
  const double factor = pow(base, -1.0 / (n_dim + 4)); /* by Scott's or Silverman's rule */
  double cov[MILL_PARTICLE_DIM][MILL_PARTICLE_DIM] = {{0}};
  int along_axes = s->along_axes || s->bandwidth == MILL_WIDTH_GIVEN;
  k->is_there = 0;
  if (!(n >= 1.0)) /* no particle is left, or the moments are NaN: no kernel */
    return;
  for (int a = 0; a < n_dim; a++) /* a mirror image would need covariances of opposite sign */
    along_axes = along_axes || mill_particle_has_images(s, a);
  for (int a = 0; a < n_dim; a++)
    for (int e = 0; e < n_dim; e++) {
      const int at = a < e ? mill_particle_cross(a, e) : mill_particle_cross(e, a);
      const double value = s->bandwidth == MILL_WIDTH_GIVEN
                               ? s->width[a] * s->width[a]
                               : factor * factor * moment[1 + MILL_PARTICLE_DIM + at];
      cov[a][e] = a != e && along_axes ? 0.0 : value;
    }
  mill_kernel_split(n_dim, cov, k); /* sets is_there and the peak of a kernel of integral 1 */
  k->peak /= n;
  k->n_all_image = 1;
  for (int a = 0; a < n_dim; a++) {
    k->width[a] = sqrt(cov[a][a]);
    k->n_all_image *= k->n_image[a] = mill_particle_images(s, a, k->width[a]);
  }
}

/** Grid line i runs along the last axis.  Write its coordinates on the axes before the last one to
 *  other [MILL_PARTICLE_DIM].  Returns the sum of k->shear * other, in steps of the last axis. */
MILL_HD static inline double mill_kernel_line(const mill_particle_setup *s,
                                              const mill_particle_kernel *k, int i, double *other)
{
  const int last = s->n_dim - 1;
  double shift = 0.0;
  MILL_UNROLL
  for (int a = MILL_PARTICLE_DIM - 2; a >= 0; a--) {
    if (a >= last)
      continue;
    other[a] = s->grid_low[a] + (i % s->n_grid[a]) * mill_grid_step(s, a);
    i /= s->n_grid[a];
    shift += k->shear[a] * other[a];
  }
  return shift / mill_grid_step(s, last);
}

/** Particles, or their images at boundaries, to be added to a density. */
typedef struct mill_particle_batch {
  int n;
  double *x[MILL_PARTICLE_DIM]; /**< [n] places */
  double *weight;               /**< [n] 1, or 0: nothing */
  void *work;                   /**< work space of the backend's sum */
} mill_particle_batch;

/** Image `which` along axis a of a particle at x lies at sign * x + shift, `cell` lengths of the
 *  axis away.  For which = 0, 1, 2, 3 the cell is 0, -1, 1, -2. */
MILL_HD static inline void mill_particle_image(const mill_particle_setup *s, int a, int which,
                                               double *sign, double *shift)
{
  const double length = s->high[a] - s->low[a];
  const int cell = which % 2 ? -(which + 1) / 2 : which / 2;
  const int is_mirrored = s->boundary[a] == MILL_REFLECTING && cell % 2 != 0;
  *sign = is_mirrored ? -1.0 : 1.0;
  *shift = cell * length + (is_mirrored ? s->low[a] + s->high[a] : 0.0);
}

/** Fill batch with image number `image` of particles [first, first + n) of a cloud; image 0 is the
 *  particle itself.  Images too far from the grid (MILL_KERNEL_REACH) get weight 0. */
MILL_BLOCK_FN void mill_block_batch(mill_block *b, const mill_particle_cloud *c,
                                    const mill_particle_kernel *k, int image, int first, int n,
                                    const mill_particle_batch *batch)
{
  const mill_particle_setup *s = c->setup;
  const size_t row = (size_t)s->n_particle;
  double sign[MILL_PARTICLE_DIM] = {0}, shift[MILL_PARTICLE_DIM] = {0};
  int rest = image;
  MILL_FOR_AXES(a, s->n_dim)
  {
    mill_particle_image(s, a, rest % k->n_image[a], &sign[a], &shift[a]);
    rest /= k->n_image[a];
  }
  MILL_FOR_SIMD(b, i, n)
  {
    double weight = c->alive[first + i];
    MILL_FOR_AXES(a, s->n_dim)
    {
      const double x = sign[a] * c->x[(size_t)a * row + (size_t)(first + i)] + shift[a];
      const double reach = MILL_KERNEL_REACH * k->width[a];
      if (image > 0 && (x < s->grid_low[a] - reach || x > s->grid_high[a] + reach))
        weight = 0.0;
      batch->x[a][i] = x;
    }
    batch->weight[i] = weight;
  }
  MILL_BARRIER(b);
}

/* ---- nodes: points among which the binned form distributes each particle ---- */

/** Compute the position *low of the first node of axis a and the nodes' *spacing.  The nodes extend
 *  beyond the grid by MILL_KERNEL_REACH kernel widths and two spacings. */
MILL_HD static inline void mill_node_axis(const mill_particle_setup *s,
                                          const mill_particle_kernel *k, int a, double *low,
                                          double *spacing)
{
  const double reach = MILL_KERNEL_REACH * k->width[a];
  *spacing = (s->grid_high[a] - s->grid_low[a] + 2.0 * reach) / (s->n_node[a] - 5);
  *low = s->grid_low[a] - reach - 2.0 * *spacing;
}

/** Bound on the error of one particle's binned density, in units of its kernel's peak.
 *
 *   - Cubic interpolation from four nodes w apart errs by at most (9/16) / 24 w^4 max |K''''|.
 *   - A kernel K of width h has max |K''''| = 3 K(0) / h^4.
 *   - A further axis multiplies the error by at most 5/4, the sum of its weights' absolute values.
 *   - 1e-13 covers rounding errors and the kernel beyond the nodes. */
MILL_HD static inline double mill_node_bound(const mill_particle_setup *s,
                                             const mill_particle_kernel *k)
{
  double bound = 0.0, factor = 9.0 / 16.0 / 24.0 * 3.0;
  for (int a = 0; a < s->n_dim; a++) {
    double low, spacing;
    mill_node_axis(s, k, a, &low, &spacing);
    bound += pow(spacing / k->width[a], 4.0);
    factor *= a > 0 ? 1.25 : 1.0;
  }
  return factor * bound + 1e-13;
}

/** At u, in node spacings from the first node, find the first (*at) of the four nodes around u and
 *  their weights for cubic interpolation.  Returns 0 if u is outside the inner nodes. */
MILL_HD static inline int mill_node_find(double u, int n_node, int *at, double weight[4])
{
  const int is_inside = u >= 1.0 && u < n_node - 2;
  *at = is_inside ? (int)u - 1 : 0;
  const double t = u - (*at + 1), p = t + 1.0, q = t - 1.0, r = t - 2.0, sixth = 1.0 / 6.0;
  weight[0] = -sixth * t * q * r;
  weight[1] = 0.5 * p * q * r;
  weight[2] = -0.5 * p * t * r;
  weight[3] = sixth * p * t * q;
  return is_inside;
}

/** For each axis a find the four nodes around particle i of a batch: at[a] is the first, weight[a]
 *  has their weights.  Returns 0 if the particle does not count: weight 0 or too far away.
 *  low, inverse: position of the first node, and 1 / spacing (mill_node_axis) */
MILL_HD static inline int mill_node_place(const mill_particle_setup *s,
                                          const mill_particle_batch *batch, int i,
                                          const double *low, const double *inverse, int *at,
                                          double weight[][4])
{
  int is_inside = batch->weight[i] > 0.0;
  MILL_FOR_AXES(a, s->n_dim)
  {
    const double u = (batch->x[a][i] - low[a]) * inverse[a];
    is_inside &= mill_node_find(u, s->n_node[a], &at[a], weight[a]);
  }
  return is_inside;
}

/** Return the index of a particle's first node along the last axis, at its node j on the first axis
 *  and node e on the second.  *part: the product of the weights of j and e. */
MILL_HD static inline size_t mill_node_row(const mill_particle_setup *s, const int *at,
                                           double weight[][4], int j, int e, double *part)
{
  const int last = s->n_dim - 1;
  size_t to = 0;
  MILL_UNROLL
  for (int a = 0; a < MILL_PARTICLE_DIM - 1; a++)
    if (a < last)
      to = (to + (size_t)(at[a] + (a == 0 ? j : e))) * (size_t)s->n_node[a + 1];
  *part = (s->n_dim > 1 ? weight[0][j] : 1.0) * (s->n_dim > 2 ? weight[1][e] : 1.0);
  return to + (size_t)(last == 0 ? at[0] : (last == 1 ? at[1] : at[2]));
}

/** A Gaussian kernel with peak 1, u widths from its centre. */
MILL_HD static inline double mill_kernel_factor(double u)
{
  return mill_exp_negative(-0.5 * u * u);
}

/** The kernel from nodes to grid points: 0 beyond sqrt(2) MILL_KERNEL_REACH widths. */
MILL_HD static inline double mill_node_factor(double u)
{
  return u * u > 2.0 * MILL_KERNEL_REACH * MILL_KERNEL_REACH ? 0.0 : mill_kernel_factor(u);
}

/** Weight q of the four nodes along the last axis. */
MILL_HD static inline double mill_node_along(const mill_particle_setup *s, double weight[][4],
                                             int q)
{
  return s->n_dim == 1 ? weight[0][q] : (s->n_dim == 2 ? weight[1][q] : weight[2][q]);
}

/** Return a bound on the error of a density: 0 if the kernels are summed without nodes
 *  (MILL_DENSITY_EXACT), NaN if the cloud has no kernel.
 *  moment    [MILL_PARTICLE_MOMENTS] of the cloud
 *  rounding  sum of one particle's rounding errors at its nodes, in units of the kernel's peak */
MILL_HD static inline double mill_density_bound(const mill_particle_setup *s,
                                                const mill_particle_kernel *k, const double *moment,
                                                double rounding)
{
  if (!k->is_there)
    return NAN;
  if (s->form == MILL_DENSITY_EXACT)
    return 0.0;
  double n = moment[0] * s->n_particle;
  for (int a = 0; a < s->n_dim; a++) /* all but one of the images can be near a point */
    n *= k->n_image[a] > 1 ? k->n_image[a] - 1 : 1;
  return (mill_node_bound(s, k) + rounding) * k->peak * n;
}

/** Convolve `in` [n_row][n_node][n_inner], values at nodes, along axis a with a kernel of peak 1.
 *  `out` [n_row][n_grid][n_inner] has the values at grid points. */
MILL_BLOCK_FN void mill_block_convolve(mill_block *b, const mill_particle_setup *s,
                                       const mill_particle_kernel *k, int a, int n_row, int n_inner,
                                       const double *in, double *out)
{
  const int n_grid = s->n_grid[a], n_node = s->n_node[a];
  const double step = mill_grid_step(s, a), inverse = 1.0 / k->width[a];
  double low, spacing;
  mill_node_axis(s, k, a, &low, &spacing);
  MILL_FOR(b, i, n_row * n_grid)
  {
    const double x = s->grid_low[a] + (i % n_grid) * step;
    const double *from = in + (size_t)(i / n_grid) * (size_t)n_node * (size_t)n_inner;
    double *to = out + (size_t)i * (size_t)n_inner;
    for (int e = 0; e < n_inner; e++)
      to[e] = 0.0;
    for (int j = 0; j < n_node; j++) {
      const double factor = mill_node_factor((low + j * spacing - x) * inverse);
      if (factor == 0.0)
        continue;
      const double *line = from + (size_t)j * (size_t)n_inner;
      MILL_SIMD
      for (int e = 0; e < n_inner; e++)
        to[e] += factor * line[e];
    }
  }
  MILL_BARRIER(b);
}

/** total [n] = factor * sum of part [n_part][n] over the parts. */
MILL_BLOCK_FN void mill_block_sum_parts(mill_block *b, int n_part, int n, double factor,
                                        const double *part, double *total)
{
  MILL_FOR_SIMD(b, i, n)
  {
    double sum = 0.0;
    for (int p = 0; p < n_part; p++)
      sum += part[(size_t)p * (size_t)n + (size_t)i];
    total[i] = factor * sum;
  }
  MILL_BARRIER(b);
}
