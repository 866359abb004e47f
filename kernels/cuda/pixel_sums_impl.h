/* Included by kernels/star/pixel.h once per type of template; no include guard.
 *
 * The lanes of a warp make the rows of a few pixels, and tensor cores add up their products. */
#include "kernels/cuda/pixel_sums.h"

/** mill_normal_sums of n_error + nk + 1 rows in n_group groups. */
template <int n_group>
static __device__ inline void MILL_T(mill_normal_sums_of)(int nk, const mill_segment *s,
                                                          const MILL_REAL *templ, double level,
                                                          double *sums)
{
  const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
  const int n_warp = (int)blockDim.x >> 5, n = s->n_pix, ne = s->n_error;
  const float *cont = s->ws->cont, *error = s->error;
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
        if (p < n && row < ne)
          x[g] = (double)error[(ptrdiff_t)row * n + p];
        else if (p < n && row < ne + nk)
          x[g] = (double)cont[(ptrdiff_t)(row - ne) * n + p] * t;
        else if (p < n && row == ne + nk)
          x[g] = (double)s->d[p];
      }
#pragma unroll
      for (int g = 0; g < n_group; g++)
#pragma unroll
        for (int h = 0; h <= g; h++)
          mill_mma_f64(x[g], x[h], c[g * (g + 1) / 2 + h]);
    }
  mill_gram_collect<n_group>(ne, ne + nk + 1, c, sums);
}

/** Products of the rows P_k t, k < nk, and D of a segment's pixels with all rows up to themselves,
 *  those of model error the first, into sums, at mill_gram_at(row, column) -
 *  mill_gram_at(n_error, 0); t is the template over sigma, templ NULL for zeros. */
MILL_BLOCK_FN void MILL_T(mill_normal_sums)(mill_block *b, int nk, const mill_segment *s,
                                            const MILL_REAL *templ, double level, double *sums)
{
  (void)b;                                     /* all threads of the block are here */
  switch ((s->n_error + nk) / MILL_MMA_ROWS) { /* one row more */
  case 0:
    MILL_T(mill_normal_sums_of)<1>(nk, s, templ, level, sums);
    break;
  case 1:
    MILL_T(mill_normal_sums_of)<2>(nk, s, templ, level, sums);
    break;
  case 2:
    MILL_T(mill_normal_sums_of)<3>(nk, s, templ, level, sums);
    break;
  case 3:
    MILL_T(mill_normal_sums_of)<4>(nk, s, templ, level, sums);
    break;
  default:
    MILL_T(mill_normal_sums_of)<MILL_GRAM_GROUPS>(nk, s, templ, level, sums);
    break;
  }
}

/** What model error adds to half the gradient's weight at pixel p, whose continuum is poly: of the
 *  residual (P a) E^T E r, and where marginal -p^T N^-1 U^T E. */
MILL_BLOCK_FN double MILL_T(mill_error_slope)(const mill_model *m, const mill_segment *s,
                                              const mill_workspace *work, int p, double poly)
{
  const int nk = s->ws->n_cont, marginal = m->set.likelihood == MILL_LIKE_MARGINAL;
  const int n = s->n_pix;
  const float *cont = s->ws->cont;
  double sum = 0.0;
  for (int e = 0; e < s->n_error; e++) {
    const double *solved = work->error + MILL_ERROR_SOLVED + e * nk;
    double x = work->error[MILL_ERROR_RESIDUAL + e] * poly;
    for (int k = 0; k < nk && marginal; k++)
      x -= solved[k] * (double)cont[(ptrdiff_t)k * n + p];
    sum += x * (double)s->error[(ptrdiff_t)e * n + p];
  }
  return sum;
}

/** Continuum poly = P a and what half the gradient is weighted by, slope = t p^T N^-1 p - (P a) r,
 *  the first term where marginal, per pixel.  inverse [n_cont]: work space. */
