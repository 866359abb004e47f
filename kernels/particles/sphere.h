/** Nodes on a sphere: rings of equal declination, half a spacing from the poles, and interpolation
 *  between them that goes on beyond a pole, where it meets the nodes half a turn further. */
#ifndef MILL_SPHERE_H
#define MILL_SPHERE_H

#include "kernels/particles/density.h"

/** The 16 nodes around a place and their weights.
 *
 *  n_ring rings of n_around nodes, an even number; ra0: right ascension of the first of a ring */
MILL_HD static inline void mill_sphere_stencil(int n_ring, int n_around, double ra0, double dec,
                                               double ra, int at[16], double weight[16])
{
  double of_ring[4], around[4];
  const double u = (dec + 0.5 * MILL_PI) * n_ring / MILL_PI - 0.5, ring = floor(u);
  const double v = (ra - ra0) * n_around / (2.0 * MILL_PI), place = floor(v);
  const int first = (int)(place - n_around * floor(place / n_around));
  mill_node_weights(u - ring, of_ring);
  mill_node_weights(v - place, around);
  for (int i = 0; i < 4; i++) {
    int r = (int)ring + i - 1, turn = 0;
    if (r < 0 || r >= n_ring) {
      r = r < 0 ? -1 - r : 2 * n_ring - 1 - r;
      turn = n_around / 2;
    }
    for (int j = 0; j < 4; j++) {
      at[4 * i + j] = r * n_around + (first + j - 1 + turn + n_around) % n_around;
      weight[4 * i + j] = of_ring[i] * around[j];
    }
  }
}

/** Density of a kernel of width h (radians) at its centre: von Mises and Fisher's. */
MILL_HD static inline double mill_sphere_peak(double h)
{
  const double kappa = 1.0 / (h * h);
  return kappa / (-2.0 * MILL_PI * expm1(-2.0 * kappa));
}

/** Bound on the error of a density by nodes, in units of the kernel's peak, as mill_node_bound has
 *  it.  Along a circle the kernel is exp(k (cos t - 1)) at most, k <= 1 / h^2, whose fourth
 *  derivative is 3 k^2 + k at most. */
MILL_HD static inline double mill_sphere_bound(int n_ring, int n_around, double h)
{
  const double kappa = 1.0 / (h * h), up = MILL_PI / n_ring, around = 2.0 * MILL_PI / n_around;
  return 1.25 * 9.0 / 16.0 / 24.0 * (3.0 * kappa * kappa + kappa) *
         (pow(up, 4.0) + pow(around, 4.0));
}

#endif
