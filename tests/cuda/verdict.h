/* SPDX-License-Identifier: BSD-3-Clause */
/** Do the rows of two backends agree within the tolerances, for enough stars?
 *
 *  The limit allows for chance: a backend that puts 0.1 % of all stars outside the tolerances fails
 *  in fewer than 1 % of runs.  It puts 5 of 5,000 stars outside on average; 11 are allowed.  A
 *  backend that puts 0.5 % outside passes in 0.1 % of runs. */
#pragma once

#include <stdio.h>
#include <string.h>

#include "kernels/data/result.h"

static const double TOLERANCE_SIGMA = 0.05, TOLERANCE_M2LL = 5e-3, BAD_SHARE = 0.001;
/* share of runs that may fail if BAD_SHARE of all stars are outside the tolerances */
static const double WRONG_ALARM = 0.01;

/* Difference of a and b in units of the CPU's error sigma; infinite if only one of them is NaN.  A
 * parameter without an error stands at a limit or at its start.  It may differ by 1e-9 of its
 * value, as a GPU rounds its transformation differently. */
static inline double deviation(double a, double b, double sigma)
{
  const int is_same = fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
  const double off = sigma > 0.0 ? fabs(a - b) / sigma : is_same ? 0.0 : INFINITY;
  if (!(sigma > 0.0) && isnan(a) && isnan(b))
    return 0.0;
  return isnan(off) ? INFINITY : off;
}

static inline double worst_deviation(const mill_fit_result *a, const mill_fit_result *b)
{
  double worst = fmax(deviation(b->vrad_km_s, a->vrad_km_s, a->vrad_err_km_s),
                      deviation(b->vsini_km_s, a->vsini_km_s, a->vsini_err_km_s));
  for (int l = 0; l < a->n_label; l++)
    worst = fmax(worst, deviation(b->label[l], a->label[l], a->label_err[l]));
  return worst;
}

/* Return how many of n stars may be outside the tolerances.  A backend with the share BAD_SHARE of
 * stars outside exceeds this number in at most WRONG_ALARM of its runs (binomial distribution). */
static inline int most_outside(int n)
{
  double term = pow(1.0 - BAD_SHARE, n), beyond = 1.0 - term;
  int k = 0;
  for (; beyond > WRONG_ALARM; k++) {
    term *= (double)(n - k) / (k + 1) * BAD_SHARE / (1.0 - BAD_SHARE);
    beyond -= term;
  }
  return k;
}

typedef struct verdict {
  int n, n_fitted; /* stars; stars that CPU and GPU have fitted */
  int n_outside;
  double sum_sigma; /* sum of the fitted stars' largest deviations */
} verdict;

static inline verdict compare(int n, const mill_fit_result *cpu, const mill_fit_result *gpu,
                              int to_print)
{
  verdict v = {.n = n};
  for (int i = 0; i < n; i++) {
    const double sigma = worst_deviation(&cpu[i], &gpu[i]), m2ll = gpu[i].m2ll - cpu[i].m2ll;
    if (cpu[i].status == MILL_STATUS_FITTED && gpu[i].status == MILL_STATUS_FITTED) {
      v.n_fitted++;
      v.sum_sigma += sigma;
    }
    if (gpu[i].status == cpu[i].status &&
        (cpu[i].status != MILL_STATUS_FITTED ||
         (sigma <= TOLERANCE_SIGMA && fabs(m2ll) <= TOLERANCE_M2LL)))
      continue;
    v.n_outside++;
    if (to_print)
      printf("star %d: status %d and %d, %.4f sigma, -2 ln L %+.2e, warn %#llx and %#llx\n", i,
             cpu[i].status, gpu[i].status, sigma, m2ll, (unsigned long long)cpu[i].warn,
             (unsigned long long)gpu[i].warn);
  }
  return v;
}

static inline int is_good(const verdict *v)
{
  return v->n_fitted > v->n / 2 && v->n_outside <= most_outside(v->n);
}

static inline int is_same(const mill_fit_result *a, const mill_fit_result *b)
{
  return memcmp(&a->m2ll, &b->m2ll, sizeof a->m2ll) == 0 &&
         memcmp(a->label, b->label, sizeof a->label) == 0 &&
         memcmp(a->covar, b->covar, sizeof a->covar) == 0 && a->n_eval == b->n_eval &&
         a->warn == b->warn;
}
