/** Blocks of a star that a GPU works on in another structure than a CPU: sums over pixels
 *  by float64 tensor cores, small matrices by the lanes of a warp.
 *
 *  Included by kernels/star/pixel.h where CUDA code is compiled.  The mathematics is that of the
 *  headers above kernels/cuda/; only the order of sums differs. */
#ifndef MILL_STAR_BLOCK_H
#define MILL_STAR_BLOCK_H

#include <float.h>

#include "kernels/math/block.h"
#include "kernels/math/gram.h"
#include "kernels/star/slot.h"

enum {
  MILL_MMA_ROWS = 8,     /**< of a tile of products */
  MILL_MMA_PIXELS = 4,   /**< that one instruction adds up */
  MILL_GRAM_PIXELS = 16, /**< that a warp takes at a time */
  MILL_GRAM_GROUPS = (MILL_MAX_CONT + MILL_MAX_PAR + MILL_MMA_ROWS - 1) / MILL_MMA_ROWS
};

/** c [8][8] += a [8][4] b [4][8], all of a warp.  A lane has a of row lane / 4 and column
 *  lane % 4, b of row lane % 4 and column lane / 4, c of row lane / 4 and columns
 *  2 (lane % 4) and the next: so the same numbers as a and b are products of rows. */
static __device__ __forceinline__ void mill_mma_f64(double a, double b, double *c)
{
#if defined(MILL_CUDA_EMULATION)
  const double mine[2] = {a, b};
  const unsigned char *all = mill_emu_exchange(mine, sizeof mine);
  const int lane = (int)threadIdx.x & 31;
  for (int k = 0; k < MILL_MMA_PIXELS; k++)
    for (int j = 0; j < 2; j++) {
      double x, y;
      memcpy(&x, all + (lane / 4 * 4 + k) * 64, sizeof x);
      memcpy(&y, all + ((2 * (lane % 4) + j) * 4 + k) * 64 + sizeof x, sizeof y);
      c[j] = fma(x, y, c[j]);
    }
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
               : "+d"(c[0]), "+d"(c[1])
               : "d"(a), "d"(b));
#else
  const int lane = (int)threadIdx.x & 31;
  for (int k = 0; k < MILL_MMA_PIXELS; k++) {
    const double x = __shfl_sync(0xffffffffu, a, (lane / 4) * 4 + k);
    const double y0 = __shfl_sync(0xffffffffu, b, (2 * (lane % 4)) * 4 + k);
    const double y1 = __shfl_sync(0xffffffffu, b, (2 * (lane % 4) + 1) * 4 + k);
    c[0] = fma(x, y0, c[0]);
    c[1] = fma(x, y1, c[1]);
  }
#endif
}

/** Add the tiles c of all warps in turn to sums: the products of rows [first, n_row) with
 *  the rows up to themselves, at mill_gram_at(r, c) - mill_gram_at(first, 0).  sums in
 *  shared memory; complete for all threads on return. */
template <int n_group>
static __device__ inline void mill_gram_collect(int first, int n_row, const double (*c)[2],
                                                double *sums)
{
  const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
  const int n_warp = (int)blockDim.x >> 5, origin = mill_gram_at(first, 0);
  __syncthreads(); /* whoever still reads the sums before these */
  for (int w = 0; w < n_warp; w++) {
    if (w == warp) {
#pragma unroll
      for (int g = 0; g < n_group; g++)
#pragma unroll
        for (int h = 0; h <= g; h++)
#pragma unroll
          for (int j = 0; j < 2; j++) {
            const int row = MILL_MMA_ROWS * g + lane / 4;
            const int column = MILL_MMA_ROWS * h + 2 * (lane % 4) + j;
            if (row < first || row >= n_row || column > row)
              continue;
            double *sum = sums + mill_gram_at(row, column) - origin;
            *sum = (w == 0 ? 0.0 : *sum) + c[g * (g + 1) / 2 + h][j];
          }
    }
    __syncthreads();
  }
}

/** Products of the rows P_k t, k < nk, and D of a segment's pixels. */
template <int n_group, typename real>
static __device__ inline void mill_normal_sums_of(int nk, const mill_segment *s, const real *templ,
                                                  double level, double *sums)
{
  const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
  const int n_warp = (int)blockDim.x >> 5, n = s->n_pix;
  const float *cont = s->ws->cont;
  double c[n_group * (n_group + 1) / 2][2];
#pragma unroll
  for (int i = 0; i < n_group * (n_group + 1) / 2; i++)
    c[i][0] = c[i][1] = 0.0;
  for (int base = warp * MILL_GRAM_PIXELS; base < n; base += n_warp * MILL_GRAM_PIXELS)
#pragma unroll
    for (int part = 0; part < MILL_GRAM_PIXELS; part += MILL_MMA_PIXELS) {
      const int p = base + part + lane % 4;
      double t = 0.0, x[n_group];
      if (p < n) {
        t = level * s->base[p];
        if (templ)
          t += (double)templ[p];
        t *= (double)s->is[p];
      }
#pragma unroll
      for (int g = 0; g < n_group; g++) {
        const int row = MILL_MMA_ROWS * g + lane / 4;
        x[g] = 0.0;
        if (p < n && row < nk)
          x[g] = (double)cont[(ptrdiff_t)row * n + p] * t;
        else if (p < n && row == nk)
          x[g] = (double)s->d[p];
      }
#pragma unroll
      for (int g = 0; g < n_group; g++)
#pragma unroll
        for (int h = 0; h <= g; h++)
          mill_mma_f64(x[g], x[h], c[g * (g + 1) / 2 + h]);
    }
  mill_gram_collect<n_group>(0, nk + 1, c, sums);
}

