/* SPDX-License-Identifier: BSD-3-Clause */
/** Initial guess: chi^2 of a few templates at all velocities, by Fourier transforms in float32.
 *
 *  Data d (errors sigma) and templates T are divided by their own continuum fits c and c_T:
 *    n = d/c - 1,  m = T/c_T - 1,  w = c^2/sigma^2.
 *  In bins uniform in ln wavelength, template k at velocity v has
 *    chi^2(k, v) = const - 2 sum (w n) m_k(v) + sum w m_k^2(v).
 *  The sums are the real part of the correlation of w - 2 i w n with m^2 + i m.
 *
 *  The transforms work on blocks of bins (overlap-save).  A block has guess_n - 2 guess_half bins
 *  of the data, and guess_half bins more of the template on each side.  The products of all blocks
 *  of all segments are added up, then transformed back once. */
#pragma once

#include "kernels/math/fourier.h"
#include "kernels/math/hull.h"
#include "kernels/star/blocks/likelihood.h"
#include "kernels/star/logic/parameters.h"

/** Largest v sin i of a start, km/s: the guess mistakes the line-spread function for rotation.  One
 *  step of the polish goes from this v sin i to 0 or 100 km/s.  With several exposures there is no
 *  such limit: if the star moves, its lines look broad in all exposures together. */
#define MILL_START_VSINI 50.0

static_assert((int)MILL_GUESS_LANE == (int)MILL_FOURIER_LANE, "groups are transformed as they are");

/** Velocity of a shift by n_bin bins, km/s (positive: receding). */
MILL_HD static inline double mill_guess_velocity(double n_bin, double ln_step)
{
  return MILL_C_KM_S * tanh(n_bin * ln_step);
}

/** Return the least distance, in mapped labels, between start i = 1, 2, ... and later starts.  The
 *  first distances are small, to search near the best template; later starts spread out. */
MILL_HD static inline double mill_guess_apart(int i)
{
  return i <= 3 ? 0.5 : i <= 5 ? 1.0 : 1.5;
}

/** Terms of chi^2 (head of this file) from bins: w n m and w m^2; only w m^2; only w n m. */
enum mill_guess_bins { MILL_BINS_ALL, MILL_BINS_SQUARE, MILL_BINS_RESIDUAL };

MILL_HD static inline int mill_guess_takes(const mill_segment *s)
{
  return s->used == 1 && s->n_good > 0;
}

/** Fourier-transform x [n][2][MILL_GUESS_LANE] in place (kernels/math/fourier.h). */
MILL_BLOCK_FN void mill_block_fourier(mill_block *b, int n, int inverse, const float *root,
                                      float *x);

#include MILL_PRIMITIVES_GUESS

MILL_BLOCK_FN void mill_block_fourier(mill_block *b, int n, int inverse, const float *root,
                                      float *x)
{
  const int n_side = MILL_GUESS_LANE / MILL_GUESS_TEMPLATES;
  for (int step = 1; step < n; step *= 2) {
    const int half = inverse ? step : n / 2 / step;
    MILL_FOR(b, e, n / 2 * n_side)
    {
      mill_guess_pair(n, half, e / n_side, inverse, root, x + e % n_side * MILL_GUESS_TEMPLATES);
    }
    MILL_BARRIER(b);
  }
}

/** Compute slot->guess.chisq of one group of templates, from k0 on, for n_star stars whose segments
 *  use the same templates: add up products of transforms, then transform the sum back.
 *  n_star  in  at most MILL_GUESS_STARS; pass a constant, so that sums stay in registers
 *  sum [n_star][guess_n][2][MILL_GUESS_LANE]  work space, last index: template */
