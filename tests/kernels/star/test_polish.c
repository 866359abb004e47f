/* SPDX-License-Identifier: BSD-3-Clause */
/* The polish of functions with known minima (quadratics, a valley, walls), and flags of fits. */
#include "tests/mill_test.h"

#include "kernels/star/logic/fit_star.h"
#include "tests/test_library.h"
#include "tests/kernels/star/paraboloid.h"

static double end_bend; /* bend of the function that was minimised */
static double hidden;   /* part of d_2's curvature that hess does not have */

static void make(void)
{
  hidden = 0;
  paraboloid(30, 8);
}

/** Return F = d H d + bend d_2^4 + hidden d_2^2 + penalties, d in the inner parameters.  Store the
 *  gradient and H in slot->eval. */
static double answer(double bend)
{
  double d[NP], f = 0;
  mill_eval *e = &slot.eval;
  memset(e, 0, sizeof *e);
  for (int i = 0; i < NP; i++)
    d[i] = mill_par_inner(&model, i, slot.theta[i]) - mill_par_inner(&model, i, centre[i]);
  for (int i = 0; i < NP; i++)
    for (int j = 0; j < NP; j++) {
      f += d[i] * hess[i * NP + j] * d[j];
      e->grad[i] += 2 * hess[i * NP + j] * d[j];
      e->hess[i * NP + j] = hess[i * NP + j];
    }
  f += bend * pow(d[2], 4) + hidden * d[2] * d[2];
  e->grad[2] += 4 * bend * pow(d[2], 3) + 2 * hidden * d[2];
  return f + mill_penalty(&model, &slot, slot.theta);
}

static int polish(const double *start, double bend)
{
  end_bend = bend;
  mill_polish_begin(&model, &slot, start);
  for (int i = 0; i < 1000; i++) {
    for (int j = 0; j < NP; j++)
      assert_true(slot.theta[j] >= mill_par_min(&model, j) - 1e-12 &&
                  slot.theta[j] <= mill_par_max(&model, j) + 1e-12);
    const int outcome = mill_polish_tell(&model, &slot, answer(bend));
    if (outcome != MILL_POLISH_GO)
      return outcome;
  }
  return MILL_POLISH_GO;
}

/* p->at, the last evaluated point, has F within 1e-2.  p->end, a last step further, is lower. */
static void assert_at_minimum(const double *expected, double f_expected)
{
  const mill_polish *p = &slot.polish;
  assert_close(p->at.f, f_expected, 1.2e-2);
  for (int j = 0; j < NP; j++) {
    const double off =
        mill_par_inner(&model, j, p->end[j]) - mill_par_inner(&model, j, expected[j]);
    assert_close(off * sqrt(hess[j * NP + j]), 0, 0.06);
  }
  memcpy(slot.theta, p->end, sizeof p->end);
  assert_close(answer(end_bend), f_expected, 2e-3);
}

static const double far_start[NP] = {300, 200, 2, 2, -1};

MILL_TEST(a_minimum_inside_is_found)
{
  static const struct {
    double start[NP], bend;
    int most_jac;
  } c[] = {{{20, 45, 0.2, 0, 0.25}, 0, 5}, /* a quadratic takes few steps */
           {{300, 200, 2, 2, -1}, 0, MILL_POLISH_MAX_JAC},
           {{300, 200, 2, 2, -1}, 300, MILL_POLISH_MAX_JAC}, /* with a wrong curvature */
           {{300, 0, 2, 2, -1}, 0, MILL_POLISH_MAX_JAC}};    /* on the wall, which can be left */
  for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
    make();
    assert_int_equal(polish(c[i].start, c[i].bend), MILL_POLISH_CONVERGED);
    assert_at_minimum(centre, 0);
    assert_true(slot.polish.n_jac <= c[i].most_jac);
  }
}

