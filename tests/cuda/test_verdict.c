/* SPDX-License-Identifier: BSD-3-Clause */
/* How rows of two backends are judged (verdict.h): planted errors must be found. */
#include "tests/mill_test.h"

#include "tests/cuda/verdict.h"

enum { N_STAR = 5000 };

MILL_TEST(limit_is_the_binomial_one)
{
  /* scipy.stats.binom.ppf(0.99, n, 0.001) */
  static const int expected[][2] = {{1, 0}, {100, 1}, {200, 2}, {500, 3}, {1000, 4}, {5000, 11}};
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
    assert_int_equal(most_outside(expected[i][0]), expected[i][1]);
}

/* Errors in the rows of so many stars, each of another kind. */
static void plant(mill_fit_result *row, int n_bad, double size)
{
  for (int i = 0; i < n_bad; i++)
    switch (i % 5) {
    case 0:
      row[7 * i].label[1] += size * TOLERANCE_SIGMA * row[7 * i].label_err[1];
      break;
    case 1:
      row[7 * i].vrad_km_s -= size * TOLERANCE_SIGMA * row[7 * i].vrad_err_km_s;
      break;
    case 2:
      row[7 * i].m2ll += size * TOLERANCE_M2LL;
      break;
    case 3:
      row[7 * i].m2ll -= size * TOLERANCE_M2LL;
      break;
    default:
      row[7 * i].vsini_km_s += size * TOLERANCE_SIGMA * row[7 * i].vsini_err_km_s;
    }
}

MILL_TEST(planted_errors_are_found)
{
  static mill_fit_result cpu[N_STAR], gpu[N_STAR];
  for (int i = 0; i < N_STAR; i++) {
    cpu[i] = (mill_fit_result){.status = MILL_STATUS_FITTED,
                               .n_label = 2,
                               .m2ll = 1000.0 + i,
                               .vrad_km_s = 10.0,
                               .vrad_err_km_s = 0.5,
                               .vsini_km_s = 5.0,
                               .vsini_err_km_s = 2.0,
                               .label = {5000.0, 4.0},
                               .label_err = {50.0, 0.1}};
    gpu[i] = cpu[i];
  }
  const int most = most_outside(N_STAR);
  verdict v = compare(N_STAR, cpu, gpu, 0);
  assert_true(is_good(&v) && v.n_outside == 0 && is_same(&cpu[0], &gpu[0]));
  plant(gpu, 100, 0.9); /* within the tolerances */
  v = compare(N_STAR, cpu, gpu, 0);
  assert_true(is_good(&v) && v.n_outside == 0 && v.sum_sigma > 0.0 && !is_same(&cpu[0], &gpu[0]));
  memcpy(gpu, cpu, sizeof gpu);
  plant(gpu, most, 1.1); /* as many as may be outside */
  v = compare(N_STAR, cpu, gpu, 0);
  assert_true(is_good(&v) && v.n_outside == most);
  /* one more, of each kind that is no number within them */
  for (int kind = 0; kind < 3; kind++) {
    mill_fit_result *last = &gpu[N_STAR - 1];
    *last = cpu[N_STAR - 1];
    if (kind == 0)
      last->label[0] = NAN;
    else if (kind == 1)
      last->m2ll = NAN;
    else
      last->status = MILL_STATUS_NO_ARM;
    v = compare(N_STAR, cpu, gpu, 0);
    assert_true(!is_good(&v) && v.n_outside == most + 1);
  }
  /* stars that neither has fitted tell nothing */
  for (int i = 0; i < N_STAR; i++)
    cpu[i].status = gpu[i].status = MILL_STATUS_NO_ARM;
  v = compare(N_STAR, cpu, gpu, 0);
  assert_true(!is_good(&v) && v.n_outside == 0);
}

MILL_TEST_MAIN(NULL, NULL)
