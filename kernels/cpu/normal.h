/* SPDX-License-Identifier: BSD-3-Clause */
/** Small normal matrices on a CPU.  Row by row each element is a chain of products that wait for each
 *  other; here a vector holds the same element of several rows, which get the same bits. */
#ifndef MILL_CPU_NORMAL_H
#define MILL_CPU_NORMAL_H

#include "kernels/math/linalg.h"
#include "kernels/math/vector.h"

enum { MILL_NORMAL_PITCH = (MILL_MAX_CONT + MILL_VEC_N_F64 - 1) / MILL_VEC_N_F64 * MILL_VEC_N_F64 };

/** mill_cholesky of a [n][n], n <= MILL_MAX_CONT, and mill_cholesky_forward of v. */
static inline int mill_normal_factor(int n, double *a, double *v)
{
  enum { P = MILL_NORMAL_PITCH, N = MILL_VEC_N_F64 };
  const double floor_rel = (double)n * DBL_EPSILON;
  double column[MILL_MAX_CONT][P], rest[P] = {0.0};
  for (int k = 0; k < n; k++) {
    for (int i = 0; i < P; i++)
      column[k][i] = 0.0;
    for (int i = k; i < n; i++)
      column[k][i] = a[i * n + k];
    rest[k] = v[k];
  }
  for (int k = 0; k < n; k++) {
    const double pivot = column[k][k];
    if (!(pivot > floor_rel * a[k * n + k]))
      return 1 + k;
    const double root = sqrt(pivot);
    const int first = k / N * N;
    for (int i = first; i < n; i += N)
      *(mill_vec_f64 *)(column[k] + i) /= root;
    column[k][k] = root;
    v[k] = rest[k] / root;
    for (int i = first; i < n; i += N)
      *(mill_vec_f64 *)(rest + i) -= *(const mill_vec_f64 *)(column[k] + i) * v[k];
    /* places above the diagonal get what nobody reads */
    for (int j = k + 1; j < n; j++) {
      const double by = column[k][j];
      for (int i = j / N * N; i < n; i += N)
        *(mill_vec_f64 *)(column[j] + i) -= *(const mill_vec_f64 *)(column[k] + i) * by;
    }
  }
  for (int k = 0; k < n; k++)
    for (int i = k; i < n; i++)
      a[i * n + k] = column[k][i];
  return 0;
}

/** mill_cholesky_solve of n_row right-hand sides x [n_row][n]. */
static inline void mill_normal_solve(int n, const double *l, int n_row, double *x)
{
  enum { N_VEC = 2, N = N_VEC * MILL_VEC_N_F64 };
  for (int first = 0; first < n_row; first += N) {
    const int n_here = n_row - first < N ? n_row - first : N;
    mill_vec_f64 z[MILL_MAX_CONT][N_VEC];
    for (int k = 0; k < n; k++)
      for (int r = 0; r < N; r++)
        ((double *)z[k])[r] = r < n_here ? x[(first + r) * n + k] : 0.0;
    for (int i = 0; i < n; i++) {
      mill_vec_f64 sum[N_VEC];
      for (int v = 0; v < N_VEC; v++)
        sum[v] = z[i][v];
      for (int k = 0; k < i; k++)
        for (int v = 0; v < N_VEC; v++)
          sum[v] -= l[i * n + k] * z[k][v];
      for (int v = 0; v < N_VEC; v++)
        z[i][v] = sum[v] / l[i * n + i];
    }
    for (int i = n - 1; i >= 0; i--) {
      mill_vec_f64 sum[N_VEC];
      for (int v = 0; v < N_VEC; v++)
        sum[v] = z[i][v];
      for (int k = i + 1; k < n; k++)
        for (int v = 0; v < N_VEC; v++)
          sum[v] -= l[k * n + i] * z[k][v];
      for (int v = 0; v < N_VEC; v++)
        z[i][v] = sum[v] / l[i * n + i];
    }
    for (int k = 0; k < n; k++)
      for (int r = 0; r < n_here; r++)
        x[(first + r) * n + k] = ((const double *)z[k])[r];
  }
}

/** Rows of numbers, one a lane. */
typedef struct mill_normal_rows {
  const double *row[MILL_VEC_N_F64];
} mill_normal_rows;

/** L^-1 (what a row has at q .. q + n - 1, less its first q times with_s [q][n]) of n_row rows, to x
 *  [n_row][n]. */
static inline void mill_normal_whiten(int n, int q, const double *l, const double *with_s,
                                      const mill_normal_rows *from, int n_row, double *x)
{
  mill_vec_f64 z[MILL_MAX_CONT];
  for (int k = 0; k < n; k++)
    for (int r = 0; r < MILL_VEC_N_F64; r++)
      z[k][r] = from->row[r][q + k];
  for (int e = 0; e < q; e++) {
    mill_vec_f64 by;
    for (int r = 0; r < MILL_VEC_N_F64; r++)
      by[r] = from->row[r][e];
    for (int k = 0; k < n; k++)
      z[k] -= by * with_s[e * n + k];
  }
  for (int k = 0; k < n; k++) {
    z[k] /= l[k * n + k];
    for (int i = k + 1; i < n; i++)
      z[i] -= l[i * n + k] * z[k];
  }
  for (int k = 0; k < n; k++)
    for (int r = 0; r < n_row; r++)
      x[r * n + k] = z[k][r];
}

#endif