/* without the second derivatives that Gauss-Newton leaves out, steps overshoot or creep */
MILL_TEST(a_wrong_curvature_is_learned)
{
  static const double share[] = {-0.7, 1.5, 4, 30};
  for (size_t i = 0; i < sizeof share / sizeof share[0]; i++) {
    make();
    hidden = share[i] * 70; /* 70: curvature along d_2 while the others adapt */
    assert_int_equal(polish((const double[NP]){20, 45, 0.2, 0, 0.25}, 0), MILL_POLISH_CONVERGED);
    assert_at_minimum(centre, 0);
    assert_true(slot.polish.n_jac <= 6);
  }
}

MILL_TEST(starts_outside_the_box_are_brought_in)
{
  make();
  const double start[NP] = {5000, -30, 0, 0, 0};
  mill_polish_begin(&model, &slot, start);
  assert_close(slot.theta[0], 1000, 0);
  assert_close(slot.theta[1], 0, 0);
}

/** No step from the end of the polish, in any direction and of any length, leads lower. */
static void assert_nothing_lower(uint64_t *random)
{
  memcpy(slot.theta, slot.polish.end, sizeof slot.polish.end);
  const double f = answer(0);
  for (int i = 0; i < 20000; i++) {
    const double length = pow(10, 2 * test_library_random(random) - 2);
    for (int j = 0; j < NP; j++)
      slot.theta[j] =
          slot.polish.end[j] + length * test_library_random(random) / sqrt(hess[j * NP + j]);
    /* the promise that ends a polish, twice */
    assert_true(answer(0) > f - 2e-2);
  }
}

/** The star lies far outside three hulls, almost equally far beyond nine of their facets.  The
 *  penalty must come from the farthest facet alone. */
MILL_TEST(minimum_beyond_many_facets_is_that_of_the_farthest)
{
  enum { N_HULL = 3, N_FACET = 3 };
  static double rows[N_HULL][N_FACET * 3];
  static const int label[N_HULL][2] = {{0, 1}, {0, 2}, {1, 2}};
  uint64_t random = 78;
  int n_held = 0;
  for (int turn = 0; turn < 25; turn++) {
    make();
    model.n_hull = N_HULL;
    for (int h = 0; h < N_HULL; h++) {
      for (int i = 0; i < N_FACET; i++) {
        const double angle = 0.8 + 0.6 * test_library_random(&random);
        double *row = rows[h] + 3 * i;
        row[0] = cos(angle);
        row[1] = sin(angle);
        /* A point 0.6 below the minimum in both labels lies about 0.5 outside each facet. */
        row[2] = 0.5 + 0.01 * test_library_random(&random) -
                 row[0] * (centre[2 + label[h][0]] - 0.6) -
                 row[1] * (centre[2 + label[h][1]] - 0.6);
      }
      model.hull[h].n_label = 2;
      model.hull[h].label[0] = label[h][0];
      model.hull[h].label[1] = label[h][1];
      model.hull[h].n_facet = N_FACET;
      model.hull[h].facet = rows[h];
    }
    slot.hull_weight = 300;
    assert_int_equal(polish(far_start, 0), MILL_POLISH_CONVERGED);
    double mapped[MILL_MAX_LABEL];
    int n_on = 0;
    mill_map_labels(&model, slot.polish.end, mapped);
    const double farthest = mill_hull_distance(N_HULL, model.hull, mapped);
    for (int h = 0; h < N_HULL; h++)
      for (int i = 0; i < N_FACET; i++)
        n_on += mill_facet_value(&model.hull[h], i, mapped) > farthest - 1e-6;
    n_held += n_on > 1;
    assert_nothing_lower(&random);
  }
  assert_true(n_held >= 5); /* more facets than one hold these stars, exactly */
  printf("%d of 25 stars are held by two facets or more\n", n_held);
}

/** Element 0 is cut off so far that label 2 moves by `errors` errors.  On the facet n d = -x, d H d
 *  is least at d = -x C n / (n C n) with C = 1 / H (Lagrange's multiplier). */
