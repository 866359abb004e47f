/* SPDX-License-Identifier: BSD-3-Clause */
/** Sums of products over pixels on a GPU.  kernels/cpu/pixel_sums.h explains the sums and symbols;
 *  only the order of sums differs.
 *
 *  A warp takes 32 pixels at a time.  Each lane computes the rows' multipliers (MILL_BY_*) at one
 *  pixel and writes them to shared memory (the warp's stage).  Rows form groups of eight.  Four
 *  lanes share a row: each lane loads eight pixels.  Tensor cores sum the products of rows. */
#pragma once

#include "kernels/cuda/mma.h"
#include "kernels/cuda/normal.h"
#include "kernels/math/block.h"
#include "kernels/math/linalg.h"
#include "kernels/star/blocks/template.h"

enum {
  MILL_GRAM_PIXELS = 32, /**< pixels that a warp takes at a time */
  MILL_GRAM_EACH = 8,    /**< pixels of a row that a lane loads */
  MILL_FEW_CONT = 12,    /**< continuum functions of one pixel that fit in registers */
  MILL_TEAM_SPACE = 440  /**< numbers of a warp's own sums */
};

/** Factors of a row's elements at a pixel.  A warp's stage has all of these for its pixels. */
enum {
  MILL_BY_ONE,       /**< for rows of model error and data: 1 */
  MILL_BY_TEMPLATE,  /**< for continuum functions: t */
  MILL_BY_CONTINUUM, /**< for derivatives of the template: P a / sigma */
  MILL_BY_SLOPE,     /**< half the derivative of F in the template */
  MILL_N_BY
};

static __device__ __forceinline__ double2 mill_two(const double *at)
{
  return *(const double2 *)(const void *)at;
}

/** Add one tile, rows of group g times rows of group h, to sums (mill_gram_collect). */
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

/** Set sums to the warps' products of rows, added up: warp 0 sets the sums, the others add to them
 *  one after another.  A group is eight rows.
 *
 *  g0, h   groups; the caller goes through h = 0, 1, ... for each g0
 *  own     products of all pairs of rows in groups g0 to g0 + n_own - 1; used only if h is 0
 *  across  products of rows in group g0 with rows in group h < g0; used only if n_own is 1
 *  sums    [mill_gram_at(r, c) - mill_gram_at(first, 0)] is the product of rows r and c; r is first
 *          to n_row - 1
 *
 *  On return all n_thread threads see the sums. */
template <int n_own>
static __device__ __forceinline__ void
mill_gram_collect(int thread, int n_thread, int first, int n_row, int g0, int h,
                  const double *across, const double (*own)[2], double *sums)
{
  const int lane = thread & 31, warp = thread >> 5, n_warp = n_thread >> 5;
  mill_threads_wait(n_thread); /* other threads may still read the previous sums */
  for (int w = 0; w < n_warp; w++) {
    if (w == warp) {
      if (n_own == 1 && h < g0)
        mill_gram_collect_tile(lane, first, n_row, g0, h, w == 0, across, sums);
#pragma unroll
      for (int i = 0; i < n_own * (n_own + 1) / 2; i++) /* groups g0 + (0, 0), (1, 0), (1, 1) */
        if (h == 0)
          mill_gram_collect_tile(lane, first, n_row, g0 + (i > 0), g0 + (i > 1), w == 0, own[i],
                                 sums);
    }
    mill_threads_wait(n_thread);
  }
}

/** Compute the normal equations (matrix a, right-hand side v) and eliminate the rows E of model
 *  error.  with_s: E times (continuum functions times template); with_residual: E times data. */
static __device__ inline void mill_block_normal_matrix(mill_block *b, int nk, int n_error,
                                                       const double *sums, double *a, double *v,
                                                       double *with_s, double *with_residual)
{
  const int origin = mill_gram_at(n_error, 0); /* `sums` lacks the products of E with E */
  const double *with_d = sums + mill_gram_at(n_error + nk, 0) - origin;
  MILL_FOR(b, k, nk)
  {
    const double *row = sums + mill_gram_at(n_error + k, 0) - origin;
    for (int l = 0; l <= k; l++) {
      const double *other = sums + mill_gram_at(n_error + l, 0) - origin;
      a[k * nk + l] = row[n_error + l];
      for (int e = 0; e < n_error; e++)
        a[k * nk + l] -= row[e] * other[e];
    }
    v[k] = with_d[n_error + k];
    for (int e = 0; e < n_error; e++) {
      v[k] -= row[e] * with_d[e];
      with_s[e * nk + k] = row[e];
    }
  }
  MILL_FOR(b, e, n_error)
  {
    with_residual[e] = with_d[e];
  }
  MILL_BARRIER(b);
}

