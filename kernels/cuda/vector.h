/* SPDX-License-Identifier: BSD-3-Clause */
/** The vectors of a GPU: numbers.  Included by kernels/math/vector.h, which explains the names. */
#pragma once

typedef float mill_vec_f32;
typedef double mill_vec_f64;
enum { MILL_VEC_N_F32 = 1, MILL_VEC_N_F64 = 1 };
#define MILL_VEC_WIDEN(p) ((double)*(p))
#define MILL_INLINE       static __device__ __forceinline__
#define MILL_HD_INLINE    MILL_HD static __forceinline__

MILL_INLINE void mill_load_pairs_f32(int n, const float *from, const int *index, float *left,
                                     float *right)
{
  for (int i = 0; i < n; i++) {
    left[i] = from[index[i]];
    right[i] = from[index[i] + 1];
  }
}
