/** Pixel preparation: raw flux, ivar, mask and resolution to what the
 *  likelihood reads.  Conventions of rvspecfit's DESI reader, so that results
 *  can be compared; every rule is listed in docs/numerics.md.
 */
#ifndef MILL_PREPARE_H
#define MILL_PREPARE_H

#include "kernels/block.h"
#include "kernels/slot.h"

/** Line-spread functions given as a sigma, in units of the sigma that templates lack:
 *  how far a kernel reaches; how much of the arm it needs on each side of a pixel. */
#define MILL_LSF_REACH 4.0
#define MILL_LSF_EDGE  3.0
/** Templates are called too broad where sigma is below this times theirs, and FIT_INFO
 *  tells when a fraction of the pixels is concerned that is at least the second. */
#define MILL_LSF_NARROW   0.99
#define MILL_LSF_SIZEABLE 0.1
/** Kernels narrower than the first (sigma over pixels) are made of moments, wider than
 *  the second of samples; between them of both, so that there is no step. */
#define MILL_LSF_MOMENTS 0.6
#define MILL_LSF_SAMPLES 0.8

/** Order-preserving map of float bits to unsigned; NaN must be excluded. */
MILL_HD static inline uint32_t mill_float_key(float x)
{
  union {
    float f;
    uint32_t u;
  } v;
  v.f = x + 0.0f; /* -0 and +0 are one value */
  return v.u & 0x80000000u ? ~v.u : v.u | 0x80000000u;
}

MILL_HD static inline float mill_float_from_key(uint32_t k)
{
  union {
    float f;
    uint32_t u;
  } v;
  v.u = k & 0x80000000u ? k & 0x7fffffffu : ~k;
  return v.f;
}

/** Median of x[i] with keep[i] set and x[i] not NaN (numpy.nanmedian: the mean
 *  of the two middle ones for an even count); NaN when there is none.  Exact:
 *  32 rounds of counting, so that it runs in parallel without sorting. */
MILL_BLOCK_FN double mill_block_median(mill_block *b, int n, const float *x,
                                       const unsigned char *keep)
{
  double part = 0.0;
  MILL_FOR(b, i, n)
  {
    part += keep[i] && x[i] == x[i] ? 1.0 : 0.0;
  }
  const double count = mill_block_sum(b, part);
  if (count < 1.0)
    return (double)NAN;
  /* largest key with at most (count - 1) / 2 keys below it */
  const double rank = floor((count - 1.0) / 2.0);
  uint32_t key = 0;
  for (int bit = 31; bit >= 0; bit--) {
    const uint32_t probe = key | (1u << bit);
    part = 0.0;
    MILL_FOR(b, i, n)
    {
      part += keep[i] && x[i] == x[i] && mill_float_key(x[i]) < probe ? 1.0 : 0.0;
    }
    if (mill_block_sum(b, part) <= rank)
      key = probe;
  }
  const double low = (double)mill_float_from_key(key);
  if (fmod(count, 2.0) != 0.0)
    return low;
  /* the next one: the same value when it occurs often enough, else the least above */
  double acc[2] = {0.0, 0.0};
  MILL_FOR(b, i, n)
  {
    acc[0] += keep[i] && x[i] == x[i] && mill_float_key(x[i]) <= key ? 1.0 : 0.0;
  }
  const double n_le = mill_block_sum(b, acc[0]);
  if (n_le > rank + 1.0)
    return low;
  uint32_t high = 0;
  for (int bit = 31; bit >= 0; bit--) {
    const uint32_t probe = high | (1u << bit);
    part = 0.0;
    MILL_FOR(b, i, n)
    {
      part += keep[i] && x[i] == x[i] && mill_float_key(x[i]) < probe ? 1.0 : 0.0;
    }
    if (mill_block_sum(b, part) <= rank + 1.0)
      high = probe;
  }
  return 0.5 * (low + (double)mill_float_from_key(high));
}

