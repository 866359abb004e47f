/* SPDX-License-Identifier: BSD-3-Clause */
/** Fill in the row of a finished fit: covariance, errors, chi-squares and flags. */
#pragma once

#include "kernels/star/logic/epochs.h"
#include "kernels/star/logic/polish.h"

/** Flag NEAR_HULL is set if the labels are within this many errors of a hull's facet, which then
 *  cuts off part of the posterior. */
#define MILL_HULL_NEAR 1.0
/** v sin i is resolved if (v sin i)^2 is this many of its errors above the lower limit's square. */
#define MILL_VSINI_RESOLVED 2.0
/** Flag STIFF_CONTINUUM is set if slow waves of an arm's residuals (docs/science/numerics.md,
 *  "Stiff continuum") are above noise by ERRORS standard deviations.  They must also make up more
 *  than the fraction PART of chi-square. */
#define MILL_STIFF_PART   0.2
#define MILL_STIFF_ERRORS 6.0
/** CHISQ_NOISE is the chi-square of noise and narrow misfits (mill_block_noise).  ODD_NOISE is set
 *  if CHISQ_NOISE per good pixel is below LEAST or above MOST: IVAR is no inverse variance, or has
 *  another unit.  Right errors give 1, correlated pixels 0.5. */
#define MILL_NOISE_LEAST 0.2
#define MILL_NOISE_MOST  50.0
/** NO_STAR is set if the template's gain in chi-square over the continuum alone is
 *  - below GAIN, or below GAIN * CHISQ_NOISE / (number of good pixels), or
 *  - below PART * (gain + misfit), with BROAD for PART if v sin i is at its upper limit.
 *  misfit: max(0, chi-square - CHISQ_NOISE - ERRORS * (standard deviation of CHISQ_NOISE)). */
#define MILL_STAR_GAIN   50.0
#define MILL_STAR_PART   0.2
#define MILL_STAR_BROAD  0.5
#define MILL_STAR_ERRORS 3.0
/** A Balmer line's core is in emission if its light above the model has an equivalent width (A)
 *  above LEAST, and above ERRORS times the error. */
#define MILL_EMISSION_LEAST  0.5
#define MILL_EMISSION_ERRORS 5.0
/** Flag ARMS_DIFFER is set if the probability of larger differences between the arms' velocities is
 *  below PVAL.  FLOOR, km/s: zero-point error of the templates in each arm. */
#define MILL_ARMS_PVAL      1e-6
#define MILL_ARMS_FLOOR     3.0
#define MILL_VEL_LIMIT_KM_S 5.0   /**< a velocity this close to a limit gets a warning */
#define MILL_VSINI_FAST     100.0 /**< km/s; a faster v sin i gets a warning */

/** End the fit of this star with a status. */
MILL_HD static inline void mill_fit_end(mill_slot *slot, int status)
{
  slot->result.status = status;
  if (status != MILL_STATUS_FITTED)
    slot->result.warn |= MILL_WARN_BAD_SPECTRUM;
}

/** Are the labels outside a hull, or inside it within MILL_HULL_NEAR errors of a facet?  Hulls of
 *  elements do not count.  Argument cov [n][n] is the covariance of the parameters idx [n]. */
MILL_HD_CALLED static inline int mill_hull_near(const mill_model *m, const double *theta, int n,
                                                const int *idx, const double *cov)
{
  double mapped[MILL_MAX_LABEL];
  mill_map_labels(m, theta, mapped);
  for (int h = 0; h < m->n_hull; h++)
    for (int f = 0; f < m->hull[h].n_facet && !m->hull[h].of_element; f++) {
      const mill_hull *hull = &m->hull[h];
      const double *normal = hull->facet + (size_t)f * (size_t)(hull->n_label + 1);
      double slope[MILL_MAX_PAR], var = 0.0; /* of the distance to the facet */
      for (int i = 0; i < n; i++) {
        slope[i] = 0.0;
        for (int l = 0; l < hull->n_label; l++)
          if (idx[i] == MILL_PAR_LABEL0 + hull->label[l])
            slope[i] = normal[l] * mill_label_map_slope(&m->label[hull->label[l]], theta[idx[i]]);
      }
      for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
          var += slope[i] * cov[i * n + k] * slope[k];
      if (mill_facet_value(hull, f, mapped) > -MILL_HULL_NEAR * sqrt(var) && var > 0.0)
        return 1; /* var is 0 if all labels of the facet are fixed */
    }
  return 0;
}

