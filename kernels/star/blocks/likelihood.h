/* SPDX-License-Identifier: BSD-3-Clause */
/** Compute the likelihood of a segment and its derivatives, and answer a slot's request in one arm.
 *
 *  Each backend sums products over pixels in its own way (kernels/math/primitives.h). */
#pragma once

#include "kernels/math/primitives.h"
#include "kernels/star/blocks/companion.h"
#include "kernels/star/blocks/model_error.h"
#include "kernels/star/blocks/template.h"
#include MILL_PRIMITIVES_PIXEL_SUMS

/** Fit the continuum to a segment; return F without the penalties of hulls and priors.
 *
 *    D = flux / sigma
 *    T = exp(ln_scale) (level * s->base + templ)
 *    S = P T / sigma; the K columns of P are the continuum functions at the pixels
 *    F = mill_det_weight ln det(L L^T) + 2 sum ln sigma + |D|^2 - |L^-1 S^T D|^2, L L^T = S^T S
 *  Here `level` is the template's mean, and templ the template less its mean (NULL: zeros).  F is
 *  infinite if S^T S is not positive definite or anything is not finite.  A fixed model error, with
 *  rows E (model_error.h), replaces each product x . y by x . y - (E x) . (E y).
 *
 *  work  out  for a template without the factor exp(ln_scale):
 *             normal: L; solve [K]: coefficients a of P; error: E S and E (D - S a) */
MILL_BLOCK_FN double mill_block_project(mill_block *b, const mill_model *m, const mill_segment *s,
                                        const mill_real *templ, double level, double ln_scale,
                                        mill_workspace *work)
{
  const int nk = s->ws->n_cont;
  const int q = s->n_error; /* rows of E */
  mill_normal_sums(b, nk, s, templ, level, work->sums);
  double *normal = work->normal, *coef = work->solve;
  double *with_s = work->error, *with_residual = work->error + MILL_ERROR_RESIDUAL;
  mill_block_normal_matrix(b, nk, q, work->sums, normal, coef, with_s, with_residual);
  double f = INFINITY;
  if (mill_block_normal(b, nk, normal, coef, work->sums) == 0) {
    /* sums[0] is ln det(L L^T) without the factor exp(ln_scale), sums[1] is |L^-1 S^T D|^2 */
    const double ln_det = work->sums[0] + 2.0 * nk * ln_scale;
    f = mill_det_weight(m, s) * ln_det + s->sum_ln_var + s->dd - work->sums[1];
    if (!isfinite(f))
      f = INFINITY;
    MILL_FOR(b, e, q)
    {
      for (int k = 0; k < nk; k++)
        with_residual[e] -= coef[k] * with_s[e * nk + k]; /* E D becomes E (D - S a) */
    }
  }
  MILL_BARRIER(b);
  return f;
}

/** Return F of a segment at a velocity, with the template work->templ and its spline work->bend. */
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

/** Interpolate row r of a rotated template (mill_block_template_row) to the pixels.  Row 0 fills
 *  rows 0 and 1 of mill_sharp_rows: the template and its derivative in velocity.  Row r > 0 is
 *  another derivative and fills row r + 1. */
MILL_BLOCK_FN void mill_block_pixel_row(mill_block *b, const mill_model *m, const mill_segment *s,
                                        double vel_km_s, int r, const mill_real *rotated,
                                        const mill_real *bend, mill_workspace *work)
{
  mill_real *pixel = mill_sharp_rows(s, work);
  const size_t pitch = (size_t)m->max_seg_pix;
  mill_block_interpolate(b, &m->arm[s->arm], s->n_pix, rotated, bend, work->index, work->frac,
                         r == 0 ? pixel : pixel + (size_t)(r + 1) * pitch,
                         r == 0 ? mill_doppler_ln_slope(vel_km_s) : 0.0,
                         r == 0 ? pixel + pitch : (mill_real *)NULL);
}

/** Return element (j, l), l <= j, of the curvature: the product of columns j and l of the Jacobian
 *  V, less the parts that q rows of model error and nk continuum functions absorb.
 *
 *  sums               in  from mill_jacobian_sums
 *  solve [n_row][nk]  in  L^-1 S^T V (mill_block_jacobian) */
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

/** Compute gradient and curvature of a segment's F in n_row parameters from the sums of
 *  mill_jacobian_sums; zeros if F is not finite.
 *  to [n_row + n_row (n_row + 1) / 2]  out  in the order that MILL_ANSWER_TANGENTS describes */
