/* SPDX-License-Identifier: BSD-3-Clause */
/** One arm, one segment and a work space, made without a pipeline, to test block functions. */
#pragma once

#include "kernels/star/blocks/likelihood.h"
#include "kernels/star/blocks/spline_filter.h"
#include "tests/test_library.h"

enum { BENCH_PIX = 512, BENCH_ROW = 10, BENCH_DIAG = 11 };

typedef struct block_bench {
  mill_block block;
  mill_model model;
  mill_waveset ws;
  mill_segment s;
  mill_workspace work;
  /* rows are wide enough for float64 */
  double grid[BENCH_ROW * BENCH_PIX], rotated[BENCH_ROW * BENCH_PIX], bend[BENCH_ROW * BENCH_PIX];
  double pixel[BENCH_ROW * BENCH_PIX], smooth[BENCH_ROW * BENCH_PIX];
  double ln_wave[BENCH_PIX], base[BENCH_PIX];
  float d[BENCH_PIX], is[BENCH_PIX], frac[BENCH_PIX], res[BENCH_DIAG * BENCH_PIX];
  float model_flux[BENCH_PIX], scratch[BENCH_PIX], cont[MILL_MAX_CONT * BENCH_PIX];
  unsigned char good[BENCH_PIX];
  int index[BENCH_PIX];
  double kernel[MILL_MAX_ROTATION + 1], kernel_slope[MILL_MAX_ROTATION + 1];
  double normal[MILL_MAX_CONT * MILL_MAX_CONT], solve[MILL_MAX_CONT * (MILL_MAX_PAR + 3)];
  double sums[MILL_BLOCK_MAX_SUM], error[MILL_ERROR_SPACE];
} block_bench;

/** An arm of n_grid knots; n_pix good pixels at an S/N of about 10, without a matrix. */
static inline void block_bench_init(block_bench *b, int n_grid, double ln_wave0, double ln_step,
                                    int n_pix, int n_cont, int n_label)
{
  memset(b, 0, sizeof *b);
  mill_model_arm *arm = &b->model.arm[0];
  b->model.n_arm = 1;
  b->model.n_label = n_label;
  b->model.n_deriv = b->model.n_par = n_label + 2;
  b->model.max_pix_pad = b->model.max_seg_pix = BENCH_PIX;
  b->model.set.n_cont = n_cont;
  arm->n_pix = n_grid;
  arm->n_pix_pad = BENCH_PIX;
  arm->ln_wave0 = ln_wave0;
  arm->ln_step = ln_step;
  mill_spline_filter(arm);
  b->ws.n_pix = n_pix;
  b->ws.n_cont = n_cont;
  b->ws.ln_wave = b->ln_wave;
  b->ws.cont = b->cont;
  b->s.n_pix = n_pix;
  b->s.ws = &b->ws;
  b->s.used = 1;
  b->s.d = b->d;
  b->s.is = b->is;
  b->s.good = b->good;
  b->s.base = b->base;
  b->s.model = b->model_flux;
  b->s.scratch = b->scratch;
  b->s.n_good = n_pix;
  for (int i = 0; i < n_pix; i++) {
    b->base[i] = 1;
    b->good[i] = 1;
    b->is[i] = 1;
  }
  b->work = (mill_workspace){.grid = b->grid,
                             .rotated = b->rotated,
                             .bend = b->bend,
                             .templ = b->rotated,
                             .pixel = b->pixel,
                             .smooth = b->smooth,
                             .index = b->index,
                             .frac = b->frac,
                             .kernel = b->kernel,
                             .kernel_slope = b->kernel_slope,
                             .normal = b->normal,
                             .solve = b->solve,
                             .sums = b->sums,
                             .error = b->error};
}
