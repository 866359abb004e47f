#include "io/files/sha256.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

/* names of variables and functions as in FIPS 180-4, sections 4.1.2, 5 and 6.2 */

static const uint32_t round_constant[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotr(uint32_t x, int n)
{
  return (x >> n) | (x << (32 - n));
}

static void digest_block(uint32_t state[8], const unsigned char *block)
{
  uint32_t w[64];
  for (int t = 0; t < 16; t++)
    w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 |
           (uint32_t)block[4 * t + 2] << 8 | (uint32_t)block[4 * t + 3];
  for (int t = 16; t < 64; t++) {
    const uint32_t sigma0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
    const uint32_t sigma1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
    w[t] = sigma1 + w[t - 7] + sigma0 + w[t - 16];
  }
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
  uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
  for (int t = 0; t < 64; t++) {
    const uint32_t sum1 = rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25);
    const uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + round_constant[t] + w[t];
    const uint32_t sum0 = rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22);
    const uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
  state[4] += e;
  state[5] += f;
  state[6] += g;
  state[7] += h;
}

#if defined(__x86_64__)

/* Has the processor instructions for this (and those that go with them)? */
static int has_instructions(void)
{
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
    return 0;
  return (b >> 29 & 1) && __builtin_cpu_supports("sse4.1");
}

/* The same by these instructions, in about a seventh of the time: libraries are digested
 * whenever they are read. */
__attribute__((target("sha,sse4.1"))) static void digest_block_x86(uint32_t state[8],
                                                                   const unsigned char *block)
{
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  __m128i *words = (__m128i *)(void *)state;
  /* the instructions want a b e f and c d g h, highest first */
  const __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xb1);
  const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1b);
  const __m128i start0 = _mm_alignr_epi8(badc, efgh, 8);
  const __m128i start1 = _mm_blend_epi16(efgh, badc, 0xf0);
  __m128i abef = start0, cdgh = start1, w[4];
  for (int q = 0; q < 16; q++) {
    if (q < 4) {
      w[q] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(block + 16 * q)),
                              big_endian);
    } else {
      const __m128i w1 = w[(q + 1) & 3], w2 = w[(q + 2) & 3], w3 = w[(q + 3) & 3];
      w[q & 3] = _mm_sha256msg2_epu32(
          _mm_add_epi32(_mm_sha256msg1_epu32(w[q & 3], w1), _mm_alignr_epi8(w3, w2, 4)), w3);
    }
    const __m128i k = _mm_loadu_si128((const __m128i *)(const void *)(round_constant + 4 * q));
    const __m128i sum = _mm_add_epi32(w[q & 3], k);
    cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
    abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
  }
  abef = _mm_shuffle_epi32(_mm_add_epi32(abef, start0), 0x1b);
  cdgh = _mm_shuffle_epi32(_mm_add_epi32(cdgh, start1), 0xb1);
  _mm_storeu_si128(words, _mm_blend_epi16(abef, cdgh, 0xf0));
  _mm_storeu_si128(words + 1, _mm_alignr_epi8(cdgh, abef, 8));
}

#endif

static void digest_blocks(mill_sha256 *sha, const unsigned char *block, size_t n_block)
{
#if defined(__x86_64__)
  if (!sha->portable) {
    for (; n_block > 0; n_block--, block += 64)
      digest_block_x86(sha->state, block);
    return;
  }
#endif
  for (; n_block > 0; n_block--, block += 64)
    digest_block(sha->state, block);
}

void mill_sha256_init(mill_sha256 *sha)
{
  mill_sha256_init_portable(sha);
#if defined(__x86_64__)
  sha->portable = !has_instructions();
#endif
}

void mill_sha256_init_portable(mill_sha256 *sha)
{
  static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memset(sha, 0, sizeof *sha);
  memcpy(sha->state, start, sizeof start);
  sha->portable = 1;
}

void mill_sha256_update(mill_sha256 *sha, const void *data, size_t n_byte)
{
  const unsigned char *p = data;
  size_t n_held = (size_t)(sha->n_byte % 64);
  sha->n_byte += n_byte;
  if (n_held > 0) {
    const size_t n_take = n_byte < 64 - n_held ? n_byte : 64 - n_held;
    if (n_take > 0)
      memcpy(sha->block + n_held, p, n_take);
    p += n_take;
    n_byte -= n_take;
    if (n_held + n_take < 64)
      return;
    digest_blocks(sha, sha->block, 1);
  }
  digest_blocks(sha, p, n_byte / 64);
  p += n_byte / 64 * 64;
  n_byte %= 64;
  if (n_byte > 0)
    memcpy(sha->block, p, n_byte);
}

void mill_sha256_final(mill_sha256 *sha, char hex[65])
{
  const uint64_t n_bit = sha->n_byte * 8;
  unsigned char padding[72] = {0x80};
  const size_t n_held = (size_t)(sha->n_byte % 64);
  const size_t n_zero_end = (n_held < 56 ? 56 : 120) - n_held;
  for (int i = 0; i < 8; i++)
    padding[n_zero_end + (size_t)i] = (unsigned char)(n_bit >> (56 - 8 * i));
  mill_sha256_update(sha, padding, n_zero_end + 8);
  static const char digit[] = "0123456789abcdef";
  for (int i = 0; i < 64; i++)
    hex[i] = digit[sha->state[i / 8] >> (28 - 4 * (i % 8)) & 15];
  hex[64] = '\0';
}
