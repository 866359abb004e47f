/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/mill_test.h"

#include "io/surveys/selection.h"
#include "io/surveys/target_bits.h"
#include "kernels/base/error.h"

static mill_selection classes(const char *first, const char *second)
{
  mill_selection select = {.n_target_class = second ? 2 : 1};
  snprintf(select.target_class[0], sizeof select.target_class[0], "%s", first);
  if (second)
    snprintf(select.target_class[1], sizeof select.target_class[1], "%s", second);
  return select;
}

static uint64_t bits_of(const mill_selection *select, const char *column)
{
  uint64_t bits;
  for (int i = 0; mill_target_column(i); i++)
    if (strcmp(mill_target_column(i), column) == 0) {
      assert_int_equal(mill_target_bits(select, i, &bits), MILL_OK);
      return bits;
    }
  fail_msg("no column %s", column);
  return 0;
}

#define BIT(n) (UINT64_C(1) << (n))

/* Numbers as desitarget's targetmask.yaml of each survey has them. */
MILL_TEST(bits_by_name)
{
  /* rvspecfit's command for DR1 */
  mill_selection select = classes("SCND_ANY", "STD_*");
  assert_true(bits_of(&select, "DESI_TARGET") == (BIT(62) | BIT(33) | BIT(34) | BIT(35)));
  assert_true(bits_of(&select, "SV1_DESI_TARGET") == (BIT(62) | BIT(33) | BIT(34) | BIT(35)));
  assert_true(bits_of(&select, "MWS_TARGET") == 0);
  assert_true(bits_of(&select, "SCND_TARGET") == 0);
  select = classes("MWS_ANY$", NULL);
  assert_true(bits_of(&select, "SV3_DESI_TARGET") == BIT(61));
  select = classes("MWS_BHB", "GAIA_STD");
  assert_true(bits_of(&select, "MWS_TARGET") == (BIT(6) | BIT(33) | BIT(34) | BIT(35)));
  assert_true(bits_of(&select, "SV1_MWS_TARGET") == (BIT(6) | BIT(33) | BIT(34) | BIT(35)));
  assert_true(bits_of(&select, "DESI_TARGET") == 0);
}

MILL_TEST(a_class_that_no_survey_has)
{
  mill_selection select = classes("MWS_ANY", "STD_WD");
  assert_int_equal(mill_target_bits_check(&select, "x.fits"), MILL_OK);
  select = classes("MWS_ANY", "ANY");
  assert_fails(mill_target_bits_check(&select, "x.fits"), MILL_ERR_INPUT, "x.fits: target_classes");
  assert_says("'ANY'");
}

MILL_TEST(names_match_at_their_beginning)
{
  static const struct {
    const char *pattern, *name;
    int matches;
  } tried[] = {{"GA_LR", "GA_LRdisc", 1},    {"LRdisc", "GA_LRdisc", 0},
               {".*disc", "GA_LRdisc", 1},   {"GA_LR$", "GA_LRdisc", 0},
               {"A|GA_LRd", "GA_LRdisc", 1}, {"A|B", "GA_LRdisc", 0},
               {"GA_[HL]R", "GA_LRdisc", 1}, {"ga", "GA_LRdisc", 0},
               {"STD_*", "STD", 1},          {"STD_+", "STD", 0}};
  for (size_t i = 0; i < sizeof tried / sizeof tried[0]; i++) {
    const mill_selection select = classes(tried[i].pattern, NULL);
    mill_class_patterns *patterns;
    assert_int_equal(mill_class_patterns_make(&select, &patterns), MILL_OK);
    if (mill_class_matches(patterns, tried[i].name) != tried[i].matches)
      fail_msg("%s and %s", tried[i].pattern, tried[i].name);
    mill_class_patterns_free(patterns);
  }
  mill_class_patterns *patterns;
  const mill_selection select = classes("STD", "a(b");
  assert_int_equal(mill_class_patterns_make(&select, &patterns), MILL_ERR_CONFIG);
  assert_null(patterns);
}

MILL_TEST_MAIN(NULL, NULL)
