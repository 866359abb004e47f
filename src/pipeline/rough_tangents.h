/* SPDX-License-Identifier: BSD-3-Clause */
/** Tangents of an emulator in fewer directions: the span of its templates' tangents.
 *
 *  The last layer takes n_in numbers to pixels.  Tangents of templates lie near a space of far
 *  fewer dimensions, in which they are made while a fit is still far from its end.  Its axes are
 *  those of the guess templates' tangents in pixels, each of length one, by Gram and Schmidt's
 *  method with the tangent that is farthest from the axes before it as the next one, for labels of
 *  any unit.
 *
 *  No BLAS: OpenBLAS would want 128 MiB in every fit. */
#ifndef MILL_ROUGH_TANGENTS_H
#define MILL_ROUGH_TANGENTS_H

#include "kernels/data/library.h"

/** A tangent h [n_in] is nearly sum_i (down_i . h) up_i. */
typedef struct mill_rough_axes {
  int n;       /**< axes; 0: none, as they would save nothing */
  float *down; /**< [n][n_in], owned */
  float *up;   /**< [n][n_in] inputs of the last layer, owned */
} mill_rough_axes;

/** Find the axes for the last layer of an emulator.
 *
 *  mean      in   mean of its weights over pixels, [n_in]
 *  n, input  in   tangents of templates, [n][n_in] inputs of that layer
 *  out       out  to be given to mill_rough_axes_clear, after an error too
 *
 *  MILL_ERR_MEMORY. */
int mill_rough_axes_find(const mill_emulator *e, const double *mean, int n, const float *input,
                         mill_rough_axes *out);

void mill_rough_axes_clear(mill_rough_axes *axes);

#endif
