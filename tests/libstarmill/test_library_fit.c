/* SPDX-License-Identifier: BSD-3-Clause */
/* Fits by libstarmill, against the program's own pipeline. */
#include "tests/mill_test.h"

#include "io/result/columns.h"
#include "tests/libstarmill/library_case.h"

/** Check all columns of a row against the program's packing of `result`. */
static void compare_row(starmill_table *table, int row, const mill_fit_result *result)
{
  mill_columns columns;
  MILL_OWNED char *packed = NULL;
  assert_ok(mill_columns_fits(&fx.lib, "test", 0, &columns));
  assert_ok(MILL_ALLOC(columns.row_size, &packed));
  mill_columns_pack(&columns, result, packed);
  assert_int_equal(starmill_table_n_column(table), columns.n_column);
  for (int k = 0; k < columns.n_column; k++) {
    const mill_column *c = &columns.column[k];
    starmill_column column;
    check(table_column, table, c->name, &column);
    assert_int_equal(column.type, c->type);
    assert_int_equal(column.n_value, c->n_value);
    if (k != columns.i_target && k != columns.i_crc)
      assert_memory_equal((const char *)column.data + (size_t)row * c->n_byte, packed + c->at,
                          c->n_byte);
  }
}

MILL_TEST(fits_are_those_of_the_pipeline)
{
  mill_fit_result result[N_STAR];
  starmill_column column;
  made_fit(&fx.lib, &fx.set, mill_backend_cpu(NULL), 2, 1, N_STAR, fx.made, NULL, result, NULL);
  starmill_star_set_target_id(fx.star[1], INT64_C(1) << 60);
  MILL_AT_END(starmill_table_free_at) starmill_table *table = fit_of(fx.library, fx.star, N_STAR);
  assert_int_equal(starmill_table_n_row(table), N_STAR);
  for (int i = 0; i < N_STAR; i++)
    compare_row(table, i, &result[i]);
  const int64_t *target_id = column_of(table, "TARGETID");
  assert_true(target_id[1] == INT64_C(1) << 60 && target_id[0] == -1);
  /* a likelihood asked for in between changes nothing */
  double theta[N_PAR], m2ll, penalty;
  check(table_theta, fx.library, table, 2, theta);
  assert_true(theta[0] == result[2].vrad_km_s && theta[5] == result[2].label[3]);
  values_of(fx.library, fx.star[2], 1, theta, &m2ll, &penalty);
  assert_close(m2ll + penalty, result[2].m2ll, 1e-6 * fabs(result[2].m2ll));
  starmill_table_free(table);
  table = fit_of(fx.library, fx.star, N_STAR);
  for (int i = 0; i < N_STAR; i++)
    compare_row(table, i, &result[i]);
  refused(STARMILL_USAGE, "no column NONE", table_column, table, "NONE", &column);
}

MILL_TEST(velocity_offsets_are_parameters)
{
  enum { N = N_PAR + 2 };
  MILL_AT_END(starmill_library_close_at)
  starmill_library *library = open_with("velocity_offsets: true\n");
  starmill_parameter parameter;
  double theta[N], m2ll, penalty, mean[N] = {0}, sigma[N] = {0};
  assert_int_equal(starmill_library_n_par(library), N);
  check(library_parameter, library, N - 1, &parameter);
  assert_non_null(strstr(parameter.name, "offset_"));
  MILL_AT_END(starmill_star_free_at) starmill_star *star = make_star(library, &fx.made[0]);
  MILL_AT_END(starmill_table_free_at) starmill_table *table = fit_of(library, &star, 1);
  check(table_theta, library, table, 0, theta);
  assert_true(theta[N - 1] == number_of(table, parameter.column) && theta[N - 1] != 0);
  values_of(library, star, 1, theta, &m2ll, &penalty);
  assert_close(m2ll + penalty, number_of(table, "M2LL"), 1e-6 * fabs(m2ll));
  sigma[N - 1] = 1;
  refused(STARMILL_USAGE, "velocity_offset_sigma", library_constrain, library, NULL, mean, sigma);
  /* a star without the last arm has no offset of the arm, and its theta can be evaluated */
  starmill_star_free(star);
  starmill_table_free(table);
  fx.made[0].n_segment--;
  star = make_star(library, &fx.made[0]);
  fx.made[0].n_segment++;
  table = fit_of(library, &star, 1);
  check(table_theta, library, table, 0, theta);
  assert_true(isnan(number_of(table, parameter.column)) && theta[N - 1] == 0);
  values_of(library, star, 1, theta, &m2ll, &penalty);
  assert_close(m2ll + penalty, number_of(table, "M2LL"), 1e-6 * fabs(m2ll));
}

MILL_TEST(a_named_format_has_its_error_of_widths)
{
  static const char *const keys[] = {"format: sdss\n", "lsf_width_error: 0.1\n", ""};
  double m2ll[3];
  for (int k = 0; k < 3; k++) {
    MILL_AT_END(starmill_library_close_at) starmill_library *library = open_with(keys[k]);
    MILL_AT_END(starmill_star_free_at) starmill_star *star = make_star(library, &fx.made[0]);
    MILL_AT_END(starmill_table_free_at) starmill_table *table = fit_of(library, &star, 1);
    m2ll[k] = number_of(table, "M2LL");
  }
  assert_true(m2ll[0] == m2ll[1] && m2ll[0] != m2ll[2]);
}

MILL_TEST(two_stars_have_columns)
{
  MILL_AT_END(starmill_library_close_at) starmill_library *library = open_with("binaries: true\n");
  MILL_AT_END(starmill_star_free_at) starmill_star *star = make_star(library, &fx.made[0]);
  MILL_AT_END(starmill_table_free_at) starmill_table *table = fit_of(library, &star, 1);
  assert_int_equal(*(const int32_t *)column_of(table, "SB2"), 0);
  assert_true(isfinite(number_of(table, "VRAD")));
}

