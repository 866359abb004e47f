/* SPDX-License-Identifier: BSD-3-Clause */
/** The likelihood of a segment and its derivatives, and the answer to a slot's request in one arm.
 *
 *  Sums of products over pixels are a backend's (kernels/math/primitives.h).
 */
#ifndef MILL_LIKELIHOOD_H
#define MILL_LIKELIHOOD_H

#include "kernels/math/primitives.h"
#include "kernels/star/arm_velocity.h"
#include "kernels/star/blocks/companion.h"
#include "kernels/star/blocks/model_error.h"
#include "kernels/star/blocks/template.h"
#include MILL_PRIMITIVES_PIXEL_SUMS

/** Normal matrix of S = P T / sigma, its factor and the projected data.
 *
 *  Returns F of this segment without hull or priors: ln det times mill_det_weight
 *  + 2 sum ln sigma + |D|^2 - |L^-1 S^T D|^2.  work->normal holds the Cholesky
 *  factor, work->solve [0, K) the coefficients a.  The template is exp(ln_scale)
 *  (level base + templ), templ NULL for zeros.  With model error <x, y> = x . y - sum (E x)(E y)
 *  is in the place of all products, and work->error holds E S and E (D - S a).
 *  +inf when the matrix is not positive definite or anything is not finite. */
MILL_BLOCK_FN double mill_block_project(mill_block *b, const mill_model *m, const mill_segment *s,
                                        const mill_real *templ, double level, double ln_scale,
                                        mill_workspace *work)
{
  const int nk = s->ws->n_cont;
  /* rows of E, of S and then D: the products of S and D with all up to themselves but for the
   * last one */
  const int q = s->n_error;
  mill_normal_sums(b, nk, s, templ, level, work->sums);
  double *a = work->normal, *v = work->solve;
  double *with_s = work->error, *with_residual = work->error + MILL_ERROR_RESIDUAL;
  mill_block_normal_matrix(b, nk, q, work->sums, a, v, with_s, with_residual);
  double f = INFINITY;
  if (mill_block_normal(b, nk, a, v, work->sums) == 0) {
    const double ln_det = work->sums[0] + 2.0 * nk * ln_scale;
    f = mill_det_weight(m, s) * ln_det + s->sum_ln_var + s->dd - work->sums[1];
    if (!isfinite(f))
      f = INFINITY;
    MILL_FOR(b, e, q)
    {
      for (int k = 0; k < nk; k++)
        with_residual[e] -= v[k] * with_s[e * nk + k];
    }
  }
  MILL_BARRIER(b);
  return f;
}

/** F of one segment at a velocity from work->templ and its spline coefficients in work->bend. */
MILL_BLOCK_FN double mill_block_value(mill_block *b, const mill_model *m, const mill_segment *s,
                                      double vel_km_s, mill_workspace *work)
{
  const mill_model_arm *arm = &m->arm[s->arm];
  mill_real *pixel = mill_sharp_rows(s, work), *smooth = (mill_real *)work->smooth;
  mill_block_sample(b, arm, s->n_pix, s->ws->ln_wave, vel_km_s, (const mill_real *)work->templ,
                    (const mill_real *)work->bend, pixel);
  mill_block_resolve(b, s, 1, m->max_seg_pix, pixel, smooth);
  if (mill_is_paired(s))
    mill_block_add_companion(b, m, s, work, smooth);
  return mill_block_project(b, m, s, smooth, MILL_LEVEL(arm, work), MILL_LN_SCALE(arm, work), work);
}

/** Row r of a rotated template (mill_block_template_row) at the located pixels of a segment, into
 *  its place among mill_sharp_rows: value, then d/d(parameter) in order, velocity first. */