static void expect_label_moved(double normal0, double normal2, double errors)
{
  double factor[NP * NP], c[NP * NP], facet[3] = {normal0, normal2, 0};
  make();
  memcpy(factor, hess, sizeof hess);
  assert_int_equal(mill_cholesky(NP, factor, NP), 0);
  mill_cholesky_inverse(NP, factor, NP, c, NP);
  const double c0 = c[2 * NP + 2] * normal0 + c[2 * NP + 4] * normal2;
  const double c2 = c[4 * NP + 2] * normal0 + c[4 * NP + 4] * normal2;
  const double error = sqrt(c[4 * NP + 4]), shift = errors * error * (c2 > 0 ? -1 : 1);
  facet[2] =
      -shift / c2 * (normal0 * c0 + normal2 * c2) - normal0 * centre[2] - normal2 * centre[4];
  model.label[0].is_element = model.n_hull = 1;
  model.hull[0] = (mill_hull){.n_label = 2, .label = {0, 2}, .n_facet = 1, .of_element = 1};
  model.hull[0].facet = facet;
  slot.hull_weight = 1e7;
  assert_int_equal(polish(centre, 0), MILL_POLISH_CONVERGED);
  slot.best.at = slot.polish.at;
  memcpy(slot.best.end, slot.polish.end, sizeof slot.polish.end);
  assert_close(slot.best.end[4] - centre[4], shift, 0.06 * error); /* as in assert_at_minimum */
  assert_true(mill_fit_covariance(&model, &slot));
  assert_int_equal(slot.result.warn, errors > 1 ? MILL_WARN_HULL : 0);
  assert_int_equal(slot.result.info & MILL_INFO_NEAR_HULL, errors > 1 ? MILL_INFO_NEAR_HULL : 0);
}

MILL_TEST(an_element_at_its_edge_must_not_move_other_labels)
{
  for (double errors = 0.85; errors < 1.2; errors += 0.3) {
    expect_label_moved(-0.5, 0.9, errors);
    expect_label_moved(0.7, 0.7, errors);
    expect_label_moved(1, 0, errors); /* by the correlation alone */
  }
}

/* An F smooth in u = sqrt(v^2 + s^2) - s has the slope 0 in v at v = 0.  Steps in u leave v = 0. */
MILL_TEST(steps_are_taken_in_the_inner_parameter)
{
  make();
  model.set.rotation = MILL_ROT_SPLINE;
  double start[NP];
  memcpy(start, far_start, sizeof start);
  start[1] = 0;
  assert_int_equal(polish(start, 0), MILL_POLISH_CONVERGED);
  assert_at_minimum(centre, 0);
  const int n_jac = slot.polish.n_jac;
  model.set.rotation = MILL_ROT_LINEAR; /* the same numbers as F's own parameter */
  start[1] = mill_vsini_inner(MILL_ROT_SPLINE, 0);
  centre[1] = mill_vsini_inner(MILL_ROT_SPLINE, 30);
  assert_int_equal(polish(start, 0), MILL_POLISH_CONVERGED);
  assert_int_equal(slot.polish.n_jac, n_jac);
  /* limits are met exactly, whatever the way to u and back rounds */
  make();
  model.set.rotation = MILL_ROT_SPLINE;
  model.set.min_vsini_km_s = 7.3;
  centre[1] = 1;
  assert_int_equal(polish(far_start, 0), MILL_POLISH_CONVERGED);
  assert_true(slot.polish.end[1] == 7.3);
}

/* Without the prior's penalty the guess could leave a cool star to a library of hot templates. */
MILL_TEST(a_prior_that_a_library_does_not_reach_counts_in_its_choice)
{
  make();
  slot.starts.chisq[0] = slot.starts.chisq[1] = -9;
  slot.prior_mean[2] = -6; /* of a label from 0 to 0 */
  slot.prior_sigma[2] = 2;
  mill_guess_note(&model, &slot, 2);
  assert_close(slot.result.guess_chisq, -9 + 3 * 3, 0);
  assert_close(slot.result.guess_tie, -9 + 3 * 3, 0);
  model.label[0].is_element = 1; /* of which another library may know nothing */
  mill_guess_note(&model, &slot, 2);
  assert_close(slot.result.guess_chisq, -9, 0);
  assert_close(slot.result.guess_tie, -9, 0);
}

