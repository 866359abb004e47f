/* SPDX-License-Identifier: BSD-3-Clause */
/** Compute a segment's template from the emulator's output: flux, rotation, spline, resolution. */
#pragma once

#include "kernels/math/block.h"
#include "kernels/math/doppler.h"
#include "kernels/math/rotation.h"
#include "kernels/math/spline_tile.h"
#include "kernels/star/blocks/pixel.h"
#include "kernels/star/blocks/resolution.h"

/** Numbers of elements of the spline's filters and tiles. */
enum {
  MILL_SPLINE_FAR = 12,                  /**< grid points to each side in the filter spline_far */
  MILL_SPLINE_LAST = MILL_WIDE ? 16 : 0, /**< the same for spline_last */
  /** Elements of the memory that a tile's elements share. */
  MILL_SPLINE_STAGE =
      2 * MILL_TILE + 4 * MILL_SPLINE_FAR + 2 * MILL_SPLINE_NEAR + 4 * MILL_SPLINE_LAST,
  /** Spline coefficients at each end of the arm that the natural end changes. */
  MILL_SPLINE_REACH = MILL_WIDE ? MILL_SPLINE_END : MILL_SPLINE_END_F32
};
/** Half width, in sigmas, of the Gaussian that blurs templates on their grid (mill_slot.blur). */
#define MILL_BLUR_REACH 5.0
/** A blurred kernel ends where its weights fall below this fraction of its central weight. */
#define MILL_BLUR_LEAST 1e-6

/** Convert row, the emulator's output y less its mean, to a template t.  Plain flux: t = y.  Log
 *  flux: t = exp(clip(y)) - 1, in units of exp(mean). */
MILL_BLOCK_FN void mill_block_flux(mill_block *b, const mill_model_arm *arm, double mean,
                                   mill_real *row)
{
  if (!arm->log_flux)
    return;
  /* the clip of the emulator files, exp(clip(y, -300, 300)) */
  const mill_real lo = (mill_real)(-300.0 - mean), hi = (mill_real)(300.0 - mean);
  const int n = arm->n_pix;
  MILL_GLOBAL(row);
  MILL_FOR_SIMD(b, i, n)
  {
    const mill_real y = row[i];
    row[i] = mill_expm1_real(y < lo ? lo : (y > hi ? hi : y));
  }
  MILL_BARRIER(b);
}

/** Convert row from the emulator's derivative in a label, less its `mean` over the grid, to the
 *  template's derivative.  For log flux this has the factor 1 + t, with t from mill_block_flux. */
MILL_BLOCK_FN void mill_block_flux_tangent(mill_block *b, const mill_model_arm *arm, double mean,
                                           const mill_real *t, mill_real *row)
{
  const mill_real add = (mill_real)mean;
  const int n = arm->n_pix;
  if (arm->log_flux) {
    MILL_FOR_BATCHES(b, first, n)
    {
      const int len = MILL_BATCH_LEN(first, n);
      mill_real x[MILL_BATCH];
      MILL_SIMD
      for (int i = 0; i < len; i++) {
        const int p = MILL_BATCH_AT(b, first, i, n);
        x[i] = (row[p] + add) * ((mill_real)1 + t[p]);
      }
      mill_put_batch(b, first, n, x, row);
    }
  } else {
    MILL_FOR_SIMD(b, i, n)
    {
      row[i] += add;
    }
  }
  MILL_BARRIER(b);
}

/** Convolve work->kernel and work->kernel_slope, of half width `half`, with a Gaussian; sigma is in
 *  grid points.  Returns the half width of the result.  Overwrites work->sums. */
