/* SPDX-License-Identifier: BSD-3-Clause */
/* Labels in the names of files. */
#include "tests/mill_test.h"

#include "io/library/name_pattern.h"
#include "kernels/base/error.h"

static const char label[3][MILL_MAX_NAME] = {"teff", "logg", "feh"};

MILL_TEST(names_of_grids)
{
  static const struct {
    const char *pattern, *name;
    double value[3];
  } good[] = {
      {"t{teff}g{logg}z{feh}.fits", "t5000g4.5z-0.5.fits", {5000, 4.5, -0.5}},
      {"lte{teff}-{logg}{feh}.PHOENIX*.fits",
       "lte05800-4.50-0.0.PHOENIX-ACES-AGSS.fits",
       {5800, 4.5, -0.0}},
      {"*{feh}_t{teff}_g{logg/10}*", "am{p05}m2.5_t05000_g45_x.fits", {5000, 4.5, -2.5}},
      {"*z{feh}t{teff}g{logg}", "zz-1zp0.25t4000g+1", {4000, 1, 0.25}},
      {"t{teff}g{logg}z{feh}.fits", "t5000g4z1.fits", {5000, 4, 1}},
  };
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    double value[3] = {NAN, NAN, NAN};
    if (!mill_name_pattern_match(good[i].pattern, good[i].name, 3, label, value))
      fail_msg("%s does not match %s", good[i].pattern, good[i].name);
    for (int l = 0; l < 3; l++)
      assert_close(value[l], good[i].value[l], 1e-12);
  }
}

MILL_TEST(other_names_do_not_match)
{
  static const char *const bad[] = {"t5000g4.5z-0.5.fit",  "t5000g4.5z-0.5.fitsx",
                                    "t5000g4.5z.fits",     "x5000g4.5z-0.5.fits",
                                    "t5000g4.5z-0.5",      "",
                                    "t5000g--4.5z0.5.fits"};
  double value[3];
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    if (mill_name_pattern_match("t{teff}g{logg}z{feh}.fits", bad[i], 3, label, value))
      fail_msg("%s matches", bad[i]);
}

static void refused(const char *pattern, const char *word)
{
  assert_fails(mill_name_pattern_check(pattern, 3, label), MILL_ERR_USAGE, word);
}

MILL_TEST(patterns_are_checked)
{
  assert_int_equal(mill_name_pattern_check("{teff}*{logg/10}{feh}", 3, label), MILL_OK);
  refused("t{teff}g{logg}", "has no {feh}");
  refused("t{teff}g{logg}z{feh}a{alpha}", "'{alpha}'");
  refused("t{teff}g{teff}z{feh}", "twice");
  refused("t{teff}g{logg/0}z{feh}", "{logg/0}");
  refused("t{teff}g{logg}z{feh", "'{feh'");
}

MILL_TEST_MAIN(NULL, NULL)
