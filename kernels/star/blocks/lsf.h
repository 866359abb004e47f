/* SPDX-License-Identifier: BSD-3-Clause */
/** Convert line-spread functions given as a sigma per pixel to rows of a resolution matrix
 *  (docs/science/numerics.md, "Line-spread function"). */
#pragma once

#include "kernels/math/activation.h"
#include "kernels/math/block.h"
#include "kernels/star/slot.h"

/** Kernels reach REACH sigmas; pixels within EDGE sigmas of an end of their segment are bad. */
#define MILL_LSF_REACH 4.0
#define MILL_LSF_EDGE  3.0
/** A blur broadens sharp templates.  Its variance is at most LARGEST_BLUR times (variance of the
 *  line-spread function - variance of the templates).  On a grid coarser than the library's, the
 *  blurred templates have a sigma of at least GRID_SIGMA steps. */
#define MILL_LARGEST_BLUR 0.95
#define MILL_GRID_SIGMA   1.75
/** Weights of a kernel of sigma s pixels, by s:
 *   s < SAMPLES, pixels uniform to the fraction EVEN  mill_lsf_even
 *   s < MOMENTS, other pixels                         mill_lsf_moments
 *   s > SAMPLES                                       samples of the Gaussian
 *   other                                             mixture of moments and samples */
#define MILL_LSF_MOMENTS 0.6
#define MILL_LSF_SAMPLES 0.8
#define MILL_LSF_EVEN    0.01
/** A step between pixels above GAP times a neighbouring step is a gap: pixels are missing. */
#define MILL_LSF_GAP 1.5

enum { MILL_LSF_HALF = 4 /**< half width of mill_lsf_even's kernel; the least half width */ };

/** Compute weights of five pixels that convolve the quartic through these pixels with a Gaussian of
 *  sigma s, for any spacing of the pixels.  wave points at the middle pixel, in the unit of s. */
MILL_HD static inline void mill_lsf_moments(const double *wave, double s, double *weight)
{
  const double d[5] = {wave[-2] - wave[0], wave[-1] - wave[0], 0.0, wave[1] - wave[0],
                       wave[2] - wave[0]};
  double sum = 0.0;
  for (int j = 0; j < 5; j++) {
    if (j == 2)
      continue;
    /* mean over the Gaussian of Lagrange's polynomial x (x - a) (x - b) (x - c) / (value at d_j),
     * where a, b, c are the other points: x^2 has the mean s^2, and x^4 has 3 s^4 */
    double pairs = 0.0, value = d[j];
    for (int k = 0; k < 5; k++) {
      if (k == j || k == 2)
        continue;
      value *= d[j] - d[k];
      for (int l = 0; l < k; l++)
        if (l != j && l != 2)
          pairs += d[k] * d[l];
    }
    weight[j] = s * s * (3.0 * s * s + pairs) / value;
    sum += weight[j];
  }
  weight[2] = 1.0 - sum;
}

/** Compute weights of nine uniform pixels that act like a Gaussian of sigma s pixels.
 *
 *  The weights have the least mean squared error for lines of sigma 1.3 pixels at random places.
 *  The constants are the inverse of the nine pixels' covariance, exp(-d^2 / (4 sigma^2)) at
 *  distance d, with the rows of both sides added, as weights are symmetric.  The function has no
 *  local arrays, so that compilers vectorise it.
 *  weight  out  weights of the middle pixel and of one side, stride elements apart */
