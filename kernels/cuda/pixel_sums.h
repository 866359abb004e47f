/** What the sums over pixels of a GPU are made of (pixel_sums_impl.h): products of rows by float64
 *  tensor cores, small matrices by the lanes of a warp.  Only the order of sums differs from the
 *  CPU's (kernels/cpu/pixel_sums.h). */
#ifndef MILL_CUDA_PIXEL_SUMS_H
#define MILL_CUDA_PIXEL_SUMS_H

#include <float.h>

#include "kernels/math/block.h"
#include "kernels/math/gram.h"
#include "kernels/star/slot.h"

enum {
  MILL_MMA_ROWS = 8,     /**< of a tile of products */
  MILL_MMA_PIXELS = 4,   /**< that one instruction adds up */
  MILL_GRAM_PIXELS = 32, /**< that a warp takes at a time */
  MILL_GRAM_EACH = 8,    /**< of them that a lane loads of a row */
  MILL_FEW_CONT = 12,    /**< continuum functions of one pixel that registers hold easily */
  MILL_TEAM_SPACE = 440, /**< numbers of a warp's own sums */
  MILL_GRAM_GROUPS = (MILL_MAX_ROWS + MILL_MMA_ROWS - 1) / MILL_MMA_ROWS
};

/** What rows are multiplied by, for each pixel of a warp in its stage; the last is not for rows but
 *  for the gradient. */
enum {
  MILL_BY_ONE,
  MILL_BY_TEMPLATE,  /**< of continuum functions: t */
  MILL_BY_CONTINUUM, /**< of derivatives of the template: P a / sigma */
  MILL_BY_SLOPE,     /**< weight of half the gradient / sigma */
  MILL_N_BY
};

/** Two numbers of a stage at once. */
static __device__ __forceinline__ double2 mill_two(const double *at)
{
  return *(const double2 *)(const void *)at;
}

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

/** One tile of mill_gram_collect: rows of group g, columns of group h. */
static __device__ __forceinline__ void mill_gram_collect_tile(int lane, int first, int n_row, int g,
                                                              int h, int is_first, const double *c,
                                                              double *sums)
{
#pragma unroll
  for (int j = 0; j < 2; j++) {
    const int row = MILL_MMA_ROWS * g + lane / 4, column = MILL_MMA_ROWS * h + 2 * (lane % 4) + j;
    if (row < first || row >= n_row || column > row)
      continue;
    double *sum = sums + mill_gram_at(row, column) - mill_gram_at(first, 0);
    *sum = (is_first ? 0.0 : *sum) + c[j];
  }
}

/** Add the tiles of all warps in turn to sums: the products of rows [first, n_row) in n_own groups
 *  from g0 on, at mill_gram_at(r, c) - mill_gram_at(first, 0): with each other (own, unless h > 0),
 *  groups (0, 0), (1, 0), (1, 1), and of one group with those of group h < g0 (across).  Complete
 * for all of the n_thread threads on return. */
template <int n_own>
static __device__ __forceinline__ void
mill_gram_collect(int thread, int n_thread, int first, int n_row, int g0, int h,
                  const double *across, const double (*own)[2], double *sums)
{
  const int lane = thread & 31, warp = thread >> 5, n_warp = n_thread >> 5;
  mill_threads_wait(n_thread); /* other threads may still read the sums before these */
  for (int w = 0; w < n_warp; w++) {
    if (w == warp) {
      if (n_own == 1 && h < g0)
        mill_gram_collect_tile(lane, first, n_row, g0, h, w == 0, across, sums);
#pragma unroll
      for (int i = 0; i < n_own * (n_own + 1) / 2; i++)
        if (h == 0)
          mill_gram_collect_tile(lane, first, n_row, g0 + (i > 0), g0 + (i > 1), w == 0, own[i],
                                 sums);
    }
    mill_threads_wait(n_thread);
  }
}