MILL_INLINE void mill_block_guess_matches(mill_block *b, const mill_model *m, int k0,
                                          const int n_star, mill_slot *const *slot,
                                          float *const *sum)
{
  const int n = m->guess_n, n_side = MILL_GUESS_LANE / MILL_GUESS_TEMPLATES;
  const int nv = 2 * m->guess_half + 1, n_left = m->n_templ - k0;
  MILL_FOR(b, e, n * n_side)
  {
    const int f = e / n_side, lane = e % n_side * MILL_GUESS_TEMPLATES;
    float *to[MILL_GUESS_STARS];
    for (int j = 0; j < n_star; j++) {
      to[j] = sum[j] + f * 2 * MILL_GUESS_LANE + lane;
      mill_guess_zero(to[j]);
    }
    for (int i_seg = 0; i_seg < slot[0]->n_segment; i_seg++) {
      const mill_segment *s = &slot[0]->segment[i_seg];
      if (!mill_guess_takes(s))
        continue;
      /* Transforms at frequency f: t [block of bins][2][template]; d [star][2][block of bins] */
      const int n_block = s->ws->n_block;
      const float *t = s->ws->templ + lane +
                       ((size_t)(k0 / MILL_GUESS_LANE) * (size_t)n + (size_t)f) * (size_t)n_block *
                           2 * MILL_GUESS_LANE;
      for (int i = 0; i < n_block; i += MILL_GUESS_LANE) {
        const float *d[MILL_GUESS_STARS];
        for (int j = 0; j < n_star; j++)
          d[j] = slot[j]->segment[i_seg].guess +
                 (ptrdiff_t)(i / MILL_GUESS_LANE * n + f) * 2 * MILL_GUESS_LANE;
        mill_guess_products(n_star, n_block - i < MILL_GUESS_LANE ? n_block - i : MILL_GUESS_LANE,
                            d, t + (ptrdiff_t)i * 2 * MILL_GUESS_LANE, to);
      }
    }
  }
  MILL_BARRIER(b);
  for (int j = 0; j < n_star; j++)
    mill_block_guess_back(b, n, nv, n_left < MILL_GUESS_LANE ? n_left : MILL_GUESS_LANE,
                          m->guess_root, sum[j], slot[j]->guess.chisq + (ptrdiff_t)k0 * nv);
}

MILL_BLOCK_FN void mill_block_guess_match(mill_block *b, const mill_model *m, int k0,
                                          mill_slot *slot, mill_workspace *work)
{
  float *sum = (float *)work->rotated;
  mill_block_guess_matches(b, m, k0, 1, &slot, &sum);
}

/** Add the variance of the sky's residuals to the noise of pixel p, as if uncorrelated between
 *  pixels: reduce the pixel's weight *w and its weighted flux *wn (mill_block_guess_bins). */
MILL_HD static inline void mill_guess_doubt_sky(int n_sky, const mill_segment *s, int p, double *wn,
                                                double *w)
{
  double variance = 1.0;
  for (int j = 0; j < n_sky; j++) {
    const double c = (double)s->ws->sky[j * mill_row_pitch(s->n_pix) + p] * (double)s->is[p];
    variance += c * c;
  }
  *wn /= variance;
  *w /= variance;
}

/** Fill s->guess with the Fourier transform of w - 2 i w n in a segment's bins, where
 *  w = c^2/sigma^2 and n = d/c - 1 (top of this file).
 *   MILL_BINS_ALL       both terms; c is the fit of nk functions in work->solve (nk 0: no weight)
 *   MILL_BINS_SQUARE    only w; c is the model; s->scratch has c / (sigma of the data alone)
 *   MILL_BINS_RESIDUAL  only w n; c as for MILL_BINS_SQUARE
 *  work->pixel and work->smooth are work space, [n_pix] double each. */