MILL_BLOCK_FN void mill_block_curvature(mill_block *b, const mill_segment *s, int n_row,
                                        int is_finite, const mill_workspace *work, double *to)
{
  const int nk = s->ws->n_cont, q = s->n_error;
  const int origin = mill_gram_at(q + nk, 0), i_grad = mill_gram_at(q + nk + n_row, 0) - origin;
  double *solve = work->solve + MILL_MAX_CONT; /* [n_row][nk]: L^-1 S^T V */
  if (is_finite)
    mill_block_whiten_rows(b, nk, q, n_row, work, solve);
  MILL_BARRIER(b);
  MILL_FOR(b, j, n_row)
  {
    double *row = to + n_row + j * (j + 1) / 2;
    to[j] = is_finite ? 2.0 * work->sums[i_grad + j] : 0.0; /* the sum is half the gradient */
    for (int l = 0; l <= j; l++)
      row[l] = is_finite ? mill_row_curvature(q, nk, work->sums, solve, j, l) : 0.0;
  }
  MILL_BARRIER(b);
}

/** Compute F, gradient and curvature of one segment from its rows in work->smooth.
 *
 *  The method is Kaufman's variable projection, with D, S, P, T and a of mill_block_project:
 *    N = S^T S,  r = D - S a,  V_j = (dT/dtheta_j / sigma) (P a),  A = S^T V
 *    curvature  V^T V - A^T N^-1 A
 *    gradient   -2 V^T r + 2 mill_det_weight sum t (dt/dtheta_j) p^T N^-1 p
 *  The sum over pixels is from ln det N: t is T / sigma, p the continuum functions at a pixel.
 *
 *  n_share  in   > 0: first fix the model error (mill_block_n_share); 0: leave it
 *  answer   out  by enum mill_answer_place */
MILL_BLOCK_FN void mill_block_jacobian(mill_block *b, const mill_model *m, mill_segment *s,
                                       double n_share, mill_workspace *work, double *answer)
{
  const mill_model_arm *arm = &m->arm[s->arm];
  const int is_pair = mill_is_paired(s), n_row = mill_n_row(m, is_pair);
  double *tangents = answer + MILL_ANSWER_TANGENTS;
  mill_real *smooth = (mill_real *)work->smooth;
  if (is_pair) /* the two stars' sums of flux go after gradient and curvature */
    mill_block_pair_rows(b, m, s, work, tangents + n_row + n_row * (n_row + 1) / 2);
  if (n_share > 0.0) { /* the new model error needs a continuum fitted without model error */
    mill_block_release_error(b, s);
    if (isfinite(mill_block_project(b, m, s, smooth, MILL_LEVEL(arm, work),
                                    MILL_LN_SCALE(arm, work), work)))
      mill_block_fix_error(b, m, s, smooth, MILL_LEVEL(arm, work), n_share, work);
  }
  /* The model of two stars is T1 + r T2.  If star 2's tangents are asked (paired 2), `smooth` holds
   * T1 / r + T2, where r = exp(-pair_ln_ratio), and ln_scale restores the factor r. */
  const double ln_scale =
      MILL_LN_SCALE(arm, work) + (is_pair && s->paired == 2 ? -s->pair_ln_ratio : 0.0);
  const double f = mill_block_project(b, m, s, smooth, MILL_LEVEL(arm, work), ln_scale, work);
  const int is_finite = isfinite(f);
  MILL_SERIAL(b)
  {
    answer[MILL_ANSWER_F] = f;
  }
  MILL_BARRIER(b);
  if (is_finite) {
    const double *chol = work->normal, *with_s = work->error;
    mill_block_solve_error(b, s->ws->n_cont, s->n_error, chol, with_s,
                           work->error + MILL_ERROR_SOLVED);
    mill_jacobian_sums(b, m, s, n_row, smooth, MILL_LEVEL(arm, work), work);
  }
  mill_block_curvature(b, s, n_row, is_finite, work, tangents);
}

/** Add the best-fit model error to a chunk of the model flux.  Each row of s->error contributes
 *  row * (row . residual) * sigma, where residual is in units of sigma. */
