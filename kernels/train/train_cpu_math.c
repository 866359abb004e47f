/* SPDX-License-Identifier: BSD-3-Clause */
/* Bits are the same with and without AVX2: no products are fused, and sums have eight parts. */
#include "kernels/train/train_cpu.h"

#include "kernels/base/avx2.h"
#include "kernels/train/train_math.h"

enum { PARTS = 8 };

MILL_AVX2_BODY activate(int n_row, int n, const float *bias, float *z, float *slope)
{
  for (int i = 0; i < n_row; i++) {
    float *row = z + (size_t)i * (size_t)n, *out = slope + (size_t)i * (size_t)n;
#pragma omp simd
    for (int j = 0; j < n; j++) {
      float s;
      row[j] = mill_train_silu(row[j] + bias[j], &s);
      out[j] = s;
    }
  }
}

MILL_AVX2_BODY multiply(size_t n, const float *slope, float *delta)
{
#pragma omp simd
  for (size_t i = 0; i < n; i++)
    delta[i] *= slope[i];
}

MILL_AVX2_BODY sum_rows(int n_row, int n, const float *delta, int ld, float *sum)
{
  for (int j = 0; j < n; j++)
    sum[j] = 0;
  for (int i = 0; i < n_row; i++) {
    const float *row = delta + (size_t)i * (size_t)ld;
#pragma omp simd
    for (int j = 0; j < n; j++)
      sum[j] += row[j];
  }
}

/* Add the losses of n_here outputs of a row, from j on, to part [PARTS]. Replace these outputs by
 * factor * d loss / d output. */
#define LOSS_PART(kind, n_here)                                                                    \
  for (int q = 0; q < (n_here); q++) {                                                             \
    const float u = scale[j + q] * (out[j + q] + bias[j + q] - target[j + q]);                     \
    part[q] += mill_train_rho(kind, delta, u);                                                     \
    out[j + q] = mill_train_rho_slope(kind, delta, factor, u) * scale[j + q];                      \
  }
#define LOSS_ROW(kind)                                                                             \
  {                                                                                                \
    int j = 0;                                                                                     \
    for (; j + PARTS <= n; j += PARTS)                                                             \
      LOSS_PART(kind, PARTS)                                                                       \
    LOSS_PART(kind, n - j)                                                                         \
  }

/* Replace the n outputs of one model by factor * d loss / d output; return the model's loss. */
__attribute__((always_inline)) static inline double loss_row(int kind, int n, float delta,
                                                             float factor, const float *bias,
                                                             const float *scale,
                                                             const float *target, float *out)
{
  float part[PARTS] = {0}; /* LOSS_ROW adds the loss of output k to part [k % PARTS] */
  double sum = 0;
  if (kind == MILL_TRAIN_L2) /* each branch has a constant kind, so that its loops vectorise */
    LOSS_ROW(MILL_TRAIN_L2)
  else if (kind == MILL_TRAIN_L1)
    LOSS_ROW(MILL_TRAIN_L1)
  else
    LOSS_ROW(MILL_TRAIN_HUBER)
  for (int q = 0; q < PARTS; q++)
    sum += (double)part[q];
  return sum;
}
#undef LOSS_ROW
#undef LOSS_PART

MILL_AVX2_BODY loss(const mill_train_loss_task *t)
{
  for (int i = 0; i < t->n_row; i++)
    t->row_loss[i] = loss_row(t->kind, t->n, (float)t->delta, (float)t->factor, t->bias, t->scale,
                              t->target[i] + t->first, t->out + (size_t)i * (size_t)t->ld);
}

MILL_AVX2_BODY adam(size_t n, const mill_train_adam *a, const float *gradient, float *param,
                    float *m, float *v)
{
  const mill_train_pace pace = mill_train_pace_of(a);
#pragma omp simd
  for (size_t i = 0; i < n; i++)
    mill_train_adam_one(&pace, gradient[i], &param[i], &m[i], &v[i]);
}

MILL_AVX2(mill_train_cpu_, activate, (int n_row, int n, const float *bias, float *z, float *slope),
          (n_row, n, bias, z, slope))
MILL_AVX2(mill_train_cpu_, multiply, (size_t n, const float *slope, float *delta),
          (n, slope, delta))
MILL_AVX2(mill_train_cpu_, sum_rows, (int n_row, int n, const float *delta, int ld, float *sum),
          (n_row, n, delta, ld, sum))
MILL_AVX2(mill_train_cpu_, loss, (const mill_train_loss_task *t), (t))
MILL_AVX2(mill_train_cpu_, adam,
          (size_t n, const mill_train_adam *a, const float *gradient, float *param, float *m,
           float *v),
          (n, a, gradient, param, m, v))
