/* SPDX-License-Identifier: BSD-3-Clause */
/* Sums are separate variables, so that they stay in registers. */
#include "kernels/cpu/lanes.h"

#include "kernels/base/avx2.h"
#include "kernels/math/activation.h"
#include "kernels/math/fourier.h"
#include "kernels/math/linalg.h"

_Static_assert(MILL_LANE == 8 && MILL_LANES_PIXELS == 4 && MILL_LANES_TILE == 5,
               "the sums are written out");

#define FOUR(x) ((mill_four){x, x, x, x})

/* Apply a layer's activation to n outputs of eight templates. */
MILL_AVX2_BODY activate(mill_lanes_activation activation, int n, mill_lanes *out)
{
  double *z = (double *)out; /* a vector aliases its elements */
  if (activation == MILL_LANES_SILU) {
    MILL_SIMD
    for (int i = 0; i < n * MILL_LANE; i++) {
      double slope;
      z[i] = mill_silu(z[i], &slope);
    }
  } else if (activation == MILL_LANES_EXP) {
    MILL_SIMD
    for (int i = 0; i < n * MILL_LANE; i++) {
      const double size = fabs(z[i]); /* clipped to 300, so that 1 / exp(-size) is finite */
      const double e = mill_exp_negative(size < 300.0 ? -size : -300.0), inverse = 1.0 / e;
      z[i] = z[i] < 0.0 ? e : inverse;
    }
  }
}

/* mill_lanes_layer_block: four outputs of eight templates share each pass over the inputs. */
MILL_AVX2_BODY layer_block(const mill_lanes_layer *f, int block, double *weight)
{
  const int n_in = f->n_in, first = block * MILL_LANES_BLOCK;
  const int end = f->n_out - first < MILL_LANES_BLOCK ? f->n_out : first + MILL_LANES_BLOCK;
  for (int i0 = first; i0 < end; i0 += MILL_LANES_PIXELS) {
    const int n_row = end - i0 < MILL_LANES_PIXELS ? end - i0 : MILL_LANES_PIXELS;
    /* beyond the end, repeat the last row */
    const float *row[MILL_LANES_PIXELS];
    double bias[MILL_LANES_PIXELS];
    for (int i = 0; i < MILL_LANES_PIXELS; i++) {
      const int at = i < n_row ? i0 + i : end - 1;
      row[i] = f->weight + (size_t)at * (size_t)n_in;
      bias[i] = (double)f->bias[at];
    }
    for (int k = 0; k < n_in; k++)
      for (int i = 0; i < MILL_LANES_PIXELS; i++)
        weight[k * MILL_LANES_PIXELS + i] = (double)row[i][k];
    for (int g = 0; g < f->n_group; g++) {
      const mill_lanes *x = f->in + (size_t)g * (size_t)n_in;
      mill_four s00 = FOUR(bias[0]), s10 = FOUR(bias[1]), s20 = FOUR(bias[2]), s30 = FOUR(bias[3]);
      mill_four s01 = s00, s11 = s10, s21 = s20, s31 = s30;
      for (int k = 0; k < n_in; k++) {
        const mill_four x0 = x[k].v[0], x1 = x[k].v[1];
        const double *w = weight + k * MILL_LANES_PIXELS;
        s00 += w[0] * x0;
        s01 += w[0] * x1;
        s10 += w[1] * x0;
        s11 += w[1] * x1;
        s20 += w[2] * x0;
        s21 += w[2] * x1;
        s30 += w[3] * x0;
        s31 += w[3] * x1;
      }
      const mill_lanes sum[MILL_LANES_PIXELS] = {
          {{s00, s01}}, {{s10, s11}}, {{s20, s21}}, {{s30, s31}}};
      mill_lanes *out = f->out + (size_t)g * (size_t)f->n_out + i0;
      for (int i = 0; i < n_row; i++)
        out[i] = sum[i];
      activate(f->activation, n_row, out);
    }
  }
}
MILL_AVX2(mill_lanes_, layer_block, (const mill_lanes_layer *f, int block, double *weight),
          (f, block, weight))

/* mill_lanes_rotate: convolve with the symmetric kernel, and add to the bins' sums. */
MILL_AVX2_BODY rotate(const mill_lanes_rotation *f)
{
  const int n = f->n_pix;
  for (int i = 0; i < n; i++) {
    const double w0 = f->kernel[0];
    mill_four a = w0 * f->flux[i].v[0], b = w0 * f->flux[i].v[1];
    for (int k = 1; k <= f->half; k++) {
      const double w = f->kernel[k];
      if (i >= k) {
        a += w * f->flux[i - k].v[0];
        b += w * f->flux[i - k].v[1];
      }
      if (i + k < n) {
        a += w * f->flux[i + k].v[0];
        b += w * f->flux[i + k].v[1];
      }
    }
    mill_lanes *sum = &f->sum[f->bin[i]];
    sum->v[0] += a;
    sum->v[1] += b;
  }
}
MILL_AVX2(mill_lanes_, rotate, (const mill_lanes_rotation *f), (f))

