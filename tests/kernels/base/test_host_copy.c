/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies by several threads: every byte comes, and no other, whatever the sizes, the number of
 * pieces and the number of threads; the reference is memcpy, piece by piece. */
#include "tests/mill_test.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/host_copy.h"

enum { MAX_PIECE = 12, GUARD = 64, UNTOUCHED = 0xa5 };
#define MAX_BYTES ((size_t)1 << 20)

static unsigned char source[MAX_BYTES], target[MAX_BYTES + MAX_PIECE * GUARD + GUARD],
    expected[sizeof target];

/* Pieces one after the other with a gap, the last of every three zeros. */
static void copy_and_compare(int n_copier, int n, const size_t *bytes)
{
  mill_upload piece[MAX_PIECE] = {{0}};
  size_t at = GUARD, from = 0;
  memset(target, UNTOUCHED, sizeof target);
  memset(expected, UNTOUCHED, sizeof expected);
  for (int i = 0; i < n; i++) {
    const int is_zero = i % 3 == 2;
    piece[i] = (mill_upload){target + at, is_zero ? NULL : source + from, bytes[i], 0};
    if (is_zero)
      memset(expected + at, 0, bytes[i]);
    else if (bytes[i] > 0)
      memcpy(expected + at, source + from, bytes[i]);
    at += bytes[i] + GUARD;
    from += bytes[i];
  }
  mill_host_copy(n_copier, piece, n);
  if (memcmp(target, expected, sizeof target) != 0)
    fail_msg("%d pieces by %d threads differ", n, n_copier);
}

MILL_TEST(every_byte_comes)
{
  static const size_t one[] = {MAX_BYTES}, few[] = {1, 0, 7, 0};
  /* a star of three arms: flux, inverse variance, mask, resolution; and odd sizes */
  static const size_t star[MAX_PIECE] = {11004, 11004,  11004, 121044, 9304, 9304,
                                         9304,  102344, 63,    1,      65,   0};
  /* shares of a thread begin and end at the edges of these */
  static const size_t edges[] = {32768, 32768, 32767, 32769, 64, 65536};
  for (size_t i = 0; i < MAX_BYTES; i++)
    source[i] = (unsigned char)(i * 2654435761u >> 13);
  for (int n_copier = 1; n_copier <= 9; n_copier++) {
    copy_and_compare(n_copier, 0, NULL);
    copy_and_compare(n_copier, 1, one);
    copy_and_compare(n_copier, 4, few);
    copy_and_compare(n_copier, MAX_PIECE, star);
    copy_and_compare(n_copier, 6, edges);
  }
}

MILL_TEST(number_of_threads)
{
  static const struct {
    int n_thread, n_copier;
  } usual[] = {{1, 1}, {2, 1}, {7, 1}, {8, 2}, {12, 4}, {16, 5}, {24, 8}, {128, 8}};
  static const char *const wrong[] = {"0", "-1", "65", "2x", "many", "99999999999999999999"};
  int n = -1;
  unsetenv("MILL_CUDA_COPIERS");
  for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++) {
    assert_int_equal(mill_host_copiers(usual[i].n_thread, &n), MILL_OK);
    assert_int_equal(n, usual[i].n_copier);
  }
  setenv("MILL_CUDA_COPIERS", "7", 1);
  assert_int_equal(mill_host_copiers(1, &n), MILL_OK);
  assert_int_equal(n, 7);
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    setenv("MILL_CUDA_COPIERS", wrong[i], 1);
    assert_int_equal(mill_host_copiers(16, &n), MILL_ERR_CONFIG);
    assert_non_null(strstr(mill_error_message(), wrong[i]));
  }
  unsetenv("MILL_CUDA_COPIERS");
}

MILL_TEST_MAIN(NULL, NULL)
