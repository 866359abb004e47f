/* SPDX-License-Identifier: BSD-3-Clause */
/** Jobs that are written in Python: the program checks their command line against a table of
 *  options and becomes the script (python/starmill/__main__.py). */
#ifndef MILL_SCRIPT_H
#define MILL_SCRIPT_H

#include "jobs/options/option_table.h"

/** A row of a script's table needs no place in a structure: the script gets the text of each
 *  option that was given.  Of a PAIR offset2 is sizeof(double). */
typedef struct mill_script {
  mill_option_help help;
  const char *module;  /**< "starmill.products.show" */
  const char *takes;   /**< arguments that are no options, "a result and one or more stars" */
  int n_least, n_most; /**< their number */
} mill_script;

/** The row of --help in a script's table. */
#define MILL_SCRIPT_HELP                                                                           \
  {                                                                                                \
    "help", MILL_OPTION_FLAG, 'h', .help = "this text"                                             \
  }

/** What --help says about Python after the options; packages: as Python imports them. */
#define MILL_SCRIPT_PYTHON(packages)                                                               \
  "\n"                                                                                             \
  "Runs python3, or the Python that the environment variable STARMILL_PYTHON names; it "           \
  "needs\n" packages ".\n"

/** 1: a launcher of MPI says that this process is not rank 0. */
int mill_script_is_other_rank(void);

/** argv[0] is the job's name, with its sub-command.  On success the script replaces the process;
 *  it returns the exit status of a failure, of --help, and of ranks other than 0 of an MPI run,
 *  which have nothing to do. */
int mill_script_run(const mill_script *script, int argc, char **argv);

extern const mill_script mill_show, mill_select, mill_plot, mill_report, /* look.c */
    mill_export, mill_merge, mill_status,                                /* results.c */
    mill_simulate;                                                       /* simulate.c */

#endif
