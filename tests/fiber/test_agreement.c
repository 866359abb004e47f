/* The whole fit run as fibers: any number of them, in any order, gives what the
 * plain build gives. */
#include "tests/mill_test.h"

#include "tests/fiber/fiber_backend.h"

static work_input in;

static void compare_eval(const mill_eval *a, const mill_eval *b, double tolerance)
{
  assert_close(a->f, b->f, tolerance * 10 + tolerance * fabs(b->f));
  for (int j = 0; j < WORK_PAR; j++) {
    const double unit = sqrt(b->hess[j * WORK_PAR + j]) + 1e-300;
    assert_close(a->grad[j] / unit, b->grad[j] / unit,
                 tolerance * 100 * (1 + fabs(b->grad[j]) / unit));
    for (int k = 0; k < WORK_PAR; k++) {
      const double size = sqrt(b->hess[j * WORK_PAR + j] * b->hess[k * WORK_PAR + k]);
      assert_close(a->hess[j * WORK_PAR + k], b->hess[j * WORK_PAR + k], tolerance * 100 * size);
    }
  }
  for (int i = 0; i < in.lib.n_arm; i++) {
    assert_close(a->chisq[i], b->chisq[i], 10 * tolerance * (1 + b->chisq[i]));
    assert_close(a->chisq_c[i], b->chisq_c[i], 10 * tolerance * (1 + b->chisq_c[i]));
  }
  assert_close(a->max_resid2, b->max_resid2, 10 * tolerance * (1 + b->max_resid2));
  assert_close(a->negative, b->negative, 10 * tolerance * (1 + b->negative));
}

static void compare(const work_output *a, const work_output *b, double tolerance)
{
  assert_true(isinf(a->thin.f) && isinf(b->thin.f));
  for (int i = 0; i < 4; i++)
    compare_eval(&a->eval[i], &b->eval[i], tolerance);
  for (int i = 0; i < WORK_STARS; i++) {
    const mill_fit_result *x = &a->result[i], *y = &b->result[i];
    assert_int_equal(x->status, y->status);
    assert_int_equal(x->warn, y->warn);
    assert_int_equal(x->info, y->info);
    assert_int_equal(x->n_pix_tot, y->n_pix_tot);
    assert_close(x->vrad_guess_km_s, y->vrad_guess_km_s, 1e-2);
    /* the polish stops within 1e-3 of the minimum on either path */
    assert_close(x->m2ll, y->m2ll, 2e-3);
    for (int j = 0; j < WORK_PAR; j++) {
      assert_close(made_par(x, j), made_par(y, j), 0.03 * made_err(y, j));
      assert_close(made_err(x, j), made_err(y, j), 0.01 * made_err(y, j));
    }
    for (int s = 0; s < in.star[i].n_segment; s++)
      for (int p = 0; p < in.star[i].segment[s].n_pix; p++) {
        const int at = (i * MADE_MAX_SEG + s) * MADE_MAX_PIX + p;
        assert_close((double)a->model[at], (double)b->model[at], 0.02);
      }
  }
}

static void agree(int precision, int kind)
{
  static const int n_fiber[4] = {1, 2, 5, 13};
  static work_output plain, first, again;
  work_make(&in, kind);
  work_run(mill_backend_cpu(NULL), &in, precision, &plain);
  for (int i = 0; i < WORK_STARS; i++)
    assert_int_equal(plain.result[i].status, MILL_STATUS_FITTED);
  for (int n = 0; n < 4; n++) {
    mill_fiber_configure(n_fiber[n], 1);
    work_run(&mill_backend_cpu_fiber, &in, precision, &first);
    /* float64: sums in another order, of 500 terms; float32: templates rounded at
     * other places where one build fuses products, 6e-8 of 40 sigma a pixel */
    compare(&first, &plain, precision == MILL_FLOAT64 ? 1e-11 : 1e-6);
    for (unsigned seed = 3; seed < 9; seed += 2) {
      mill_fiber_configure(n_fiber[n], seed * 7919);
      work_run(&mill_backend_cpu_fiber, &in, precision, &again);
      /* the order of fibers between barriers decides nothing: not one bit */
      if (memcmp(&first, &again, sizeof first) != 0)
        fail_msg("%d fibers: seed %u gives another result: a barrier is missing", n_fiber[n],
                 seed * 7919);
    }
  }
  mill_library_clear(&in.lib);
}

static void test_fibers_agree_with_the_plain_build_in_float32(void **state)
{
  (void)state;
  agree(MILL_FLOAT32, MILL_EMULATOR_MLP);
}

static void test_fibers_agree_with_the_plain_build_in_float64(void **state)
{
  (void)state;
  agree(MILL_FLOAT64, MILL_EMULATOR_MLP);
}

static void test_fibers_agree_with_the_plain_build_for_grids(void **state)
{
  (void)state;
  agree(MILL_FLOAT64, MILL_EMULATOR_GRID);
}

static void test_fibers_agree_with_the_plain_build_for_radial_functions(void **state)
{
  (void)state;
  agree(MILL_FLOAT64, MILL_EMULATOR_RBF);
}

int main(void)
{
  printf("seed %d\n", WORK_SEED);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fibers_agree_with_the_plain_build_in_float32),
      cmocka_unit_test(test_fibers_agree_with_the_plain_build_in_float64),
      cmocka_unit_test(test_fibers_agree_with_the_plain_build_for_grids),
      cmocka_unit_test(test_fibers_agree_with_the_plain_build_for_radial_functions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
