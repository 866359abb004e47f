/* The row of a star that was not fitted. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "kernels/data/result.h"
#include "tests/mill_test.h"

static mill_library lib = {.n_label = 3, .n_arm = 2};

static void test_values_that_do_not_exist_are_missing(void **state)
{
  (void)state;
  mill_fit_result result;
  memset(&result, 0x5a, sizeof result);
  mill_fit_result_init(&result, &lib, 17, MILL_STATUS_UNREADABLE);
  assert_int_equal(result.row, 17);
  assert_int_equal(result.status, MILL_STATUS_UNREADABLE);
  assert_int_equal(result.n_label, 3);
  const double missing[] = {
      result.vrad_km_s,
      result.vrad_err_km_s,
      result.vrad_skew,
      result.vrad_kurt,
      result.vsini_km_s,
      result.vsini_err_km_s,
      result.vrad_guess_km_s,
      result.m2ll,
      result.hull_dist,
      result.chisq_tot,
      result.chisq_c_tot,
      result.label[0],
      result.label[2],
      result.label_err[2],
      result.chisq[1],
      result.chisq_c[1],
      result.covar[0],
      result.covar[14],
      result.rchisq_tot,
      result.rchisq[1],
      result.err_scale,
      result.stiff[1],
      result.vrad_arm_km_s[1],
      result.vrad_err_formal_km_s,
      result.vsini_err_formal_km_s,
      result.label_err_formal[2],
      result.vrad_arm_err_km_s[1],
  };
  for (size_t i = 0; i < sizeof missing / sizeof missing[0]; i++)
    assert_true(isnan(missing[i]));
  assert_close(result.sn[0], -1e9, 0);
  assert_close(result.sn[1], -1e9, 0);
  assert_int_equal(result.n_pix_tot, 0);
  assert_int_equal(result.n_pix[1], 0);
  assert_int_equal(result.n_eval, 0);
  /* what the library lacks stays zero, so that equal rows are equal bytes */
  assert_close(result.label[3], 0, 0);
  assert_close(result.covar[15], 0, 0);
  assert_close(result.sn[2], 0, 0);
}

static void test_only_reasons_not_to_fit_are_warnings(void **state)
{
  (void)state;
  for (int status = 0; status < MILL_N_STATUS; status++) {
    mill_fit_result result;
    mill_fit_result_init(&result, &lib, 0, status);
    assert_int_equal(result.warn, status > MILL_STATUS_FITTED ? MILL_WARN_BAD_SPECTRUM : 0);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_values_that_do_not_exist_are_missing),
      cmocka_unit_test(test_only_reasons_not_to_fit_are_warnings),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
