/* SPDX-License-Identifier: BSD-3-Clause */
/** Scalar functions of training, shared by the CPU's vectors and a GPU's threads. */
#pragma once

#include "kernels/base/common.h"
#include "kernels/train/train_ops.h"

/** exp(x) for x <= 0, relative error 2e-7: x = k ln 2 + r, and a polynomial of degree 6. */
MILL_HD_INLINED float mill_train_exp_negative(float x)
{
  union {
    float f;
    uint32_t u;
  } power;
  x = x < -87.0f ? -87.0f : x; /* exp(-87) is still a normal float */
  /* adding 1.5 * 2^23 rounds to an integer, which is then in the last bits */
  const float shifted = x * 1.44269504f + 12582912.0f;
  const float k = shifted - 12582912.0f;
  const float r = (x - k * 0.693359375f) + k * 2.12194440e-4f; /* x - k ln 2, in two parts */
  float p = 1.3888889e-3f;
  p = p * r + 8.3333333e-3f;
  p = p * r + 4.1666667e-2f;
  p = p * r + 1.6666667e-1f;
  p = p * r + 0.5f;
  p = 1.0f + (r + r * r * p);
  power.f = shifted;
  power.u = (power.u << 23) + ((uint32_t)127 << 23); /* 2^k: k as the exponent of a float */
  return p * power.f;
}

/** SiLU (x / (1 + exp(-x))) and its slope. */
MILL_HD_INLINED float mill_train_silu(float x, float *slope)
{
  const float e = mill_train_exp_negative(x < 0 ? x : -x), d = 1 / (1 + e);
  const float s = x < 0 ? e * d : d, rest = x < 0 ? d : e * d;
  *slope = s * (1 + x * rest);
  return x * s;
}

MILL_HD_INLINED float mill_train_rho(int kind, float delta, float u)
{
  const float size = u < 0 ? -u : u;
  if (kind == MILL_TRAIN_L2)
    return size * size;
  if (kind == MILL_TRAIN_L1)
    return size;
  return size <= delta ? 0.5f * size * size : delta * (size - 0.5f * delta);
}

/** factor * d mill_train_rho / du. */
MILL_HD_INLINED float mill_train_rho_slope(int kind, float delta, float factor, float u)
{
  const float size = u < 0 ? -u : u, most = kind == MILL_TRAIN_L1 ? factor : factor * delta;
  if (kind == MILL_TRAIN_L2)
    return 2 * factor * u;
  if (kind == MILL_TRAIN_HUBER && size <= delta)
    return factor * u;
  return u > 0 ? most : u < 0 ? -most : 0;
}

/** Factors of an Adam step, common to all parameters. */
typedef struct mill_train_pace {
  float beta1, beta2, rest1, rest2, keep, step, unbias, epsilon;
} mill_train_pace;

/** Return the factors of Adam's step n_step: bias corrections 1 - beta^n_step, and weight decay. */
static inline mill_train_pace mill_train_pace_of(const mill_train_adam *a)
{
  mill_train_pace p;
  p.beta1 = (float)a->beta1;
  p.beta2 = (float)a->beta2;
  p.rest1 = (float)(1 - a->beta1);
  p.rest2 = (float)(1 - a->beta2);
  p.keep = (float)(1 - a->rate * a->decay);
  p.epsilon = (float)a->epsilon;
  p.step = (float)(a->rate / (1 - pow(a->beta1, (double)a->n_step)));
  p.unbias = (float)(1 / sqrt(1 - pow(a->beta2, (double)a->n_step)));
  return p;
}

MILL_HD_INLINED void mill_train_adam_one(const mill_train_pace *p, float g, float *param, float *m,
                                         float *v)
{
  *m = p->beta1 * *m + p->rest1 * g;
  *v = p->beta2 * *v + p->rest2 * (g * g);
  *param = p->keep * *param - p->step * *m / (sqrtf(*v) * p->unbias + p->epsilon);
}