/** Sum products of n rows of model error over this thread's pixels, in acc [mill_gram_at(r, c)]. */
static __device__ inline void mill_error_pairs(mill_block *b, const mill_segment *s, int n,
                                               double *acc)
{
  const int n_pix = s->n_pix;
  for (int k = 0; k < n * (n + 1) / 2; k++)
    acc[k] = 0.0;
  MILL_FOR(b, c, mill_chunks(n_pix, MILL_PIXEL_CHUNK))
  {
    const int first = c * MILL_PIXEL_CHUNK, len = mill_chunk_len(n_pix, first, MILL_PIXEL_CHUNK);
    for (int j = 0, k = 0; j < n; j++)
      for (int l = 0; l <= j; l++, k++) {
        const float *x = s->error + (size_t)j * mill_row_pitch(n_pix) + first;
        const float *y = s->error + (size_t)l * mill_row_pitch(n_pix) + first;
        double sum = 0.0;
        MILL_SIMD_SUM(sum)
        for (int i = 0; i < len; i++)
          sum += (double)x[i] * (double)y[i];
        acc[k] += sum;
      }
  }
}

/** Compute poly = a . p and quad = |L^-1 p|^2 in registers.  p [nk]: continuum functions at a
 *  pixel; a: their coefficients; chol: L; inverse [nk]: 1 / L's diagonal elements. */
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
  *poly = sum;    /* the continuum p . a */
  *quad = square; /* p^T N^-1 p */
}

/** Shared memory that lets the warps of a block work independently. */
typedef struct mill_team_memory {
  mill_workspace work[MILL_BLOCK_WARPS];
  double *space; /**< [MILL_BLOCK_WARPS][MILL_TEAM_SPACE], the memory of the block's own sums */
} mill_team_memory;

/** A team's share of independent velocities: first, first + step, ... */
typedef struct mill_team {
  mill_block block;
  mill_workspace *work;
  int first, step;
} mill_team;

/** Choose the calling thread's team.  Teams of threads share the n likelihoods of a segment: a team
 *  computes every step-th of them, from number `first` on.
 *
 *  A team is a warp with its own pixel rows (row_bytes each) and sums.  It is the whole block if n
 *  is 1 or shared memory is too small.  A warp lacks memory for block sums and tiles, so it
 *  computes likelihoods only. */
static __device__ inline void mill_block_team(mill_block *b, int n, const mill_segment *s,
                                              size_t row_bytes, mill_workspace *work,
                                              mill_team *team)
{
  const int nk = s->ws->n_cont, ne = s->n_error, warp = b->thread >> 5;
  const int n_sum = mill_gram_at(ne + nk + 1, 0) - mill_gram_at(ne, 0);
  team->block = *b;
  team->work = work;
  team->first = 0;
  team->step = 1;
  if (n == 1 || !b->team || n_sum + nk * nk + nk > MILL_TEAM_SPACE)
    return;
  mill_workspace *own = &b->team->work[warp];
  team->block.thread = b->thread & 31;
  team->block.n_thread = 32;
  team->block.shared = NULL;
  team->block.stage = (double *)b->stage + (ptrdiff_t)warp * MILL_N_BY * MILL_GRAM_PIXELS;
  team->work = own;
  team->first = warp;
  team->step = MILL_BLOCK_WARPS;
  __syncthreads(); /* no thread needs the block's own sums any more */
  if (team->block.thread == 0) {
    *own = *work;
    own->pixel =
        (char *)work->pixel + (size_t)warp * (row_bytes + MILL_PIXEL_SPARE / MILL_BLOCK_WARPS);
    own->smooth = (char *)work->smooth + (size_t)warp * row_bytes;
    own->error = work->error + (ptrdiff_t)warp * MILL_ERROR_SPACE;
    own->sums = b->team->space + (ptrdiff_t)warp * MILL_TEAM_SPACE;
    own->normal = own->sums + n_sum;
    own->solve = own->normal + nk * nk;
  }
  __syncwarp();
}

/** Wait until no warp uses its own memory any more: the block may use this memory next. */
static __device__ inline void mill_block_team_end(const mill_team *team)
{
  if (team->step > 1)
    __syncthreads();
}

