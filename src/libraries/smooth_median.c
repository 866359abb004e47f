/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/libraries/smooth_median.h"

#include <math.h>

/* Newton's method on a decreasing function, kept inside the bracket that its signs give. */
double mill_smooth_median(size_t n, const double *y, double width)
{
  double low = y[0], high = y[0], m = 0;
  for (size_t i = 0; i < n; i++) {
    low = fmin(low, y[i]);
    high = fmax(high, y[i]);
    m += y[i] / (double)n;
  }
  for (int iteration = 0; iteration < 100; iteration++) {
    double value = 0, slope = 0;
    for (size_t i = 0; i < n; i++) {
      const double z = (y[i] - m) / width, r = 1 / sqrt(1 + z * z);
      value += z * r;
      slope += r * r * r / width;
    }
    if (value > 0)
      low = m;
    else
      high = m;
    double next = m + value / slope;
    if (!(next > low && next < high))
      next = 0.5 * (low + high);
    const double step = fabs(next - m);
    m = next;
    if (step < 1e-13)
      break;
  }
  return m;
}
