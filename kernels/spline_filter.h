/** The filter that turns second differences into spline coefficients. */
#ifndef MILL_SPLINE_FILTER_H
#define MILL_SPLINE_FILTER_H

#include "kernels/slot.h"

/** Fill the spline constants of an arm from its ln_step: the response of the
 *  coefficients to one second difference, the poles of its two sides, and the
 *  scales of an interval.  The equations stand at mill_block_spline. */
static inline void mill_spline_filter(mill_model_arm *arm)
{
  const double r = exp(arm->ln_step);
  const double a = r, b = 2.0 * (1.0 + 1.0 / r), c = 1.0 / (r * r);
  const double root = sqrt(b * b - 4.0 * a * c);
  /* c x^2 + b x + a = 0: the small root decays to the right, the inverse of the
   * large one to the left */
  const double right = (-b + root) / (2.0 * c);
  const double left = 1.0 / ((-b - root) / (2.0 * c));
  const double centre = 1.0 / (a * left + b + c * right);
  arm->spline_pole_right = right;
  arm->spline_pole_left = left;
  arm->spline_scale_right = 1.0 / (r * r);
  arm->expm1_step = expm1(arm->ln_step);
  for (int k = 0; k <= MILL_FIR_HALF; k++) {
    arm->fir[MILL_FIR_HALF + k] = centre * pow(right, k);
    arm->fir[MILL_FIR_HALF - k] = centre * pow(left, k);
  }
}

#endif
