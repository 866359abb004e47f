/* SPDX-License-Identifier: BSD-3-Clause */
/** Work on the pixels of a template: exponential, continuum, and sums over residuals. */
#pragma once

#include "kernels/math/block.h"
#include "kernels/math/continuum.h"
#include "kernels/math/doppler.h"
#include "kernels/math/real.h"
#include "kernels/star/slot.h"

/** Split x, clipped to [-87, 88], into k ln 2 + r with |r| <= ln 2 / 2 (Cody & Waite).  Returns
 *  exp(r) - 1 by a polynomial of degree 7; *two_k = 2^k. */
MILL_HD_INLINE float mill_exp_parts(float x, float *two_k)
{
  const float lo = -87.0f, hi = 88.0f;
  x = x > lo ? (x < hi ? x : hi) : lo; /* NaN too: the bits below must be defined */
  /* adding 1.5 * 2^23 rounds to the nearest integer, k, which is then in the sum's last bits */
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

/** Return exp(x) - 1 for float32 templates, x clipped to [-87, 88], with a relative error below
 *  3e-7 (tested).  Loops over this function vectorise. */
MILL_HD_INLINE float mill_expm1f(float x)
{
  float two_k;
  const float p = mill_exp_parts(x, &two_k);
  return x == x ? p * two_k + (two_k - 1.0f) : x;
}

#if MILL_PRECISION == 32
#define mill_expm1_real mill_expm1f
#else
#define mill_expm1_real expm1
#endif

/** Template / sigma at a pixel: (level * base + t) / sigma. */
MILL_HD_INLINE double mill_pixel_template(double level, double base, double t, float is)
{
  return (level * base + t) * (double)is;
}

/** Return half the derivative of r^2, the squared residual, with respect to the template t:
 *  -(P a) r, where P a (poly) is the continuum and r = d - P a t. */
MILL_HD_INLINE double mill_pixel_slope(double poly, float d, double t)
{
  return -poly * ((double)d - poly * t);
}

/** Compute the continuum at len pixels from first on: nk functions times coef [nk], summed. */
MILL_INLINE void mill_continuum_of(const mill_segment *s, int nk, const double *coef, int first,
                                   int len, double *sum)
{
  int low, end;
  /* The first MILL_BROAD_CONT functions are polynomials, the others Gaussians.  Only Gaussians
   * low ... end - 1 are not 0 here.  For a single pixel (GPU) add all functions. */
  mill_reach_of(MILL_PIXEL_CHUNK > 1 ? s->ws->reach : NULL, nk, first, len, &low, &end);
  MILL_SIMD
  for (int i = 0; i < len; i++)
    sum[i] = 0.0;
  for (int k = 0; k < nk; k++) {
    if (k >= MILL_BROAD_CONT && (k < low || k >= end))
      continue;
    const float *row = s->ws->cont + (size_t)k * mill_row_pitch(s->n_pix) + first;
    const double by = coef[k];
    MILL_SIMD
    for (int i = 0; i < len; i++)
      sum[i] += by * (double)row[i];
  }
}

/** Blocks of pixels per continuum function in mill_block_gain.  With a factor for each block, the
 *  model can follow waves that are too short for the continuum functions. */
enum { MILL_STIFF_BLOCKS = 4 };

/** Compute by how much the segment's chi-square would drop if each block of pixels had its own
 *  factor on the model (model / sigma in s->scratch).  n_block: blocks with a good pixel. */
MILL_BLOCK_FN void mill_block_gain(mill_block *b, const mill_segment *s, double *gain,
                                   double *n_block)
{
  const int n = MILL_STIFF_BLOCKS * s->ws->n_cont;
  double part[2] = {0.0, 0.0}, total[2];
  MILL_FOR(b, k, n)
  {
    const int first = (int)((int64_t)s->n_pix * k / n),
              end = (int)((int64_t)s->n_pix * (k + 1) / n);
    const float *at = s->scratch, *d = s->d;
    double cross = 0.0, square = 0.0;
    MILL_SIMD_SUM(cross, square)
    for (int i = first; i < end; i++) {
      const double model = (double)at[i];
      cross += model * ((double)d[i] - model);
      square += model * model;
    }
    if (square > 0.0) {
      part[0] += cross * cross / square; /* with the best factor */
      part[1] += 1.0;
    }
  }
  mill_block_sum_n(b, part, 2, total);
  *gain = total[0];
  *n_block = total[1];
}

/** Noise is measured from differences of residuals LAG pixels apart: more than the correlation
 *  length of resampled noise, less than the width of a line.  While there is less than one pair per
 *  ENOUGH good pixels, pairs one pixel farther apart are added, up to FAR. */
enum { MILL_NOISE_LAG = 3, MILL_NOISE_FAR = 8, MILL_NOISE_ENOUGH = 8 };

/** Return the part of a segment's chi-square that is due to noise or to misfits narrower than
 *  MILL_NOISE_LAG pixels; without pairs of good pixels, chisq.  s->scratch: model / sigma. */
MILL_BLOCK_FN double mill_block_noise(mill_block *b, const mill_segment *s, double chisq)
{
  const float *d = s->d, *model = s->scratch;
  const unsigned char *good = s->good;
  double sum = 0.0, n_pair = 0.0, total[2] = {0.0, 0.0}; /* over lags, until pairs are enough */
  for (int lag = MILL_NOISE_LAG;
       lag <= MILL_NOISE_FAR && MILL_NOISE_ENOUGH * total[1] < (double)s->n_good; lag++) {
    MILL_FOR_SUM(b, i, s->n_pix - lag, sum, n_pair)
    {
      const int k = i + lag, both = good[i] & good[k];
      const double here = (double)d[i] - (double)model[i];
      const double there = (double)d[k] - (double)model[k];
      sum += both ? 0.5 * (here - there) * (here - there) : 0.0;
      n_pair += both;
    }
    const double part[2] = {sum, n_pair};
    mill_block_sum_n(b, part, 2, total);
  }
  return total[1] > 0.0 ? s->n_good * total[0] / total[1] : chisq;
}

/** H alpha and H beta (vacuum A).  A line's core extends to CORE km/s, its sides from NEAR to FAR.
 *  The line is measured if core and sides have at least CORE_PIX and SIDE_PIX good pixels. */
enum { MILL_BALMER_CORE_PIX = 3, MILL_BALMER_SIDE_PIX = 8 };
#define MILL_BALMER_AA                                                                             \
  {                                                                                                \
    6564.61, 4862.68                                                                               \
  }
#define MILL_BALMER_CORE 200.0
#define MILL_BALMER_NEAR 500.0
#define MILL_BALMER_FAR  1330.0

/** Measure the emission in the Balmer lines of a star at a velocity: the excess of the flux over
 *  the model (model / sigma is in s->scratch) in the lines' cores.  The error is from the rms of
 *  the residuals in the lines' sides, which includes template errors.
 *  light [MILL_N_BALMER][2]  out  equivalent width in A times its weight, and the weight, 1 / A^2;
 *                                 zeros where a line is not measured */
MILL_BLOCK_FN void mill_block_emission(mill_block *b, const mill_segment *s, double vel_km_s,
                                       double *light)
{
  enum { CORE, N_CORE, LEVEL, SQUARE, N_SIDE, N_SUM };
  const double line_aa[MILL_N_BALMER] = MILL_BALMER_AA;
  for (int l = 0; l < MILL_N_BALMER; l++) {
    const double ln_line = log(line_aa[l]) - mill_doppler_ln(vel_km_s);
    double core = 0.0, n_core = 0.0, level = 0.0, square = 0.0, n_side = 0.0, sum[N_SUM];
    MILL_FOR_SUM(b, i, s->n_pix, core, n_core, level, square, n_side)
    {
      const double apart = MILL_C_KM_S * fabs(s->ws->ln_wave[i] - ln_line);
      const int in_core = s->good[i] && apart < MILL_BALMER_CORE;
      const int in_side = s->good[i] && apart > MILL_BALMER_NEAR && apart < MILL_BALMER_FAR;
      const double sigma = in_core || in_side ? 1.0 / (double)s->is[i] : 0.0;
      const double off = ((double)s->d[i] - (double)s->scratch[i]) * sigma;
      core += in_core ? off : 0.0;
      n_core += in_core;
      level += in_side ? (double)s->scratch[i] * sigma : 0.0;
      square += in_side ? off * off : 0.0;
      n_side += in_side;
    }
    const double part[N_SUM] = {core, n_core, level, square, n_side};
    mill_block_sum_n(b, part, N_SUM, sum);
    const int is_there = sum[LEVEL] > 0.0 && sum[SQUARE] > 0.0 &&
                         sum[N_CORE] >= MILL_BALMER_CORE_PIX && sum[N_SIDE] >= MILL_BALMER_SIDE_PIX;
    /* equivalent width = unit * mean excess in the core */
    const double unit =
        2.0 * MILL_BALMER_CORE / MILL_C_KM_S * line_aa[l] * sum[N_SIDE] / sum[LEVEL];
    const double weight = is_there ? sum[N_CORE] * sum[N_SIDE] / (sum[SQUARE] * unit * unit) : 0.0;
    MILL_SERIAL(b)
    {
      light[2 * l] = is_there ? weight * unit * sum[CORE] / sum[N_CORE] : 0.0;
      light[2 * l + 1] = weight;
    }
  }
}

/** A template is exp(MILL_LN_SCALE) (MILL_LEVEL + t); rows of templates hold t. */
#define MILL_LEVEL(arm, work)    ((arm)->log_flux ? 1.0 : (work)->mean[0])
#define MILL_LN_SCALE(arm, work) ((arm)->log_flux ? (work)->mean[0] : 0.0)
