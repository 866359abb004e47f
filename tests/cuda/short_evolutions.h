/* SPDX-License-Identifier: BSD-3-Clause */
/** Evolutions of few particles by every kernel of a GPU. */
#pragma once

#include "tests/kernels/particles/evolution.h"

enum { N_SHORT = 130 }; /* two parts; strides of 64, 64 and 4 steps with the start */

static inline void problems_of(evolution *e, int form)
{
  evolution_init(e, 1, N_SHORT, 2 * 64 + 3, 1e-3);
  e->s.form = form;
  e->n_problem = MAX_PROBLEM;
  for (int i = 0; i < MAX_PROBLEM; i++)
    e->problem[i].start_spread[0] = 0.5;
}

static inline void assert_same_bits(const evolution *a, int i, const evolution *b, int k)
{
  const size_t n_moment = (size_t)(a->s.n_step + 1) * MILL_PARTICLE_MOMENTS;
  const mill_particle_result *x = &a->result[i], *y = &b->result[k];
  assert_memory_equal(x->position, y->position, N_SHORT * sizeof(double));
  assert_memory_equal(x->density, y->density, (size_t)a->n_grid * sizeof(double));
  assert_memory_equal(x->moment, y->moment, n_moment * sizeof(double));
}