/** Normal matrix and right-hand side of a segment, packed as products of rows. */
template <typename real>
static __device__ inline void mill_normal_sums(int nk, const mill_segment *s, const real *templ,
                                               double level, double *sums)
{
  switch (nk / MILL_MMA_ROWS) { /* of nk + 1 rows */
  case 0:
    mill_normal_sums_of<1>(nk, s, templ, level, sums);
    break;
  case 1:
    mill_normal_sums_of<2>(nk, s, templ, level, sums);
    break;
  case 2:
    mill_normal_sums_of<3>(nk, s, templ, level, sums);
    break;
  default:
    mill_normal_sums_of<4>(nk, s, templ, level, sums);
    break;
  }
}
static_assert((MILL_MAX_CONT + 1 + MILL_MMA_ROWS - 1) / MILL_MMA_ROWS <= 4, "cases above");

/** Factor a [n][n] (lower triangle) as mill_cholesky does and solve for v [n], by one warp.
 *
 *  Both in shared memory, n <= 32.  out: [0] ln det, [1] |L^-1 v|^2.  0, or 1 + the row
 *  that failed; the same on all threads. */
static __device__ inline int mill_block_normal(mill_block *b, int n, double *a, double *v,
                                               double *out)
{
  const unsigned all = 0xffffffffu;
  (void)b;
  if (threadIdx.x < 32) {
    const int i = (int)threadIdx.x, mine = i < n;
    const double floor_rel = (double)n * DBL_EPSILON;
    const double diagonal = mine ? a[i * n + i] : 1.0;
    int failed = 0;
    for (int k = 0; k < n; k++) {
      const double pivot = a[k * n + k], from = __shfl_sync(all, diagonal, k);
      if (!(pivot > floor_rel * from)) {
        failed = 1 + k;
        break; /* all lanes */
      }
      const double root = sqrt(pivot);
      __syncwarp();
      if (i == k)
        a[k * n + k] = root;
      else if (mine && i > k)
        a[i * n + k] /= root;
      __syncwarp();
      if (mine && i > k)
        for (int j = k + 1; j <= i; j++)
          a[i * n + j] -= a[i * n + k] * a[j * n + k];
      __syncwarp();
    }
    if (!failed) {
      double y = mine ? v[i] : 0.0;
      for (int k = 0; k < n; k++) {
        const double yk = __shfl_sync(all, y, k) / a[k * n + k];
        if (i == k)
          y = yk;
        else if (mine && i > k)
          y -= a[i * n + k] * yk;
      }
      const double vv = mill_warp_sum(mine ? y * y : 0.0);
      const double ln_det = 2.0 * mill_warp_sum(mine ? log(a[i * n + i]) : 0.0);
      for (int k = n - 1; k >= 0; k--) {
        const double yk = __shfl_sync(all, y, k) / a[k * n + k];
        if (i == k)
          y = yk;
        else if (i < k)
          y -= a[k * n + i] * yk;
      }
      if (mine)
        v[i] = y;
      if (i == 0) {
        out[0] = ln_det;
        out[1] = vv;
      }
    }
    if (i == 0)
      out[2] = (double)failed;
  }
  __syncthreads();
  return (int)out[2];
}

/** |L^-1 p|^2 of one pixel, p_k at cont[k n], all numbers in registers.
 *  inverse [nk] of L's diagonal. */
template <int n_max>
static __device__ inline double mill_pixel_quadratic_of(int nk, int n, const double *chol,
                                                        const double *inverse, const float *cont)
{
  double z[n_max], sum = 0.0;
#pragma unroll
  for (int k = 0; k < n_max; k++) {
    z[k] = 0.0;
    if (k < nk) {
      double x = (double)cont[(ptrdiff_t)k * n];
#pragma unroll
      for (int l = 0; l < k; l++)
        x -= chol[k * nk + l] * z[l];
      z[k] = x * inverse[k];
      sum += z[k] * z[k];
    }
  }
  return sum;
}

/** Continuum and what the gradient is weighted by, per pixel: poly = P a and
 *  slope = t p^T N^-1 p - poly (d - poly t), the first term where marginal. */
