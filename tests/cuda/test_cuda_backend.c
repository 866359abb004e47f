/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests of the CUDA backend: those of every backend (tests/conformance/survey.h), and tests of how
 * the host drives the device.
 *
 * Without a GPU or CUDA the tests are skipped, and the reason is printed.  If there is a simulator
 * of GPUs, it runs the same tests with fewer stars. */
#include "tests/mill_test.h"

#ifdef MILL_CUDA_SIMULATOR
#define CONFORMANCE_STARS 10 /* with all that are spoilt */
#else
#define CONFORMANCE_STARS 40
#endif
#define CONFORMANCE_SLOTS 1, 7
#include "tests/conformance/survey.h"
#include "kernels/gpu.h"

static int set_up(void **state)
{
  survey_make(state);
#ifdef MILL_CUDA_SIMULATOR
  data.set.max_starts = 1;
  n_few = 3;
#endif
  /* other exp and log, too */
  branch_float32 = 1e-5;
  branch_float64 = 1e-9;
  printf("%s\n", tested->name);
  return 0;
}

/** This and the next test check how the host drives the device; a few stars suffice. */
MILL_TEST(plain_launches_change_no_bit)
{
  n_fit = n_few;
  setenv("MILL_CUDA_GRAPH", "0", 1);
  expect(&by_batch, N_STAR);
  n_fit = N_STAR;
}

MILL_TEST(unknown_switches_are_refused)
{
  mill_device *device = NULL;
  setenv("MILL_CUDA_GRAPH", "yes", 1);
  assert_int_equal(tested->open(1, &device), MILL_ERR_CONFIG);
  unsetenv("MILL_CUDA_GRAPH");
  assert_null(device);
}

int main(void)
{
  tested = mill_backend_cuda(NULL);
  if (!tested) {
    printf("SKIPPED: %s\n", mill_error_message());
    return 77;
  }
  return MILL_RUN_TESTS(set_up, clean_up);
}
