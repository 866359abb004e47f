/* SPDX-License-Identifier: BSD-3-Clause */
/* Arrays laid out from a table. */

#include "tests/mill_test.h"

#include <string.h>

#include "kernels/base/layout.h"

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

MILL_TEST_MAIN(NULL, NULL)