/* Compare polishes with scans of v sin i.  A prior's slope in u at 0 is finite if its mean is 0. */
MILL_TEST(a_prior_on_rotation)
{
  static const double mean[] = {0, 0, 0, 20, 3, 60}, sigma[] = {30, 10, 5, 10, 2, 5},
                      at[] = {40, 25, 12, 25, 0, 0};
  for (int i = 0; i < 6; i++)
    for (int from = 0; from < 2; from++) {
      make();
      model.set.rotation = MILL_ROT_SPLINE;
      model.set.prior_mean[1] = mean[i];
      model.set.prior_sigma[1] = sigma[i];
      centre[1] = at[i];
      for (int j = 0; j < NP; j++) /* uncorrelated, so that a scan of v sin i suffices */
        for (int k = 0; k < NP; k++)
          hess[j * NP + k] *= j == k;
      double begin[NP];
      memcpy(begin, far_start, sizeof begin);
      if (from == 0)
        begin[1] = 0;
      assert_int_equal(polish(begin, 0), MILL_POLISH_CONVERGED);
      memcpy(slot.theta, slot.polish.end, sizeof slot.polish.end);
      const double f = answer(0);
      double least = INFINITY, v_least = 0;
      memcpy(slot.theta, centre, sizeof centre);
      for (int k = 0; k <= 100000; k++) {
        slot.theta[1] = 1e-3 * k;
        const double scan = answer(0);
        if (scan < least) {
          least = scan;
          v_least = slot.theta[1];
        }
      }
      /* In u, the inner parameter of v sin i, the prior's curvature lacks d2(v sin i)/du2.  Steps
       * fall short, so F may end above its minimum by several times the tolerance of 1e-2. */
      assert_close(f, least, 0.05);
      if (v_least == 0)
        assert_close(slot.polish.end[1], 0, 0);
    }
}

MILL_TEST(nothing_finite_is_a_failure)
{
  make();
  mill_polish_begin(&model, &slot, far_start);
  answer(0);
  assert_int_equal(mill_polish_tell(&model, &slot, NAN), MILL_POLISH_FAILED);
  mill_polish_begin(&model, &slot, far_start);
  answer(0);
  slot.eval.grad[2] = NAN;
  assert_int_equal(mill_polish_tell(&model, &slot, 1), MILL_POLISH_FAILED);
  /* a trial that is not finite is only rejected */
  mill_polish_begin(&model, &slot, far_start);
  assert_int_equal(mill_polish_tell(&model, &slot, answer(0)), MILL_POLISH_GO);
  answer(0);
  assert_int_equal(mill_polish_tell(&model, &slot, INFINITY), MILL_POLISH_GO);
  assert_close(slot.polish.at.theta[0], far_start[0], 0);
}

/** Return the flag NEAR_HULL of a star whose labels 0 and 1 have errors of 0.1 and correlation rho.
 *  The hull has two facets: normal0 * label0 + normal1 * label1 = 1, and one far away. */
static int near_hull(double label0, double label1, double rho, double normal0, double normal1)
{
  double facet[2 * 3] = {normal0, normal1, -1, -normal0, -normal1, -50};
  make();
  model.n_hull = 1;
  model.hull[0].n_label = 2;
  model.hull[0].label[0] = 0;
  model.hull[0].label[1] = 1;
  model.hull[0].n_facet = 2;
  model.hull[0].facet = facet;
  for (int j = 0; j < NP; j++)
    slot.best.at.hess[j * NP + j] = 1;
  /* the inverse of 0.01 (1, rho; rho, 1) */
  slot.best.at.hess[2 * NP + 2] = slot.best.at.hess[3 * NP + 3] = 100 / (1 - rho * rho);
  slot.best.at.hess[2 * NP + 3] = slot.best.at.hess[3 * NP + 2] = -100 * rho / (1 - rho * rho);
  slot.best.end[2] = label0;
  slot.best.end[3] = label1;
  assert_true(mill_fit_covariance(&model, &slot));
  return (slot.result.info & MILL_INFO_NEAR_HULL) != 0;
}

