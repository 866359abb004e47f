/* SPDX-License-Identifier: BSD-3-Clause */
/* Templates, likelihood and the emulator's products in float32. */
#define MILL_PRECISION     32
#define MILL_LAYER_PRODUCT MILL_ISA_SYMBOL(mill_layer_product_f32)
#include "kernels/cpu/cpu_real.h"
#include "kernels/cpu/layer_product.h"
#include "kernels/star/blocks/likelihood.h"

void MILL_ISA_SYMBOL(mill_answer_arm_f32)(mill_block *b, const mill_model *m, mill_slot *slot,
                                          int i_arm, mill_workspace *work)
{
  mill_block_arm(b, m, slot, i_arm, work);
}