static_assert(MILL_N_BY * MILL_GRAM_PIXELS * sizeof(double) <=
                  MILL_SPLINE_STAGE * sizeof(mill_real),
              "MILL_SPLINE_STAGE must have room for MILL_N_BY doubles for each of a warp's pixels");

/** A row to be multiplied: float32 numbers, or float64 template derivatives (wide). */
typedef struct mill_product_row {
  const float *at;
#if MILL_WIDE
  const double *wide; /**< NULL: at */
#endif
  const double *by; /**< the row's multipliers */
} mill_product_row;

/** Return row number `row`.  Rows are, in this order: model error; continuum functions; the data
 *  (templ NULL) or the template's derivatives. */
static __device__ __forceinline__ mill_product_row mill_row_of(const mill_segment *s, int row,
                                                               int n_row, const mill_real *templ,
                                                               int templ_pitch, const double *stage)
{
  const int ne = s->n_error, nk = s->ws->n_cont, pitch = mill_row_pitch(s->n_pix);
  mill_product_row r;
  int by = MILL_BY_ONE;
#if MILL_WIDE
  r.wide = NULL;
#endif
  if (row < ne) {
    r.at = s->error + (ptrdiff_t)row * pitch;
  } else if (row < ne + nk || row >= n_row) { /* a row after the last is not used */
    r.at = s->ws->cont + (row < n_row ? (ptrdiff_t)(row - ne) * pitch : 0);
    by = MILL_BY_TEMPLATE;
  } else if (!templ) {
    r.at = s->d;
  } else {
    const mill_real *of = templ + (ptrdiff_t)(1 + row - ne - nk) * templ_pitch;
#if MILL_WIDE
    r.wide = of;
    r.at = s->d; /* not read, but mill_load_row wants a global address */
#else
    r.at = of;
#endif
    by = MILL_BY_CONTINUUM;
  }
  r.by = stage + by * MILL_GRAM_PIXELS;
  return r;
}

/** Load eight pixels of a row into x: four from p = base + 4 (lane % 4) on, and four from p + 16
 *  on.  Beyond the row's pitch, load its last four pixels instead, which mill_cut_row zeroes. */
static __device__ __forceinline__ void mill_load_row(const mill_product_row *r, int base, int pitch,
                                                     mill_real *x)
{
  MILL_GLOBAL(r->at);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int from = base + 16 * half + 4 * ((int)threadIdx.x % 4);
    const int p = from < pitch ? from : pitch - 4;
    mill_real *to = x + 4 * half;
#if MILL_WIDE
    if (r->wide) {
#pragma unroll
      for (int j = 0; j < 4; j++)
        to[j] = r->wide[p + j];
      continue;
    }
#endif
    const float4 v = *(const float4 *)(const void *)(r->at + p);
    to[0] = (mill_real)v.x;
    to[1] = (mill_real)v.y;
    to[2] = (mill_real)v.z;
    to[3] = (mill_real)v.w;
  }
}

/** After mill_load_row, zero this lane's pixels from n on. */
static __device__ __forceinline__ void mill_cut_row(int base, int n, mill_real *x)
{
#pragma unroll
  for (int k = 0; k < MILL_GRAM_EACH; k++)
    if (base + 16 * (k / 4) + 4 * ((int)threadIdx.x % 4) + k % 4 >= n)
      x[k] = 0;
}

/** Add products of rows, each times its multiplier `by`, over a warp's 32 pixels.  Four lanes share
 *  each of a group's eight rows; each lane has eight of the row's pixels (mill_load_row).
 *
 *  r, x [n_own]  in      this lane's row in each of n_own groups; its eight pixels of the row
 *  q, other      in      this lane's row in another group; its eight pixels of the row
 *  own           in/out  products of all pairs of rows in the n_own groups
 *  across        in/out  if n_own is 1: products of that group's rows with the other group's rows
 *  gradient      in/out  for a Jacobian: sum over the lane's pixels of row r[0] times half of
 *                        dF / d template (the multiplier MILL_BY_SLOPE) */
