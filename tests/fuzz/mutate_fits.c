/* SPDX-License-Identifier: BSD-3-Clause */
/* Random damage of the kinds that matter in a FITS file.  Blocks shift by whole blocks only:
 * readers would notice any other shift at once. */
#include <stdio.h>
#include <string.h>

#include "tests/fuzz/targets.h"

enum { CARD = 80, BLOCK = 2880, N_TRY = 64 };

/* splitmix64 */
static uint64_t next(uint64_t *state)
{
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static size_t below(uint64_t *state, size_t n)
{
  return (size_t)(next(state) % n);
}

static int is_card(const uint8_t *p)
{
  for (int i = 0; i < CARD; i++)
    if (p[i] < ' ' || p[i] > '~')
      return 0;
  return p[0] != ' ';
}

/* A card of some header; 0 when it finds none. */
static int find_card(uint64_t *state, const uint8_t *bytes, size_t n, size_t *at)
{
  for (int i = 0; i < N_TRY; i++) {
    *at = below(state, n / CARD) * CARD;
    if (is_card(bytes + *at))
      return 1;
  }
  return 0;
}

/* Values of cards, one a line; the last is empty. */
static const char values[] =
    "-1\n0\n1\n2\n3\n4\n8\n16\n32\n64\n-32\n-64\n999\n1000\n2147483647\n2147483648\n"
    "4294967296\n4611686018427387904\n9223372036854775807\n-9223372036854775808\n0.5\n1E400\n"
    "-1E-400\nNAN\n1D3\nT\nF\n''\n'\n'A'\n'1PE(99)'\n'1QD(1)'\n'1PJ'\n'0K'\n'1K'\n'1J'\n"
    "'2E'\n'1D'\n'65535A'\n'0A'\n'8A'\n'8A2'\n'1QJ'\n'1X'\n'16X'\n'1L'\n'1B'\n'1I'\n'1C'\n"
    "'1M'\n'0PE'\n'%s%n%d'\n'../../etc/passwd[1]'\n'IMAGE   '\n'BINTABLE'\n'TABLE   '\n"
    "'RICE_1'\n'GZIP_1'\n'GZIP_2'\n'HCOMPRESS_1'\n'PLIO_1'\n'FLUX'\n'WAVELENGTH'\n'IVAR'\n"
    "'TARGETID'\n'COMPRESSED_DATA'\n'GZIP_COMPRESSED_DATA'\n'UNCOMPRESSED_DATA'\n'ZSCALE'\n"
    "'ZBLANK'\n'SUBTRACTIVE_DITHER_1'\n'NO_DITHER'\n'SPECTRA'\n'FIBERMAP'\n'COADD'\n"
    "'B_FLUX'\n'B_MASK'\n''''\n(1,2)\n/\n\n";

static void set_value(uint64_t *state, uint8_t *card)
{
  const char *text = values;
  size_t n_value = 0;
  for (const char *c = values; *c; c++)
    n_value += *c == '\n';
  for (size_t i = below(state, n_value); i > 0; i--)
    text = strchr(text, '\n') + 1;
  memset(card + 10, ' ', CARD - 10);
  memcpy(card + 10, text, strcspn(text, "\n"));
}

static void set_digits(uint64_t *state, uint8_t *card)
{
  for (int i = 10; i < CARD; i++)
    if (card[i] >= '0' && card[i] <= '9' && below(state, 2)) {
      card[i] = (uint8_t)('0' + below(state, 10));
      if (below(state, 2))
        return;
    }
}

/* Write a keyword that readers look for; some get a random index (TFORM3). */
static void set_keyword(uint64_t *state, uint8_t *card)
{
  static const char *const name[] = {"TTYPE", "TFORM", "TDIM",  "TNULL",  "TSCAL", "TZERO", "TUNIT",
                                     "TDISP", "NAXIS", "ZTILE", "ZNAXIS", "ZNAME", "ZVAL",  "TBCOL",
                                     "CRVAL", "CDELT", "CRPIX", "CTYPE",  "CUNIT", "CD1_"};
  static const char *const alone[] = {"BSCALE",   "BZERO",    "BLANK",    "THEAP",    "PCOUNT",
                                      "GCOUNT",   "TFIELDS",  "EXTNAME",  "ZIMAGE",   "ZCMPTYPE",
                                      "ZQUANTIZ", "ZDITHER0", "ZBITPIX",  "ZBLANK",   "VACUUM",
                                      "HELIO",    "HELIO_RV", "MEDIUM",   "CONTINUE", "HIERARCH",
                                      "LONGSTRN", "INHERIT",  "CHECKSUM", "DATASUM",  "END"};
  char keyword[16];
  if (below(state, 2))
    snprintf(keyword, sizeof keyword, "%s%d", name[below(state, sizeof name / sizeof *name)],
             (int)(1 + below(state, below(state, 8) ? 6 : 1000)));
  else
    snprintf(keyword, sizeof keyword, "%s", alone[below(state, sizeof alone / sizeof *alone)]);
  memset(card, ' ', 8);
  memcpy(card, keyword, strlen(keyword) < 8 ? strlen(keyword) : 8);
  card[8] = '=';
  card[9] = ' ';
}

/* Insert a card at `at`; the last card of its block is lost. */
static void insert_card(uint64_t *state, uint8_t *bytes, size_t n, size_t at)
{
  const size_t end = (at / BLOCK + 1) * BLOCK;
  if (end > n)
    return;
  memmove(bytes + at + CARD, bytes + at, end - at - CARD);
  set_keyword(state, bytes + at);
  if (below(state, 2))
    set_value(state, bytes + at);
}

/* Write an extreme integer of 32 or 64 bits, big-endian as in FITS, at a random place. */
static void set_number(uint64_t *state, uint8_t *bytes, size_t n)
{
  static const uint64_t value[] = {0,          1,          2,          0x7f,
                                   0xff,       0x7fff,     0xffff,     0x7fffffff,
                                   0xffffffff, 0x80000000, UINT64_MAX, (uint64_t)1 << 63,
                                   INT64_MAX,  0x7f800000, 0x7fc00000, 0x7ff0000000000000};
  const size_t size = below(state, 2) ? 4 : 8;
  if (n < size)
    return;
  const size_t at = below(state, n / size) * size;
  uint64_t v = value[below(state, sizeof value / sizeof *value)];
  for (size_t i = size; i-- > 0; v >>= 8)
    bytes[at + i] = (uint8_t)v;
}

static size_t mutate_once(uint8_t *bytes, size_t n, size_t max, uint64_t *state)
{
  size_t card = 0;
  if (n < CARD)
    return n;
  const int has_card = find_card(state, bytes, n, &card);
  const size_t kind = below(state, 14);
  if (!has_card && (kind == 0 || (kind >= 4 && kind <= 10))) /* these change a card */
    return n;
  switch (kind) {
  case 0:
    bytes[card + below(state, CARD)] = (uint8_t)(' ' + below(state, 95));
    break;
  case 1:
    bytes[below(state, n)] = (uint8_t)next(state);
    break;
  case 2:
    bytes[below(state, n)] ^= (uint8_t)(1 << below(state, 8));
    break;
  case 3:
    memmove(bytes + (has_card ? card : 0), bytes + below(state, n / CARD) * CARD, CARD);
    break;
  case 4:
  case 5:
    set_value(state, bytes + card);
    break;
  case 6:
    memset(bytes + card + 10, below(state, 2) ? 'x' : '\'', CARD - 10);
    break;
  case 7:
  case 8:
    set_digits(state, bytes + card);
    break;
  case 9:
    set_keyword(state, bytes + card);
    break;
  case 10:
    insert_card(state, bytes, n, card);
    break;
  case 11:
    set_number(state, bytes, n);
    break;
  case 12: { /* a block again, or over another */
    const size_t from = below(state, (n + BLOCK - 1) / BLOCK) * BLOCK;
    const size_t size = n - from < BLOCK ? n - from : BLOCK;
    if (below(state, 2) && n + size <= max) {
      memmove(bytes + from + size, bytes + from, n - from);
      n += size;
    } else {
      memmove(bytes + below(state, (n - size) / BLOCK + 1) * BLOCK, bytes + from, size);
    }
    break;
  }
  default:
    if (below(state, 4) == 0) {
      const size_t left = n - below(state, n / 2 + 1);
      n = below(state, 2) ? left : (left + BLOCK - 1) / BLOCK * BLOCK;
    }
  }
  return n;
}

size_t fuzz_mutate_fits(uint8_t *bytes, size_t n, size_t max, uint64_t seed)
{
  uint64_t state = seed;
  do
    n = mutate_once(bytes, n, max, &state);
  while (below(&state, 3) == 0);
  return n;
}
