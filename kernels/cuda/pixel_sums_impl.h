/* Included by kernels/star/pixel.h once per type of template; no include guard.
 *
 * A warp takes 32 pixels at a time.  Each lane first makes what rows are multiplied by at one
 * pixel, into the warp's stage.  Then the lanes load the rows, eight pixels of one row in each
 * group of rows, all of them before the first is used, and tensor cores add up the products. */
#include "kernels/cuda/pixel_sums.h"

static_assert(MILL_N_BY * MILL_GRAM_PIXELS * sizeof(double) <= MILL_STAGE * sizeof(MILL_REAL),
              "a warp's stage holds what rows are multiplied by");

/** A row of the products: of float32, or with float64 templates also of these. */
typedef struct MILL_T(mill_sum_row) {
  const float *at;
#if MILL_WIDE
  const double *wide; /**< NULL: at */
#endif
  const double *by; /**< the row's multipliers */
} MILL_T(mill_sum_row);

/** Rows of model error, continuum functions and then the data (templ NULL) or the derivatives of
 *  the template. */
static __device__ __forceinline__ MILL_T(mill_sum_row)
    MILL_T(mill_row_of)(const mill_segment *s, int row, int n_row, const MILL_REAL *templ,
                        int templ_pitch, const double *stage)
{
  const int ne = s->n_error, nk = s->ws->n_cont, pitch = mill_row_pitch(s->n_pix);
  MILL_T(mill_sum_row) r;
  int by = MILL_BY_ONE;
#if MILL_WIDE
  r.wide = NULL;
#endif
  if (row < ne) {
    r.at = s->error + (ptrdiff_t)row * pitch;
  } else if (row < ne + nk || row >= n_row) { /* beyond the last one any row will do */
    r.at = s->ws->cont + (row < n_row ? (ptrdiff_t)(row - ne) * pitch : 0);
    by = MILL_BY_TEMPLATE;
  } else if (!templ) {
    r.at = s->d;
  } else {
    const MILL_REAL *of = templ + (ptrdiff_t)(1 + row - ne - nk) * templ_pitch;
#if MILL_WIDE
    r.wide = of;
    r.at = s->d;
#else
    r.at = of;
#endif
    by = MILL_BY_CONTINUUM;
  }
  r.by = stage + by * MILL_GRAM_PIXELS;
  return r;
}

/** Eight pixels of a row for this lane, of the 32 from base on: 4 (lane % 4) and the next three,
 *  and those 16 further; beyond the row's pitch those at its end again. */
static __device__ __forceinline__ void MILL_T(mill_load_row)(const MILL_T(mill_sum_row) * r,
                                                             int base, int pitch, MILL_REAL *x)
{
  MILL_GLOBAL(r->at);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int from = base + 16 * half + 4 * ((int)threadIdx.x % 4);
    const int p = from < pitch ? from : pitch - 4;
    MILL_REAL *to = x + 4 * half;
#if MILL_WIDE
    if (r->wide) {
#pragma unroll
      for (int j = 0; j < 4; j++)
        to[j] = r->wide[p + j];
      continue;
    }
#endif
    const float4 v = *(const float4 *)(const void *)(r->at + p);
    to[0] = (MILL_REAL)v.x;
    to[1] = (MILL_REAL)v.y;
    to[2] = (MILL_REAL)v.z;
    to[3] = (MILL_REAL)v.w;
  }
}

/** Zeros in the place of what mill_load_row has brought from beyond n. */
static __device__ __forceinline__ void MILL_T(mill_cut_row)(int base, int n, MILL_REAL *x)
{
#pragma unroll
  for (int k = 0; k < MILL_GRAM_EACH; k++)
    if (base + 16 * (k / 4) + 4 * ((int)threadIdx.x % 4) + k % 4 >= n)
      x[k] = 0;
}

/** Add the products of a warp's 32 pixels: of the rows r in n_own row groups, which x holds, among
 *  themselves (own), and of one such group with the group of the row q, which other holds (across).
 *  gradient: sum of the rows by their weights. */
