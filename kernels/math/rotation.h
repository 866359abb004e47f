/* SPDX-License-Identifier: BSD-3-Clause */
/** Rotational broadening on a grid uniform in ln wavelength.
 *
 *  The kernel is Gray's (The Observation and Analysis of Stellar Photospheres) with linear limb
 *  darkening eps = 0.6.  At x = v / (v sin i) it is
 *    K(x) = [2 (1 - eps) sqrt(1 - x^2) + (pi/2) eps (1 - x^2)] / (pi (1 - eps/3)).
 *  It becomes weights W_k at k grid points from the centre, of sum 1.  R = v sin i / (c step).
 *
 *  MILL_ROT_LINEAR, rvspecfit's convention, is exact for a spectrum linear between grid points:
 *    W_k = int_-1^1 L(k - R x) K(x) dx,  L(y) = max(0, 1 - |y|).
 *  For R < 1 the variance of these weights grows as R; the true variance of rotation grows as R^2.
 *
 *  MILL_ROT_SPLINE is for a smooth spectrum:
 *   - R >= 2.5: the same integral, where L interpolates by a quintic spline of reach 3.  The
 *     spline's first two derivatives at grid points are five-point differences.
 *   - R <= 1.5: seven weights that have the moments of K up to the seventh.
 *   - between: a smooth mixture of both. */
#pragma once

#include "kernels/base/common.h"
#include "kernels/data/settings.h"

#define MILL_LIMB_DARKENING 0.6
/** K(x) = C1 sqrt(1 - x^2) + C2 (1 - x^2). */
#define MILL_ROTATION_NORM (MILL_PI * (1.0 - MILL_LIMB_DARKENING / 3.0))
#define MILL_ROTATION_C1   (2.0 * (1.0 - MILL_LIMB_DARKENING) / MILL_ROTATION_NORM)
#define MILL_ROTATION_C2   (0.5 * MILL_PI * MILL_LIMB_DARKENING / MILL_ROTATION_NORM)

/** v sin i, km/s, below which the likelihood depends on (v sin i)^2, and above which on v sin i. */
#define MILL_VSINI_SOFT 30.0

/** MILL_ROT_SPLINE uses moments up to R = MOMENTS, the quintic from R = QUINTIC on, else both. */
#define MILL_ROTATION_MOMENTS 1.5
#define MILL_ROTATION_QUINTIC 2.5

enum {
  MILL_MAX_ROTATION = 512, /**< largest half width in grid points */
  MILL_ROTATION_REACH = 3, /**< half width of the quintic L and of the seven weights, grid points */
  MILL_ROTATION_NODES = 14
};

/** Compute antiderivatives k0 of K(x) (head of this file) and k1 of x K(x); clip x to [-1, 1]. */
MILL_HD static inline void mill_rotation_primitives(double x, double *k0, double *k1)
{
  const double c1 = MILL_ROTATION_C1, c2 = MILL_ROTATION_C2;
  const double t = x < -1.0 ? -1.0 : (x > 1.0 ? 1.0 : x);
  const double q = 1.0 - t * t;
  const double root = sqrt(q > 0.0 ? q : 0.0);
  *k0 = c1 * 0.5 * (t * root + asin(t)) + c2 * (t - t * t * t / 3.0);
  *k1 = -c1 * q * root / 3.0 + c2 * (0.5 * t * t - 0.25 * t * t * t * t);
}

/** Half width of the kernel for R = r_pix, in grid points. */
MILL_HD static inline int mill_rotation_half_width(int kind, double r_pix)
{
  if (!(r_pix >= 1e-9)) /* also for NaN */
    return 0;
  if (kind == MILL_ROT_LINEAR)
    return (int)ceil(r_pix);
  return r_pix <= MILL_ROTATION_MOMENTS ? MILL_ROTATION_REACH
                                        : (int)ceil(r_pix) + MILL_ROTATION_REACH - 1;
}

/** Half width of W_k and dW_k/dR.  At R = 0 the centre's neighbours have slopes but no weight. */
MILL_HD static inline int mill_rotation_slope_half_width(int kind, double r_pix)
{
  const int least = kind == MILL_ROT_LINEAR ? 1 : MILL_ROTATION_REACH;
  const int half = mill_rotation_half_width(kind, r_pix);
  return half < least ? least : half;
}

/** Compute W_k = int_-1^1 L(k - R x) K(x) dx and dW_k/dR at R = r_pix, for L(y) = max(0, 1 - |y|).
 *  At R = 0 the slope is its limit from above: s = int_0^1 x K(x) dx for k = 1, -2 s for k = 0. */
