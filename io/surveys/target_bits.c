/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/surveys/target_bits.h"

#include "io/surveys/selection.h"

/* A line of `table`: a column of target bits, or a bit of the nearest column above. */
typedef struct line {
  int bit; /* -1: a column */
  const char *name;
} line;

#define COLUMN(name)   {-1, name},
#define BIT(bit, name) {bit, name},
static const line table[] = {
#include "io/surveys/target_bits.inc"
};
#undef COLUMN
#undef BIT

enum { N_LINE = sizeof table / sizeof table[0] };

/* Index in table of column i; N_LINE: no such column. */
static int find_column(int i)
{
  int at = 0;
  for (; at < N_LINE; at++)
    if (table[at].bit < 0 && i-- == 0)
      break;
  return at;
}

const char *mill_target_column(int i)
{
  const int at = find_column(i);
  return at < N_LINE ? table[at].name : NULL;
}

int mill_target_bits(const mill_selection *select, int i, uint64_t *bits)
{
  MILL_AT_END(mill_class_patterns_free_at) mill_class_patterns *patterns = NULL;
  *bits = 0;
  MILL_CHECK(mill_class_patterns_make(select, &patterns));
  for (int at = find_column(i) + 1; at < N_LINE && table[at].bit >= 0; at++)
    if (mill_class_matches(patterns, table[at].name))
      *bits |= UINT64_C(1) << table[at].bit;
  return MILL_OK;
}

int mill_target_bits_check(const mill_selection *select, const char *path)
{
  int matched = 0;
  MILL_AT_END(mill_class_patterns_free_at) mill_class_patterns *patterns = NULL;
  MILL_CHECK(mill_class_patterns_make(select, &patterns));
  for (int at = 0; at < N_LINE; at++)
    if (table[at].bit >= 0) /* else the line is a column */
      matched |= mill_class_matches(patterns, table[at].name);
  for (int i = 0; i < select->n_target_class; i++)
    if (!(matched >> i & 1))
      return MILL_ERROR(MILL_ERR_INPUT,
                        "%s: target_classes: no target bit of DESI begins with '%s'; give the "
                        "beginning of names such as MWS_ANY, STD_BRIGHT",
                        path, select->target_class[i]);
  return MILL_OK;
}
