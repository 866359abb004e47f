/* SPDX-License-Identifier: BSD-3-Clause */
/** The quartic through five values, one step apart. */
#pragma once

#include "kernels/base/common.h"

enum { MILL_N_QUARTIC = 5 };

/** Compute coefficients c [5] of the powers 0 to 4 of x from values f [5] at x = -2, -1, 0, 1, 2.
 *  Coefficients are not finite if a value is not. */
MILL_HD static inline void mill_quartic(const double *f, double *c)
{
  const double even1 = 0.5 * (f[3] + f[1]) - f[2], even2 = 0.5 * (f[4] + f[0]) - f[2];
  const double odd1 = 0.5 * (f[3] - f[1]), odd2 = 0.5 * (f[4] - f[0]);
  c[0] = f[2];
  c[1] = (8.0 * odd1 - odd2) / 6.0;
  c[2] = (16.0 * even1 - even2) / 12.0;
  c[3] = (odd2 - 2.0 * odd1) / 6.0;
  c[4] = (even2 - 4.0 * even1) / 12.0;
}

MILL_HD static inline double mill_quartic_at(const double *c, double x)
{
  return c[0] + x * (c[1] + x * (c[2] + x * (c[3] + x * c[4])));
}
