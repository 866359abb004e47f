/* SPDX-License-Identifier: BSD-3-Clause */
/** The inputs of the last layer of an emulator that sums radial functions |x - center|^3 and
 *  monomials of the labels (mill_rbf of kernels/data/library.h). */
#pragma once

#include "kernels/math/block.h"
#include "kernels/data/library.h"

/** Number of monomials of n_axis variables up to a degree: (n_axis + degree choose degree). */
MILL_HD static inline int mill_rbf_n_poly(int n_axis, int degree)
{
  int n = 1;
  for (int i = 1; i <= degree; i++)
    n = n * (n_axis + i) / i;
  return n;
}

/** Advance exponent [n_axis] to the next monomial; all zeros are the monomial 1.  For two variables
 *  a and b the order is 1, a, b, aa, ab, bb, aaa, ... */
MILL_HD static inline void mill_rbf_next_monomial(int n_axis, int *exponent)
{
  /* one power of variable `at` and all powers of the last variable move to variable at + 1 */
  const int last = n_axis - 1;
  const int carried = exponent[last];
  int at = last - 1;
  while (at >= 0 && exponent[at] == 0)
    at--;
  exponent[last] = 0;
  if (at >= 0)
    exponent[at]--;
  exponent[at + 1] += carried + 1; /* at -1: the next degree begins */
}

/** Value of a monomial at u [n_axis], and its derivative in each variable, slope [n_axis]. */
MILL_HD static inline double mill_rbf_monomial(int n_axis, const int *exponent, const double *u,
                                               double *slope)
{
  double value = 1.0;
  for (int l = 0; l < n_axis; l++) {
    double below = 1.0; /* u^(exponent - 1) */
    for (int k = 1; k < exponent[l]; k++)
      below *= u[l];
    const double factor = exponent[l] > 0 ? below * u[l] : 1.0;
    const double factor_slope = exponent[l] > 0 ? (double)exponent[l] * below : 0.0;
    for (int t = 0; t < l; t++)
      slope[t] *= factor;
    slope[l] = value * factor_slope;
    value *= factor;
  }
  return value;
}

/** Compute one star's inputs of the last layer, and their derivatives, from its labels.
 *
 *  rbf                         in   with arrays in the block's memory space
 *  n_tangent                   in   0: no derivatives; n_axis: one per label
 *  in [1 + n_tangent][n_axis]  in   row 0: mapped labels; row 1 + l: element l is the slope of
 *                                   label l's mapping, the other elements are 0
 *  out [1 + n_tangent][n_out]  out  the inputs, then their derivative in each label
 *  in_pitch, out_pitch         in   elements from one row of in or out to the next
 *
 *  Each output is one float64 sum in a fixed order: centers, then monomials.  The caller must wait
 *  at a barrier before it reads out. */
MILL_BLOCK_FN void mill_block_rbf(mill_block *b, const mill_rbf *rbf, int n_tangent,
                                  const double *in, size_t in_pitch, double *out, size_t out_pitch)
{
  const int n_out = rbf->n_out, n_axis = rbf->n_axis;
  double scale[MILL_MAX_GRID_AXIS], rise[MILL_MAX_GRID_AXIS];
  for (int l = 0; l < n_axis; l++) {
    scale[l] = 1.0 / rbf->length[l];
    rise[l] = n_tangent > 0 ? scale[l] * in[(size_t)(1 + l) * in_pitch + (size_t)l] : 0.0;
  }
  (void)b; /* the CPU's loop does not use b */
  MILL_FOR(b, i_chunk, mill_chunks(n_out, MILL_CHUNK))
  {
    const int k0 = i_chunk * MILL_CHUNK, n = mill_chunk_len(n_out, k0, MILL_CHUNK);
    double sum[1 + MILL_MAX_GRID_AXIS][MILL_CHUNK];
    double u[MILL_MAX_GRID_AXIS], slope[MILL_MAX_GRID_AXIS];
    int exponent[MILL_MAX_GRID_AXIS];
    for (int t = 0; t <= n_tangent; t++)
      for (int c = 0; c < n; c++)
        sum[t][c] = 0.0;
    for (int i = 0; i < rbf->n_center + rbf->n_poly; i++) {
      double value;
      if (i < rbf->n_center) {
        const double *center = rbf->center + (size_t)i * (size_t)n_axis;
        double r2 = 0.0;
        for (int l = 0; l < n_axis; l++) {
          u[l] = (in[l] - center[l]) * scale[l];
          r2 += u[l] * u[l];
        }
        const double r = sqrt(r2);
        value = r2 * r;
        for (int l = 0; l < n_axis; l++)
          slope[l] = 3.0 * r * u[l];
      } else {
        if (i == rbf->n_center)
          for (int l = 0; l < n_axis; l++) {
            u[l] = in[l] * scale[l];
            exponent[l] = 0;
          }
        else
          mill_rbf_next_monomial(n_axis, exponent);
        value = mill_rbf_monomial(n_axis, exponent, u, slope);
      }
      const float *coef = rbf->coef + (size_t)i * (size_t)n_out + (size_t)k0;
      MILL_SIMD
      for (int c = 0; c < n; c++)
        sum[0][c] += value * (double)coef[c];
      for (int t = 0; t < n_tangent; t++) {
        const double factor = slope[t] * rise[t];
        MILL_SIMD
        for (int c = 0; c < n; c++)
          sum[1 + t][c] += factor * (double)coef[c];
      }
    }
    for (int t = 0; t <= n_tangent; t++)
      for (int c = 0; c < n; c++)
        out[(size_t)t * out_pitch + (size_t)(k0 + c)] = sum[t][c];
  }
}
