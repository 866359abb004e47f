/* SPDX-License-Identifier: BSD-3-Clause */
/** The type of templates: float, or double where the run's precision is float64.
 *
 *  A source file chooses by defining MILL_PRECISION as 32 or 64 before its includes; the default is
 *  64.  Sums over pixels are always float64. */
#pragma once

#include "kernels/math/vector.h"

#ifndef MILL_PRECISION
#define MILL_PRECISION 64
#endif

#if MILL_PRECISION == 32
typedef float mill_real;
typedef mill_vec_f32 mill_vec_real;
#define MILL_WIDE            0
#define MILL_VEC_N           MILL_VEC_N_F32
#define mill_vec_load_real   mill_vec_load_f32
#define mill_load_pairs_real mill_load_pairs_f32
#else
typedef double mill_real;
typedef mill_vec_f64 mill_vec_real;
#define MILL_WIDE            1
#define MILL_VEC_N           MILL_VEC_N_F64
#define mill_vec_load_real   mill_vec_load_f64
#define mill_load_pairs_real mill_load_pairs_f64
#endif

/** Store a thread's batch x (block.h), which begins at element first, in a row of n numbers. */
MILL_INLINE void mill_put_batch(mill_block *b, int first, int n, const mill_real *x, mill_real *row)
{
  const int len = MILL_BATCH_LEN(first, n);
  (void)b; /* a CPU's loop has no use for it */
  MILL_SIMD
  for (int i = 0; i < len; i++)
    if (MILL_BATCH_HAS(b, first, i, n))
      row[MILL_BATCH_AT(b, first, i, n)] = x[i];
}
