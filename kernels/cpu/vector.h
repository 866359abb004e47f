/* SPDX-License-Identifier: BSD-3-Clause */
/** The vectors of a CPU.  Included by kernels/math/vector.h, which explains the names. */
#pragma once

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
/* GCC turns __builtin_convertvector into five instructions; the processor has one. */
#if defined(__AVX512F__)
#define MILL_VEC_WIDEN(p) ((mill_vec_f64)_mm512_cvtps_pd(_mm256_loadu_ps(p)))
#elif defined(__AVX__)
#define MILL_VEC_WIDEN(p) ((mill_vec_f64)_mm256_cvtps_pd(_mm_loadu_ps(p)))
#else
#define MILL_VEC_WIDEN(p) __builtin_convertvector(*(const mill_vec_half *)(p), mill_vec_f64)
#endif
#define MILL_INLINE    static inline __attribute__((always_inline))
#define MILL_HD_INLINE MILL_INLINE

/* A pair (two neighbouring floats) loads as one double.  A vector has the pairs 0, 1, 4, 5 ... or
 * 2, 3, 6, 7 ..., so that MILL_SHUFFLE stays within 128 bits. */
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

/* Sum the lanes of several vectors by folds.  MILL_FOLD(h) makes one vector of two, a and b.  In
 * each group of 2 h lanes, the first h get partial sums of a, the other h partial sums of b. */
#define MILL_FOLD_LOW(h, l)                                                                        \
  ((l) / (h) % 2 * (int)MILL_VEC_N_F32 + (l) / (2 * (h)) * 2 * (h) + (l) % (h))
#define MILL_FOLD_HIGH(h, l) (MILL_FOLD_LOW(h, l) + (h))
#if MILL_VEC_BYTES == 64
#define MILL_FOLD_LANES(f, h)                                                                      \
  f(h, 0), f(h, 1), f(h, 2), f(h, 3), f(h, 4), f(h, 5), f(h, 6), f(h, 7), f(h, 8), f(h, 9),        \
      f(h, 10), f(h, 11), f(h, 12), f(h, 13), f(h, 14), f(h, 15)
#elif MILL_VEC_BYTES == 32
#define MILL_FOLD_LANES(f, h) f(h, 0), f(h, 1), f(h, 2), f(h, 3), f(h, 4), f(h, 5), f(h, 6), f(h, 7)
#else
#define MILL_FOLD_LANES(f, h) f(h, 0), f(h, 1), f(h, 2), f(h, 3)
#endif
#define MILL_FOLD(h)                                                                               \
  _Pragma("GCC unroll 8") for (int i = 0; i < (h); i++)                                            \
  {                                                                                                \
    v[i] = MILL_SHUFFLE(v[i], v[i + (h)], MILL_FOLD_LANES(MILL_FOLD_LOW, h)) +                     \
           MILL_SHUFFLE(v[i], v[i + (h)], MILL_FOLD_LANES(MILL_FOLD_HIGH, h));                     \
  }

/** Return a vector whose element i is the sum of v[i].  v [MILL_VEC_N_F32] is overwritten. */
MILL_INLINE mill_vec_f32 mill_vec_fold_f32(mill_vec_f32 *v)
{
#if MILL_VEC_BYTES == 64
  MILL_FOLD(8)
#endif
#if MILL_VEC_BYTES >= 32
  MILL_FOLD(4)
#endif
  MILL_FOLD(2)
  MILL_FOLD(1)
  return v[0];
}

MILL_INLINE double mill_pair_at(const float *from)
{
  double pair;
  memcpy(&pair, from, sizeof pair);
  return pair;
}

/** Set left[i] to from[index[i]] and right[i] to the number after it, for i < n. */
MILL_INLINE void mill_load_pairs_f32(int n, const float *from, const int *index, float *left,
                                     float *right)
{
#define MILL_PAIR_OF(i) mill_pair_at(from + index[i])
  int i = 0;
  /* load each pair of floats as one double; then separate left and right numbers */
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
