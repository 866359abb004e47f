/* SPDX-License-Identifier: BSD-3-Clause */
/** Cholesky factorisation of small symmetric matrices in float64, by one thread.
 *
 *  Matrices are row-major; rows are lda >= n elements apart.  Only the lower triangle is read. */
#pragma once

#include <float.h>

#include "kernels/base/common.h"

/** Index of the pair (r, c), c <= r, in a packed lower triangle. */
MILL_HD static inline int mill_gram_at(int r, int c)
{
  return r * (r + 1) / 2 + c;
}

/** Dot product of long rows a and b [n], summed in the same order for every instruction set. */
static inline double mill_dot(int n, const double *a, const double *b)
{
  double part[8] = {0};
  int k = 0;
  for (; k + 8 <= n; k += 8)
    for (int i = 0; i < 8; i++)
      part[i] += a[k + i] * b[k + i];
  for (int i = 0; k + i < n; i++)
    part[i] += a[k + i] * b[k + i];
  return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

/** Solve L y = b: the first half of solving L L^T x = b.
 *  l [n][lda]  in      from mill_cholesky
 *  b [n]       in/out  the right-hand side, then y */
MILL_HD static inline void mill_cholesky_forward(int n, const double *l, int lda, double *b)
{
  for (int i = 0; i < n; ++i) {
    const double *row = l + (ptrdiff_t)i * lda;
    double sum = b[i];
    for (int k = 0; k < i; ++k)
      sum -= row[k] * b[k];
    b[i] = sum / row[i];
  }
}

/** Factor a = L L^T in place.
 *
 *  a [n][lda]  in: symmetric, lower triangle; out: L in the lower triangle.  The
 *              upper triangle is neither read nor written.
 *
 *  Returns 0, or 1 + the row of the first bad pivot.  A pivot is bad if it is NaN, or at most
 *  n * DBL_EPSILON times the diagonal element: no correct digit is then left.  Rows above the bad
 *  row then hold L, and rows below it are unchanged. */
MILL_HD static inline int mill_cholesky(int n, double *a, int lda)
{
  const double floor_rel = (double)n * DBL_EPSILON;
  for (int i = 0; i < n; ++i) {
    double *row = a + (ptrdiff_t)i * lda;
    const double diagonal = row[i];
    mill_cholesky_forward(i, a, lda, row);
    double pivot = diagonal;
    for (int k = 0; k < i; ++k)
      pivot -= row[k] * row[k];
    /* a negated comparison, so that NaN and infinity fail too */
    if (!(pivot > floor_rel * diagonal))
      return 1 + i;
    row[i] = sqrt(pivot);
  }
  return 0;
}

/** Solve L^T x = y: the second half of solving L L^T x = b.
 *  l [n][lda]  in      from mill_cholesky
 *  b [n]       in/out  y, then x */
MILL_HD static inline void mill_cholesky_backward(int n, const double *l, int lda, double *b)
{
  for (int i = n - 1; i >= 0; --i) {
    double sum = b[i];
    for (int k = i + 1; k < n; ++k)
      sum -= l[(ptrdiff_t)k * lda + i] * b[k];
    b[i] = sum / l[(ptrdiff_t)i * lda + i];
  }
}

/** Solve (L L^T) x = b.
 *  l [n][lda]  in      from mill_cholesky
 *  b [n]       in/out  the right-hand side, then x */
MILL_HD static inline void mill_cholesky_solve(int n, const double *l, int lda, double *b)
{
  mill_cholesky_forward(n, l, lda, b);
  mill_cholesky_backward(n, l, lda, b);
}

/** Return ln det(L L^T) for the factor l [n][lda] from mill_cholesky; 0 for n = 0. */
MILL_HD static inline double mill_cholesky_logdet(int n, const double *l, int lda)
{
  double sum = 0.0;
  for (int i = 0; i < n; ++i)
    sum += log(l[(ptrdiff_t)i * lda + i]);
  return 2.0 * sum;
}

/** Compute (L L^T)^-1, both triangles, symmetric bit for bit.
 *  l   [n][lda]     in   from mill_cholesky
 *  inv [n][ld_inv]  out  may not be l */
MILL_HD static inline void mill_cholesky_inverse(int n, const double *l, int lda, double *inv,
                                                 int ld_inv)
{
  for (int j = 0; j < n; ++j) {
    double *row = inv + (ptrdiff_t)j * ld_inv;
    for (int i = 0; i < n; ++i)
      row[i] = i == j ? 1.0 : 0.0;
    mill_cholesky_solve(n, l, lda, row);
  }
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < i; ++j) {
      double *lower = inv + (ptrdiff_t)i * ld_inv + j;
      double *upper = inv + (ptrdiff_t)j * ld_inv + i;
      const double mean = 0.5 * (*lower + *upper);
      *lower = *upper = mean;
    }
}
