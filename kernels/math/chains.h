/* SPDX-License-Identifier: BSD-3-Clause */
/** Statistics of an ensemble's chains: split R-hat, effective sample size, percentiles.
 *
 *  Serial code, run by one thread of a star's block.  Samples are
 *  float [n_step][n_walker][n_par]; a walker is a chain.
 */
#ifndef MILL_CHAINS_H
#define MILL_CHAINS_H

#include "kernels/base/common.h"

/** One parameter of an ensemble. */
typedef struct mill_chains {
  const float *x; /**< of the first step, walker 0 and this parameter */
  int n_step, n_walker, n_par;
} mill_chains;

/** Value i of half chain h, 0 ... 2 n_walker - 1: the first halves of all walkers, then the last;
 *  of an odd number of steps the middle one belongs to neither. */
MILL_HD static inline double mill_chains_at(const mill_chains *c, int h, int i)
{
  const int walker = h % c->n_walker;
  const int step = h < c->n_walker ? i : c->n_step - c->n_step / 2 + i;
  return (double)c->x[((size_t)step * (size_t)c->n_walker + (size_t)walker) * (size_t)c->n_par];
}

/** Mean over the half chains of the autocovariance at a lag, by 1/n. */
MILL_HD_CALLED static inline double mill_chains_autocovariance(const mill_chains *c,
                                                               const double *mean, int lag)
{
  const int n = c->n_step / 2, n_half = 2 * c->n_walker;
  double sum = 0.0;
  for (int h = 0; h < n_half; h++)
    for (int i = 0; i + lag < n; i++)
      sum += (mill_chains_at(c, h, i) - mean[h]) * (mill_chains_at(c, h, i + lag) - mean[h]);
  return sum / ((double)n * (double)n_half);
}

/** Split R-hat (Gelman et al. 2013, BDA3, eq. 11.4) and effective sample size (Vehtari et al. 2021,
 *  Bayesian Analysis 16, 667, eqs. 10 to 13, with Geyer's 1992 initial monotone sequence, without
 *  ranks).  NaN and 0 when the chains are shorter than 8 steps or do not vary. */
MILL_HD_CALLED static inline void mill_chains_diagnose(const mill_chains *c, double *rhat,
                                                       double *ess)
{
  double mean[2 * MILL_MAX_WALKER];
  const int n = c->n_step / 2, n_half = 2 * c->n_walker;
  double grand = 0.0, between = 0.0;
  *rhat = (double)NAN;
  *ess = 0.0;
  if (n < 4)
    return;
  for (int h = 0; h < n_half; h++) {
    mean[h] = 0.0;
    for (int i = 0; i < n; i++)
      mean[h] += mill_chains_at(c, h, i);
    mean[h] /= (double)n;
    grand += mean[h] / (double)n_half;
  }
  for (int h = 0; h < n_half; h++)
    between += (mean[h] - grand) * (mean[h] - grand) / (double)(n_half - 1);
  const double lag0 = mill_chains_autocovariance(c, mean, 0);
  const double within = lag0 * (double)n / (double)(n - 1), var = lag0 + between;
  if (!(within > 0.0) || !isfinite(var))
    return;
  *rhat = sqrt(var / within);
  double tau = -1.0, last = (double)INFINITY;
  for (int lag = 0; lag + 1 < n; lag += 2) {
    const double even =
        lag == 0 ? 1.0 : 1.0 - (within - mill_chains_autocovariance(c, mean, lag)) / var;
    double pair = even + 1.0 - (within - mill_chains_autocovariance(c, mean, lag + 1)) / var;
    if (!(pair > 0.0))
      break;
    pair = pair < last ? pair : last;
    tau += 2.0 * pair;
    last = pair;
  }
  const double all = (double)n * (double)n_half, least = 1.0 / log10(all);
  *ess = all / (tau > least ? tau : least);
}

/** Sort in place, ascending (heap sort: no recursion, no memory); NaNs are not allowed. */
MILL_HD_CALLED static inline void mill_chains_sort(int n, float *x)
{
  for (int start = n / 2 - 1, end = n; end > 1;) {
    if (start < 0) { /* a heap: its largest goes behind it */
      const float swap = x[--end];
      x[end] = x[0];
      x[0] = swap;
    }
    const int root = start < 0 ? 0 : start--;
    for (int at = root, child; (child = 2 * at + 1) < end; at = child) {
      if (child + 1 < end && x[child + 1] > x[child])
        child++;
      if (!(x[child] > x[at]))
        break;
      const float swap = x[at];
      x[at] = x[child];
      x[child] = swap;
    }
  }
}

/** Quantile q of sorted values, linear between them (Hyndman & Fan 1996, definition 7). */
MILL_HD static inline double mill_chains_quantile(int n, const float *sorted, double q)
{
  const double at = q * (double)(n - 1);
  const int i = at < (double)(n - 2) ? (int)at : (n > 1 ? n - 2 : 0);
  const int next = i + 1 < n ? i + 1 : i;
  return (double)sorted[i] + (at - (double)i) * ((double)sorted[next] - (double)sorted[i]);
}

#endif
