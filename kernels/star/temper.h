/* SPDX-License-Identifier: BSD-3-Clause */
/** Parallel tempering of a star's ensemble, and the evidence.
 *
 *  At power b of the likelihood walkers sample exp(-b F_L / 2 - F_P / 2), F_P being the priors and
 *  the hull penalty: 1 is the posterior, 0 the priors.  Walkers of neighbours trade places (Geyer
 *  1991; Earl & Deem 2005, Phys. Chem. Chem. Phys. 7, 3910), and the ratios of the neighbours'
 *  integrals make the evidence (stepping stones: Xie et al. 2011, Syst. Biol. 60, 150).  Serial
 *  code, run by one thread of a star's block (docs/science/numerics.md, "Posteriors").
 */
#ifndef MILL_TEMPER_H
#define MILL_TEMPER_H

#include "kernels/star/walkers.h"

enum { MILL_TEMPER_BATCH = 8 /**< of sweeps, from which the evidence has its error */ };

/** The powers: from 1 to where the best F_L and that of a bare continuum differ by the number of
 *  free parameters in geometric steps, then 0. */
MILL_HD_CALLED static inline void mill_temper_ladder(const mill_model *m, mill_slot *slot)
{
  const int n = mill_n_temperature(&m->set.sample);
  const double n_free = (double)slot->n_free;
  const double gain = slot->result.chisq_c_tot - slot->result.chisq_tot;
  const double least = gain > 2.0 * n_free ? n_free / gain : 0.5;
  for (int t = 0; t < n; t++)
    slot->sample.ladder[t] =
        t == 0 ? 1.0 : (t == n - 1 ? 0.0 : pow(least, (double)t / (double)(n - 2)));
}

/** Power of the likelihood of a walker. */
MILL_HD static inline double mill_temper_power(const mill_model *m, const mill_slot *slot, int i)
{
  return slot->sample.ladder[i / m->set.sample.n_walker];
}

/** A place drawn from about where the priors are, of a parameter as it is: in its
 *  range, or in its Gaussian prior, which an offset always has.  z: a standard normal. */
MILL_HD_CALLED static inline double mill_temper_prior(const mill_model *m, const mill_slot *slot,
                                                      int j, double z)
{
  double lo, hi;
  mill_sample_range(m, j, &lo, &hi);
  if (mill_prior_sigma(m, slot, j) > 0.0)
    return mill_prior_mean(m, slot, j) + z * mill_prior_sigma(m, slot, j);
  return lo + (hi - lo) * 0.5 * erfc(-z * 0.70710678118654752);
}

/** F_L of a walker. */
MILL_HD static inline double mill_temper_f(const mill_slot *slot, int i)
{
  return slot->sample.walker_f[i] - slot->sample.walker_penalty[i];
}

/** Two walkers trade places; their gradients are forgotten. */
MILL_HD_CALLED static inline void mill_temper_trade(const mill_model *m, mill_slot *slot, int a,
                                                    int b)
{
  double *x = mill_sample_walker(slot, a), *y = mill_sample_walker(slot, b);
  const double f = slot->sample.walker_f[a], penalty = slot->sample.walker_penalty[a];
  for (int k = 0; k < slot->n_free; k++) {
    const double keep = x[k];
    x[k] = y[k];
    y[k] = keep;
  }
  slot->sample.walker_f[a] = slot->sample.walker_f[b];
  slot->sample.walker_f[b] = f;
  slot->sample.walker_penalty[a] = slot->sample.walker_penalty[b];
  slot->sample.walker_penalty[b] = penalty;
  if ((m->set.sample.moves & MILL_MOVE_LANGEVIN) != 0 && a < m->set.sample.n_walker)
    mill_sample_gradient(slot, a)[0] = (double)NAN;
}

/** After a sweep: each walker may trade places with one of the next temperature, from the priors
 *  down. */
MILL_HD_CALLED static inline void mill_temper_swap(const mill_model *m, mill_slot *slot)
{
  const int n = m->set.sample.n_walker;
  const double *power = slot->sample.ladder;
  for (int t = mill_n_temperature(&m->set.sample) - 2; t >= 0; t--) {
    slot->sample.i_walker = t * n;
    const int shift = mill_sample_one_of(mill_sample_words(m, slot, MILL_DRAW_SWAP).v[2], n);
    for (int w = 0; w < n; w++) {
      const int a = t * n + w, b = (t + 1) * n + (w + shift) % n;
      slot->sample.i_walker = a;
      const mill_counter_words words = mill_sample_words(m, slot, MILL_DRAW_SWAP);
      const double gain = mill_temper_f(slot, a) - mill_temper_f(slot, b);
      if (0.5 * (power[t] - power[t + 1]) * gain >
          log(mill_counter_uniform(words.v[0], words.v[1])))
        mill_temper_trade(m, slot, a, b);
    }
  }
  slot->sample.i_walker = 0;
}

/** Means over the walkers of each temperature of what makes the ratio of its integral to the one
 *  before, as kept sweep number i. */
MILL_HD_CALLED static inline void mill_temper_keep_stone(const mill_model *m, mill_slot *slot,
                                                         int i)
{
  const int n = m->set.sample.n_walker, n_stone = mill_n_temperature(&m->set.sample) - 1;
  for (int t = 0; t < n_stone; t++) {
    const double step = slot->sample.ladder[t] - slot->sample.ladder[t + 1];
    double sum = 0.0;
    for (int w = (t + 1) * n; w < (t + 2) * n; w++)
      sum += exp(-0.5 * step * (mill_temper_f(slot, w) - slot->result.m2ll));
    slot->sample.stone[(size_t)i * (size_t)n_stone + (size_t)t] = sum / (double)n;
  }
}

MILL_HD static inline void mill_temper_move_stone(const mill_model *m, mill_slot *slot, int from,
                                                  int to)
{
  const size_t n_stone = (size_t)mill_n_temperature(&m->set.sample) - 1;
  for (size_t t = 0; t < n_stone; t++)
    slot->sample.stone[(size_t)to * n_stone + t] = slot->sample.stone[(size_t)from * n_stone + t];
}

/** ln of the evidence from the kept sweeps from `first` on, and its error from the scatter of
 *  batches of them; left alone without temperatures or with fewer sweeps than batches. */
MILL_HD_CALLED static inline void mill_temper_evidence(const mill_model *m, const mill_slot *slot,
                                                       int first, double *ln_z, double *error)
{
  const int n_stone = mill_n_temperature(&m->set.sample) - 1;
  const int n = (slot->sample.n_kept - first) / MILL_TEMPER_BATCH;
  if (n_stone == 0 || n == 0)
    return;
  double sum_ln = 0.0, var = 0.0;
  for (int t = 0; t < n_stone; t++) {
    double sum = 0.0, sum2 = 0.0;
    for (int b = 0; b < MILL_TEMPER_BATCH; b++) {
      double batch = 0.0;
      for (int i = first + b * n; i < first + (b + 1) * n; i++)
        batch += slot->sample.stone[(size_t)i * (size_t)n_stone + (size_t)t] / (double)n;
      sum += batch;
      sum2 += batch * batch;
    }
    const double mean = sum / MILL_TEMPER_BATCH;
    if (!(mean > 0.0)) /* the ladder's last step is too long for numbers */
      return;
    const double scatter = sum2 / MILL_TEMPER_BATCH - mean * mean;
    sum_ln += log(mean);
    var += (scatter > 0.0 ? scatter : 0.0) / (mean * mean * (MILL_TEMPER_BATCH - 1));
  }
  *ln_z = sum_ln - 0.5 * slot->result.m2ll;
  *error = sqrt(var);
}

#endif