MILL_BLOCK_FN int mill_block_blur_kernel(mill_block *b, int half, double sigma,
                                         mill_workspace *work)
{
  enum { GAUSS = MILL_MAX_ROTATION + 1, MOST = MILL_BLOCK_MAX_SUM - GAUSS - 1 };
  const int reach = (int)fmin(ceil(MILL_BLUR_REACH * sigma), MOST);
  const int n = half + reach < MILL_MAX_ROTATION ? half + reach : MILL_MAX_ROTATION;
  double *from = work->sums, *gauss = work->sums + GAUSS; /* copy of a kernel; half a Gaussian */
  MILL_BARRIER(b); /* other threads may still read work->sums */
  MILL_FOR(b, k, reach + 1)
  {
    /* add the Gaussian's fourth derivative / 720, which spline interpolation subtracts */
    const double u = (double)(k * k) / (sigma * sigma), bend = 3.0 + u * (u - 6.0);
    gauss[k] = exp(-0.5 * u) * (1.0 + bend / (720.0 * sigma * sigma * sigma * sigma));
  }
  for (int r = 0; r < 2; r++) {
    double *row = r == 0 ? work->kernel : work->kernel_slope;
    MILL_FOR(b, k, half + 1)
    {
      from[k] = row[k];
    }
    MILL_BARRIER(b);
    double norm = gauss[0];
    for (int j = 1; j <= reach; j++)
      norm += 2.0 * gauss[j];
    MILL_FOR(b, k, n + 1)
    {
      const int last = k + half < reach ? k + half : reach;
      double sum = 0.0;
      for (int j = k - half > -reach ? k - half : -reach; j <= last; j++)
        sum += gauss[j < 0 ? -j : j] * from[k > j ? k - j : j - k];
      row[k] = sum / norm;
    }
    MILL_BARRIER(b);
  }
  const double *kernel = work->kernel, *slope = work->kernel_slope;
  int end = n;
  while (end > 0 && fabs(kernel[end]) <= MILL_BLUR_LEAST * fabs(kernel[0]) &&
         fabs(slope[end]) <= MILL_BLUR_LEAST * fabs(slope[0]))
    end--;
  return end;
}

/** Write the rotation kernel of v sin i to work->kernel, and its derivative in u
 *  (mill_vsini_inner), per km/s, to work->kernel_slope.  Returns the half width.
 *
 *  want_slope  in  1: the half width covers the derivative too
 *  blur        in  sigma, in grid points, of a Gaussian that is convolved with both; 0: none */
MILL_BLOCK_FN int mill_block_rotation_kernel(mill_block *b, int kind, const mill_model_arm *arm,
                                             double vsini_km_s, int want_slope, double blur,
                                             mill_workspace *work)
{
  const double per_km_s = 1.0 / (MILL_C_KM_S * arm->ln_step);
  const double r_pix = vsini_km_s * per_km_s;
  int half = want_slope ? mill_rotation_slope_half_width(kind, r_pix)
                        : mill_rotation_half_width(kind, r_pix);
  if (half > MILL_MAX_ROTATION)
    half = MILL_MAX_ROTATION;
  const double slope_scale = mill_rotation_slope_scale(kind, vsini_km_s, per_km_s);
  MILL_FOR(b, k, half + 1)
  {
    double w, slope;
    mill_rotation_weight(kind, r_pix, k, &w, &slope);
    work->kernel[k] = w;
    work->kernel_slope[k] = slope * slope_scale;
  }
  if (blur > 0.0)
    return mill_block_blur_kernel(b, half, blur, work);
  MILL_BARRIER(b);
  return half;
}

/** Return element i of `in` [n], which is 0 beyond its ends, convolved with kernel [half + 1]. */
MILL_HD static inline mill_real mill_convolved(int n, int half, const double *kernel,
                                               const mill_real *in, int i)
{
  double s = kernel[0] * (double)in[i];
  for (int k = 1; k <= half; k++)
    s += kernel[k] * ((i >= k ? (double)in[i - k] : 0.0) + (i + k < n ? (double)in[i + k] : 0.0));
  return (mill_real)s;
}

/** Convolve `in` [n], a template less its mean, with a symmetric kernel [half + 1], to `out` [n].
 *  Beyond its ends `in` counts as 0, which matters only if v sin i is some hundred km/s.  Elements
 *  near the ends are computed one by one, the others in tiles of MILL_ROTATE_TILE. */
MILL_BLOCK_FN void mill_block_rotate(mill_block *b, int n, int half, const double *kernel,
                                     const mill_real *in, mill_real *out)
{
  MILL_GLOBAL(kernel);
  MILL_GLOBAL(in);
  MILL_GLOBAL(out);
  const int first = mill_tiles_first(half);
  const int inside = n - 2 * first, n_tile = inside > 0 ? inside / MILL_ROTATE_TILE : 0;
  /* if tiles may begin anywhere, a last tile overlaps the one before */
  const int more = MILL_ROTATE_ANYWHERE && n_tile > 0 && inside % MILL_ROTATE_TILE > 0;
  const int n_done = more ? inside : n_tile * MILL_ROTATE_TILE, first_edge = n_done > 0 ? first : 0;
  /* elements before the first tile and after the last */
  MILL_FOR(b, e, n - n_done)
  {
    const int i = e < first_edge ? e : n_done + e;
    out[i] = mill_convolved(n, half, kernel, in, i);
  }
  MILL_FOR(b, c, n_tile + more)
  {
    const int i = c < n_tile ? first + c * MILL_ROTATE_TILE : n - first - MILL_ROTATE_TILE;
    mill_rotate_tile(half, kernel, in + i, out + i);
  }
  MILL_BARRIER(b);
}

