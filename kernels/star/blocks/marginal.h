/* SPDX-License-Identifier: BSD-3-Clause */
/** Compute marginal densities and modes of a star's samples.
 *
 *  The density of a parameter is a sum of Gaussian kernels, mirrored at the limits of velocity and
 *  v sin i.  Their width is Scott's rule for each mode.  Valleys of the marginal densities separate
 *  modes: samples are cut at the deepest valley of all parameters, and each part is examined again
 *  (docs/science/numerics.md, "Posteriors"). */
#pragma once

#include "kernels/math/block.h"
#include "kernels/particles/density.h"
#include "kernels/star/logic/parameters.h"

/** A valley separates two modes if its density is below this fraction of the lower summit's. */
#define MILL_MODE_VALLEY 0.5
/** A mode has at least the fraction WEIGHT of the samples, and ESS effective samples. */
#define MILL_MODE_WEIGHT 0.02
#define MILL_MODE_ESS    10.0
/** Modes are searched within this many standard deviations of a parameter's mean. */
#define MILL_MODE_REACH 6.0
/** A density extends this many kernel widths beyond the range of the samples. */
#define MILL_MARGINAL_MARGIN 3.0

/** Samples of a posterior, as differences from the solution `at`. */
typedef struct mill_samples {
  const float *x;      /**< [n][n_free] */
  const float *copies; /**< [n] number of copies of each sample; their sum is n_sample */
  float *column;       /**< [n] work space: one parameter of all samples */
  float *own;          /**< [n] work space: copies of each sample in a mode, else 0 */
  int n, n_free, n_sample;
  const int *par;   /**< [n_free] parameter number of each free parameter */
  const double *at; /**< [n_par] the solution */
} mill_samples;

/** A cut between modes: samples of mode `of` beyond `at` in free parameter k become mode `to`. */
typedef struct mill_mode_cut {
  int of, k, to;
  double at; /**< parameter k less the solution */
} mill_mode_cut;

typedef struct mill_modes {
  int n, n_cut;
  mill_mode_cut cut[MILL_MAX_MODE];
} mill_modes;

MILL_HD static inline int mill_mode_of(const mill_modes *modes, const float *x)
{
  int mode = 0;
  for (int c = 0; c < modes->n_cut; c++)
    if (mode == modes->cut[c].of && (double)x[modes->cut[c].k] > modes->cut[c].at)
      mode = modes->cut[c].to;
  return mode;
}

MILL_BLOCK_FN void mill_block_take_column(mill_block *b, const mill_samples *s, int k)
{
  MILL_FOR(b, i, s->n)
  {
    s->column[i] = s->x[(size_t)i * (size_t)s->n_free + (size_t)k];
  }
  MILL_BARRIER(b);
}

/** Set s->own [n] to s->copies for samples in the mode, 0 for the others.  Return the sum. */
MILL_BLOCK_FN double mill_block_take_mode(mill_block *b, const mill_samples *s,
                                          const mill_modes *modes, int mode)
{
  double n = 0.0;
  MILL_FOR(b, i, s->n)
  {
    const float *x = s->x + (size_t)i * (size_t)s->n_free;
    s->own[i] = mill_mode_of(modes, x) == mode ? s->copies[i] : 0.0F;
    n += (double)s->own[i];
  }
  return mill_block_sum(b, n);
}

/** Set s->column [n] to free parameter k, and compute its mean and variance.  Sample i counts
 *  count[i] times, n_all in all.  Columns, and so the mean, are differences from the solution. */
MILL_BLOCK_FN void mill_block_column_moments(mill_block *b, const mill_samples *s, int k,
                                             const float *count, double n_all, double *mean,
                                             double *var)
{
  double sum = 0.0, sum2 = 0.0;
  mill_block_take_column(b, s, k);
  MILL_FOR(b, i, s->n)
  {
    sum += (double)count[i] * (double)s->column[i];
  }
  *mean = n_all > 0.0 ? mill_block_sum(b, sum) / n_all : 0.0;
  MILL_FOR(b, i, s->n)
  {
    const double d = (double)s->column[i] - *mean;
    sum2 += (double)count[i] * d * d;
  }
  *var = n_all > 1.0 ? mill_block_sum(b, sum2) / (n_all - 1.0) : 0.0;
}

/** Compute the density of parameter j, in 1/unit, at MILL_N_DENSITY points from low to high.
 *  count [n]  in   how many times each sample of s->column counts
 *  n_all      in   the density's integral is (sum of count) / n_all
 *  ess, var   in   effective sample size, and variance, of the counted samples
 *  density [MILL_DENSITY_PARTS * MILL_N_DENSITY]  out, and work space */