MILL_BLOCK_FN void mill_block_pixel_row(mill_block *b, const mill_model *m, const mill_segment *s,
                                        double vel_km_s, int r, const mill_real *rotated,
                                        const mill_real *bend, mill_workspace *work)
{
  mill_real *pixel = mill_sharp_rows(s, work);
  const size_t pitch = (size_t)m->max_seg_pix;
  /* the value makes two rows */
  mill_block_interpolate(b, &m->arm[s->arm], s->n_pix, rotated, bend, work->index, work->frac,
                         r == 0 ? pixel : pixel + (size_t)(r + 1) * pitch,
                         r == 0 ? mill_doppler_ln_slope(vel_km_s) : 0.0,
                         r == 0 ? pixel + pitch : (mill_real *)NULL);
}

/** Curvature of rows j and l <= j from the sums of mill_jacobian_sums: what model error (q rows) and the
 *  continuum, solve [..][nk] = L^-1 S^T V, take is left out. */
MILL_HD_INLINE double mill_row_curvature(int q, int nk, const double *sums, const double *solve,
                                         int j, int l)
{
  const int origin = mill_gram_at(q + nk, 0);
  const double *from = sums + mill_gram_at(q + nk + j, 0) - origin;
  const double *other = sums + mill_gram_at(q + nk + l, 0) - origin;
  double h = from[q + nk + l];
  for (int e = 0; e < q; e++)
    h -= from[e] * other[e];
  for (int k = 0; k < nk; k++)
    h -= solve[j * nk + k] * solve[l * nk + k];
  return h;
}

/** Gradient and curvature of a segment from the sums of mill_jacobian_sums over n_row rows, of which
 *  the first are its own, added to eval. */
MILL_BLOCK_FN void mill_block_curvature(mill_block *b, const mill_model *m, const mill_segment *s,
                                        int n_row, const mill_workspace *work, mill_eval *eval)
{
  const int nk = s->ws->n_cont, np = m->n_deriv, q = s->n_error;
  const int offset = mill_par_offset(m, s->arm); /* moves the arm as its velocity does */
  const int origin = mill_gram_at(q + nk, 0), n_pair = mill_gram_at(q + nk + n_row, 0) - origin;
  const double *sums = work->sums;
  double *solve = work->solve + MILL_MAX_CONT; /* [np][nk]: L^-1 S^T V */
  mill_block_whiten_rows(b, nk, q, 0, np, work, solve);
  MILL_FOR(b, j, np)
  {
    eval->grad[j] += 2.0 * sums[n_pair + j];
    if (j == MILL_PAR_VRAD && offset >= 0)
      eval->grad[offset] += 2.0 * sums[n_pair + j];
  }
  MILL_BARRIER(b);
  MILL_FOR(b, j, np)
  {
    for (int l = 0; l <= j; l++) {
      const double h = mill_row_curvature(q, nk, sums, solve, j, l);
      eval->hess[j * m->n_par + l] += h;
      if (l != j)
        eval->hess[l * m->n_par + j] += h;
      if (l == MILL_PAR_VRAD && offset >= 0) {
        eval->hess[j * m->n_par + offset] += h;
        eval->hess[offset * m->n_par + j] += h;
        if (j == MILL_PAR_VRAD)
          eval->hess[offset * m->n_par + offset] += h;
      }
    }
  }
  MILL_BARRIER(b);
}

/** Add h of a companion's row k with row l, its own or from n_deriv on the companion's, to those of the
 *  arm's offset of the star's velocity, and of the companion's, k_offset. */
MILL_HD static inline void mill_pair_add_offset(const mill_model *m, int offset, int k_offset,
                                                int k, int l, double h, mill_pair *pair)
{
  const int nd = m->n_deriv;
  if (l == MILL_PAR_VRAD)
    pair->cross[k * MILL_MAX_PAR + offset] += h;
  if (l == nd + MILL_PAR_VRAD) {
    pair->own[k_offset * MILL_MAX_PAR + k] += h;
    pair->own[k * MILL_MAX_PAR + k_offset] += h;
  }
  if (k != MILL_PAR_VRAD)
    return;
  if (l < nd)
    pair->cross[k_offset * MILL_MAX_PAR + l] += h;
  if (l == MILL_PAR_VRAD)
    pair->cross[k_offset * MILL_MAX_PAR + offset] += h;
  if (l == nd + MILL_PAR_VRAD)
    pair->own[k_offset * MILL_MAX_PAR + k_offset] += h;
}

