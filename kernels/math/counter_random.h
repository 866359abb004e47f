/* SPDX-License-Identifier: BSD-3-Clause */
/** Counter-based random numbers, for both backends: Philox 4x32-10 (Salmon et al. 2011, SC'11).
 *
 *  A number depends only on seed, problem, purpose, particle, step and draw, not on earlier draws.
 *  So ranks, threads and backends do not change it.  Host code has streams of the same generator
 *  from Random123 (src/system/random.h); this copy vectorises and runs on a GPU. */
#pragma once

#include "kernels/base/common.h"

typedef struct mill_counter_words {
  uint32_t v[4];
} mill_counter_words;

/** The key of one problem's draws for one purpose. */
typedef struct mill_counter_key {
  uint32_t v[2];
} mill_counter_key;

/** Return the random words of the counter c0 to c3 under a key, by ten rounds of Philox 4x32. */
MILL_HD_INLINED mill_counter_words mill_philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3,
                                               mill_counter_key key)
{
  uint32_t k0 = key.v[0], k1 = key.v[1];
  for (int round = 0; round < 10; round++) {
    const uint64_t a = (uint64_t)c0 * 0xD2511F53u, b = (uint64_t)c2 * 0xCD9E8D57u;
    const uint32_t low_a = (uint32_t)a, low_b = (uint32_t)b;
    c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
    c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c1 = low_b;
    c3 = low_a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const mill_counter_words out = {{c0, c1, c2, c3}};
  return out;
}

/** Return the key of a seed, a problem (a star's TARGETID, say) and a purpose.  Philox mixes them,
 *  so that neighbouring problems have unrelated keys. */
MILL_HD_INLINED mill_counter_key mill_counter_key_of(uint64_t seed, uint64_t problem,
                                                     uint32_t purpose)
{
  mill_counter_key key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
  const mill_counter_words words =
      mill_philox((uint32_t)problem, (uint32_t)(problem >> 32), purpose, 0x6d696c6cu, key);
  key.v[0] = words.v[0];
  key.v[1] = words.v[1];
  return key;
}

/** The four words of draw number `draw` of a particle at a step. */
MILL_HD_INLINED mill_counter_words mill_counter_at(mill_counter_key key, uint32_t particle,
                                                   uint32_t step, uint32_t draw)
{
  return mill_philox(draw, step, particle, 0, key);
}

/** Uniform in (0, 1) from 53 bits of two words: the middle of one of 2^53 equal intervals. */
MILL_HD_INLINED double mill_counter_uniform(uint32_t high, uint32_t low)
{
  const double u = ((double)(((uint64_t)high << 32 | low) >> 11) + 0.5) * 0x1p-53;
  return u < 1.0 ? u : 1.0 - 0x1p-53; /* the last interval's middle would round to 1 */
}

/** Compute two standard normals in float64 from all four words (Box & Muller 1958). */
MILL_HD_INLINED void mill_counter_normals(const mill_counter_words *words, double *x, double *y)
{
  const double radius = sqrt(-2.0 * log(mill_counter_uniform(words->v[0], words->v[1])));
  const double angle = 2.0 * MILL_PI * mill_counter_uniform(words->v[2], words->v[3]);
  *x = radius * cos(angle);
  *y = radius * sin(angle);
}

/** Convert a word to u, uniform in [2^-32, 1], and return -2 ln u.
 *
 *  The function has no branches or calls, so that loops over it vectorise.  Terms left out of the
 *  series, here and below, are smaller than float32's rounding. */
MILL_HD_INLINED float mill_counter_twice_minus_ln(uint32_t word)
{
  union {
    float f;
    int32_t i;
  } m;
  m.f = (float)(int32_t)(word >> 1) * 0x1p-31f + 0x1p-32f;
  /* u = 2^e m, sqrt(1/2) <= m < sqrt(2), where 0x3f3504f3 has the bits of sqrt(1/2);
   * ln m = 2 atanh(s), s = (m - 1) / (m + 1) */
  const int32_t i = m.i - 0x3f3504f3;
  const float e = (float)(i >> 23);
  m.i = (i & 0x7fffff) + 0x3f3504f3;
  const float s = (m.f - 1.0f) / (m.f + 1.0f), z = s * s;
  const float third = 1.0f / 3.0f, fifth = 1.0f / 5.0f, seventh = 1.0f / 7.0f, ninth = 1.0f / 9.0f;
  const float series = 1.0f + z * (third + z * (fifth + z * (seventh + z * ninth)));
  return -1.38629436f * e - 4.0f * s * series;
}

/** Convert a word to cosine and sine of a uniform angle.  The first two bits choose a multiple of
 *  pi/2, the other bits an offset from it between -pi/4 and pi/4. */
MILL_HD_INLINED void mill_counter_circle(uint32_t word, float *cosine, float *sine)
{
  const int32_t quadrant = (int32_t)(word >> 30);
  const float x = (float)(int32_t)(word << 2) * (1.57079633f * 0x1p-32f), y = x * x;
  const float s3 = -1.0f / 6.0f, s5 = 1.0f / 120.0f, s7 = -1.0f / 5040.0f, s9 = 1.0f / 362880.0f;
  const float c4 = 1.0f / 24.0f, c6 = -1.0f / 720.0f, c8 = 1.0f / 40320.0f;
  const float s = x * (1.0f + y * (s3 + y * (s5 + y * (s7 + y * s9))));
  const float c = 1.0f + y * (-0.5f + y * (c4 + y * (c6 + y * c8)));
  const float swap = (float)(quadrant & 1), sign = (float)(1 - (quadrant & 2));
  *cosine = sign * (c + swap * (s - c));
  *sine = sign * (s + swap * (c - s));
}

/** Compute two standard normals, 6.66 in size at most, in float32 from two words; vectorises. */
MILL_HD_INLINED void mill_counter_pair(uint32_t word0, uint32_t word1, float *x, float *y)
{
  const float radius = sqrtf(mill_counter_twice_minus_ln(word0));
  float cosine, sine;
  mill_counter_circle(word1, &cosine, &sine);
  *x = radius * cosine;
  *y = radius * sine;
}
