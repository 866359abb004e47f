/* SPDX-License-Identifier: BSD-3-Clause */
/** One made star in a pipeline of one slot in float64, and derivatives by differences. */
#pragma once

#include "tests/fit/made_star.h"

enum { MAX_PAR = 8 };

static struct one_star {
  mill_library lib;
  mill_fit_settings set;
  mill_pipeline *pipeline;
  made_star star;
  mill_star raw;
  double truth[MAX_PAR];
  uint64_t random;
} fx;

/** Make fx.star from fx.lib (made before) with the random state `seed`. */
static inline void one_star_make(uint64_t seed, int n_exposure, int with_matrix, double sn)
{
  fx.random = seed;
  made_settings(&fx.lib, &fx.set);
  fx.set.precision = MILL_FLOAT64;
  made_star_init(&fx.lib, n_exposure, with_matrix ? 0.8 : 0.45, with_matrix, &fx.random, &fx.star);
  made_theta(&fx.lib, 0.5, 150, 60, &fx.random, fx.truth);
  made_star_fill(&fx.lib, fx.truth, sn, 1, &fx.random, &fx.star);
}

static inline void open_pipeline(void)
{
  assert_ok(
      mill_pipeline_create(&fx.lib, 1, &fx.set, mill_backend_cpu(NULL), 1, 1, 0, &fx.pipeline));
  made_star_raw(0, &fx.star, &fx.raw);
}

static inline void close_pipeline(void)
{
  mill_pipeline_destroy(fx.pipeline);
  fx.pipeline = NULL;
}

static inline void clear(void)
{
  close_pipeline();
  mill_library_clear(&fx.lib);
  memset(&fx, 0, sizeof fx);
}

/** theta with parameter j moved by step.  For v sin i the step is taken in its inner parameter
 *  (kernels/math/rotation.h), as in the Jacobian. */
static inline void moved(const double *theta, int j, double step, double *x)
{
  const int kind = fx.set.rotation;
  memcpy(x, theta, MAX_PAR * sizeof *x);
  x[j] = j == MILL_PAR_VSINI ? mill_vsini_outer(kind, mill_vsini_inner(kind, theta[j]) + step)
                             : theta[j] + step;
}

/** Central differences at three steps, extrapolated to zero. */
static inline double richardson(double (*value)(const double *theta), const double *theta, int j,
                                double step)
{
  double d[3];
  for (int i = 0; i < 3; i++) {
    double x[MAX_PAR];
    const double h = step / (1 << i);
    moved(theta, j, h, x);
    const double up = value(x);
    moved(theta, j, -h, x);
    d[i] = (up - value(x)) / (2 * h);
  }
  const double a = (4 * d[1] - d[0]) / 3, b = (4 * d[2] - d[1]) / 3;
  return (16 * b - a) / 15;
}
