/* SPDX-License-Identifier: BSD-3-Clause */
/** The arithmetic of training a network on one rank, as one table of functions: the CPU's, and a
 *  GPU's (kernels/cuda/train_cuda.cu).  src/train/train_network.c is written over this table.
 *
 *  Matrices are row-major float32.
 */
#ifndef MILL_TRAIN_OPS_H
#define MILL_TRAIN_OPS_H

#include "kernels/base/common.h"

MILL_EXTERN_C_BEGIN

/** What a residual u, in units of the loss, adds to the loss. */
enum mill_train_loss_kind {
  MILL_TRAIN_L2 = 0, /**< u^2 */
  MILL_TRAIN_L1,     /**< |u| */
  MILL_TRAIN_HUBER   /**< u^2 / 2 up to |u| = delta, then delta (|u| - delta / 2) */
};

/** Products of matrices on a GPU; sums are float32 always, and a CPU knows FLOAT32 only. */
enum mill_train_precision {
  MILL_TRAIN_FLOAT32 = 0,
  MILL_TRAIN_TF32, /**< factors are rounded to 10 bits behind the point */
  MILL_TRAIN_BF16  /**< to 7 */
};

/** Where weights [n_out][n_in] and biases [n_out] of each layer lie in one row of numbers. */
typedef struct mill_train_shape {
  int n_layer;
  int n_in[MILL_MAX_LAYER], n_out[MILL_MAX_LAYER];
  size_t weight[MILL_MAX_LAYER], bias[MILL_MAX_LAYER];
  size_t n_param;
} mill_train_shape;

/** A network and its loss: sum_j rho(scale_j (out_j - target_j)) / n_norm for a model. */
typedef struct mill_train_net {
  mill_train_shape shape;
  int loss;           /**< enum mill_train_loss_kind */
  double huber;       /**< delta of HUBER */
  double n_norm;      /**< > 0 */
  const float *scale; /**< [n_out of the last layer] > 0, borrowed */
  int n_room;         /**< models at most at a time */
  int n_thread;       /**< of the CPU; the bits do not depend on it */
  int precision;      /**< enum mill_train_precision */
} mill_train_net;

/** Models at work.
 *
 *  x       [n] pointers to mapped labels [n_in of the first layer]
 *  target  [n] pointers to what the outputs should be; NULL where they are not needed */
typedef struct mill_train_rows {
  int n;
  const float *const *x;
  const float *const *target;
} mill_train_rows;

/** A step of Adam (Kingma & Ba 2015) with decoupled weight decay (Loshchilov & Hutter 2019). */
typedef struct mill_train_adam {
  double rate, decay, beta1, beta2, epsilon;
  int64_t n_step; /**< this one included */
} mill_train_adam;

/** A network at work on one rank. */
typedef struct mill_train_work mill_train_work;

/** All functions return MILL_OK or a failure of memory or of the GPU. */
typedef struct mill_train_ops {
  const char *name;
  /** The leading directions of rows x [n_row][n_pix], in float64: the n largest eigenvalues [n] of
   *  x x^T, ascending, and out [n][n_pix], the rows v^T x of their eigenvectors v, whose square
   *  sums are the eigenvalues.  MILL_ERR_INTERNAL when LAPACK, or cuSOLVER, fails. */
  int (*directions)(int n_row, int n_pix, const double *x, int n, double *value, double *out);
  int (*create)(const mill_train_net *net, mill_train_work **out);
  void (*destroy)(mill_train_work *work); /**< NULL is allowed */
  /** The host's parameters, and moments where steps are made (else NULL), each [n_param].  They
   *  stay the caller's and in place: a CPU works in them; a GPU copies them, and `fetch` brings
   *  back what has become of them. */
  int (*bind)(mill_train_work *work, float *param, float *m, float *v);
  int (*fetch)(mill_train_work *work);
  /** The host's parameters have changed. */
  int (*renew)(mill_train_work *work);
  /** Outputs of the hidden layers for models, h [n][n_in of the last layer]. */
  int (*hidden)(mill_train_work *work, const mill_train_rows *rows, float *h);
  /** Sum of the losses of models, not divided by n_norm. */
  int (*losses)(mill_train_work *work, const mill_train_rows *rows, double *loss);
  /** Slopes of the mean loss of n_all models, of which these are some or none, along every
   *  parameter; the sum of these models' losses is added to what take_loss gives. */
  int (*slopes)(mill_train_work *work, const mill_train_rows *rows, int n_all);
  /** The loss summed by slopes since the last call. */
  int (*take_loss)(mill_train_work *work, double *loss);
  /** The last slopes [n_param], valid until the next call of slopes; may be written over. */
  int (*gradient)(mill_train_work *work, float **gradient);
  /** A step of parameters [first, first + n) by gradient [n], or by the last slopes where that is
   *  NULL.  With a gradient the host's parameters of this part have made the step too. */
  int (*adam)(mill_train_work *work, const mill_train_adam *adam, size_t first, size_t n,
              const float *gradient);
} mill_train_ops;

/** On the CPU: BLAS for the products, the rest by vector code whose bits do not depend on the
 *  processor. */
const mill_train_ops *mill_train_ops_cpu(void);

MILL_EXTERN_C_END

#endif
