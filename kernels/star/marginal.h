/* SPDX-License-Identifier: BSD-3-Clause */
/** Marginal densities and modes of a star's samples.
 *
 *  The density of a parameter is a sum of Gaussian kernels, their width by Scott's rule with the
 *  effective sample size, mirrored at the limits of velocity and v sin i.  Modes are what valleys
 *  of the marginal densities part: the parameter with the deepest valley is cut there, and each
 *  part is looked at again (docs/science/numerics.md, "Posteriors").
 */
#ifndef MILL_MARGINAL_H
#define MILL_MARGINAL_H

#include "kernels/math/block.h"
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
  const float *x;      /**< [n][n_free] */
  const float *copies; /**< [n] how often each is there, n_sample together */
  int n, n_free, n_sample;
  const int *par;   /**< [n_free] their parameters */
  const double *at; /**< by parameter */
} mill_samples;

/** Free parameter k of sample number i. */
MILL_HD static inline double mill_sample_x(const mill_samples *s, int i, int k)
{
  return (double)s->x[(size_t)i * (size_t)s->n_free + (size_t)k];
}

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

/** How often sample number i is in a mode. */
MILL_HD static inline double mill_mode_copies(const mill_samples *s, const mill_modes *modes,
                                              int mode, int i)
{
  const float *x = s->x + (size_t)i * (size_t)s->n_free;
  return s->copies[i] > 0.0F && mill_mode_of(modes, x) == mode ? (double)s->copies[i] : 0.0;
}

/** Number, mean (as difference) and variance of parameter k of a mode's samples. */
MILL_BLOCK_FN int mill_block_mode_moments(mill_block *b, const mill_samples *s,
                                          const mill_modes *modes, int mode, int k, double *mean,
                                          double *var)
{
  double part[2] = {0.0, 0.0}, sum[2];
  MILL_FOR(b, i, s->n)
  {
    const double n = mill_mode_copies(s, modes, mode, i);
    part[0] += n;
    part[1] += n * mill_sample_x(s, i, k);
  }
  mill_block_sum_n(b, part, 2, sum);
  *mean = sum[0] > 0.0 ? sum[1] / sum[0] : 0.0;
  part[1] = 0.0;
  MILL_FOR(b, i, s->n)
  {
    const double d = mill_sample_x(s, i, k) - *mean;
    part[1] += mill_mode_copies(s, modes, mode, i) * d * d;
  }
  const double sum2 = mill_block_sum(b, part[1]);
  *var = sum[0] > 1.0 ? sum2 / (sum[0] - 1.0) : 0.0;
  return (int)sum[0];
}

/** Density of free parameter k of a mode's samples, n of them with variance var and effective
 *  number ess, on MILL_N_DENSITY points from *low to *high: these are widened by a few widths of
 *  the kernel and cut at limits first.  Values in 1/unit; 0: the samples have no width. */
MILL_BLOCK_FN int mill_block_marginal_density(mill_block *b, const mill_model *m,
                                              const mill_samples *s, const mill_modes *modes,
                                              int mode, int k, int n, double ess, double var,
                                              double *low, double *high, double *density)
{
  const int j = s->par[k];
  const double least = mill_par_min(m, j), most = mill_par_max(m, j);
  const double width = sqrt(var) * pow(ess > 1.0 ? ess : 1.0, -0.2), inverse = 1.0 / width;
  const double peak = inverse / (sqrt(2.0 * MILL_PI) * (double)n);
  if (!(width > 0.0))
    return 0;
  *low = fmax(*low - MILL_MARGINAL_MARGIN * width, least);
  *high = fmin(*high + MILL_MARGINAL_MARGIN * width, most);
  MILL_FOR(b, g, MILL_N_DENSITY)
  {
    const double x = *low + g * ((*high - *low) / (MILL_N_DENSITY - 1));
    double sum = 0.0;
    for (int i = 0; i < s->n; i++) {
      const double at = s->at[j] + mill_sample_x(s, i, k), u = (x - at) * inverse;
      const double below = (x + at - 2.0 * least) * inverse;
      const double above = (2.0 * most - x - at) * inverse;
      double f = fabs(u) < MILL_KERNEL_REACH ? mill_kernel_factor(u) : 0.0;
      if (j < MILL_PAR_LABEL0 && below < MILL_KERNEL_REACH)
        f += mill_kernel_factor(below);
      if (j < MILL_PAR_LABEL0 && above < MILL_KERNEL_REACH)
        f += mill_kernel_factor(above);
      if (f > 0.0)
        sum += f * mill_mode_copies(s, modes, mode, i);
    }
    density[g] = sum * peak;
  }
  MILL_BARRIER(b);
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
    if (below < least * all || below > (1.0 - least) * all || density[i] > depth * low_summit)
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

/** Cut a mode in two at the deepest valley of its densities; 0: there is none that deep.
 *
 *  density [MILL_N_DENSITY]  work space
 *  modes                     of each thread, the same on all of them */
MILL_BLOCK_FN int mill_block_mode_split(mill_block *b, const mill_model *m, const mill_samples *s,
                                        int mode, double ess, double *density, mill_modes *modes)
{
  double depth = MILL_MODE_VALLEY;
  mill_mode_cut best;
  best.of = mode;
  best.to = modes->n;
  best.k = -1;
  best.at = 0.0;
  for (int k = 0; k < s->n_free; k++) {
    double mean, var;
    const int n = mill_block_mode_moments(b, s, modes, mode, k, &mean, &var), j = s->par[k];
    const double part = (double)n / (double)s->n_sample, own = ess * part;
    const double reach = MILL_MODE_REACH * sqrt(var);
    double low = s->at[j] + mean - reach, high = s->at[j] + mean + reach;
    const double least = fmax(MILL_MODE_WEIGHT, MILL_MODE_ESS / ess);
    int at = 0;
    if (n < 2 || !mill_block_marginal_density(b, m, s, modes, mode, k, n, own, var, &low, &high,
                                              density))
      continue;
    const double ratio = mill_density_valley(density, least / part, &at);
    MILL_BARRIER(b); /* the density has been read */
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
MILL_BLOCK_FN void mill_block_modes(mill_block *b, const mill_model *m, const mill_samples *s,
                                    double ess, double *density, mill_modes *modes)
{
  modes->n = 1;
  modes->n_cut = 0;
  for (int mode = 0; mode < modes->n && modes->n < MILL_MAX_MODE;)
    if (!mill_block_mode_split(b, m, s, mode, ess, density, modes))
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