template <int is_jacobian, int n_own>
static __device__ __forceinline__ void
mill_gram_add(const double *stage, const mill_product_row *r, const mill_real (*x)[MILL_GRAM_EACH],
              const mill_product_row *q, const mill_real *other, double (*own)[2], double *across,
              double *gradient)
{
  const int lane = (int)threadIdx.x & 31;
#pragma unroll
  for (int k = 0; k < MILL_GRAM_EACH; k += 2) {
    const int at = 16 * (k / 4) + 4 * (lane % 4) + k % 4; /* pixel k of mill_load_row */
    double2 by[n_own];
#pragma unroll
    for (int i = 0; i < n_own; i++)
      by[i] = mill_two(r[i].by + at);
    const double2 by_other = mill_two(q->by + at);
    const double2 weight = mill_two(stage + MILL_BY_SLOPE * MILL_GRAM_PIXELS + at);
#pragma unroll
    for (int j = 0; j < 2; j++) {
      double y[n_own];
#pragma unroll
      for (int i = 0; i < n_own; i++)
        y[i] = (double)x[i][k + j] * (j ? by[i].y : by[i].x);
#pragma unroll
      for (int i = 0; i < n_own * (n_own + 1) / 2; i++) /* groups (0, 0), (1, 0), (1, 1) */
        mill_mma_f64(y[i > 0], y[i > 1], own[i]);
      if (n_own == 1)
        mill_mma_f64(y[0], (double)other[k + j] * (j ? by_other.y : by_other.x), across);
      if (is_jacobian)
        *gradient += (double)x[0][k + j] * (j ? weight.y : weight.x);
    }
  }
}

/** Row 1 of `by` [2][pitch] holds half of dF / d template at each pixel, row 0 P a / sigma.  Add to
 *  row 1 what the model error contributes:
 *    (P a E^T (E r) - weight p^T N^-1 U^T E) / sigma,  weight: mill_det_weight.
 *  P: continuum functions, p at one pixel; a: their coefficients; E: rows of model error; t, r:
 *  template and residual / sigma; N: normal matrix; U [e][k]: sum over pixels of E_e P_k t. */
static __device__ __noinline__ void mill_error_weights(int thread, int n_thread,
                                                       const mill_model *m, const mill_segment *s,
                                                       int pitch, const mill_workspace *work,
                                                       double *by)
{
  const int nk = s->ws->n_cont, n = s->n_pix;
  const double weight = mill_det_weight(m, s);
  const int cont_pitch = mill_row_pitch(n);
  const float *cont = s->ws->cont;
  for (int p = thread; p < n; p += n_thread) {
    double sum = 0.0;
    for (int e = 0; e < s->n_error; e++) {
      const double *solved = work->error + MILL_ERROR_SOLVED + e * nk;
      double x = 0.0;
      for (int k = 0; k < nk; k++)
        x -= solved[k] * (double)cont[(ptrdiff_t)k * cont_pitch + p];
      x *= weight * (double)s->is[p];
      x += work->error[MILL_ERROR_RESIDUAL + e] * by[p];
      sum += x * (double)s->error[(ptrdiff_t)e * cont_pitch + p];
    }
    by[pitch + p] += sum;
  }
  mill_threads_wait(n_thread);
}

/** Fill `by` [2][pitch] at a segment's pixels; nk <= n_max.
 *
 *  row 0  the continuum P a (p: functions P at a pixel), divided by sigma
 *  row 1  half of dF / d template: (weight t p^T N^-1 p - (P a) r) / sigma
 *         (weight: mill_det_weight; t, r: template and residual / sigma; N: normal matrix) */
template <int n_max>
static __device__ __noinline__ void mill_weights_of(int thread, int n_thread, const mill_model *m,
                                                    const mill_segment *s, const mill_real *templ,
                                                    int pitch, double level,
                                                    const mill_workspace *work, double *by)
{
  const int nk = s->ws->n_cont, n = s->n_pix;
  const int cont_pitch = mill_row_pitch(n);
  const double weight = mill_det_weight(m, s);
  const float *const cont = s->ws->cont, *const data = s->d, *const is = s->is;
  const double *const constant = s->base, *const chol = work->normal;
  double *const a = work->solve, *const inverse = a + MILL_MAX_CONT * (MILL_MAX_PAR + 2);
  MILL_GLOBAL(cont);
  MILL_GLOBAL(data);
  MILL_GLOBAL(is);
  MILL_GLOBAL(constant);
  MILL_GLOBAL(templ);
  MILL_GLOBAL(by);
  MILL_SHARED(a);
  MILL_SHARED(chol);
  for (int k = thread; k < nk; k += n_thread)
    inverse[k] = 1.0 / chol[k * nk + k]; /* kept in the last, unused numbers of work->solve */
  mill_threads_wait(n_thread);
  for (int p = thread; p < n; p += n_thread) {
    MILL_FORGET(); /* else the factor's numbers would overflow the registers */
    float of[n_max];
#pragma unroll
    for (int k = 0; k < n_max; k++)
      of[k] = k < nk ? cont[(ptrdiff_t)k * cont_pitch + p] : 0.0f;
    const double inverse_sigma = (double)is[p];
    const double t = mill_pixel_template(level, constant[p], (double)templ[p], is[p]);
    double poly, quad;
    mill_pixel_quadratic_of<n_max>(nk, a, chol, inverse, of, &poly, &quad);
    const double slope = mill_pixel_slope(poly, data[p], t) + weight * t * quad;
    by[p] = poly * inverse_sigma;
    by[pitch + p] = slope * inverse_sigma;
  }
  mill_threads_wait(n_thread);
}

