/** Templates at the pixels and the likelihood, in float32 and in float64.
 *
 *  The blocks are written once in pixel_impl.h over MILL_REAL, the type of
 *  templates; sums are float64 in both.
 */
#ifndef MILL_PIXEL_H
#define MILL_PIXEL_H

#include "kernels/block.h"
#include "kernels/doppler.h"
#include "kernels/hull.h"
#include "kernels/linalg.h"
#include "kernels/rotation.h"
#include "kernels/slot.h"

/** x = k ln 2 + r, |r| <= ln 2 / 2 (Cody-Waite), for x in [-87, 88]; gives
 *  exp(r) - 1 by a degree-6 polynomial and 2^k. */
MILL_HD static inline float mill_exp_parts(float x, float *two_k)
{
  const float lo = -87.0f, hi = 88.0f;
  x = x > lo ? (x < hi ? x : hi) : lo; /* NaN too: the bits below must be defined */
  /* round to nearest by the shifter trick, valid in round-to-nearest mode; k then
   * stands in the last bits of the sum (no conversion, so that NaN has no say) */
  const float shift = 12582912.0f;
  union {
    uint32_t u;
    float f;
  } v;
  v.f = x * 1.44269504088896341f + shift;
  const float kf = v.f - shift;
  const float r = (x - kf * 0.693359375f) - kf * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  v.u = (v.u << 23) + (127u << 23);
  *two_k = v.f;
  return p * r * r + r;
}

/** exp(x) - 1 for float32 templates: relative error below 3e-7 (tested),
 *  vectorisable, the argument clipped to [-87, 88]. */
MILL_HD static inline float mill_expm1f(float x)
{
  float two_k;
  const float p = mill_exp_parts(x, &two_k);
  return x == x ? p * two_k + (two_k - 1.0f) : x;
}

/** The constant of a template and the logarithm of its unit: mill_work.mean. */
#define MILL_LEVEL(arm, work)    ((arm)->log_flux ? 1.0 : (work)->mean[0])
#define MILL_LN_SCALE(arm, work) ((arm)->log_flux ? (work)->mean[0] : 0.0)

#define MILL_REAL     float
#define MILL_T(name)  name##_f32
#define MILL_EXPM1(x) mill_expm1f(x)
#define MILL_FIR      MILL_FIR_HALF_F32
#include "kernels/pixel_impl.h"
#undef MILL_REAL
#undef MILL_T
#undef MILL_EXPM1
#undef MILL_FIR

#define MILL_REAL     double
#define MILL_T(name)  name##_f64
#define MILL_EXPM1(x) expm1(x)
#define MILL_FIR      MILL_FIR_HALF
#include "kernels/pixel_impl.h"
#undef MILL_REAL
#undef MILL_T
#undef MILL_EXPM1
#undef MILL_FIR

#endif