MILL_INLINE void mill_add_error_shares(const mill_segment *s, int first, int len,
                                       const mill_workspace *work, double *flux)
{
  double more[MILL_PIXEL_CHUNK];
  if (s->n_error == 0)
    return;
  for (int i = 0; i < len; i++)
    more[i] = 0.0;
  for (int e = 0; e < s->n_error; e++) {
    const float *error = s->error + (size_t)e * mill_row_pitch(s->n_pix) + first;
    const double share = work->error[MILL_ERROR_RESIDUAL + e];
    MILL_SIMD
    for (int i = 0; i < len; i++)
      more[i] += share * (double)error[i];
  }
  MILL_SIMD
  for (int i = 0; i < len; i++)
    flux[i] += more[i] / (double)s->is[first + i];
}

/** For each label that is an element, measure how well the model fits the element's lines, from a
 *  segment's rows in work->smooth.  A good pixel has the weight (d model / d label / sigma)^2; the
 *  sums are listed in enum mill_line_sum.
 *  to [n_label][MILL_N_LINE_SUM]  out  NaN where F is not finite; unset for other labels */
MILL_BLOCK_FN void mill_block_weigh_lines(mill_block *b, const mill_model *m, const mill_segment *s,
                                          mill_workspace *work, double *to)
{
  const mill_real *templ = (const mill_real *)work->smooth;
  const double level = MILL_LEVEL(&m->arm[s->arm], work);
  const int is_finite = isfinite(mill_block_project(b, m, s, templ, level, 0.0, work));
  const int n = s->n_pix;
  for (int l = 0; l < m->n_label; l++) {
    const mill_real *row = templ + (size_t)(1 + MILL_PAR_LABEL0 + l) * (size_t)m->max_seg_pix;
    double acc[MILL_N_LINE_SUM] = {0.0}, total[MILL_N_LINE_SUM];
    if (!m->label[l].is_element)
      continue;
    MILL_FOR(b, c, mill_chunks(n, MILL_PIXEL_CHUNK))
    {
      const int first = c * MILL_PIXEL_CHUNK, len = mill_chunk_len(n, first, MILL_PIXEL_CHUNK);
      double poly[MILL_PIXEL_CHUNK], flux[MILL_PIXEL_CHUNK];
      mill_continuum_of(s, s->ws->n_cont, work->solve, first, len, poly);
      for (int i = 0; i < len; i++)
        flux[i] = poly[i] * (level * s->base[first + i] + (double)templ[first + i]);
      mill_add_error_shares(s, first, len, work, flux);
      for (int i = 0; i < len; i++) {
        const double is = (double)s->is[first + i], r = (double)s->d[first + i] - flux[i] * is;
        const double slope = s->good[first + i] ? poly[i] * (double)row[first + i] * is : 0.0;
        acc[MILL_LINE_CHISQ] += slope * slope * r * r;
        acc[MILL_LINE_WEIGHT] += slope * slope;
        acc[MILL_LINE_SQUARE] += slope * slope * slope * slope;
      }
    }
    mill_block_sum_n(b, acc, MILL_N_LINE_SUM, total);
    MILL_SERIAL(b)
    {
      for (int k = 0; k < MILL_N_LINE_SUM; k++)
        to[MILL_N_LINE_SUM * l + k] = is_finite ? total[k] : (double)NAN;
    }
  }
}

/** Compare the model with a segment's good pixels.  The model is x + model error; x is a template
 *  times the continuum of work->solve.  Always inlined: last digits must not vary by compiler.
 *
 *  keep            in   1, 2: store model / sigma in s->scratch; 1: also the model in s->model, if
 *                       not NULL
 *  chisq, largest  out  chi-square, and the largest squared residual
 *  negative        out  sum of (x / sigma)^2 over the good pixels where x is negative */
