/* SPDX-License-Identifier: BSD-3-Clause */
/** Sums over pixels of the products of all pairs of rows, float64: the elements of normal matrices.
 *
 *  A tile of rows times rows keeps its sums in registers during one pass over a chunk of pixels, so
 *  that each number loaded serves several sums. */
#pragma once

#include "kernels/math/linalg.h"
#include "kernels/math/vector.h"

#if defined(__AVX512F__)
enum { MILL_GRAM_TILE = 4 }; /* of 32 registers 16 hold sums, 4 + 1 factors */
#else
enum { MILL_GRAM_TILE = 3 }; /* of 16 registers 9 hold sums, 3 + 1 factors */
#endif

/** Add row r of x [nr] times row c of z [nc] to sum[r][at[c]], for all r and c if `whole` is 1,
 *  else for c <= r.  A variable for each sum keeps the sums in registers. */
MILL_INLINE void mill_gram_tile(const int nr, const int nc, const int whole, int len, int pitch,
                                const double *x, const double *z, const int *at,
                                mill_vec_f64 *const *sum)
{
/* clang-format off */
#define MILL_GRAM_ALL(DO)                                                                          \
  DO(0, 0) DO(0, 1) DO(0, 2) DO(0, 3) DO(1, 0) DO(1, 1) DO(1, 2) DO(1, 3)                          \
  DO(2, 0) DO(2, 1) DO(2, 2) DO(2, 3) DO(3, 0) DO(3, 1) DO(3, 2) DO(3, 3)
/* clang-format on */
#define MILL_GRAM_HAS(r, c)  ((r) < nr && (c) < nc && (whole || (c) <= (r)))
#define MILL_GRAM_ZERO(r, c) mill_vec_f64 s##r##c = zero;
#define MILL_GRAM_ADD(r, c)                                                                        \
  if (MILL_GRAM_HAS(r, c))                                                                         \
    s##r##c += x##r * z##c;
#define MILL_GRAM_PUT(r, c)                                                                        \
  if (MILL_GRAM_HAS(r, c))                                                                         \
    sum[r][at[c]] += s##r##c;
#define MILL_GRAM_ROW(n, rows, k) (k) < (n) ? *(const mill_vec_f64 *)((rows) + (k)*pitch + i) : zero
  const mill_vec_f64 zero = {0};
  MILL_GRAM_ALL(MILL_GRAM_ZERO)
  for (int i = 0; i < len; i += MILL_VEC_N_F64) {
    const mill_vec_f64 z0 = MILL_GRAM_ROW(nc, z, 0), z1 = MILL_GRAM_ROW(nc, z, 1);
    const mill_vec_f64 z2 = MILL_GRAM_ROW(nc, z, 2), z3 = MILL_GRAM_ROW(nc, z, 3);
    const mill_vec_f64 x0 = MILL_GRAM_ROW(nr, x, 0), x1 = MILL_GRAM_ROW(nr, x, 1);
    const mill_vec_f64 x2 = MILL_GRAM_ROW(nr, x, 2), x3 = MILL_GRAM_ROW(nr, x, 3);
    MILL_GRAM_ALL(MILL_GRAM_ADD)
  }
  MILL_GRAM_ALL(MILL_GRAM_PUT)
#undef MILL_GRAM_ALL
#undef MILL_GRAM_HAS
#undef MILL_GRAM_ZERO
#undef MILL_GRAM_ADD
#undef MILL_GRAM_PUT
#undef MILL_GRAM_ROW
}

/** Call mill_gram_tile with its sizes as constants, so that its loops unroll. */
MILL_BLOCK_FN void mill_gram_tile_of(int nr, int nc, int whole, int len, int pitch, const double *x,
                                     const double *z, const int *at, mill_vec_f64 *const *sum)
{
#define MILL_GRAM_KEY(NR, NC, WHOLE) (((WHOLE)*8 + (NR)) * 8 + (NC))
#define MILL_GRAM_CASE(NR, NC, WHOLE)                                                              \
  case MILL_GRAM_KEY(NR, NC, WHOLE):                                                               \
    mill_gram_tile(NR, NC, WHOLE, len, pitch, x, z, at, sum);                                      \
    break;
#define MILL_GRAM_CASES(NR)                                                                        \
  MILL_GRAM_CASE(NR, 1, 1)                                                                         \
  MILL_GRAM_CASE(NR, 2, 1)                                                                         \
  MILL_GRAM_CASE(NR, 3, 1)                                                                         \
  MILL_GRAM_CASE(NR, NR, 0)
  switch (MILL_GRAM_KEY(nr, nc, whole)) {
    MILL_GRAM_CASES(1)
    MILL_GRAM_CASES(2)
    MILL_GRAM_CASES(3)
#if defined(__AVX512F__)
    MILL_GRAM_CASE(1, 4, 1)
    MILL_GRAM_CASE(2, 4, 1)
    MILL_GRAM_CASE(3, 4, 1)
    MILL_GRAM_CASE(4, 4, 1)
    MILL_GRAM_CASES(4)
#endif
  default:
    break; /* no other tile exists */
  }
#undef MILL_GRAM_KEY
#undef MILL_GRAM_CASE
#undef MILL_GRAM_CASES
}

/** Add the products of each row first .. n - 1 with itself and with all rows before it.
 *
 *  row [n][pitch]  in      len numbers per row, padded with zeros to whole vectors
 *  of [n]          in      number of each row in the segment's matrix of products, ascending
 *  origin          in      mill_gram_at(r, c) of the element that is sum[0]
 *  sum             in/out  element (r, c) of that matrix at mill_gram_at(r, c) - origin */
MILL_BLOCK_FN void mill_gram_add(int first, int n, int len, int pitch, const double *row,
                                 const int *of, int origin, mill_vec_f64 *sum)
{
  enum { T = MILL_GRAM_TILE };
  /* Tile i begins at row bound[i].  Tiles have nearly equal sizes: loads of a small one serve few
   * sums. */
  const int n_before = (first + T - 1) / T, n_tile = n_before + (n - first + T - 1) / T;
  int bound[MILL_MAX_ROWS / T + 3];
  for (int i = 0; i < n_before; i++)
    bound[i] = first * i / n_before;
  for (int i = n_before; i < n_tile; i++)
    bound[i] = first + (n - first) * (i - n_before) / (n_tile - n_before);
  bound[n_tile] = n;
  for (int i = n_before; i < n_tile; i++) {
    const int r = bound[i], nr = bound[i + 1] - r;
    const double *x = row + (ptrdiff_t)r * pitch;
    mill_vec_f64 *to[T];
    for (int k = 0; k < nr; k++)
      to[k] = sum + (mill_gram_at(of[r + k], 0) - origin);
    for (int j = 0; j < i; j++) {
      const int c = bound[j];
      mill_gram_tile_of(nr, bound[j + 1] - c, 1, len, pitch, x, row + (ptrdiff_t)c * pitch, of + c,
                        to);
    }
    mill_gram_tile_of(nr, nr, 0, len, pitch, x, x, of + r, to);
  }
}