MILL_BLOCK_FN void mill_block_marginal_density(mill_block *b, const mill_model *m,
                                               const mill_samples *s, const float *count, int j,
                                               double n_all, double ess, double var, double low,
                                               double high, double *density)
{
  const double least = mill_par_min(m, j), most = mill_par_max(m, j), at = s->at[j];
  const double step = (high - low) / (MILL_N_DENSITY - 1);
  /* kernels narrower than half a step would miss the points of narrow modes */
  const double inverse = 1.0 / fmax(sqrt(var) * pow(fmax(ess, 1.0), -0.2), 0.5 * step);
  const double peak = inverse / (sqrt(2.0 * MILL_PI) * n_all);
  const int each = (s->n + MILL_DENSITY_PARTS - 1) / MILL_DENSITY_PARTS;
  MILL_FOR(b, e, MILL_DENSITY_PARTS * MILL_N_DENSITY)
  {
    const int first = e / MILL_N_DENSITY * each, end = first + each < s->n ? first + each : s->n;
    const double x = low + e % MILL_N_DENSITY * step;
    double sum = 0.0;
    for (int i = first; i < end; i++) {
      /* kernel widths from the sample (u) and, for velocity and v sin i, from its mirror images */
      const double n = (double)count[i], place = at + (double)s->column[i];
      const double u = (x - place) * inverse, below = (x + place - 2.0 * least) * inverse;
      const double above = (2.0 * most - x - place) * inverse;
      if (fabs(u) < MILL_KERNEL_REACH)
        sum += n * mill_kernel_factor(u);
      if (j < MILL_PAR_LABEL0 && below < MILL_KERNEL_REACH)
        sum += n * mill_kernel_factor(below);
      if (j < MILL_PAR_LABEL0 && above < MILL_KERNEL_REACH)
        sum += n * mill_kernel_factor(above);
    }
    density[e] = sum * peak;
  }
  MILL_BARRIER(b);
  MILL_FOR(b, g, MILL_N_DENSITY)
  {
    for (int p = 1; p < MILL_DENSITY_PARTS; p++)
      density[g] += density[p * MILL_N_DENSITY + g];
  }
  MILL_BARRIER(b);
}

/** Find a density's deepest valley with at least the fraction `least` of the weight on each side;
 *  *at: the valley's middle point.  Returns the valley's ratio, its density divided by the density
 *  of the lower of its two summits; 1: no valley. */
MILL_HD static inline double mill_density_valley(const double *density, double least, int *at)
{
  double all = 0.0, below = 0.0, left_summit = 0.0, lowest = 1.0; /* lowest: ratio so far */
  int first = 0, last = 0;
  for (int i = 0; i < MILL_N_DENSITY; i++)
    all += density[i];
  for (int i = 0; i < MILL_N_DENSITY; i++) {
    double right_summit = 0.0;
    below += density[i];
    left_summit = density[i] > left_summit ? density[i] : left_summit;
    if (below < least * all || below > (1.0 - least) * all || density[i] > lowest * left_summit)
      continue;
    for (int e = i; e < MILL_N_DENSITY; e++)
      right_summit = density[e] > right_summit ? density[e] : right_summit;
    const double ratio = density[i] / (left_summit < right_summit ? left_summit : right_summit);
    if (ratio < lowest) {
      lowest = ratio;
      first = last = i;
    } else if (ratio == lowest && last == i - 1) { /* a flat valley, as where the density is 0 */
      last = i;
    }
  }
  *at = (first + last) / 2;
  return lowest;
}

/** Cut a mode in two at the deepest valley of its parameters' densities.  Returns 0 if no valley is
 *  deep enough.  ess: effective number of all samples.  All threads have equal copies of modes.
 *  density [MILL_DENSITY_PARTS * MILL_N_DENSITY]  work space */
MILL_BLOCK_FN int mill_block_mode_split(mill_block *b, const mill_model *m, const mill_samples *s,
                                        int mode, double ess, double *density, mill_modes *modes)
{
  const double n = mill_block_take_mode(b, s, modes, mode), part = n / (double)s->n_sample;
  const double least_weight = fmax(MILL_MODE_WEIGHT, MILL_MODE_ESS / ess);
  double lowest = MILL_MODE_VALLEY;                /* ratio of the deepest valley so far */
  mill_mode_cut best = {mode, -1, modes->n, 0.0};  /* k is -1 until a valley is found */
  for (int k = 0; k < s->n_free && n > 1.0; k++) { /* a single sample has no variance */
    const int j = s->par[k];
    double mean, var;
    int at = 0;
    mill_block_column_moments(b, s, k, s->own, n, &mean, &var);
    const double reach = MILL_MODE_REACH * sqrt(var);
    const double low = fmax(s->at[j] + mean - reach, mill_par_min(m, j));
    const double high = fmin(s->at[j] + mean + reach, mill_par_max(m, j));
    if (!(var > 0.0))
      continue;
    mill_block_marginal_density(b, m, s, s->own, j, n, ess * part, var, low, high, density);
    const double ratio = mill_density_valley(density, least_weight / part, &at);
    MILL_BARRIER(b); /* all threads have read the density */
    if (!(ratio < lowest))
      continue;
    lowest = ratio;
    best.k = k;
    best.at = low + at * (high - low) / (MILL_N_DENSITY - 1) - s->at[j];
  }
  if (best.k < 0)
    return 0;
  modes->cut[modes->n_cut++] = best;
  modes->n++;
  return 1;
}

/** Find up to MILL_MAX_MODE modes; ess, density: as in mill_block_mode_split. */
MILL_BLOCK_FN void mill_block_modes(mill_block *b, const mill_model *m, const mill_samples *s,
                                    double ess, double *density, mill_modes *modes)
{
  modes->n = 1;
  modes->n_cut = 0;
  for (int mode = 0; mode < modes->n && modes->n < MILL_MAX_MODE;)
    if (!mill_block_mode_split(b, m, s, mode, ess, density, modes))
      mode++;
}

/** Return half the integral of |density - Gaussian|; density [MILL_N_DENSITY] from low to high. */
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
  return 0.5 * (differs + (within < 1.0 ? 1.0 - within : 0.0)); /* 1 - within: Gaussian outside */
}