/** Return the error of v sin i, km/s, from the variance of u (mill_vsini_inner): half the range of
 *  v sin i from u - sigma to u + sigma, cut off at the limits of v sin i. */
MILL_HD static inline double mill_vsini_error(const mill_model *m, double vsini, double var)
{
  const int kind = m->set.rotation;
  const double sigma = sqrt(var), u = mill_vsini_inner(kind, vsini);
  const double least = mill_vsini_inner(kind, m->set.min_vsini_km_s);
  const double low = u - sigma > least ? u - sigma : least;
  const double high = mill_vsini_outer(kind, u + sigma), most = m->set.max_vsini_km_s;
  return 0.5 * ((high > most ? most : high) - mill_vsini_outer(kind, low));
}

/** Return the error (km/s) of a v sin i at a limit: the change of v sin i that raises F by 1; NaN
 *  if F does not rise.  A step x of the inner parameter u (mill_vsini_inner) raises -2 ln L by
 *  g x + h x^2.  The prior's part of F is quadratic in v sin i itself. */
MILL_HD_CALLED static inline double mill_vsini_limit(const mill_model *m, const mill_slot *slot,
                                                     int n, const int *idx, const double *cov)
{
  const int np = m->n_par, j = MILL_PAR_VSINI, kind = m->set.rotation;
  const double *at = slot->best.at.theta, *end = slot->best.end, v = end[j];
  const double *row = slot->best.at.hess + j * np;
  const double inwards = v <= m->set.min_vsini_km_s ? 1.0 : -1.0;
  double stiff, low = 0.0, high = INFINITY, x = 1.0, to = v;
  /* g: gradient at `end`; h: curvature with the parameters idx (covariance cov) at their best */
  double g = slot->best.at.grad[j] - mill_prior_gradient(m, slot, j, at[j], &stiff);
  double h = row[j] - stiff;
  /* is VRAD of a pair, at `end` alone, the epochs' mean? */
  const int is_mean = slot->n_epoch > 1 && slot->pair.is_fitted;
  for (int k = 0; k < np; k++)
    if (k != MILL_PAR_VRAD || !is_mean)
      g += 2.0 * (row[k] - (k == j ? stiff : 0.0)) *
           (mill_par_inner(m, k, end[k]) - mill_par_inner(m, k, at[k]));
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++)
      h -= row[idx[i]] * cov[i * n + k] * row[idx[k]];
  for (int i = 0; i < 64; i++) { /* double x until F rises by more than 1, then bisect */
    const double u = mill_vsini_inner(kind, v) + inwards * x;
    to = mill_vsini_outer(kind, u < 0.0 ? 0.0 : u);
    const double rise = mill_prior_penalty(m, slot, j, to) - mill_prior_penalty(m, slot, j, v);
    if ((inwards * g + fmax(h, 0.0) * x) * x + rise > 1.0)
      high = x;
    else
      low = x;
    x = isfinite(high) ? 0.5 * (low + high) : 2.0 * x;
  }
  return isfinite(high) ? fabs(to - v) : (double)NAN;
}

/** Fill in covariance and errors of the free parameters that are not at a limit.  Returns 0 if
 *  their curvature, without the hull term, is not positive definite: errors are then NaN.  Sets the
 *  flags NEAR_HULL and VSINI_ZERO.  Sets HULL if hulls of elements move a label that is no element
 *  by more than its formal error. */
