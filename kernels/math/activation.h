/* SPDX-License-Identifier: BSD-3-Clause */
/** SiLU, the activation of hidden layers: z / (1 + exp(-z)), in float64.
 *  The functions have no branches, so that loops over neurons vectorise. */
#pragma once

#include "kernels/base/common.h"

/** 1.5 * 2^52.  The last bits of x + MILL_SHIFTER are the integer nearest to x, for |x| < 2^51.
 *  AVX2 has no vector instruction that converts a double to a 64-bit integer. */
#define MILL_SHIFTER 6755399441055744.0

/** Return 2^k, for k from -1022 to 1023 given as k + MILL_SHIFTER. */
MILL_HD static inline double mill_two_to(double k_shifted)
{
  union {
    uint64_t u;
    double f;
  } v;
  v.f = k_shifted;
  v.u = (v.u << 52) + ((uint64_t)1023 << 52);
  return v.f;
}

/** exp(x) for x <= 0: relative error below 3e-16, plus one rounding of subnormals; NaN for NaN. */
MILL_HD static inline double mill_exp_negative(double x)
{
  x = x < -800.0 ? -800.0 : x; /* exp(-800) is 0; NaN stays NaN */
  /* x = k ln 2 + r, |r| <= ln 2 / 2 (Cody-Waite: k times the high part is exact) */
  const double k = (x * 1.44269504088896338700 + MILL_SHIFTER) - MILL_SHIFTER;
  const double r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
  /* p interpolates (exp(r) - 1 - r) / r^2 at Chebyshev points; exp(r) then errs by 1.6e-17 */
  double p = 2.51003854955103203e-08;
  p = p * r + 2.76200884454097462e-07;
  p = p * r + 2.75572684599970641e-06;
  p = p * r + 2.48015212959543761e-05;
  p = p * r + 1.98412698630536177e-04;
  p = p * r + 1.38888889172137167e-03;
  p = p * r + 8.33333333333006153e-03;
  p = p * r + 4.16666666666241289e-02;
  p = p * r + 1.66666666666666685e-01;
  p = p * r + 5.00000000000000111e-01;
  p = 1.0 + (r + r * r * p);
  /* 2^k in two factors: k goes down to -1154 */
  const double half = k * 0.5 + MILL_SHIFTER, rest = (k - (half - MILL_SHIFTER)) + MILL_SHIFTER;
  return (p * mill_two_to(half)) * mill_two_to(rest);
}

/** Return SiLU, z s, and its slope, s (1 + z (1 - s)), where s = 1 / (1 + exp(-z)).
 *
 *  Errors are below 1e-15 times the value, and 1e-15 s (1 + |z| (1 - s)) for the slope.
 *  At z = -infinity both are 0; at infinity the slope is 1. */
MILL_HD static inline double mill_silu(double z, double *slope)
{
  const double e = mill_exp_negative(-fabs(z)), d = 1.0 / (1.0 + e);
  /* s and 1 - s without cancellation */
  const double s = z < 0.0 ? e * d : d, rest = z < 0.0 ? d : e * d;
  /* clip z: for |z| > 800 e is 0, and an infinite z times 0 would be NaN */
  const double low = z < -800.0 ? -800.0 : z, at = low > 800.0 ? 800.0 : low;
  *slope = s * (1.0 + at * rest);
  return low * s;
}
