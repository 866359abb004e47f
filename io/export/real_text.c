#include "io/export/real_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef unsigned __int128 u128;

enum {
  SHORT = 15,                     /* digits that a double keeps */
  LONG = 17,                      /* digits that tell all doubles apart */
  LEAST = -8,                     /* power of ten whose SHORT digits are read back below */
  MOST_K = LONG - 1 - LEAST,      /* 5^k is an integer of 64 bits, 10^(k - 2) a double */
  TEN_POWERS = SHORT - 1 - LEAST, /* the largest of them */
  FIXED = -4,                     /* from which power of ten on %g has no exponent */
  MANTISSA = 53
};

/* What of a number is beyond its last digit. */
typedef struct beyond {
  int above_half, is_half;
} beyond;

/* The digits of a number and the power of ten of the first one. */
typedef struct digits {
  uint64_t whole;
  int n, exponent;
} digits;

/* clang-format off */
static const uint64_t FIVE[MOST_K + 1] = {
    1, 5, 25, 125, 625, 3125, 15625, 78125, 390625, 1953125,
    9765625, 48828125, 244140625, 1220703125, 6103515625,
    30517578125, 152587890625, 762939453125, 3814697265625, 19073486328125,
    95367431640625, 476837158203125, 2384185791015625, 11920928955078125, 59604644775390625};
static const double TEN[TEN_POWERS + 1] = {
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
/* clang-format on */

static void round_up(const beyond *rest, digits *d)
{
  uint64_t end = 1;
  for (int i = 0; i < d->n; i++)
    end *= 10;
  d->whole += (uint64_t)(rest->above_half || (rest->is_half && d->whole & 1));
  if (d->whole == end) {
    d->whole /= 10;
    d->exponent++;
  }
}

/* x > 0 to SHORT and to LONG digits.  0: it is beyond the range. */
static int find_digits(double x, digits *of_short, digits *of_long)
{
  int e;
  const uint64_t m = (uint64_t)ldexp(frexp(x, &e), MANTISSA);
  e -= MANTISSA;
  /* of a power of two below x, so its own or one less */
  int exponent = (int)floor((e + MANTISSA - 1) * 0.30102999566398120);
  uint64_t whole, end = 1;
  u128 product;
  int shift;
  for (int i = 0; i < LONG; i++)
    end *= 10;
  for (;; exponent++) {
    const int k = LONG - 1 - exponent;
    if (exponent < LEAST || k < 0)
      return 0;
    product = (u128)m * FIVE[k];
    shift = -(e + k);
    whole = (uint64_t)(shift > 0 ? product >> shift : product << -shift);
    if (whole < end)
      break;
  }
  const u128 unit = (u128)1 << (shift > 0 ? shift : 0), rest = product & (unit - 1);
  const uint64_t last = whole % 100;
  const beyond long_rest = {2 * rest > unit, unit > 1 && 2 * rest == unit},
               short_rest = {last > 50 || (last == 50 && rest > 0), last == 50 && rest == 0};
  *of_long = (digits){whole, LONG, exponent};
  *of_short = (digits){whole / 100, SHORT, exponent};
  round_up(&long_rest, of_long);
  round_up(&short_rest, of_short);
  return 1;
}

/* Both factors are exact, so this is the number that the text stands for, rounded once. */
static double read_back(const digits *d)
{
  const int power = d->exponent - (SHORT - 1);
  return power >= 0 ? (double)d->whole * TEN[power] : (double)d->whole / TEN[-power];
}

/* As %g has them. */
static size_t put_digits(const digits *d, char *out)
{
  char text[LONG];
  char *at = out;
  uint64_t left = d->whole;
  int n = d->n, before = d->exponent + 1; /* the point */
  const int is_fixed = d->exponent >= FIXED && d->exponent < d->n;
  for (int i = n; i-- > 0; left /= 10)
    text[i] = (char)('0' + left % 10);
  while (n > 1 && text[n - 1] == '0')
    n--;
  if (!is_fixed)
    before = 1;
  if (before <= 0) {
    *at++ = '0';
    *at++ = '.';
    for (int i = before; i < 0; i++)
      *at++ = '0';
  }
  for (int i = 0; i < n || i < before; i++) {
    if (i == before && before > 0)
      *at++ = '.';
    *at++ = i < n ? text[i] : '0';
  }
  if (!is_fixed) {
    const int size = abs(d->exponent);
    *at++ = 'e';
    *at++ = d->exponent < 0 ? '-' : '+';
    *at++ = (char)('0' + size / 10);
    *at++ = (char)('0' + size % 10);
  }
  *at = '\0';
  return (size_t)(at - out);
}

static size_t by_printf(double x, char *out)
{
  int n = snprintf(out, MILL_NUMBER_SIZE, "%.*g", SHORT, x);
  if (strtod(out, NULL) != x)
    n = snprintf(out, MILL_NUMBER_SIZE, "%.*g", LONG, x);
  return (size_t)n;
}

size_t mill_real_text(double x, char out[MILL_NUMBER_SIZE])
{
  digits of_short, of_long;
  const double size = fabs(x);
  const size_t sign = signbit(x) != 0;
  if (!(size > 0) || !isfinite(x) || !find_digits(size, &of_short, &of_long))
    return by_printf(x, out);
  out[0] = '-';
  return sign + put_digits(read_back(&of_short) == size ? &of_short : &of_long, out + sign);
}

size_t mill_integer_text(int64_t x, char out[MILL_NUMBER_SIZE])
{
  char text[MILL_NUMBER_SIZE];
  size_t n = 0, at = sizeof text;
  uint64_t left = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
  do
    text[--at] = (char)('0' + left % 10);
  while ((left /= 10) > 0);
  if (x < 0)
    text[--at] = '-';
  n = sizeof text - at;
  memcpy(out, text + at, n);
  out[n] = '\0';
  return n;
}