MILL_HD_CALLED static inline int mill_fit_covariance(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  const int np = m->n_par, nd = m->n_deriv;
  int idx[MILL_MAX_PAR], n = 0, is_moved = 0;
  for (int j = 0; j < np; j++)
    if (!mill_par_held(m, slot, j) && !mill_par_at_limit(m, j, slot->best.end[j]))
      idx[n++] = j;
  double *a = slot->space.matrix[0], *inv = slot->space.matrix[1];
  for (int i = 0; i < MILL_MAX_COVAR; i++)
    r->covar[i] = 0.0;
  r->vsini_err_km_s = (double)NAN; /* an earlier point may have left errors */
  for (int l = 0; l < m->n_label; l++)
    r->label_err[l] = (double)NAN;
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < n; k++)
      a[i * n + k] = slot->best.at.hess[idx[i] * np + idx[k]];
    a[i * n + i] += mill_prior_bend(m, slot, idx[i], slot->best.end[idx[i]]);
  }
  if (mill_cholesky(n, a, n) != 0)
    return 0;
  mill_cholesky_inverse(n, a, n, inv, n);
  if (mill_hull_near(m, slot->best.end, n, idx, inv))
    r->info |= MILL_INFO_NEAR_HULL;
  double sigma[MILL_MAX_PAR] = {0.0}, unit[MILL_MAX_PAR];
  const double vsini = slot->best.end[MILL_PAR_VSINI], least = m->set.min_vsini_km_s;
  if (!m->set.fixed[MILL_PAR_VSINI] && mill_par_at_limit(m, MILL_PAR_VSINI, vsini)) {
    sigma[MILL_PAR_VSINI] = mill_vsini_limit(m, slot, n, idx, inv); /* without floors */
    if (vsini <= least)
      r->info |= MILL_INFO_VSINI_ZERO;
  }
  for (int i = 0; i < n; i++) {
    const int j = idx[i], l = j - MILL_PAR_LABEL0;
    if (l >= 0 && l < m->n_label) {
      double shift = slot->best.end[j] - slot->best.at.theta[j]; /* by the hulls */
      for (int k = 0; k < n; k++)
        shift += 0.5 * inv[i * n + k] * slot->best.at.grad[idx[k]];
      /* add the templates' error that pixels share */
      inv[i * n + i] += mill_label_floor(m, l) * mill_label_floor(m, l);
      is_moved |= !m->label[l].is_element && shift * shift > inv[i * n + i];
    }
    const double var = inv[i * n + i], s = sqrt(var);
    sigma[j] = j == MILL_PAR_VSINI ? mill_vsini_error(m, vsini, var) : s;
    unit[j] = sigma[j] / s; /* COVAR has v sin i itself, with VSINI_ERR^2 on its diagonal */
    if (j == MILL_PAR_VSINI &&
        vsini * vsini - least * least <
            2.0 * MILL_VSINI_RESOLVED * mill_vsini_rise(m->set.rotation, vsini) * s)
      r->info |= MILL_INFO_VSINI_ZERO;
  }
  if (is_moved && mill_at_hull(m, slot->best.end, 1)) {
    r->warn |= MILL_WARN_HULL;
    r->info |= MILL_INFO_NEAR_HULL;
  }
  for (int i = 0; i < n; i++)
    for (int k = i; k < n; k++) {
      const int p = idx[i], q = idx[k];
      if (q < nd)
        r->covar[p * nd - p * (p - 1) / 2 + (q - p)] = inv[i * n + k] * unit[p] * unit[q];
    }
  for (int l = 0; l < m->n_label; l++)
    r->label_err[l] = sigma[MILL_PAR_LABEL0 + l];
  for (int i = 0; i < m->n_arm; i++)
    if (mill_par_offset(m, i) >= 0 && !slot->no_offset[i])
      r->vrad_offset_err_km_s[i] = sigma[mill_par_offset(m, i)];
  r->vsini_err_km_s = sigma[MILL_PAR_VSINI];
  return 1;
}

/** Fill in the reduced chi-squares.  Degrees of freedom are good pixels less continuum functions;
 *  for the total, free parameters are subtracted too. */
MILL_HD static inline void mill_fit_reduce(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  int64_t n_cont[MILL_MAX_ARM] = {0}, n_left = r->n_pix_tot - slot->n_free;
  for (int i = 0; i < slot->n_segment; i++) {
    const mill_segment *s = &slot->segment[i];
    if (s->used && s->n_good > 0)
      n_cont[s->arm] += s->ws->n_cont;
  }
  for (int a = 0; a < m->n_arm; a++) {
    n_left -= n_cont[a];
    if (r->n_pix[a] > n_cont[a])
      r->rchisq[a] = r->chisq[a] / (double)(r->n_pix[a] - n_cont[a]);
  }
  if (n_left > 0)
    r->rchisq_tot = r->chisq_tot / (double)n_left;
}

/** Fill in STIFF, the fraction of each arm's chi-square in slow waves of the residuals; set the
 *  flag STIFF_CONTINUUM (MILL_STIFF_PART).  The waves' part is the drop of chi-square if each
 *  block of pixels had its own factor, less the drop by noise.  Arms of few pixels get no STIFF. */
