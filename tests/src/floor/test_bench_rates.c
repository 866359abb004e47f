/* Rates of the machine: what is measured, what is left out, what is kept.  No figure of a
 * machine is asserted, only that it is one. */
#include "tests/mill_test.h"

#include <string.h>

#include "kernels/base/error.h"
#include "src/floor/bench_rates.h"
#include "kernels/base/clock.h"
#include "src/system/blas_threads.h"
#include "tests/test_library.h"

static int is_rate(double x)
{
  return isfinite(x) && x > 0.0;
}

static void test_measured_rates(void **state)
{
  (void)state;
  mill_library lib;
  mill_bench_rates rates;
  memset(&lib, 0, sizeof lib);
  memset(&rates, 0, sizeof rates);
  assert_int_equal(mill_bench_rates_measure(NULL, 64, &rates), MILL_OK);
  assert_true(is_rate(rates.sgemm_square.gflop_s) && is_rate(rates.dgemm_square.gflop_s));
  assert_true(is_rate(rates.copy_cache_gbyte_s) && is_rate(rates.copy_memory_gbyte_s));
  assert_true(rates.copy_memory_bytes > 8 * rates.copy_cache_bytes);
  assert_true(rates.l2_bytes == 0 || 2 * rates.copy_cache_bytes <= rates.l2_bytes);
  assert_true(rates.sgemm_last.gflop_s == 0 && rates.dgemm_hidden.gflop_s == 0);
  assert_true(rates.read_gbyte_s == 0);
  assert_true(mill_bench_f32_gflop_s(&rates) == rates.sgemm_square.gflop_s);

  /* a better rate than any machine has is kept, a worse one replaced */
  assert_int_equal(test_library_make(3, 2, 1, &lib), MILL_OK);
  rates.sgemm_square.gflop_s = 1e9;
  rates.copy_cache_gbyte_s = 1e-9;
  assert_int_equal(mill_bench_rates_measure(&lib, 5, &rates), MILL_OK);
  assert_true(rates.sgemm_square.gflop_s == 1e9);
  assert_true(rates.copy_cache_gbyte_s > 1e-9);
  /* layers 3 - 12 - 9 - pixels; the second arm has 437 of them */
  assert_true(is_rate(rates.sgemm_last.gflop_s) && is_rate(rates.dgemm_hidden.gflop_s));
  assert_int_equal(rates.sgemm_last.m, 5);
  assert_int_equal(rates.sgemm_last.k, 9);
  assert_int_equal(rates.sgemm_last.n, 437);
  assert_int_equal(rates.dgemm_hidden.k, 12);
  assert_int_equal(rates.dgemm_hidden.n, 9);
  mill_library_clear(&lib);
}

static void test_rate_of_threads(void **state)
{
  (void)state;
  mill_gemm_rate rate = {0};
  int n_blas = 0;
  assert_int_equal(mill_blas_begin(2, &n_blas), MILL_OK);
  assert_int_equal(mill_bench_rates_threads(2, &rate), MILL_OK);
  assert_true(is_rate(rate.gflop_s) && rate.m > 0 && rate.m == rate.k && rate.m == rate.n);
  rate.gflop_s = 1e9; /* better than any machine's */
  assert_int_equal(mill_bench_rates_threads(1, &rate), MILL_OK);
  assert_true(rate.gflop_s == 1e9);
  mill_blas_end(n_blas);
}

static void test_reading(void **state)
{
  (void)state;
  mill_bench_rates rates;
  char path[] = "/tmp/starmill-test-XXXXXX", missing[] = "/tmp/starmill-test-none/none.fits";
  char block[65536];
  const char *const both[] = {path, missing}, *const one[] = {path};
  const int file = mkstemp(path);
  assert_true(file >= 0);
  memset(&rates, 0, sizeof rates);
  assert_int_equal(mill_bench_rates_read(1, one, &rates), MILL_OK); /* still empty */
  assert_true(rates.read_gbyte_s == 0);
  memset(block, 7, sizeof block);
  for (int i = 0; i < 40; i++)
    assert_int_equal(write(file, block, sizeof block), sizeof block);
  close(file);
  assert_int_equal(mill_bench_rates_read(1, one, &rates), MILL_OK);
  assert_true(is_rate(rates.read_gbyte_s));
  assert_int_equal(mill_bench_rates_read(2, both, &rates), MILL_ERR_INPUT);
  assert_non_null(strstr(mill_error_message(), missing));
  unlink(path);
}

static void test_clocks(void **state)
{
  (void)state;
  const double thread = mill_thread_cpu_s(), process = mill_process_cpu_s(), wall = mill_wall_s();
  double sum = 0;
  for (int i = 1; i < 3000000; i++)
    sum += 1.0 / i;
  assert_true(sum > 1); /* and so was computed */
  const double spent = mill_thread_cpu_s() - thread;
  assert_true(spent > 0);
  /* the process has this thread's time too */
  assert_true(mill_process_cpu_s() - process > 0.5 * spent);
  assert_true(mill_wall_s() > wall);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_measured_rates),
      cmocka_unit_test(test_rate_of_threads),
      cmocka_unit_test(test_reading),
      cmocka_unit_test(test_clocks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