/** Add up the lanes' and warps' shares of half the gradient of F, for the parameters of row group
 *  g0.  Store the total behind the sums of products. */
static __device__ __forceinline__ void mill_gather_gradient(int thread, int n_thread, int g0,
                                                            int first, int n_row, double gradient,
                                                            double *sums)
{
  const int lane = thread & 31, warp = thread >> 5, n_warp = n_thread >> 5;
  double *const half = sums + mill_gram_at(n_row, 0) - mill_gram_at(first, 0);
  gradient += __shfl_xor_sync(0xffffffffu, gradient, 1); /* sum over the four lanes of a row */
  gradient += __shfl_xor_sync(0xffffffffu, gradient, 2);
  const int row = MILL_MMA_ROWS * g0 + lane / 4;
  for (int w = 0; w < n_warp; w++) {
    if (w == warp && lane % 4 == 0 && row >= first && row < n_row)
      half[row - first] = (w == 0 ? 0.0 : half[row - first]) + gradient;
    mill_threads_wait(n_thread);
  }
}

/** Sum products of all pairs of rows in groups g0 to g0 + n_own - 1 over a segment's pixels.  If
 *  n_own is 1, also sum products of rows in group g0 with rows in group h.  A group is eight rows.
 *
 *  stages             in   shared memory of the n_thread threads
 *  templ [..][pitch]  in   the template (NULL: zeros); for a Jacobian its derivatives too
 *  by [2][pitch]      in   for a Jacobian: from mill_weights_of
 *  sums               out  as for mill_gram_collect; a Jacobian's gradient follows */
template <int is_jacobian, int n_own>
static __device__ __noinline__ void mill_sums_of(int thread, int n_thread, double *stages,
                                                 const mill_segment *s, int g0, int h, int first,
                                                 int n_row, const mill_real *templ, int pitch,
                                                 double level, const double *by, double *sums)
{
  const int lane = thread & 31, warp = thread >> 5, n_warp = n_thread >> 5, n = s->n_pix;
  double *const stage = stages + (ptrdiff_t)warp * MILL_N_BY * MILL_GRAM_PIXELS;
  const mill_real *const rows = is_jacobian ? templ : NULL;
  const float *const is = s->is;
  const double *const constant = s->base;
  const int row_pitch = mill_row_pitch(n);
  MILL_SHARED(stages);
  MILL_GLOBAL(is);
  MILL_GLOBAL(constant);
  if (is_jacobian)
    MILL_GLOBAL(by);
  mill_product_row r[n_own];
#pragma unroll
  for (int i = 0; i < n_own; i++)
    r[i] = mill_row_of(s, MILL_MMA_ROWS * (g0 + i) + lane / 4, n_row, rows, pitch, stage);
  const mill_product_row q =
      mill_row_of(s, MILL_MMA_ROWS * h + lane / 4, n_row, rows, pitch, stage);
  double own[n_own * (n_own + 1) / 2][2] = {}, across[2] = {}, gradient = 0.0;
  stage[MILL_BY_ONE * MILL_GRAM_PIXELS + lane] = 1.0;
  for (int base = warp * MILL_GRAM_PIXELS; base < n; base += n_warp * MILL_GRAM_PIXELS) {
    mill_real x[n_own][MILL_GRAM_EACH], other[MILL_GRAM_EACH];
    const int at = base + lane < n ? base + lane : n - 1;
#pragma unroll
    for (int i = 0; i < n_own; i++)
      mill_load_row(&r[i], base, row_pitch, x[i]);
    if (n_own == 1)
      mill_load_row(&q, base, row_pitch, other);
    const double constant_flux = constant[at];
    const float inverse_sigma = is[at];
    double flux = 0.0;
    if (templ) {
      if (!is_jacobian) /* in a Jacobian other pointers derive from templ */
        MILL_GLOBAL(templ);
      flux = (double)templ[at];
    }
    const double cont = is_jacobian ? by[at] : 0.0, slope = is_jacobian ? by[pitch + at] : 0.0;
    const double t = mill_pixel_template(level, constant_flux, flux, inverse_sigma);
    if (base + MILL_GRAM_PIXELS > n) {
#pragma unroll
      for (int i = 0; i < n_own; i++)
        mill_cut_row(base, n, x[i]);
      if (n_own == 1)
        mill_cut_row(base, n, other);
    }
    __syncwarp(); /* all lanes have used the previous pixels */
    stage[MILL_BY_TEMPLATE * MILL_GRAM_PIXELS + lane] = t;
    if (is_jacobian) {
      stage[MILL_BY_CONTINUUM * MILL_GRAM_PIXELS + lane] = cont;
      stage[MILL_BY_SLOPE * MILL_GRAM_PIXELS + lane] = slope;
    }
    __syncwarp();
    mill_gram_add<is_jacobian, n_own>(stage, r, x, &q, other, own, across, &gradient);
  }
  mill_gram_collect<n_own>(thread, n_thread, first, n_row, g0, h, across, own, sums);
  if (!is_jacobian || h > 0) /* the call with h = 0 adds group g0's gradient */
    return;
  mill_gather_gradient(thread, n_thread, g0, first, n_row, gradient, sums);
}

