/* SPDX-License-Identifier: BSD-3-Clause */
/* Included by kernels/train/train_cpu_math.c once per instruction set (OPS_NAME, OPS_TARGET); no
 * include guard.  Neither set has fused products, and sums have eight parts in both, so the bits
 * are the same. */

OPS_TARGET static void OPS_NAME(activate)(int n_row, int n, const float *bias, float *z,
                                          float *slope)
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

OPS_TARGET static void OPS_NAME(multiply)(size_t n, const float *slope, float *delta)
{
#pragma omp simd
  for (size_t i = 0; i < n; i++)
    delta[i] *= slope[i];
}

OPS_TARGET static void OPS_NAME(sum_rows)(int n_row, int n, const float *delta, int ld, float *sum)
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

/* Outputs [j, j + n_here) of one row; eight sums side by side. */
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

OPS_TARGET static double OPS_NAME(loss_row)(int kind, int n, float delta, float factor,
                                            const float *bias, const float *scale,
                                            const float *target, float *out)
{
  float part[PARTS] = {0};
  double sum = 0;
  if (kind == MILL_TRAIN_L2)
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

OPS_TARGET static void OPS_NAME(loss)(const mill_train_loss_task *t)
{
  for (int i = 0; i < t->n_row; i++)
    t->row_loss[i] =
        OPS_NAME(loss_row)(t->kind, t->n, (float)t->delta, (float)t->factor, t->bias, t->scale,
                           t->target[i] + t->first, t->out + (size_t)i * (size_t)t->ld);
}

OPS_TARGET static void OPS_NAME(adam)(size_t n, const mill_train_adam *a, const float *gradient,
                                      float *param, float *m, float *v)
{
  const mill_train_pace pace = mill_train_pace_of(a);
#pragma omp simd
  for (size_t i = 0; i < n; i++)
    mill_train_adam_one(&pace, gradient[i], &param[i], &m[i], &v[i]);
}
