/** Templates at the pixels and the likelihood, in float32 and in float64.
 *
 *  The blocks are written once in pixel_impl.h over MILL_REAL, the type of
 *  templates; sums are float64 in both.
 */
#ifndef MILL_PIXEL_H
#define MILL_PIXEL_H

#include <string.h>

#include "kernels/math/block.h"
#include "kernels/math/doppler.h"
#include "kernels/math/gram.h"
#include "kernels/math/hull.h"
#include "kernels/math/linalg.h"
#include "kernels/math/rotation.h"
#include "kernels/star/slot.h"
#include "kernels/math/vector.h"
#if defined(__CUDACC__)
#include "kernels/cuda/star_block.h"
#endif

/** Lengths of the pieces in which rows are worked on, such that a piece of all that is
 *  needed stays in the first-level cache. */
#if defined(__CUDACC__)
enum { MILL_PIXEL_CHUNK = 1, MILL_PAIR_CHUNK = 1, MILL_CONVOLVE_VECS = 1 };
#elif defined(MILL_BLOCK_FIBERS)
enum {
  MILL_PIXEL_CHUNK = 16,
  MILL_SPLINE_CHUNK = 16,
  MILL_PAIR_CHUNK = 16,
  MILL_CONVOLVE_VECS = 4
};
#else
enum {
  MILL_PIXEL_CHUNK = 128,
  MILL_SPLINE_CHUNK = 256,
  MILL_PAIR_CHUNK = 128,
  MILL_CONVOLVE_VECS = 4
};
#endif
#if defined(__CUDACC__)
enum {
  MILL_SPLINE_TILE = 128, /**< grid points whose spline a warp makes at a time */
  /** Numbers of block.stage that a warp needs for that. */
  MILL_SPLINE_STAGE_F32 = 2 * MILL_SPLINE_TILE + 54,
  MILL_SPLINE_STAGE_F64 = 2 * MILL_SPLINE_TILE + 118
};
#endif
/** Rows that share one pass over the resolution rows' weights. */
enum { MILL_RESOLVE_ROWS = 4 };

/** x = k ln 2 + r, |r| <= ln 2 / 2 (Cody-Waite), for x in [-87, 88]; gives
 *  exp(r) - 1 by a degree-6 polynomial and 2^k. */
MILL_HD_INLINE float mill_exp_parts(float x, float *two_k)
{
  const float lo = -87.0f, hi = 88.0f;
  x = x > lo ? (x < hi ? x : hi) : lo; /* NaN too: the bits below must be defined */
  /* round to nearest by the shifter trick, valid in round-to-nearest mode; k then
   * stands in the last bits of the sum (no conversion, so that NaN has no say) */
  const float shift = 12582912.0f;
  union {
    uint32_t u;
    float f;
  } v;
  v.f = x * 1.44269504088896341f + shift;
  const float kf = v.f - shift;
  const float r = (x - kf * 0.693359375f) - kf * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  v.u = (v.u << 23) + (127u << 23);
  *two_k = v.f;
  return p * r * r + r;
}

/** exp(x) - 1 for float32 templates: relative error below 3e-7 (tested),
 *  vectorisable, the argument clipped to [-87, 88]. */
MILL_HD_INLINE float mill_expm1f(float x)
{
  float two_k;
  const float p = mill_exp_parts(x, &two_k);
  return x == x ? p * two_k + (two_k - 1.0f) : x;
}

#if !defined(__CUDACC__)

/** out = p t, a chunk of len pixels, zeros up to a whole vector. */
MILL_BLOCK_FN void mill_pixel_product(int len, const float *p, const double *t, double *out)
{
  int i = 0;
  for (; i + MILL_VEC_N_F64 <= len; i += MILL_VEC_N_F64)
    *(mill_vec_f64 *)(out + i) = mill_vec_load_f64(p + i) * *(const mill_vec_f64 *)(t + i);
  for (; i < len; i++)
    out[i] = (double)p[i] * t[i];
  for (; i % MILL_VEC_N_F64 != 0; i++)
    out[i] = 0.0;
}

/** copy = p and sum += a p, the same way. */
MILL_BLOCK_FN void mill_pixel_add(int len, double a, const float *p, double *copy, double *sum)
{
  int i = 0;
  for (; i + MILL_VEC_N_F64 <= len; i += MILL_VEC_N_F64) {
    const mill_vec_f64 x = mill_vec_load_f64(p + i);
    *(mill_vec_f64 *)(copy + i) = x;
    *(mill_vec_f64 *)(sum + i) += a * x;
  }
  for (; i < len; i++) {
    copy[i] = (double)p[i];
    sum[i] += a * copy[i];
  }
  for (; i % MILL_VEC_N_F64 != 0; i++)
    copy[i] = 0.0;
}