/** Resolution matrix: diagonals as stored (offsets +h..-h, scipy dia layout) to
 *  row form, the template's own resolution taken out, edge rows rescaled. */
MILL_BLOCK_FN void mill_block_prepare_resolution(mill_block *b, mill_segment *s)
{
  const int n = s->n_pix, nd = s->n_diag, h = nd / 2;
  MILL_FOR(b, i, n)
  {
    double row[MILL_MAX_DIAG];
    for (int k = 0; k < nd; k++) {
      const int j = i - h + k;
      row[k] = j >= 0 && j < n ? (double)s->raw_res[(size_t)(nd - 1 - k) * n + j] : 0.0;
    }
    double sum = 0.0;
    for (int k = 0; k < nd; k++) {
      double x = row[k];
      if (s->deconv) {
        x = 0.0;
        for (int l = 0; l < nd; l++)
          x += s->deconv[k * nd + l] * row[l];
      }
      s->res[(size_t)k * n + i] = (float)x;
      sum += x;
    }
    s->scratch[i] = (float)sum;
  }
  MILL_BARRIER(b);
  /* every row counts, also where the file has zeros */
  MILL_FOR(b, i, n)
  {
    s->good[i] = 1;
  }
  MILL_BARRIER(b);
  double mult = mill_block_median(b, n, s->scratch, s->good);
  if (!(mult != 0.0))
    mult = 1.0;
  MILL_BARRIER(b);
  MILL_FOR(b, i, n)
  {
    const int edge = i < h || i >= n - h;
    double sum = 0.0;
    for (int k = 0; k < nd; k++) {
      const int j = i - h + k;
      if (j >= 0 && j < n)
        sum += (double)s->res[(size_t)k * n + i];
    }
    const double factor = edge ? mult / (sum != 0.0 ? sum : 1.0) : 1.0;
    double base = 0.0;
    for (int k = 0; k < nd; k++) {
      const int j = i - h + k;
      const size_t at = (size_t)k * n + i;
      s->res[at] = j >= 0 && j < n ? (float)(factor * (double)s->res[at]) : 0.0f;
      base += (double)s->res[at];
    }
    s->base[i] = base;
  }
  MILL_BARRIER(b);
}

/** Weights of the pixels around i that act as a Gaussian of sigma s does on the quartic
 *  through five of them: exact moments up to the fourth, however narrow it is and
 *  whatever the spacing.  wave points at pixel i. */
