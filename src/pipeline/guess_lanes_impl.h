/* SPDX-License-Identifier: BSD-3-Clause */
/* Included by src/pipeline/guess_table.c once per instruction set (LANES_NAME, LANES_TARGET); no
 * include guard.  Vectors are written out, so that the sums of a tile stay in registers. */

/** Sums over bins of the rotated templates; zero beyond the grid, where no bin of the data
 *  lies. */
LANES_TARGET static void LANES_NAME(rotate_and_bin)(const rotate_task *f)
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

/** Normalise the templates of half a group: divide by their continuum fits.  Where there is
 *  none, its mean is 0 everywhere and so is what comes out. */
LANES_TARGET static void LANES_NAME(fill_half)(const fill_task *f, int group)
{
  enum { N_VEC = MILL_HALF_LANE / 4 };
  const int nk = f->nk;
  const mill_four *mean =
      (const mill_four *)(const void *)f->bins->mean + (ptrdiff_t)group * f->bins->n_bin * N_VEC;
  mill_four a[MILL_MAX_CONT + TILE][N_VEC];
  const mill_four zero = {0.0, 0.0, 0.0, 0.0};

  /* right-hand sides: sums of basis times mean over the bins of the data */
  for (int k0 = 0; k0 < nk; k0 += TILE) {
    mill_four s00 = zero, s01 = zero, s10 = zero, s11 = zero, s20 = zero, s21 = zero, s30 = zero,
              s31 = zero, s40 = zero, s41 = zero;
    for (int i = f->half; i < f->half + f->n; i++) {
      if (bin_count(f, i) == 0)
        continue;
      const mill_four *m = mean + (f->first + i) * N_VEC;
      const mill_four m0 = m[0], m1 = m[1];
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
    const mill_four sum[TILE][N_VEC] = {{s00, s01}, {s10, s11}, {s20, s21}, {s30, s31}, {s40, s41}};
    memcpy(a[k0], sum, sizeof sum);
  }
  for (int t = 0; t < MILL_HALF_LANE; t++) {
    double solution[MILL_MAX_CONT];
    for (int k = 0; k < nk; k++)
      solution[k] = a[k][t / 4][t % 4];
    mill_cholesky_solve(nk, f->factor, nk, solution);
    for (int k = 0; k < nk; k++)
      a[k][t / 4][t % 4] = solution[k];
  }
  float *out = f->templ + group % 2 * MILL_HALF_LANE;
  for (int i = 0; i < f->width; i++, out += MILL_GUESS_LANE) {
    mill_four c0 = zero, c1 = zero;
    const double *basis = f->basis + (size_t)i * (size_t)f->pitch;
    if (bin_count(f, i) == 0) {
      /* beyond the template take the mean, which favours no shift */
      memset(out, 0, MILL_HALF_LANE * sizeof *out);
      continue;
    }
    for (int k = 0; k < nk; k++) {
      c0 += a[k][0] * basis[k];
      c1 += a[k][1] * basis[k];
    }
    const mill_four *m = mean + (f->first + i) * N_VEC;
    const mill_four c[N_VEC] = {c0, c1}, value[N_VEC] = {m[0] / c0 - 1.0, m[1] / c1 - 1.0};
    for (int t = 0; t < MILL_HALF_LANE; t++)
      out[t] = c[t / 4][t % 4] > 0.0 ? (float)value[t / 4][t % 4] : 0.0f;
  }
}

/** Blocks of m^2 + i m of the templates of one group, transformed, over the length. */
LANES_TARGET static void LANES_NAME(transform_group)(const transform_task *f)
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
