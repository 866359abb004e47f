/* SPDX-License-Identifier: BSD-3-Clause */
/** Continuum functions: rvspecfit's polynomials and Gaussians, or Chebyshev. */
#pragma once

#include "kernels/data/settings.h"
#include "kernels/math/activation.h"

/** Return a segment's number of continuum functions: n_cont_per_1000aa times its width / 1000 A, at
 *  most n_pix / 2 and MILL_MAX_CONT, but at least set->n_cont. */
MILL_HD static inline int mill_continuum_count(const mill_fit_settings *set, int n_pix,
                                               double width_aa)
{
  int n = MILL_MAX_CONT;
  const double wanted = ceil(width_aa * 1e-3 * set->n_cont_per_1000aa);
  if (wanted < (double)n)
    n = (int)wanted;
  if (n > n_pix / 2)
    n = n_pix / 2;
  return n > set->n_cont ? n : set->n_cont;
}

enum {
  MILL_BROAD_CONT = 3, /**< the first functions are polynomials, used at all pixels */
  MILL_REACH_PIX = 64  /**< pixels per unit of mill_reach_of */
};

/** Gaussian k (from MILL_BROAD_CONT on) of n continuum functions at x. */
MILL_HD static inline double mill_continuum_gauss(int n, int k, double x)
{
  const int n_rbf = n - MILL_BROAD_CONT;
  const double centre = n_rbf > 1 ? -1.0 + 2.0 * (k - MILL_BROAD_CONT) / (n_rbf - 1) : -1.0;
  const double u = (x - centre) * n_rbf;
  return mill_exp_negative(-0.5 * u * u);
}

/** Continuum function k of n at x in [-1, 1]; x is linear in wavelength over a segment.
 *
 *  MILL_CONT_RBF: 1, x, x^2, then Gaussians of sigma 1/(n - 3) at numpy.linspace(-1, 1, n - 3).
 *  MILL_CONT_CHEBYSHEV: T_k(x). */
MILL_HD static inline double mill_continuum(int kind, int n, int k, double x)
{
  if (kind == MILL_CONT_CHEBYSHEV) {
    double t0 = 1.0, t1 = x;
    for (int i = 0; i < k; i++) {
      const double t2 = 2.0 * x * t1 - t0;
      t0 = t1;
      t1 = t2;
    }
    return t0;
  }
  if (k == 0)
    return 1.0;
  if (k == 1)
    return x;
  if (k == 2)
    return x * x;
  return mill_continuum_gauss(n, k, x);
}

/** Write continuum function k of n at n_pix places x to out [n_pix]. */
static inline void mill_continuum_row(int kind, int n, int k, int n_pix, const double *x,
                                      double *out)
{
  if (kind == MILL_CONT_RBF && k >= MILL_BROAD_CONT) {
    for (int i = 0; i < n_pix; i++)
      out[i] = mill_continuum_gauss(n, k, x[i]);
    return;
  }
  for (int i = 0; i < n_pix; i++)
    out[i] = mill_continuum(kind, n, k, x[i]);
}

/** Among continuum functions MILL_BROAD_CONT to nk - 1, find the range [*low, *end) of functions
 *  that are not 0 in pixels [first, first + len).
 *
 *  reach [unit][2]  in  this range for each unit of MILL_REACH_PIX pixels; NULL: all functions */
MILL_HD static inline void mill_reach_of(const unsigned char *reach, int nk, int first, int len,
                                         int *low, int *end)
{
  *low = reach ? nk : MILL_BROAD_CONT;
  *end = reach ? 0 : nk;
  for (int i = first / MILL_REACH_PIX; reach && i <= (first + len - 1) / MILL_REACH_PIX; i++) {
    *low = reach[2 * i] < *low ? reach[2 * i] : *low;
    *end = reach[2 * i + 1] > *end ? reach[2 * i + 1] : *end;
  }
  *end = *end < nk ? *end : nk;
}
