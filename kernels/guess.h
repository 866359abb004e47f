/** Initial guess: cross-match with a few templates over velocity bins.
 *
 *  Data and templates are divided by their own continuum fits; with n = d/c - 1,
 *  m = T/c_T - 1, w = c^2/sigma^2 summed into bins uniform in ln wavelength,
 *  chi^2(k, v) = const - 2 sum (w n) m_k(v) + sum w m_k^2(v).
 */
#ifndef MILL_GUESS_H
#define MILL_GUESS_H

#include "kernels/pixel.h"

/** Velocity of a shift by n_bin bins (positive: receding). */
MILL_HD static inline double mill_guess_velocity(double n_bin, double ln_step)
{
  return MILL_C_KM_S * tanh(n_bin * ln_step);
}

/** Fill slot->start from all used segments; slot->n_start = 1 or 2, the second
 *  from the best template with other labels.  Fixed parameters keep their value. */
MILL_BLOCK_FN void mill_block_guess(mill_block *b, const mill_model *m, mill_slot *slot,
                                    mill_work *work)
{
  const int nv = 2 * m->guess_half + 1, n_templ = m->n_templ, nk = m->set.n_cont;
  MILL_FOR(b, e, n_templ * nv)
  {
    slot->guess_chisq[e] = 0.0;
  }
  MILL_BARRIER(b);

  for (int i_seg = 0; i_seg < slot->n_segment; i_seg++) {
    const mill_segment *s = &slot->segment[i_seg];
    if (!s->used || s->n_good < 1)
      continue;
    const mill_waveset *ws = s->ws;
    if (!isfinite(mill_block_project_f32(b, m, s, NULL, 1.0, 0.0, work)))
      continue;
    MILL_FOR(b, i, ws->n_bin)
    {
      double wn = 0.0, w = 0.0;
      for (int p = ws->bin_first[i]; p < ws->bin_first[i + 1]; p++)
        if (s->good[p]) {
          double c = 0.0;
          for (int k = 0; k < nk; k++)
            c += work->solve[k] * (double)ws->cont[(size_t)k * s->n_pix + p];
          c *= s->base[p] * (double)s->is[p];
          wn += c * ((double)s->d[p] - c);
          w += c * c;
        }
      slot->bin_wn[i] = (float)(-2.0 * wn);
      slot->bin_w[i] = (float)w;
    }
    MILL_BARRIER(b);
    const int n_bin = ws->n_bin, width = n_bin + 2 * m->guess_half;
    const float *bin_wn = slot->bin_wn, *bin_w = slot->bin_w;
    MILL_FOR(b, e, n_templ * nv)
    {
      /* observed bin i holds template bin i - shift */
      const int k = e / nv, shift = e % nv - m->guess_half;
      const float *t = ws->templ + (size_t)k * (size_t)width + m->guess_half - shift;
      float sum = 0.0f;
      MILL_SIMD_SUM(sum)
      for (int i = 0; i < n_bin; i++)
        sum += t[i] * (bin_wn[i] + bin_w[i] * t[i]);
      slot->guess_chisq[e] += (double)sum;
    }
    MILL_BARRIER(b);
  }

  MILL_SERIAL(b)
  {
    const int n_label = m->n_label;
    slot->n_start = 0;
    int first_label = -1;
    for (int i_start = 0; i_start < 2; i_start++) {
      double best = INFINITY;
      int best_e = -1;
      for (int e = 0; e < n_templ * nv; e++) {
        if (e / nv / m->n_guess_vsini == first_label)
          continue;
        const double v = mill_guess_velocity(e % nv - m->guess_half, m->guess_ln_step);
        if (v < m->set.min_vel_km_s || v > m->set.max_vel_km_s)
          continue;
        if (slot->guess_chisq[e] < best) {
          best = slot->guess_chisq[e];
          best_e = e;
        }
      }
      if (best_e < 0)
        break;
      const int templ = best_e / nv, i_label = templ / m->n_guess_vsini, iv = best_e % nv;
      double at = (double)(iv - m->guess_half);
      if (iv > 0 && iv < nv - 1) {
        const double y0 = slot->guess_chisq[best_e - 1], y1 = slot->guess_chisq[best_e],
                     y2 = slot->guess_chisq[best_e + 1];
        const double bend = y0 - 2.0 * y1 + y2;
        if (bend > 0.0) {
          double shift = 0.5 * (y0 - y2) / bend;
          shift = shift < -0.5 ? -0.5 : (shift > 0.5 ? 0.5 : shift);
          at += shift;
        }
      }
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
      for (int j = 0; j < m->n_par; j++)
        if (m->set.fixed[j])
          theta[j] = m->set.fixed_value[j];
      first_label = i_label;
    }
  }
  MILL_BARRIER(b);
}

#endif
