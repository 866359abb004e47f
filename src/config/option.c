/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/config/option.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/error.h"
#include "src/config/text.h"

static int has_range(const mill_option *row)
{
  return row->min != 0 || row->max != 0;
}

const char *mill_option_takes(const mill_option *row, char out[256])
{
  char list[128], min[32], max[32], range[80] = "";
  if (row->max == INFINITY || row->max == DBL_MAX)
    snprintf(range, sizeof range,
             row->min == MILL_ABOVE_0 ? " above 0"
             : row->min == 0          ? ", 0 or more"
                                      : "");
  else if (row->min == MILL_ABOVE_0)
    snprintf(range, sizeof range, " above 0, up to %s", mill_text_of_real(row->max, max));
  else if (has_range(row))
    snprintf(range, sizeof range, " from %s to %s", mill_text_of_real(row->min, min),
             mill_text_of_real(row->max, max));
  switch (row->kind) {
  case MILL_OPTION_WORD:
  case MILL_OPTION_CHOICE:
    snprintf(out, 256, "%s", mill_text_of_words(row->words, list));
    break;
  case MILL_OPTION_COUNT:
  case MILL_OPTION_INTEGER:
    snprintf(out, 256, "an integer%s", range);
    break;
  case MILL_OPTION_SEED:
    snprintf(out, 256, "an integer from 0 to %llu", (unsigned long long)UINT64_MAX);
    break;
  case MILL_OPTION_REAL:
    snprintf(out, 256, "a number%s%s%s", range, row->without ? " or " : "",
             row->without ? row->without : "");
    break;
  case MILL_OPTION_PAIR:
    snprintf(out, 256, "%s, two numbers%s", row->argument, range);
    break;
  case MILL_OPTION_NAMES:
    snprintf(out, 256, "up to %.0f names of 1 to %zu characters separated by commas", row->max,
             row->size - 1);
    break;
  default:
    snprintf(out, 256, "a text of 1 to %zu characters", row->size - 1);
  }
  return out;
}

static int read_integer(const char *text, double min, double max, long long *value)
{
  char *end = NULL;
  errno = 0;
  *value = strtoll(text, &end, 10);
  const double v = (double)*value;
  return end != text && *end == '\0' && errno != ERANGE &&
         ((min == 0 && max == 0) || (v >= min && v <= max));
}

static int read_seed(const char *text, uint64_t *value)
{
  char *end = NULL;
  errno = 0;
  *value = strtoull(text, &end, 10);
  /* strtoull would accept a minus sign and wrap around */
  return isdigit((unsigned char)text[0]) && *end == '\0' && errno != ERANGE;
}

static int read_real(const mill_option *row, const char *text, double *value)
{
  if (row->without && strcmp(text, row->without) == 0) {
    *value = -INFINITY;
    return 1;
  }
  return mill_text_to_real(text, value) && isfinite(*value) &&
         (!has_range(row) || (*value >= row->min && *value <= row->max));
}

/* Read FIRST,SECOND.  A row with limits (has_range) needs FIRST <= SECOND. */
static int read_pair(const mill_option *row, const char *text, double *first, double *second)
{
  char part[64];
  const size_t n = strcspn(text, ",");
  if (text[n] != ',' || n >= sizeof part)
    return 0;
  memcpy(part, text, n);
  part[n] = '\0';
  return read_real(row, part, first) && read_real(row, text + n + 1, second) &&
         (!has_range(row) || *first <= *second);
}

/* Split a text at its commas into names [row->max][row->size]; returns 0 if a name does not fit. */
static int read_names(const mill_option *row, const char *text, char *names, int *n_name)
{
  *n_name = 0;
  memset(names, 0, row->size * (size_t)row->max);
  for (const char *item = text;; item++) {
    const size_t n = strcspn(item, ",");
    if (n == 0 || n >= row->size || *n_name == (int)row->max)
      return 0;
    memcpy(names + row->size * (size_t)(*n_name)++, item, n);
    item += n;
    if (*item == '\0')
      return 1;
  }
}

int mill_option_word(const char *const *words, const char *text)
{
  for (int i = 0; words[i]; i++)
    if (strcmp(words[i], text) == 0)
      return i;
  return -1;
}