MILL_TEST(the_best_of_several_starts_is_kept)
{
  enum { N_START = 3 };
  double start[N_START * N_PAR], best = INFINITY;
  starmill_table *all = NULL;
  for (int k = 0; k < N_START; k++)
    memcpy(start + k * N_PAR, fx.truth[0], sizeof fx.truth[0]);
  start[0] -= 700; /* from where the star cannot be found */
  start[2 * N_PAR + 2] += 200;
  for (int k = 0; k < N_START; k++) {
    MILL_AT_END(starmill_table_free_at) starmill_table *one = NULL;
    check(fit, fx.library, (const starmill_star *const *)fx.star, 1, start + k * N_PAR, 1, &one);
    best = fmin(best, number_of(one, "M2LL"));
  }
  check(fit, fx.library, (const starmill_star *const *)fx.star, 1, start, N_START, &all);
  assert_true(number_of(all, "M2LL") == best);
  assert_true(*(const int32_t *)column_of(all, "FIT_INFO") & MILL_INFO_GIVEN_START);
  starmill_table_free(all);
  start[4] = NAN;
  refused(STARMILL_USAGE, "not finite", fit, fx.library, (const starmill_star *const *)fx.star, 1,
          start, N_START, &all);
}

MILL_TEST(parameters_are_fixed_and_have_priors)
{
  double fixed[N_PAR], mean[N_PAR] = {0}, sigma[N_PAR] = {0}, m2ll, penalty, free_penalty;
  for (int j = 0; j < N_PAR; j++)
    fixed[j] = NAN;
  values_of(fx.library, fx.star[0], 1, fx.truth[0], &m2ll, &free_penalty);
  fixed[1] = 12.5;
  mean[2] = fx.truth[0][2] + 50;
  sigma[2] = 25;
  check(library_constrain, fx.library, fixed, mean, sigma);
  values_of(fx.library, fx.star[0], 1, fx.truth[0], &m2ll, &penalty);
  assert_close(penalty, free_penalty + 4, 1e-9);
  MILL_AT_END(starmill_table_free_at) starmill_table *table = fit_of(fx.library, fx.star, 1);
  assert_true(number_of(table, "VSINI") == 12.5);
  mill_fit_result result;
  mill_fit_settings set = fx.set;
  set.fixed[1] = 1;
  set.fixed_value[1] = 12.5;
  set.prior_mean[2] = mean[2];
  set.prior_sigma[2] = 25;
  made_fit(&fx.lib, &set, mill_backend_cpu(NULL), 1, 1, 1, fx.made, NULL, &result, NULL);
  compare_row(table, 0, &result);
  fixed[1] = 1e4;
  refused(STARMILL_CONFIG, "vsini", library_constrain, fx.library, fixed, NULL, NULL);
  refused(STARMILL_USAGE, "both", library_constrain, fx.library, NULL, mean, NULL);
  mean[2] = -9999;
  refused(STARMILL_CONFIG, "five times", library_constrain, fx.library, NULL, mean, sigma);
  check(library_constrain, fx.library, NULL, NULL, NULL);
  values_of(fx.library, fx.star[0], 1, fx.truth[0], &m2ll, &penalty);
  assert_true(penalty == free_penalty);
}

MILL_TEST(stars_that_cannot_be_fitted_say_why)
{
  made_star dark = fx.made[0];
  starmill_spectrum far = {.name = "x", .n_pix = 30};
  double wave[30], m2ll;
  float one[30];
  starmill_star *star[3] = {NULL, NULL, fx.star[1]};
  for (int i = 0; i < dark.n_segment; i++)
    memset(dark.segment[i].ivar, 0, sizeof dark.segment[i].ivar);
  for (int p = 0; p < 30; p++) {
    wave[p] = 20000 + p;
    one[p] = 1;
  }
  far.wave = wave;
  far.flux = far.ivar = one;
  star[0] = make_star(fx.library, &dark);
  check(star_create, fx.library, &far, 1, &star[1]);
  assert_int_equal(starmill_star_n_piece(star[1]), 0);
  refused(STARMILL_INPUT, "no arm has a usable pixel", minus2loglike, fx.library, star[0], 1,
          fx.truth[0], &m2ll, NULL, NULL, NULL);
  refused(STARMILL_INPUT, "outside the library", minus2loglike, fx.library, star[1], 1, fx.truth[0],
          &m2ll, NULL, NULL, NULL);
  starmill_arm arm;
  MILL_AT_END(starmill_star_free_at) starmill_star *little = NULL;
  check(library_arm, fx.library, 0, &arm);
  for (int p = 0; p < 9; p++)
    wave[p] = arm.min_wave + 1 + p;
  far.n_pix = 9;
  far.sigma = one;
  check(star_create, fx.library, &far, 1, &little);
  refused(STARMILL_INPUT, "npoly: 5 needs 10 pixels in arm", minus2loglike, fx.library, little, 1,
          fx.truth[0], &m2ll, NULL, NULL, NULL);
  MILL_AT_END(starmill_table_free_at) starmill_table *table = fit_of(fx.library, star, 3);
  const int32_t *code = column_of(table, "STATUS");
  assert_int_equal(code[0], MILL_STATUS_NO_ARM);
  assert_int_equal(code[1], MILL_STATUS_OUTSIDE_LIBRARY);
  assert_int_equal(code[2], MILL_STATUS_FITTED);
  starmill_star_free(star[0]);
  starmill_star_free(star[1]);
}

MILL_EACH_TEST_MAIN(set_up, tear_down)
