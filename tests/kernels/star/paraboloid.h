/* SPDX-License-Identifier: BSD-3-Clause */
/** A star with velocity, v sin i and three labels, without a hull.  F is quadratic about a centre,
 *  with correlations.  Functions here answer the star's questions in place of a backend. */
#pragma once

#include "kernels/star/slot.h"

enum { NP = 5, N_LABEL = 3, MOST_SEGMENTS = 8, ANSWER = MILL_N_PROFILE + 128 };

static mill_model model;
static mill_slot slot;
static double centre[NP], hess[NP * NP];
static mill_segment segment[MOST_SEGMENTS];
static double velocities[MOST_SEGMENTS * MILL_N_PROFILE], answers[MOST_SEGMENTS * ANSWER];

static inline void paraboloid(double vsini, double vsini_sigma)
{
  const double at[NP] = {12, vsini, 0.4, -0.3, 0.2}, sigma[NP] = {2, vsini_sigma, 0.1, 0.2, 0.05};
  memset(&model, 0, sizeof model);
  memset(&slot, 0, sizeof slot);
  memset(segment, 0, sizeof segment);
  memset(answers, 0xff, sizeof answers); /* NaN: nobody has asked */
  segment[0].used = 1;
  slot.n_segment = 1;
  slot.segment = segment;
  slot.vel = velocities;
  slot.answer = answers;
  model.n_arm = 1;
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

/** Answer segment i's request for values: f of the parameters, at the segment's velocity. */
static inline void answer_values(int i, double (*f)(const double *theta))
{
  for (int k = 0; k < slot.n_vel; k++) {
    double theta[MILL_MAX_PAR];
    memcpy(theta, slot.theta, sizeof theta);
    theta[MILL_PAR_VRAD] = mill_velocities_of(&slot, i)[k];
    if (theta[MILL_PAR_VRAD] == theta[MILL_PAR_VRAD])
      mill_answer_of(&model, &slot, i)[MILL_ANSWER_F + k] = f(theta);
  }
}

/** The tangents of segment i: gradient [n], curvature [n][n]. */
static inline void answer_tangents(int i, int n, const double *grad, const double *curve)
{
  double *to = mill_answer_of(&model, &slot, i) + MILL_ANSWER_TANGENTS;
  memcpy(to, grad, (size_t)n * sizeof *grad);
  to += n;
  for (int j = 0; j < n; j++)
    for (int l = 0; l <= j; l++)
      *to++ = curve[j * n + l];
}
