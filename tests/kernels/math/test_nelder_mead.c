/* SPDX-License-Identifier: BSD-3-Clause */
/* The visited points must equal SciPy's bit for bit, so no products may be fused here. */
#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

#include "tests/mill_test.h"

#include <float.h>

#include "kernels/math/nelder_mead.h"
#include "reference/nelder_mead.h" /* made in the build folder by tests/reference/make_nelder_mead.py */

/* Value at x, a point that SciPy must have visited. */
static double value_of(const reference_nm *ref, const double *x)
{
  for (int i = 0; i < ref->n_eval; ++i) {
    int n_same = 0;
    for (int j = 0; j < ref->n; ++j)
      n_same += x[j] == ref->points[i * ref->n + j];
    if (n_same == ref->n)
      return ref->values[i];
  }
  fail_msg("%s: SciPy has not visited %a ...", ref->name, x[0]);
  return NAN;
}

enum { N_CASE = (int)(sizeof reference_nm_case / sizeof *reference_nm_case) };

static const reference_nm *find_case(const char *name)
{
  for (int i = 0; i < N_CASE; ++i)
    if (strcmp(reference_nm_case[i].name, name) == 0)
      return &reference_nm_case[i];
  fail_msg("no reference case %s", name);
  return NULL;
}

enum { NO_LIMIT = 1000000 };
static const mill_nm_options plain = {NO_LIMIT, 1e-4, 1e-4};

static mill_nm_options options_of(const reference_nm *ref)
{
  return (mill_nm_options){ref->max_eval, ref->f_tol, ref->x_tol};
}

/* Whatever was in the memory before. */
MILL_TEST(points_are_scipys)
{
  int n_seen[6] = {0}, n_of_status[2] = {0}, n_max = 0;
  for (int i_case = 0; i_case < N_CASE; ++i_case) {
    const reference_nm *ref = &reference_nm_case[i_case];
    const mill_nm_options options = options_of(ref);
    mill_nm nm;
    int status = MILL_NM_GO;
    memset(&nm, i_case % 2 ? 0xa5 : 0, sizeof nm);
    mill_nm_start(&nm, ref->n, ref->simplex0, &options);
    for (int i = 0; status == MILL_NM_GO; ++i) {
      if (i >= ref->n_eval)
        fail_msg("%s: asks for more than SciPy's %d evaluations", ref->name, ref->n_eval);
      const double *x = mill_nm_ask(&nm);
      for (int j = 0; j < ref->n; ++j)
        if (!(x[j] == ref->points[i * ref->n + j]))
          fail_msg("%s: evaluation %d, coordinate %d: %a, SciPy has %a", ref->name, i, j, x[j],
                   ref->points[i * ref->n + j]);
      assert_in_range(nm.state, MILL_NM_INIT, MILL_NM_SHRINK);
      ++n_seen[nm.state];
      status = mill_nm_tell(&nm, ref->values[i]);
    }
    assert_int_equal(nm.n_eval, ref->n_eval);
    assert_int_equal(nm.n_iter, ref->n_iter);
    assert_int_equal(status, ref->status == 0 ? MILL_NM_CONVERGED : MILL_NM_LIMIT);
    ++n_of_status[ref->status];
    n_max = ref->n > n_max ? ref->n : n_max;
    double f_best = NAN;
    const double *x_best = mill_nm_best(&nm, &f_best);
    /* If the limit forbids an expansion, SciPy drops the reflected point; starmill keeps it. */
    if (ref->status == 1)
      assert_true(f_best <= ref->f_best);
    else
      assert_true(f_best == ref->f_best);
    assert_true(value_of(ref, x_best) == f_best);
  }
  for (int i = 0; i < 6; ++i)
    if (n_seen[i] == 0)
      fail_msg("no reference case reaches state %d", i);
  assert_true(n_of_status[0] > 0 && n_of_status[1] > 0);
  assert_int_equal(n_max, MILL_MAX_PAR);
}

