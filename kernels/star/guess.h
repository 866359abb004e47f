/** Initial guess: cross-match with a few templates over velocity bins.
 *
 *  Data and templates are divided by their own continuum fits; with n = d/c - 1,
 *  m = T/c_T - 1, w = c^2/sigma^2 summed into bins uniform in ln wavelength,
 *  chi^2(k, v) = const - 2 sum (w n) m_k(v) + sum w m_k^2(v).
 */
#ifndef MILL_GUESS_H
#define MILL_GUESS_H

#include "kernels/star/pixel.h"

/** Velocity of a shift by n_bin bins (positive: receding). */
MILL_HD static inline double mill_guess_velocity(double n_bin, double ln_step)
{
  return MILL_C_KM_S * tanh(n_bin * ln_step);
}

/** Start i, from 1 on, takes templates with labels nearer than this out of the choice, in the units
 *  of the mapping: the first ones look around, the last ones in other parts of the library. */
MILL_HD static inline double mill_guess_apart(int i)
{
  return i <= 3 ? 0.5 : i <= 5 ? 1.0 : 1.5;
}

/** Bins whose terms are added up in float32 before they join a float64 sum. */
enum { MILL_GUESS_CHUNK = 128 };

#include MILL_PRIMITIVES_GUESS

/** Add the chi^2 of one segment's bins to slot->guess_chisq. */
MILL_BLOCK_FN void mill_block_guess_match(mill_block *b, const mill_model *m,
                                          const mill_waveset *ws, mill_slot *slot)
{
  const int half = m->guess_half, nv = 2 * half + 1, n_templ = m->n_templ, n_bin = ws->n_bin;
  const size_t width = (size_t)n_bin + 2 * (size_t)half;
  const float *bin_wn = slot->bin_wn, *bin_w = slot->bin_w;
  const int n_group = (n_templ + MILL_GUESS_LANE - 1) / MILL_GUESS_LANE;
  /* observed bin i holds template bin i - shift */
  const int n_shift = nv < MILL_GUESS_SHIFTS ? 1 : MILL_GUESS_SHIFTS;
  const int n_tile = (nv + n_shift - 1) / n_shift;
  const int n_side = MILL_GUESS_LANE / MILL_GUESS_TEMPLATES;
  MILL_FOR(b, e, n_group * n_tile * n_side)
  {
    const int side = e % n_side, next = e / n_side % n_tile * n_shift, group = e / n_side / n_tile;
    const int lane = side * MILL_GUESS_TEMPLATES, k0 = group * MILL_GUESS_LANE + lane;
    /* the last tile goes over shifts again that the one before it had */
    const int v0 = next + n_shift <= nv ? next : nv - n_shift;
    if (k0 >= n_templ)
      continue;
    const float *t =
        ws->templ + lane + ((size_t)group * width + (size_t)(2 * half - v0)) * MILL_GUESS_LANE;
    double sum[MILL_GUESS_SHIFTS * MILL_GUESS_TEMPLATES];
    mill_guess_tile(n_shift, n_bin, bin_wn, bin_w, t, sum);
    MILL_UNROLL
    for (int v = 0; v < MILL_GUESS_SHIFTS; v++)
      for (int l = 0; l < MILL_GUESS_TEMPLATES; l++)
        if (v < n_shift && v0 + v >= next && k0 + l < n_templ)
          slot->guess_chisq[(k0 + l) * nv + v0 + v] += sum[v * MILL_GUESS_TEMPLATES + l];
  }
  MILL_BARRIER(b);
}

/** Data divided by its continuum fit (work->solve) and its weight, summed over the bins of
 *  a segment.  work->pixel and smooth hold [n_pix] double here. */
