/* SPDX-License-Identifier: BSD-3-Clause */
/** Rotate a template and interpolate it to the pixels in one step, on a CPU: a pixel's value is a
 *  weighted sum of grid points (taps).  This saves 12 to 60 % of a fit's time where the grid is
 *  finer than the pixels.  Included by kernels/cpu/pixel_sums.h.
 *
 *  Let u be the pixel's place in its grid interval, 0 to 1.  Number grid points from the interval's
 *  left end, t = 0.  Point t has the weight P0 + P1 u + P2 u^2 + P3 u^3 with
 *
 *    P0 = K[t], P1 = K[t-1] - K[t] - B[t] / 3 - s B[t-1] / 6, P2 = B[t] / 2,
 *    P3 = (s B[t-1] - B[t]) / 6.
 *
 *  K: the rotation's kernel.  B: the kernel that gives the spline coefficients of the rotated row.
 *  s: spline_scale_right (mill_model_arm). */
#pragma once

#include <string.h>

#include "kernels/star/blocks/template.h"

enum {
  MILL_TAPS = 64,      /**< most taps (grid points) of a pixel */
  MILL_TAPS_MORE = 14, /**< taps of B beyond K's on each side; B falls by a factor 0.27 a tap */
  MILL_TAPS_SPACE = MILL_TAPS + 2 * MILL_TAPS_MORE,
  MILL_TAPS_END = MILL_SPLINE_END_F32 + 2 /**< grid points that a grid's end disturbs, plus two */
};
/** With more grid points per pixel than this, taps need less work than rotating the whole grid. */
#define MILL_TAPS_GAIN 2.5

/** Coefficients P0 to P3 of a kernel's taps 0 to 2 * reach + 1; the others are zero. */
typedef struct mill_taps {
  float p[4][MILL_TAPS];
  int reach;
} mill_taps;

/** Compute bend [2 * most + 1], the kernel B, from kernel [2 * most + 3], the rotation's kernel K.
 *  Each second difference of K, at a tap j, adds to B at all taps: in proportion to `centre` at tap
 *  j, centre * left^k at tap j + k, and centre * right^k at tap j - k. */
MILL_INLINE void mill_taps_bend(int most, const mill_model_arm *arm, const double *kernel,
                                double *bend)
{
  const double r = 1.0 + arm->expm1_step; /* a grid step divided by the step to its left */
  /* spline_end_left[k] is right^k, spline_end_right[k] is left^k (spline_filter.h) */
  const double right = arm->spline_end_left[1], left = arm->spline_end_right[1];
  const double centre = 1.0 / (r * left + 2.0 * (1.0 + 1.0 / r) + arm->spline_scale_right * right);
  double before[MILL_TAPS_SPACE], sum = 0.0;
  const int n = 2 * most + 1;
  for (int i = 0; i < n; i++) {
    bend[i] = 6.0 * ((kernel[i] - kernel[i + 1]) - r * (kernel[i + 1] - kernel[i + 2]));
    before[i] = sum = bend[i] + left * sum; /* second differences up to i */
  }
  sum = 0.0;
  for (int i = n - 1; i >= 0; i--) {
    const double at = bend[i];
    bend[i] = centre * (before[i] + sum); /* sum: second differences after i */
    sum = right * (at + sum);
  }
}

/** Compute each tap's P0 to P3 (top of this file) from the rotation's kernel K, of which `kernel`
 *  [half + 1] is the middle and right half.  Outer taps, where K and B (mill_taps_bend) are below
 *  MILL_BLUR_LEAST times the middle of K, are left out.  Returns 0 if the kernel is too broad. */
