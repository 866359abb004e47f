/* SPDX-License-Identifier: BSD-3-Clause */
/** Label mapping and distance outside the hulls of a library. */
#pragma once

#include "kernels/data/library.h"

/** A label's value in the emulator's (mapped) coordinates. */
MILL_HD static inline double mill_label_map(const mill_label *label, double value)
{
  const double x = label->mapping == MILL_MAP_LOG10 ? log10(value) : value;
  return (x - label->mean) / label->std;
}

MILL_HD static inline double mill_label_map_slope(const mill_label *label, double value)
{
  const double s = label->mapping == MILL_MAP_LOG10 ? 1.0 / (value * 2.30258509299404568402) : 1.0;
  return s / label->std;
}

/** Signed distance of mapped labels [n_label of the library] from a facet; positive: outside. */
MILL_HD static inline double mill_facet_value(const mill_hull *hull, int i_facet,
                                              const double *mapped)
{
  const double *f = hull->facet + (size_t)i_facet * (size_t)(hull->n_label + 1);
  double s = f[hull->n_label];
  for (int i = 0; i < hull->n_label; i++)
    s += f[i] * mapped[hull->label[i]];
  return s;
}

/** Largest signed distance of mapped labels from a facet of any hull; negative: inside all hulls.
 *  -infinity without hulls; NaN for NaN. */
MILL_HD static inline double mill_hull_signed(int n_hull, const mill_hull *hull,
                                              const double *mapped)
{
  double d = -INFINITY;
  for (int h = 0; h < n_hull; h++)
    for (int i = 0; i < hull[h].n_facet; i++) {
      const double s = mill_facet_value(&hull[h], i, mapped);
      if (s != s)
        return s;
      if (s > d)
        d = s;
    }
  return d;
}

/** Penalty distance: mill_hull_signed, or 0 where it is negative. */
MILL_HD static inline double mill_hull_distance(int n_hull, const mill_hull *hull,
                                                const double *mapped)
{
  const double d = mill_hull_signed(n_hull, hull, mapped);
  return d <= 0.0 ? 0.0 : d;
}
