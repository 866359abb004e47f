/* SPDX-License-Identifier: BSD-3-Clause */
/* Codes, exit statuses, messages and memory of kernels/base/error.c; arrays laid out from a table;
 * labels of a library in memory. */
#include "tests/mill_test.h"

#include <pthread.h>

#include "kernels/base/layout.h"
#include "kernels/base/memory.h"
#include "kernels/data/result.h"

MILL_TEST(every_code_has_text_and_exit_status)
{
  static const struct {
    int code, exit_status;
  } expected[] = {{MILL_OK, 0},          {MILL_ERR_USAGE, 2},     {MILL_ERR_CONFIG, 2},
                  {MILL_ERR_LIBRARY, 2}, {MILL_ERR_INPUT, 3},     {MILL_ERR_OUTPUT, 4},
                  {MILL_ERR_RANGE, 70},  {MILL_ERR_MEMORY, 70},   {MILL_ERR_BACKEND, 70},
                  {MILL_ERR_MPI, 70},    {MILL_ERR_INTERNAL, 70}, {MILL_ERR_STOPPED, 75}};
  assert_int_equal(sizeof expected / sizeof expected[0], MILL_N_ERROR);
  assert_int_equal(MILL_OK, 0);
  for (int i = 0; i < MILL_N_ERROR; i++) {
    assert_int_equal(mill_error_exit_status(expected[i].code), expected[i].exit_status);
    assert_true(strlen(mill_error_text(expected[i].code)) > 0);
    for (int j = 0; j < i; j++)
      assert_string_not_equal(mill_error_text(i), mill_error_text(j));
  }
}

static int fails(int depth)
{
  int err = MILL_OK;
  if (depth == 0)
    MILL_FAIL(MILL_ERR_INPUT, "a.fits: row %d", 17);
  MILL_TRY(fails(depth - 1));
  err = MILL_ERR_INTERNAL; /* passed over by MILL_TRY */
done:
  return err;
}

MILL_TEST(try_passes_code_message_and_place_on)
{
  mill_error_clear();
  assert_int_equal(fails(3), MILL_ERR_INPUT);
  assert_string_equal(mill_error_message(), "a.fits: row 17");
  assert_non_null(strstr(mill_error_place(), "test_base.c:"));
  assert_null(strchr(mill_error_place(), '/'));
  mill_error_clear();
  assert_string_equal(mill_error_message(), "");
  assert_string_equal(mill_error_place(), "");
}

static void *other_thread(void *seen)
{
  strcpy(seen, mill_error_message());
  mill_error_set(MILL_ERR_MPI, "y.c", 1, "of the other thread");
  return NULL;
}

MILL_TEST(message_belongs_to_its_thread)
{
  char seen[1024] = "untouched";
  pthread_t thread;
  mill_error_set(MILL_ERR_INPUT, "x.c", 1, "of this thread");
  assert_int_equal(pthread_create(&thread, NULL, other_thread, seen), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_string_equal(seen, "");
  assert_string_equal(mill_error_message(), "of this thread");
}

MILL_TEST(alloc_is_zeroed_and_aligned)
{
  /* the last two sizes, a page and 8 bytes, and four pages, are in large pages of 2 MiB */
  static const size_t sizes[] = {0, 1, 31, 33, 4097, (2 << 20) / 8 + 1, 1 << 20};
  for (int i = 0; i < 7; i++) {
    MILL_OWNED double *p = NULL;
    assert_int_equal(MILL_ALLOC(sizes[i], &p), MILL_OK);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 64, 0);
    for (size_t j = 0; j < sizes[i]; j++)
      assert_true(p[j] == 0.0);
  }
  mill_free(NULL);
}

MILL_TEST(raw_memory_can_be_written)
{
  static const size_t sizes[] = {0, 3, (2 << 20) + 5, (16 << 20) - 1};
  for (int i = 0; i < 4; i++) {
    MILL_OWNED void *p = NULL;
    assert_int_equal(mill_alloc_raw(sizes[i], 1, &p), MILL_OK);
    assert_int_equal((uintptr_t)p % 64, 0);
    memset(p, 0xa5, sizes[i]);
    for (size_t j = 0; j < sizes[i]; j += 4095)
      assert_int_equal(((unsigned char *)p)[j], 0xa5);
  }
  void *p = &p;
  assert_int_equal(mill_alloc_raw(SIZE_MAX, 2, &p), MILL_ERR_MEMORY);
  assert_null(p);
}

