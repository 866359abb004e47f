/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/library/labelled_options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/error.h"

/* A number at text that ends at one of the characters of stop, *end there; NAN: none. */
static double number_at(const char *text, const char *stop, const char **end)
{
  char *after = NULL;
  errno = 0;
  const double x = strtod(text, &after);
  *end = after;
  return after == text || errno || !isfinite(x) || !strchr(stop, *after) ? NAN : x;
}

/* NAME=... up to the next comma; *text moves past it, NULL at the end. value [size] */
static int next_item(const char *option, const char *all, const char **text, char *name,
                     char *value, size_t size)
{
  const size_t n = strcspn(*text, ",");
  const char *equal = memchr(*text, '=', n);
  if (!equal || equal == *text || (size_t)(equal - *text) >= MILL_MAX_NAME ||
      n - (size_t)(equal - *text) - 1 >= size || equal + 1 == *text + n)
    return MILL_ERROR(MILL_ERR_USAGE, "--%s %s: expected NAME=... separated by commas", option,
                      all);
  memcpy(name, *text, (size_t)(equal - *text));
  name[equal - *text] = '\0';
  const size_t n_value = n - (size_t)(equal - *text) - 1;
  memcpy(value, equal + 1, n_value);
  value[n_value] = '\0';
  *text = (*text)[n] ? *text + n + 1 : NULL;
  return MILL_OK;
}

int mill_take_labels(const mill_option *row, const char *text, void *base)
{
  mill_labelled_options *o = (void *)((char *)base + row->offset);
  o->n_label = 0;
  for (const char *at = text; at;) {
    if (o->n_label == MILL_MAX_GRID_AXIS)
      return MILL_ERROR(MILL_ERR_USAGE, "--labels %s: expected at most %d labels", text,
                        MILL_MAX_GRID_AXIS);
    mill_named *label = &o->label[o->n_label++];
    MILL_CHECK(next_item("labels", text, &at, label->name, label->column, sizeof label->column));
    if (strpbrk(label->column, "*?#")) /* CFITSIO's wild cards */
      return MILL_ERROR(MILL_ERR_USAGE, "--labels %s: %s is not a column name", text,
                        label->column);
    for (const char *c = label->name; *c; c++)
      if (!isalnum((unsigned char)*c) && *c != '_')
        return MILL_ERROR(MILL_ERR_USAGE, "--labels %s: a name is made of letters, digits and _",
                          text);
    for (int i = 0; i < o->n_label - 1; i++)
      if (strcmp(o->label[i].name, label->name) == 0)
        return MILL_ERROR(MILL_ERR_USAGE, "--labels %s: %s appears twice", text, label->name);
  }
  return MILL_OK;
}

int mill_take_named(const mill_option *row, const char *text, void *base)
{
  const int is_range = strcmp(row->name, "lengths") != 0;
  mill_named *out = (mill_named *)(void *)((char *)base + row->offset);
  int *n = (int *)(void *)((char *)base + row->offset2);
  for (const char *at = text; at;) {
    char value[80];
    const char *end;
    if (*n == MILL_MAX_NAMED)
      return MILL_ERROR(MILL_ERR_USAGE, "--%s: more than %d values", row->name, MILL_MAX_NAMED);
    mill_named *item = &out[(*n)++];
    MILL_CHECK(next_item(row->name, text, &at, item->name, value, sizeof value));
    item->length = item->min = number_at(value, is_range ? ":" : "", &end);
    item->max = is_range && *end == ':' ? number_at(end + 1, "", &end) : NAN;
    if (is_range ? !(item->min < item->max) : !(item->length > 0))
      return MILL_ERROR(MILL_ERR_USAGE, "--%s %s: expected %s", row->name, text,
                        is_range ? "NAME=MIN:MAX, MIN below MAX" : "NAME=X with X above 0");
  }
  return MILL_OK;
}

int mill_take_medium(const mill_option *row, const char *text, void *base)
{
  static const char *const words[] = {"air", "vacuum", NULL};
  static const mill_option word = {.kind = MILL_OPTION_CHOICE, .words = words};
  mill_labelled_options *o = (void *)((char *)base + row->offset);
  int i = 0;
  MILL_CHECK(mill_option_read(&word, row->name, text, &i));
  o->request.medium = i == 0 ? MILL_MEDIUM_AIR : MILL_MEDIUM_VACUUM;
  return MILL_OK;
}

int mill_take_wave(const mill_option *row, const char *text, void *base)
{
  static const mill_option pair = {.kind = MILL_OPTION_PAIR,
                                   .offset = offsetof(mill_labelled_options, request.wave_first),
                                   .offset2 = offsetof(mill_labelled_options, request.wave_step),
                                   .argument = "FIRST,STEP"};
  mill_labelled_options *o = (void *)((char *)base + row->offset);
  if (o->request.have_wave)
    return MILL_ERROR(MILL_ERR_USAGE, "--wave and --log-wave exclude each other");
  o->request.have_wave = 1;
  o->request.wave_is_log10 = strcmp(row->name, "log-wave") == 0;
  return mill_option_read(&pair, row->name, text, o);
}

/* WAVE,FLUX and, where the row says so, ,CONTINUUM */
int mill_take_columns(const mill_option *row, const char *text, void *base)
{
  mill_labelled_options *o = (void *)((char *)base + row->offset);
  char *const to[3] = {o->request.wave_column, o->request.flux_column, o->request.continuum_column};
  const int n_most = strchr(row->argument, '[') ? 3 : 2;
  int n = 0, good = !strpbrk(text, "*?#");
  for (const char *at = text; at && good; n++) {
    const size_t length = strcspn(at, ",");
    good = n < n_most && length > 0 && length < MILL_MAX_NAME;
    if (good)
      snprintf(to[n], MILL_MAX_NAME, "%.*s", (int)length, at);
    at = at[length] ? at + length + 1 : NULL;
  }
  if (!good || n < 2)
    return MILL_ERROR(MILL_ERR_USAGE, "--%s %s: expected %s, the names of columns", row->name, text,
                      row->argument);
  return MILL_OK;
}

static int is_given(const mill_option_table *table, const unsigned char *given, const char *name)
{
  int i = 0;
  while (table->row[i].name && strcmp(table->row[i].name, name) != 0)
    i++;
  return table->row[i].name && given[i];
}

int mill_labelled_check_options(const mill_option_table *table, const unsigned char *given,
                                const mill_labelled_options *options)
{
  int n_wave = 0;
  static const char *const wave[] = {"wave", "log-wave", "wave-file", "columns"};
  for (size_t i = 0; i < sizeof wave / sizeof *wave; i++)
    n_wave += is_given(table, given, wave[i]);
  if (n_wave > 1)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "give only one of --wave, --log-wave, --wave-file and --columns");
  if (is_given(table, given, "name-column") && !options->request.table)
    return MILL_ERROR(MILL_ERR_USAGE, "--name-column needs --table FILE");
  return MILL_OK;
}

int mill_labelled_default_labels(mill_labelled_options *options)
{
  static const mill_option labels = {.name = "labels"};
  return mill_take_labels(&labels, "teff=TEFF,logg=LOGG,feh=FEH", options);
}

void mill_last_of_path(const char *path, char *out, size_t size)
{
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/')
    n--;
  size_t first = n;
  while (first > 0 && path[first - 1] != '/')
    first--;
  snprintf(out, size, "%.*s", (int)(n - first), path + first);
}
