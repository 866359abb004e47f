/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/system/random.h"

#include <Random123/philox.h>
#include <string.h>

#include "kernels/math/counter_random.h"

void mill_random_begin(mill_random *r, uint64_t seed, uint64_t index, uint32_t purpose)
{
  /* counter[0] counts the stream's blocks of 4 words: the stream repeats after 2^34 words */
  *r = (mill_random){.key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
                     .counter = {0, purpose, (uint32_t)index, (uint32_t)(index >> 32)}};
}

uint32_t mill_random_word(mill_random *r)
{
  if (r->n_left == 0) {
    const philox4x32_ctr_t counter = {{r->counter[0], r->counter[1], r->counter[2], r->counter[3]}};
    const philox4x32_key_t key = {{r->key[0], r->key[1]}};
    const philox4x32_ctr_t block = philox4x32(counter, key);
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
