/* SPDX-License-Identifier: BSD-3-Clause */
/** `starmill export`: a result in other programs' formats. */
#ifndef MILL_EXPORT_JOB_H
#define MILL_EXPORT_JOB_H

#include "jobs/options/option_table.h"

/** argv[0] is the job's name.  Returns the exit status of the program. */
int mill_job_export(int argc, char **argv);

extern const mill_option_help mill_export_help;

#endif
