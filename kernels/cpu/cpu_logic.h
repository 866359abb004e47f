/* SPDX-License-Identifier: BSD-3-Clause */
/** The logic of a fit (kernels/star/logic) as the CPU backend calls it, one set of names per
 *  instruction set. */
#pragma once

#include "kernels/cpu/isa.h"
#include "kernels/star/slot.h"

/** mill_fit_resume (kernels/star/logic/fit_star.h). */
void MILL_ISA_SYMBOL(mill_resume_star)(const mill_model *m, mill_slot *slot);

/** mill_sample_ahead (kernels/star/logic/sample.h). */
int MILL_ISA_SYMBOL(mill_look_ahead)(const mill_model *m, mill_slot *copy);

/** mill_sample_take (kernels/star/logic/sample.h). */
void MILL_ISA_SYMBOL(mill_take_ahead)(const mill_model *m, mill_slot *slot, const mill_slot *copy);
