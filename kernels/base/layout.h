/* SPDX-License-Identifier: BSD-3-Clause */
/** Place the arrays of a structure one after another in a block of memory.
 *
 *  A table (mill_array) has a row for each pointer of the structure.  Given the arrays' numbers of
 *  elements, mill_lay_out sets the pointers or only measures the memory. */
#pragma once

#include <string.h>

#include "kernels/base/common.h"

/** Arrays of a star and of a wavelength set begin at multiples of this many bytes. */
enum { MILL_ARRAY_BYTES = 64 };

typedef struct mill_array {
  size_t member;  /**< offset of the pointer in the structure, bytes */
  size_t element; /**< size of an element, bytes */
  int region;     /**< index of the region (part of the block) that holds the array */
  int count;      /**< index into the caller's count: number of elements */
} mill_array;

static inline size_t mill_round_up(size_t bytes, size_t unit)
{
  return (bytes + unit - 1) / unit * unit;
}

/** Reserve the next array's bytes: return its offset, which is *at, and move *at to its end. */
static inline size_t mill_take(size_t *at, size_t bytes)
{
  const size_t here = *at;
  *at += mill_round_up(bytes, MILL_ARRAY_BYTES);
  return here;
}

/** Lay out the arrays of n_copy equal structures: first array 0 of all structures, then array 1 of
 *  all structures, and so on.
 *
 *  array [n_array]      in      the structure's table
 *  count                in      numbers of elements (mill_array.count); 0: do not set the pointer
 *  unit                 in      arrays begin at multiples of this many bytes
 *  at                   in/out  offset of the next array in each region (mill_array.region), bytes
 *  block                in      memory of all regions; NULL: only *at moves
 *  structure [n_copy]   out     structures of `size` bytes, whose pointers are set */
static inline void mill_lay_out(int n_array, const mill_array *array, const size_t *count,
                                size_t unit, size_t *at, char *block, int n_copy, void *structure,
                                size_t size)
{
  for (int k = 0; k < n_array; k++) {
    const mill_array *a = &array[k];
    const size_t bytes = mill_round_up(count[a->count] * a->element, unit);
    for (int i = 0; i < n_copy && bytes > 0 && block; i++) {
      void *begin = block + at[a->region] + (size_t)i * bytes;
      memcpy((char *)structure + (size_t)i * size + a->member, &begin, sizeof begin);
    }
    at[a->region] += (size_t)n_copy * bytes;
  }
}