/** Compute bend, the coefficients of the natural cubic spline in wavelength through y.
 *
 *  The coefficient of knot i is Z_i = z_i h_i^2, where z_i is the second derivative and h_i the
 *  interval to the right.  On knots uniform in ln wavelength, with r = exp(step), Z_i obeys
 *    r Z_{i-1} + 2 (1 + 1/r) Z_i + Z_{i+1} / r^2 = 6 [(y_{i+1} - y_i) - r (y_i - y_{i-1})].
 *  The inverse of these equations is a two-sided exponential, cut after 16 (float32) or 32 grid
 *  points.  Short filters apply it (spline_filter.h).  Each natural end (Z = 0) then adds a
 *  solution that decays inwards. */
MILL_BLOCK_FN void mill_block_spline(mill_block *b, const mill_model_arm *arm, const mill_real *y,
                                     mill_real *bend)
{
  /* a filter's input extends beyond its output by the filter's reach */
  enum {
    N_FAR = MILL_TILE + 2 * MILL_SPLINE_LAST,
    N_NEAR = N_FAR + 2 * MILL_SPLINE_FAR,
    N_SECOND = N_NEAR + 2 * MILL_SPLINE_NEAR
  };
  const int n = arm->n_pix;
  const mill_real e = (mill_real)arm->expm1_step; /* r - 1 */
  MILL_GLOBAL(y);
  MILL_GLOBAL(bend);
  const int n_tile = (n + MILL_TILE - 1) / MILL_TILE;
  mill_real w_near[7], w_far[7];
  MILL_FORGET(); /* otherwise a GPU would keep the weights in registers between rows */
  for (int k = 0; k < 7; k++) {
    w_near[k] = (mill_real)arm->spline_near[k];
    w_far[k] = (mill_real)arm->spline_far[k];
  }
  MILL_FOR_TILES(b, c, n_tile)
  {
    const int first = c * MILL_TILE;
    const int len = n - first < MILL_TILE ? n - first : MILL_TILE;
    MILL_TILE_MEMORY(b, mill_real, second, MILL_SPLINE_STAGE); /* second differences of y */
    mill_real *near = second + N_SECOND;                       /* output of the first filter */
    /* float64 has a third filter: `far` overwrites the second differences, no longer needed */
    mill_real *far = MILL_WIDE ? second : bend + first;
    mill_spline_differences(b, n, first - (N_SECOND - MILL_TILE) / 2, N_SECOND, e, y, second);
    MILL_TILE_BARRIER(b);
    mill_spline_filter_row(b, N_NEAR, w_near, 1, second + MILL_SPLINE_NEAR - 3, near);
    MILL_TILE_BARRIER(b);
    mill_spline_filter_row(b, MILL_WIDE ? (int)N_FAR : len, w_far, 4, near, far);
    MILL_TILE_BARRIER(b);
#if MILL_WIDE
    const double *w_last = arm->spline_last;
    MILL_FOR_TILE(b, i, 0, len)
    {
      bend[first + i] = w_last[0] * far[i] + w_last[1] * far[i + 16] + w_last[2] * far[i + 32];
    }
    MILL_TILE_BARRIER(b);
#endif
  }
  MILL_BARRIER(b);
  /* natural ends, in two loops, since a GPU has registers for one */
  const double end_left = (double)bend[0], end_right = (double)bend[n - 1];
  MILL_BARRIER(b);
  MILL_FOR(b, k, MILL_SPLINE_REACH)
  {
    bend[k] -= (mill_real)(end_left * arm->spline_end_left[k]);
  }
  MILL_FOR(b, k, MILL_SPLINE_REACH)
  {
    bend[n - 1 - k] -= (mill_real)(end_right * arm->spline_end_right[k]);
  }
  MILL_BARRIER(b);
}

