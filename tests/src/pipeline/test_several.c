/* SPDX-License-Identifier: BSD-3-Clause */
/** Which of two libraries' rows a star gets. */
#include "tests/mill_test.h"

#include "kernels/base/error.h"
#include "src/pipeline/several.h"

/** Choose from two rows with given misfits and Teff; row `hull` (-1: none) has the flag HULL. */
static mill_fit_result chosen(const double *excess, const double *teff, int hull)
{
  const mill_label label = {.mapping = MILL_MAP_LOG10, .mean = 3.7, .std = 0.08};
  const mill_library lib[2] = {{.n_label = 2, .label = {label, {.std = 1}}}, {.n_label = 1}};
  const mill_member member[2] = {{.lib = &lib[0]}, {.lib = &lib[1]}};
  mill_fit_result row;
  mill_star star = {.result = &row};
  mill_slot_entry entry = {.star = &star};
  mill_slots slots = {.member = member, .n_lib = 2, .entry = &entry};
  mill_contest contest = {.tie = INFINITY, .fitted = -INFINITY}; /* both have guessed */
  double limit;
  for (int k = 0; k >= 0;) {
    entry.library = k;
    row = (mill_fit_result){.status = MILL_STATUS_FITTED, .n_pix_tot = 2000, .label = {teff[k]}};
    row.warn = k == hull ? MILL_WARN_HULL : 0;
    row.chisq_data = 2000 + (row.excess = excess[k]);
    assert_ok(mill_contest_take(&contest, &slots, 0, &k, &limit));
  }
  return row;
}

MILL_TEST(a_row_with_hull_gives_way)
{
  /* misfits of the row with HULL and the other; their Teff; 1: HULL's row wins; 1: TWO_MINIMA */
  static const double c[][6] = {
      {6798, 7491, 5964, 11981, 1, 0},  /* a simulated star of 6073 K */
      {13233, 13893, 6986, 6716, 0, 0}, /* one of 6743 K */
      {1000, 1249, 6986, 6716, 0, 0},    {1000, 1251, 6986, 6716, 1, 0},    /* 25 % */
      {1000, 1005.9, 5964, 11981, 0, 1}, {1000, 1006.1, 5964, 11981, 1, 0}, /* 4 * 3000 / 2000 */
      {10, 13, 5964, 11981, 0, 1},       {-5, -3, 5964, 11981, 0, 1},
      {-59.1, -58, 7000, 6871, 0, 0},    {-59.1, -55, 7000, 6871, 1, 0},
      {1005, 1000, 5964, 11981, 0, 1}};
  for (int i = 0; i < (int)(sizeof c / sizeof c[0]); i++)
    for (int hull = -1; hull < 2; hull++) {
      const int at = hull > 0, stays = hull < 0 ? c[i][0] < c[i][1] : c[i][4] > 0;
      const double excess[2] = {c[i][at], c[i][1 - at]}, teff[2] = {c[i][2 + at], c[i][3 - at]};
      const mill_fit_result row = chosen(excess, teff, hull);
      assert_close(row.label[0], c[i][stays ? 2 : 3], 0);
      assert_int_equal((row.info & MILL_INFO_TWO_MINIMA) != 0, c[i][5]);
    }
}

/* A row of the second library, which has feh and teff, in columns of the first: teff, logg, feh. */
MILL_TEST(a_row_has_the_first_librarys_labels)
{
  const mill_library lib[2] = {{.n_label = 3}, {.n_label = 2}};
  const mill_member member[2] = {{.lib = &lib[0]}, {.lib = &lib[1], .label = {2, 0}}};
  /* upper triangles of velocity, v sin i and labels */
  const double covar[15] = {1, 2, 4, 0, 3, 5, 7, 0, 6, 10, 0, 9, 0, 0, 8};
  mill_fit_result row = {.status = MILL_STATUS_FITTED,
                         .n_pix_tot = 2000,
                         .label = {-1, 5000},
                         .label_err = {0.2, 80},
                         .label_err_formal = {0.1, 40},
                         .label_flag = {2, 4},
                         .pair_label = {-2, 6000},
                         .pair_label_err = {0.3, 90},
                         .covar = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}};
  mill_star star = {.result = &row};
  mill_slot_entry entry = {.star = &star, .library = 1};
  mill_slots slots = {.member = member, .n_lib = 2, .entry = &entry};
  mill_contest contest = {.tie = INFINITY, .fitted = -INFINITY};
  int next;
  double limit;
  assert_ok(mill_contest_take(&contest, &slots, 0, &next, &limit));
  const struct {
    const double *got;
    double teff, feh;
  } c[] = {{row.label, 5000, -1},
           {row.label_err, 80, 0.2},
           {row.label_err_formal, 40, 0.1},
           {row.pair_label, 6000, -2},
           {row.pair_label_err, 90, 0.3}};
  for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
    assert_close(c[i].got[0], c[i].teff, 0);
    assert_true(isnan(c[i].got[1]));
    assert_close(c[i].got[2], c[i].feh, 0);
  }
  assert_int_equal(row.library, 2);
  assert_int_equal(row.label_flag[0], 4);
  assert_int_equal(row.label_flag[2], 2);
  for (int i = 0; i < 15; i++)
    assert_close(row.covar[i], covar[i], 0);
  /* a row that could not be fitted */
  mill_fit_result_init(&row, &lib[1], 0, MILL_STATUS_FIT_FAILED);
  contest = (mill_contest){.tie = INFINITY, .fitted = -INFINITY};
  assert_ok(mill_contest_take(&contest, &slots, 0, &next, &limit));
  assert_int_equal(row.status, MILL_STATUS_FIT_FAILED);
  assert_int_equal(row.library, 0);
  assert_int_equal(row.n_label, 3);
  for (int i = 0; i < 15; i++)
    assert_true(isnan(row.covar[i]) && isnan(row.label[i % 3]) && isnan(row.pair_label[i % 3]));
}

MILL_TEST_MAIN(NULL, NULL)
