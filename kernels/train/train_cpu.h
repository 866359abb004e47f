/* SPDX-License-Identifier: BSD-3-Clause */
/** Vector code of the CPU's training: train_cpu_math.c for train_cpu.c alone. */
#ifndef MILL_TRAIN_CPU_H
#define MILL_TRAIN_CPU_H

#include "kernels/train/train_ops.h"

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

/** z [n_row][n] without bias becomes its SiLU; slope [n_row][n] */
void mill_train_cpu_activate(int n_row, int n, const float *bias, float *z, float *slope);
/** delta [n] times slope [n] */
void mill_train_cpu_multiply(size_t n, const float *slope, float *delta);
/** sum [n] over the rows of delta [n_row][ld], in their order */
void mill_train_cpu_sum_rows(int n_row, int n, const float *delta, int ld, float *sum);
void mill_train_cpu_loss(const mill_train_loss_task *task);
void mill_train_cpu_adam(size_t n, const mill_train_adam *adam, const float *gradient, float *param,
                         float *m, float *v);

#endif
