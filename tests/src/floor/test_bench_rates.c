/* SPDX-License-Identifier: BSD-3-Clause */
/* Rates of the machine: what is measured, what is left out, what is kept.  No figure of a
 * machine is asserted, only that it is one. */
#include "tests/mill_test.h"

#include "kernels/base/error.h"
#include "src/floor/bench_rates.h"

static int is_rate(double x)
{
  return isfinite(x) && x > 0.0;
}

MILL_TEST(measured_rates)
{
  /* a better rate than any machine has is kept, a worse one replaced */
  mill_bench_rates rates = {.f32_gflop_s = 1e9, .copy_cache_gbyte_s = 1e-9};
  assert_int_equal(mill_bench_rates_measure(&rates), MILL_OK);
  assert_true(rates.f32_gflop_s == 1e9);
  assert_true(rates.copy_cache_gbyte_s > 1e-9);
  assert_true(is_rate(rates.f64_gflop_s) && is_rate(rates.copy_memory_gbyte_s));
  assert_true(rates.copy_memory_bytes > 8 * rates.copy_cache_bytes);
  assert_true(rates.l2_bytes == 0 || 2 * rates.copy_cache_bytes <= rates.l2_bytes);
  assert_true(rates.read_gbyte_s == 0);
}

MILL_TEST(reading)
{
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
  assert_fails(mill_bench_rates_read(2, both, &rates), MILL_ERR_INPUT, missing);
  unlink(path);
}

MILL_TEST_MAIN(NULL, NULL)
