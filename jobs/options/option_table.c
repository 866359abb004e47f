/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/options/option_table.h"

#include <getopt.h>
#include <string.h>

#include "src/config/text.h"

/* getopt returns FIRST_ID plus the row's index for a long option, the letter for a short option. */
enum { FIRST_ID = 256, WIDTH = 90, MOST_LABEL = 64, MOST_SAYS = 1024 };

static int takes_value(const mill_option *row)
{
  return row->kind != MILL_OPTION_FLAG;
}

/* Set the message for an error of getopt; returns MILL_ERR_USAGE. */
static int complain(int id, char **argv, const mill_option_table *table)
{
  const char *command = table->command;
  char name[64];
  if (id == ':')
    return MILL_ERROR(MILL_ERR_USAGE, "option %s needs a value; see %s --help", argv[optind - 1],
                      command);
  /* getopt names short options only by their letter */
  if (optopt > 0 && optopt < FIRST_ID)
    return MILL_ERROR(MILL_ERR_USAGE, "unknown option -%c; see %s --help", optopt, command);
  if (optopt) /* a known long option */
    return MILL_ERROR(MILL_ERR_USAGE, "option %s takes no value; see %s --help", argv[optind - 1],
                      command);
  mill_near near = {0};
  snprintf(name, sizeof name, "%.*s", (int)strcspn(argv[optind - 1] + 2, "="),
           argv[optind - 1] + 2);
  for (const mill_option *row = table->row; row->name; row++)
    if (row->kind != MILL_OPTION_HEADING)
      mill_text_nearer(name, row->name, &near);
  return MILL_ERROR(MILL_ERR_USAGE, "unknown or ambiguous option %s%s%s%s; see %s --help",
                    argv[optind - 1], near.name ? "; did you mean --" : "",
                    near.name ? near.name : "", near.name ? "?" : "", command);
}

int mill_option_parse(const mill_option_table *table, int argc, char **argv, void *base,
                      const char **text, int *first)
{
  long long scratch[512]; /* in place of base if that is NULL; larger than any base */
  int n = 0;
  struct option known[MILL_OPTION_MAX + 1] = {{0}};
  char letters[MILL_OPTION_MAX + 2] = ":";
  for (int i = 0; table->row[i].name; i++) {
    const mill_option *row = &table->row[i];
    if (i == MILL_OPTION_MAX)
      return MILL_BUG("%s has too many options", table->command);
    if (row->kind != MILL_OPTION_HEADING)
      known[n++] = (struct option){row->name, takes_value(row), NULL, FIRST_ID + i};
    if (row->letter)
      letters[strlen(letters)] = row->letter;
    text[i] = NULL;
  }
  opterr = 0;
  optind = 0; /* glibc: start over, as another job may have parsed before */
  /* optopt tells complain about this call alone, not about an earlier one */
  for (int id; (optopt = 0, id = getopt_long(argc, argv, letters, known, NULL)) != -1;) {
    if (id == ':' || id == '?')
      return complain(id, argv, table);
    int i = id - FIRST_ID;
    for (int j = 0; id < FIRST_ID && table->row[j].name; j++)
      if (table->row[j].letter == id)
        i = j;
    const mill_option *row = &table->row[i];
    /* probably a script's unset variable */
    if (takes_value(row) && !*optarg)
      return MILL_ERROR(MILL_ERR_USAGE,
                        "option --%s needs a value, not an empty text; see %s --help", row->name,
                        table->command);
    const int for_python = row->kind == MILL_OPTION_OTHER && !row->take;
    if (text[i] && (row->once || for_python))
      return MILL_ERROR(MILL_ERR_USAGE, "--%s is given twice; see %s --help", row->name,
                        table->command);
    MILL_CHECK(mill_option_read(row, row->name, optarg, base ? base : scratch));
    text[i] = takes_value(row) ? optarg : "";
  }
  *first = optind;
  return MILL_OK;
}

int mill_option_check_needs(const mill_option_table *table, const char *const *text, int n,
                            const mill_option_need *need)
{
  for (int i = 0; table->row[i].name; i++)
    for (int k = 0; k < n; k++)
      if (text[i] && !need[k].met && strcmp(table->row[i].name, need[k].name) == 0)
        return MILL_ERROR(MILL_ERR_USAGE, "--%s does not apply %s; see %s --help", need[k].name,
                          need[k].what, table->command);
  return MILL_OK;
}

/* ---- help ---- */

/* Print text from a column on, in lines up to column WIDTH; all lines begin at this column. */
static void print_wrapped(const char *text, int column, FILE *out)
{
  int at = column;
  while (*text) {
    const int n = (int)strcspn(text, " ");
    if (at > column && at + 1 + n > WIDTH) {
      fprintf(out, "\n%*s", column, "");
      at = column;
    }
    fprintf(out, "%s%.*s", at > column ? " " : "", n, text);
    at += n + (at > column);
    text += n + (text[n] == ' ');
  }
  fputc('\n', out);
}

