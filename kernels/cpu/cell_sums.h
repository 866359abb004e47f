/* SPDX-License-Identifier: BSD-3-Clause */
/** Sums over pixels of products with K continuum functions, which are polynomials over a cell of
 *  pixels (kernels/math/cells.h).  The sums follow from a cell's moments, with some 20
 *  multiplications a pixel instead of K (K + 3) / 2. */
#pragma once

#include "kernels/math/cells.h"
#include "kernels/math/vector.h"

/** Compute moments of the weights w [cell] of a cell's pixels: moment[m] is the sum over pixels of
 *  w times power[m].  power [n][cell]: powers of the pixels' positions.  A variable for each sum
 *  keeps the sums in registers. */
MILL_INLINE void mill_cell_moments(const int n, int cell, const double *power, const double *w,
                                   double *moment)
{
/* clang-format off */
#define MILL_CELL_ALL(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10)
/* clang-format on */
#define MILL_CELL_ZERO(m) mill_vec_f64 s##m = {0};
#define MILL_CELL_ADD(m)                                                                           \
  if ((m) < n)                                                                                     \
    s##m += x * *(const mill_vec_f64 *)(power + (m)*cell + i);
#define MILL_CELL_PUT(m)                                                                           \
  if ((m) < n)                                                                                     \
    moment[m] = mill_vec_sum_f64(&s##m);
  MILL_CELL_ALL(MILL_CELL_ZERO)
  for (int i = 0; i < cell; i += MILL_VEC_N_F64) {
    const mill_vec_f64 x = *(const mill_vec_f64 *)(w + i);
    MILL_CELL_ALL(MILL_CELL_ADD)
  }
  MILL_CELL_ALL(MILL_CELL_PUT)
#undef MILL_CELL_ALL
#undef MILL_CELL_ZERO
#undef MILL_CELL_ADD
#undef MILL_CELL_PUT
}

/** Over the pixels of a cell, add the sum of weight times p_k times p_l to sum[k][l], l <= k.
 *
 *  coef                 in      polynomials of the continuum functions p_k in the cell
 *  moment               in      moments of the weight
 *  sum [n_cont][pitch]  in/out  becomes invalid for l > k */
MILL_INLINE void mill_cell_add_pairs(int n_cont, int pitch, const double *coef,
                                     const double *moment, double *sum)
{
  enum { N = MILL_CELL_COEF };
  double with_p[N][MILL_CELL_MAX_PITCH]; /* [m][k]: moment m of weight times p_k */
  for (int k = 0; k < n_cont; k += MILL_VEC_N_F64) {
    mill_vec_f64 c[N];
    for (int m = 0; m < N; m++)
      c[m] = *(const mill_vec_f64 *)(coef + m * pitch + k);
    for (int m = 0; m < N; m++) {
      mill_vec_f64 s = moment[m] * c[0];
      for (int q = 1; q < N; q++)
        s += moment[m + q] * c[q];
      *(mill_vec_f64 *)(with_p[m] + k) = s;
    }
  }
  for (int k = 0; k < n_cont; k++)
    for (int l = 0; l <= k; l += MILL_VEC_N_F64) {
      mill_vec_f64 *to = (mill_vec_f64 *)(sum + (ptrdiff_t)k * pitch + l), s = *to;
      for (int m = 0; m < N; m++)
        s += coef[m * pitch + k] * *(const mill_vec_f64 *)(with_p[m] + l);
      *to = s;
    }
}

/** Add the sum of x times p_k over the pixels of a cell to sum[k].  moment: moments of x.  coef: as
 *  in mill_cell_add_pairs. */
MILL_INLINE void mill_cell_add(int n_cont, int pitch, const double *coef, const double *moment,
                               double *sum)
{
  for (int k = 0; k < n_cont; k += MILL_VEC_N_F64) {
    mill_vec_f64 *to = (mill_vec_f64 *)(sum + k), s = *to;
    for (int m = 0; m < MILL_CELL_COEF; m++)
      s += moment[m] * *(const mill_vec_f64 *)(coef + m * pitch + k);
    *to = s;
  }
}
