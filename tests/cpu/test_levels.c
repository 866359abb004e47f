/* Every instruction set's CPU backend that runs here: what every backend must do
 * (tests/conformance/). */
#include "tests/mill_test.h"

#define CONFORMANCE_STARS 14
#define CONFORMANCE_SLOTS                                                                          \
  {                                                                                                \
    1, 7                                                                                           \
  }
#include "tests/conformance/survey.h"

static int set_up(void **state)
{
  (void)state;
  survey_make();
  return 0;
}

int main(void)
{
  static const char *const level[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4", "generic"};
  const struct CMUnitTest tests[] = {
      CONFORMANCE_TESTS,
      cmocka_unit_test(test_pieces_come_as_they_were_when_sent),
      cmocka_unit_test(test_wide_layers_equal_the_cpu),
      cmocka_unit_test(test_other_emulators_equal_the_cpu_and_do_not_depend_on_the_batch),
      cmocka_unit_test(test_every_branch_equals_the_cpu_for_other_emulators),
  };
  int n_failed = 0, n_level = 0;
  for (size_t i = 0; i < sizeof level / sizeof *level; i++) {
    tested = mill_backend_cpu(level[i]);
    if (!tested)
      continue;
    n_level++;
    n_failed += cmocka_run_group_tests_name(level[i], tests, set_up, clean_up);
  }
  return n_level > 0 ? n_failed : 1;
}