/** The same for the rows after its own, of a pair, added to pair: the companion's parameters, ln of the
 *  ratio in the segment's arm, and the arm's offset of the companion's velocity. */
MILL_BLOCK_FN void mill_block_pair_curvature(mill_block *b, const mill_model *m,
                                             const mill_segment *s, int n_row,
                                             const mill_workspace *work, mill_pair *pair)
{
  const int nk = s->ws->n_cont, nd = m->n_deriv, q = s->n_error;
  const int origin = mill_gram_at(q + nk, 0), n_pair = mill_gram_at(q + nk + n_row, 0) - origin;
  const int offset = mill_par_offset(m, s->arm), k_offset = mill_pair_offset(m, s->arm);
  const double *sums = work->sums;
  double *solve = work->solve + MILL_MAX_CONT;
  mill_block_whiten_rows(b, nk, q, nd, n_row, work, solve);
  MILL_FOR(b, i, n_row - nd)
  {
    const int j = nd + i, k = i < nd ? i : nd + s->arm;
    pair->grad[k] += 2.0 * sums[n_pair + j];
    if (k == MILL_PAR_VRAD && offset >= 0)
      pair->grad[k_offset] += 2.0 * sums[n_pair + j];
  }
  MILL_BARRIER(b);
  MILL_FOR(b, i, n_row - nd)
  {
    const int j = nd + i, k = i < nd ? i : nd + s->arm;
    for (int l = 0; l <= j; l++) {
      const double h = mill_row_curvature(q, nk, sums, solve, j, l);
      const int r = l - nd < nd ? l - nd : nd + s->arm;
      if (l < nd)
        pair->cross[k * MILL_MAX_PAR + l] += h;
      else
        pair->own[k * MILL_MAX_PAR + r] += h;
      if (l >= nd && l != j)
        pair->own[r * MILL_MAX_PAR + k] += h;
      if (offset >= 0)
        mill_pair_add_offset(m, offset, k_offset, k, l, h, pair);
    }
  }
  MILL_BARRIER(b);
}

/** Moments of the velocities (enum mill_moment) of what has been added to eval and pair since a call
 *  with sign -1, by one with 1. */
MILL_HD static inline void mill_pair_moments(double sign, const mill_eval *eval,
                                             const mill_pair *pair, double *moment)
{
  const double keep = sign > 0.0 ? 1.0 : 0.0;
  moment[MILL_MOMENT_OWN] = keep * moment[MILL_MOMENT_OWN] + sign * eval->grad[MILL_PAR_VRAD];
  moment[MILL_MOMENT_OTHER] = keep * moment[MILL_MOMENT_OTHER] + sign * pair->grad[MILL_PAR_VRAD];
  moment[MILL_MOMENT_OWN2] = keep * moment[MILL_MOMENT_OWN2] + sign * eval->hess[MILL_PAR_VRAD];
  moment[MILL_MOMENT_OTHER2] = keep * moment[MILL_MOMENT_OTHER2] + sign * pair->own[MILL_PAR_VRAD];
  moment[MILL_MOMENT_BOTH] = keep * moment[MILL_MOMENT_BOTH] + sign * pair->cross[MILL_PAR_VRAD];
}

/** F, gradient and curvature of one segment from its mill_sharp_rows, added to eval.
 *
 *  Variable projection after Kaufman: with V_j = (dT/dtheta_j / sigma) (P a),
 *  N = S^T S, A = S^T V, r = D - S a:  curvature V^T V - A^T N^-1 A, gradient
 *  -2 V^T r; the determinant adds 2 sum t (dt/dtheta_j) p^T N^-1 p to the
 *  gradient only.  Model error as in mill_block_project; n_share >= 1: it is fixed here first, for
 *  a star with n_share segments of this arm.  pair: NULL: the segment is not paired; where it stores,
 *  the rows are kept for the companion, and that is all. */
