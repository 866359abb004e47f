/* Included by src/libraries/train_ops_cpu.c once per instruction set (OPS_NAME, OPS_TARGET); no
 * include guard.  Neither set has fused products, and sums have eight parts in both, so the bits
 * are the same. */

/* exp(x) for x <= 0, relative error 2e-7: x = k ln 2 + r, and a polynomial of degree 6. */
OPS_TARGET static inline float OPS_NAME(exp_negative)(float x)
{
  union {
    float f;
    uint32_t u;
  } power;
  x = x < -87.0f ? -87.0f : x;
  const float shifted = x * 1.44269504f + 12582912.0f; /* 1.5 2^23: the integer is in its bits */
  const float k = shifted - 12582912.0f;
  const float r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
  float p = 1.3888889e-3f;
  p = p * r + 8.3333333e-3f;
  p = p * r + 4.1666667e-2f;
  p = p * r + 1.6666667e-1f;
  p = p * r + 0.5f;
  p = 1.0f + (r + r * r * p);
  power.f = shifted;
  power.u = (power.u << 23) + ((uint32_t)127 << 23);
  return p * power.f;
}

OPS_TARGET static void OPS_NAME(activate)(int n_row, int n, const float *bias, float *z,
                                          float *slope)
{
  for (int i = 0; i < n_row; i++) {
    float *row = z + (size_t)i * (size_t)n, *out = slope ? slope + (size_t)i * (size_t)n : NULL;
#pragma omp simd
    for (int j = 0; j < n; j++) {
      const float x = row[j] + bias[j];
      const float e = OPS_NAME(exp_negative)(x < 0 ? x : -x), d = 1 / (1 + e);
      const float s = x < 0 ? e * d : d, rest = x < 0 ? d : e * d;
      row[j] = x * s;
      if (out)
        out[j] = s * (1 + x * rest);
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
#define LOSS_PART(n_here, rho, slope)                                                              \
  for (int q = 0; q < (n_here); q++) {                                                             \
    const float u = scale[j + q] * (out[j + q] + bias[j + q] - target[j + q]);                     \
    const float size = u < 0 ? -u : u;                                                             \
    part[q] += (rho);                                                                              \
    out[j + q] = (slope)*scale[j + q];                                                             \
  }
#define LOSS_ROW(rho, slope)                                                                       \
  {                                                                                                \
    int j = 0;                                                                                     \
    for (; j + PARTS <= n; j += PARTS)                                                             \
      LOSS_PART(PARTS, rho, slope)                                                                 \
    LOSS_PART(n - j, rho, slope)                                                                   \
  }

OPS_TARGET static double OPS_NAME(loss_row)(int kind, int n, float delta, float factor,
                                            const float *bias, const float *scale,
                                            const float *target, float *out)
{
  float part[PARTS] = {0};
  double sum = 0;
  if (kind == MILL_TRAIN_L2) {
    const float twice = 2 * factor;
    LOSS_ROW(size * size, twice * u)
  } else if (kind == MILL_TRAIN_L1) {
    LOSS_ROW(size, u > 0 ? factor : u < 0 ? -factor : 0)
  } else {
    const float most = factor * delta;
    LOSS_ROW(size <= delta ? 0.5f * size * size : delta * (size - 0.5f * delta), size <= delta
                                                                                     ? factor * u
                                                                                 : u > 0 ? most
                                                                                         : -most)
  }
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
  const float beta1 = (float)a->beta1, beta2 = (float)a->beta2;
  const float rest1 = (float)(1 - a->beta1), rest2 = (float)(1 - a->beta2);
  const float keep = (float)(1 - a->rate * a->decay), epsilon = (float)a->epsilon;
  const float step = (float)(a->rate / (1 - pow(a->beta1, (double)a->n_step)));
  const float unbias = (float)(1 / sqrt(1 - pow(a->beta2, (double)a->n_step)));
#pragma omp simd
  for (size_t i = 0; i < n; i++) {
    const float g = gradient[i];
    m[i] = beta1 * m[i] + rest1 * g;
    v[i] = beta2 * v[i] + rest2 * (g * g);
    param[i] = keep * param[i] - step * m[i] / (sqrtf(v[i]) * unbias + epsilon);
  }
}