/** |L^-1 p|^2 for every pixel of a chunk.
 *
 *  chol [nk][nk]             in      L in its lower triangle
 *  p [nk][MILL_PIXEL_CHUNK]  in/out  len numbers of each row, a whole number of vectors; then L^-1
 * p quad [len]                out */
MILL_BLOCK_FN void mill_pixel_quadratic(int nk, const double *chol, int len, double *p,
                                        double *quad)
{
  enum {
    N_VEC = MILL_PIXEL_CHUNK / MILL_VEC_N_F64 % 4 == 0 ? 4 : 1,
    N_TILE = N_VEC * MILL_VEC_N_F64
  };
  const mill_vec_f64 zero = {0};
  for (int i = 0; i < len; i += N_TILE) {
    mill_vec_f64 total[N_VEC];
    for (int v = 0; v < N_VEC; v++)
      total[v] = zero;
    for (int k = 0; k < nk; k++) {
      double *at = p + (ptrdiff_t)k * MILL_PIXEL_CHUNK + i;
      mill_vec_f64 z[N_VEC];
      for (int v = 0; v < N_VEC; v++)
        z[v] = *(const mill_vec_f64 *)(at + v * MILL_VEC_N_F64);
      for (int l = 0; l < k; l++) {
        const double w = chol[k * nk + l];
        const double *below = p + (ptrdiff_t)l * MILL_PIXEL_CHUNK + i;
        for (int v = 0; v < N_VEC; v++)
          z[v] -= w * *(const mill_vec_f64 *)(below + v * MILL_VEC_N_F64);
      }
      const double inv = 1.0 / chol[k * nk + k];
      for (int v = 0; v < N_VEC; v++) {
        z[v] *= inv;
        total[v] += z[v] * z[v];
        *(mill_vec_f64 *)(at + v * MILL_VEC_N_F64) = z[v];
      }
    }
    for (int v = 0; v < N_VEC; v++)
      *(mill_vec_f64 *)(quad + i + v * MILL_VEC_N_F64) = total[v];
  }
}

/** Factor a normal matrix a [n][n] (lower triangle) and solve for v [n].  out: [0] ln det,
 *  [1] |L^-1 v|^2.  0, or what mill_cholesky returns; the same on all threads. */
MILL_BLOCK_FN int mill_block_normal(mill_block *b, int n, double *a, double *v, double *out)
{
  MILL_SERIAL(b)
  {
    const int failed = mill_cholesky(n, a, n);
    if (!failed) {
      double vv = 0.0;
      out[0] = mill_cholesky_logdet(n, a, n);
      mill_cholesky_forward(n, a, n, v);
      for (int k = 0; k < n; k++)
        vv += v[k] * v[k];
      out[1] = vv;
      mill_cholesky_backward(n, a, n, v);
    }
    out[2] = (double)failed;
  }
  MILL_BARRIER(b);
  return (int)out[2];
}

#endif

/** The constant of a template and the logarithm of its unit: mill_workspace.mean. */
#define MILL_LEVEL(arm, work)    ((arm)->log_flux ? 1.0 : (work)->mean[0])
#define MILL_LN_SCALE(arm, work) ((arm)->log_flux ? (work)->mean[0] : 0.0)

#define MILL_REAL     float
#define MILL_T(name)  name##_f32
#define MILL_EXPM1(x) mill_expm1f(x)
#define MILL_WIDE     0
#define MILL_END      MILL_SPLINE_END_F32
#define MILL_VEC_N    MILL_VEC_N_F32
#include "kernels/star/pixel_impl.h"
#undef MILL_REAL
#undef MILL_T
#undef MILL_EXPM1
#undef MILL_WIDE
#undef MILL_END
#undef MILL_VEC_N

#define MILL_REAL     double
#define MILL_T(name)  name##_f64
#define MILL_EXPM1(x) expm1(x)
#define MILL_WIDE     1
#define MILL_END      MILL_SPLINE_END
#define MILL_VEC_N    MILL_VEC_N_F64
#include "kernels/star/pixel_impl.h"
#undef MILL_REAL
#undef MILL_T
#undef MILL_EXPM1
#undef MILL_WIDE
#undef MILL_END
#undef MILL_VEC_N

#endif
