/* SPDX-License-Identifier: BSD-3-Clause */
/** Comparisons for qsort and bsearch, all ascending. */
#ifndef MILL_ORDER_H
#define MILL_ORDER_H

#include <stdint.h>

/** A key and its place; equal keys are ordered by place. */
typedef struct mill_keyed {
  int64_t key, place;
} mill_keyed;

/** Of mill_keyed. */
int mill_by_key(const void *a, const void *b);

/** Of double, without NaN. */
int mill_by_double(const void *a, const void *b);

/** Of int64_t, or of structures that begin with one. */
int mill_by_int64(const void *a, const void *b);

/** By strcmp: of char arrays, or structures that begin with one; of pointers to texts. */
int mill_by_text(const void *a, const void *b);
int mill_by_text_at(const void *a, const void *b);

#endif