/** Converts ln wavelength at a velocity to a position on an arm's grid. */
typedef struct mill_grid_place {
  double offset, inv, step, scale;
  int first, last;
} mill_grid_place;

MILL_INLINE mill_grid_place mill_place_at(const mill_model_arm *arm, double vel_km_s)
{
  const mill_grid_place at = {mill_doppler_ln(vel_km_s) - arm->ln_wave0,
                              1.0 / arm->ln_step,
                              arm->ln_step,
                              arm->ln_step / arm->expm1_step,
                              MILL_ARM_FIRST(arm),
                              MILL_ARM_FIRST(arm) + arm->n_pix - 2};
  return at;
}

/** Find the grid point left of a pixel, and its fraction (in wavelength) of the way to the next. */
MILL_INLINE void mill_locate(const mill_grid_place *at, double ln_wave, int *index, float *frac)
{
  const double pos = (ln_wave + at->offset) * at->inv;
  int k = (int)pos;
  k = k < at->first ? at->first : (k > at->last ? at->last : k);
  const double f = pos - (double)k, fs = f * at->step;
  /* frac = (exp(f s) - 1) / (exp(s) - 1), by a series; s ~ 1e-4, so the next term is below 1e-17 */
  *index = k - at->first;
  *frac = (float)(f * at->scale * (1.0 + fs * (0.5 + fs * (1.0 / 6.0 + fs * (1.0 / 24.0)))));
}

/** Locate every pixel at a velocity (mill_locate).  No barrier at the end: each thread of
 *  mill_block_interpolate reads only elements that it has written here. */
MILL_BLOCK_FN void mill_block_locate(mill_block *b, const mill_model_arm *arm, int n,
                                     const double *ln_wave, double vel_km_s, int *index,
                                     float *frac)
{
  const mill_grid_place at = mill_place_at(arm, vel_km_s);
  (void)b; /* a CPU's loop has no use for it */
  MILL_GLOBAL(ln_wave);
  MILL_GLOBAL(index);
  MILL_GLOBAL(frac);
  MILL_FOR_BATCHES(b, first, n)
  {
    const int len = MILL_BATCH_LEN(first, n);
    int k[MILL_BATCH];
    float u[MILL_BATCH];
    MILL_SIMD
    for (int i = 0; i < len; i++)
      mill_locate(&at, ln_wave[MILL_BATCH_AT(b, first, i, n)], &k[i], &u[i]);
    for (int i = 0; i < len; i++)
      if (MILL_BATCH_HAS(b, first, i, n)) {
        index[MILL_BATCH_AT(b, first, i, n)] = k[i];
        frac[MILL_BATCH_AT(b, first, i, n)] = u[i];
      }
  }
}

/** Template and spline coefficients at both ends of the grid intervals of a batch of pixels. */
typedef struct mill_interval {
  mill_real left[MILL_BATCH], right[MILL_BATCH], bend_left[MILL_BATCH], bend_right[MILL_BATCH];
} mill_interval;

/** Load the intervals at grid points index [len] of a row y with spline coefficients bend. */
MILL_INLINE void mill_interval_of(int len, const int *index, const mill_real *y,
                                  const mill_real *bend, mill_interval *at)
{
  mill_load_pairs_real(len, y, index, at->left, at->right);
  mill_load_pairs_real(len, bend, index, at->bend_left, at->bend_right);
}

/** Evaluate the spline at fractions frac [len] of the intervals. */
MILL_INLINE void mill_cubic(int len, mill_real scale_right, const float *frac,
                            const mill_interval *at, mill_real *to)
{
  const mill_real sixth = (mill_real)(1.0 / 6.0), sixth_right = sixth * scale_right;
  MILL_SIMD
  for (int i = 0; i < len; i++) {
    const mill_real u = (mill_real)frac[i], w = (mill_real)1 - u;
    to[i] = w * at->left[i] + u * at->right[i] +
            (u * u * u - u) * (sixth_right * at->bend_right[i]) +
            (w * w * w - w) * (sixth * at->bend_left[i]);
  }
}

