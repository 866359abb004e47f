/* SPDX-License-Identifier: BSD-3-Clause */
/** Continuum functions as polynomials over cells, groups of 16 to 64 neighbouring pixels.
 *
 *  Sums over pixels of products with continuum functions then follow from a few moments per cell
 *  (kernels/cpu/cell_sums.h).  In a cell of `cell` pixels, pixel i from 0 on has the coordinate
 *    x = (i - (cell - 1) / 2) / (cell / 2).
 *  The last cell may reach beyond the last pixel.
 *
 *  coef [n_cell][MILL_CELL_COEF][mill_cell_pitch]  coefficients of the powers 0, 1, ... of x
 *  power [MILL_CELL_MOMENTS][cell]                 these powers for each pixel of a cell */
#pragma once

#include "kernels/math/continuum.h"
#include "kernels/math/linalg.h"

enum {
  MILL_CELL_COEF = 6,                         /**< coefficients of a polynomial */
  MILL_CELL_MOMENTS = 2 * MILL_CELL_COEF - 1, /**< powers of x in a product of two polynomials */
  MILL_CELL_MOST = 64,                        /**< pixels of a cell at most */
  MILL_CELL_LEAST = 16,                       /**< pixels of a cell at least */
  MILL_CELL_MAX_PITCH = (MILL_MAX_CONT + 7) / 8 * 8
};

/** Largest error of a polynomial that mill_cell_fit accepts: the rounding of float32 at 1. */
#define MILL_CELL_ERROR 3e-8

/** Elements from one row of coefficients to the next: n_cont, rounded up to a multiple of 8. */
MILL_HD static inline int mill_cell_pitch(int n_cont)
{
  return (n_cont + 7) / 8 * 8;
}

MILL_HD static inline int mill_cell_count(int n_pix, int cell)
{
  return (n_pix + cell - 1) / cell;
}

/** Fill the table power [MILL_CELL_MOMENTS][cell]. */
static inline void mill_cell_powers(int cell, double *power)
{
  for (int i = 0; i < cell; i++) {
    double p = 1.0;
    for (int m = 0; m < MILL_CELL_MOMENTS; m++) {
      power[m * cell + i] = p;
      p *= (i - 0.5 * (cell - 1)) / (0.5 * cell);
    }
  }
}

/** Scale the wavelength of pixel i so that the segment extends from -1 to 1.  A pixel beyond the
 *  last has a wavelength extrapolated from the last three. */
static inline double mill_cell_place(int n_pix, const double *wave_aa, int i)
{
  const int last = n_pix - 1, beyond = i - last;
  double wave = wave_aa[beyond > 0 ? last : i];
  if (beyond > 0) {
    const double d1 = wave_aa[last] - wave_aa[last - 1];
    const double d2 = d1 - (wave_aa[last - 1] - wave_aa[last - 2]);
    wave += beyond * d1 + 0.5 * beyond * (beyond + 1) * d2;
  }
  return 2.0 * (wave - wave_aa[0]) / (wave_aa[last] - wave_aa[0]) - 1.0;
}

/** Fit one polynomial per cell to each of n_cont continuum functions, by least squares.  Returns 1,
 *  or 0 if a polynomial errs by more than MILL_CELL_ERROR at a pixel.
 *
 *  n_pix            in   3 or more
 *  wave_aa [n_pix]  in   ascending
 *  cell             in   pixels per cell
 *  power, coef      in, out: powers of x in a cell; their coefficients (top of this file) */
static inline int mill_cell_fit(int kind, int n_cont, int n_pix, const double *wave_aa, int cell,
                                const double *power, double *coef)
{
  enum { N = MILL_CELL_COEF };
  const int pitch = mill_cell_pitch(n_cont);
  double normal[N * N];
  for (int p = 0; p < N; p++)
    for (int q = 0; q < N; q++) {
      normal[p * N + q] = 0.0;
      for (int i = 0; i < cell; i++)
        normal[p * N + q] += power[p * cell + i] * power[q * cell + i];
    }
  if (mill_cholesky(N, normal, N) != 0)
    return 0;
  /* begin with the last cell: its pixels are widest, so most failures appear there */
  for (int c = mill_cell_count(n_pix, cell) - 1; c >= 0; c--) {
    double *cell_coef = coef + (ptrdiff_t)c * N * pitch, x[MILL_CELL_MOST];
    for (int i = 0; i < cell; i++)
      x[i] = mill_cell_place(n_pix, wave_aa, c * cell + i);
    for (int k = 0; k < pitch; k++) {
      double y[MILL_CELL_MOST] = {0.0}, a[N] = {0.0};
      if (k < n_cont) /* padding after the last function is fitted to zeros */
        mill_continuum_row(kind, n_cont, k, cell, x, y);
      for (int i = 0; i < cell; i++)
        for (int m = 0; m < N; m++)
          a[m] += power[m * cell + i] * y[i];
      mill_cholesky_solve(N, normal, N, a);
      for (int m = 0; m < N; m++)
        cell_coef[m * pitch + k] = a[m];
      for (int i = 0; i < cell && c * cell + i < n_pix; i++) {
        double error = -y[i];
        for (int m = 0; m < N; m++)
          error += a[m] * power[m * cell + i];
        if (!(fabs(error) <= MILL_CELL_ERROR))
          return 0;
      }
    }
  }
  return 1;
}
