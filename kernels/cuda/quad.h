/* SPDX-License-Identifier: BSD-3-Clause */
/** Four neighbouring numbers of a row, which a GPU's thread loads and stores together. */
#pragma once

#include "kernels/math/real.h"

typedef struct mill_quad {
  __align__(16) mill_real v[4];
} mill_quad;

/** Load four numbers; x is aligned to four. */
MILL_INLINE mill_quad mill_quad_at(const mill_real *x)
{
  return *(const mill_quad *)(const void *)x;
}

MILL_INLINE void mill_quad_put(const mill_quad *q, mill_real *to)
{
  *(mill_quad *)(void *)to = *q;
}

/** Store into global memory by one instruction; nvcc might split a plain store. */
MILL_INLINE void mill_quad_put_global(const mill_quad *q, mill_real *to)
{
#if defined(__CUDA_ARCH__) && !MILL_WIDE
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
               "f"(q->v[0]), "f"(q->v[1]), "f"(q->v[2]), "f"(q->v[3])
               : "memory");
#else
  mill_quad_put(q, to);
#endif
}
