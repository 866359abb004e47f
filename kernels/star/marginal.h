/* SPDX-License-Identifier: BSD-3-Clause */
/** Marginal densities and modes of a star's samples.
 *
 *  The density of a parameter is the binned form of the particles' kernel density
 *  (kernels/particles/density.h), bandwidth by Scott's rule with the effective sample size,
 *  mirrored at the limits of velocity and v sin i.  Modes are what valleys of the marginal
 *  densities part: the parameter with the deepest valley is cut there, and each part is looked at
 *  again. Serial code, run by one thread of a star's block (docs/science/numerics.md,
 *  "Posteriors").
 */
#ifndef MILL_MARGINAL_H
#define MILL_MARGINAL_H

#include "kernels/particles/density.h"
#include "kernels/star/polish.h"

/** A valley parts two modes where its density is below this part of the lower summit's. */
#define MILL_MODE_VALLEY 0.5
/** Least weight of a mode, and least effective samples of it. */
#define MILL_MODE_WEIGHT 0.02
#define MILL_MODE_ESS    10.0
/** Half the range in which a parameter's modes are looked for, in standard deviations. */
#define MILL_MODE_REACH 5.0
/** Bandwidths that a density reaches beyond its range. */
#define MILL_MARGINAL_MARGIN 3.0

/** Samples of a posterior, as differences from the solution `at`. */
typedef struct mill_samples {
  const float *x; /**< [n][n_free] */
  int n, n_free;
  const int *par;   /**< [n_free] their parameters */
  const double *at; /**< by parameter */
} mill_samples;

/** Where modes are parted: samples of mode `of` beyond `at` in free parameter k are those of mode
 *  `to`. */
typedef struct mill_mode_cut {
  int of, k, to;
  double at; /**< less the solution */
} mill_mode_cut;

typedef struct mill_modes {
  int n, n_cut;
  mill_mode_cut cut[MILL_MAX_MODE];
} mill_modes;

/** The mode of a sample x [n_free]. */
MILL_HD static inline int mill_mode_of(const mill_modes *modes, const float *x)
{
  int mode = 0;
  for (int c = 0; c < modes->n_cut; c++)
    if (mode == modes->cut[c].of && (double)x[modes->cut[c].k] > modes->cut[c].at)
      mode = modes->cut[c].to;
  return mode;
}

/** Number, mean (as difference) and variance of parameter k of a mode's samples. */
MILL_HD_CALLED static inline int mill_mode_moments(const mill_samples *s, const mill_modes *modes,
                                                   int mode, int k, double *mean, double *var)
{
  int n = 0;
  double sum = 0.0, sum2 = 0.0;
  for (int i = 0; i < s->n; i++)
    if (mill_mode_of(modes, s->x + (size_t)i * (size_t)s->n_free) == mode) {
      sum += (double)s->x[(size_t)i * (size_t)s->n_free + (size_t)k];
      n++;
    }
  *mean = n > 0 ? sum / (double)n : 0.0;
  for (int i = 0; i < s->n; i++)
    if (mill_mode_of(modes, s->x + (size_t)i * (size_t)s->n_free) == mode) {
      const double d = (double)s->x[(size_t)i * (size_t)s->n_free + (size_t)k] - *mean;
      sum2 += d * d;
    }
  *var = n > 1 ? sum2 / (double)(n - 1) : 0.0;
  return n;
}

/** Density of free parameter k of a mode's samples, n of them with variance var and effective
 *  number ess, on MILL_N_DENSITY points from *low to *high: these are widened by a few bandwidths
 *  and cut at limits first.  Values in 1/unit; 0: the samples have no width.
 *
 *  node [MILL_DENSITY_NODE]  work space  */
MILL_HD_CALLED static inline int mill_marginal_density(const mill_model *m, const mill_samples *s,
                                                       const mill_modes *modes, int mode, int k,
                                                       double ess, double var, double *low,
                                                       double *high, double *node, double *density)
{
  const int j = s->par[k];
  mill_particle_setup set;
  mill_particle_kernel kernel;
  double moment[MILL_PARTICLE_MOMENTS] = {0};
  set.n_dim = set.n_particle = 1;
  set.bandwidth = MILL_SCOTT;
  set.along_axes = 1;
  set.width[0] = 0.0; /* Scott's rule gives it */
  set.low[0] = mill_par_min(m, j);
  set.high[0] = mill_par_max(m, j);
  set.boundary[0] = j < MILL_PAR_LABEL0 ? MILL_REFLECTING : MILL_OPEN;
  set.n_grid[0] = MILL_N_DENSITY;
  set.n_node[0] = MILL_DENSITY_NODE;
  moment[0] = ess > 1.0 ? ess : 1.0;
  moment[1 + MILL_PARTICLE_DIM] = var;
  mill_kernel_make(&set, moment, &kernel);
  if (!kernel.is_there)
    return 0;
  const double margin = MILL_MARGINAL_MARGIN * kernel.width[0];
  *low = *low - margin > set.low[0] ? *low - margin : set.low[0];
  *high = *high + margin < set.high[0] ? *high + margin : set.high[0];
  set.grid_low[0] = *low;
  set.grid_high[0] = *high;
  mill_node_line axis;
  axis.n_node = MILL_DENSITY_NODE;
  axis.inverse = 1.0 / kernel.width[0];
  mill_node_axis(&set, &kernel, 0, &axis.low, &axis.spacing);
  for (int i = 0; i < MILL_DENSITY_NODE; i++)
    node[i] = 0.0;
  int n = 0;
  for (int i = 0; i < s->n; i++) {
    const float *x = s->x + (size_t)i * (size_t)s->n_free;
    if (mill_mode_of(modes, x) != mode)
      continue;
    mill_node_add(&set, &axis, s->at[j] + (double)x[k], node);
    n++;
  }
  const double step = mill_grid_step(&set, 0), share = kernel.peak * moment[0] / (double)n;
  for (int i = 0; i < MILL_N_DENSITY; i++) {
    mill_node_gather(&axis, *low + i * step, 1, node, &density[i]);
    density[i] *= share;
  }
  return 1;
}