MILL_BLOCK_FN void MILL_T(mill_pixel_slopes)(const mill_model *m, const mill_segment *s,
                                             const MILL_REAL *templ, double level,
                                             const mill_workspace *work, double *inverse,
                                             double *poly, double *slope)
{
  const int nk = s->ws->n_cont, marginal = m->set.likelihood == MILL_LIKE_MARGINAL;
  const double *a = work->solve, *chol = work->normal;
  const int n = s->n_pix;
  const float *cont = s->ws->cont;
  if ((int)threadIdx.x < nk)
    inverse[threadIdx.x] = 1.0 / chol[(int)threadIdx.x * nk + (int)threadIdx.x];
  __syncthreads();
  for (int p = (int)threadIdx.x; p < n; p += (int)blockDim.x) {
    const double t = mill_pixel_template(level, s->base[p], (double)templ[p], s->is[p]);
    double sum = 0.0;
    for (int k = 0; k < nk; k++)
      sum += a[k] * (double)cont[(ptrdiff_t)k * n + p];
    double x = mill_pixel_slope(sum, s->d[p], t);
    if (marginal) {
      const double quad =
          nk <= 12 ? mill_pixel_quadratic_of<12>(nk, n, chol, inverse, cont + p)
                   : mill_pixel_quadratic_of<MILL_MAX_CONT>(nk, n, chol, inverse, cont + p);
      x += t * quad;
    }
    poly[p] = sum;
    slope[p] = x + MILL_T(mill_error_slope)(m, s, work, p, sum);
  }
  __syncthreads();
}

/** mill_jacobian_sums of n_error + nk + np rows in n_group groups, after mill_pixel_slopes. */
template <int n_group>
static __device__ inline void MILL_T(mill_jacobian_sums_of)(int nk, int np, const mill_segment *s,
                                                            const MILL_REAL *templ, int pitch,
                                                            double level, const double *poly,
                                                            const double *slope, double *sums)
{
  const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
  const int n_warp = (int)blockDim.x >> 5, n = s->n_pix, ne = s->n_error, nv = ne + nk;
  const float *cont = s->ws->cont, *error = s->error;
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
        t = mill_pixel_template(level, s->base[p], (double)templ[p], s->is[p]);
        continuum = poly[p];
        weight = slope[p];
      }
#pragma unroll
      for (int g = 0; g < n_group; g++) {
        const int row = MILL_MMA_ROWS * g + lane / 4;
        x[g] = 0.0;
        if (p < n && row < ne) {
          x[g] = (double)error[(ptrdiff_t)row * n + p];
        } else if (p < n && row < nv) {
          x[g] = (double)cont[(ptrdiff_t)(row - ne) * n + p] * t;
        } else if (p < n && row < nv + np) {
          const double v = (double)templ[(ptrdiff_t)(1 + row - nv) * pitch + p] * is;
          gradient[g] += v * weight;
          x[g] = v * continuum;
        }
      }
#pragma unroll
      for (int g = 0; g < n_group; g++) {
        if (MILL_MMA_ROWS * (g + 1) <= nv)
          continue; /* no V among its rows */
#pragma unroll
        for (int h = 0; h <= g; h++)
          mill_mma_f64(x[g], x[h], c[g * (g + 1) / 2 + h]);
      }
    }
  mill_gram_collect<n_group>(nv, nv + np, c, sums);
  double *half = sums + mill_gram_at(nv + np, 0) - mill_gram_at(nv, 0);
  for (int w = 0; w < n_warp; w++) {
#pragma unroll
    for (int g = 0; g < n_group; g++) {
      /* over the four lanes of a row */
      double sum = gradient[g];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      const int j = MILL_MMA_ROWS * g + lane / 4 - nv;
      if (w == warp && lane % 4 == 0 && j >= 0 && j < np)
        half[j] = (w == 0 ? 0.0 : half[j]) + sum;
    }
    __syncthreads();
  }
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
  const int nk = s->ws->n_cont, np = m->n_deriv, pitch = m->max_seg_pix;
  double *poly = (double *)work->pixel, *slope = poly + pitch, *sums = work->sums;
  (void)b; /* all threads of the block are here */
  MILL_T(mill_pixel_slopes)
  (m, s, templ, level, work, work->solve + MILL_MAX_CONT * (MILL_MAX_PAR + 2), poly, slope);
  const int n_group = (s->n_error + nk + np + MILL_MMA_ROWS - 1) / MILL_MMA_ROWS;
  if (n_group <= 2)
    MILL_T(mill_jacobian_sums_of)<2>(nk, np, s, templ, pitch, level, poly, slope, sums);
  else if (n_group == 3)
    MILL_T(mill_jacobian_sums_of)<3>(nk, np, s, templ, pitch, level, poly, slope, sums);
  else
    MILL_T(mill_jacobian_sums_of)<MILL_GRAM_GROUPS>(nk, np, s, templ, pitch, level, poly, slope,
                                                    sums);
}