MILL_BLOCK_FN void mill_block_guess_bins(mill_block *b, int nk, const mill_segment *s,
                                         mill_workspace *work, mill_slot *slot)
{
  const mill_waveset *ws = s->ws;
  const int n = s->n_pix, n_chunk = (n + MILL_CHUNK - 1) / MILL_CHUNK;
  double *pixel_wn = (double *)work->pixel, *pixel_w = (double *)work->smooth;
  MILL_FOR(b, c, n_chunk)
  {
    const int first = c * MILL_CHUNK;
    const int len = n - first < MILL_CHUNK ? n - first : MILL_CHUNK;
    double model[MILL_CHUNK];
    MILL_SIMD
    for (int i = 0; i < len; i++)
      model[i] = 0.0;
    for (int k = 0; k < nk; k++) {
      const float *cont = ws->cont + (size_t)k * mill_row_pitch(n) + first;
      const double ak = work->solve[k];
      MILL_SIMD
      for (int i = 0; i < len; i++)
        model[i] += ak * (double)cont[i];
    }
    MILL_SIMD
    for (int i = 0; i < len; i++) {
      const int p = first + i, good = s->good[p];
      const double x = model[i] * s->base[p] * (double)s->is[p];
      pixel_wn[p] = good ? x * ((double)s->d[p] - x) : 0.0;
      pixel_w[p] = good ? x * x : 0.0;
    }
  }
  MILL_BARRIER(b);
  MILL_FOR(b, i, ws->n_bin)
  {
    double wn = 0.0, w = 0.0;
    for (int p = ws->bin_first[i]; p < ws->bin_first[i + 1]; p++) {
      wn += pixel_wn[p];
      w += pixel_w[p];
    }
    slot->bin_wn[i] = (float)(-2.0 * wn);
    slot->bin_w[i] = (float)w;
  }
  MILL_BARRIER(b);
}

/** The least chi^2 of each template among velocities [v0, v1) into slot->guess_least, infinite
 *  where none is finite, and its velocity into slot->guess_velocity. */
MILL_BLOCK_FN void mill_block_guess_least(mill_block *b, const mill_model *m, mill_slot *slot,
                                          int v0, int v1)
{
  const int nv = 2 * m->guess_half + 1;
  MILL_FOR(b, k, m->n_templ)
  {
    double least = INFINITY;
    int at = v0;
    for (int v = v0; v < v1; v++)
      if (slot->guess_chisq[k * nv + v] < least) {
        least = slot->guess_chisq[k * nv + v];
        at = v;
      }
    slot->guess_least[k] = least;
    slot->guess_velocity[k] = at;
  }
  MILL_BARRIER(b);
}

/** Squared distance of two guess templates in mapped labels. */
MILL_HD static inline double mill_guess_distance2(const mill_model *m, int i, int k)
{
  double sum = 0.0;
  for (int l = 0; l < m->n_label; l++) {
    const double d = mill_label_map(&m->label[l], m->guess_label[i * m->n_label + l]) -
                     mill_label_map(&m->label[l], m->guess_label[k * m->n_label + l]);
    sum += d * d;
  }
  return sum;
}

/** The first template with the least chi^2; -1: none is finite.  Templates with its labels, or
 *  labels closer than apart, are then out of the choice. */
MILL_BLOCK_FN int mill_block_guess_take(mill_block *b, const mill_model *m, mill_slot *slot,
                                        double apart)
{
  double best = INFINITY;
  int best_k = -1;
  MILL_FOR(b, k, m->n_templ)
  {
    if (slot->guess_least[k] < best) {
      best = slot->guess_least[k];
      best_k = k;
    }
  }
  /* of equal ones the first, whichever thread has it */
  const double least = -mill_block_max(b, -best);
  const double at = best_k >= 0 && best == least ? (double)best_k : INFINITY;
  const double first = -mill_block_max(b, -at);
  if (!(first < INFINITY))
    return -1;
  const int taken = (int)first, nr = m->n_guess_vsini;
  MILL_FOR(b, i, m->n_templ / nr)
  {
    if (i == taken / nr || mill_guess_distance2(m, i, taken / nr) < apart * apart)
      for (int r = 0; r < nr; r++)
        slot->guess_least[i * nr + r] = INFINITY;
  }
  MILL_BARRIER(b);
  return taken;
}