/* mill_lanes_fill_half fits a continuum to each of a group's MILL_LANE templates over the data's
 * bins.  It writes template / continuum - 1 into a half of f->templ: the second if group is odd. */
MILL_AVX2_BODY fill_half(const mill_lanes_fill *f, int group)
{
  enum { N_VEC = MILL_LANE / 4 };
  const int nk = f->nk;
  const mill_lanes *mean = f->mean + (ptrdiff_t)group * f->n_bin;
  mill_four a[MILL_MAX_CONT + MILL_LANES_TILE][N_VEC];
  const mill_four zero = {0.0, 0.0, 0.0, 0.0};
  /* right-hand sides of the continuum fits: sums of basis times template over the data's bins */
  for (int k0 = 0; k0 < nk; k0 += MILL_LANES_TILE) {
    mill_four s00 = zero, s01 = zero, s10 = zero, s11 = zero, s20 = zero, s21 = zero, s30 = zero,
              s31 = zero, s40 = zero, s41 = zero;
    for (int i = f->side; i < f->side + f->n; i++) {
      if (mill_lanes_count(f, i) == 0)
        continue;
      const mill_lanes *m = &mean[f->first + i];
      const mill_four m0 = m->v[0], m1 = m->v[1];
      const double *basis = f->basis + (size_t)i * (size_t)f->pitch + k0;
      s00 += basis[0] * m0;
      s01 += basis[0] * m1;
      s10 += basis[1] * m0;
      s11 += basis[1] * m1;
      s20 += basis[2] * m0;
      s21 += basis[2] * m1;
      s30 += basis[3] * m0;
      s31 += basis[3] * m1;
      s40 += basis[4] * m0;
      s41 += basis[4] * m1;
    }
    const mill_four sum[MILL_LANES_TILE][N_VEC] = {
        {s00, s01}, {s10, s11}, {s20, s21}, {s30, s31}, {s40, s41}};
    memcpy(a[k0], sum, sizeof sum);
  }
  for (int t = 0; t < MILL_LANE; t++) {
    double solution[MILL_MAX_CONT];
    for (int k = 0; k < nk; k++)
      solution[k] = a[k][t / 4][t % 4];
    mill_cholesky_solve(nk, f->factor, nk, solution);
    for (int k = 0; k < nk; k++)
      a[k][t / 4][t % 4] = solution[k];
  }
  float *out = f->templ + group % 2 * MILL_LANE;
  for (int i = 0; i < f->width; i++, out += MILL_GUESS_LANE) {
    mill_four c0 = zero, c1 = zero;
    const double *basis = f->basis + (size_t)i * (size_t)f->pitch;
    if (mill_lanes_count(f, i) == 0) {
      /* a bin without grid points gets 0, the mean of normalised templates: it favours no shift */
      memset(out, 0, MILL_LANE * sizeof *out);
      continue;
    }
    for (int k = 0; k < nk; k++) {
      c0 += a[k][0] * basis[k];
      c1 += a[k][1] * basis[k];
    }
    const mill_lanes *m = &mean[f->first + i];
    const mill_four c[N_VEC] = {c0, c1}, value[N_VEC] = {m->v[0] / c0 - 1.0, m->v[1] / c1 - 1.0};
    for (int t = 0; t < MILL_LANE; t++)
      out[t] = c[t / 4][t % 4] > 0.0 ? (float)value[t / 4][t % 4] : 0.0f;
  }
}
MILL_AVX2(mill_lanes_, fill_half, (const mill_lanes_fill *f, int group), (f, group))

/* mill_lanes_transform_group: one complex transform serves m^2 and m of a normalised template m. */
MILL_AVX2_BODY transform_group(const mill_lanes_transform *f)
{
  const float scale = 1.0f / (float)f->n;
  for (int block = 0; block < f->n_block; block++) {
    const int first = block * f->n_kept;
    for (int i = 0; i < f->n; i++) {
      float *re = f->work + (size_t)i * 2 * MILL_GUESS_LANE, *im = re + MILL_GUESS_LANE;
      if (first + i >= f->width) {
        memset(re, 0, 2 * MILL_GUESS_LANE * sizeof *re);
        continue;
      }
      const float *m = f->from + (size_t)(first + i) * MILL_GUESS_LANE;
      for (int l = 0; l < MILL_GUESS_LANE; l++) {
        re[l] = scale * m[l] * m[l];
        im[l] = scale * m[l];
      }
    }
    for (int half = f->n / 2; half > 0; half /= 2)
      for (int j = 0; j < f->n / 2; j++)
        mill_fourier_pair(f->n, half, j, 0, f->root, MILL_GUESS_LANE, f->work);
    for (int i = 0; i < f->n; i++)
      memcpy(f->to + ((size_t)i * (size_t)f->n_block + (size_t)block) * 2 * MILL_GUESS_LANE,
             f->work + (size_t)i * 2 * MILL_GUESS_LANE, 2 * MILL_GUESS_LANE * sizeof *f->to);
  }
}
MILL_AVX2(mill_lanes_, transform_group, (const mill_lanes_transform *f), (f))