template <int is_jacobian, int n_own>
static __device__ __forceinline__ void
MILL_T(mill_gram_add)(const double *stage, const MILL_T(mill_sum_row) * r,
                      const MILL_REAL (*x)[MILL_GRAM_EACH], const MILL_T(mill_sum_row) * q,
                      const MILL_REAL *other, double (*own)[2], double *across, double *gradient)
{
  const int lane = (int)threadIdx.x & 31;
#pragma unroll
  for (int k = 0; k < MILL_GRAM_EACH; k += 2) {
    const int at = 16 * (k / 4) + 4 * (lane % 4) + k % 4;
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
      for (int i = 0; i < n_own * (n_own + 1) / 2; i++)
        mill_mma_f64(y[i > 0], y[i > 1], own[i]);
      if (n_own == 1)
        mill_mma_f64(y[0], (double)other[k + j] * (j ? by_other.y : by_other.x), across);
      if (is_jacobian)
        *gradient += (double)x[0][k + j] * (j ? weight.y : weight.x);
    }
  }
}

/** What model error adds to the weights that mill_weights_of has made: of the residual
 *  (P a) E^T E r, and where marginal -p^T N^-1 U^T E. */
static __device__ __noinline__ void
MILL_T(mill_error_weights)(int thread, int n_thread, const mill_model *m, const mill_segment *s,
                           int pitch, const mill_workspace *work, double *by)
{
  const int nk = s->ws->n_cont, n = s->n_pix, marginal = m->set.likelihood == MILL_LIKE_MARGINAL;
  const int cont_pitch = mill_row_pitch(n);
  const float *cont = s->ws->cont;
  for (int p = thread; p < n; p += n_thread) {
    double sum = 0.0;
    for (int e = 0; e < s->n_error; e++) {
      const double *solved = work->error + MILL_ERROR_SOLVED + e * nk;
      double x = 0.0;
      for (int k = 0; k < nk && marginal; k++)
        x -= solved[k] * (double)cont[(ptrdiff_t)k * cont_pitch + p];
      x *= (double)s->is[p];
      x += work->error[MILL_ERROR_RESIDUAL + e] * by[p];
      sum += x * (double)s->error[(ptrdiff_t)e * cont_pitch + p];
    }
    by[pitch + p] += sum;
  }
  mill_threads_wait(n_thread);
}

/** What rows are multiplied by at each pixel of a segment, into by [2][pitch]: the continuum P a
 * and the weight of half the gradient, t p^T N^-1 p - (P a) r, the first term where marginal, both
 * over sigma.  Of n_max continuum functions at most. */
template <int n_max>
static __device__ __noinline__ void
MILL_T(mill_weights_of)(int thread, int n_thread, const mill_model *m, const mill_segment *s,
                        const MILL_REAL *templ, int pitch, double level, const mill_workspace *work,
                        double *by)
{
  const int nk = s->ws->n_cont, n = s->n_pix, marginal = m->set.likelihood == MILL_LIKE_MARGINAL;
  const int cont_pitch = mill_row_pitch(n);
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
    inverse[k] = 1.0 / chol[k * nk + k];
  mill_threads_wait(n_thread);
  for (int p = thread; p < n; p += n_thread) {
    MILL_FORGET(); /* or the factor's numbers would fill the registers and more */
    float of[n_max];
#pragma unroll
    for (int k = 0; k < n_max; k++)
      of[k] = k < nk ? cont[(ptrdiff_t)k * cont_pitch + p] : 0.0f;
    const double sigma = (double)is[p];
    const double t = mill_pixel_template(level, constant[p], (double)templ[p], is[p]);
    double poly, quad;
    mill_pixel_quadratic_of<n_max>(nk, a, chol, inverse, of, &poly, &quad);
    const double slope = mill_pixel_slope(poly, data[p], t) + (marginal ? t * quad : 0.0);
    by[p] = poly * sigma;
    by[pitch + p] = slope * sigma;
  }
  mill_threads_wait(n_thread);
}

