/* SPDX-License-Identifier: BSD-3-Clause */
/** Answer MILL_REQ_PEAK for all arms together: do the residuals of the last model look like a
 *  second star (kernels/star/logic/pair.h)? */
#pragma once

#include "kernels/star/blocks/guess.h"

/** A peak stands out if it exceeds this number times the rms of the correlation over the searched
 *  velocities.  Template errors raise the correlation at all velocities alike. */
#define MILL_PEAK_STANDS 1.2

/** Does the peak in bin i stand out (MILL_PEAK_STANDS) among the searched bins [v0, v1)?  If i is
 *  the first or last searched bin, the next bin outside must not be higher.
 *  chisq [nv]: -2 sum w n m (guess.h); the lower chisq, the higher the peak. */
MILL_HD_CALLED static inline int mill_peak_stands(const double *chisq, int nv, int v0, int v1,
                                                  int i)
{
  double sum = 0.0;
  for (int k = v0; k < v1; k++)
    sum += chisq[k] * chisq[k];
  return chisq[i] * chisq[i] * (v1 - v0) > MILL_PEAK_STANDS * MILL_PEAK_STANDS * sum &&
         !(i == v0 && i > 0 && chisq[i - 1] < chisq[i]) &&
         !(i == v1 - 1 && i < nv - 1 && chisq[i + 1] < chisq[i]);
}

/** Write sum w m^2 (MILL_BINS_SQUARE) or -2 sum w n m (MILL_BINS_RESIDUAL) to slot->guess.chisq for
 *  the group of MILL_GUESS_LANE templates m from k0 on.  n: residuals of the last model; w: their
 *  weights, with the model error of single pixels (mill_block_guess_bins). */
MILL_BLOCK_FN void mill_block_peak_match(mill_block *b, const mill_model *m, int k0,
                                         enum mill_guess_bins what, mill_slot *slot,
                                         mill_workspace *work)
{
  for (int i = 0; i < slot->n_segment; i++)
    if (mill_guess_takes(&slot->segment[i]))
      mill_block_guess_bins(b, m, 0, what, &slot->segment[i], work);
  mill_block_guess_match(b, m, k0, slot, work);
}

/** Find the velocity at which the used segments' residuals correlate best with a template of one
 *  group: the group that has the star's best guess template.  Velocities that differ from the
 *  star's by pair.least_apart to MILL_PAIR_MOST_APART are searched.  A template of free strength
 *  lowers chi^2 by (sum w n m)^2 / sum w m^2, the peak's squared significance (symbols: guess.h).
 *  Sets pair.peak (significance), peak_km_s and peak_stands (MILL_PEAK_STANDS). */
MILL_BLOCK_FN void mill_block_peak(mill_block *b, const mill_model *m, mill_slot *slot,
                                   mill_workspace *work)
{
  const int nv = 2 * m->guess_half + 1;
  const int k0 = slot->starts.label[0] * m->n_guess_vsini / MILL_GUESS_LANE * MILL_GUESS_LANE;
  const int n = m->n_templ - k0 < MILL_GUESS_LANE ? m->n_templ - k0 : MILL_GUESS_LANE;
  const double v = slot->theta[MILL_PAR_VRAD];
  const double apart = slot->pair.least_apart, most = MILL_PAIR_MOST_APART;
  int v0, v1, left, right; /* velocity bins: search from v0 to v1, without left to right */
  mill_guess_within(m, mill_within_velocities(m, v - most), mill_within_velocities(m, v + most),
                    &v0, &v1);
  mill_guess_within(m, v - apart, v + apart, &left, &right);
  mill_block_peak_match(b, m, k0, MILL_BINS_SQUARE, slot, work);
  /* guess.least: each template's mean of sum w m^2 over velocities */
  MILL_FOR(b, k, n)
  {
    double sum = 0.0;
    for (int i = v0; i < v1; i++)
      sum += slot->guess.chisq[(ptrdiff_t)(k0 + k) * nv + i];
    slot->guess.least[k0 + k] = sum / (v1 - v0);
  }
  MILL_BARRIER(b);
  mill_block_peak_match(b, m, k0, MILL_BINS_RESIDUAL, slot, work);
  /* now guess.chisq is -2 sum w n m; set guess.least to the significance of its least value */
  MILL_FOR(b, k, n)
  {
    const double *chisq = slot->guess.chisq + (ptrdiff_t)(k0 + k) * nv;
    double least = 0.0;
    for (int i = v0; i < v1; i++)
      if ((i < left || i >= right) && chisq[i] < least) {
        least = chisq[i];
        slot->guess.velocity[k0 + k] = i;
      }
    slot->guess.least[k0 + k] = -0.5 * least / sqrt(slot->guess.least[k0 + k]);
  }
  MILL_BARRIER(b);
  MILL_SERIAL(b)
  {
    slot->pair.peak = 0.0;
    for (int k = k0; k < k0 + n; k++)
      if (slot->guess.least[k] > slot->pair.peak) {
        const int i = slot->guess.velocity[k];
        slot->pair.peak = slot->guess.least[k];
        slot->pair.peak_km_s = mill_guess_velocity(i - m->guess_half, m->guess_ln_step);
        slot->pair.peak_stands =
            mill_peak_stands(slot->guess.chisq + (ptrdiff_t)k * nv, nv, v0, v1, i);
      }
  }
  MILL_BARRIER(b);
}