MILL_BLOCK_FN void mill_block_jacobian(mill_block *b, const mill_model *m, mill_segment *s,
                                       int n_share, mill_workspace *work, mill_eval *eval,
                                       mill_pair *pair)
{
  const mill_model_arm *arm = &m->arm[s->arm];
  const int nk = s->ws->n_cont, pitch = m->max_seg_pix;
  const int np = mill_is_paired(s) ? 2 * m->n_deriv + 1 : m->n_deriv;
  mill_real *smooth = (mill_real *)work->smooth;

  mill_block_resolve(b, s, m->n_deriv + 1, pitch, mill_sharp_rows(s, work), smooth);
  if (MILL_HAS_PAIRS && pair && (pair->store || s->paired)) {
    mill_block_pair_rows(b, m, s, work, pair);
    if (pair->store)
      return;
  }
  if (n_share > 0) {
    mill_block_release_error(b, s);
    if (isfinite(mill_block_project(b, m, s, smooth, MILL_LEVEL(arm, work),
                                    MILL_LN_SCALE(arm, work), work)))
      mill_block_fix_error(b, m, s, smooth, MILL_LEVEL(arm, work), n_share, work);
  }

  const double ln_scale = MILL_LN_SCALE(arm, work) + (mill_is_paired(s) ? s->own_ln_ratio : 0.0);
  const double f = mill_block_project(b, m, s, smooth, MILL_LEVEL(arm, work), ln_scale, work);
  MILL_SERIAL(b)
  {
    eval->f += f;
    if (mill_is_paired(s)) {
      mill_pair_moments(-1.0, eval, pair, s->moment);
      s->moment[MILL_MOMENT_F] = f;
    }
  }
  MILL_BARRIER(b);
  if (!isfinite(f))
    return;

  const double *chol = work->normal, *with_s = work->error;
  mill_block_solve_error(b, nk, s->n_error, chol, with_s, work->error + MILL_ERROR_SOLVED);
  mill_jacobian_sums(b, m, s, np, smooth, MILL_LEVEL(arm, work), work);
  mill_block_curvature(b, m, s, np, work, eval);
  if (!mill_is_paired(s))
    return;
  mill_block_pair_curvature(b, m, s, np, work, pair);
  MILL_SERIAL(b)
  {
    mill_pair_moments(1.0, eval, pair, s->moment);
  }
}

/** Residuals of the good pixels for the coefficients and template at hand:
 *  chi-square, squared significance of negative model pixels, largest squared
 *  residual.  With keep set the model goes to s->model, where that is wanted, and over sigma to
 *  s->scratch.  Always inlined: last digits would depend on what a compiler finds worth it. */
MILL_INLINE void mill_block_residual(mill_block *b, const mill_segment *s, const mill_real *templ,
                                     double level, int keep, const mill_workspace *work,
                                     double *chisq, double *negative, double *largest)
{
  const int n = s->n_pix;
  double acc[2] = {0.0, 0.0}, worst = 0.0;
  const int n_chunk = (n + MILL_PIXEL_CHUNK - 1) / MILL_PIXEL_CHUNK;
  MILL_FOR(b, c, n_chunk)
  {
    const int first = c * MILL_PIXEL_CHUNK;
    const int len = n - first < MILL_PIXEL_CHUNK ? n - first : MILL_PIXEL_CHUNK;
    const float *is = s->is + first, *d = s->d + first;
    const unsigned char *good = s->good + first;
    double flux[MILL_PIXEL_CHUNK], poly[MILL_PIXEL_CHUNK];
    MILL_SIMD
    for (int i = 0; i < len; i++)
      flux[i] = level * s->base[first + i];
    if (templ) {
      MILL_SIMD
      for (int i = 0; i < len; i++)
        flux[i] += (double)templ[first + i];
    }
    mill_continuum_of(s, s->ws->n_cont, work->solve, first, len, poly);
    MILL_SIMD
    for (int i = 0; i < len; i++)
      flux[i] *= poly[i];
    mill_add_error_shares(s, first, len, work, flux);
    if (keep && s->model) {
      MILL_SIMD
      for (int i = 0; i < len; i++)
        s->model[first + i] = (float)flux[i];
    }
    double chi = 0.0, below = 0.0;
    MILL_SIMD_SUM(chi, below)
    for (int i = 0; i < len; i++) {
      const double model = good[i] ? flux[i] * (double)is[i] : 0.0;
      const double r = good[i] ? (double)d[i] - model : 0.0;
      const double low = model < 0.0 ? model : 0.0;
      chi += r * r;
      below += low * low;
      poly[i] = model;
      flux[i] = r * r;
    }
    if (keep) {
      MILL_SIMD
      for (int i = 0; i < len; i++)
        s->scratch[first + i] = (float)poly[i];
    }
    MILL_SIMD_MAX(worst)
    for (int i = 0; i < len; i++)
      worst = flux[i] > worst ? flux[i] : worst;
    acc[0] += chi;
    acc[1] += below;
  }
  double total[2];
  mill_block_sum_n(b, acc, 2, total);
  *chisq = total[0];
  *negative = total[1];
  *largest = mill_block_max(b, worst);
}

