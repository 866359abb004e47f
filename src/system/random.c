/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/system/random.h"

#include <Random123/philox.h>
#include <math.h>
#include <string.h>

#include "kernels/math/counter_random.h"

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
  const uint32_t high = mill_random_word(r), low = mill_random_word(r);
  return mill_counter_uniform(high, low);
}

double mill_random_normal(mill_random *r)
{
  const double radius = sqrt(-2.0 * log(mill_random_uniform(r)));
  return radius * cos(2.0 * 3.14159265358979323846 * mill_random_uniform(r));
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
        radius[b] = mill_counter_twice_minus_ln(word[p][b]);
        mill_counter_circle(word[p + 1][b], &normal[p][b], &normal[p + 1][b]);
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