MILL_INLINE void mill_block_residual(mill_block *b, const mill_segment *s, const mill_real *templ,
                                     double level, int keep, const mill_workspace *work,
                                     double *chisq, double *negative, double *largest)
{
  const int n = s->n_pix;
  double acc[2] = {0.0, 0.0}, worst = 0.0;
  MILL_FOR(b, c, mill_chunks(n, MILL_PIXEL_CHUNK))
  {
    const int first = c * MILL_PIXEL_CHUNK, len = mill_chunk_len(n, first, MILL_PIXEL_CHUNK);
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
    for (int i = 0; i < len; i++) {
      flux[i] *= poly[i];
      poly[i] = flux[i]; /* x: without model error */
    }
    mill_add_error_shares(s, first, len, work, flux);
    if (keep == 1 && s->model) {
      MILL_SIMD
      for (int i = 0; i < len; i++)
        s->model[first + i] = (float)flux[i];
    }
    double chi = 0.0, below = 0.0;
    MILL_SIMD_SUM(chi, below)
    for (int i = 0; i < len; i++) {
      const double model = good[i] ? flux[i] * (double)is[i] : 0.0;
      const double r = good[i] ? (double)d[i] - model : 0.0;
      const double low = good[i] && poly[i] < 0.0 ? poly[i] * (double)is[i] : 0.0;
      chi += r * r;
      below += low * low;
      /* poly is now model / sigma, and flux r^2: new arrays would change chi's last digits */
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

/** Store the template times exp(ln_scale) in s->templ_flux, and the continuum's coefficients
 *  divided by exp(ln_scale) in s->cont_coef. */
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

/** Return the chi-square of a segment's good pixels for a template (NULL: a constant) times the
 *  best continuum; NaN if the continuum fit fails.  Overwrites s->scratch. */
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

/** Return a copy of the segment with noise and sky in its covariance, but no other model error. */
MILL_BLOCK_FN mill_segment mill_segment_of_data(mill_block *b, const mill_model *m,
                                                const mill_segment *s, mill_workspace *work)
{
  mill_segment data = *s;
  if (s->error_fixed) {
    const mill_model_arm *arm = &m->arm[s->arm];
    double ln_det, taken;
    data.d = s->own_d;
    data.is = s->own_is;
    /* the model error keeps its rows; the sky's go to the spare rows after them */
    data.error += (ptrdiff_t)mill_n_error(arm, s->width_error) * mill_row_pitch(s->n_pix);
    if (arm->n_sky > 0)
      mill_block_draw_sky(b, arm->n_sky, &data, 0);
    data.n_error = mill_block_whiten_error(b, &data, arm->n_sky, work, &ln_det, &taken);
    data.sum_ln_var = s->own_sum_ln_var + ln_det;
    data.dd = s->own_dd - taken;
    data.model = NULL; /* s keeps its stored model */
  }
  return data;
}

/** Answer MILL_REQ_MODELS for one segment at a velocity: compute chi-squares and checks.  With keep
 *  1 also store the segment's model, template and continuum; with keep 2 leave the stored ones. */
MILL_BLOCK_FN void mill_block_final(mill_block *b, const mill_model *m, const mill_segment *s,
                                    double vel_km_s, int keep, mill_workspace *work, double *answer)
{
  const mill_real *smooth = (const mill_real *)work->smooth, *none = NULL;
  const double level = MILL_LEVEL(&m->arm[s->arm], work);
  double chisq, negative, largest, chisq_c, unused_negative, unused_largest, gain, n_block;
  const double f = mill_block_value(b, m, s, vel_km_s, work);
  mill_block_residual(b, s, smooth, level, keep, work, &chisq, &negative, &largest);
  if (keep == 1 && s->templ_flux)
    mill_block_parts(b, s, smooth, level, MILL_LN_SCALE(&m->arm[s->arm], work), work);
  MILL_BARRIER(b);
  mill_block_gain(b, s, &gain, &n_block);
  mill_block_emission(b, s, vel_km_s, answer + MILL_ANSWER_EMISSION);
  const double f_c = mill_block_project(b, m, s, none, 1.0, 0.0, work); /* the continuum alone */
  mill_block_residual(b, s, none, 1.0, 0, work, &chisq_c, &unused_negative, &unused_largest);
  MILL_BARRIER(b);
  /* work->solve has this star's coefficients only if F is finite */
  const double known = isfinite(f) ? chisq : (double)NAN;
  const double known_c = isfinite(f_c) ? chisq_c : (double)NAN;
  double data_chisq = known, data_chisq_c = known_c;
  const mill_segment data = mill_segment_of_data(b, m, s, work);
  if (s->error_fixed) {
    data_chisq_c = mill_block_best_chisq(b, m, &data, none, 1.0, work);
    /* the star is last: mill_block_noise needs its model in s->scratch */
    data_chisq = mill_block_best_chisq(b, m, &data, smooth, level, work);
  }
  const double noise = mill_block_noise(b, &data, data_chisq);
  MILL_SERIAL(b)
  {
    answer[MILL_ANSWER_F] = f;
    answer[MILL_ANSWER_CHISQ] = known;
    answer[MILL_ANSWER_CHISQ_C] = known_c;
    answer[MILL_ANSWER_CHISQ_DATA] = data_chisq;
    answer[MILL_ANSWER_CHISQ_C_DATA] = data_chisq_c;
    answer[MILL_ANSWER_NOISE] = noise;
    answer[MILL_ANSWER_GAIN] = gain;
    answer[MILL_ANSWER_BLOCKS] = n_block;
    answer[MILL_ANSWER_NEGATIVE] = negative;
    answer[MILL_ANSWER_LARGEST] = largest;
  }
  MILL_BARRIER(b);
}

/** Return the weight of a segment among those that share the templates' error.  It is about the sum
 *  of (S/N)^2 over the good pixels; below S/N 1 it approaches the number of good pixels. */
MILL_HD static inline double mill_segment_weight(const mill_segment *s)
{
  const double sn = fmin(fmax(s->sn, 0.0), MILL_MOST_SN);
  return (double)s->n_good * (1.0 + sn * sn);
}

/** Return the factor of the templates' error variance in segment s: the weight of the arm's used
 *  segments in the range of s, divided by the weight of s.  These segments share the error; if
 *  slot->fix_error is 2, only those of the same epoch do. */
MILL_BLOCK_FN double mill_block_n_share(mill_block *b, const mill_slot *slot, const mill_segment *s)
{
  const double low = s->ws->ln_wave[0], high = s->ws->ln_wave[s->n_pix - 1];
  double part = 0.0;
  MILL_FOR(b, i, slot->n_segment)
  {
    const mill_segment *t = &slot->segment[i];
    const double first = t->ws->ln_wave[0], last = t->ws->ln_wave[t->n_pix - 1];
    const double shared = (last < high ? last : high) - (first > low ? first : low);
    if (t->arm == s->arm && mill_is_asked(slot, i) && shared > 0.0 &&
        (slot->fix_error < 2 || t->epoch == s->epoch))
      part += mill_segment_weight(t) * (shared / (last - first)); /* exactly its weight if t is s */
  }
  part = mill_block_sum(b, part);
  return s->n_good > 0 ? fmax(part / mill_segment_weight(s), 1.0) : 1.0;
}

/** Answer MILL_REQ_TANGENTS for an arm.  Each row of the template is rotated, then interpolated to
 *  the pixels while the row is in the cache.  All rows are kept if several segments share the arm.
 *  A CPU may instead compute the pixels without whole rows (mill_block_pixel_taps). */
MILL_BLOCK_FN void mill_block_arm_jacobian(mill_block *b, const mill_model *m, mill_slot *slot,
                                           int i_arm, mill_workspace *work)
{
  const mill_model_arm *arm = &m->arm[i_arm];
  const int half = mill_block_rotation_kernel(b, m->set.rotation, arm, slot->theta[MILL_PAR_VSINI],
                                              1, slot->blur[i_arm], work);
  int n_used = 0, n_done = 0;
  for (int i = 0; i < slot->n_segment; i++)
    n_used += slot->segment[i].arm == i_arm && mill_is_asked(slot, i);
  const size_t pitch = n_used > 1 ? (size_t)m->max_pix_pad : 0; /* 0: keep only the last row */
  for (int i = 0; i < slot->n_segment; i++) {
    mill_segment *s = &slot->segment[i];
    if (s->arm != i_arm || !mill_is_asked(slot, i))
      continue;
    const double v = mill_velocities_of(slot, i)[0];
    mill_block_locate(b, arm, s->n_pix, s->ws->ln_wave, v, work->index, work->frac);
    const int by_taps = n_used == 1 && mill_block_pixel_taps(b, m, s, v, half, work);
    for (int r = 0; r < 2 + m->n_label && !by_taps; r++) { /* rows: template, v sin i, labels */
      mill_real *rotated = (mill_real *)work->rotated + (size_t)r * pitch;
      mill_real *bend = (mill_real *)work->bend + (size_t)r * pitch;
      if (n_done == 0)
        mill_block_template_row(b, m, arm, r, half, work, rotated, bend);
      mill_block_pixel_row(b, m, s, v, r, rotated, bend, work);
    }
    mill_block_resolve(b, s, m->n_deriv + 1, m->max_seg_pix, mill_sharp_rows(s, work),
                       (mill_real *)work->smooth);
    if (MILL_HAS_PAIRS && slot->keep_rows)
      mill_block_keep_rows(b, m, s, work);
    else if (slot->weigh_lines)
      mill_block_weigh_lines(b, m, s, work, mill_answer_of(m, slot, i) + MILL_ANSWER_TANGENTS);
    else
      mill_block_jacobian(b, m, s,
                          slot->fix_error && s->own_d ? mill_block_n_share(b, slot, s) : 0.0, work,
                          mill_answer_of(m, slot, i));
    n_done++;
  }
}

/** Answer MILL_REQ_VALUES for a segment: teams of threads share the velocities that are no NaN. */
MILL_BLOCK_FN void mill_block_values(mill_block *b, const mill_model *m, const mill_slot *slot,
                                     int i_segment, mill_workspace *work)
{
  mill_segment s = slot->segment[i_segment];
  const double *vel = mill_velocities_of(slot, i_segment);
  double *f = mill_answer_of(m, slot, i_segment) + MILL_ANSWER_F;
  mill_team team;
  if (slot->data_only)
    s = mill_segment_of_data(b, m, &slot->segment[i_segment], work);
  mill_block_team(b, slot->n_vel, &s, (size_t)m->max_seg_pix * sizeof(mill_real), work, &team);
  for (int i = team.first; i < slot->n_vel; i += team.step) {
    const double v = vel[i];
    if (v != v)
      continue;
    const double value = mill_block_value(&team.block, m, &s, v, team.work);
    MILL_SERIAL(&team.block)
    {
      f[i] = value;
    }
  }
  mill_block_team_end(&team);
}

/** Set work->templ and its spline, work->bend, for a request without tangents.  slot->kept may keep
 *  the template (in_slot) for later requests with equal v sin i and labels (is_known). */
MILL_BLOCK_FN void mill_block_template(mill_block *b, const mill_model *m, mill_slot *slot,
                                       int i_arm, mill_workspace *work)
{
  const mill_model_arm *arm = &m->arm[i_arm];
  const int in_slot = mill_template_keeps(slot), is_known = mill_template_kept(m, slot);
  mill_real *templ = (mill_real *)work->rotated;
  if (in_slot)
    templ = (mill_real *)slot->kept.flux + (size_t)i_arm * (size_t)m->max_pix_pad;
  MILL_SERIAL(b)
  {
    work->templ = templ;
    if (is_known)
      work->mean[0] = slot->kept.mean[i_arm];
    else if (in_slot)
      slot->kept.mean[i_arm] = work->mean[0];
  } /* no thread reads these before the barriers of the spline */
  if (!is_known) {
    mill_block_flux(b, arm, work->mean[0], (mill_real *)work->grid);
    const int half = mill_block_rotation_kernel(
        b, m->set.rotation, arm, slot->theta[MILL_PAR_VSINI], 0, slot->blur[i_arm], work);
    mill_block_template_row(b, m, arm, 0, half, work, templ, (mill_real *)work->bend);
  } else {
    mill_block_spline(b, arm, templ, (mill_real *)work->bend);
  }
}

/** Copy the stored emulator output of a guess template into work->grid and work->mean. */
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

/** Answer a slot's request for one arm.  Unless mill_template_there returns 1, work->grid must hold
 *  the emulator's output at the slot's labels; for MILL_REQ_TANGENTS also its label derivatives. */
MILL_BLOCK_FN void mill_block_arm(mill_block *b, const mill_model *m, mill_slot *slot, int i_arm,
                                  mill_workspace *work)
{
  if (slot->request == MILL_REQ_TANGENTS) {
    if (slot->stored > 0) /* 1 + index of a guess template */
      mill_block_take_stored(b, m, i_arm, slot->stored - 1, work);
    mill_block_flux(b, &m->arm[i_arm], work->mean[0], (mill_real *)work->grid);
    mill_block_arm_jacobian(b, m, slot, i_arm, work);
    return;
  }
  const int keep = slot->pair.is_again ? 2 : 1; /* 2: the stored models stay */
  mill_block_template(b, m, slot, i_arm, work);
  for (int i = 0; i < slot->n_segment; i++) {
    const mill_segment *s = &slot->segment[i];
    if (s->arm != i_arm || !mill_is_asked(slot, i))
      continue;
    if (slot->request == MILL_REQ_MODELS)
      mill_block_final(b, m, s, mill_velocities_of(slot, i)[0], keep, work,
                       mill_answer_of(m, slot, i));
    else
      mill_block_values(b, m, slot, i, work);
  }
}