/** Template and coefficients of the model that mill_block_residual makes, in the template's own
 *  unit. */
MILL_BLOCK_FN void mill_block_parts(mill_block *b, const mill_segment *s, const mill_real *templ,
                                    double level, double ln_scale, const mill_workspace *work)
{
  const double scale = exp(ln_scale);
  MILL_FOR(b, i, s->n_pix)
  {
    s->templ_flux[i] = (float)(scale * (level * s->base[i] + (double)templ[i]));
  }
  MILL_FOR(b, k, s->ws->n_cont)
  {
    s->cont_coef[k] = work->solve[k] / scale;
  }
  MILL_BARRIER(b);
}

/** Chi-square of a segment's good pixels for the best continuum times a template (NULL: a constant),
 *  NaN when there is none.  s->scratch is lost. */
MILL_BLOCK_FN double mill_block_best_chisq(mill_block *b, const mill_model *m,
                                           const mill_segment *s, const mill_real *templ,
                                           double level, mill_workspace *work)
{
  double chisq, negative, largest;
  const double f = mill_block_project(b, m, s, templ, level, 0.0, work);
  mill_block_residual(b, s, templ, level, 1, work, &chisq, &negative, &largest);
  MILL_BARRIER(b);
  return isfinite(f) ? chisq : (double)NAN;
}

/** A segment without model error; no model is kept of it. */
MILL_BLOCK_FN mill_segment mill_segment_of_data(const mill_segment *s)
{
  mill_segment data = *s;
  if (s->error_fixed) {
    data.d = s->own_d;
    data.is = s->own_is;
    data.sum_ln_var = s->own_sum_ln_var;
    data.dd = s->own_dd;
    data.n_error = 0;
    data.model = NULL;
  }
  return data;
}

/** Model, true chi-squares and checks of one segment at the solution, added to
 *  eval; chisq_c is that of a constant template (continuum only).  Returns its F. */
