/* SPDX-License-Identifier: BSD-3-Clause */
/** Evolutions of few particles that run every particle kernel of a GPU. */
#pragma once

#include "tests/kernels/particles/evolution.h"

enum { N_SHORT = 130 }; /* two parts; start and 131 steps make strides of 64, 64 and 4 */

static inline void problems_of(evolution *e, int form)
{
  evolution_init(e, 1, N_SHORT, 2 * 64 + 3, 1e-3);
  e->s.form = form;
  e->n_problem = MAX_PROBLEM;
  for (int i = 0; i < MAX_PROBLEM; i++)
    e->problem[i].start_spread[0] = 0.5;
}
