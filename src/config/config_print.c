/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "src/config/config_internal.h"
#include "src/config/text.h"
#include "src/system/order.h"

static void print_wave_mask(const mill_config *config, FILE *out)
{
  char a[32], b[32];
  if (config->wave_mask_auto) {
    fputs(" auto\n", out);
    return;
  }
  fputs(" [", out);
  for (int i = 0; i < config->fit.n_wave_mask; i++)
    fprintf(out, "%s[%s, %s]", i ? ", " : "", mill_text_of_real(config->fit.wave_mask[i].min_aa, a),
            mill_text_of_real(config->fit.wave_mask[i].max_aa, b));
  fputs("]\n", out);
}

static void print_mask_ignore(const mill_config *config, FILE *out)
{
  fprintf(out, config->fit.mask_ignore ? " 0x%x\n" : " %u\n", (unsigned)config->fit.mask_ignore);
}

static double number_of(const char *item, const mill_field *f)
{
  double x;
  int i;
  memcpy(&i, item + f->offset, sizeof i);
  if (f->kind == MILL_FIELD_WHOLE)
    return i;
  memcpy(&x, item + f->offset, sizeof x);
  return x;
}

static int is_usual(const char *item, const mill_field *f)
{
  return f->kind == MILL_FIELD_TEXT ? !item[f->offset] : number_of(item, f) == f->usual;
}

/* Print a list of items in braces, one per line.  If the list allows bare names, print all items on
 * one line, as [a, {name: b, min: 3}]: an item with nothing but a name has no braces. */
static void print_items(const mill_config *config, const mill_items *k, FILE *out)
{
  const char *item = (const char *)config + k->offset;
  const int is_inline = k->is_named;
  char text[32];
  int n;
  memcpy(&n, (const char *)config + k->offset2, sizeof n);
  fputs(is_inline ? " [" : n > 0 ? "\n" : " []\n", out);
  for (int i = 0; i < n; i++, item += k->size) {
    int n_shown = 0;
    fputs(!is_inline ? "  - " : i > 0 ? ", " : "", out);
    for (const mill_field *f = k->field; f->name; f++)
      n_shown += !is_usual(item, f);
    const int has_braces = n_shown > 1 || !is_inline;
    if (has_braces)
      fprintf(out, "{%s: ", k->field->name);
    for (const mill_field *f = k->field; f->name; f++) {
      if (is_usual(item, f))
        continue;
      if (f > k->field)
        fprintf(out, ", %s: ", f->name);
      if (f->kind == MILL_FIELD_TEXT)
        mill_text_print_quoted(item + f->offset, out);
      else
        fputs(mill_text_of_real(number_of(item, f), text), out);
    }
    fputs(has_braces ? "}" : "", out);
    fputs(is_inline ? "" : "\n", out);
  }
  fputs(is_inline ? "]\n" : "", out);
}

static void print_names(const mill_config *config, const mill_option *k, FILE *out)
{
  const char *list = (const char *)config + k->offset;
  int n;
  memcpy(&n, (const char *)config + k->offset2, sizeof n);
  fputs(" [", out);
  for (int i = 0; i < n; i++) {
    fputs(i ? ", " : "", out);
    mill_text_print_quoted(list + (size_t)i * k->size, out);
  }
  fputs("]\n", out);
}

/* Print the selected stars, numbers first, four to a line. */
static void print_objects(const mill_config *config, FILE *out)
{
  static const mill_star_list all = {0};
  const mill_star_list *list = config->select.star ? config->select.star : &all;
  fputs(" [", out);
  for (int64_t i = 0; i < list->n_number + list->n_name; i++) {
    fputs(i == 0 ? "" : i % 4 == 0 ? ",\n  " : ", ", out);
    if (i < list->n_number)
      fprintf(out, "%lld", (long long)list->number[i]);
    else
      mill_text_print_quoted(list->name[i - list->n_number], out);
  }
  fputs("]\n", out);
}

static void print_fiberstatus(const mill_config *config, FILE *out)
{
  const char *between = "";
  fputs(" [", out);
  for (int bit = 0; bit < MILL_MAX_MASK_BIT; bit++)
    if (config->select.fiberstatus_allowed >> bit & 1) {
      fprintf(out, "%s%d", between, bit);
      between = ", ";
    }
  fputs("]\n", out);
}

static const struct {
  const char *key;
  void (*print)(const mill_config *config, FILE *out);
} other[] = {
    {"wave_mask", print_wave_mask},
    {"mask_ignore", print_mask_ignore},
    {"objects", print_objects},
    {"fiberstatus_allowed_bits", print_fiberstatus},
};

/* Print the value after "key:", up to the end of the line. */
static void print_value(const mill_config *config, const mill_option *k, FILE *out)
{
  char text[128];
  switch (k->kind) {
  case MILL_OPTION_PATH:
    fputc(' ', out);
    mill_text_print_quoted((const char *)config + k->offset, out);
    fputc('\n', out);
    break;
  case MILL_OPTION_NAMES:
    print_names(config, k, out);
    break;
  case MILL_OPTION_OTHER: /* a list of items, or a key of the table `other` */
    if (mill_config_items(k))
      print_items(config, mill_config_items(k), out);
    for (size_t j = 0; j < sizeof other / sizeof other[0]; j++)
      if (strcmp(other[j].key, k->name) == 0)
        other[j].print(config, out);
    break;
  default:
    fprintf(out, " %s\n", mill_option_text(k, config, text));
  }
}

static void print_key(const mill_config *config, const mill_option *k, FILE *out)
{
  fprintf(out, "%s:", k->name);
  print_value(config, k, out);
}