/** mill_sums_of for all groups of rows [first, n_row). */
template <int is_jacobian>
static __device__ inline void mill_sums_of_all(mill_block *b, const mill_segment *s, int first,
                                               int n_row, const mill_real *templ, int pitch,
                                               double level, const double *by, double *sums)
{
  for (int g = first / MILL_MMA_ROWS; g * MILL_MMA_ROWS < n_row; g++)
    for (int h = 0; h < (g > 0 ? g : 1); h++)
      mill_sums_of<is_jacobian, 1>(b->thread, b->n_thread, (double *)b->stage, s, g, h, first,
                                   n_row, templ, pitch, level, by, sums);
}

/** Sum products of rows over a segment's pixels.  kernels/cpu/pixel_sums.h says which rows these
 *  are and where the sums go. */
MILL_BLOCK_FN void mill_normal_sums(mill_block *b, int nk, const mill_segment *s,
                                    const mill_real *templ, double level, double *sums)
{
  const int ne = s->n_error, n_row = ne + nk + 1;
  if (ne < MILL_MMA_ROWS && n_row > MILL_MMA_ROWS && n_row <= 2 * MILL_MMA_ROWS)
    mill_sums_of<0, 2>(b->thread, b->n_thread, (double *)b->stage, s, 0, 0, ne, n_row, templ, 0,
                       level, NULL, sums);
  else
    mill_sums_of_all<0>(b, s, ne, n_row, templ, 0, level, NULL, sums);
}

/** Sum the products of a Jacobian's rows over a segment's pixels.  work->sums gets these sums, then
 *  half the gradient.  kernels/cpu/pixel_sums.h explains rows, sums and arguments. */
MILL_BLOCK_FN void mill_jacobian_sums(mill_block *b, const mill_model *m, const mill_segment *s,
                                      int np, const mill_real *templ, double level,
                                      mill_workspace *work)
{
  const int nk = s->ws->n_cont, pitch = m->max_seg_pix;
  const int first = s->n_error + nk, n_row = first + np;
  double *const by = (double *)work->pixel;
  if (nk <= MILL_FEW_CONT)
    mill_weights_of<MILL_FEW_CONT>(b->thread, b->n_thread, m, s, templ, pitch, level, work, by);
  else
    mill_weights_of<MILL_MAX_CONT>(b->thread, b->n_thread, m, s, templ, pitch, level, work, by);
  if (s->n_error > 0)
    mill_error_weights(b->thread, b->n_thread, m, s, pitch, work, by);
  mill_sums_of_all<1>(b, s, first, n_row, templ, pitch, level, by, work->sums);
}

/** No taps on a GPU, which computes whole rows first. */
MILL_BLOCK_FN int mill_block_pixel_taps(mill_block *b, const mill_model *m, const mill_segment *s,
                                        double vel_km_s, int half, mill_workspace *work)
{
  (void)b, (void)m, (void)s, (void)vel_km_s, (void)half, (void)work;
  return 0;
}
