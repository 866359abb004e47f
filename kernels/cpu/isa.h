/* SPDX-License-Identifier: BSD-3-Clause */
/** CMake compiles kernels/cpu/cpu_*.c once per instruction set.  Function names end in MILL_ISA,
 *  such as x86_64_v3.  MILL_ISA_NAME is the name of the instruction set, such as "x86-64-v3".
 *
 *  Below: the logic of a fit (kernels/star/logic) as the CPU backend calls it. */
#pragma once

#include "kernels/star/slot.h"

#define MILL_ISA_PASTE2(a, b) a##_##b
#define MILL_ISA_PASTE(a, b)  MILL_ISA_PASTE2(a, b)
#define MILL_ISA_SYMBOL(name) MILL_ISA_PASTE(name, MILL_ISA)

/** mill_fit_resume (kernels/star/logic/fit_star.h). */
void MILL_ISA_SYMBOL(mill_resume_star)(const mill_model *m, mill_slot *slot);

/** mill_sample_ahead (kernels/star/logic/sample.h). */
int MILL_ISA_SYMBOL(mill_look_ahead)(const mill_model *m, mill_slot *copy);
/** Copy F of each segment from `copy`, for which mill_look_ahead requested it at slot's point. */
void MILL_ISA_SYMBOL(mill_take_ahead)(const mill_model *m, mill_slot *slot, const mill_slot *copy);