MILL_BLOCK_FN void mill_block_guess_bins(mill_block *b, const mill_model *m, int nk,
                                         enum mill_guess_bins what, const mill_segment *s,
                                         mill_workspace *work)
{
  const mill_waveset *ws = s->ws;
  const int n_fourier = m->guess_n, n_kept = n_fourier - 2 * m->guess_half;
  const int n_number = n_fourier * 2 * MILL_GUESS_LANE;
  const int n = s->n_pix;
  const int n_sky = what == MILL_BINS_ALL ? m->arm[s->arm].n_sky : 0;
  double *pixel_wn = (double *)work->pixel, *pixel_w = (double *)work->smooth;
  MILL_FOR(b, i_chunk, mill_chunks(n, MILL_CHUNK))
  {
    const int first = i_chunk * MILL_CHUNK, len = mill_chunk_len(n, first, MILL_CHUNK);
    double x[MILL_CHUNK]; /* c / sigma, where sigma includes a fixed model error */
    if (what == MILL_BINS_ALL) {
      mill_continuum_of(s, nk, work->solve, first, len, x);
      MILL_SIMD
      for (int i = 0; i < len; i++)
        x[i] = x[i] * s->base[first + i] * (double)s->is[first + i];
    } else {
      MILL_SIMD
      for (int i = 0; i < len; i++) {
        const int p = first + i;
        const double ratio = s->error_fixed ? (double)s->is[p] / (double)s->own_is[p] : 1.0;
        x[i] = (double)s->scratch[p] * ratio;
      }
    }
    MILL_SIMD
    for (int i = 0; i < len; i++) {
      const int p = first + i, good = s->good[p];
      pixel_wn[p] = good ? x[i] * ((double)s->d[p] - x[i]) : 0.0;
      pixel_w[p] = good ? x[i] * x[i] : 0.0;
    }
    for (int p = first; p < first + len && n_sky > 0; p++)
      mill_guess_doubt_sky(n_sky, s, p, &pixel_wn[p], &pixel_w[p]);
  }
  MILL_FOR(b, e, mill_guess_lanes(ws->n_block) * n_number)
  {
    s->guess[e] = 0.0f;
  }
  MILL_BARRIER(b);
  for (int block = 0; block < ws->n_block; block++) {
    const int *first = ws->bin_first + block * n_kept;
    const int n_left = ws->n_bin - block * n_kept;
    float *to =
        s->guess + (ptrdiff_t)(block / MILL_GUESS_LANE) * n_number + block % MILL_GUESS_LANE;
    MILL_FOR(b, i, n_left < n_kept ? n_left : n_kept)
    {
      double wn = 0.0, w = 0.0;
      for (int p = first[i]; p < first[i + 1]; p++) {
        wn += pixel_wn[p];
        w += pixel_w[p];
      }
      to[i * 2 * MILL_GUESS_LANE] = what == MILL_BINS_RESIDUAL ? 0.0f : (float)w;
      to[i * 2 * MILL_GUESS_LANE + MILL_GUESS_LANE] =
          what == MILL_BINS_SQUARE ? 0.0f : (float)(-2.0 * wn);
    }
  }
  MILL_BARRIER(b);
  for (int i = 0; i < mill_guess_lanes(ws->n_block); i++)
    mill_block_fourier(b, n_fourier, 0, m->guess_root, s->guess + (ptrdiff_t)i * n_number);
}

/** Find the velocity bins [v0, v1) that lie between low and high. */
MILL_HD static inline void mill_guess_within(const mill_model *m, double low_km_s, double high_km_s,
                                             int *v0, int *v1)
{
  const int nv = 2 * m->guess_half + 1;
  *v0 = 0;
  *v1 = nv;
  while (*v0 < nv && mill_guess_velocity(*v0 - m->guess_half, m->guess_ln_step) < low_km_s)
    ++*v0;
  while (*v1 > *v0 && mill_guess_velocity(*v1 - 1 - m->guess_half, m->guess_ln_step) > high_km_s)
    --*v1;
}

/** Write each template's least chi^2 in velocity bins [v0, v1) to slot->guess.least, and its bin to
 *  slot->guess.velocity.  The least chi^2 is infinite if none is finite. */
MILL_BLOCK_FN void mill_block_guess_least(mill_block *b, const mill_model *m, mill_slot *slot,
                                          int v0, int v1)
{
  const int nv = 2 * m->guess_half + 1;
  MILL_FOR(b, k, m->n_templ)
  {
    double least;
    slot->guess.velocity[k] = mill_guess_least(slot->guess.chisq + k * nv, v0, v1, &least);
    slot->guess.least[k] = least;
  }
  MILL_BARRIER(b);
}

MILL_HD static inline double mill_guess_distance2(const mill_model *m, int i, int k)
{
  double sum = 0.0;
  for (int l = 0; l < m->n_label; l++) {
    const double d = m->guess_mapped[i * m->n_label + l] - m->guess_mapped[k * m->n_label + l];
    sum += d * d;
  }
  return sum;
}

