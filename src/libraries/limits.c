/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/limits.h"

#include <math.h>

int mill_expect_within(int code, const char *what, long long value, long long low, long long high)
{
  if (value < low || value > high)
    return MILL_ERROR(code, "%s: expected %lld to %lld, got %lld", what, low, high, value);
  return MILL_OK;
}

int mill_expect_above_0(int code, const char *what, double value)
{
  if (!(value > 0) || !isfinite(value))
    return MILL_ERROR(code, "%s: expected a number above 0, got %g", what, value);
  return MILL_OK;
}
