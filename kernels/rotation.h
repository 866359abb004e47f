/** Rotational broadening on a grid uniform in ln wavelength.
 *
 *  The kernel of Gray (The Observation and Analysis of Stellar Photospheres)
 *  with linear limb darkening eps = 0.6,
 *    K(x) = [2 (1 - eps) sqrt(1 - x^2) + (pi/2) eps (1 - x^2)] / (pi (1 - eps/3)),
 *  x = v / (v sin i), convolved exactly with a spectrum that is linear between
 *  grid points (rvspecfit's convention):
 *    W_k = int_-1^1 max(0, 1 - |k - R x|) K(x) dx,  R = v sin i / (c step).
 */
#ifndef MILL_ROTATION_H
#define MILL_ROTATION_H

#include "kernels/common.h"

#define MILL_LIMB_DARKENING 0.6

enum { MILL_MAX_ROTATION = 512 }; /**< largest half width in grid points */

/** Primitives of K(x) and x K(x), the argument clipped to [-1, 1]. */
MILL_HD static inline void mill_rotation_primitives(double x, double *k0, double *k1)
{
  const double eps = MILL_LIMB_DARKENING;
  const double pi = 3.14159265358979323846;
  const double norm = pi * (1.0 - eps / 3.0);
  const double c1 = 2.0 * (1.0 - eps) / norm;
  const double c2 = 0.5 * pi * eps / norm;
  const double t = x < -1.0 ? -1.0 : (x > 1.0 ? 1.0 : x);
  const double q = 1.0 - t * t;
  const double root = sqrt(q > 0.0 ? q : 0.0);
  *k0 = c1 * 0.5 * (t * root + asin(t)) + c2 * (t - t * t * t / 3.0);
  *k1 = -c1 * q * root / 3.0 + c2 * (0.5 * t * t - 0.25 * t * t * t * t);
}

/** Half width in grid points of the kernel for R = r_pix. */
MILL_HD static inline int mill_rotation_half_width(double r_pix)
{
  return r_pix < 1e-9 ? 0 : (int)ceil(r_pix);
}

/** W_k and dW_k/dR for one k >= 0, r_pix >= 0, not yet normalised (the sum
 *  over k is 1 up to rounding).  At r_pix = 0 the derivative is the limit from
 *  above: int_0^1 x K for the neighbours, -2 times that in the centre. */
MILL_HD static inline void mill_rotation_weight(double r_pix, int k, double *weight, double *slope)
{
  double a0, a1, b0, b1, c0, c1;
  if (r_pix < 1e-9) {
    mill_rotation_primitives(0.0, &a0, &a1);
    mill_rotation_primitives(1.0, &b0, &b1);
    *weight = k == 0 ? 1.0 : 0.0;
    *slope = k == 0 ? -2.0 * (b1 - a1) : (k == 1 ? b1 - a1 : 0.0);
    return;
  }
  mill_rotation_primitives(((double)k - 1.0) / r_pix, &a0, &a1);
  mill_rotation_primitives((double)k / r_pix, &b0, &b1);
  mill_rotation_primitives(((double)k + 1.0) / r_pix, &c0, &c1);
  /* triangle: 1 - k + R x on the rising leg, 1 + k - R x on the falling one */
  *weight = (1.0 - k) * (b0 - a0) + r_pix * (b1 - a1) + (1.0 + k) * (c0 - b0) - r_pix * (c1 - b1);
  *slope = (b1 - a1) - (c1 - b1);
}

#endif