/** Start number slot->n_start from a template at its best velocity. */
MILL_HD static inline void mill_guess_start(const mill_model *m, mill_slot *slot, int templ)
{
  const int nv = 2 * m->guess_half + 1, n_label = m->n_label;
  const int i_label = templ / m->n_guess_vsini, iv = slot->guess_velocity[templ];
  const int best = templ * nv + iv;
  double at = (double)(iv - m->guess_half);
  if (iv > 0 && iv < nv - 1) {
    const double y0 = slot->guess_chisq[best - 1], y1 = slot->guess_chisq[best],
                 y2 = slot->guess_chisq[best + 1];
    const double bend = y0 - 2.0 * y1 + y2;
    if (bend > 0.0) {
      double shift = 0.5 * (y0 - y2) / bend;
      shift = shift < -0.5 ? -0.5 : (shift > 0.5 ? 0.5 : shift);
      at += shift;
    }
  }
  slot->start_chisq[slot->n_start] = slot->guess_chisq[best];
  slot->start_label[slot->n_start] = i_label;
  double *theta = slot->start[slot->n_start++];
  double v = mill_guess_velocity(at, m->guess_ln_step);
  v = v < m->set.min_vel_km_s ? m->set.min_vel_km_s : v;
  v = v > m->set.max_vel_km_s ? m->set.max_vel_km_s : v;
  double vsini = m->guess_vsini[templ % m->n_guess_vsini];
  vsini = vsini < m->set.min_vsini_km_s ? m->set.min_vsini_km_s : vsini;
  vsini = vsini > m->set.max_vsini_km_s ? m->set.max_vsini_km_s : vsini;
  theta[MILL_PAR_VRAD] = v;
  theta[MILL_PAR_VSINI] = vsini;
  for (int l = 0; l < n_label; l++)
    theta[MILL_PAR_LABEL0 + l] = m->guess_label[(size_t)i_label * (size_t)n_label + l];
  for (int j = m->n_deriv; j < m->n_par; j++)
    theta[j] = 0.0;
  for (int j = 0; j < m->n_deriv; j++)
    if (m->set.fixed[j])
      theta[j] = m->set.fixed_value[j];
}

/** Fill slot->start from all used segments: the best template, the best of those whose labels are
 *  apart from its, and so on.  Fixed parameters keep their value. */
MILL_BLOCK_FN void mill_block_guess(mill_block *b, const mill_model *m, mill_slot *slot,
                                    mill_workspace *work)
{
  const int nv = 2 * m->guess_half + 1;
  MILL_FOR(b, e, m->n_templ * nv)
  {
    slot->guess_chisq[e] = 0.0;
  }
  MILL_BARRIER(b);
  MILL_SERIAL(b)
  {
    for (int a = 0; a < MILL_MAX_ARM; a++)
      slot->arm_signal[a] = 0.0;
  }
  MILL_BARRIER(b);
  for (int i_seg = 0; i_seg < slot->n_segment; i_seg++) {
    const mill_segment *s = &slot->segment[i_seg];
    if (!s->used || s->n_good < 1)
      continue;
    const double f = mill_block_project_f32(*b, m, s, NULL, 1.0, 0.0, work);
    if (!isfinite(f))
      continue;
    /* what a continuum alone leaves, beyond noise */
    MILL_SERIAL(b)
    {
      slot->arm_signal[s->arm] += f - s->sum_ln_var - (double)s->n_good;
    }
    mill_block_guess_bins(b, s->ws->n_cont, s, work, slot);
    mill_block_guess_match(b, m, s->ws, slot);
  }

  /* velocities within the limits */
  int v0 = 0, v1 = nv;
  while (v0 < nv && mill_guess_velocity(v0 - m->guess_half, m->guess_ln_step) < m->set.min_vel_km_s)
    v0++;
  while (v1 > v0 &&
         mill_guess_velocity(v1 - 1 - m->guess_half, m->guess_ln_step) > m->set.max_vel_km_s)
    v1--;
  mill_block_guess_least(b, m, slot, v0, v1);
  MILL_SERIAL(b)
  {
    slot->n_start = 0;
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

#endif
