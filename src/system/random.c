#include "src/system/random.h"

#include <Random123/philox.h>
#include <math.h>
#include <string.h>

enum { BATCH = 64 /**< blocks of four words that mill_random_normals makes at once */ };

/** Block b of the stream, counted from where the stream stands. */
static inline philox4x32_ctr_t block_of(const mill_random *r, int b)
{
  const philox4x32_ctr_t counter = {
      {r->counter[0] + (uint32_t)b, r->counter[1], r->counter[2], r->counter[3]}};
  const philox4x32_key_t key = {{r->key[0], r->key[1]}};
  return philox4x32(counter, key);
}

void mill_random_begin(mill_random *r, uint64_t seed, uint64_t index, uint32_t purpose)
{
  memset(r, 0, sizeof *r);
  r->key[0] = (uint32_t)seed;
  r->key[1] = (uint32_t)(seed >> 32);
  /* counter[0] counts the blocks of the stream: 2^34 words before it returns to its start */
  r->counter[1] = purpose;
  r->counter[2] = (uint32_t)index;
  r->counter[3] = (uint32_t)(index >> 32);
}

uint32_t mill_random_word(mill_random *r)
{
  if (r->n_left == 0) {
    const philox4x32_ctr_t block = block_of(r, 0);
    memcpy(r->block, block.v, sizeof r->block);
    r->counter[0]++;
    r->n_left = 4;
  }
  return r->block[4 - r->n_left--];
}

double mill_random_uniform(mill_random *r)
{
  const uint64_t high = mill_random_word(r), low = mill_random_word(r);
  /* the middle of one of 2^53 equal intervals; the last one's would round to 1 */
  const double u = ((double)((high << 32 | low) >> 11) + 0.5) * 0x1p-53;
  return u < 1.0 ? u : 1.0 - 0x1p-53;
}

double mill_random_normal(mill_random *r)
{
  const double radius = sqrt(-2.0 * log(mill_random_uniform(r)));
  return radius * cos(2.0 * 3.14159265358979323846 * mill_random_uniform(r));
}

/** -2 ln u of a word, u in [2^-32, 1], by plain arithmetic.
 *
 *  Without branches or calls, so that loops become vector code; the series here and
 *  below end where float32 no longer sees them. */
static inline float twice_minus_ln(uint32_t word)
{
  union {
    float f;
    int32_t i;
  } m;
  m.f = (float)(int32_t)(word >> 1) * 0x1p-31f + 0x1p-32f;
  /* u = 2^e m, sqrt(1/2) <= m < sqrt(2);  ln m = 2 atanh(s), s = (m - 1) / (m + 1) */
  const int32_t i = m.i - 0x3f3504f3;
  const float e = (float)(i >> 23);
  m.i = (i & 0x7fffff) + 0x3f3504f3;
  const float s = (m.f - 1.0f) / (m.f + 1.0f), z = s * s;
  const float third = 1.0f / 3.0f, fifth = 1.0f / 5.0f, seventh = 1.0f / 7.0f, ninth = 1.0f / 9.0f;
  const float series = 1.0f + z * (third + z * (fifth + z * (seventh + z * ninth)));
  return -1.38629436f * e - 4.0f * s * series;
}

/** Cosine and sine of the angle 2 pi word / 2^32 + const.: a quadrant from the first
 *  two bits, the angle within it, from -pi/4 to pi/4, from the others. */
static inline void circle(uint32_t word, float *cosine, float *sine)
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

/** The words of BATCH blocks from the stream's counter on. */
static void philox_batch(mill_random *r, uint32_t word[4][BATCH])
{
  for (int b = 0; b < BATCH; b++) {
    const philox4x32_ctr_t block = block_of(r, b);
    for (int i = 0; i < 4; i++)
      word[i][b] = block.v[i];
  }
  r->counter[0] += BATCH;
}

void mill_random_normals(mill_random *r, int n, float *out)
{
  uint32_t word[4][BATCH];
  float normal[4][BATCH], radius[BATCH];
  r->n_left = 0;
  /* always whole batches, so that a number does not depend on how many are asked for */
  for (int first = 0; first < n; first += 4 * BATCH) {
    philox_batch(r, word);
    /* Box and Muller's method: a pair of words, a pair of normals */
    for (int p = 0; p < 4; p += 2) {
      for (int b = 0; b < BATCH; b++) {
        radius[b] = twice_minus_ln(word[p][b]);
        circle(word[p + 1][b], &normal[p][b], &normal[p + 1][b]);
      }
      for (int b = 0; b < BATCH; b++)
        radius[b] = sqrtf(radius[b]);
      for (int b = 0; b < BATCH; b++) {
        normal[p][b] *= radius[b];
        normal[p + 1][b] *= radius[b];
      }
    }
    const int len = n - first < 4 * BATCH ? n - first : 4 * BATCH;
    memcpy(out + first, normal, (size_t)len * sizeof *out);
  }
}
