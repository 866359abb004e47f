/** What the tests of single formats share: a sample, changed and read. */
#ifndef MILL_TEST_SURVEYS_FIXTURE_H
#define MILL_TEST_SURVEYS_FIXTURE_H

#include "tests/io/surveys/samples.h"

static one_format one;
static sample s;

static inline int begin(void **state)
{
  (void)state;
  one_begin(&one, &mill_format_generic, 1);
  one.config.select.fiberstatus_allowed = UINT64_MAX;
  return 0;
}

static inline int end(void **state)
{
  (void)state;
  recipe_clear(&s.file);
  one_end(&one);
  return 0;
}

/** A new sample, changed by edits that follow one another with ';'. */
static inline void draw_sample(int kind, uint64_t seed, const char *edits)
{
  char edit[256];
  recipe_clear(&s.file);
  sample_draw(&s, kind, seed);
  for (; *edits; edits += strcspn(edits, ";") + (strchr(edits, ';') != NULL)) {
    snprintf(edit, sizeof edit, "%.*s", (int)strcspn(edits, ";"), edits);
    recipe_edit(&s.file, edit);
  }
  one.format = sample_kinds[kind].format;
  for (int a = 0; a < ONE_N_ARM; a++)
    one.lib.arm[a].template_sigma_aa = sample_kinds[kind].has_lsf ? 0.0 : -1.0;
}

/** The same at one.path. */
static inline void write_sample(int kind, uint64_t seed, const char *edits)
{
  draw_sample(kind, seed, edits);
  recipe_save(&s.file, one.path);
}

static inline one_file read_sample(int kind, const char *edits)
{
  write_sample(kind, 1, edits);
  return one_file_open(&one, one.path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

#endif
