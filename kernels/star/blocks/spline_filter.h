/* SPDX-License-Identifier: BSD-3-Clause */
/** The filter that converts second differences to spline coefficients. */
#pragma once

#include "kernels/star/slot.h"

/** Compute an arm's spline constants (kernels/star/model.h) from its ln_step.
 *
 *  The filters are the response of the coefficients to a unit second difference (equations:
 *  mill_block_spline).  The response is `centre` at its peak.  Each step to the right multiplies it
 *  by `right`, each step to the left by `left`.  So it is a convolution of two one-sided
 *  exponentials, times centre * (1 - left * right).  An exponential p^k (p: left or right) is cut
 *  after 16 points, in float64 after 32.  It is then a convolution of short filters, where
 *  z^-k means a shift by k points:
 *    sum_{k < 16} p^k z^-k = (sum_{k < 4} p^k z^-k) (sum_{k < 4} p^4k z^-4k). */
static inline void mill_spline_filter(mill_model_arm *arm)
{
  const double r = exp(arm->ln_step);
  const double a = r, b = 2.0 * (1.0 + 1.0 / r), c = 1.0 / (r * r);
  const double root = sqrt(b * b - 4.0 * a * c);
  /* roots of c x^2 + b x + a: decay to the right, and the inverse of the decay to the left */
  const double right = (-b + root) / (2.0 * c);
  const double left = 1.0 / ((-b - root) / (2.0 * c));
  const double centre = 1.0 / (a * left + b + c * right);
  arm->spline_scale_right = 1.0 / (r * r);
  arm->expm1_step = expm1(arm->ln_step);
  for (int k = 0; k < 7; k++)
    arm->spline_near[k] = arm->spline_far[k] = 0.0;
  for (int k = 0; k < 4; k++)
    for (int l = 0; l < 4; l++) {
      /* tap 3 + j acts on the grid point j to the right, whose response decays to the left */
      arm->spline_near[3 + l - k] += centre * (1.0 - left * right) * pow(right, k) * pow(left, l);
      arm->spline_far[3 + l - k] += pow(right, 4 * k) * pow(left, 4 * l);
    }
  /* for float64: (1 + right^16 z^-16) (1 + left^16 z^16) extends both exponentials to 32 points */
  arm->spline_last[0] = pow(right, 16);
  arm->spline_last[1] = 1.0 + pow(right, 16) * pow(left, 16);
  arm->spline_last[2] = pow(left, 16);
  for (int k = 0; k < MILL_SPLINE_END; k++) { /* decay from each end of the grid inwards */
    arm->spline_end_left[k] = pow(right, k);
    arm->spline_end_right[k] = pow(left, k);
  }
}