MILL_BLOCK_FN double mill_block_final(mill_block *b, const mill_model *m, const mill_segment *s,
                                      double vel_km_s, mill_workspace *work, mill_eval *eval)
{
  const mill_real *smooth = (const mill_real *)work->smooth, *none = NULL;
  const double level = MILL_LEVEL(&m->arm[s->arm], work);
  double chisq, negative, largest, chisq_c, unused_negative, unused_largest, gain, n_block;
  const double f = mill_block_value(b, m, s, vel_km_s, work);
  mill_block_residual(b, s, smooth, level, 1, work, &chisq, &negative, &largest);
  if (s->templ_flux)
    mill_block_parts(b, s, smooth, level, MILL_LN_SCALE(&m->arm[s->arm], work), work);
  MILL_BARRIER(b);
  mill_block_gain(b, s, &gain, &n_block);
  const double f_c = mill_block_project(b, m, s, none, 1.0, 0.0, work);
  mill_block_residual(b, s, none, 1.0, 0, work, &chisq_c, &unused_negative, &unused_largest);
  MILL_BARRIER(b);
  /* without a projection the coefficients at hand are another star's */
  const double known = isfinite(f) ? chisq : (double)NAN;
  const double known_c = isfinite(f_c) ? chisq_c : (double)NAN;
  double data_chisq = known, data_chisq_c = known_c;
  const mill_segment data = mill_segment_of_data(s);
  if (s->error_fixed) {
    data_chisq_c = mill_block_best_chisq(b, m, &data, none, 1.0, work);
    data_chisq = mill_block_best_chisq(b, m, &data, smooth, level, work);
  }
  const double noise = mill_block_noise(b, &data);
  MILL_SERIAL(b)
  {
    eval->f += f;
    eval->chisq[s->arm] += known;
    eval->chisq_c[s->arm] += known_c;
    eval->chisq_data += data_chisq;
    eval->chisq_c_data += data_chisq_c;
    eval->chisq_noise += noise;
    eval->block_gain[s->arm] += gain;
    eval->n_block[s->arm] += n_block;
    eval->negative += negative;
    if (largest > eval->max_resid2)
      eval->max_resid2 = largest;
  }
  MILL_BARRIER(b);
  return f;
}

/** F of an arm's segments where the arm's velocity is vel_km_s. */
MILL_BLOCK_FN double mill_block_arm_value(mill_block *b, const mill_model *m, const mill_slot *slot,
                                          int i_arm, double vel_km_s, mill_workspace *work)
{
  double f = 0.0;
  for (int i = 0; i < slot->n_segment; i++) {
    const mill_segment *s = &slot->segment[i];
    if (s->arm == i_arm && s->used)
      f += mill_block_value(b, m, s, mill_shifted(m, s, vel_km_s), work);
  }
  return f;
}

/** Velocity of an arm alone, the other parameters as in theta: minima of parabolas through three
 *  values of F in turn, f the one at the solution, where it is vel_km_s. */
MILL_BLOCK_FN void mill_block_arm_velocity(mill_block *b, const mill_model *m, mill_slot *slot,
                                           int i_arm, double vel_km_s, double f,
                                           mill_workspace *work)
{
  mill_arm_velocity at;
  mill_arm_velocity_begin(slot, vel_km_s, f, &at);
  int has_moved = mill_arm_velocity_known(m, slot, i_arm, &at);
  while (at.go) {
    double value[3] = {at.f}; /* at v, v - step, v + step */
    for (int k = !has_moved; k < 3 && at.go; k++) {
      const double v = at.v + (k == 0 ? 0.0 : (k == 1 ? -at.step : at.step));
      at.go = v >= m->set.min_vel_km_s && v <= m->set.max_vel_km_s;
      if (at.go)
        value[k] = mill_block_arm_value(b, m, slot, i_arm, v, work);
    }
    if (!at.go)
      break;
    at.f = value[0];
    has_moved = mill_arm_velocity_digest(&at, value[1], value[2]);
  }
  MILL_SERIAL(b)
  {
    slot->eval.vrad_arm[i_arm] = at.found;
    slot->eval.vrad_arm_err[i_arm] = at.err;
  }
}

/** F, gradient and curvature of an arm.  A row of the template is made, rotated and brought to the
 *  pixels before the next one, so that it is still in the cache; only where several segments
 *  share the arm, all rows are kept for those after the first.  A CPU may make them at the pixels
 *  alone. */
