/** Short vectors of numbers, as wide as the registers of the instruction set.
 *
 *  For loops that must keep several sums in registers, which compilers do not find in
 *  plain loops over arrays.  + - * work on vectors and on a number times a vector.  On
 *  CUDA a vector is one number, because a thread is a lane.
 */
#ifndef MILL_VECTOR_H
#define MILL_VECTOR_H

#include "kernels/math/block.h"

#if defined(__CUDACC__)

typedef float mill_vec_f32;
typedef double mill_vec_f64;
enum { MILL_VEC_N_F32 = 1, MILL_VEC_N_F64 = 1 };
#define MILL_INLINE       static __device__ __forceinline__
#define MILL_VEC_WIDEN(p) ((double)*(p))
/** For small functions of host and device inside vector loops. */
#define MILL_HD_INLINE MILL_HD static __forceinline__

#else

#if defined(__AVX512F__)
#define MILL_VEC_BYTES 64
#elif defined(__AVX__)
#define MILL_VEC_BYTES 32
#else
#define MILL_VEC_BYTES 16
#endif

/* of any alignment: rows of a segment are not padded */
typedef float mill_vec_f32 __attribute__((vector_size(MILL_VEC_BYTES), aligned(4)));
typedef double mill_vec_f64 __attribute__((vector_size(MILL_VEC_BYTES), aligned(8)));
typedef float mill_vec_half __attribute__((vector_size(MILL_VEC_BYTES / 2), aligned(4)));
enum { MILL_VEC_N_F32 = MILL_VEC_BYTES / 4, MILL_VEC_N_F64 = MILL_VEC_BYTES / 8 };
#define MILL_VEC_WIDEN(p) __builtin_convertvector(*(const mill_vec_half *)(p), mill_vec_f64)
/** So that counts which are constants for the caller unroll loops. */
#define MILL_INLINE       static inline __attribute__((always_inline))
#define MILL_HD_INLINE    MILL_INLINE

#endif

/** As many numbers as a vector has, from float32. */
MILL_INLINE mill_vec_f32 mill_vec_load_f32(const float *p)
{
  return *(const mill_vec_f32 *)p;
}

MILL_INLINE mill_vec_f64 mill_vec_load_f64(const float *p)
{
  return MILL_VEC_WIDEN(p);
}

/** Lengths are made whole vectors with zeros. */
MILL_INLINE int mill_vec_padded_f64(int n)
{
  return (n + MILL_VEC_N_F64 - 1) / MILL_VEC_N_F64 * MILL_VEC_N_F64;
}

/** Sum of the numbers of a vector, in turn. */
MILL_INLINE double mill_vec_sum_f64(const mill_vec_f64 *v)
{
  const double *x = (const double *)v;
  double sum = x[0];
  for (int i = 1; i < MILL_VEC_N_F64; i++)
    sum += x[i];
  return sum;
}

#endif
