/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/system/order.h"

#include <string.h>

int mill_by_key(const void *a, const void *b)
{
  const mill_keyed *x = a, *y = b;
  if (x->key != y->key)
    return x->key < y->key ? -1 : 1;
  return (x->place > y->place) - (x->place < y->place);
}

int mill_by_double(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int mill_by_int64(const void *a, const void *b)
{
  int64_t x, y;
  memcpy(&x, a, sizeof x);
  memcpy(&y, b, sizeof y);
  return (x > y) - (x < y);
}

int mill_by_text(const void *a, const void *b)
{
  return strcmp(a, b);
}

int mill_by_text_at(const void *a, const void *b)
{
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}
