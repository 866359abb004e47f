/* SPDX-License-Identifier: BSD-3-Clause */
/** The arithmetic of training a network on one rank: a table of functions, one for the CPU and one
 *  for a GPU (kernels/cuda/train_cuda.cu).  src/train/train_network.c calls them.
 *
 *  Matrices are row-major float32. */
#pragma once

#include "kernels/base/common.h"

MILL_EXTERN_C_BEGIN

/** Contribution rho(u) of a scaled residual u to the loss. */
enum mill_train_loss_kind {
  MILL_TRAIN_L2 = 0, /**< u^2 */
  MILL_TRAIN_L1,     /**< |u| */
  MILL_TRAIN_HUBER   /**< u^2 / 2 up to |u| = delta, then delta (|u| - delta / 2) */
};

/** Precision of matrix products on a GPU; sums are always float32.  A CPU has FLOAT32 only. */
enum mill_train_precision {
  MILL_TRAIN_FLOAT32 = 0,
  MILL_TRAIN_TF32, /**< factors are rounded to 10 bits of mantissa */
  MILL_TRAIN_BF16  /**< factors are rounded to 7 bits of mantissa */
};

/** Offsets of each layer's weights [n_out][n_in] and biases [n_out] in the parameters [n_param]. */
typedef struct mill_train_shape {
  int n_layer;
  int n_in[MILL_MAX_LAYER], n_out[MILL_MAX_LAYER];
  size_t weight[MILL_MAX_LAYER], bias[MILL_MAX_LAYER];
  size_t n_param;
} mill_train_shape;

/** A network and its loss, which is sum_j rho(scale_j (out_j - target_j)) / n_norm for a model. */
typedef struct mill_train_net {
  mill_train_shape shape;
  int loss;           /**< enum mill_train_loss_kind */
  double huber;       /**< delta of HUBER */
  double n_norm;      /**< > 0 */
  const float *scale; /**< [n_out of the last layer] > 0, borrowed */
  int n_room;         /**< most models per call */
  int n_thread;       /**< threads of the CPU; results are the same, bit for bit, for any number */
  int precision;      /**< enum mill_train_precision */
} mill_train_net;

/** A batch of n models.
 *
 *  x       [n] pointers to mapped labels [n_in of the first layer]
 *  target  [n] pointers to the wanted outputs; NULL where they are not needed */
typedef struct mill_train_rows {
  int n;
  const float *const *x;
  const float *const *target;
} mill_train_rows;

/** A step of Adam (Kingma & Ba 2015) with decoupled weight decay (Loshchilov & Hutter 2019). */
typedef struct mill_train_adam {
  double rate, decay, beta1, beta2, epsilon;
  int64_t n_step; /**< number of steps made, this one included */
} mill_train_adam;

typedef struct mill_train_work mill_train_work;

/** All functions return MILL_OK or a failure of memory or of the GPU. */
typedef struct mill_train_ops {
  const char *name;
  /** Compute the first n principal directions of the rows of x [n_row][n_pix], in float64.
   *   value [n]       the n largest eigenvalues of x x^T, ascending
   *   out [n][n_pix]  rows v^T x of eigenvectors v of x x^T; a row's squares sum to v's eigenvalue
   *  MILL_ERR_INTERNAL if LAPACK or cuSOLVER fails. */
  int (*directions)(int n_row, int n_pix, const double *x, int n, double *value, double *out);
  int (*create)(const mill_train_net *net, mill_train_work **out);
  void (*destroy)(mill_train_work *work); /**< NULL is allowed */
  /** Set the host's parameters and Adam's moments m and v (NULL: no steps), each [n_param].  The
   *  caller owns and must not move these.  A CPU works in place; `fetch` copies a GPU's back. */
  int (*bind)(mill_train_work *work, float *param, float *m, float *v);
  int (*fetch)(mill_train_work *work);
  /** Take over parameters that the host has changed. */
  int (*renew)(mill_train_work *work);
  /** Compute h [n][n_in of the last layer], the last layer's inputs for these models. */
  int (*hidden)(mill_train_work *work, const mill_train_rows *rows, float *h);
  /** Sum of the losses of models, not divided by n_norm. */
  int (*losses)(mill_train_work *work, const mill_train_rows *rows, double *loss);
  /** Compute what these models add to the gradient of the mean loss of n_all models.  Add their
   *  losses to the sum that take_loss returns.  rows->n may be 0. */
  int (*slopes)(mill_train_work *work, const mill_train_rows *rows, int n_all);
  /** Sum of the losses of all calls of slopes since the last take_loss. */
  int (*take_loss)(mill_train_work *work, double *loss);
  /** Return a host copy of the last gradient [n_param], valid until the next call of slopes; the
   *  caller may overwrite it. */
  int (*gradient)(mill_train_work *work, float **gradient);
  /** Make an Adam step of parameters [first, first + n).  gradient NULL: use the last gradient
   *  of slopes.  gradient [n] in host memory: also copy the new parameters to the host. */
  int (*adam)(mill_train_work *work, const mill_train_adam *adam, size_t first, size_t n,
              const float *gradient);
} mill_train_ops;

/** Return the functions of the CPU.  Only BLAS may round differently on another processor. */
const mill_train_ops *mill_train_ops_cpu(void);

MILL_EXTERN_C_END
