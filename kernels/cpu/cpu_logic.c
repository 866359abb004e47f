/* SPDX-License-Identifier: BSD-3-Clause */
/* The logic of a fit, which does not depend on the templates' precision. */
#include "kernels/cpu/isa.h"
#include "kernels/star/logic/fit_star.h"

void MILL_ISA_SYMBOL(mill_resume_star)(const mill_model *m, mill_slot *slot)
{
  mill_fit_resume(m, slot);
}

int MILL_ISA_SYMBOL(mill_look_ahead)(const mill_model *m, mill_slot *copy)
{
  return mill_sample_ahead(m, copy);
}

void MILL_ISA_SYMBOL(mill_take_ahead)(const mill_model *m, mill_slot *slot, const mill_slot *copy)
{
  for (int i = 0; i < slot->n_segment; i++)
    mill_answer_of(m, slot, i)[MILL_ANSWER_F] = mill_answer_of(m, copy, i)[MILL_ANSWER_F];
}