/** The deepest valley of a density between two parts of a weight of least or more: its middle
 *  point, and its depth as part of the lower summit beside it; 1: there is none. */
MILL_HD static inline double mill_density_valley(const double *density, double least, int *at)
{
  double all = 0.0, below = 0.0, low_summit = 0.0, depth = 1.0;
  int first = 0, last = 0;
  for (int i = 0; i < MILL_N_DENSITY; i++)
    all += density[i];
  for (int i = 0; i < MILL_N_DENSITY; i++) {
    double high_summit = 0.0;
    below += density[i];
    low_summit = density[i] > low_summit ? density[i] : low_summit;
    if (below < least * all || below > (1.0 - least) * all)
      continue;
    for (int e = i; e < MILL_N_DENSITY; e++)
      high_summit = density[e] > high_summit ? density[e] : high_summit;
    const double ratio = density[i] / (low_summit < high_summit ? low_summit : high_summit);
    if (ratio < depth) {
      depth = ratio;
      first = last = i;
    } else if (ratio == depth && last == i - 1) { /* nothing is there at all */
      last = i;
    }
  }
  *at = (first + last) / 2;
  return depth;
}

/** Cut a mode in two at the deepest valley of its densities; 0: there is none that deep. */
MILL_HD_CALLED static inline int mill_mode_split(const mill_model *m, const mill_samples *s,
                                                 int mode, double ess, double *node,
                                                 double *density, mill_modes *modes)
{
  double depth = MILL_MODE_VALLEY;
  mill_mode_cut best;
  best.of = mode;
  best.to = modes->n;
  best.k = -1;
  best.at = 0.0;
  for (int k = 0; k < s->n_free; k++) {
    double mean, var;
    const int n = mill_mode_moments(s, modes, mode, k, &mean, &var), j = s->par[k];
    const double part = (double)n / (double)s->n, own = ess * part;
    const double reach = MILL_MODE_REACH * sqrt(var);
    double low = s->at[j] + mean - reach, high = s->at[j] + mean + reach;
    const double least =
        MILL_MODE_WEIGHT > MILL_MODE_ESS / ess ? MILL_MODE_WEIGHT : MILL_MODE_ESS / ess;
    int at = 0;
    if (n < 2 || !mill_marginal_density(m, s, modes, mode, k, own, var, &low, &high, node, density))
      continue;
    const double ratio = mill_density_valley(density, least / part, &at);
    if (!(ratio < depth))
      continue;
    depth = ratio;
    best.k = k;
    best.at = low + at * (high - low) / (MILL_N_DENSITY - 1) - s->at[j];
  }
  if (best.k < 0)
    return 0;
  modes->cut[modes->n_cut++] = best;
  modes->n++;
  return 1;
}

/** All modes of samples whose effective number is ess, MILL_MAX_MODE at most. */
MILL_HD_CALLED static inline void mill_modes_find(const mill_model *m, const mill_samples *s,
                                                  double ess, double *node, double *density,
                                                  mill_modes *modes)
{
  modes->n = 1;
  modes->n_cut = 0;
  for (int mode = 0; mode < modes->n && modes->n < MILL_MAX_MODE;)
    if (!mill_mode_split(m, s, mode, ess, node, density, modes))
      mode++;
}

/** Half the integral of the difference of a density on points from low to high from a Gaussian. */
MILL_HD_CALLED static inline double mill_density_differs(const double *density, double low,
                                                         double high, double mean, double sigma)
{
  const double step = (high - low) / (MILL_N_DENSITY - 1);
  double differs = 0.0, within = 0.0;
  for (int i = 0; i < MILL_N_DENSITY; i++) {
    const double u = (low + i * step - mean) / sigma;
    const double gauss = mill_kernel_factor(u) / (sigma * sqrt(2.0 * MILL_PI));
    const double weight = i == 0 || i == MILL_N_DENSITY - 1 ? 0.5 * step : step;
    differs += weight * fabs(density[i] - gauss);
    within += weight * gauss;
  }
  return 0.5 * (differs + (within < 1.0 ? 1.0 - within : 0.0));
}

#endif
