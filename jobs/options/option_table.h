/* SPDX-License-Identifier: BSD-3-Clause */
/** The command line of a job: a table of rows (src/config/option.h), for parsing and --help. */
#ifndef MILL_OPTION_TABLE_H
#define MILL_OPTION_TABLE_H

#include <stdio.h>

#include "src/config/config.h"

enum { MILL_OPTION_MAX = 64 }; /**< rows of a table, at most */

typedef struct mill_option_table {
  const char *command;    /**< "starmill fit" */
  const char *usage;      /**< text of --help before the rows; NULL: none */
  const char *end;        /**< text after the rows; NULL: none */
  const mill_option *row; /**< ends with a row without a name */
} mill_option_table;

/** A table, and the defaults that its help shows. */
typedef struct mill_option_help {
  const mill_option_table *table;
  const void *usual; /**< NULL: no defaults shown */
} mill_option_help;

/** The row of --help in a structure with the int `help`. */
#define MILL_OPTION_HELP(type)                                                                     \
  {                                                                                                \
    "help", MILL_OPTION_FLAG, 'h', MILL_AT(type, help), .help = "this text"                        \
  }

/** Parse argv, whose argv[0] is the job's name, into the structure base, which holds the defaults.
 *  argv is permuted: arguments that are not options come last, from *first on.
 *
 *  given [rows of the table]  out  1 for each option that was given; NULL is allowed
 *
 *  MILL_ERR_USAGE names an option that is unknown, or whose value is missing, superfluous or
 *  wrong. */
int mill_option_parse(const mill_option_table *table, int argc, char **argv, void *base,
                      unsigned char *given, int *first);

/** Parse a command line that Python will use: only check the values, and keep their texts.
 *
 *  text [rows of the table]  out  value of each given option, borrowed from argv; "" for a flag;
 *                                 NULL: not given */
int mill_option_parse_texts(const mill_option_table *table, int argc, char **argv,
                            const char **text, int *first);

/** An option that applies only under a condition. */
typedef struct mill_option_need {
  const char *name; /**< without its dashes */
  int met;          /**< 1: it applies */
  const char *what; /**< "without --loss huber" */
} mill_option_need;

/** MILL_ERR_USAGE names an option that was given (given: of mill_option_parse) although its
 *  condition, one of need [n], is not met. */
int mill_option_check_needs(const mill_option_table *table, const unsigned char *given, int n,
                            const mill_option_need *need);

/** Print a line for each option in which ranks must agree; a line that differs between ranks names
 *  the option.  Left out: options that may differ, options of keys (configurations are compared),
 *  and the kinds OTHER and NAMES, which the job prints itself. */
void mill_option_print_given(const mill_option_table *table, const void *base, FILE *out);

/** Print usage, a paragraph for each option, and the end.
 *
 *  base  structure of defaults to show; NULL: none */
void mill_option_print_help(const mill_option_table *table, const void *base, FILE *out);

/** If help is 1, print the help on rank 0's standard output.  Returns help. */
int mill_option_helped(int help, int rank, const mill_option_table *table, const void *base);

#endif
