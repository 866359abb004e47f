/* SPDX-License-Identifier: BSD-3-Clause */
/** Two velocities and three labels without a hull, and an F of correlated curvature about a centre. */
#ifndef PARABOLOID_H
#define PARABOLOID_H

#include <string.h>

#include "kernels/star/slot.h"

enum { NP = 5, N_LABEL = 3 };

static mill_model model;
static mill_slot slot;
static double centre[NP], hess[NP * NP];

static inline void paraboloid(double vsini, double vsini_sigma)
{
  const double at[NP] = {12, vsini, 0.4, -0.3, 0.2}, sigma[NP] = {2, vsini_sigma, 0.1, 0.2, 0.05};
  memset(&model, 0, sizeof model);
  memset(&slot, 0, sizeof slot);
  model.n_label = N_LABEL;
  model.n_deriv = model.n_par = NP;
  model.set.min_vel_km_s = -1000;
  model.set.max_vel_km_s = 1000;
  model.set.max_vsini_km_s = 500;
  model.set.rotation = MILL_ROT_LINEAR;
  for (int l = 0; l < N_LABEL; l++) {
    model.label[l].std = 1;
    model.label[l].scale = 0.1;
  }
  memcpy(centre, at, sizeof at);
  for (int i = 0; i < NP; i++)
    for (int j = 0; j < NP; j++)
      hess[i * NP + j] = (i == j ? 1 : 0.4) / (sigma[i] * sigma[j]);
}

#endif