MILL_HD static inline void mill_rotation_linear(double r_pix, int k, double *weight, double *slope)
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
  /* a, b, c: integrals of K (0) and x K (1) up to x = (k - 1) / R, k / R, (k + 1) / R.  L(k - R x)
   * is 1 - k + R x between the first two x, 1 + k - R x between the last two. */
  *weight = (1.0 - k) * (b0 - a0) + r_pix * (b1 - a1) + (1.0 + k) * (c0 - b0) - r_pix * (c1 - b1);
  *slope = (b1 - a1) - (c1 - b1);
}

/** Compute W_k = sum over n = 0, 2, 4, 6 of m_n R^n d_n[k] / n!, and dW_k/d(R^2/2), at R = r_pix.
 *  m_n: n-th moment of the profile; d_n[k]: weight of pixels -k and k in the n-th difference. */
MILL_HD static inline void mill_rotation_moments(double r_pix, int k, double *weight, double *slope)
{
  /* second, fourth and sixth differences of seven points */
  const double d2[MILL_ROTATION_REACH + 1] = {-49.0 / 18, 3.0 / 2, -3.0 / 20, 1.0 / 90};
  const double d4[MILL_ROTATION_REACH + 1] = {28.0 / 3, -13.0 / 2, 2.0, -1.0 / 6};
  const double d6[MILL_ROTATION_REACH + 1] = {-20.0, 15.0, -6.0, 1.0};
  const double c1 = MILL_ROTATION_C1, c2 = MILL_ROTATION_C2;
  /* n = 2, 4, 6: int_-1^1 of x^n sqrt(1 - x^2) is pi/8, pi/16, 5 pi/128; of x^n (1 - x^2) it is
   * 4/((n+1)(n+3)) */
  const double m2 = c1 * MILL_PI / 8.0 + c2 * 4.0 / 15.0;
  const double m4 = c1 * MILL_PI / 16.0 + c2 * 4.0 / 35.0;
  const double m6 = c1 * MILL_PI * 5.0 / 128.0 + c2 * 4.0 / 63.0;
  *weight = k == 0 ? 1.0 : 0.0;
  *slope = 0.0;
  if (k > MILL_ROTATION_REACH)
    return;
  const double q = r_pix * r_pix, p2 = m2 * d2[k], p4 = m4 * d4[k], p6 = m6 * d6[k];
  *weight += q * (p2 / 2.0 + q * (p4 / 24.0 + q * (p6 / 720.0)));
  *slope = p2 + q * (p4 / 6.0 + q * (p6 / 120.0));
}

/** Compute W_k = int_-1^1 L(k - R x) K(x) dx and dW_k/d(R^2/2) at R = r_pix for the quintic L (head
 *  of this file).  A closed form would divide rounding errors by R^5.  Gauss-Legendre quadrature
 *  between grid points, in t = tan(asin(x) / 2), has errors below rounding. */
MILL_HD static inline void mill_rotation_quintic(double r_pix, int k, double *weight, double *slope)
{
  /* L at |y| = i + s: coefficients of the powers of s */
  const double piece[MILL_ROTATION_REACH][6] = {
      {1.0, 0.0, -5.0 / 4, -35.0 / 12, 21.0 / 4, -25.0 / 12},
      {0.0, -2.0 / 3, 2.0 / 3, 13.0 / 8, -8.0 / 3, 25.0 / 24},
      {0.0, 1.0 / 12, -1.0 / 24, -3.0 / 8, 13.0 / 24, -5.0 / 24}};
  /* the quadrature's nodes and weights on [-1, 1]; the other half mirrors them */
  const double node[MILL_ROTATION_NODES / 2] = {
      0.10805494870734367, 0.31911236892788974, 0.5152486363581541, 0.68729290481168548,
      0.82720131506976502, 0.92843488366357352, 0.98628380869681231};
  const double share[MILL_ROTATION_NODES / 2] = {
      0.21526385346315779, 0.2051984637212956,   0.18553839747793782, 0.15720316715819355,
      0.12151857068790319, 0.080158087159760208, 0.03511946033175186};
  const double c1 = MILL_ROTATION_C1, c2 = MILL_ROTATION_C2;
  double sum = 0.0, slope_sum = 0.0;
  for (int d = 1 - MILL_ROTATION_REACH; d <= MILL_ROTATION_REACH; d++) {
    /* R x runs from j to j + 1, so y = k - R x lies in [d - 1, d] */
    const double j = (double)(k - d);
    if (j >= r_pix || j + 1.0 <= -r_pix)
      continue;
    const double x0 = j > -r_pix ? j / r_pix : -1.0, x1 = j + 1.0 < r_pix ? (j + 1.0) / r_pix : 1.0;
    const double t0 = x0 / (1.0 + sqrt((1.0 - x0) * (1.0 + x0)));
    const double t1 = x1 / (1.0 + sqrt((1.0 - x1) * (1.0 + x1)));
    const double mid = 0.5 * (t0 + t1), width = 0.5 * (t1 - t0);
    const double *c = piece[d >= 1 ? d - 1 : -d];
    const double sign = d >= 1 ? 1.0 : -1.0;
    for (int i = 0; i < MILL_ROTATION_NODES; i++) {
      const double t = i & 1 ? mid - width * node[i / 2] : mid + width * node[i / 2];
      const double inv = 1.0 / (1.0 + t * t);
      const double x = 2.0 * t * inv, root = (1.0 - t * t) * inv;
      /* K dx: dx = 2 root / (1 + t^2) dt */
      const double part = share[i / 2] * width * 2.0 * root * inv * root * (c1 + c2 * root);
      const double y = (double)k - r_pix * x;
      const double s = d >= 1 ? y - (double)(d - 1) : (double)d - y;
      sum += part * (c[0] + s * (c[1] + s * (c[2] + s * (c[3] + s * (c[4] + s * c[5])))));
      slope_sum -= part * x * sign *
                   (c[1] + s * (2.0 * c[2] + s * (3.0 * c[3] + s * (4.0 * c[4] + s * 5.0 * c[5]))));
    }
  }
  *weight = sum;
  *slope = slope_sum / r_pix;
}

