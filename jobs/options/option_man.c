/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/options/option_man.h"

#include <ctype.h>
#include <string.h>

#include "src/system/version.h"

/* n characters unchanged: some are roff's commands, others become typographic. */
static void put(const char *text, size_t n, FILE *out)
{
  static const struct {
    char is;
    const char *roff;
  } special[] = {{'\\', "\\e"},  {'-', "\\-"},   {'\'', "\\(aq"}, {'`', "\\(ga"},
                 {'^', "\\(ha"}, {'~', "\\(ti"}, {'"', "\\(dq"}};
  for (size_t i = 0; i < n; i++) {
    const char *roff = NULL;
    for (size_t k = 0; k < sizeof special / sizeof *special; k++)
      if (text[i] == special[k].is)
        roff = special[k].roff;
    if (roff)
      fputs(roff, out);
    else
      fputc(text[i], out);
  }
}

/* One line of text: a full stop at its begin would be a request. */
static void put_line(const char *text, size_t n, FILE *out)
{
  fputs(n > 0 && *text == '.' ? "\\&" : "", out);
  put(text, n, out);
  fputc('\n', out);
}

static size_t length_of_line(const char *text)
{
  return strcspn(text, "\n");
}

static const char *next_line(const char *text)
{
  text += length_of_line(text);
  return text + (*text == '\n');
}

/* Lines of text up to its end, paragraphs between blank lines.
 *
 * section  stands above them, and "Exit status: " begins another one; NULL: neither */
static void print_paragraphs(const char *text, const char *section, FILE *out)
{
  static const char exit_status[] = "Exit status: ";
  const char *next_section = section;
  int begins = 1;
  for (; *text; text = next_line(text)) {
    const char *line = text;
    size_t n = length_of_line(line);
    if (n == 0) {
      begins = 1;
      continue;
    }
    if (section && strncmp(line, exit_status, strlen(exit_status)) == 0) {
      next_section = "EXIT STATUS";
      line += strlen(exit_status);
      n -= strlen(exit_status);
    }
    if (next_section)
      fprintf(out, ".SH %s\n", next_section);
    else if (begins)
      fputs(".PP\n", out);
    put_line(line, n, out);
    next_section = NULL;
    begins = 0;
  }
}

/* "usage: " and the command lines after it; a line that goes on with another's options is indented
 * further than a command.  What follows the blank line is returned. */
static const char *print_synopsis(const char *usage, FILE *out)
{
  static const char head[] = "usage: ";
  int is_open = 0;
  if (strncmp(usage, head, strlen(head)) != 0)
    return usage;
  for (; *usage && *usage != '\n'; usage = next_line(usage)) {
    const char *line = usage + strlen(head), *argument;
    size_t n = length_of_line(line);
    if (*line != ' ') {
      argument = memchr(line, ' ', n);
      fputs(is_open ? ".YS\n.SY " : ".SY ", out);
      put_line(line, argument ? (size_t)(argument - line) : n, out);
      n -= argument ? (size_t)(argument - line) : n;
      line = argument ? argument : line + n;
      is_open = 1;
    }
    while (n > 0 && *line == ' ') {
      line++;
      n--;
    }
    if (n > 0)
      put_line(line, n, out);
  }
  fputs(is_open ? ".YS\n" : "", out);
  return usage;
}

static void print_options(const mill_option_help *help, FILE *out)
{
  char says[MILL_OPTION_SAYS];
  for (const mill_option *row = help->table->row; row->name; row++) {
    if (row->kind == MILL_OPTION_HEADING) {
      fputs(".SS ", out);
      put_line(row->name, strlen(row->name), out);
      continue;
    }
    const char *argument = mill_option_argument(row);
    fputs(".TP\n\\fB\\-\\-", out);
    put(row->name, strlen(row->name), out);
    if (row->letter)
      fprintf(out, "\\fR, \\fB\\-%c", row->letter);
    if (argument) {
      fputs("\\fR \\fI", out);
      put(argument, strlen(argument), out);
    }
    fputs("\\fR\n", out);
    mill_option_says(row, help->usual, says);
    put_line(says, strlen(says), out);
  }
}

static void print_head(const char *name, const char *summary, FILE *out)
{
  fputs(".TH ", out);
  for (const char *c = name; *c; c++)
    fputc(toupper((unsigned char)*c), out);
  fprintf(out, " 1 \"\" \"starmill %s\" \"starmill\"\n.SH NAME\n", mill_version());
  put(name, strlen(name), out);
  fputs(" \\- ", out);
  put_line(summary, strlen(summary), out);
}

void mill_man_print_job(const mill_job_row *job, FILE *out)
{
  char name[64];
  snprintf(name, sizeof name, "starmill-%s", job->name);
  print_head(name, job->summary, out);
  for (int i = 0; job->help[i]; i++) {
    const mill_option_table *table = job->help[i]->table;
    const int is_first = i == 0;
    if (is_first) {
      fputs(".SH SYNOPSIS\n", out);
    } else if (strcmp(table->command, job->help[i - 1]->table->command) != 0) {
      fputs(".SH ", out);
      put_line(table->command, strlen(table->command), out);
    }
    const char *text = print_synopsis(table->usage ? table->usage : "", out);
    print_paragraphs(text, is_first ? "DESCRIPTION" : NULL, out);
    fputs(is_first && table->row->name ? ".SH OPTIONS\n" : "", out);
    print_options(job->help[i], out);
    print_paragraphs(table->end ? table->end : "", is_first ? "NOTES" : NULL, out);
  }
  fputs(".SH SEE ALSO\n.BR starmill (1)\n", out);
}

void mill_man_print_program(const mill_job_row *job, const char *purpose, const char *more,
                            FILE *out)
{
  print_head("starmill", purpose, out);
  fputs(".SH SYNOPSIS\n.SY starmill\n\\fIJOB\\fR [options]\n.YS\n.SH JOBS\n", out);
  for (const mill_job_row *row = job; row->name; row++) {
    fprintf(out, ".TP\n.BR starmill\\-%s (1)\n", row->name);
    put_line(row->summary, strlen(row->summary), out);
  }
  fputs(".SH HELP\n", out);
  for (; *more; more = next_line(more)) {
    const size_t n = length_of_line(more), call = strcspn(more, ":");
    fputs(".TP\n.B ", out);
    put_line(more, call, out);
    put_line(more + call + 2, n - call - 2, out);
  }
}
