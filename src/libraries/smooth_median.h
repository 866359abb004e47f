/* SPDX-License-Identifier: BSD-3-Clause */
/** The level of a spectrum as a smooth function of its pixels. */
#ifndef MILL_SMOOTH_MEDIAN_H
#define MILL_SMOOTH_MEDIAN_H

#include <stddef.h>

/** Width in ln flux of the median by which an arm of a template is divided. */
#define MILL_SMOOTH_MEDIAN_WIDTH 0.1

/** The smooth median m of y [n], n >= 1, which solves
 *
 *    sum_i z_i / sqrt(1 + z_i^2) = 0,  z_i = (y_i - m) / width.
 *
 *  It lies near the median, which itself has a kink wherever another y becomes the middle one, and
 *  no smooth function follows that. */
double mill_smooth_median(size_t n, const double *y, double width);

#endif
