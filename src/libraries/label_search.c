/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/label_search.h"

#include <math.h>
#include <string.h>

#include <lapacke.h>

enum { MAX_STEP = 30, N = MILL_LABEL_SEARCH_MAX };

/* Tolerance relative to the sum, a chi-square: differences of two fits matter down to about 1e-4 of
 * their errors.
 */
static const double ENOUGH = 1e-12;

void mill_label_search(int n, mill_misfit misfit, void *context, double *x, double *normal_out)
{
  const size_t n_par = (size_t)n;
  double normal[N * N] = {0}, rhs[N] = {0}, damping = 1e-3;
  double now = misfit(context, x, normal, rhs);
  for (int step = 0; step < MAX_STEP && damping < 1e6; step++) {
    double trial[N], damped[N * N], way[N], next_normal[N * N], next_rhs[N], longest = 0;
    memcpy(damped, normal, n_par * n_par * sizeof *damped);
    memcpy(way, rhs, n_par * sizeof *way);
    for (size_t l = 0; l < n_par; l++)
      damped[l * n_par + l] *= 1 + damping;
    if (LAPACKE_dposv(LAPACK_ROW_MAJOR, 'L', n, 1, damped, n, way, 1) != 0) {
      damping *= 10;
      continue;
    }
    for (size_t l = 0; l < n_par; l++)
      longest = fmax(longest, fabs(way[l]));
    for (size_t l = 0; l < n_par; l++)
      trial[l] = x[l] + way[l] / fmax(longest, 1);
    const double next = misfit(context, trial, next_normal, next_rhs);
    if (!(next < now)) {
      damping *= 10;
      continue;
    }
    const int done = now - next < ENOUGH * now;
    now = next;
    memcpy(x, trial, n_par * sizeof *x);
    memcpy(normal, next_normal, n_par * n_par * sizeof *normal);
    memcpy(rhs, next_rhs, n_par * sizeof *rhs);
    damping = fmax(0.1 * damping, 1e-7);
    if (done)
      break;
  }
  if (normal_out)
    memcpy(normal_out, normal, n_par * n_par * sizeof *normal);
}
