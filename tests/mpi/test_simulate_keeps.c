/* SPDX-License-Identifier: BSD-3-Clause */
/* What cannot be simulated costs no survey that is there: the job itself, told to overwrite,
 * with a library whose arms are too short. */
#include "tests/mill_test.h"

#include <string.h>

#include "io/library/library_file.h"
#include "jobs/simulate/simulate.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "tests/test_library.h"

static void test_survey_outlives_a_library_that_does_not_do(void **state)
{
  (void)state;
  /* every rank has a folder of its own: the job must end before it looks into any */
  char folder[] = "/tmp/starmill-simulate.XXXXXX", path[100], truth[100];
  char job[] = "simulate", stars[] = "--stars=3", overwrite[] = "--overwrite";
  char library[120], output[120];
  char *argv[] = {job, stars, overwrite, library, output, NULL};
  mill_library *lib = NULL;
  if (!mkdtemp(folder))
    fail_msg("%s cannot be made", folder);
  snprintf(path, sizeof path, "%s/lib.h5", folder);
  snprintf(truth, sizeof truth, "%s/truth.fits", folder);
  snprintf(library, sizeof library, "--library=%s", path);
  snprintf(output, sizeof output, "--output=%s", folder);
  assert_int_equal(MILL_ALLOC(1, &lib), MILL_OK);
  assert_int_equal(test_library_make(3, 3, 1, lib), MILL_OK);
  if (mill_library_write(path, lib, 0) != MILL_OK)
    fail_msg("%s", mill_error_message());
  mill_library_clear(lib);
  mill_free(lib);
  FILE *file = fopen(truth, "w");
  assert_non_null(file);
  assert_int_equal(fclose(file), 0);

  assert_int_equal(mill_job_simulate(5, argv), 2); /* bad library */

  assert_int_equal(access(truth, F_OK), 0);
  assert_int_equal(unlink(truth), 0);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(rmdir(folder), 0); /* and nothing else was made there */
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_survey_outlives_a_library_that_does_not_do),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
