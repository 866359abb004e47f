/* SPDX-License-Identifier: BSD-3-Clause */
/** Short vectors of numbers, as wide as the registers of the instruction set.
 *
 *  Compilers keep several sums in registers if the sums are vectors, but not if they are arrays.
 *  + - * work on two vectors; * also works on a number and a vector.  A GPU's vector is one number,
 *  because a thread is a lane.  Each backend's vector.h (kernels/math/primitives.h) defines:
 *
 *   mill_vec_f32, mill_vec_f64       the types, of MILL_VEC_N_F32 and MILL_VEC_N_F64 numbers,
 *                                    at any alignment: rows of a segment are not padded
 *   MILL_VEC_WIDEN(p)                a mill_vec_f64 from the floats at p
 *   mill_load_pairs_f32              gathers pairs of floats (mill_load_pairs_f64: of doubles)
 *   MILL_INLINE                      an inlined function; its loops unroll where the caller passes
 *                                    constant counts
 *   MILL_HD_INLINE                   a small function of host and device inside vector loops */
#pragma once

#include "kernels/math/block.h"

#include MILL_PRIMITIVES_VECTOR

MILL_INLINE mill_vec_f32 mill_vec_load_f32(const float *p)
{
  return *(const mill_vec_f32 *)p;
}

MILL_INLINE mill_vec_f64 mill_vec_load_f64(const float *p)
{
  return MILL_VEC_WIDEN(p);
}

/** Gather pairs of neighbours: left[i] = from[index[i]], right[i] = from[index[i] + 1]. */
MILL_INLINE void mill_load_pairs_f64(int n, const double *from, const int *index, double *left,
                                     double *right)
{
  for (int i = 0; i < n; i++) {
    left[i] = from[index[i]];
    right[i] = from[index[i] + 1];
  }
}

MILL_INLINE mill_vec_f64 mill_vec_zero_f64(void)
{
  const mill_vec_f64 zero = {0.0};
  return zero;
}

/** n rounded up to whole vectors. */
MILL_INLINE int mill_vec_padded_f64(int n)
{
  return (n + MILL_VEC_N_F64 - 1) / MILL_VEC_N_F64 * MILL_VEC_N_F64;
}

/** Sum of the elements of a vector, from first to last. */
MILL_INLINE double mill_vec_sum_f64(const mill_vec_f64 *v)
{
  const double *x = (const double *)v;
  double sum = x[0];
  for (int i = 1; i < MILL_VEC_N_F64; i++)
    sum += x[i];
  return sum;
}

MILL_INLINE void mill_vec_sums_f64(int n, const mill_vec_f64 *v, double *sum)
{
  MILL_SIMD
  for (int k = 0; k < n; k++)
    sum[k] = mill_vec_sum_f64(&v[k]);
}