/** Sums over the pixels of a segment, of rows [first, n_row) in n_own groups from g0 on: with each
 *  other, where n_own is 1 also with the rows of group h, into sums at mill_gram_at(row, column) -
 *  mill_gram_at(first, 0), and a Jacobian's gradient behind all of them.  By n_thread threads,
 * whose stages are shared memory.
 *
 *  templ [..][pitch]  in  the template (NULL: zeros) and, of a Jacobian, its derivatives
 *  by [2][pitch]      in  of a Jacobian: mill_weights_of */
template <int is_jacobian, int n_own>
static __device__ __noinline__ void
MILL_T(mill_sums_of)(int thread, int n_thread, double *stages, const mill_segment *s, int g0, int h,
                     int first, int n_row, const MILL_REAL *templ, int pitch, double level,
                     const double *by, double *sums)
{
  const int lane = thread & 31, warp = thread >> 5, n_warp = n_thread >> 5, n = s->n_pix;
  double *const stage = stages + (ptrdiff_t)warp * MILL_N_BY * MILL_GRAM_PIXELS;
  const MILL_REAL *const rows = is_jacobian ? templ : NULL;
  const float *const is = s->is;
  const double *const constant = s->base;
  const int row_pitch = mill_row_pitch(n);
  MILL_SHARED(stages);
  MILL_GLOBAL(is);
  MILL_GLOBAL(constant);
  if (is_jacobian)
    MILL_GLOBAL(by);
  MILL_T(mill_sum_row) r[n_own];
#pragma unroll
  for (int i = 0; i < n_own; i++)
    r[i] = MILL_T(mill_row_of)(s, MILL_MMA_ROWS * (g0 + i) + lane / 4, n_row, rows, pitch, stage);
  const MILL_T(mill_sum_row) q =
      MILL_T(mill_row_of)(s, MILL_MMA_ROWS * h + lane / 4, n_row, rows, pitch, stage);
  double own[n_own * (n_own + 1) / 2][2] = {}, across[2] = {}, gradient = 0.0;
  stage[MILL_BY_ONE * MILL_GRAM_PIXELS + lane] = 1.0;
  for (int base = warp * MILL_GRAM_PIXELS; base < n; base += n_warp * MILL_GRAM_PIXELS) {
    MILL_REAL x[n_own][MILL_GRAM_EACH], other[MILL_GRAM_EACH];
    const int at = base + lane < n ? base + lane : n - 1;
#pragma unroll
    for (int i = 0; i < n_own; i++)
      MILL_T(mill_load_row)(&r[i], base, row_pitch, x[i]);
    if (n_own == 1)
      MILL_T(mill_load_row)(&q, base, row_pitch, other);
    const double constant_flux = constant[at];
    const float sigma = is[at];
    double flux = 0.0;
    if (templ) {
      if (!is_jacobian) /* else rows are made from it */
        MILL_GLOBAL(templ);
      flux = (double)templ[at];
    }
    const double u = is_jacobian ? by[at] : 0.0, w = is_jacobian ? by[pitch + at] : 0.0;
    const double t = mill_pixel_template(level, constant_flux, flux, sigma);
    if (base + MILL_GRAM_PIXELS > n) {
#pragma unroll
      for (int i = 0; i < n_own; i++)
        MILL_T(mill_cut_row)(base, n, x[i]);
      if (n_own == 1)
        MILL_T(mill_cut_row)(base, n, other);
    }
    __syncwarp(); /* the pixels before have been used */
    stage[MILL_BY_TEMPLATE * MILL_GRAM_PIXELS + lane] = t;
    if (is_jacobian) {
      stage[MILL_BY_CONTINUUM * MILL_GRAM_PIXELS + lane] = u;
      stage[MILL_BY_SLOPE * MILL_GRAM_PIXELS + lane] = w;
    }
    __syncwarp();
    MILL_T(mill_gram_add)<is_jacobian, n_own>(stage, r, x, &q, other, own, across, &gradient);
  }
  mill_gram_collect<n_own>(thread, n_thread, first, n_row, g0, h, across, own, sums);
  if (!is_jacobian || h > 0)
    return;
  double *const half = sums + mill_gram_at(n_row, 0) - mill_gram_at(first, 0);
  gradient += __shfl_xor_sync(0xffffffffu, gradient, 1); /* over the four lanes of a row */
  gradient += __shfl_xor_sync(0xffffffffu, gradient, 2);
  const int row = MILL_MMA_ROWS * g0 + lane / 4;
  for (int w = 0; w < n_warp; w++) {
    if (w == warp && lane % 4 == 0 && row >= first && row < n_row)
      half[row - first] = (w == 0 ? 0.0 : half[row - first]) + gradient;
    mill_threads_wait(n_thread);
  }
}

