/* SPDX-License-Identifier: BSD-3-Clause */
/** Prepare the initial guess's templates on the host before a fit (src/pipeline/guess_table.h), in
 *  float64, eight interleaved spectra at a time: emulate, rotate, normalise, transform.
 *
 *  AVX2 is used where the processor has it.  It does not change results: no products are fused. */
#pragma once

#include "kernels/star/slot.h"

/** Number of interleaved spectra; a register holds four. */
enum { MILL_LANE = MILL_GUESS_LANE / 2 };
typedef double mill_four __attribute__((vector_size(32)));
typedef struct mill_lanes {
  mill_four v[MILL_LANE / 4];
} mill_lanes;

/** Function of a layer's sums: SiLU in hidden layers; nothing or exp in the last layer. */
typedef enum mill_lanes_activation {
  MILL_LANES_NONE,
  MILL_LANES_SILU,
  MILL_LANES_EXP, /**< of sums clipped to -300 ... 300 */
} mill_lanes_activation;
/** A layer of the emulator for groups of templates: in [n_group][n_in], out [n_group][n_out]. */
typedef struct mill_lanes_layer {
  int n_in, n_out, n_group;
  mill_lanes_activation activation;
  const float *weight, *bias;
  const mill_lanes *in;
  mill_lanes *out;
} mill_lanes_layer;
/** Outputs per block of a layer, and outputs that share one pass over the inputs. */
enum { MILL_LANES_BLOCK = 64, MILL_LANES_PIXELS = 4 };
/** Compute block number `block` of MILL_LANES_BLOCK outputs of a layer: activation (bias + sum over
 *  the inputs in order).  weight [n_in][MILL_LANES_PIXELS] is work space. */
void mill_lanes_layer_block(const mill_lanes_layer *layer, int block, double *weight);

/** Task: rotate an arm's templates and sum them in bins. */
typedef struct mill_lanes_rotation {
  int n_pix, half;
  const double *kernel;   /**< [half + 1] */
  const mill_lanes *flux; /**< [n_pix] */
  const int *bin;         /**< [n_pix] */
  mill_lanes *sum;        /**< [bins] in/out: sums over each bin's grid points */
} mill_lanes_rotation;
/** Add rotated templates to the sums of their bins.  Flux beyond the grid counts as 0. */
void mill_lanes_rotate(const mill_lanes_rotation *task);

/** Continuum functions whose sums share one pass. */
enum { MILL_LANES_TILE = 5 };
/** Task: normalise an arm's templates on the bins of a wavelength range. */
typedef struct mill_lanes_fill {
  int nk, pitch;          /**< number of continuum functions; nk padded to whole tiles */
  int side, n, width;     /**< bins: on each side of the data; of the data; in total */
  int n_bin;              /**< bins of the arm */
  const int *count;       /**< [n_bin] grid points in a bin */
  const mill_lanes *mean; /**< [groups][n_bin] mean flux in a bin */
  long first;             /**< index in the arm of bin 0 of [width]; may be negative */
  const double *basis;    /**< [width][pitch] continuum functions */
  const double *factor;   /**< [nk][nk] Cholesky factor of the continuum's normal matrix */
  float *templ;           /**< [width][MILL_GUESS_LANE] an even group, then the next group */
} mill_lanes_fill;
/** Number of the arm's grid points in bin i of [width]. */
static inline int mill_lanes_count(const mill_lanes_fill *f, int i)
{
  const long b = f->first + i;
  return b >= 0 && b < f->n_bin ? f->count[b] : 0;
}
/** Divide the MILL_LANE templates of a group by their continuum fits and subtract 1.  An even group
 *  fills the first half of templ's columns, an odd group the second.  Missing templates give 0. */
void mill_lanes_fill_half(const mill_lanes_fill *task, int group);

/** Task: Fourier transforms of one group's templates. */
typedef struct mill_lanes_transform {
  int n, n_block, n_kept; /**< length of a transform; blocks; bins of the data in a block */
  int width;
  const float *root;
  const float *from; /**< [width][MILL_GUESS_LANE] */
  float *work;       /**< [n][2][MILL_GUESS_LANE] */
  float *to;         /**< [n][n_block][2][MILL_GUESS_LANE] */
} mill_lanes_transform;
/** Fourier-transform (m^2 + i m) / n of one group's normalised templates m by blocks; i^2 = -1. */
void mill_lanes_transform_group(const mill_lanes_transform *task);
