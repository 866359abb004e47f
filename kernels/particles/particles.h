/* SPDX-License-Identifier: BSD-3-Clause */
/** Particles that drift and diffuse, dX = -grad U(t, X) dt + sqrt(2 D) dW, and their kernel density
 *  estimate (docs/science/particles.md).
 *
 *  A problem is one cloud of particles; an evolution runs many problems with the same setup.
 *  Lengths and times have the user's units; U has the unit of D. */
#pragma once

#include "kernels/base/common.h"
#include "kernels/base/memory.h"

MILL_EXTERN_C_BEGIN

enum {
  MILL_PARTICLE_DIM = 3,         /**< dimensions at most */
  MILL_PARTICLE_MOMENTS = 10,    /**< mass, mean of each axis, covariance xx xy xz yy yz zz */
  MILL_PARTICLE_MAX_GRID = 4096, /**< points of a density along one axis */
  MILL_PARTICLE_MAX_N = 1 << 30
};

/** Largest coordinate and length: determinants of covariances stay finite below it. */
#define MILL_PARTICLE_FAR 1e30

enum mill_boundary {
  MILL_OPEN = 0,   /**< none: the axis has no ends */
  MILL_REFLECTING, /**< a particle beyond an end is mirrored at it */
  MILL_PERIODIC,   /**< a particle beyond an end re-enters at the other end */
  MILL_ABSORBING   /**< a particle that crosses an end is removed, even if it returns in the step */
};

enum mill_potential {
  MILL_FREE = 0,    /**< U = 0 */
  MILL_HARMONIC,    /**< Ornstein and Uhlenbeck's: sum of rate_a (x_a - centre_a)^2 / 2 */
  MILL_DOUBLE_WELL, /**< sum of barrier_a (((x_a - centre_a) / half_a)^2 - 1)^2 */
  MILL_GRIDDED      /**< mill_particle_setup.field */
};

enum mill_particle_scheme {
  MILL_EULER = 0, /**< Euler and Maruyama's: weak order 1 */
  MILL_HEUN       /**< weak order 2 for constant diffusion: Kloeden & Platen (1992), eq. 15.1.1 */
};

enum mill_density_form {
  MILL_DENSITY_EXACT = 0, /**< sum over all particles */
  MILL_DENSITY_BINNED     /**< spread particles over nodes, then convolve the nodes */
};

enum mill_bandwidth {
  MILL_SCOTT = 0,  /**< n^(-1/(d + 4)) (Scott 1992) */
  MILL_SILVERMAN,  /**< (n (d + 2) / 4)^(-1/(d + 4)) (Silverman 1986) */
  MILL_WIDTH_GIVEN /**< standard deviations of the kernel along the axes */
};

enum mill_particle_start {
  MILL_START_NORMAL = 0, /**< centre, standard deviation of each axis; 0: a point */
  MILL_START_UNIFORM,    /**< between centre - spread and centre + spread */
  MILL_START_SAMPLES
};

/** A potential U on a grid: cubic B-splines in space, linear between times.
 *
 *  Beyond the grid U has the slope at the edge.  On a periodic axis the grid is one period and does
 *  not repeat the first point. */
typedef struct mill_particle_field {
  int n_dim, n_time;
  int n_node[MILL_PARTICLE_DIM];   /**< 1 for axes beyond n_dim */
  int periodic[MILL_PARTICLE_DIM]; /**< 1: periodic splines; 0: not-a-knot */
  double low[MILL_PARTICLE_DIM], spacing[MILL_PARTICLE_DIM];
  const double *time; /**< [n_time] ascending; U is constant before the first and after the last */
  const double *coef; /**< [n_time][n_node[0] + 2]...; one coefficient more at each end */
} mill_particle_field;

/** One cloud. */
typedef struct mill_particle_problem {
  uint64_t id;
  double diffusion; /**< D >= 0 */
  int potential;    /**< enum mill_potential */
  double rate[MILL_PARTICLE_DIM], centre[MILL_PARTICLE_DIM];
  double barrier[MILL_PARTICLE_DIM], half[MILL_PARTICLE_DIM];
  int start; /**< enum mill_particle_start */
  double start_centre[MILL_PARTICLE_DIM], start_spread[MILL_PARTICLE_DIM];
} mill_particle_problem;

