/* SPDX-License-Identifier: BSD-3-Clause */
/** CPU functions for float32 or float64 templates, one set of names per instruction set.
 *
 *  kernels/cpu/cpu_real_f32.c and cpu_real_f64.c define them. */
#pragma once

#include "kernels/cpu/isa.h"
#include "kernels/math/block.h"

enum {
  MILL_ROW_PITCH = MILL_MAX_WIDTH + 16 /**< not a power of two, to use all sets of the cache */
};

/** mill_block_arm (kernels/star/blocks/likelihood.h). */
typedef void mill_answer_arm(mill_block *b, const mill_model *m, mill_slot *slot, int i_arm,
                             mill_workspace *work);
mill_answer_arm MILL_ISA_SYMBOL(mill_answer_arm_f32), MILL_ISA_SYMBOL(mill_answer_arm_f64);

/** Compute a layer: out[r][0..n_out_pad) = W h[r], plus the bias where is_value[r].
 *
 *  weight                     in   W of the layer in panels (mill_layer), in the type of h
 *  h [n_row][MILL_ROW_PITCH]  in   rows of inputs
 *  out [n_row]                out  pointers to rows [layer->n_out_pad], of the bias's type */
void MILL_ISA_SYMBOL(mill_layer_product_f32)(const mill_layer *layer, const void *weight, int n_row,
                                             const float *h, const int *is_value,
                                             float *const *out);
void MILL_ISA_SYMBOL(mill_layer_product_f64)(const mill_layer *layer, const void *weight, int n_row,
                                             const double *h, const int *is_value,
                                             double *const *out);
