/* SPDX-License-Identifier: BSD-3-Clause */
/** `directions` of kernels/train/train_ops.h on a GPU. */
#ifndef MILL_TRAIN_DIRECTIONS_H
#define MILL_TRAIN_DIRECTIONS_H

#include "kernels/base/common.h"

MILL_EXTERN_C_BEGIN
int mill_train_directions_cuda(int n_row, int n_pix, const double *x, int n, double *value,
                               double *out);
MILL_EXTERN_C_END

#endif