MILL_HD_CALLED static inline void mill_fit_stiffness(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  for (int a = 0; a < m->n_arm; a++) {
    const double n = (double)r->n_pix[a], n_block = mill_sum_models(m, slot, a, MILL_ANSWER_BLOCKS);
    const double gain = mill_sum_models(m, slot, a, MILL_ANSWER_GAIN);
    if (!(n > 2.0 * n_block) || !(r->chisq[a] > 0.0))
      continue;
    const double noise = (r->chisq[a] - gain) / (n - n_block); /* of a pixel, without the waves */
    const double excess = gain - n_block * noise;
    r->stiff[a] = excess / r->chisq[a];
    if (r->stiff[a] > MILL_STIFF_PART && excess > MILL_STIFF_ERRORS * sqrt(2.0 * n_block) * noise)
      r->info |= MILL_INFO_STIFF;
  }
}

/** Fill in each arm's velocity, its error scaled by the arm's own reduced chi-square, and the
 *  probability of larger differences between the velocities (NaN: fewer than two arms).  For this
 *  probability an arm's error also includes two floors and the prior of the arm's offset. */
MILL_HD_CALLED static inline void mill_fit_arms(const mill_model *m, mill_slot *slot)
{
  mill_fit_result *r = &slot->result;
  const double offset = m->n_par > m->n_deriv ? m->set.velocity_offset_sigma_km_s : 0.0;
  double weight = 0.0, sum = 0.0, square = 0.0;
  int n = 0;
  for (int a = 0; a < m->n_arm; a++) {
    const int scaled = m->set.rescale_errors && r->rchisq[a] > 1.0;
    const double v = slot->arm[a].found - r->vrad_km_s;
    const double err = slot->arm[a].err * (scaled ? sqrt(r->rchisq[a]) : 1.0);
    const double floor = m->set.vrad_floor_km_s, own = slot->no_offset[a] ? 0.0 : offset;
    const double w =
        1.0 / (err * err + floor * floor + MILL_ARMS_FLOOR * MILL_ARMS_FLOOR + own * own);
    if (r->n_pix[a] == 0)
      continue;
    r->vrad_arm_km_s[a] = slot->arm[a].found;
    r->vrad_arm_err_km_s[a] = err;
    if (!isfinite(v * w))
      continue;
    n++;
    weight += w;
    sum += w * v;
    square += w * v * v;
  }
  const double chisq = square - sum * sum / weight; /* rounding may make it negative */
  r->vrad_arms_pval = n > 1 ? mill_chisq_pval(fmax(chisq, 0.0), n - 1) : (double)NAN;
}

/** Scaled error of a velocity, km/s, with the wavelength calibration's floor in quadrature. */
MILL_HD static inline double mill_fit_vrad_err(const mill_model *m, const mill_fit_result *r,
                                               double err)
{
  const double scaled = err * r->err_scale, floor = m->set.vrad_floor_km_s;
  return sqrt(scaled * scaled + floor * floor);
}

/** Return what to subtract from the scaled variance of label l, so that the library's floor is not
 *  scaled: the templates' error does not depend on errors of the flux. */
MILL_HD static inline double mill_scaled_floor(const mill_model *m, const mill_fit_result *r, int l)
{
  return (r->err_scale * r->err_scale - 1.0) * mill_label_floor(m, l) * mill_label_floor(m, l);
}

/** Return the error err of label l, scaled; return err itself if it is 0 or NaN (no error). */
MILL_HD static inline double mill_fit_label_err(const mill_model *m, const mill_fit_result *r,
                                                int l, double err)
{
  const double scaled = err * r->err_scale;
  return err > 0.0 ? sqrt(scaled * scaled - mill_scaled_floor(m, r, l)) : err;
}

/** Copy the errors to the formal errors.  Then, with rescale_errors, scale the errors (labels'
 *  without their floors).  VRAD's floor is added in either case. */
MILL_HD static inline void mill_fit_scale_errors(const mill_model *m, mill_fit_result *r)
{
  r->vrad_err_formal_km_s = r->vrad_err_km_s;
  r->vsini_err_formal_km_s = r->vsini_err_km_s;
  for (int l = 0; l < m->n_label; l++)
    r->label_err_formal[l] = r->label_err[l];
  r->err_scale = m->set.rescale_errors && r->rchisq_tot > 1.0 ? sqrt(r->rchisq_tot) : 1.0;
  if (!m->set.fixed[MILL_PAR_VRAD])
    r->vrad_err_km_s = mill_fit_vrad_err(m, r, r->vrad_err_km_s);
  r->vsini_err_km_s *= r->err_scale;
  for (int a = 0; a < m->n_arm; a++)
    r->vrad_offset_err_km_s[a] *= r->err_scale;
  for (int i = 0; i < m->n_deriv * (m->n_deriv + 1) / 2; i++)
    r->covar[i] *= r->err_scale * r->err_scale;
  for (int l = 0; l < m->n_label; l++) {
    const int j = MILL_PAR_LABEL0 + l;
    r->label_err[l] = mill_fit_label_err(m, r, l, r->label_err[l]);
    if (r->label_err[l] > 0.0) /* in the variance, too, the floor stays unscaled */
      r->covar[j * m->n_deriv - j * (j - 1) / 2] -= mill_scaled_floor(m, r, l);
  }
}

