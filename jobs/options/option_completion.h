/* SPDX-License-Identifier: BSD-3-Clause */
/** bash completion from the tables of --help. */
#ifndef MILL_OPTION_COMPLETION_H
#define MILL_OPTION_COMPLETION_H

#include <stdio.h>

#include "jobs/options/option_table.h"

/** A script for bash 4 or newer that completes jobs, sub-commands (lower-case words that follow the
 *  job in a table's usage), options, words that a value may be, and else names of files.
 *
 *  job    ends with a row without a name
 *  pages  what `starmill help` takes besides jobs, blanks between */
void mill_completion_print(const mill_job_row *job, const char *pages, FILE *out);

#endif
