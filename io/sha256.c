#include "io/sha256.h"

#include <string.h>

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

void mill_sha256_init(mill_sha256 *sha)
{
  static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memset(sha, 0, sizeof *sha);
  memcpy(sha->state, start, sizeof start);
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
    digest_block(sha->state, sha->block);
  }
  for (; n_byte >= 64; p += 64, n_byte -= 64)
    digest_block(sha->state, p);
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
