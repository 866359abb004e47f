/* SPDX-License-Identifier: BSD-3-Clause */
/** The job `starmill merge`: finished results of parts of a survey become one. */
#ifndef MILL_MERGE_JOB_H
#define MILL_MERGE_JOB_H

#include "jobs/options/option_table.h"

/** argv[0] is the job's name.  Returns the exit status of the program. */
int mill_job_merge(int argc, char **argv);

extern const mill_option_help mill_merge_help;

#endif