MILL_INLINE int mill_taps_of(int half, const double *kernel, const mill_model_arm *arm,
                             mill_taps *taps)
{
  const int most = half + MILL_TAPS_MORE;
  double from[MILL_TAPS_SPACE], bend[MILL_TAPS_SPACE] = {0.0};
  if (2 * most + 3 > MILL_TAPS_SPACE)
    return 0;
  /* K on both sides of its middle, from[most + 1] */
  for (int i = 0; i < 2 * most + 3; i++) {
    const int k = i <= most ? most + 1 - i : i - most - 1;
    from[i] = k <= half ? kernel[k] : 0.0;
  }
  mill_taps_bend(most, arm, from, bend);
  const double least = MILL_BLUR_LEAST * fabs(from[most + 1]);
  int reach = most;
  while (reach > 0 && fabs(from[most + 1 + reach]) <= least && fabs(bend[most - reach]) <= least &&
         fabs(bend[most + reach]) <= least)
    reach--;
  if (reach == most || 2 * reach + 2 > MILL_TAPS) /* K or B goes on, or too many taps */
    return 0;
  memset(taps, 0, sizeof *taps);
  taps->reach = reach;
  for (int t = -reach; t <= reach + 1; t++) { /* k_left: K[t - 1]; z: B[t]; z_left: s B[t - 1] */
    const double k = t <= reach ? from[most + 1 + t] : 0.0,
                 k_left = t > -reach ? from[most + t] : 0.0;
    const double z = t <= reach ? bend[most + t] : 0.0;
    const double z_left = t > -reach ? arm->spline_scale_right * bend[most + t - 1] : 0.0;
    taps->p[0][reach + t] = (float)k;
    taps->p[1][reach + t] = (float)(k_left - k - z / 3.0 - z_left / 6.0);
    taps->p[2][reach + t] = (float)(0.5 * z);
    taps->p[3][reach + t] = (float)((z_left - z) / 6.0);
  }
  return 1;
}

/** Compute the weights of all taps at MILL_VEC_N_F32 pixels: weight [MILL_VEC_N_F32][n_vec].
 *  n_vec vectors hold the weights of one pixel.  frac: each pixel's place in its grid interval.
 *  slope, if not NULL, gets the derivatives of the weights in frac, in the same order. */
MILL_INLINE void mill_taps_weigh(const int n_vec, const float *frac, const mill_taps *taps,
                                 mill_vec_f32 *weight, mill_vec_f32 *slope)
{
  typedef mill_vec_f32 vec;
  for (int v = 0; v < n_vec; v++) {
    vec p[4];
    for (int k = 0; k < 4; k++)
      p[k] = *(const vec *)(taps->p[k] + v * MILL_VEC_N_F32);
    const vec twice = 2.0f * p[2], thrice = 3.0f * p[3];
    for (int i = 0; i < MILL_VEC_N_F32; i++) {
      const float u = frac[i];
      weight[i * n_vec + v] = p[0] + u * (p[1] + u * (p[2] + u * p[3]));
      if (slope)
        slope[i * n_vec + v] = p[1] + u * (twice + u * thrice);
    }
  }
}

/** Return the weighted sums of a row's grid points at MILL_VEC_N_F32 pixels. */
MILL_INLINE mill_vec_f32 mill_taps_sum(const int n_vec, int reach, const float *row,
                                       const int *index, const mill_vec_f32 *weight)
{
  typedef mill_vec_f32 vec;
  vec sum[MILL_VEC_N_F32];
  _Pragma("GCC unroll 16") for (int i = 0; i < MILL_VEC_N_F32; i++)
  {
    const float *x = row + (index[i] - reach);
    sum[i] = weight[i * n_vec] * *(const vec *)x;
    for (int v = 1; v < n_vec; v++)
      sum[i] += weight[i * n_vec + v] * *(const vec *)(x + v * MILL_VEC_N_F32);
  }
  return mill_vec_fold_f32(sum);
}

/** Compute MILL_VEC_N_F32 pixels from `first` on.  Row 0 of `to` gets the template.  If slope_ln is
 *  not 0, row 1 gets the derivative in velocity, rows 3, 4, ... in labels; row 2 (v sin i) stays.
 *  e: arm->expm1_step; slope_ln: mill_doppler_ln_slope.  d frac / d vel = slope_ln (1/e + frac). */
