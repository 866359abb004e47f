/* SPDX-License-Identifier: BSD-3-Clause */
/** Particles that drift and diffuse, dX = -grad U(t, X) dt + sqrt(2 D) dW, and the density that a
 *  Gaussian kernel makes of them (docs/science/particles.md).
 *
 *  A problem is one cloud of particles; many problems of one shape are one evolution.  What a
 *  particle draws depends on seed, problem, particle and step alone.
 *  Lengths, times and U have the user's units; U has those of D.
 */
#ifndef MILL_PARTICLES_H
#define MILL_PARTICLES_H

#include "kernels/base/common.h"
#include "kernels/base/memory.h"

MILL_EXTERN_C_BEGIN

enum {
  MILL_PARTICLE_DIM = 3,         /**< dimensions at most */
  MILL_PARTICLE_MOMENTS = 10,    /**< mass, mean of each axis, covariance xx xy xz yy yz zz */
  MILL_PARTICLE_MAX_GRID = 4096, /**< points of a density along one axis */
  MILL_PARTICLE_MAX_N = 1 << 30
};

/** Coordinates and lengths at most: determinants of their covariances stay finite. */
#define MILL_PARTICLE_FAR 1e30

/** Boundary condition of an axis. */
enum mill_boundary {
  MILL_OPEN = 0,   /**< nothing */
  MILL_REFLECTING, /**< a particle beyond an end is mirrored at it */
  MILL_PERIODIC,   /**< it re-enters at the other end */
  MILL_ABSORBING   /**< it is removed, also if it crossed the end within a step and returned */
};

enum mill_potential {
  MILL_FREE = 0,    /**< U = 0 */
  MILL_HARMONIC,    /**< Ornstein and Uhlenbeck's: sum of rate_a (x_a - centre_a)^2 / 2 */
  MILL_DOUBLE_WELL, /**< sum of barrier_a (((x_a - centre_a) / half_a)^2 - 1)^2 */
  MILL_GRIDDED      /**< mill_particle_setup.field */
};

enum mill_particle_scheme {
  MILL_EULER = 0, /**< Euler and Maruyama's: weak order 1 */
  MILL_HEUN       /**< weak order 2 for noise that does not depend on the place: Kloeden & Platen
                   *   (1992), eq. 15.1.1 with b constant */
};

enum mill_density_form {
  MILL_DENSITY_EXACT = 0, /**< sum over all particles */
  MILL_DENSITY_BINNED     /**< the particles are spread over nodes first */
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

/** A potential on a grid: values of cubic B-splines, linear between times.
 *
 *  Beyond the grid the slope stays what it is at the edge; on a periodic axis the grid is one
 *  period, without the point that comes again. */
typedef struct mill_particle_field {
  int n_dim, n_time;
  int n_node[MILL_PARTICLE_DIM];   /**< 1 for axes that are not there */
  int periodic[MILL_PARTICLE_DIM]; /**< else not-a-knot */
  double low[MILL_PARTICLE_DIM], spacing[MILL_PARTICLE_DIM];
  const double *time; /**< [n_time] ascending; before the first and after the last U stays */
  const double *coef; /**< [n_time][n_node[0] + 2]..., one more at each end of an axis */
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
  double start_time, step; /**< step: length of one, > 0 */
  int scheme;              /**< enum mill_particle_scheme */
  uint64_t seed;
  int boundary[MILL_PARTICLE_DIM];                        /**< enum mill_boundary */
  double low[MILL_PARTICLE_DIM], high[MILL_PARTICLE_DIM]; /**< ends of axes that are not open */
  int n_grid[MILL_PARTICLE_DIM]; /**< points of the density; 1 for axes that are not there */
  double grid_low[MILL_PARTICLE_DIM], grid_high[MILL_PARTICLE_DIM]; /**< first and last point */
  int form, bandwidth;             /**< enum mill_density_form, mill_bandwidth */
  double width[MILL_PARTICLE_DIM]; /**< of MILL_WIDTH_GIVEN */
  int along_axes; /**< the kernel has the variances of the particles, not their covariances */
  int n_node[MILL_PARTICLE_DIM]; /**< of MILL_DENSITY_BINNED, >= 16; 1 for axes that are not there
                                  */
  mill_particle_field field;     /**< of MILL_GRIDDED */
  const double *sample;          /**< [n_particle][n_dim] of MILL_START_SAMPLES */
  int n_record;
  const int *record; /**< [n_record] ascending: the steps after which there is a density */
  int n_thread;      /**< of the CPU; the bits do not depend on it */
} mill_particle_setup;

/** Results of a problem; arrays belong to the caller. */
typedef struct mill_particle_result {
  double *density; /**< [n_record][n_grid[0]]...: its integral is 1 whatever mass is left; NaN where
                    *   the kernel has no width, as all particles are in one place or gone */
  double *bound;   /**< [n_record] no value of density is further from the exact sum; 0: it is */
  double *moment;  /**< [n_step + 1][MILL_PARTICLE_MOMENTS] mass: particles left of all;
                    *   covariance with n - 1 */
  double *position; /**< [n_particle][n_dim] in the end, NaN for absorbed ones; NULL: not wanted */
  int bad_step; /**< -1; else the first step after which a particle was nowhere or had gone further
                 *   than its axis is long: step is too long for the drift.  What follows is NaN */
} mill_particle_result;

/** The engine of a backend. */
typedef struct mill_particle_ops {
  const char *name;
  /** Run whole evolutions: one upload and one download.  MILL_ERR_MEMORY, MILL_ERR_BACKEND. */
  int (*evolve)(const mill_particle_setup *setup, int n_problem,
                const mill_particle_problem *problem, mill_particle_result *result);
} mill_particle_ops;

/** The engine of the CPU's instruction set of that name, NULL: the best that runs here. */
const mill_particle_ops *mill_particle_ops_cpu(const char *isa);

/** Check a setup and a problem whose numbers are finite and in the ranges of their keys
 *  (src/particles/particle_config.c); the message says what to give instead: a grid without extent,
 *  a start outside, a step too large for the drift (the longest step that the potential's curvature
 *  allows is named).  MILL_ERR_CONFIG. */
int mill_particle_check_setup(const mill_particle_setup *setup);
int mill_particle_check_problem(const mill_particle_setup *setup,
                                const mill_particle_problem *problem);

/** Coefficients of a field from values of U on its grid.
 *
 *  value [n_time][n_node[0]]...  in   as mill_particle_field describes, 4 nodes of an axis at least
 *  coef [mill_particle_n_coef]   out  for field->coef
 *
 *  MILL_ERR_CONFIG for a value that is not finite, with its place; MILL_ERR_MEMORY. */
int mill_particle_field_fit(const mill_particle_field *field, const double *value, double *coef);
size_t mill_particle_n_coef(const mill_particle_field *field);

MILL_EXTERN_C_END

#endif