MILL_HD static inline void mill_lsf_even(double s, int stride, double *weight)
{
  const double sigma = 1.3, step = mill_exp_negative(-0.5 / (2.0 * sigma * sigma + s * s));
  /* c_k = step^(k^2) is the covariance of a pixel with the blurred line k pixels away */
  const double twice = step * step, step3 = step * twice, step5 = step3 * twice;
  const double c1 = step, c2 = c1 * step3, c3 = c2 * step5, c4 = c3 * (step5 * twice);
#define MILL_LSF_ROW(a, b, c, d, e) ((a) + (b)*c1 + (c)*c2 + (d)*c3 + (e)*c4)
  const double w0 = MILL_LSF_ROW(3409.4872628047, -6035.3472788939, 4095.6899540358,
                                 -1957.9065891723, 507.71865702255);
  const double w1 = MILL_LSF_ROW(-3017.6736394469, 5356.7806286554, -3659.6068088914,
                                 1763.9020140683, -461.15360756461);
  const double w2 = MILL_LSF_ROW(2047.8449770179, -3659.6068088914, 2546.4050167435,
                                 -1257.8540680297, 337.37998927709);
  const double w3 = MILL_LSF_ROW(-978.95329458618, 1763.9020140683, -1257.8540680297,
                                 646.31936698776, -181.66626535928);
  const double w4 = MILL_LSF_ROW(253.85932851127, -461.15360756461, 337.37998927709,
                                 -181.66626535928, 55.080049199411);
#undef MILL_LSF_ROW
  const double scale = 1.0 / (w0 + 2.0 * w1 + 2.0 * w2 + 2.0 * w3 + 2.0 * w4);
  weight[0] = scale * w0;
  weight[stride] = scale * w1;
  weight[2 * stride] = scale * w2;
  weight[3 * stride] = scale * w3;
  weight[4 * stride] = scale * w4;
}

/** Can mill_lsf_even make the kernel of sigma s_pix pixels for pixel i?  Pixel i must be at least
 *  MILL_LSF_HALF pixels from both ends.  No branches, so that loops over pixels vectorise. */
MILL_HD static inline int mill_lsf_is_even(const double *wave, int i, double s_pix)
{
  const int h = MILL_LSF_HALF;
  const double pixel = 0.5 * (wave[i + 1] - wave[i - 1]), most = MILL_LSF_EVEN * pixel;
  return (s_pix > 0.0) & (s_pix < MILL_LSF_SAMPLES) &
         (fabs(wave[i + h] - wave[i] - h * pixel) <= most) &
         (fabs(wave[i] - wave[i - h] - h * pixel) <= most);
}

/** As mill_lsf_is_even, for a pixel i that may be at an end. */
MILL_HD static inline int mill_lsf_takes_even(int n, const double *wave, int i, double s_pix)
{
  return i >= MILL_LSF_HALF && i < n - MILL_LSF_HALF && mill_lsf_is_even(wave, i, s_pix);
}

/** Can all len pixels from first on take their kernels from mill_lsf_even? */
MILL_HD static inline int mill_lsf_all_even(int n, const double *wave, int first, int len,
                                            const double *s_pix)
{
  int n_even = 0;
  if (first < MILL_LSF_HALF || first + len > n - MILL_LSF_HALF)
    return 0;
  MILL_SIMD_SUM(n_even)
  for (int i = 0; i < len; i++)
    n_even += mill_lsf_is_even(wave, first + i, s_pix[i]);
  return n_even == len;
}

/** Return the width of pixel i, in the unit of wave [n]: the mean step to the neighbouring pixels,
 *  or the shorter of the two steps if a gap is in the other one. */
MILL_HD static inline double mill_pixel_width(int n, const double *wave, int i)
{
  const int left = i > 0 ? i - 1 : 0, right = i < n - 1 ? i + 1 : i;
  const double below = wave[i] - wave[left], above = wave[right] - wave[i];
  const int gap_above = (below > 0.0) & (above > MILL_LSF_GAP * below);
  const int gap_below = (above > 0.0) & (below > MILL_LSF_GAP * above);
  const double mean = (wave[right] - wave[left]) / (double)(right - left);
  return gap_above ? below : (gap_below ? above : mean);
}

/** Compute the weights row [2 h + 1] of pixels i - h ... i + h for a Gaussian at pixel i.
 *  The Gaussian's sigma s and wave [n] are in A; h >= MILL_LSF_HALF.  Only pixel i has weight if s
 *  is not positive or an end is within two pixels. */
