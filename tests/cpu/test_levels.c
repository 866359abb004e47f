/* SPDX-License-Identifier: BSD-3-Clause */
/* The CPU backend of each instruction set here passes the tests of tests/conformance/. */
#include "tests/mill_test.h"

#define CONFORMANCE_STARS 14
#define CONFORMANCE_SLOTS 1, 7
#include "tests/conformance/survey.h"

MILL_TEST(every_branch_equals_the_cpu_for_other_emulators)
{
  check_branches(MILL_FLOAT64, MILL_EMULATOR_GRID);
  check_branches(MILL_FLOAT64, MILL_EMULATOR_RBF);
}

int main(void)
{
  static const char *const level[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4", "generic"};
  int n_failed = 0, n_level = 0;
  for (size_t i = 0; i < sizeof level / sizeof *level; i++) {
    tested = mill_backend_cpu(level[i]);
    if (!tested)
      continue;
    n_level++;
    printf("level %s\n", level[i]);
    n_failed += MILL_RUN_TESTS(survey_make, clean_up);
  }
  return n_level > 0 ? n_failed : 1;
}