/** Evaluate the spline of a row y, with coefficients bend, at a segment's pixels at a velocity. */
MILL_BLOCK_FN void mill_block_sample(mill_block *b, const mill_model_arm *arm, int n,
                                     const double *ln_wave, double vel_km_s, const mill_real *y,
                                     const mill_real *bend, mill_real *out)
{
  const mill_grid_place at = mill_place_at(arm, vel_km_s);
  const mill_real scale_right = (mill_real)arm->spline_scale_right;
  MILL_GLOBAL(ln_wave);
  MILL_GLOBAL(y);
  MILL_GLOBAL(bend);
  MILL_GLOBAL(out);
  MILL_FOR_BATCHES(b, first, n)
  {
    const int len = MILL_BATCH_LEN(first, n);
    int index[MILL_BATCH];
    float frac[MILL_BATCH];
    mill_interval ends;
    mill_real x[MILL_BATCH];
    MILL_SIMD
    for (int i = 0; i < len; i++)
      mill_locate(&at, ln_wave[MILL_BATCH_AT(b, first, i, n)], &index[i], &frac[i]);
    mill_interval_of(len, index, y, bend, &ends);
    mill_cubic(len, scale_right, frac, &ends, x);
    mill_put_batch(b, first, n, x, out);
  }
  MILL_BARRIER(b);
}

/** Evaluate the spline of a row y at pixels from mill_block_locate.  Unless slope is NULL, write
 *  the derivative in velocity to slope [n_pix]; slope_ln is d ln(wavelength) / d velocity. */
MILL_BLOCK_FN void mill_block_interpolate(mill_block *b, const mill_model_arm *arm, int n,
                                          const mill_real *y, const mill_real *bend,
                                          const int *index, const float *frac, mill_real *out,
                                          double slope_ln, mill_real *slope)
{
  const mill_real sixth = (mill_real)(1.0 / 6.0);
  const mill_real scale_right = (mill_real)arm->spline_scale_right;
  const mill_real sixth_right = sixth * scale_right;
  const mill_real inv_e = (mill_real)(slope_ln / arm->expm1_step), sl = (mill_real)slope_ln;
  MILL_GLOBAL(y);
  MILL_GLOBAL(bend);
  MILL_GLOBAL(index);
  MILL_GLOBAL(frac);
  MILL_GLOBAL(out);
  MILL_FOR_BATCHES(b, first, n)
  {
    const int len = MILL_BATCH_LEN(first, n);
    int k[MILL_BATCH];
    float u[MILL_BATCH];
    mill_interval ends;
    mill_real x[MILL_BATCH];
    for (int i = 0; i < len; i++) {
      k[i] = index[MILL_BATCH_AT(b, first, i, n)];
      u[i] = frac[MILL_BATCH_AT(b, first, i, n)];
    }
    mill_interval_of(len, k, y, bend, &ends);
    mill_cubic(len, scale_right, u, &ends, x);
    mill_put_batch(b, first, n, x, out);
    if (!slope)
      continue;
    MILL_SIMD
    for (int i = 0; i < len; i++) {
      const mill_real f = (mill_real)u[i], w = (mill_real)1 - f;
      const mill_real du =
          (ends.right[i] - ends.left[i]) +
          ((mill_real)3 * f * f - (mill_real)1) * (sixth_right * ends.bend_right[i]) -
          ((mill_real)3 * w * w - (mill_real)1) * (sixth * ends.bend_left[i]);
      x[i] = du * (inv_e + f * sl); /* d frac / d ln(wavelength) is 1 / expm1_step + frac */
    }
    mill_put_batch(b, first, n, x, slope);
  }
  MILL_BARRIER(b);
}

/** Compute row r of a rotated template and its spline coefficients.  Row 0 is the template, row 1
 *  its derivative in v sin i, row 2 + l its derivative in label l.
 *
 *  work->grid    in  the template as flux; label derivatives as the emulator gives them, which are
 *                    converted to flux in place: call once for each row
 *  work->kernel  in  of half width `half` */
MILL_BLOCK_FN void mill_block_template_row(mill_block *b, const mill_model *m,
                                           const mill_model_arm *arm, int r, int half,
                                           mill_workspace *work, mill_real *rotated,
                                           mill_real *bend)
{
  mill_real *value = (mill_real *)work->grid;
  mill_real *row = r < 2 ? value : value + (size_t)(r - 1) * (size_t)m->max_pix_pad;
  if (r >= 2)
    mill_block_flux_tangent(b, arm, work->mean[r - 1], value, row);
  mill_block_rotate(b, arm->n_pix, half, r == 1 ? work->kernel_slope : work->kernel, row, rotated);
  mill_block_spline(b, arm, rotated, bend);
}