/** Return the template with the least chi^2; -1: no chi^2 is finite.  Exclude the template, and all
 *  templates closer to it than `apart` in mapped labels, from later calls. */
MILL_BLOCK_FN int mill_block_guess_take(mill_block *b, const mill_model *m, mill_slot *slot,
                                        double apart)
{
  double own = INFINITY; /* least chi^2 that this thread sees, at template own_k */
  int own_k = -1;
  MILL_FOR(b, k, m->n_templ)
  {
    if (slot->guess.least[k] < own) {
      own = slot->guess.least[k];
      own_k = k;
    }
  }
  /* of equal chi^2 take the first template: the result does not depend on the threads */
  const double least = -mill_block_max(b, -own);
  const double candidate = own_k >= 0 && own == least ? (double)own_k : INFINITY;
  const double first = -mill_block_max(b, -candidate);
  if (!(first < INFINITY))
    return -1;
  const int taken = (int)first, n_vsini = m->n_guess_vsini;
  MILL_FOR(b, i, m->n_templ / n_vsini)
  {
    if (i == taken / n_vsini || mill_guess_distance2(m, i, taken / n_vsini) < apart * apart)
      for (int r = 0; r < n_vsini; r++)
        slot->guess.least[i * n_vsini + r] = INFINITY;
  }
  MILL_BARRIER(b);
  return taken;
}

/** Append a start at a guess template; a parabola through three bins gives its best velocity. */
MILL_HD static inline void mill_guess_start(const mill_model *m, mill_slot *slot, int templ)
{
  const int nv = 2 * m->guess_half + 1, n_label = m->n_label;
  const int i_label = templ / m->n_guess_vsini, iv = slot->guess.velocity[templ];
  const int best = templ * nv + iv;
  double n_bin = (double)(iv - m->guess_half); /* shift of the best velocity */
  if (iv > 0 && iv < nv - 1) {
    const double y0 = slot->guess.chisq[best - 1], y1 = slot->guess.chisq[best],
                 y2 = slot->guess.chisq[best + 1];
    const double bend = y0 - 2.0 * y1 + y2;
    if (bend > 0.0) {
      const double shift = 0.5 * (y0 - y2) / bend;
      n_bin += shift < -0.5 ? -0.5 : (shift > 0.5 ? 0.5 : shift);
    }
  }
  slot->starts.chisq[slot->starts.n] = slot->guess.chisq[best];
  slot->starts.label[slot->starts.n] = i_label;
  double *theta = slot->starts.theta[slot->starts.n++];
  double vsini = m->guess_vsini[templ % m->n_guess_vsini];
  if (slot->n_segment <= m->n_arm) /* a single exposure; see MILL_START_VSINI */
    vsini = fmin(vsini, MILL_START_VSINI);
  vsini = fmin(fmax(vsini, m->set.min_vsini_km_s), m->set.max_vsini_km_s);
  theta[MILL_PAR_VRAD] = mill_within_velocities(m, mill_guess_velocity(n_bin, m->guess_ln_step));
  theta[MILL_PAR_VSINI] = vsini;
  for (int l = 0; l < n_label; l++)
    theta[MILL_PAR_LABEL0 + l] = m->guess_label[(size_t)i_label * (size_t)n_label + l];
  for (int j = m->n_deriv; j < m->n_par; j++)
    theta[j] = 0.0;
  for (int j = 0; j < m->n_deriv; j++)
    if (m->set.fixed[j])
      theta[j] = m->set.fixed_value[j];
}

/** Compute the Fourier-transformed bins of all used segments for mill_block_guess_match, and the
 *  squared significance of each arm's lines (slot->lead.signal). */