/** Are the lines broader than any template's, as in a white dwarf? */
MILL_HD static inline int mill_fit_is_broad(const mill_model *m, const mill_fit_result *r)
{
  return !m->set.fixed[MILL_PAR_VSINI] && r->vsini_km_s > MILL_VSINI_FAST &&
         r->vsini_km_s == mill_par_max(m, MILL_PAR_VSINI);
}

/** Is the spectrum unlike all stars of the library (MILL_STAR_GAIN)?  The chi-squares are without
 *  model error: with model error any template would fit. */
MILL_HD static inline int mill_fit_no_star(const mill_model *m, const mill_fit_result *r)
{
  const double n = (double)r->n_pix_tot, noise = r->chisq_noise;
  const double gain = r->chisq_c_data - r->chisq_data;
  const double misfit = r->chisq_data - noise * (1.0 + MILL_STAR_ERRORS / sqrt(n));
  const double part = mill_fit_is_broad(m, r) ? MILL_STAR_BROAD : MILL_STAR_PART;
  return !(gain >= MILL_STAR_GAIN && gain * n >= MILL_STAR_GAIN * noise &&
           gain >= part * (gain + (misfit > 0.0 ? misfit : 0.0)));
}

/** Is the core of a Balmer line in emission? */
MILL_HD_CALLED static inline int mill_fit_emits(const mill_model *m, const mill_slot *slot)
{
  int emits = 0;
  for (int l = 0; l < MILL_N_BALMER; l++) {
    const enum mill_answer_place at = (enum mill_answer_place)(MILL_ANSWER_EMISSION + 2 * l);
    const double light = mill_sum_models(m, slot, -1, at);
    const double weight = mill_sum_models(m, slot, -1, (enum mill_answer_place)(at + 1));
    emits |= light > MILL_EMISSION_LEAST * weight && light > MILL_EMISSION_ERRORS * sqrt(weight);
  }
  return emits;
}

/** Fill in HULL_DIST; return the bits of RVS_WARN (docs/use/results.md).  f: the fit's -2 ln L. */
MILL_HD_CALLED static inline int mill_fit_warnings(const mill_model *m, mill_slot *slot, double f)
{
  mill_fit_result *r = &slot->result;
  int at_edge = 0, at_hull = 0, warn = 0;
  double largest = 0.0;
  for (int i = 0; i < slot->n_segment; i++)
    if (slot->segment[i].used)
      largest = fmax(largest, mill_answer_of(m, slot, i)[MILL_ANSWER_LARGEST]);
  r->hull_dist = 0.0;
  for (int star = 0; star <= r->pair; star++) { /* r->pair is 1 if the row has two stars, else 0 */
    const double *theta = star == 0 ? slot->best.end : slot->pair.theta[1];
    double mapped[MILL_MAX_LABEL];
    mill_map_labels(m, theta, mapped);
    r->hull_dist = fmax(r->hull_dist, mill_hull_distance(m->n_hull, m->hull, mapped));
    at_hull |= mill_at_hull(m, theta, 0);
    for (int l = 0; l < m->n_label; l++) {
      const mill_label *label = &m->label[l];
      const double x = theta[MILL_PAR_LABEL0 + l];
      at_edge |= label->edge_min < label->edge_max && (x < label->edge_min || x > label->edge_max);
    }
  }
  /* NaN fails every comparison: where it must warn, a `!` stands before the comparison */
  const struct {
    int bit, holds;
  } rule[] = {
      {MILL_WARN_CHISQ, !(r->chisq_c_tot - r->chisq_tot >= 50.0)},
      {MILL_WARN_VEL_LIMIT, r->vrad_km_s < m->set.min_vel_km_s + MILL_VEL_LIMIT_KM_S ||
                                r->vrad_km_s > m->set.max_vel_km_s - MILL_VEL_LIMIT_KM_S},
      {MILL_WARN_VEL_ERR, !(r->vrad_err_km_s <= 100.0)},
      {MILL_WARN_LABEL_EDGE, at_edge},
      {MILL_WARN_VSINI, r->vsini_km_s > MILL_VSINI_FAST},
      {MILL_WARN_HULL, at_hull},
      {MILL_WARN_NEGATIVE, mill_sum_models(m, slot, -1, MILL_ANSWER_NEGATIVE) > 100.0},
      {MILL_WARN_OUTLIER, largest > 100.0 && largest > 0.25 * r->chisq_tot},
      {MILL_WARN_POOR_FIT, r->chisq_tot > 10.0 * (double)r->n_pix_tot},
      {MILL_WARN_NOT_CONVERGED, !slot->best.converged},
      {MILL_WARN_NONFINITE, slot->nonfinite || !isfinite(f) || !isfinite(r->chisq_tot)},
      {MILL_WARN_NO_STAR, mill_fit_no_star(m, r)},
      {MILL_WARN_BROAD, mill_fit_is_broad(m, r)},
      {MILL_WARN_EMISSION, mill_fit_emits(m, slot)},
      {MILL_WARN_ARMS, r->vrad_arms_pval < MILL_ARMS_PVAL},
  };
  for (int i = 0; i < (int)(sizeof rule / sizeof rule[0]); i++)
    warn |= rule[i].holds ? rule[i].bit : 0;
  return warn;
}

