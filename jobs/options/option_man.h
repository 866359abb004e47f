/* SPDX-License-Identifier: BSD-3-Clause */
/** Man pages from the tables of --help: roff of man(7). */
#ifndef MILL_OPTION_MAN_H
#define MILL_OPTION_MAN_H

#include <stdio.h>

#include "jobs/options/option_table.h"

/** starmill(1).
 *
 *  job      ends with a row without a name
 *  purpose  of the program, for the line under NAME
 *  more     under the list of jobs: lines "command line: what it does", with their ends */
void mill_man_print_program(const mill_job_row *job, const char *purpose, const char *more,
                            FILE *out);

/** starmill-JOB(1). */
void mill_man_print_job(const mill_job_row *job, FILE *out);

#endif
