/* SPDX-License-Identifier: BSD-3-Clause */
/** The vectors of a CPU.  Included by kernels/math/vector.h, which explains the names. */
#ifndef MILL_CPU_VECTOR_H
#define MILL_CPU_VECTOR_H

#include <string.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

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
enum { MILL_VEC_N_F32 = MILL_VEC_BYTES / 4, MILL_VEC_N_F64 = MILL_VEC_BYTES / 8 };
/* GCC makes five instructions of __builtin_convertvector where the processor has one. */
#if defined(__AVX512F__)
#define MILL_VEC_WIDEN(p) ((mill_vec_f64)_mm512_cvtps_pd(_mm256_loadu_ps(p)))
#elif defined(__AVX__)
#define MILL_VEC_WIDEN(p) ((mill_vec_f64)_mm256_cvtps_pd(_mm_loadu_ps(p)))
#else
#define MILL_VEC_WIDEN(p) __builtin_convertvector(*(const mill_vec_half *)(p), mill_vec_f64)
#endif
#define MILL_INLINE    static inline __attribute__((always_inline))
#define MILL_HD_INLINE MILL_INLINE

/* Two neighbouring floats are loaded as one double.  Half of the pairs lie in one vector and half
 * in another, such that each part of 128 bits holds what the same part of the results is made of.
 */
typedef double mill_vec_pair __attribute__((vector_size(MILL_VEC_BYTES)));
typedef float mill_vec_ends __attribute__((vector_size(MILL_VEC_BYTES)));
#if MILL_VEC_BYTES == 64
#define MILL_PAIRS(at, p)                                                                          \
  {                                                                                                \
    at(p), at(p + 1), at(p + 4), at(p + 5), at(p + 8), at(p + 9), at(p + 12), at(p + 13)           \
  }
#define MILL_ENDS(e)                                                                               \
  e, e + 2, e + 16, e + 18, e + 4, e + 6, e + 20, e + 22, e + 8, e + 10, e + 24, e + 26, e + 12,   \
      e + 14, e + 28, e + 30
#elif MILL_VEC_BYTES == 32
#define MILL_PAIRS(at, p)                                                                          \
  {                                                                                                \
    at(p), at(p + 1), at(p + 4), at(p + 5)                                                         \
  }
#define MILL_ENDS(e) e, e + 2, e + 8, e + 10, e + 4, e + 6, e + 12, e + 14
#else
#define MILL_PAIRS(at, p)                                                                          \
  {                                                                                                \
    at(p), at(p + 1)                                                                               \
  }
#define MILL_ENDS(e) e, e + 2, e + 4, e + 6
#endif
#if defined(__clang__)
#define MILL_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int mill_vec_lanes __attribute__((vector_size(MILL_VEC_BYTES)));
#define MILL_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (mill_vec_lanes){__VA_ARGS__})
#endif

MILL_INLINE double mill_pair_at(const float *from)
{
  double pair;
  memcpy(&pair, from, sizeof pair);
  return pair;
}

MILL_INLINE void mill_load_pairs_f32(int n, const float *from, const int *index, float *left,
                                     float *right)
{
#define MILL_PAIR_OF(i) mill_pair_at(from + index[i])
  int i = 0;
  for (; i + MILL_VEC_N_F32 <= n; i += MILL_VEC_N_F32) {
    const mill_vec_pair first = MILL_PAIRS(MILL_PAIR_OF, i),
                        second = MILL_PAIRS(MILL_PAIR_OF, i + 2);
    const mill_vec_ends a = (mill_vec_ends)first, b = (mill_vec_ends)second;
    *(mill_vec_f32 *)(left + i) = MILL_SHUFFLE(a, b, MILL_ENDS(0));
    *(mill_vec_f32 *)(right + i) = MILL_SHUFFLE(a, b, MILL_ENDS(1));
  }
#undef MILL_PAIR_OF
  for (; i < n; i++) {
    left[i] = from[index[i]];
    right[i] = from[index[i] + 1];
  }
}

#endif