/* Store the value of text at `at`; at2 gets a pair's second number or a list's length.  Returns 0
 * if the row does not allow the text. */
static int read_value(const mill_option *row, const char *text, void *at, void *at2)
{
  long long n = 0;
  int i = 0;
  switch (row->kind) {
  case MILL_OPTION_WORD:
  case MILL_OPTION_PATH:
    if (row->kind == MILL_OPTION_WORD && mill_option_word(row->words, text) < 0)
      return 0;
    if (!*text || strlen(text) >= row->size)
      return 0;
    memset(at, 0, row->size);
    memcpy(at, text, strlen(text));
    return 1;
  case MILL_OPTION_CHOICE:
    i = mill_option_word(row->words, text);
    if (i >= 0)
      *(int *)at = i;
    return i >= 0;
  case MILL_OPTION_COUNT:
  case MILL_OPTION_INTEGER:
    if (!read_integer(text, row->min, row->max, &n))
      return 0;
    if (row->kind == MILL_OPTION_COUNT)
      *(int *)at = (int)n;
    else
      *(int64_t *)at = n;
    return 1;
  case MILL_OPTION_REAL:
    return read_real(row, text, at);
  case MILL_OPTION_PAIR:
    return read_pair(row, text, at, at2);
  case MILL_OPTION_SEED:
    return read_seed(text, at);
  case MILL_OPTION_NAMES:
    return read_names(row, text, at, at2);
  case MILL_OPTION_OTHER:
    return 1; /* Python parses the text */
  default:
    return 0;
  }
}

int mill_option_read(const mill_option *row, const char *option, const char *text, void *base)
{
  char takes[256];
  char *at = (char *)base + row->offset;
  if (row->kind == MILL_OPTION_FLAG)
    *(int *)(void *)at = 1;
  else if (row->kind == MILL_OPTION_TEXT)
    *(const char **)(void *)at = text;
  else if (row->kind == MILL_OPTION_OTHER && row->take)
    MILL_CHECK(row->take(row, text, base));
  else if (!read_value(row, text, at, (char *)base + row->offset2))
    return MILL_ERROR(MILL_ERR_USAGE, "--%s takes %s, not '%.80s'", option,
                      mill_option_takes(row, takes), text);
  return MILL_OK;
}

const char *mill_option_text(const mill_option *row, const void *base, char out[128])
{
  const char *at = (const char *)base + row->offset, *at2 = (const char *)base + row->offset2;
  char a[32], b[32];
  double x;
  int i;
  out[0] = '\0';
  switch (row->kind) {
  case MILL_OPTION_WORD:
    snprintf(out, 128, "%s", at);
    break;
  case MILL_OPTION_CHOICE:
    memcpy(&i, at, sizeof i);
    snprintf(out, 128, "%s", row->words[i]);
    break;
  case MILL_OPTION_COUNT:
    memcpy(&i, at, sizeof i);
    snprintf(out, 128, "%d", i);
    break;
  case MILL_OPTION_INTEGER:
  case MILL_OPTION_SEED: {
    int64_t n;
    memcpy(&n, at, sizeof n);
    snprintf(out, 128, "%lld", (long long)n);
    break;
  }
  case MILL_OPTION_REAL:
    memcpy(&x, at, sizeof x);
    if (isfinite(x) || row->without)
      snprintf(out, 128, "%s", isfinite(x) ? mill_text_of_real(x, a) : row->without);
    break;
  case MILL_OPTION_PAIR: {
    double y;
    memcpy(&x, at, sizeof x);
    memcpy(&y, at2, sizeof y);
    if (y > x && isfinite(y)) /* else unset */
      snprintf(out, 128, "%s,%s", mill_text_of_real(x, a), mill_text_of_real(y, b));
    break;
  }
  default:
    break;
  }
  return out;
}

const char *mill_option_shown(const mill_option *row, const void *base, char out[128])
{
  mill_option_text(row, base, out);
  if (strcmp(out, "0") == 0 || strcmp(out, "false") == 0 ||
      (row->without && strcmp(out, row->without) == 0))
    out[0] = '\0';
  return out;
}
