/* How jobs/plan.c deals out rows, against a deck of cards. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "jobs/plan.h"

static void check(int n_file, const int64_t *n_row, int n_block, int n_rank, int64_t n_blocks,
                  const int64_t *expected)
{
  int64_t rows[16];
  for (int i = 0; i < 16; i++)
    rows[i] = -1;
  assert_true(mill_plan_deal(n_file, n_row, n_block, n_rank, rows) == n_blocks);
  for (int r = 0; r < n_rank; r++)
    assert_true(rows[r] == expected[r]);
  assert_true(rows[n_rank] == -1);
}

static void test_blocks_go_round(void **state)
{
  (void)state;
  /* blocks of 4: file 0 4 4 2, file 1 none, file 2 3, file 3 4 4 */
  const int64_t n_row[] = {10, 0, 3, 8};
  check(4, n_row, 4, 1, 6, (int64_t[]){21});
  check(4, n_row, 4, 2, 6, (int64_t[]){4 + 2 + 4, 4 + 3 + 4});
  check(4, n_row, 4, 4, 6, (int64_t[]){4 + 4, 4 + 4, 2, 3});
  check(4, n_row, 4, 8, 6, (int64_t[]){4, 4, 2, 3, 4, 4, 0, 0});
  check(0, n_row, 4, 3, 0, (int64_t[]){0, 0, 0});
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_blocks_go_round)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
