/* SPDX-License-Identifier: BSD-3-Clause */
/** Loops over eight spectra side by side, in float64, for what the host prepares before a fit:
 *  the emulator at the guess's templates, and these templates (src/pipeline/guess_table.h).
 *
 *  Each runs with AVX2 where the processor has it, without fused products, which gives the same
 *  bits as without. */
#ifndef MILL_LANES_H
#define MILL_LANES_H

#include "kernels/star/slot.h"

/** Spectra side by side, in registers of four. */
enum { MILL_LANE = MILL_GUESS_LANE / 2 };
typedef double mill_four __attribute__((vector_size(32)));
typedef struct mill_lanes {
  mill_four v[MILL_LANE / 4];
} mill_lanes;

/** A layer for groups of templates: what goes in [n_group][n_in], what comes out
 *  [n_group][n_out]. */
typedef struct mill_lanes_layer {
  int n_in, n_out, n_group;
  const float *weight, *bias;
  const mill_lanes *in;
  mill_lanes *out;
} mill_lanes_layer;
/** Outputs in a block of a layer, and pixels that share one pass over its weights. */
enum { MILL_LANES_BLOCK = 64, MILL_LANES_PIXELS = 4 };
/** Outputs [block * MILL_LANES_BLOCK, ...) of a layer before its activation: bias + sum over the
 *  inputs in turn.  weight [MILL_LANES_PIXELS][n_in] is work space. */
void mill_lanes_layer_block(const mill_lanes_layer *layer, int block, double *weight);

/** An arm's templates rotated and averaged into bins. */
typedef struct mill_lanes_rotation {
  int n_pix, half;
  const double *kernel;   /**< [half + 1] */
  const mill_lanes *flux; /**< [n_pix] */
  const int *bin;         /**< [n_pix] */
  mill_lanes *sum;        /**< added to */
} mill_lanes_rotation;
/** Sums over bins of the rotated templates; zero beyond the grid, where no bin of the data lies. */
void mill_lanes_rotate(const mill_lanes_rotation *task);

/** Continuum functions whose sums share one pass. */
enum { MILL_LANES_TILE = 5 };
/** Inputs of a set of bins from one arm, and its outputs. */
typedef struct mill_lanes_fill {
  int nk, pitch;          /**< continuum functions, and with padding to whole tiles */
  int half, n, width;     /**< bins on each side; of the data; all */
  int n_bin;              /**< of the arm */
  const int *count;       /**< [n_bin] grid points in a bin */
  const mill_lanes *mean; /**< [groups][n_bin] */
  long first;             /**< index of the first of all among the arm's; may lie before them */
  const double *basis;    /**< [width][pitch] continuum functions */
  const double *factor;   /**< [nk][nk] Cholesky factor of their normal matrix */
  float *templ;           /**< [width][MILL_GUESS_LANE] of one of the backend's groups */
} mill_lanes_fill;
/** Grid points in bin i of the width. */
static inline int mill_lanes_count(const mill_lanes_fill *f, int i)
{
  const long b = f->first + i;
  return b >= 0 && b < f->n_bin ? f->count[b] : 0;
}
/** Normalise the templates of a group, which is half of a backend's: divide by their continuum
 *  fits.  Where there is none, its mean is 0 everywhere and so is what comes out. */
void mill_lanes_fill_half(const mill_lanes_fill *task, int group);

/** Templates of one group that are transformed. */
typedef struct mill_lanes_transform {
  int n, n_block, n_kept; /**< length, blocks, bins of the data in a block */
  int width;
  const float *root;
  const float *from; /**< [width][MILL_GUESS_LANE] */
  float *work;       /**< [n][2][MILL_GUESS_LANE] */
  float *to;         /**< [n][n_block][2][MILL_GUESS_LANE] */
} mill_lanes_transform;
/** Blocks of m^2 + i m of the templates m of one group, transformed, over the length. */
void mill_lanes_transform_group(const mill_lanes_transform *task);

#endif