/* NEAR_HULL is set for labels outside a facet, and for labels less than one error inside it. */
MILL_TEST(near_hull)
{
  const double r = sqrt(0.5);
  const struct {
    double label0, label1, rho, normal0, normal1;
    int near;
  } c[] = {{0.89, 0, 0, 1, 0, 0},
           {0.91, 0, 0, 1, 0, 1},
           {1.30, 0, 0, 1, 0, 1},
           {0.91, 0.95, 0, 0, 1, 1},
           /* Along (1, +-1) / sqrt(2) errors are 0.1 sqrt(1 +- rho): 0.126, 0.063 for 0.6. */
           {0.88 * r, 0.88 * r, 0.6, r, r, 1},
           {0.88 * r, 0.88 * r, 0, r, r, 0},
           {0.92 * r, -0.92 * r, 0, r, -r, 1},
           {0.92 * r, -0.92 * r, 0.6, r, -r, 0}};
  for (size_t i = 0; i < sizeof c / sizeof c[0]; i++)
    assert_int_equal(near_hull(c[i].label0, c[i].label1, c[i].rho, c[i].normal0, c[i].normal1),
                     c[i].near);
}

/** An element is WEAK if its error from the spectrum exceeds the prior's sigma of 0.3.  This error
 *  and label_err both include the floor of 0.27, added in quadrature. */
MILL_TEST(a_weak_element_owes_more_to_its_prior)
{
  float fraction = 0.01F;
  make();
  model.arm[0].error.fraction = &fraction;
  model.set.element_max_err = 1;
  model.label[1].floor = 0.27;
  model.set.prior_sigma[MILL_PAR_LABEL0 + 1] = 0.3;
  for (double own = 0.12; own < 0.145; own += 0.02) { /* about sqrt(0.3^2 - 0.27^2) = 0.131 */
    slot.result.label_err_formal[1] = sqrt(1 / (1 / (own * own) + 1 / 0.09) + 0.27 * 0.27);
    assert_int_equal(mill_element_is_weak(&model, &slot, 1), own > 0.131);
  }
  double var[2];
  for (int k = 0; k < 2; k++) {
    model.label[1].floor = k * 0.27;
    memcpy(slot.best.at.hess, hess, sizeof hess);
    assert_true(mill_fit_covariance(&model, &slot));
    var[k] = pow(slot.result.label_err[1], 2);
  }
  assert_close(var[1] - var[0], 0.27 * 0.27, 1e-14);
  /* rescale_errors does not scale the floor */
  const int l1 = MILL_PAR_LABEL0 + 1, diagonal = l1 * model.n_deriv - l1 * (l1 - 1) / 2;
  model.set.rescale_errors = 1;
  slot.result.rchisq_tot = 4;
  mill_fit_scale_errors(&model, &slot.result);
  assert_close(pow(slot.result.label_err[1], 2), 4 * var[0] + 0.27 * 0.27, 1e-14);
  assert_close(slot.result.covar[diagonal], 4 * var[0] + 0.27 * 0.27, 1e-14);
  assert_close(pow(slot.result.label_err_formal[1], 2), var[1], 1e-14);
}

