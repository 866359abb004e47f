/* SPDX-License-Identifier: BSD-3-Clause */
/* Arrays laid out from a table, and the tables of a star and of a block's work space. */

#include "tests/mill_test.h"

#include <string.h>

#include "kernels/base/layout.h"
#include "kernels/star/slot.h"

typedef struct pair {
  double *first;
  char *second;
} pair;

enum { N_COPY = 3 };

static const mill_array pair_array[] = {{offsetof(pair, first), sizeof(double), 0, 0},
                                        {offsetof(pair, second), 1, 1, 1}};

/* Of each array those of all copies lie together, each at a multiple of the unit. */
MILL_TEST(copies_of_an_array_lie_together)
{
  static char block[1024];
  const size_t count[] = {5, 3};
  size_t at[2] = {0, 512};
  pair copy[N_COPY];
  memset(copy, 0, sizeof copy);
  mill_lay_out(2, pair_array, count, 64, at, block, N_COPY, copy, sizeof copy[0]);
  for (int i = 0; i < N_COPY; i++) {
    assert_ptr_equal(copy[i].first, block + 64 * i);
    assert_ptr_equal(copy[i].second, block + 512 + 64 * i);
  }
  assert_int_equal(at[0], 64 * N_COPY);
  assert_int_equal(at[1], 512 + 64 * N_COPY);
}

MILL_TEST(an_array_without_elements_has_no_place)
{
  static char block[64];
  const size_t count[] = {0, 1};
  size_t at[2] = {0, 0};
  pair one = {NULL, NULL};
  mill_lay_out(2, pair_array, count, 64, at, block, 1, &one, sizeof one);
  assert_null(one.first);
  assert_ptr_equal(one.second, block);
  assert_int_equal(at[0], 0);
}

MILL_TEST(without_memory_sizes_are_measured)
{
  const size_t count[] = {9, 65};
  size_t at[2] = {0, 0};
  mill_lay_out(2, pair_array, count, 64, at, NULL, 2, NULL, 0);
  assert_int_equal(at[0], 2 * 128);
  assert_int_equal(at[1], 2 * 128);
}

/* A table that named an array twice, or an array with the wrong size, would let arrays overlap. */
MILL_TEST(arrays_of_a_segment_do_not_overlap)
{
  enum { N_PIX = 100, N_DIAG = 5, N_COMPONENT = 3, N_COEF = 7, N_BLOCKS = 9 };
  static char block[1 << 14];
  const mill_array *array;
  size_t count[MILL_N_STAR_COUNT] = {0}, at[MILL_N_STAR_REGION] = {0, 4096, 8192};
  mill_segment s;
  memset(&s, 0, sizeof s);
  count[MILL_COUNT_PIX] = count[MILL_COUNT_MODEL] = N_PIX;
  count[MILL_COUNT_OWN] = count[MILL_COUNT_PARTS] = N_PIX;
  count[MILL_COUNT_COEF] = N_COEF;
  count[MILL_COUNT_BLOCKS] = N_BLOCKS;
  count[MILL_COUNT_ERROR] = count[MILL_COUNT_PAIR] = N_COMPONENT * N_PIX;
  count[MILL_COUNT_MATRIX] = count[MILL_COUNT_RES] = N_DIAG * N_PIX;
  const int n = mill_segment_arrays(&array);
  mill_lay_out(n, array, count, MILL_ARRAY_BYTES, at, block, 1, &s, sizeof s);
  const struct {
    const void *at;
    size_t bytes;
  } part[] = {{s.raw_flux, N_PIX * sizeof *s.raw_flux},
              {s.raw_ivar, N_PIX * sizeof *s.raw_ivar},
              {s.raw_mask, N_PIX * sizeof *s.raw_mask},
              {s.raw_res, N_DIAG * N_PIX * sizeof *s.raw_res},
              {s.d, N_PIX * sizeof *s.d},
              {s.is, N_PIX * sizeof *s.is},
              {s.good, N_PIX * sizeof *s.good},
              {s.res, N_DIAG * N_PIX * sizeof *s.res},
              {s.base, N_PIX * sizeof *s.base},
              {s.model, N_PIX * sizeof *s.model},
              {s.templ_flux, N_PIX * sizeof *s.templ_flux},
              {s.cont_coef, N_COEF * sizeof *s.cont_coef},
              {s.scratch, N_PIX * sizeof *s.scratch},
              {s.guess, N_BLOCKS * sizeof *s.guess},
              {s.own_d, N_PIX * sizeof *s.own_d},
              {s.own_is, N_PIX * sizeof *s.own_is},
              {s.error, N_COMPONENT * N_PIX * sizeof *s.error},
              {s.pair, N_COMPONENT * N_PIX * sizeof *s.pair}};
  const size_t n_part = sizeof part / sizeof part[0];
  assert_int_equal(n, n_part);
  for (size_t i = 0; i < n_part; i++) {
    const char *begin = part[i].at, *end = begin + part[i].bytes;
    assert_non_null(begin);
    for (size_t k = 0; k < i; k++)
      assert_true((const char *)part[k].at >= end ||
                  (const char *)part[k].at + part[k].bytes <= begin);
  }
}

MILL_TEST_MAIN(NULL, NULL)
