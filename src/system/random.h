/* SPDX-License-Identifier: BSD-3-Clause */
/** Counter-based random numbers: Philox 4x32-10 (Salmon et al. 2011, SC'11), by Random123.
 *
 *  A stream is a function of (seed, index, purpose), independent of rank and other streams. */
#pragma once

#include <stdint.h>

typedef struct mill_random {
  uint32_t key[2], counter[4];
  uint32_t block[4];
  int n_left; /**< unused words of the block */
} mill_random;

/** Begin a stream; purpose distinguishes the streams of one index. */
void mill_random_begin(mill_random *r, uint64_t seed, uint64_t index, uint32_t purpose);

uint32_t mill_random_word(mill_random *r);

/** Uniform in (0, 1), 53 bits. */
double mill_random_uniform(mill_random *r);

/** Standard normal, float64. */
double mill_random_normal(mill_random *r);