/** Factor a [n][n] (lower triangle) as mill_cholesky does and solve for v [n], by the first
 *  warp.
 *
 *  n <= 32.  out: [0] ln det, [1] |L^-1 v|^2.  0, or 1 + the row
 *  that failed; the same on all threads. */
static __device__ __noinline__ int mill_threads_normal(int thread, int n_thread, int n, double *a,
                                                       double *v, double *out)
{
  const unsigned all = 0xffffffffu;
  if (thread < 32) {
    const int i = thread, mine = i < n;
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
  mill_threads_wait(n_thread);
  return (int)out[2];
}

/** The same for the threads of a block. */
static __device__ inline int mill_block_normal(mill_block *b, int n, double *a, double *v,
                                               double *out)
{
  return mill_threads_normal(b->thread, b->n_thread, n, a, v, out);
}

/** a . p and |L^-1 p|^2 of p [nk], all numbers in registers.  inverse [nk] of L's diagonal. */
template <int n_max>
static __device__ __forceinline__ void
mill_pixel_quadratic_of(int nk, const double *a, const double *chol, const double *inverse,
                        const float *p, double *poly, double *quad)
{
  double z[n_max], sum = 0.0, square = 0.0;
#pragma unroll
  for (int k = 0; k < n_max; k++) {
    z[k] = 0.0;
    if (k < nk) {
      double x = (double)p[k];
      sum += a[k] * x;
#pragma unroll
      for (int l = 0; l < k; l++)
        x -= chol[k * nk + l] * z[l];
      z[k] = x * inverse[k];
      square += z[k] * z[k];
    }
  }
  *poly = sum;
  *quad = square;
}

/** In shared memory: what the warps of a block need to work apart. */
typedef struct mill_team_memory {
  mill_workspace work[MILL_BLOCK_WARPS];
  double *space; /**< [MILL_BLOCK_WARPS][MILL_TEAM_SPACE], the memory of the block's own sums */
} mill_team_memory;

/** A team's share of work that has no order: velocities first, first + step, ... */
typedef struct mill_team {
  mill_block block;
  mill_workspace *work;
  int first, step;
} mill_team;

/** The team of the calling thread, for likelihoods of a segment: a warp, which has rows over pixels
 *  of row_bytes and sums of its own; where shared memory has no room for these, all threads.  A
 * warp has no memory for sums over a block or for tiles: only likelihoods are for it. */
static __device__ inline void mill_block_team(mill_block *b, const mill_segment *s,
                                              size_t row_bytes, mill_workspace *work,
                                              mill_team *team)
{
  const int nk = s->ws->n_cont, ne = s->n_error, warp = b->thread >> 5;
  const int n_sum = mill_gram_at(ne + nk + 1, 0) - mill_gram_at(ne, 0);
  team->block = *b;
  team->work = work;
  team->first = 0;
  team->step = 1;
  if (!b->team || n_sum + nk * nk + nk > MILL_TEAM_SPACE)
    return;
  mill_workspace *own = &b->team->work[warp];
  team->block.thread = b->thread & 31;
  team->block.n_thread = 32;
  team->block.shared = NULL;
  team->block.stage = (double *)b->stage + (ptrdiff_t)warp * MILL_N_BY * MILL_GRAM_PIXELS;
  team->work = own;
  team->first = warp;
  team->step = MILL_BLOCK_WARPS;
  __syncthreads(); /* the block's own sums are not needed any more */
  if (team->block.thread == 0) {
    *own = *work;
    own->pixel = (char *)work->pixel + (size_t)warp * row_bytes;
    own->smooth = (char *)work->smooth + (size_t)warp * row_bytes;
    own->error = work->error + (ptrdiff_t)warp * MILL_ERROR_SPACE;
    own->sums = b->team->space + (ptrdiff_t)warp * MILL_TEAM_SPACE;
    own->normal = own->sums + n_sum;
    own->solve = own->normal + nk * nk;
  }
  __syncwarp();
}

#endif
