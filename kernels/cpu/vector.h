/** The vectors of a CPU.  Included by kernels/math/vector.h, which explains the names. */
#ifndef MILL_CPU_VECTOR_H
#define MILL_CPU_VECTOR_H

#include <string.h>

#if defined(__AVX512F__)
#define MILL_VEC_BYTES 64
#elif defined(__AVX__)
#define MILL_VEC_BYTES 32
#else
#define MILL_VEC_BYTES 16
#endif

typedef float mill_vec_f32 __attribute__((vector_size(MILL_VEC_BYTES), aligned(4)));
typedef double mill_vec_f64 __attribute__((vector_size(MILL_VEC_BYTES), aligned(8)));
typedef float mill_vec_half __attribute__((vector_size(MILL_VEC_BYTES / 2), aligned(4)));
enum {
  MILL_VEC_N_F32 = MILL_VEC_BYTES / 4,
  MILL_VEC_N_F64 = MILL_VEC_BYTES / 8,
  MILL_CONVOLVE_VECS = 4
};
#define MILL_VEC_WIDEN(p) __builtin_convertvector(*(const mill_vec_half *)(p), mill_vec_f64)
/* one copy is quicker than to gather the two numbers one by one */
#define MILL_LOAD_PAIR(to, from) memcpy((to), (from), 2 * sizeof *(from))
#define MILL_INLINE              static inline __attribute__((always_inline))
#define MILL_HD_INLINE           MILL_INLINE

#endif
