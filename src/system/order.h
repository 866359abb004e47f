/* SPDX-License-Identifier: BSD-3-Clause */
/** Comparisons for qsort and bsearch, all ascending. */
#pragma once

#include <stdint.h>

/** An item's key and its index, `place`.  mill_by_key sorts by key, and equal keys by place. */
typedef struct mill_keyed {
  int64_t key, place;
} mill_keyed;

/** Compare mill_keyed. */
int mill_by_key(const void *a, const void *b);

/** Compare doubles; NaN is not allowed. */
int mill_by_double(const void *a, const void *b);

/** Compare int64_t, or structures that begin with an int64_t. */
int mill_by_int64(const void *a, const void *b);

/** Compare by strcmp: char arrays or structures that begin with one (mill_by_text), or pointers
 *  to texts (mill_by_text_at). */
int mill_by_text(const void *a, const void *b);
int mill_by_text_at(const void *a, const void *b);
