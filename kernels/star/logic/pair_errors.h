/* SPDX-License-Identifier: BSD-3-Clause */
/** Errors of both stars' velocities at each epoch, with all other parameters free.
 *
 *  The curvature of F (half its second derivatives) consists of blocks: A in the parameters that all
 *  epochs share, C_i in the two velocities of epoch i, and B_i between these.  Its inverse is the
 *  covariance.  With P_i = C_i^-1 and S = A - sum_i B_i^T P_i B_i (a Schur complement), the
 *  covariance of epoch i's velocities is P_i + (P_i B_i) S^-1 (P_i B_i)^T.  The first term holds the
 *  shared parameters fixed: mill_epoch.pair_err after the turns. */
#pragma once

#include "kernels/star/logic/pair_epochs.h"
#include "kernels/star/logic/pair_follow.h"

/** Write the indices (mill_map_of) of the free parameters that all epochs share to idx, and return
 *  their number: v sin i and labels of both stars, flux ratios, velocity offsets. */
MILL_HD_CALLED static inline int mill_pair_shared(const mill_model *m, const mill_slot *slot,
                                                  int *idx)
{
  const mill_pair *p = &slot->pair;
  int n = 0;
  for (int j = MILL_PAR_VRAD + 1; j < m->n_deriv; j++)
    if (mill_pair_free(m, slot, p->theta[0], j))
      idx[n++] = j;
  for (int k = MILL_PAR_VRAD + 1; k < mill_pair_n(m); k++)
    if (mill_pair_free(m, slot, p->theta[1], k))
      idx[n++] = m->n_par + k;
  return n;
}

/** Return the curvature of the prior of the parameter with index i.  A wide prior is added, since S
 *  must be positive definite even if the spectra do not determine the parameter. */
MILL_HD_CALLED static inline double mill_pair_prior(const mill_model *m, mill_slot *slot, int i)
{
  const int star = i >= m->n_par, k = star ? i - m->n_par : i;
  const int is_ratio = k >= m->n_deriv && k < m->n_deriv + m->n_arm;
  const int j = k < m->n_deriv ? k : k - m->n_arm; /* the star's parameter */
  const double unit = is_ratio ? MILL_PAIR_SCALE : mill_par_scale(m, j);
  double stiff = 0.0;
  slot->pair.star = star; /* mill_prior_sigma uses its priors */
  if (!is_ratio) {
    (void)mill_prior_gradient(m, slot, j, slot->pair.theta[star][j], &stiff);
    stiff += mill_prior_bend(m, slot, j, slot->pair.theta[star][j]);
  }
  slot->pair.star = 0;
  return stiff + 1e-6 / (unit * unit);
}

/** Sum the curvature of epoch i over its segments (slot->space.part), and write P_i B_i to pb
 *  [2][MILL_MAX_JOINT].  If the velocities obey the mass-ratio relation v2 = v1 slope + constant,
 *  P_i = d d^T / (d^T C_i d) with d = (1, slope).  Unknown velocities have P_i = 0. */
MILL_HD_CALLED static inline void mill_pair_epoch_cross(const mill_model *m, mill_slot *slot, int i,
                                                        double slope, int n, const int *idx,
                                                        double *pb)
{
  const mill_epoch *e = &slot->epoch[i];
  const int np = m->n_par, n_all = np + mill_pair_n(m), is_free = !(slope < 0.0);
  double *part = slot->space.part, *unused = slot->space.joint_grad;
  for (int k = 0; k < n_all * n_all; k++)
    part[k] = 0.0;
  for (int s = 0; s < slot->n_segment; s++)
    if (slot->segment[s].paired && slot->segment[s].epoch == i)
      mill_map_add(m, &slot->segment[s], mill_answer_of(m, slot, s), n_all, unused, part);
  const double *b0 = part + MILL_PAR_VRAD * n_all, *b1 = part + (np + MILL_PAR_VRAD) * n_all;
  const double c00 = b0[MILL_PAR_VRAD], c01 = b1[MILL_PAR_VRAD], c11 = b1[np + MILL_PAR_VRAD];
  const double det = is_free ? c00 * c11 - c01 * c01 : c00 + slope * (2.0 * c01 + slope * c11);
  const double known = det > 0.0 && isfinite(e->pair_err[0] + e->pair_err[1]) ? 1.0 / det : 0.0;
  const double p00 = known * (is_free ? c11 : 1.0), p01 = known * (is_free ? -c01 : slope);
  const double p11 = known * (is_free ? c00 : slope * slope);
  for (int r = 0; r < n; r++) {
    pb[r] = p00 * b0[idx[r]] + p01 * b1[idx[r]];
    pb[MILL_MAX_JOINT + r] = p01 * b0[idx[r]] + p11 * b1[idx[r]];
  }
}

/** Add the second term of their variances to the errors of the epochs' velocities (pair_err).  The
 *  last answer must be the first star's tangents at the solution.  Returns 0 if S is singular. */
MILL_HD_CALLED static inline int mill_pair_epochs_errors(const mill_model *m, mill_slot *slot)
{
  const int np = m->n_par, n_all = np + mill_pair_n(m);
  const mill_pair_line line = mill_pair_line_of(m, slot);
  double *s = slot->space.joint, *pb = slot->space.matrix[0];
  int idx[MILL_MAX_JOINT];
  const int n = mill_pair_shared(m, slot, idx);
  for (int r = 0; r < n; r++) /* in place: no element is read after it is overwritten */
    for (int c = 0; c < n; c++)
      s[r * n + c] = s[idx[r] * n_all + idx[c]];
  for (int r = 0; r < n; r++)
    s[r * (n + 1)] += mill_pair_prior(m, slot, idx[r]);
  for (int pass = 0; pass < 2; pass++) { /* 0: S; 1: errors */
    if (pass == 1 && mill_cholesky(n, s, n) != 0)
      return 0;
    for (int i = 0; i < slot->n_epoch; i++) {
      mill_epoch *e = &slot->epoch[i];
      const double slope = mill_pair_is_told(m, slot, i) ? 0.0 : line.slope;
      if (!mill_pair_has_lines(e))
        continue;
      mill_pair_epoch_cross(m, slot, i, slope, n, idx, pb);
      for (int star = 0; star < 2; star++) {
        const double *b = slot->space.part + (star * np + MILL_PAR_VRAD) * n_all;
        double *row = pb + star * MILL_MAX_JOINT, var = e->pair_err[star] * e->pair_err[star];
        for (int r = 0; r < n && pass == 0; r++)
          for (int c = 0; c < n; c++)
            s[r * n + c] -= b[idx[r]] * row[c];
        if (pass == 0)
          continue;
        mill_cholesky_forward(n, s, n, row);
        for (int r = 0; r < n; r++)
          var += row[r] * row[r];
        e->pair_err[star] = sqrt(var);
      }
    }
  }
  return 1;
}
