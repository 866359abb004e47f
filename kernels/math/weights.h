/* SPDX-License-Identifier: BSD-3-Clause */
/** Compute statistics of importance weights: effective size, Pareto k. */
#pragma once

#include "kernels/math/select.h"

enum {
  MILL_PARETO_TAIL = 1000, /**< most weights in the tail (the largest weights), which gives k */
  MILL_PARETO_LEAST = 5,   /**< fewest weights in the tail */
  MILL_PARETO_GRID = 64    /**< most trial values of the fit: 30 + sqrt(tail) */
};

/** Effective sample size (sum w)^2 / sum w^2 of the weights w = exp(power ln_w) (Kish 1965).
 *  ln_w [n] <= 0, at least one of them finite; -infinity: weight 0. */
MILL_BLOCK_FN double mill_block_weights_size(mill_block *b, int n, const float *ln_w, double power)
{
  double part[2] = {0.0, 0.0}, sum[2];
  MILL_FOR(b, i, n)
  {
    const double w = exp(power * (double)ln_w[i]);
    part[0] += w;
    part[1] += w * w;
  }
  mill_block_sum_n(b, part, 2, sum);
  return sum[0] > 0.0 ? sum[0] * sum[0] / sum[1] : 0.0;
}

MILL_HD_CALLED static inline double mill_pareto_mean(int n, const float *x, double b)
{
  double sum = 0.0;
  for (int i = 0; i < n; i++)
    sum += log1p(-b * (double)x[i]);
  return sum / (double)n;
}

/** Return trial value number j, of m, for the parameter b of the Pareto distribution (Zhang &
 *  Stephens 2009).  last, quartile: the data's largest value and first quartile. */
MILL_HD static inline double mill_pareto_grid(int m, int j, double last, double quartile)
{
  return 1.0 / last + (1.0 - sqrt((double)m / (j + 0.5))) / (3.0 * quartile);
}

/** Fit the shape k of a generalised Pareto distribution to x [n] > 0, ascending (Zhang & Stephens
 *  2009, Technometrics 51, 316).  A prior pulls k towards 0.5 like ten more values (Vehtari et al.
 *  2024, J. Mach. Learn. Res. 25, 72, appendix C).
 *  like [MILL_PARETO_GRID]  work space */
MILL_BLOCK_FN double mill_block_pareto_shape(mill_block *b, int n, const float *x, double *like)
{
  const int m = 30 + (int)sqrt((double)n);
  const double quartile = (double)x[(int)((double)n / 4.0 + 0.5) - 1], last = (double)x[n - 1];
  double part[2] = {0.0, 0.0}, sum[2];
  MILL_FOR(b, j, m)
  {
    const double at = mill_pareto_grid(m, j, last, quartile);
    const double k = mill_pareto_mean(n, x, at);
    like[j] = (double)n * (log(-at / k) - k - 1.0);
  }
  MILL_BARRIER(b);
  MILL_FOR(b, j, m)
  {
    double inverse = 0.0; /* 1 / posterior weight of trial value j */
    for (int i = 0; i < m; i++)
      inverse += exp(like[i] - like[j]);
    part[0] += 1.0 / inverse;
    part[1] += mill_pareto_grid(m, j, last, quartile) / inverse;
  }
  mill_block_sum_n(b, part, 2, sum);
  /* k at the mean trial value; the prior counts as ten more values, 0.5 each */
  return ((double)n * mill_pareto_mean(n, x, sum[1] / sum[0]) + 5.0) / ((double)n + 10.0);
}

/** Let number `at` of x [n] sink to its place in the heap below it. */
MILL_HD static inline void mill_heap_sink(int n, float *x, int at)
{
  for (int child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && x[child + 1] > x[child])
      child++;
    if (!(x[child] > x[at]))
      break;
    const float swap = x[at];
    x[at] = x[child];
    x[child] = swap;
  }
}

/** Sort x [n] in place, ascending (heap sort: no recursion, no memory); x has no NaN. */
MILL_HD_CALLED static inline void mill_sort(int n, float *x)
{
  for (int at = n / 2 - 1; at >= 0; at--)
    mill_heap_sink(n, x, at);
  for (int end = n - 1; end > 0; end--) { /* the heap's largest number becomes x[end] */
    const float largest = x[0];
    x[0] = x[end];
    x[end] = largest;
    mill_heap_sink(end, x, 0);
  }
}

/** Return Pareto k of the weights exp(ln_w).  Above 0.7 weighted means are unreliable (Vehtari et
 *  al. 2024).  +infinity: too few weights; 0: the largest weights are equal.
 *
 *  ln_w [n]                  in   the largest is 0
 *  Work space: tail [min(n, MILL_PARETO_TAIL)] and `like` [MILL_PARETO_GRID]. */
MILL_BLOCK_FN double mill_block_weights_pareto(mill_block *b, int n, const float *ln_w, float *tail,
                                               double *like)
{
  const double most = fmin(0.2 * (double)n, 3.0 * sqrt((double)n));
  const int n_tail = most < MILL_PARETO_TAIL ? (int)most : MILL_PARETO_TAIL;
  const double rank = (double)(n - n_tail - 1);
  double value[1][2], beyond = 0.0;
  if (n_tail < MILL_PARETO_LEAST)
    return (double)INFINITY;
  mill_block_select(b, n, ln_w, NULL, 1, &rank, value);
  const double cut = exp(value[0][0]); /* the largest weight below the tail */
  /* the first test spares calls of exp, the second drops weights that exp rounds to `cut` */
  MILL_FOR(b, i, n)
  {
    beyond += (double)ln_w[i] > value[0][0] && exp((double)ln_w[i]) > cut;
  }
  const int n_beyond = (int)mill_block_sum(b, beyond);
  if (n_beyond < MILL_PARETO_LEAST)
    return cut < 1.0 ? (double)INFINITY : 0.0;
  MILL_SERIAL(b)
  {
    int at = 0;
    for (int i = 0; i < n; i++)
      if ((double)ln_w[i] > value[0][0] && exp((double)ln_w[i]) > cut)
        tail[at++] = (float)(exp((double)ln_w[i]) - cut);
    mill_sort(at, tail);
  }
  MILL_BARRIER(b);
  return mill_block_pareto_shape(b, n_beyond, tail, like);
}