MILL_BLOCK_FN void mill_block_arm_jacobian(mill_block *b, const mill_model *m, mill_slot *slot,
                                           int i_arm, mill_workspace *work)
{
  const mill_model_arm *arm = &m->arm[i_arm];
  const double vel = mill_arm_vrad(m, slot, i_arm, slot->theta[MILL_PAR_VRAD]);
  const int half = mill_block_rotation_kernel(b, m->set.rotation, arm, slot->theta[MILL_PAR_VSINI],
                                              1, slot->blur[i_arm], work);
  int n_used = 0, n_done = 0, n_seen = 0;
  for (int i = 0; i < slot->n_segment; i++) {
    const int used = slot->segment[i].used && slot->segment[i].arm == i_arm;
    n_used += used;
    n_seen += used && slot->segment[i].n_good > 0;
  }
  const size_t pitch = n_used > 1 ? (size_t)m->max_pix_pad : 0;
  const int n_share = slot->fix_error ? (n_seen > 0 ? n_seen : 1) : 0;
  for (int i = 0; i < slot->n_segment; i++) {
    mill_segment *s = &slot->segment[i];
    if (s->arm != i_arm || !s->used)
      continue;
    const double v = mill_shifted(m, s, vel);
    mill_block_locate(b, arm, s->n_pix, s->ws->ln_wave, v, work->index, work->frac);
    const int done = n_used == 1 && mill_block_pixel_taps(b, m, s, v, half, work);
    for (int r = 0; r < 2 + m->n_label && !done; r++) {
      mill_real *rotated = (mill_real *)work->rotated + (size_t)r * pitch;
      mill_real *bend = (mill_real *)work->bend + (size_t)r * pitch;
      if (n_done == 0)
        mill_block_template_row(b, m, arm, r, half, work, rotated, bend);
      mill_block_pixel_row(b, m, s, v, r, rotated, bend, work);
    }
    mill_block_jacobian(b, m, s, s->own_d ? n_share : 0, work, &slot->eval, &slot->pair);
    n_done++;
  }
}

/** F of a segment at the velocities of the profile, added to slot->eval. */
MILL_BLOCK_FN void mill_block_profile(mill_block *b, const mill_model *m, mill_slot *slot,
                                      const mill_segment *s, mill_workspace *work)
{
  mill_team team;
  mill_block_team(b, s, (size_t)m->max_seg_pix * sizeof(mill_real), work, &team);
  for (int i = team.first; i < MILL_N_PROFILE; i += team.step) {
    const double v = slot->profile.vel[i];
    if (v < m->set.min_vel_km_s || v > m->set.max_vel_km_s)
      continue;
    const double at = mill_shifted(m, s, mill_arm_vrad(m, slot, s->arm, v));
    const double f = mill_block_value(&team.block, m, s, at, team.work);
    MILL_SERIAL(&team.block)
    {
      slot->eval.profile[i] += f;
      if (i < MILL_N_PROFILE_FEW)
        slot->eval.profile_arm[s->arm][i] += f;
    }
  }
}

/** F of a segment at the velocities that its epoch asks for, added to them; vel_km_s is the arm's
 *  where the star's is that of theta.  Without model error, which all epochs have in common. */
MILL_BLOCK_FN void mill_block_epoch(mill_block *b, const mill_model *m, const mill_slot *slot,
                                    const mill_segment *s, double vel_km_s, mill_workspace *work)
{
  mill_epoch *e = &slot->epoch[s->epoch];
  const mill_segment data = mill_segment_of_data(s);
  mill_team team;
  mill_block_team(b, s, (size_t)m->max_seg_pix * sizeof(mill_real), work, &team);
  for (int i = team.first; i < e->n; i += team.step) {
    const double v = vel_km_s + e->first + i * e->step - slot->theta[MILL_PAR_VRAD];
    const double f =
        mill_block_value(&team.block, m, &data, mill_within_velocities(m, v), team.work);
    MILL_SERIAL(&team.block)
    {
      e->f[i] += f;
    }
  }
}

/** work->templ and work->bend for a request without tangents, from work->grid or from the row that
 *  the slot has kept. */
