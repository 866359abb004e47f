/* SPDX-License-Identifier: BSD-3-Clause */
/** Natural cubic spline through points with ascending x. */
#ifndef MILL_CUBIC_SPLINE_H
#define MILL_CUBIC_SPLINE_H

/** Second derivatives bend [n] at the points; upper [n] is work. */
static inline void mill_spline_bend(int n, const double *x, const double *y, double *bend,
                                    double *upper)
{
  bend[0] = upper[0] = 0;
  for (int i = 1; i < n - 1; i++) {
    const double left = x[i] - x[i - 1], right = x[i + 1] - x[i];
    const double rhs = 6 * ((y[i + 1] - y[i]) / right - (y[i] - y[i - 1]) / left);
    const double pivot = 2 * (left + right) - left * upper[i - 1];
    upper[i] = right / pivot;
    bend[i] = (rhs - left * bend[i - 1]) / pivot;
  }
  bend[n - 1] = 0;
  for (int i = n - 2; i > 0; i--)
    bend[i] -= upper[i] * bend[i + 1];
}

/** Value at a place between the first two of the points given. */
static inline double mill_spline_value(const double *x, const double *y, const double *bend,
                                       double at)
{
  const double h = x[1] - x[0], b = (at - x[0]) / h, a = 1 - b;
  return a * y[0] + b * y[1] + ((a * a * a - a) * bend[0] + (b * b * b - b) * bend[1]) * h * h / 6;
}

#endif
