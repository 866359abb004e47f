/* SPDX-License-Identifier: BSD-3-Clause */
/* The fiber build passes the tests of tests/conformance/; any number of fibers in any order gives
 * the results of the plain build. */
#include "tests/mill_test.h"

#define CONFORMANCE_STARS 14
#define CONFORMANCE_SLOTS 5
#include "tests/conformance/survey.h"
#include "tests/fiber/fiber.h"

static int set_up(void **state)
{
  mill_fiber_configure(7, 1);
  survey_make(state);
  tested = &mill_backend_cpu_fiber;
  return 0;
}

static void agree(int precision, int kind)
{
  static const int n_fiber[4] = {1, 2, 5, 13};
  static work_input in;
  static work_output plain, first, again;
  work_expected(&in, precision, kind, &plain);
  for (int n = 0; n < 4; n++) {
    mill_fiber_configure(n_fiber[n], 1);
    work_run(&mill_backend_cpu_fiber, &in, precision, &first);
    work_compare(&in, &first, &plain, precision == MILL_FLOAT64 ? branch_float64 : branch_float32);
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

MILL_TEST(fibers_agree_with_the_plain_build)
{
  agree(MILL_FLOAT32, MILL_EMULATOR_MLP);
  agree(MILL_FLOAT64, MILL_EMULATOR_MLP);
  agree(MILL_FLOAT64, MILL_EMULATOR_GRID);
  agree(MILL_FLOAT64, MILL_EMULATOR_RBF);
}

MILL_SEEDED_TEST_MAIN(WORK_SEED, set_up, clean_up)
