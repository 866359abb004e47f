/** The arithmetic of training, as one table of functions: what a GPU does otherwise than a CPU.
 *
 *  Matrices are row-major float32.  src/libraries/train_network.c is written over this table.
 */
#ifndef MILL_TRAIN_OPS_H
#define MILL_TRAIN_OPS_H

#include <stddef.h>
#include <stdint.h>

/** What a residual u, in units of the loss, adds to the loss. */
enum mill_train_loss_kind {
  MILL_TRAIN_L2 = 0, /**< u^2 */
  MILL_TRAIN_L1,     /**< |u| */
  MILL_TRAIN_HUBER   /**< u^2 / 2 up to |u| = delta, then delta (|u| - delta / 2) */
};

/** A part of the outputs of some rows against what they should be.
 *
 *  out     [n_row][ld]    in: the last layer without its bias; out: slope of the loss along each
 *                         of these, times factor
 *  bias    [n]
 *  target  [n_row]        pointers to rows, of which [first, first + n) belong to out
 *  scale   [n]            u = scale (out + bias - target)
 *  row_loss [n_row] out   sums over the n outputs, not times factor
 */
typedef struct mill_train_loss_task {
  int kind; /**< enum mill_train_loss_kind */
  int n_row, n, ld, first;
  double delta, factor;
  float *out;
  const float *bias, *scale;
  const float *const *target;
  double *row_loss;
} mill_train_loss_task;

/** A step of Adam (Kingma & Ba 2015) with decoupled weight decay (Loshchilov & Hutter 2019). */
typedef struct mill_train_adam {
  double rate, decay, beta1, beta2, epsilon;
  int64_t n_step; /**< this one included */
} mill_train_adam;

typedef struct mill_train_ops {
  const char *name;
  /** c [m][n] = op(a) op(b) + beta c, of which op(a) [m][k] and op(b) [k][n] are transposed where
   *  asked; ld*: numbers from row to row as they lie in memory. */
  void (*gemm)(int transpose_a, int transpose_b, int m, int n, int k, const float *a, int lda,
               const float *b, int ldb, float beta, float *c, int ldc);
  /** z [n_row][n] without bias becomes its SiLU; slope [n_row][n], NULL: not wanted. */
  void (*activate)(int n_row, int n, const float *bias, float *z, float *slope);
  /** delta [n] times slope [n] */
  void (*multiply)(size_t n, const float *slope, float *delta);
  /** sum [n] over the rows of delta [n_row][ld], in their order */
  void (*sum_rows)(int n_row, int n, const float *delta, int ld, float *sum);
  void (*loss)(const mill_train_loss_task *task);
  void (*adam)(size_t n, const mill_train_adam *adam, const float *gradient, float *param, float *m,
               float *v);
} mill_train_ops;

/** On the CPU: BLAS for the products, the rest by vector code whose bits do not depend on the
 *  processor. */
const mill_train_ops *mill_train_ops_cpu(void);

#endif