/** Fill in the row from the solution, whose -2 ln L is f.  The order matters:
 *  reduced chi-squares scale the covariance's errors; epochs, arms and warnings use these. */
MILL_HD_CALLED static inline void mill_fit_finish(const mill_model *m, mill_slot *slot, double f)
{
  mill_fit_result *r = &slot->result;
  const double *theta = slot->best.end;
  r->vrad_km_s = theta[MILL_PAR_VRAD];
  r->vsini_km_s = theta[MILL_PAR_VSINI];
  for (int l = 0; l < m->n_label; l++)
    r->label[l] = theta[MILL_PAR_LABEL0 + l];
  for (int a = 0; a < m->n_arm; a++)
    if (m->n_par > m->n_deriv && r->n_pix[a] > 0) {
      const int j = mill_par_offset(m, a);
      r->vrad_offset_km_s[a] = j < 0 ? 0.0 : theta[j];
      r->vrad_offset_err_km_s[a] = j < 0 ? 0.0 : (double)NAN;
    }
  r->m2ll = f;
  r->chisq_tot = r->chisq_c_tot = 0.0;
  r->chisq_data = mill_sum_models(m, slot, -1, MILL_ANSWER_CHISQ_DATA);
  r->excess = r->chisq_data - (double)r->n_pix_tot + (f - slot->eval.f); /* f's penalties */
  r->chisq_c_data = mill_sum_models(m, slot, -1, MILL_ANSWER_CHISQ_C_DATA);
  r->chisq_noise = mill_sum_models(m, slot, -1, MILL_ANSWER_NOISE);
  for (int a = 0; a < m->n_arm; a++) {
    if (r->n_pix[a] == 0)
      continue;
    r->chisq[a] = mill_sum_models(m, slot, a, MILL_ANSWER_CHISQ);
    r->chisq_c[a] = mill_sum_models(m, slot, a, MILL_ANSWER_CHISQ_C);
    r->chisq_tot += r->chisq[a];
    r->chisq_c_tot += r->chisq_c[a];
  }
  if (!mill_fit_covariance(m, slot))
    r->warn |= MILL_WARN_BAD_HESSIAN;
  if (m->set.fixed[MILL_PAR_VRAD])
    r->vrad_err_km_s = r->vrad_skew = r->vrad_kurt = 0.0;
  mill_fit_reduce(m, slot);
  mill_fit_scale_errors(m, r);
  mill_epochs_row(m, slot);
  mill_fit_stiffness(m, slot);
  const double noise = r->chisq_noise / (double)r->n_pix_tot;
  if (noise > 0.0 && (noise < MILL_NOISE_LEAST || noise > MILL_NOISE_MOST))
    r->info |= MILL_INFO_NOISE;
  mill_fit_arms(m, slot);
  r->warn |= mill_fit_warnings(m, slot, f);
  mill_fit_end(slot, isfinite(f) ? MILL_STATUS_FITTED : MILL_STATUS_FIT_FAILED);
}