/** The same for all groups of these rows. */
template <int is_jacobian>
static __device__ inline void MILL_T(mill_sums_of_all)(mill_block *b, const mill_segment *s,
                                                       int first, int n_row, const MILL_REAL *templ,
                                                       int pitch, double level, const double *by,
                                                       double *sums)
{
  for (int g = first / MILL_MMA_ROWS; g * MILL_MMA_ROWS < n_row; g++)
    for (int h = 0; h < (g > 0 ? g : 1); h++)
      MILL_T(mill_sums_of)<is_jacobian, 1>(b->thread, b->n_thread, (double *)b->stage, s, g, h,
                                           first, n_row, templ, pitch, level, by, sums);
}

/** Products of the rows P_k t, k < nk, and D of a segment's pixels with all rows up to themselves,
 *  those of model error the first, into sums, at mill_gram_at(row, column) -
 *  mill_gram_at(n_error, 0); t is the template over sigma, templ NULL for zeros. */
MILL_BLOCK_FN void MILL_T(mill_normal_sums)(mill_block *b, int nk, const mill_segment *s,
                                            const MILL_REAL *templ, double level, double *sums)
{
  const int ne = s->n_error, n_row = ne + nk + 1;
  if (ne < MILL_MMA_ROWS && n_row > MILL_MMA_ROWS && n_row <= 2 * MILL_MMA_ROWS)
    MILL_T(mill_sums_of)<0, 2>(b->thread, b->n_thread, (double *)b->stage, s, 0, 0, ne, n_row,
                               templ, 0, level, NULL, sums);
  else
    MILL_T(mill_sums_of_all)<0>(b, s, ne, n_row, templ, 0, level, NULL, sums);
}

/** With V_j = (dT/dtheta_j / sigma) (P a): for every parameter in turn the products of V_j with
 *  the rows of model error, with P_k t and with the V up to itself, into work->sums at
 *  mill_gram_at(n_error + nk + j, ..) - mill_gram_at(n_error + nk, 0); after them half the
 *  gradient of each.
 *
 *  templ [1 + n_deriv][max_seg_pix]  in  the template and its derivatives
 *  work                            in  solve: a, normal: the factor of N;  pixel: lost */
MILL_BLOCK_FN void MILL_T(mill_jacobian_sums)(mill_block *b, const mill_model *m,
                                              const mill_segment *s, const MILL_REAL *templ,
                                              double level, mill_workspace *work)
{
  const int nk = s->ws->n_cont, pitch = m->max_seg_pix;
  const int first = s->n_error + nk, n_row = first + m->n_deriv;
  double *const by = (double *)work->pixel;
  if (nk <= MILL_FEW_CONT)
    MILL_T(mill_weights_of)<MILL_FEW_CONT>(b->thread, b->n_thread, m, s, templ, pitch, level, work,
                                           by);
  else
    MILL_T(mill_weights_of)<MILL_MAX_CONT>(b->thread, b->n_thread, m, s, templ, pitch, level, work,
                                           by);
  if (s->n_error > 0)
    MILL_T(mill_error_weights)(b->thread, b->n_thread, m, s, pitch, work, by);
  MILL_T(mill_sums_of_all)<1>(b, s, first, n_row, templ, pitch, level, by, work->sums);
}
