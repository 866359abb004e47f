/* SPDX-License-Identifier: BSD-3-Clause */
/** Statistics of importance weights, and of samples: effective size, Pareto k, percentiles.
 *
 *  Serial code, run by one thread of a star's block.
 */
#ifndef MILL_WEIGHTS_H
#define MILL_WEIGHTS_H

#include "kernels/base/common.h"

enum {
  MILL_PARETO_TAIL = 1000, /**< largest weights that are looked at, at most */
  MILL_PARETO_LEAST = 5,   /**< and at least */
  MILL_PARETO_GRID = 64    /**< room for 30 + sqrt(tail) values */
};

/** Effective size (sum w)^2 / sum w^2 of weights exp(power ln_w) (Kish 1965); ln_w [n] at most 0, a
 *  finite one among them, -infinity: none. */
MILL_HD_CALLED static inline double mill_weights_size(int n, const float *ln_w, double power)
{
  double sum = 0.0, sum2 = 0.0;
  for (int i = 0; i < n; i++) {
    const double w = exp(power * (double)ln_w[i]);
    sum += w;
    sum2 += w * w;
  }
  return sum > 0.0 ? sum * sum / sum2 : 0.0;
}

/** Mean of ln(1 - b x_i). */
MILL_HD static inline double mill_pareto_mean(int n, const float *x, double b)
{
  double sum = 0.0;
  for (int i = 0; i < n; i++)
    sum += log1p(-b * (double)x[i]);
  return sum / (double)n;
}

/** Shape k of the generalised Pareto distribution of x [n] > 0, ascending (Zhang & Stephens 2009,
 *  Technometrics 51, 316), drawn to 0.5 as by ten values (Vehtari et al. 2024, J. Mach. Learn. Res.
 *  25, 72, appendix C). */
MILL_HD_CALLED static inline double mill_pareto_shape(int n, const float *x)
{
  double b[MILL_PARETO_GRID], ln_like[MILL_PARETO_GRID], sum = 0.0, mean = 0.0;
  const int m = 30 + (int)sqrt((double)n);
  const double quartile = (double)x[(int)((double)n / 4.0 + 0.5) - 1];
  for (int j = 0; j < m; j++) {
    b[j] = 1.0 / (double)x[n - 1] + (1.0 - sqrt((double)m / (j + 0.5))) / (3.0 * quartile);
    const double k = mill_pareto_mean(n, x, b[j]);
    ln_like[j] = (double)n * (log(-b[j] / k) - k - 1.0);
  }
  for (int j = 0; j < m; j++) {
    double share = 0.0;
    for (int i = 0; i < m; i++)
      share += exp(ln_like[i] - ln_like[j]);
    sum += 1.0 / share;
    mean += b[j] / share;
  }
  return ((double)n * mill_pareto_mean(n, x, mean / sum) + 5.0) / ((double)n + 10.0);
}

/** Sort in place, ascending (heap sort: no recursion, no memory); NaNs are not allowed. */
MILL_HD_CALLED static inline void mill_sort(int n, float *x)
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
MILL_HD static inline double mill_sorted_quantile(int n, const float *sorted, double q)
{
  const double at = q * (double)(n - 1);
  const int i = at < (double)(n - 2) ? (int)at : (n > 1 ? n - 2 : 0);
  const int next = i + 1 < n ? i + 1 : i;
  return (double)sorted[i] + (at - (double)i) * ((double)sorted[next] - (double)sorted[i]);
}

/** Pareto k of weights exp(ln_w): above 0.7 their means are not to be believed (Vehtari et al.
 *  2024).  +infinity: too few of them; 0: their largest are all the same.
 *
 *  ln_w [n]   in   the largest 0
 *  space [n]       work space */
MILL_HD_CALLED static inline double mill_weights_pareto(int n, const float *ln_w, float *space)
{
  double tail = 0.2 * (double)n;
  tail = tail < 3.0 * sqrt((double)n) ? tail : 3.0 * sqrt((double)n);
  const int n_tail = tail < MILL_PARETO_TAIL ? (int)tail : MILL_PARETO_TAIL;
  if (n_tail < MILL_PARETO_LEAST)
    return (double)INFINITY;
  for (int i = 0; i < n; i++)
    space[i] = ln_w[i];
  mill_sort(n, space);
  float *x = space + n - n_tail;
  const double cut = exp((double)x[-1]);
  int n_beyond = 0;
  for (int i = 0; i < n_tail; i++)
    if (exp((double)x[i]) > cut)
      x[n_beyond++] = (float)(exp((double)x[i]) - cut);
  if (n_beyond < MILL_PARETO_LEAST)
    return cut < 1.0 ? (double)INFINITY : 0.0;
  return mill_pareto_shape(n_beyond, x);
}

#endif