/** Compute W_k (head of this file) and its slope, for k >= 0 and R = r_pix >= 0.  The slope is
 *  dW_k/dR.  For MILL_ROT_SPLINE, where dW_k/dR is 0 at R = 0, it is dW_k/d(R^2/2). */
MILL_HD static inline void mill_rotation_weight(int kind, double r_pix, int k, double *weight,
                                                double *slope)
{
  if (kind == MILL_ROT_LINEAR) {
    mill_rotation_linear(r_pix, k, weight, slope);
    return;
  }
  if (r_pix >= MILL_ROTATION_QUINTIC) {
    mill_rotation_quintic(r_pix, k, weight, slope);
    return;
  }
  mill_rotation_moments(r_pix, k, weight, slope);
  if (r_pix <= MILL_ROTATION_MOMENTS)
    return;
  double quintic, quintic_slope;
  mill_rotation_quintic(r_pix, k, &quintic, &quintic_slope);
  /* share: weight of the quintic, 0 to 1 with two continuous derivatives; rise: its slope in R */
  const double width = MILL_ROTATION_QUINTIC - MILL_ROTATION_MOMENTS;
  const double s = (r_pix - MILL_ROTATION_MOMENTS) / width;
  const double share = s * s * s * (10.0 + s * (-15.0 + s * 6.0));
  const double rise = 30.0 * s * s * (1.0 - s) * (1.0 - s) / width;
  *slope += share * (quintic_slope - *slope) + rise / r_pix * (quintic - *weight);
  *weight += share * (quintic - *weight);
}

/** The parameter u >= 0 that the fit uses instead of v = v sin i, km/s.  MILL_ROT_LINEAR: u = v.
 *  MILL_ROT_SPLINE: u = sqrt(v^2 + s^2) - s with s = MILL_VSINI_SOFT, which is about v^2 / 2s for
 *  slow rotators and about v for fast ones. */
MILL_HD static inline double mill_vsini_inner(int kind, double vsini_km_s)
{
  const double s = MILL_VSINI_SOFT, v = vsini_km_s;
  return kind == MILL_ROT_LINEAR ? v : v * (v / (sqrt(v * v + s * s) + s));
}

/** Return v sin i, km/s, for the fit's parameter u: the inverse of mill_vsini_inner. */
MILL_HD static inline double mill_vsini_outer(int kind, double u)
{
  return kind == MILL_ROT_LINEAR ? u : sqrt(u * (u + 2.0 * MILL_VSINI_SOFT));
}

/** d(v sin i)/du at u; +inf at 0 for MILL_ROT_SPLINE. */
MILL_HD static inline double mill_vsini_outer_slope(int kind, double u)
{
  if (kind == MILL_ROT_LINEAR)
    return 1.0;
  return u > 0.0 ? (u + MILL_VSINI_SOFT) / mill_vsini_outer(kind, u) : (double)INFINITY;
}

/** d(v^2/2)/du in km/s, v = v sin i. */
MILL_HD static inline double mill_vsini_rise(int kind, double vsini_km_s)
{
  const double s = MILL_VSINI_SOFT, v = vsini_km_s;
  return kind == MILL_ROT_LINEAR ? v : sqrt(v * v + s * s);
}

/** Return the factor that converts the slope from mill_rotation_weight to dW_k/du, where u is the
 *  fit's parameter for v sin i (mill_vsini_inner).  per_km_s: grid points per km/s. */
MILL_HD static inline double mill_rotation_slope_scale(int kind, double vsini_km_s, double per_km_s)
{
  return kind == MILL_ROT_LINEAR ? per_km_s
                                 : per_km_s * per_km_s * mill_vsini_rise(kind, vsini_km_s);
}
