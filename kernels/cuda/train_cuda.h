/* SPDX-License-Identifier: BSD-3-Clause */
/** Training on a GPU: kernels/train/train_ops.h by cuBLAS and a few kernels. */
#ifndef MILL_TRAIN_CUDA_H
#define MILL_TRAIN_CUDA_H

#include "kernels/train/train_ops.h"

MILL_EXTERN_C_BEGIN

/** The functions, once the GPU of this rank (mill_gpu_assign; without it the first one) has been
 *  opened and cuBLAS found; NULL with *err: MILL_ERR_CONFIG where one of them is not here,
 *  MILL_ERR_BACKEND. */
const mill_train_ops *mill_train_ops_cuda(int *err);

MILL_EXTERN_C_END

#endif