/* Return the row with an option's type and range: its own row or that of its configuration key. */
static const mill_option *type_of(const mill_option *row)
{
  return row->key ? mill_config_key_of(row->key) : row;
}

/* Return what the help calls an option's value, such as "FILE"; NULL: the option takes none. */
static const char *argument_of(const mill_option *row)
{
  const mill_option *type = type_of(row);
  if (row->argument || !takes_value(row))
    return row->argument;
  return type->words                                                         ? "NAME"
         : type->kind == MILL_OPTION_REAL                                    ? "X"
         : type->kind >= MILL_OPTION_COUNT && type->kind <= MILL_OPTION_SEED ? "N"
                                                                             : "FILE";
}

static int label(const mill_option *row, char out[MOST_LABEL])
{
  const char *argument = argument_of(row);
  return snprintf(out, MOST_LABEL, "--%s%s%s", row->name, argument ? " " : "",
                  argument ? argument : "");
}

/* Return the words or range of a value; empty if the range is unlimited or very large. */
static const char *values(const mill_option *type, char out[256])
{
  const int is_number = type->kind == MILL_OPTION_COUNT || type->kind == MILL_OPTION_REAL;
  if (!type->words && !(is_number && type->max > 0 && type->max <= 1e6))
    return "";
  const char *text = mill_option_takes(type, out), *range = strstr(text, " from ");
  return is_number && range ? range + strlen(" from ") : text;
}

/* Write an option's help text to out, with the allowed values and the default in parentheses.
 * The default is that of the option's key, else the value in base (NULL: no default). */
static const char *says(const mill_option *row, const void *base, char out[MOST_SAYS])
{
  char takes[256], usual[128] = "";
  mill_config config;
  const mill_option *type = type_of(row);
  const char *may_be = takes_value(row) ? values(type, takes) : "";
  if (takes_value(row) && row->key) {
    mill_config_default(&config);
    mill_option_shown(type, &config, usual);
  } else if (takes_value(row) && base) {
    mill_option_shown(type, base, usual);
  }
  const char *help = row->help ? row->help : type->help;
  const size_t n = strlen(help);
  if (*may_be || *usual) { /* if help ends with a parenthesis, continue that one */
    const size_t kept = help[n - 1] == ')' ? n - 1 : n;
    snprintf(out, MOST_SAYS, "%.*s%s%s%s%s%s)", (int)kept, help, kept < n ? "; " : " (", may_be,
             *may_be && *usual ? "; " : "", *usual ? "default " : "", usual);
  } else {
    snprintf(out, MOST_SAYS, "%s", help);
  }
  return out;
}

/* All help texts begin at one column, to the right of the longest option. */
void mill_option_print_help(const mill_option_table *table, const void *base, FILE *out)
{
  char head[MOST_LABEL], text[MOST_SAYS];
  int column = 0;
  for (const mill_option *row = table->row; row->name; row++)
    if (row->kind != MILL_OPTION_HEADING && label(row, head) + 4 > column)
      column = label(row, head) + 4;
  fputs(table->usage ? table->usage : "", out);
  for (const mill_option *row = table->row; row->name; row++)
    if (row->kind == MILL_OPTION_HEADING) {
      fprintf(out, "%s%s\n", row == table->row ? "" : "\n", row->name);
    } else {
      label(row, head);
      fprintf(out, "  %-*s", column - 2, head);
      print_wrapped(says(row, base, text), column, out);
    }
  fputs(table->end ? table->end : "", out);
}

int mill_option_helped(int help, int rank, const mill_option_table *table, const void *base)
{
  if (help && rank == 0)
    mill_option_print_help(table, base, stdout);
  return help;
}

/* The lines are "--NAME VALUE" or "no --NAME". */
void mill_option_print_given(const mill_option_table *table, const void *base, FILE *out)
{
  for (const mill_option *row = table->row; row->name; row++) {
    const char *at = (const char *)base + row->offset, *text = "";
    char shown[128];
    int flag = 0;
    if (row->kind == MILL_OPTION_HEADING || row->kind == MILL_OPTION_OTHER ||
        row->kind == MILL_OPTION_NAMES || row->key || row->may_differ)
      continue;
    if (row->kind == MILL_OPTION_FLAG)
      memcpy(&flag, at, sizeof flag);
    else if (row->kind == MILL_OPTION_TEXT)
      memcpy(&text, at, sizeof text);
    else
      text = mill_option_shown(row, base, shown);
    fprintf(out, "%s--%s %s\n", flag || (text && *text) ? "" : "no ", row->name, text ? text : "");
  }
}
