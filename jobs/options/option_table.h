/* SPDX-License-Identifier: BSD-3-Clause */
/** Parsing and --help of a job's command line, from a table of rows (src/config/option.h). */
#pragma once

#include <stdio.h>

#include "src/config/config.h"

enum { MILL_OPTION_MAX = 64 }; /**< most rows of a table */

typedef struct mill_option_table {
  const char *command;    /**< "starmill fit" */
  const char *usage;      /**< text of --help before the rows; NULL: none */
  const char *end;        /**< text after the rows; NULL: none */
  const mill_option *row; /**< ends with a row without a name */
} mill_option_table;

/** A table, and the structure of defaults that its help shows. */
typedef struct mill_option_help {
  const mill_option_table *table;
  const void *usual; /**< NULL: no defaults shown */
} mill_option_help;

/** Row of --help, for a structure with the member int help. */
#define MILL_OPTION_HELP(type)                                                                     \
  {                                                                                                \
    "help", MILL_OPTION_FLAG, 'h', MILL_AT(type, help), .help = "this text"                        \
  }

/** Parse the command line into the structure base, which holds the defaults; argv[0] is the job's
 *  name.  argv is permuted: arguments that are not options come last, from argv[*first] on.
 *
 *  base                               NULL: only check the values, for Python
 *  text [MILL_OPTION_MAX], by row  out  value of each given option, borrowed from argv; "" for a
 *                                     flag; NULL: not given
 *
 *  MILL_ERR_USAGE names an option that is unknown, or whose value is missing or wrong. */
int mill_option_parse(const mill_option_table *table, int argc, char **argv, void *base,
                      const char **text, int *first);

/** An option that applies only under a condition. */
typedef struct mill_option_need {
  const char *name; /**< without its dashes */
  int met;          /**< 1: the condition is met, so the option applies */
  const char *what; /**< when the option does not apply, for the message: "without --loss huber" */
} mill_option_need;

/** Check need [n], the conditions of n options.  text: as mill_option_parse fills it.
 *  MILL_ERR_USAGE names an option that was given although its condition is not met. */
int mill_option_check_needs(const mill_option_table *table, const char *const *text, int n,
                            const mill_option_need *need);

/** Print a line for each option that must be equal on all ranks.  Skip the options of configuration
 *  keys, which ranks compare separately, and the kinds OTHER and NAMES, which the job prints. */
void mill_option_print_given(const mill_option_table *table, const void *base, FILE *out);

/** Print the table's usage text, a paragraph for each option, and the table's end text.
 *
 *  base  structure of defaults to show; NULL: none */
void mill_option_print_help(const mill_option_table *table, const void *base, FILE *out);

/** If help is 1, print the help on rank 0's standard output.  Returns help. */
int mill_option_helped(int help, int rank, const mill_option_table *table, const void *base);