template <typename real>
static __device__ inline void
mill_pixel_slopes(int nk, const mill_segment *s, const real *templ, double level, int marginal,
                  const double *a, const double *chol, double *inverse, double *poly, double *slope)
{
  const int n = s->n_pix;
  const float *cont = s->ws->cont;
  if ((int)threadIdx.x < nk)
    inverse[threadIdx.x] = 1.0 / chol[(int)threadIdx.x * nk + (int)threadIdx.x];
  __syncthreads();
  for (int p = (int)threadIdx.x; p < n; p += (int)blockDim.x) {
    const double t = (level * s->base[p] + (double)templ[p]) * (double)s->is[p];
    double sum = 0.0;
    for (int k = 0; k < nk; k++)
      sum += a[k] * (double)cont[(ptrdiff_t)k * n + p];
    double x = -sum * ((double)s->d[p] - sum * t);
    if (marginal) {
      const double quad =
          nk <= 12 ? mill_pixel_quadratic_of<12>(nk, n, chol, inverse, cont + p)
                   : mill_pixel_quadratic_of<MILL_MAX_CONT>(nk, n, chol, inverse, cont + p);
      x += t * quad;
    }
    poly[p] = sum;
    slope[p] = x;
  }
  __syncthreads();
}

/** Products of the rows P_k t, k < nk, and V_j, j < np, those with a V in them, and after
 *  them half the gradient. */
template <int n_group, typename real>
static __device__ inline void
mill_jacobian_sums_of(int nk, int np, const mill_segment *s, const real *templ, int pitch,
                      double level, const double *poly, const double *slope, double *sums)
{
  const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
  const int n_warp = (int)blockDim.x >> 5, n = s->n_pix;
  const float *cont = s->ws->cont;
  double c[n_group * (n_group + 1) / 2][2], gradient[n_group];
#pragma unroll
  for (int i = 0; i < n_group * (n_group + 1) / 2; i++)
    c[i][0] = c[i][1] = 0.0;
#pragma unroll
  for (int g = 0; g < n_group; g++)
    gradient[g] = 0.0;
  for (int base = warp * MILL_GRAM_PIXELS; base < n; base += n_warp * MILL_GRAM_PIXELS)
#pragma unroll
    for (int part = 0; part < MILL_GRAM_PIXELS; part += MILL_MMA_PIXELS) {
      const int p = base + part + lane % 4;
      double is = 0.0, t = 0.0, continuum = 0.0, weight = 0.0, x[n_group];
      if (p < n) {
        is = (double)s->is[p];
        t = (level * s->base[p] + (double)templ[p]) * is;
        continuum = poly[p];
        weight = slope[p];
      }
#pragma unroll
      for (int g = 0; g < n_group; g++) {
        const int row = MILL_MMA_ROWS * g + lane / 4;
        x[g] = 0.0;
        if (p < n && row < nk) {
          x[g] = (double)cont[(ptrdiff_t)row * n + p] * t;
        } else if (p < n && row < nk + np) {
          const double v = (double)templ[(ptrdiff_t)(1 + row - nk) * pitch + p] * is;
          gradient[g] += v * weight;
          x[g] = v * continuum;
        }
      }
#pragma unroll
      for (int g = 0; g < n_group; g++) {
        if (MILL_MMA_ROWS * (g + 1) <= nk)
          continue; /* no V among its rows */
#pragma unroll
        for (int h = 0; h <= g; h++)
          mill_mma_f64(x[g], x[h], c[g * (g + 1) / 2 + h]);
      }
    }
  mill_gram_collect<n_group>(nk, nk + np, c, sums);
  double *half = sums + mill_gram_at(nk + np, 0) - mill_gram_at(nk, 0);
  for (int w = 0; w < n_warp; w++) {
#pragma unroll
    for (int g = 0; g < n_group; g++) {
      /* over the four lanes of a row */
      double sum = gradient[g];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      const int j = MILL_MMA_ROWS * g + lane / 4 - nk;
      if (w == warp && lane % 4 == 0 && j >= 0 && j < np)
        half[j] = (w == 0 ? 0.0 : half[j]) + sum;
    }
    __syncthreads();
  }
}

template <typename real>
static __device__ inline void
mill_jacobian_sums(int nk, int np, const mill_segment *s, const real *templ, int pitch,
                   double level, const double *poly, const double *slope, double *sums)
{
  const int n_group = (nk + np + MILL_MMA_ROWS - 1) / MILL_MMA_ROWS;
  if (n_group <= 2)
    mill_jacobian_sums_of<2>(nk, np, s, templ, pitch, level, poly, slope, sums);
  else if (n_group == 3)
    mill_jacobian_sums_of<3>(nk, np, s, templ, pitch, level, poly, slope, sums);
  else
    mill_jacobian_sums_of<MILL_GRAM_GROUPS>(nk, np, s, templ, pitch, level, poly, slope, sums);
}

#endif