/* Test each warning just below and just above its limit.  All else in the row is good. */
MILL_TEST(warnings_begin_at_their_limits)
{
  mill_fit_result *r = &slot.result;
  double *largest = answers + MILL_ANSWER_LARGEST, *light = answers + MILL_ANSWER_EMISSION;
  const double misfit = 3000 - 1000 * (1 + 3 / sqrt(1000)); /* chi-square, less noise + 3 sigma */
  const struct {
    int bit, lower_warns;
    double *value, limit, *other, other_value;
  } c[] = {{MILL_WARN_CHISQ, 1, &r->chisq_c_tot, 1050, NULL, 0},
           {MILL_WARN_VEL_LIMIT, 1, &r->vrad_km_s, -995, NULL, 0},
           {MILL_WARN_VEL_LIMIT, 0, &r->vrad_km_s, 995, NULL, 0},
           {MILL_WARN_VEL_ERR, 0, &r->vrad_err_km_s, 100, NULL, 0},
           {MILL_WARN_LABEL_EDGE, 1, &slot.best.end[MILL_PAR_LABEL0], -1, NULL, 0},
           {MILL_WARN_LABEL_EDGE, 0, &slot.best.end[MILL_PAR_LABEL0], 2, NULL, 0},
           {MILL_WARN_VSINI, 0, &r->vsini_km_s, 100, NULL, 0},
           {MILL_WARN_NEGATIVE, 0, answers + MILL_ANSWER_NEGATIVE, 100, NULL, 0},
           {MILL_WARN_OUTLIER, 0, largest, 250, NULL, 0}, /* a quarter of chi-square */
           {MILL_WARN_OUTLIER, 0, largest, 100, &r->chisq_tot, 200},
           {MILL_WARN_POOR_FIT, 0, &r->chisq_tot, 10000, NULL, 0},
           {MILL_WARN_NO_STAR, 1, &r->chisq_c_data, 1050, &r->chisq_data, 1000},
           {MILL_WARN_NO_STAR, 1, &r->chisq_c_data, 3150, &r->chisq_noise, 3000},
           {MILL_WARN_NO_STAR, 1, &r->chisq_c_data, 3000 + misfit / 4, NULL, 0},
           {MILL_WARN_NO_STAR, 1, &r->chisq_c_data, 3000 + misfit, &r->vsini_km_s, 500}, /* broad */
           {MILL_WARN_EMISSION, 0, light, 200, light + 1, 400},
           {MILL_WARN_EMISSION, 0, light, 25, light + 1, 25},
           {MILL_WARN_ARMS, 1, &r->vrad_arms_pval, 1e-6, NULL, 0}};
  for (size_t i = 0; i < sizeof c / sizeof c[0]; i++)
    for (int above = 0; above < 2; above++) {
      make();
      memset(answers, 0, sizeof answers);
      model.label[0].edge_min = -1;
      model.label[0].edge_max = 2;
      slot.best.converged = 1;
      r->n_pix_tot = 1000;
      r->chisq_tot = r->chisq_noise = 1000;
      r->chisq_data = 3000;
      r->chisq_c_tot = r->chisq_c_data = 20000;
      r->vrad_arms_pval = 1;
      assert_int_equal(mill_fit_warnings(&model, &slot, 0), 0);
      if (c[i].other)
        *c[i].other = c[i].other_value;
      *c[i].value = c[i].limit + (above ? 1e-6 : -1e-6) * fabs(c[i].limit);
      assert_int_equal((mill_fit_warnings(&model, &slot, 0) & c[i].bit) != 0,
                       above != c[i].lower_warns);
    }
}

/* POOR_LINES begins where chi-square per pixel (of n) exceeds both 1.5 and 1 + 5 sqrt(2 / n), here
 * 3.5.  Errors twice as large allow four times as much.  Without pixels an element is only WEAK. */
MILL_TEST(poor_lines_begin_at_their_limits)
{
  for (int i = 0; i < 9; i++) {
    const int scale = 1 + i % 2, above = i / 2 % 2, l = 1;
    const double n = i == 8 ? 0 : (i < 4 ? 8 : 2000), most = i < 4 ? 3.5 : 1.5;
    double *sum = answers + MILL_ANSWER_TANGENTS + MILL_N_LINE_SUM * l;
    make();
    model.label[l].is_element = 1;
    slot.result.err_scale = scale;
    sum[MILL_LINE_WEIGHT] = sum[MILL_LINE_SQUARE] = n;
    sum[MILL_LINE_CHISQ] = n * most * scale * scale * (above ? 1.01 : 0.99);
    mill_elements_flag(&model, &slot);
    assert_int_equal(slot.result.label_flag[l], MILL_ELEMENT_WEAK + above * MILL_ELEMENT_LINES);
  }
}

MILL_TEST_MAIN(NULL, NULL)