/* Under each limit of evaluations, starmill visits SciPy's points and returns the best of them. */
static void check_every_max_eval(const char *name)
{
  const reference_nm *ref = find_case(name);
  mill_nm_options options = options_of(ref);
  /* at the limit ref->n_eval the simplex converges too; the status is LIMIT, as in SciPy */
  for (int limit = 1; limit <= ref->n_eval; ++limit) {
    mill_nm nm;
    double lowest = MILL_NM_HUGE, f_best = NAN;
    int status = MILL_NM_GO, n_eval = 0;
    options.max_eval = limit;
    mill_nm_start(&nm, ref->n, ref->simplex0, &options);
    while (status == MILL_NM_GO) {
      const double *x = mill_nm_ask(&nm);
      const double f = value_of(ref, x);
      assert_memory_equal(x, ref->points + n_eval * ref->n, (size_t)ref->n * sizeof *x);
      if (f > -MILL_NM_HUGE && f < lowest)
        lowest = f;
      status = mill_nm_tell(&nm, f);
      ++n_eval;
      const double *best = mill_nm_best(&nm, &f_best);
      if (!(f_best == lowest))
        fail_msg("%s, limit %d: best %a after %d evaluations, lowest value was %a", name, limit,
                 f_best, n_eval, lowest);
      if (lowest < MILL_NM_HUGE)
        assert_true(value_of(ref, best) == f_best);
    }
    assert_int_equal(status, MILL_NM_LIMIT);
    assert_int_equal(n_eval, limit);
    assert_int_equal(nm.n_eval, limit);
  }
}

MILL_TEST(max_eval_is_exact)
{
  check_every_max_eval("rosenbrock_2_skewed"); /* expansions, both contractions */
  check_every_max_eval("plateau_3");           /* shrinks, ties */
  check_every_max_eval("broken_2");            /* values that are not finite */
}

MILL_TEST(unusable_values_are_never_best)
{
  const double simplex0[] = {1.0, 2.0, 3.0};
  const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 1e301, -1e301, DBL_MAX};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    mill_nm nm;
    double f = NAN;
    mill_nm_start(&nm, 1, simplex0, &plain);
    assert_int_equal(mill_nm_tell(&nm, bad[i]), MILL_NM_GO);
    mill_nm_best(&nm, &f);
    assert_true(f == MILL_NM_HUGE);
    assert_int_equal(mill_nm_tell(&nm, 5.0), MILL_NM_GO);
    assert_true(*mill_nm_best(&nm, &f) == 2.0);
    assert_true(f == 5.0);
    /* the finite vertex has become the first: the reflection starts from it */
    assert_true(*mill_nm_ask(&nm) == 3.0);
    assert_int_equal(mill_nm_tell(&nm, bad[i]), MILL_NM_GO);
    assert_true(*mill_nm_best(&nm, &f) == 2.0);
    assert_int_equal(nm.state, MILL_NM_CONTRACT_IN);
  }
}

MILL_TEST(no_finite_value_ends_and_says_so)
{
  const double simplex0[] = {0.0, 0.0, 1.0, 0.0, 0.0, 1.0};
  mill_nm nm;
  double f = NAN;
  mill_nm_start(&nm, 2, simplex0, &plain);
  mill_nm_best(&nm, &f);
  assert_true(f == MILL_NM_HUGE);
  while (mill_nm_tell(&nm, (double)NAN * mill_nm_ask(&nm)[0]) == MILL_NM_GO)
    ;
  mill_nm_best(&nm, &f);
  assert_true(f == MILL_NM_HUGE);
}

MILL_TEST(an_axis_aligned_simplex_moves_one_coordinate_of_each_vertex)
{
  const double x0[] = {5.0, -3.0, 1e6}, step[] = {1e-3, -2.0, 1e4};
  double simplex0[12];
  mill_nm_simplex(3, x0, step, simplex0);
  for (int i = 0; i < 12; ++i)
    assert_close(simplex0[i], x0[i % 3] + (i / 3 == i % 3 + 1 ? step[i % 3] : 0), 0.0);
}

MILL_TEST_MAIN(NULL, NULL)
