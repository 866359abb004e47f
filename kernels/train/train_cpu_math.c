/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/train/train_cpu.h"

#include <math.h>

#include "kernels/train/train_math.h"

enum { PARTS = 8 };

#define OPS_NAME(name) name##_any
#define OPS_TARGET
#include "kernels/train/train_cpu_impl.h"
#undef OPS_NAME
#undef OPS_TARGET

#if defined(__x86_64__)
#define OPS_NAME(name) name##_avx2
#define OPS_TARGET     __attribute__((target("avx2")))
#include "kernels/train/train_cpu_impl.h"
#undef OPS_NAME
#undef OPS_TARGET
#endif

const mill_train_vectors *mill_train_vectors_here(void)
{
#define VECTORS(set)                                                                               \
  {                                                                                                \
    activate_##set, multiply_##set, sum_rows_##set, loss_##set, adam_##set                         \
  }
  static const mill_train_vectors any = VECTORS(any);
#if defined(__x86_64__)
  static const mill_train_vectors avx2 = VECTORS(avx2);
  if (__builtin_cpu_supports("avx2"))
    return &avx2;
#endif
  return &any;
}
