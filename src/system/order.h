/* SPDX-License-Identifier: BSD-3-Clause */
/** Orders for qsort and bsearch. */
#ifndef MILL_ORDER_H
#define MILL_ORDER_H

#include <stdint.h>

/** A number and its index: equal ones keep their order. */
typedef struct mill_keyed {
  int64_t key, place;
} mill_keyed;

/** Ascending, of mill_keyed. */
int mill_by_key(const void *a, const void *b);

/** Ascending, of double, none NaN. */
int mill_by_double(const void *a, const void *b);

/** Ascending, of int64_t or what begins with one. */
int mill_by_int64(const void *a, const void *b);

/** By strcmp, of texts or what begins with one, and of pointers to texts. */
int mill_by_text(const void *a, const void *b);
int mill_by_text_at(const void *a, const void *b);

#endif