MILL_HD static inline void mill_lsf_row(int n, const double *wave, int i, double s, int h,
                                        double *row)
{
  for (int k = 0; k <= 2 * h; k++)
    row[k] = 0.0;
  if (!(s > 0.0) || i < 2 || i > n - 3) {
    row[h] = 1.0;
    return;
  }
  const double s_pix = s / mill_pixel_width(n, wave, i);
  if (mill_lsf_takes_even(n, wave, i, s_pix)) {
    double weight[MILL_LSF_HALF + 1];
    mill_lsf_even(s_pix, 1, weight);
    for (int k = 0; k <= MILL_LSF_HALF; k++)
      row[h - k] = row[h + k] = weight[k];
    return;
  }
  /* row = share * (samples of the Gaussian) + (1 - share) * (five weights of the same moments) */
  double share = (s_pix - MILL_LSF_MOMENTS) / (MILL_LSF_SAMPLES - MILL_LSF_MOMENTS);
  share = share < 0.0 ? 0.0 : (share > 1.0 ? 1.0 : share);
  if (share > 0.0) {
    double sum = 0.0;
    for (int k = 0; k <= 2 * h; k++) {
      const int j = i - h + k;
      if (j < 0 || j >= n)
        continue;
      const double u = (wave[j] - wave[i]) / s;
      row[k] = exp(-0.5 * u * u) * mill_pixel_width(n, wave, j);
      sum += row[k];
    }
    for (int k = 0; k <= 2 * h; k++)
      row[k] *= share / sum;
  }
  if (share < 1.0) {
    double weight[5];
    mill_lsf_moments(wave + i, s, weight);
    for (int k = 0; k < 5; k++)
      row[h - 2 + k] += (1.0 - share) * weight[k];
  }
}

/** Compute s->res and s->base, the rows' sums, from the segment's lsf_aa. */
MILL_BLOCK_FN void mill_block_prepare_lsf(mill_block *b, mill_segment *s)
{
  const int n = s->n_pix, nd = s->n_diag, h = nd / 2;
  const size_t pitch = (size_t)mill_row_pitch(n);
  /* s->base holds the wavelengths until the end */
  MILL_FOR_SIMD(b, i, n)
  {
    s->base[i] = 1.0 / mill_exp_negative(-s->ws->ln_wave[i]);
  }
  MILL_BARRIER(b);
  MILL_FOR(b, c, mill_chunks(n, MILL_CHUNK))
  {
    const int first = c * MILL_CHUNK, len = mill_chunk_len(n, first, MILL_CHUNK);
    double even[MILL_LSF_HALF + 1][MILL_CHUNK], s_pix[MILL_CHUNK];
    /* kernels for uniform pixels, vectorised; below, mill_lsf_row replaces those of other pixels */
    MILL_SIMD
    for (int i = 0; i < len; i++) {
      s_pix[i] = (double)s->lsf_aa[first + i] / mill_pixel_width(n, s->base, first + i);
      mill_lsf_even(s_pix[i], MILL_CHUNK, &even[0][i]);
    }
    for (int k = 0; k < nd; k++) {
      const int off = k < h ? h - k : k - h, is_inside = off <= MILL_LSF_HALF;
      const double *weight = even[is_inside ? off : 0];
      MILL_SIMD
      for (int i = 0; i < len; i++)
        s->res[(size_t)k * pitch + (size_t)(first + i)] = is_inside ? (float)weight[i] : 0.0f;
    }
    if (mill_lsf_all_even(n, s->base, first, len, s_pix))
      continue;
    for (int i = 0; i < len; i++) {
      double row[MILL_MAX_DIAG];
      if (mill_lsf_takes_even(n, s->base, first + i, s_pix[i]))
        continue;
      mill_lsf_row(n, s->base, first + i, (double)s->lsf_aa[first + i], h, row);
      for (int k = 0; k < nd; k++)
        s->res[(size_t)k * pitch + (size_t)(first + i)] = (float)row[k];
    }
  }
  MILL_BARRIER(b);
  MILL_FOR(b, c, mill_chunks(n, MILL_CHUNK))
  {
    const int first = c * MILL_CHUNK, len = mill_chunk_len(n, first, MILL_CHUNK);
    double sum[MILL_CHUNK];
    MILL_SIMD
    for (int i = 0; i < len; i++)
      sum[i] = 0.0;
    for (int k = 0; k < nd; k++) {
      const float *row = s->res + (size_t)k * pitch + first;
      MILL_SIMD
      for (int i = 0; i < len; i++)
        sum[i] += (double)row[i];
    }
    MILL_SIMD
    for (int i = 0; i < len; i++)
      s->base[first + i] = sum[i];
  }
  MILL_BARRIER(b);
}