MILL_INLINE void mill_taps_rows(const int n_vec, const mill_model *m, const mill_taps *taps,
                                double slope_ln, double e, int first, const mill_workspace *work,
                                float *to)
{
  typedef mill_vec_f32 vec;
  const int *index = work->index + first;
  const float *frac = work->frac + first, *value = (const float *)work->grid;
  const size_t pitch = (size_t)m->max_seg_pix;
  vec weight[MILL_TAPS], slope[MILL_TAPS];
  mill_taps_weigh(n_vec, frac, taps, weight, slope_ln != 0.0 ? slope : NULL);
  *(vec *)to = mill_taps_sum(n_vec, taps->reach, value, index, weight);
  if (slope_ln == 0.0)
    return;
  *(vec *)(to + pitch) = mill_taps_sum(n_vec, taps->reach, value, index, slope) *
                         ((float)(slope_ln / e) + (float)slope_ln * *(const vec *)frac);
  for (int l = 1; l <= m->n_label; l++)
    *(vec *)(to + (size_t)(2 + l) * pitch) = mill_taps_sum(
        n_vec, taps->reach, value + (size_t)l * (size_t)m->max_pix_pad, index, weight);
}

/** Call mill_taps_rows with the smallest n_vec whose vectors hold all taps of a pixel. */
MILL_BLOCK_FN void mill_taps_tile(const mill_model *m, const mill_taps *taps, double slope_ln,
                                  double e, int first, const mill_workspace *work, float *to)
{
  const int n = 2 * taps->reach + 2;
  if (n <= MILL_TAPS / 2)
    mill_taps_rows(MILL_TAPS / 2 / MILL_VEC_N_F32, m, taps, slope_ln, e, first, work, to);
  else if (n <= MILL_TAPS * 3 / 4)
    mill_taps_rows(MILL_TAPS * 3 / 4 / MILL_VEC_N_F32, m, taps, slope_ln, e, first, work, to);
  else
    mill_taps_rows(MILL_TAPS / MILL_VEC_N_F32, m, taps, slope_ln, e, first, work, to);
}

/** Are the taps, zero padding included, within the grid and away from its ends?  low, high: grid
 *  points of the first and last pixel. */
MILL_INLINE int mill_taps_inside(const mill_taps *taps, int low, int high, int n_grid)
{
  return low >= taps->reach && low >= MILL_TAPS_END && high - taps->reach + MILL_TAPS <= n_grid &&
         high + MILL_TAPS_END + 1 < n_grid;
}

/** Compute the template and its derivatives (row 2: in v sin i) at the pixels, in place of
 *  mill_block_template_row and mill_block_pixel_row.  Returns 0, with nothing done, if the grid is
 *  too coarse, the kernel too broad or a pixel too near an end of the grid. */
MILL_BLOCK_FN int mill_block_pixel_taps(mill_block *b, const mill_model *m, const mill_segment *s,
                                        double vel_km_s, int half, mill_workspace *work)
{
  enum { N = MILL_VEC_N_F32 };
  const mill_model_arm *arm = &m->arm[s->arm];
  const double e = arm->expm1_step, slope_ln = mill_doppler_ln_slope(vel_km_s);
  const mill_grid_place at = mill_place_at(arm, vel_km_s);
  const int n = s->n_pix;
  int low, high;
  float frac;
  mill_taps taps, of_slope; /* of the kernel, and of its slope in v sin i */
  if (MILL_WIDE || n < N || arm->n_pix < MILL_TAPS_GAIN * n)
    return 0;
  /* not from work->index, which other threads may still be writing */
  mill_locate(&at, s->ws->ln_wave[0], &low, &frac);
  mill_locate(&at, s->ws->ln_wave[n - 1], &high, &frac);
  if (!mill_taps_of(half, work->kernel, arm, &taps) ||
      !mill_taps_of(half, work->kernel_slope, arm, &of_slope) ||
      !mill_taps_inside(&taps, low, high, arm->n_pix) ||
      !mill_taps_inside(&of_slope, low, high, arm->n_pix))
    return 0;
  const mill_real *value = (const mill_real *)work->grid;
  for (int l = 1; l <= m->n_label; l++)
    mill_block_flux_tangent(b, arm, work->mean[l], value,
                            (mill_real *)work->grid + (size_t)l * (size_t)m->max_pix_pad);
  float *to = (float *)work->pixel + mill_resolve_shift(s->n_diag);
  MILL_FOR(b, c, (n + N - 1) / N)
  {
    const int first = (c + 1) * N <= n ? c * N : n - N; /* the last N overlap those before */
    mill_taps_tile(m, &taps, slope_ln, e, first, work, to + first);
    mill_taps_tile(m, &of_slope, 0.0, e, first, work, to + 2 * (size_t)m->max_seg_pix + first);
  }
  MILL_BARRIER(b);
  return 1;
}