MILL_BLOCK_FN void mill_block_guess_data(mill_block *b, const mill_model *m, mill_slot *slot,
                                         mill_workspace *work)
{
  MILL_SERIAL(b)
  {
    for (int a = 0; a < MILL_MAX_ARM; a++)
      slot->lead.signal[a] = 0.0;
  }
  for (int i_seg = 0; i_seg < slot->n_segment; i_seg++) {
    const mill_segment *s = &slot->segment[i_seg];
    if (!mill_guess_takes(s))
      continue;
    /* without a continuum fit the bins have no weight */
    const double f = mill_block_project(b, m, s, NULL, 1.0, 0.0, work);
    const int has_fit = isfinite(f);
    /* by how much the continuum's chi-square exceeds its expected value, the good pixels' number */
    MILL_SERIAL(b)
    {
      slot->lead.signal[s->arm] += has_fit ? f - mill_unit_part(m, s) - (double)s->n_good : 0.0;
    }
    mill_block_guess_bins(b, m, has_fit ? s->ws->n_cont : 0, MILL_BINS_ALL, s, work);
  }
}

/** Penalty of the priors on velocity and labels at index e of slot->guess.chisq.  Priors of
 *  elements do not count: no template varies an element by itself, so all would be penalised. */
MILL_HD static inline double mill_guess_penalty(const mill_model *m, const mill_slot *slot, int e)
{
  const int nv = 2 * m->guess_half + 1, i_label = e / nv / m->n_guess_vsini;
  const double v = mill_guess_velocity(e % nv - m->guess_half, m->guess_ln_step);
  double f = mill_prior_penalty(m, slot, MILL_PAR_VRAD, v);
  const double *label = m->guess_label + i_label * m->n_label;
  for (int l = 0; l < m->n_label; l++)
    f += m->label[l].is_element ? 0.0 : mill_prior_penalty(m, slot, MILL_PAR_LABEL0 + l, label[l]);
  return f;
}

/** Add the priors' penalty to slot->guess.chisq, less the penalty's least value on the grid:
 *  otherwise a prior narrower than the grid's spacing would raise every chi^2. */
MILL_BLOCK_FN void mill_block_guess_priors(mill_block *b, const mill_model *m, mill_slot *slot)
{
  int any = 0;
  for (int j = 0; j < m->n_deriv; j++)
    any |= mill_prior_sigma(m, slot, j) > 0.0;
  const int n = any ? m->n_templ * (2 * m->guess_half + 1) : 0;
  double least = INFINITY;
  MILL_FOR(b, e, n)
  {
    least = fmin(least, mill_guess_penalty(m, slot, e));
  }
  least = -mill_block_max(b, -least);
  MILL_FOR(b, e, n)
  {
    slot->guess.chisq[e] += mill_guess_penalty(m, slot, e) - least;
  }
  MILL_BARRIER(b);
}

/** Fill slot->starts from slot->guess.chisq: first the best template, then the best template at
 *  least mill_guess_apart from earlier starts, and so on.  Fixed parameters keep their value. */
MILL_BLOCK_FN void mill_block_guess_starts(mill_block *b, const mill_model *m, mill_slot *slot)
{
  int v0, v1;
  mill_guess_within(m, m->set.min_vel_km_s, m->set.max_vel_km_s, &v0, &v1);
  mill_block_guess_priors(b, m, slot);
  mill_block_guess_least(b, m, slot, v0, v1);
  MILL_SERIAL(b)
  {
    slot->starts.n = 0;
  }
  MILL_BARRIER(b);
  for (int i = 0; i < MILL_MAX_GUESS_START; i++) {
    const int taken = mill_block_guess_take(b, m, slot, mill_guess_apart(i + 1));
    if (taken < 0)
      break;
    MILL_SERIAL(b)
    {
      mill_guess_start(m, slot, taken);
    }
    MILL_BARRIER(b);
  }
}

/** Make the guess of one star.  (On a CPU cpu_backend.c guesses several stars together.) */
MILL_BLOCK_FN void mill_block_guess(mill_block *b, const mill_model *m, mill_slot *slot,
                                    mill_workspace *work)
{
  mill_block_guess_data(b, m, slot, work);
  for (int k0 = 0; k0 < m->n_templ; k0 += MILL_GUESS_LANE)
    mill_block_guess_match(b, m, k0, slot, work);
  mill_block_guess_starts(b, m, slot);
}