/** Settings common to all problems of an evolution. */
typedef struct mill_particle_setup {
  int n_dim, n_particle, n_step;
  double start_time, step; /**< step: time of one step, > 0 */
  int scheme;              /**< enum mill_particle_scheme */
  uint64_t seed;
  int boundary[MILL_PARTICLE_DIM];                        /**< enum mill_boundary */
  double low[MILL_PARTICLE_DIM], high[MILL_PARTICLE_DIM]; /**< ends of axes that are not open */
  int n_grid[MILL_PARTICLE_DIM]; /**< points of the density; 1 for axes beyond n_dim */
  double grid_low[MILL_PARTICLE_DIM], grid_high[MILL_PARTICLE_DIM]; /**< first and last point */
  int form, bandwidth;             /**< enum mill_density_form, mill_bandwidth */
  double width[MILL_PARTICLE_DIM]; /**< for MILL_WIDTH_GIVEN */
  int along_axes; /**< 1: the kernel has the particles' variances but not their covariances */
  int n_node[MILL_PARTICLE_DIM]; /**< for MILL_DENSITY_BINNED, >= 16; 1 for axes beyond n_dim */
  mill_particle_field field;     /**< for MILL_GRIDDED */
  const double *sample;          /**< [n_particle][n_dim] of MILL_START_SAMPLES */
  int n_record;
  const int *record; /**< [n_record] ascending: steps after which a density is computed */
  int n_thread;      /**< threads of the CPU; results are the same, bit for bit, for any number */
} mill_particle_setup;

/** Do particles have images beyond the ends of axis a?  Images add to densities. */
MILL_HD static inline int mill_particle_has_images(const mill_particle_setup *s, int a)
{
  return s->boundary[a] == MILL_REFLECTING || s->boundary[a] == MILL_PERIODIC;
}

/** Results of a problem; arrays belong to the caller. */
typedef struct mill_particle_result {
  double *density;  /**< [n_record][n_grid[0]]...: its integral is 1; NaN if no particle is left, or
                    *   all are in one place */
  double *bound;    /**< [n_record] largest error of density; 0: density is the exact sum */
  double *moment;   /**< [n_step + 1][MILL_PARTICLE_MOMENTS]: the fraction of particles left, their
                    *   mean, and their covariance (sums divided by n - 1) */
  double *position; /**< [n_particle][n_dim] at the end, NaN if absorbed; NULL: not wanted */
  int bad_step;     /**< -1, or the first step that moved a particle to NaN or too far for its axis,
                    *   because setup.step is too long; later results are NaN */
} mill_particle_result;

/** The engine of a backend. */
typedef struct mill_particle_ops {
  const char *name;
  /** Run all steps of n_problem problems and fill their results.  A GPU takes as many problems at a
   *  time as fit its memory.  MILL_ERR_MEMORY, MILL_ERR_BACKEND. */
  int (*evolve)(const mill_particle_setup *setup, int n_problem,
                const mill_particle_problem *problem, mill_particle_result *result);
} mill_particle_ops;

/** The CPU engine for instruction set isa; NULL: the best that runs here. */
const mill_particle_ops *mill_particle_ops_cpu(const char *isa);

/** Check a setup's grid and a problem's start, and that the step is short enough for the
 *  potential's curvature.  MILL_ERR_CONFIG; the message says what to give instead.  The caller has
 *  checked that numbers are finite and within their ranges (src/particles/particle_config.c). */
int mill_particle_check_setup(const mill_particle_setup *setup);
int mill_particle_check_problem(const mill_particle_setup *setup,
                                const mill_particle_problem *problem);

/** Compute a field's spline coefficients from values of the potential U.
 *
 *  value [n_time][n_node[0]]...  in   U on the field's grid, which has 4 or more nodes per axis
 *  coef [mill_particle_n_coef]   out  for field->coef
 *
 *  MILL_ERR_CONFIG for a value that is not finite, with its place; MILL_ERR_MEMORY. */
int mill_particle_field_fit(const mill_particle_field *field, const double *value, double *coef);
size_t mill_particle_n_coef(const mill_particle_field *field);

MILL_EXTERN_C_END
