/* SPDX-License-Identifier: BSD-3-Clause */
/** The command line of a job: one table of rows (src/config/option.h) that is parsed and that
 *  prints --help. */
#ifndef MILL_OPTION_TABLE_H
#define MILL_OPTION_TABLE_H

#include <stdio.h>

#include "src/config/config.h"

enum { MILL_OPTION_MAX = 64 }; /**< rows of a table, at most */

typedef struct mill_option_table {
  const char *command;    /**< whose --help says more, as "starmill fit" */
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

/** Parse argv, argv[0] being the job's name, into the structure base that holds the defaults; argv
 *  is permuted so that what is no option stands at its end, from *first on.
 *
 *  given [rows of the table]  out  1 for each option that was given; NULL is allowed
 *
 *  MILL_ERR_USAGE for an option that is unknown, lacks its value, has one too many or a wrong one;
 *  the message names it. */
int mill_option_parse(const mill_option_table *table, int argc, char **argv, void *base,
                      unsigned char *given, int *first);

/** The same for a table without a structure: checks the values.
 *
 *  text [rows of the table]  out  of each option that was given, borrowed from argv, "" of a flag;
 *                                 NULL: not given */
int mill_option_parse_texts(const mill_option_table *table, int argc, char **argv,
                            const char **text, int *first);

/** An option that applies only under a condition. */
typedef struct mill_option_need {
  const char *name; /**< without its dashes */
  int met;          /**< 1: it applies */
  const char *what; /**< "without --loss huber" */
} mill_option_need;

/** MILL_ERR_USAGE for the first of n options that was given (as mill_option_parse reports) and does
 *  not apply. */
int mill_option_check_needs(const mill_option_table *table, const unsigned char *given, int n,
                            const mill_option_need *need);

/** A line for each row, given or not, in which the ranks of a run must agree, so that the first
 * line that differs names the option.  Left out are rows with a key, which the configurations are
 *  compared for, and the kinds OTHER and NAMES, which the job itself must print. */
void mill_option_print_given(const mill_option_table *table, const void *base, FILE *out);

/** Print usage, a paragraph for each row with what it takes and its default, and the end.
 *  base: the defaults; NULL: none are shown. */
void mill_option_print_help(const mill_option_table *table, const void *base, FILE *out);

/** Print it on standard output of rank 0 where --help was given; returns help. */
int mill_option_helped(int help, int rank, const mill_option_table *table, const void *base);

#endif