int mill_config_print(const mill_config *config, FILE *out)
{
  /* a checked configuration prints as a text that can be read again */
  MILL_CHECK(mill_config_check(config));
  for (int i = 0; i < MILL_N_KEY; i++)
    print_key(config, &mill_config_key[i], out);
  return mill_text_flush(out, "the configuration");
}

/* ---- documentation ---- */

/* Print a cell with the texts a and b, either of which may be "". */
static void print_cell(const char *a, const char *b, FILE *out)
{
  fprintf(out, "%s%s%s |", *a || *b ? " " : "", a, b);
}

static const char *or_empty(const char *text)
{
  return text ? text : "";
}

/* Print a key's type (its words, or the kind of its value) and its unit, for the documentation. */
static void print_type_and_unit(const mill_option *k, FILE *out)
{
  if (k->words)
    for (int i = 0; k->words[i]; i++)
      fprintf(out, "%s%s", i ? ", " : "", k->words[i]);
  else
    fprintf(out, "%s%s%s",
            k->argument                    ? k->argument
            : k->kind == MILL_OPTION_PATH  ? "path"
            : k->kind == MILL_OPTION_COUNT ? "whole number"
                                           : "number",
            k->without ? " or " : "", or_empty(k->without));
  fprintf(out, "%s%s", k->unit ? ", " : "", or_empty(k->unit));
}

/* Print a Markdown table for each section; texts and lists appear as code. */
int mill_config_print_keys(FILE *out)
{
  mill_config usual;
  mill_config_default(&usual);
  for (int i = 0; i < MILL_N_KEY; i++) {
    const mill_option *k = &mill_config_key[i];
    char value[64] = "", range[80] = "", min[32], max[32];
    FILE *text = fmemopen(value, sizeof value, "w");
    if (!text)
      return MILL_ERROR(MILL_ERR_MEMORY, "no memory for the text of a key");
    print_value(&usual, k, text);
    fclose(text);
    value[strcspn(value, "\n")] = '\0'; /* now " VALUE": print_value begins with a blank */
    const char *quote = value[1] == '"' || value[1] == '[' ? "`" : "";
    if (k->section)
      fprintf(out,
              "%s## %s\n\n| key | type, unit | default | range | meaning | rvspecfit |\n"
              "|---|---|---|---|---|---|\n",
              i ? "\n" : "", k->section);
    fprintf(out, "| `%s` | ", k->name);
    print_type_and_unit(k, out);
    fprintf(out, " | %s%s%s |", quote, value + 1, quote);
    if (k->kind == MILL_OPTION_COUNT || (k->kind == MILL_OPTION_REAL && k->max < DBL_MAX))
      snprintf(range, sizeof range, "%s … %s%s", mill_text_of_real(k->min, min),
               mill_text_of_real(k->max, max), k->range ? ", " : "");
    print_cell(range, or_empty(k->range), out);
    print_cell(k->help, or_empty(k->more), out);
    print_cell(or_empty(k->elsewhere), "", out);
    fputc('\n', out);
  }
  return mill_text_flush(out, "the keys");
}

/* ---- identity ---- */

/* Replace the path of a table by the hash of its contents. */
static int take_hash(const char *key, const char *hash, char *path, size_t size)
{
  if (path[0] && !hash[0])
    return MILL_BUG("%s: %s has not been read yet", key, path);
  snprintf(path, size, "%s", hash);
  return MILL_OK;
}

/* Equal settings give equal texts: keys and lists are sorted, files count by their contents. */
int mill_config_identity(const mill_config *config, char **text)
{
  const char *name[MILL_N_KEY];
  MILL_OWNED mill_config *copy = NULL;
  MILL_OWNED char *buffer = NULL;
  size_t n_buffer = 0;
  *text = NULL;
  MILL_CHECK(mill_config_check(config));
  MILL_CHECK(MILL_ALLOC(1, &copy));
  memcpy(copy, config, sizeof *copy);
  /* sort the lists whose order means nothing */
  mill_selection *select = &copy->select;
  qsort(select->objtype, (size_t)select->n_objtype, sizeof select->objtype[0], mill_by_text);
  qsort(select->target_class, (size_t)select->n_target_class, sizeof select->target_class[0],
        mill_by_text);
  qsort(copy->arm, (size_t)copy->n_arm, sizeof copy->arm[0], mill_by_text);
  qsort(copy->fixed, (size_t)copy->n_fixed, sizeof copy->fixed[0], mill_by_text);
  qsort(copy->prior, (size_t)copy->n_prior, sizeof copy->prior[0], mill_by_text);
  copy->wave_mask_auto = 0; /* print the ranges, not "auto" */
  MILL_CHECK(take_hash("start", config->start_hash, copy->start, sizeof copy->start));
  MILL_CHECK(
      take_hash("prior_table", config->prior_hash, copy->prior_table, sizeof copy->prior_table));
  MILL_CHECK(take_hash("sky_components", config->sky_hash, copy->sky_components,
                       sizeof copy->sky_components));
  for (int i = 0; i < MILL_N_KEY; i++)
    name[i] = mill_config_key[i].name;
  qsort(name, MILL_N_KEY, sizeof name[0], mill_by_text_at);
  FILE *const out = open_memstream(&buffer, &n_buffer);
  for (int i = 0; i < MILL_N_KEY && out; i++)
    if (mill_config_key_of(name[i])->is_identity)
      print_key(copy, mill_config_key_of(name[i]), out);
  MILL_CHECK(mill_text_close(out, MILL_OK, "the text of the configuration"));
  return MILL_GIVE(&buffer, text);
}