MILL_HD static inline void mill_lsf_moments(const double *wave, double s, double *weight)
{
  const double d[5] = {wave[-2] - wave[0], wave[-1] - wave[0], 0.0, wave[1] - wave[0],
                       wave[2] - wave[0]};
  double sum = 0.0;
  for (int j = 0; j < 5; j++) {
    if (j == 2)
      continue;
    /* Lagrange's polynomial of point j is x (x - a) (x - b) (x - c) / (its value at
     * d_j), and the mean of x^2 over the Gaussian is s^2, of x^4 3 s^4, of x and x^3 0 */
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

/** Weights of the pixels i - h ... i + h (h >= 2) for a Gaussian of sigma s in A that is
 *  sampled at pixels wave [n].  s not positive, or within two pixels of an end: pixel i
 *  alone. */
MILL_HD static inline void mill_lsf_row(int n, const double *wave, int i, double s, int h,
                                        double *row)
{
  for (int k = 0; k <= 2 * h; k++)
    row[k] = 0.0;
  if (!(s > 0.0) || i < 2 || i > n - 3) {
    row[h] = 1.0;
    return;
  }
  const double s_pix = 2.0 * s / (wave[i + 1] - wave[i - 1]);
  double share = (s_pix - MILL_LSF_MOMENTS) / (MILL_LSF_SAMPLES - MILL_LSF_MOMENTS);
  share = share < 0.0 ? 0.0 : (share > 1.0 ? 1.0 : share);
  if (share > 0.0) {
    double sum = 0.0;
    for (int k = 0; k <= 2 * h; k++) {
      const int j = i - h + k;
      if (j < 0 || j >= n)
        continue;
      const int left = j > 0 ? j - 1 : 0, right = j < n - 1 ? j + 1 : n - 1;
      const double u = (wave[j] - wave[i]) / s;
      row[k] = exp(-0.5 * u * u) * (wave[right] - wave[left]) / (double)(right - left);
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

/** Line-spread function from a sigma per pixel: rows as of a resolution matrix. */
MILL_BLOCK_FN void mill_block_prepare_lsf(mill_block *b, mill_segment *s)
{
  const int n = s->n_pix, nd = s->n_diag, h = nd / 2;
  /* for a moment the wavelengths */
  MILL_FOR(b, i, n)
  {
    s->base[i] = exp(s->ws->ln_wave[i]);
  }
  MILL_BARRIER(b);
  MILL_FOR(b, i, n)
  {
    double row[MILL_MAX_DIAG];
    mill_lsf_row(n, s->base, i, (double)s->lsf_aa[i], h, row);
    for (int k = 0; k < nd; k++)
      s->res[(size_t)k * n + i] = (float)row[k];
  }
  MILL_BARRIER(b);
  MILL_FOR(b, i, n)
  {
    double sum = 0.0;
    for (int k = 0; k < nd; k++)
      sum += (double)s->res[(size_t)k * n + i];
    s->base[i] = sum;
  }
  MILL_BARRIER(b);
}

/** Value is usable: not masked, finite, positive ivar. */
MILL_HD static inline int mill_pixel_usable(const mill_segment *s, uint32_t ignore, int i)
{
  return ((uint32_t)s->raw_mask[i] & ~ignore) == 0 && isfinite(s->raw_flux[i]) &&
         isfinite(s->raw_ivar[i]) && s->raw_ivar[i] > 0.0f;
}

/** Flux of pixel i, linearly interpolated over a run of unusable pixels; a run
 *  at an edge takes its neighbour; with no usable pixel the flux as it is. */
MILL_HD static inline double mill_pixel_filled(const mill_segment *s, uint32_t ignore, int i)
{
  if (mill_pixel_usable(s, ignore, i))
    return (double)s->raw_flux[i];
  int l = i - 1, r = i + 1;
  while (l >= 0 && !mill_pixel_usable(s, ignore, l))
    l--;
  while (r < s->n_pix && !mill_pixel_usable(s, ignore, r))
    r++;
  if (l < 0 && r >= s->n_pix)
    return (double)s->raw_flux[i];
  if (l < 0)
    return (double)s->raw_flux[r];
  if (r >= s->n_pix)
    return (double)s->raw_flux[l];
  const double fl = (double)s->raw_flux[l], fr = (double)s->raw_flux[r];
  return fl + (fr - fl) / (double)(r - l) * (double)(i - l);
}

/** Prepare one segment.  Sets used, n_good, sn, d, is, good, res, sums. */
MILL_BLOCK_FN void mill_block_prepare(mill_block *b, const mill_model *m, mill_segment *s)
{
  const int n = s->n_pix;
  const uint32_t ignore = m->set.mask_ignore;
  const int edge = s->raw_res ? m->set.edge_pix : 0;

  if (s->raw_res) {
    mill_block_prepare_resolution(b, s);
  } else if (s->res) {
    mill_block_prepare_lsf(b, s);
  } else {
    MILL_FOR(b, i, n)
    {
      s->base[i] = 1.0;
    }
    MILL_BARRIER(b);
  }

  /* S/N: over pixels with no mask bit and positive ivar */
  MILL_FOR(b, i, n)
  {
    const float iv = s->raw_ivar[i];
    s->good[i] = (unsigned char)(((uint32_t)s->raw_mask[i] & ~ignore) == 0 && iv > 0.0f);
    s->scratch[i] = s->raw_flux[i] * sqrtf(iv > 0.0f ? iv : 0.0f);
  }
  MILL_BARRIER(b);
  const double sn = mill_block_median(b, n, s->scratch, s->good);

  /* the flux scale that bad pixels' errors are made of: the median of all
   * pixels, else of positive ones without a mask bit, else of absolute values */
  MILL_BARRIER(b);
  double part = 0.0;
  MILL_FOR(b, i, n)
  {
    part += ((uint32_t)s->raw_mask[i] & ~ignore) == 0 ? 1.0 : 0.0;
    s->good[i] = 1;
  }
  const double n_clear = mill_block_sum(b, part);
  MILL_BARRIER(b);
  double scale = mill_block_median(b, n, s->raw_flux, s->good);
  MILL_BARRIER(b);
  if (scale == 0.0) {
    MILL_FOR(b, i, n)
    {
      s->good[i] =
          (unsigned char)(((uint32_t)s->raw_mask[i] & ~ignore) == 0 && s->raw_flux[i] > 0.0f);
    }
    MILL_BARRIER(b);
    scale = mill_block_median(b, n, s->raw_flux, s->good);
    MILL_BARRIER(b);
    if (!isfinite(scale)) {
      MILL_FOR(b, i, n)
      {
        s->good[i] = 1;
        s->scratch[i] = fabsf(s->raw_flux[i]);
      }
      MILL_BARRIER(b);
      scale = mill_block_median(b, n, s->scratch, s->good);
      MILL_BARRIER(b);
    }
  }
  MILL_SERIAL(b)
  {
    s->sn = isfinite(sn) ? sn : -1e9;
    s->n_good = 0;
    s->used = 0;
    s->sum_ln_var = 0.0;
    s->dd = 0.0;
  }
  MILL_BARRIER(b);
  if (n_clear < 1.0 || !isfinite(scale) || scale == 0.0)
    return;

  const double bad_sigma = m->set.bad_sigma_factor * fabs(scale);
  part = 0.0;
  MILL_FOR(b, i, n)
  {
    const int good = mill_pixel_usable(s, ignore, i) && !s->ws->masked[i] && i >= edge &&
                     i < n - edge && !(s->lsf_aa && isnan(s->lsf_aa[i]));
    s->good[i] = (unsigned char)good;
    s->scratch[i] = good ? (float)(1.0 / sqrt((double)s->raw_ivar[i])) : 0.0f;
    part += good ? 1.0 : 0.0;
  }
  const double n_good = mill_block_sum(b, part);
  MILL_BARRIER(b);
  double floor_sigma = 0.0;
  if (n_good > 0.0)
    floor_sigma = m->set.sigma_floor * mill_block_median(b, n, s->scratch, s->good);
  MILL_BARRIER(b);
  double acc[3] = {0.0, 0.0, 0.0};
  MILL_FOR(b, i, n)
  {
    double sigma = bad_sigma;
    if (s->good[i]) {
      sigma = 1.0 / sqrt((double)s->raw_ivar[i]);
      if (sigma < floor_sigma)
        sigma = floor_sigma;
    }
    const double flux = mill_pixel_filled(s, ignore, i);
    const double d = flux / sigma;
    s->d[i] = (float)d;
    s->is[i] = (float)(1.0 / sigma);
    acc[0] += 2.0 * log(sigma);
    acc[1] += (double)s->d[i] * (double)s->d[i];
    acc[2] += isfinite(s->d[i]) && isfinite(s->is[i]) && s->is[i] > 0.0f ? 0.0 : 1.0;
  }
  double total[3];
  mill_block_sum_n(b, acc, 3, total);
  MILL_SERIAL(b)
  {
    s->n_good = (int)n_good;
    s->sum_ln_var = total[0];
    s->dd = total[1];
    /* left over: no usable pixel to interpolate from, or values beyond float32 */
    s->used = total[2] == 0.0 && isfinite(total[0]) && isfinite(total[1]);
    if (!s->used)
      s->n_good = 0;
  }
  MILL_BARRIER(b);
}

#endif