MILL_BLOCK_FN void mill_block_template(mill_block *b, const mill_model *m, mill_slot *slot,
                                       int i_arm, mill_workspace *work)
{
  const mill_model_arm *arm = &m->arm[i_arm];
  const int keep = mill_template_keeps(slot), kept = mill_template_kept(m, slot);
  mill_real *templ = (mill_real *)work->rotated;
  if (keep)
    templ = (mill_real *)slot->kept.flux + (size_t)i_arm * (size_t)m->max_pix_pad;
  MILL_SERIAL(b)
  {
    work->templ = templ;
    if (kept)
      work->mean[0] = slot->kept.mean[i_arm];
    else if (keep)
      slot->kept.mean[i_arm] = work->mean[0];
  } /* no thread reads these before the barriers of the spline */
  if (!kept) {
    mill_block_flux(b, arm, work->mean[0], (mill_real *)work->grid);
    const int half = mill_block_rotation_kernel(
        b, m->set.rotation, arm, slot->theta[MILL_PAR_VSINI], 0, slot->blur[i_arm], work);
    mill_block_template_row(b, m, arm, 0, half, work, templ, (mill_real *)work->bend);
  } else {
    mill_block_spline(b, arm, templ, (mill_real *)work->bend);
  }
}

/** The rows of a guess template from the model's store into work->grid and work->mean. */
MILL_BLOCK_FN void mill_block_take_stored(mill_block *b, const mill_model *m, int i_arm,
                                          int i_templ, mill_workspace *work)
{
  const mill_model_arm *arm = &m->arm[i_arm];
  const size_t pad = (size_t)arm->n_pix_pad, first = (size_t)i_templ * (size_t)(1 + m->n_label);
  const float *stored = arm->stored;
  MILL_SERIAL(b)
  {
    for (int t = 0; t <= m->n_label; t++)
      work->mean[t] = arm->stored_mean[first + (size_t)t];
  }
  MILL_GLOBAL(stored);
  for (int t = 0; t <= m->n_label; t++) {
    const float *from = stored + (first + (size_t)t) * pad;
    mill_real *to = (mill_real *)work->grid + (size_t)t * (size_t)m->max_pix_pad;
    MILL_FOR_SIMD(b, i, arm->n_pix)
    {
      to[i] = (mill_real)from[i];
    }
  }
  MILL_BARRIER(b);
}

/** Answer a slot's request as far as one arm is concerned.
 *
 *  In: work->grid, the emulator's output for the slot's labels (one row, or one and a tangent per
 *  label for a Jacobian; none where mill_template_there).  Adds to slot->eval. */
MILL_BLOCK_FN void mill_block_arm(mill_block *b, const mill_model *m, mill_slot *slot, int i_arm,
                                  mill_workspace *work)
{
  if (slot->request == MILL_REQ_JACOBIAN) {
    if (slot->stored > 0)
      mill_block_take_stored(b, m, i_arm, slot->stored - 1, work);
    mill_block_flux(b, &m->arm[i_arm], work->mean[0], (mill_real *)work->grid);
    mill_block_arm_jacobian(b, m, slot, i_arm, work);
    return;
  }
  const double vel = mill_arm_vrad(m, slot, i_arm, slot->theta[MILL_PAR_VRAD]);
  mill_block_template(b, m, slot, i_arm, work);
  double f_arm = 0.0;
  for (int i_seg = 0; i_seg < slot->n_segment; i_seg++) {
    const mill_segment *s = &slot->segment[i_seg];
    if (s->arm != i_arm || !s->used)
      continue;
    if (slot->request == MILL_REQ_FINAL) {
      f_arm += mill_block_final(b, m, s, mill_shifted(m, s, vel), work, &slot->eval);
    } else if (slot->request == MILL_REQ_EPOCHS) {
      mill_block_epoch(b, m, slot, s, vel, work);
    } else if (slot->request == MILL_REQ_VALUE) {
      const double f = mill_block_value(b, m, s, mill_shifted(m, s, vel), work);
      MILL_SERIAL(b)
      {
        slot->eval.f += f;
      }
      MILL_BARRIER(b);
    } else {
      mill_block_profile(b, m, slot, s, work);
    }
  }
  if (slot->request == MILL_REQ_FINAL)
    mill_block_arm_velocity(b, m, slot, i_arm, vel, f_arm, work);
}

#endif
