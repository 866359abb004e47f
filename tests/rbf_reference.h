/* SPDX-License-Identifier: BSD-3-Clause */
/** Radial functions by their definition.  Shares nothing with kernels/math/rbf.h. */
#ifndef RBF_REFERENCE_H
#define RBF_REFERENCE_H

#include <math.h>
#include <string.h>

#include "kernels/data/library.h"

/** The monomials of n variables up to a degree, power [..][n], in the order that the library
 *  file's format demands, written out with loops; their number. */
static inline int ref_monomials(int n, int degree, int (*power)[MILL_MAX_GRID_AXIS])
{
  int n_term = 0;
  memset(power[n_term++], 0, sizeof *power);
  for (int a = 0; a < n && degree >= 1; a++) {
    memset(power[n_term], 0, sizeof *power);
    power[n_term++][a] = 1;
  }
  for (int a = 0; a < n && degree >= 2; a++)
    for (int b = a; b < n; b++) {
      memset(power[n_term], 0, sizeof *power);
      power[n_term][a]++;
      power[n_term++][b]++;
    }
  for (int a = 0; a < n && degree >= 3; a++)
    for (int b = a; b < n; b++)
      for (int c = b; c < n; c++) {
        memset(power[n_term], 0, sizeof *power);
        power[n_term][a]++;
        power[n_term][b]++;
        power[n_term++][c]++;
      }
  return n_term;
}

/** h [n_out] at x, or its derivative by label i_slope (-1: none). */
static inline void ref_rbf(const mill_rbf *rbf, const double *x, int i_slope, double *h)
{
  int power[84][MILL_MAX_GRID_AXIS];
  const int n_axis = rbf->n_axis, n_term = ref_monomials(n_axis, rbf->degree, power);
  memset(h, 0, (size_t)rbf->n_out * sizeof *h);
  for (int i = 0; i < rbf->n_center + n_term; i++) {
    double value = 1;
    if (i < rbf->n_center) {
      double r2 = 0;
      const double *c = rbf->center + i * n_axis;
      for (int l = 0; l < n_axis; l++)
        r2 += pow((x[l] - c[l]) / rbf->length[l], 2);
      value = i_slope < 0 ? pow(r2, 1.5)
                          : 3 * sqrt(r2) * (x[i_slope] - c[i_slope]) / pow(rbf->length[i_slope], 2);
    } else {
      const int *p = power[i - rbf->n_center];
      for (int l = 0; l < n_axis; l++) {
        const double u = x[l] / rbf->length[l];
        if (l != i_slope)
          value *= pow(u, p[l]);
        else
          value *= p[l] == 0 ? 0 : p[l] * pow(u, p[l] - 1) / rbf->length[l];
      }
    }
    for (int k = 0; k < rbf->n_out; k++)
      h[k] += value * (double)rbf->coef[i * rbf->n_out + k];
  }
}

#endif
