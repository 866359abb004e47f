/* SPDX-License-Identifier: BSD-3-Clause */
/** Vectorised loops of training on the CPU, defined in train_cpu_math.c, used in train_cpu.c. */
#pragma once

#include "kernels/train/train_ops.h"

/** Task of mill_train_cpu_loss: the loss of n outputs of n_row models, and its derivatives.
 *
 *  out      [n_row][ld]  in: the last layer without its bias; out: factor * d loss / d output
 *  bias     [n]          in: the last layer's bias
 *  target   [n_row]      in: pointers to target rows; elements [first, first + n) belong to out
 *  scale    [n]          in: the loss is rho(u), u = scale * (out + bias - target)
 *  row_loss [n_row]      out: loss summed over the n outputs, without factor */
typedef struct mill_train_loss_task {
  int kind; /**< enum mill_train_loss_kind */
  int n_row, n, ld, first;
  double delta, factor;
  float *out;
  const float *bias, *scale;
  const float *const *target;
  double *row_loss;
} mill_train_loss_task;

/** z [n_row][n] = SiLU(z + bias); slope [n_row][n]: its derivative */
void mill_train_cpu_activate(int n_row, int n, const float *bias, float *z, float *slope);
/** delta [n] *= slope [n] */
void mill_train_cpu_multiply(size_t n, const float *slope, float *delta);
/** sum [n] = sum of the rows of delta [n_row][ld], in their order */
void mill_train_cpu_sum_rows(int n_row, int n, const float *delta, int ld, float *sum);
void mill_train_cpu_loss(const mill_train_loss_task *task);
void mill_train_cpu_adam(size_t n, const mill_train_adam *adam, const float *gradient, float *param,
                         float *m, float *v);
