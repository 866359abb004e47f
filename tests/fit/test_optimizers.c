/* SPDX-License-Identifier: BSD-3-Clause */
/* Optimizers and precisions lead stars made from the emulator to the same minima. */
#include "tests/mill_test.h"

enum { SEED = 977, MAX_STAR = 40, N_LABEL = 4, N_ARM = 3 };

#include "tests/fit/made_stars.h"

static void make_rotating_stars(void)
{
  make_stars(MAX_STAR, 25, 80);
  for (int i = 0; i < MAX_STAR; i++)
    truth[i][1] += 40; /* away from zero, where errors are no Gaussians */
  fill_again(MAX_STAR, 25);
}

MILL_TEST(optimizers_agree)
{
  make_rotating_stars();
  set.precision = MILL_FLOAT64;
  static const int optimizer[3] = {MILL_OPT_HYBRID, MILL_OPT_NELDER_MEAD, MILL_OPT_LM};
  for (int o = 0; o < 3; o++) {
    set.optimizer = optimizer[o];
    fit(MAX_STAR, result[o]);
  }
  double evaluations[3] = {0, 0, 0}, jacobians[3] = {0, 0, 0}, spread = 0;
  for (int i = 0; i < MAX_STAR; i++) {
    double least = INFINITY, most = -INFINITY;
    for (int o = 0; o < 3; o++) {
      assert_int_equal(result[o][i].status, MILL_STATUS_FITTED);
      least = fmin(least, result[o][i].m2ll);
      most = fmax(most, result[o][i].m2ll);
      evaluations[o] += (double)(result[o][i].n_eval - result[o][i].n_jac) / MAX_STAR;
      jacobians[o] += (double)result[o][i].n_jac / MAX_STAR;
    }
    assert_close(most, least, 0.01);
    spread = fmax(spread, most - least);
    /* and it is no worse than the truth */
    made_answer answer;
    made_evaluate(&lib, &set, &star[i], truth[i], &answer);
    assert_true(most <= answer.f + made_penalty(&lib, &set, &star[i], truth[i]) + 1e-3);
  }
  printf("-2 ln L within %.1g of each other\n", spread);
  static const char *const name[3] = {"hybrid", "nelder-mead", "levenberg-marquardt"};
  for (int o = 0; o < 3; o++)
    printf("%s: %.1f values and %.1f Jacobians a star\n", name[o], evaluations[o], jacobians[o]);
  /* hybrid needs 3 values, the simplex 69; along the parameters' axes it would need 430 */
  assert_true(evaluations[0] <= 5 && evaluations[1] <= 85);
}

/** The networks are wide, so that their last layer takes most time. */
MILL_TEST(float32_leads_to_the_minima_of_float64)
{
  assert_ok(test_library_widen(SEED, &lib));
  make_rotating_stars();
  set.optimizer = MILL_OPT_LM;
  double worst_f = 0, worst = 0;
  for (int o = 0; o < 2; o++) {
    set.precision = o == 0 ? MILL_FLOAT64 : MILL_FLOAT32;
    fit(MAX_STAR, result[o]);
  }
  for (int i = 0; i < MAX_STAR; i++) {
    const mill_fit_result *a = &result[0][i], *b = &result[1][i];
    worst_f = fmax(worst_f, fabs(a->m2ll - b->m2ll));
    for (int j = 0; j < N_PAR; j++)
      worst = fmax(worst, fabs(made_par(a, j) - made_par(b, j)) / made_err(a, j));
  }
  printf("float32: -2 ln L within %.1g, parameters within %.1g errors\n", worst_f, worst);
  /* A fit ends when a step promises to lower F by less than 0.01, and F may then be 1e-3 above its
   * minimum.  float32 adds 1e-3.  Parameters are off by the root of 2e-3, in units of errors. */
  assert_close(worst_f, 0, 2e-3);
  assert_close(worst, 0, 0.045);
}

MILL_SEEDED_TEST_MAIN(SEED, set_up, tear_down)
