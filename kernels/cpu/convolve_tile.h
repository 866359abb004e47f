/* SPDX-License-Identifier: BSD-3-Clause */
/** Tiles of convolutions on a CPU: a tile is one or more vectors.  Included by
 *  kernels/math/convolve_tile.h, which explains the names. */
#pragma once

enum {
  MILL_ROTATE_ANYWHERE = 1,
  MILL_ROTATE_VECS = 4, /**< vectors that a rotation sums at a time */
  MILL_ROTATE_TILE = MILL_ROTATE_VECS * MILL_VEC_N,
  MILL_RESOLVE_TILE = MILL_VEC_N
};

MILL_INLINE int mill_tiles_first(int half)
{
  return half;
}

MILL_INLINE int mill_resolve_most(int n, int n_diag, int first)
{
  (void)n_diag;
  return n > 2 * first ? (n - 2 * first) / MILL_RESOLVE_TILE : 0;
}

MILL_INLINE int mill_resolve_shift(int n_diag)
{
  (void)n_diag;
  return 0;
}

/** Write MILL_ROTATE_TILE outputs: the row at x convolved with a symmetric kernel [half + 1]. */
MILL_INLINE void mill_rotate_tile(int half, const double *kernel, const mill_real *x, mill_real *to)
{
  typedef mill_vec_real vec;
  vec sum[MILL_ROTATE_VECS];
  const mill_real w0 = (mill_real)kernel[0];
  for (int v = 0; v < MILL_ROTATE_VECS; v++)
    sum[v] = w0 * *(const vec *)(x + v * MILL_VEC_N);
  for (int k = 1; k <= half; k++) {
    const mill_real w = (mill_real)kernel[k];
    for (int v = 0; v < MILL_ROTATE_VECS; v++)
      sum[v] +=
          w * (*(const vec *)(x + v * MILL_VEC_N - k) + *(const vec *)(x + v * MILL_VEC_N + k));
  }
  for (int v = 0; v < MILL_ROTATE_VECS; v++)
    *(vec *)(to + v * MILL_VEC_N) = sum[v];
}

/** Multiply nr <= MILL_RESOLVE_ROWS rows, `pitch` elements apart, by the resolution matrix at one
 *  vector of pixels: out[i] = sum over diagonals k < n_diag of res[k * pitch_res + i] in[i + k]. */
MILL_INLINE void mill_resolve_tile(const int nr, int n_diag, ptrdiff_t pitch_res, const float *res,
                                   ptrdiff_t pitch, const mill_real *in, mill_real *out)
{
  typedef mill_vec_real vec;
  const vec zero = {0};
  vec s0 = zero, s1 = zero, s2 = zero, s3 = zero;
  for (; n_diag > 0; n_diag--) {
    const vec w = mill_vec_load_real(res);
    s0 += w * *(const vec *)in;
    if (nr > 1)
      s1 += w * *(const vec *)(in + pitch);
    if (nr > 2)
      s2 += w * *(const vec *)(in + 2 * pitch);
    if (nr > 3)
      s3 += w * *(const vec *)(in + 3 * pitch);
    res += pitch_res;
    in++;
  }
  *(vec *)out = s0;
  if (nr > 1)
    *(vec *)(out + pitch) = s1;
  if (nr > 2)
    *(vec *)(out + 2 * pitch) = s2;
  if (nr > 3)
    *(vec *)(out + 3 * pitch) = s3;
}
