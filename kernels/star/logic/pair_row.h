/* SPDX-License-Identifier: BSD-3-Clause */
/** The row of two stars in one spectrum (kernels/star/logic/pair.h). */
#pragma once

#include "kernels/star/logic/elements.h"
#include "kernels/star/logic/row.h"

/** Fill in a star's errors from the curvature at `at`, the last point of the star's last turn. */
MILL_HD static inline void mill_pair_errors(const mill_model *m, mill_slot *slot,
                                            const mill_point *at, int star)
{
  slot->pair.star = star; /* mill_prior_sigma then uses this star's priors */
  slot->best.at = *at;
  for (int j = 0; j < m->n_par; j++)
    slot->best.end[j] = slot->pair.theta[star][j];
  const int ok = mill_fit_covariance(m, slot);
  if (!ok)
    slot->result.warn |= MILL_WARN_BAD_HESSIAN;
  slot->result.vrad_err_km_s = ok ? sqrt(slot->result.covar[0]) : (double)NAN;
}

/** Copy the second star's velocity, v sin i and labels to the row's columns of pairs. */
MILL_HD_CALLED static inline void mill_pair_row_of_second(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  const mill_pair *p = &slot->pair;
  mill_pair_errors(m, slot, &p->point, 1); /* into the first star's columns, refilled later */
  r->pair_vrad_km_s = p->theta[1][MILL_PAR_VRAD];
  r->pair_vrad_err_km_s = r->vrad_err_km_s;
  r->pair_vsini_km_s = p->theta[1][MILL_PAR_VSINI];
  r->pair_vsini_err_km_s = r->vsini_err_km_s;
  for (int l = 0; l < m->n_label; l++) {
    r->pair_label[l] = p->theta[1][MILL_PAR_LABEL0 + l];
    r->pair_label_err[l] = r->label_err[l];
  }
}

/** Copy both stars' velocities and their errors from the row to the only epoch. */
MILL_HD static inline void mill_pair_lone_epoch(mill_slot *slot)
{
  const mill_fit_result *r = &slot->result;
  mill_epoch *e = &slot->epoch[0];
  e->curve.found = slot->theta[MILL_PAR_VRAD];
  e->curve.err = r->vrad_err_km_s;
  e->result.pair_vrad_km_s = r->pair_vrad_km_s;
  e->result.pair_vrad_err_km_s = r->pair_vrad_err_km_s;
  e->result.flag = 0;
}

/** Return the error of companion parameter k (as in mill_pair_free).  The variance is the sum of
 *  the variance for a fixed first star and a part from the first star's covariance. */
MILL_HD static inline double mill_pair_error(const mill_model *m, const mill_slot *slot, int k)
{
  const mill_pair *p = &slot->pair;
  const int nd = m->n_deriv;
  const double *along = p->at.along + k * MILL_MAX_PAR, scale = slot->result.err_scale;
  double var = p->at.variance[k] * scale * scale, slope[MILL_MAX_PAR];
  for (int i = 0; i < nd; i++) /* COVAR is of theta, but `along` is of the inner parameters */
    slope[i] = along[i] / mill_par_slope(m, i, slot->best.end[i]);
  for (int i = 0; i < nd; i++)
    for (int j = i; j < nd; j++)
      var += (i == j ? 1.0 : 2.0) * slope[i] * slope[j] *
             slot->result.covar[i * nd - i * (i - 1) / 2 + (j - i)];
  return sqrt(var);
}

/** Return slot->eval.f with the priors and hull penalties of both stars. */
MILL_HD_CALLED static inline double mill_pair_f(const mill_model *m, mill_slot *slot)
{
  mill_pair *p = &slot->pair;
  p->star = 1; /* the penalty is of this star */
  double f = slot->eval.f + mill_penalty(m, slot, p->theta[1]);
  p->star = 0;
  f += mill_penalty(m, slot, p->theta[0]);
  for (int j = m->n_deriv; j < m->n_par; j++) /* count the prior of the shared offsets once */
    f -= mill_prior_penalty(m, slot, j, p->theta[0][j]);
  return f;
}

/** Fill in the row of two stars, which ends their fit.  mill_fit_finish sets err_scale, which then
 *  multiplies the second star's errors. */
MILL_HD_CALLED static inline void mill_pair_finish(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  for (int k = 0; k < m->n_deriv + m->n_arm; k++) /* count the companion's, also at limits */
    slot->n_free += k < m->n_deriv ? !m->set.fixed[k] : r->n_pix[k - m->n_deriv] > 0;
  r->vrad_skew = r->vrad_kurt = (double)NAN;
  mill_fit_finish(m, slot, mill_pair_f(m, slot));
  r->pair_vrad_err_km_s = mill_fit_vrad_err(m, r, r->pair_vrad_err_km_s);
  r->pair_vsini_err_km_s *= r->err_scale;
  for (int l = 0; l < m->n_label; l++)
    r->pair_label_err[l] = mill_fit_label_err(m, r, l, r->pair_label_err[l]);
  for (int a = 0; a < m->n_arm; a++) {
    const int j = mill_par_offset(m, a);
    if (r->n_pix[a] > 0)
      r->flux_ratio_err[a] = r->flux_ratio[a] * mill_pair_error(m, slot, m->n_deriv + a);
    if (j >= 0 && !slot->no_offset[a])
      r->vrad_offset_err_km_s[a] = mill_pair_error(m, slot, j + m->n_arm);
  }
  for (int i = 0; i < slot->n_epoch; i++)
    slot->epoch[i].result.pair_vrad_err_km_s *= r->err_scale;
  slot->pair.is_fitted = 0;    /* the steps that follow treat the first star alone */
  mill_elements_flag(m, slot); /* again, as flags of two stars differ */
}