MILL_TEST(alloc_refuses_overflow)
{
  static const struct {
    size_t n, size;
  } wanted[] = {{SIZE_MAX, 1},     {SIZE_MAX - 63, 1},   {SIZE_MAX - (2 << 20), 1},
                {SIZE_MAX / 2, 3}, {SIZE_MAX, SIZE_MAX}, {2, SIZE_MAX / 2 + 1}};
  for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
    void *p = &p;
    mill_error_clear();
    assert_int_equal(mill_alloc_bytes(wanted[i].n, wanted[i].size, &p), MILL_ERR_MEMORY);
    assert_null(p);
    assert_true(strlen(mill_error_message()) > 0);
  }
}

MILL_TEST(kept_failure_comes_back_after_another)
{
  mill_error_kept kept;
  char place[MILL_ERROR_PLACE];
  mill_error_set(MILL_ERR_INPUT, "io/a.c", 12, "a.fits: %d rows", 3);
  strcpy(place, mill_error_place());
  mill_error_save(MILL_ERR_INPUT, &kept);
  mill_error_set(MILL_ERR_MPI, "io/b.c", 13, "another");
  assert_int_equal(mill_error_restore(&kept), MILL_ERR_INPUT);
  assert_string_equal(mill_error_message(), "a.fits: 3 rows");
  assert_string_equal(mill_error_place(), place);
}

MILL_TEST(memory_grows_and_keeps_what_is_there)
{
  int64_t n_room = 0, n_grown = 0, *value = NULL;
  for (int64_t i = 0; i < 10000; i++) {
    const int64_t before = n_room;
    assert_int_equal(MILL_GROW(&value, &n_room, i + 1), MILL_OK);
    assert_true(n_room > i && (n_room == before || n_room >= 2 * before));
    n_grown += n_room != before;
    value[i] = i;
  }
  assert_true(n_grown < 12); /* doubling from 64 */
  for (int64_t i = 0; i < 10000; i++)
    assert_int_equal(value[i], i);
  const int64_t *const kept = value;
  const int64_t kept_room = n_room;
  assert_int_equal(MILL_GROW(&value, &n_room, INT64_MAX / 2), MILL_ERR_MEMORY);
  assert_ptr_equal(value, kept);
  assert_int_equal(n_room, kept_room);
  mill_free(value);
}

/* --- arrays laid out from a table --- */

typedef struct pair {
  double *first;
  char *second;
} pair;

enum { N_COPY = 3 };

static const mill_array pair_array[] = {{offsetof(pair, first), sizeof(double), 0, 0},
                                        {offsetof(pair, second), 1, 1, 1}};

/* The copies of an array lie one after the other, each at a multiple of the unit. */
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

/* --- labels, and why a star was not fitted --- */

/* rvspecfit warns within 10 K and 0.01 dex of the ends of its range; other labels have no edge. */
MILL_TEST(edges_of_labels_are_those_of_rvspecfit)
{
  static const struct {
    const char *name;
    double min, max;
  } edge[] = {{"teff", 2310.0, 14990.0},
              {"logg", -0.49, 6.49},
              {"feh", -3.99, 0.99},
              {"alpha", 0.0, 0.0},
              {"", 0.0, 0.0}};
  for (size_t i = 0; i < sizeof edge / sizeof edge[0]; i++) {
    mill_label label = {.edge_min = 3.0, .edge_max = 4.0};
    snprintf(label.name, sizeof label.name, "%s", edge[i].name);
    mill_label_set_edges(&label);
    assert_close(label.edge_min, edge[i].min, 1e-15);
    assert_close(label.edge_max, edge[i].max, 1e-15);
  }
}

static mill_library lib = {.n_label = 3, .n_arm = 2};

MILL_TEST(only_reasons_not_to_fit_are_warnings)
{
  for (int status = 0; status < MILL_N_STATUS; status++) {
    mill_fit_result result;
    mill_fit_result_init(&result, &lib, 0, status);
    assert_int_equal(result.warn, status > MILL_STATUS_FITTED ? MILL_WARN_BAD_SPECTRUM : 0);
  }
}

MILL_TEST_MAIN(NULL, NULL)
