/* SPDX-License-Identifier: BSD-3-Clause */
/** The job `starmill sample`: posteriors of stars that `starmill fit` has fitted. */
#ifndef MILL_SAMPLE_JOB_H
#define MILL_SAMPLE_JOB_H

#include <stdio.h>

#include "jobs/options/options.h"

/** argv[0] is the job's name.  Returns the exit status of the program. */
int mill_job_sample(int argc, char **argv);

extern const mill_option_help mill_sample_help;

#endif
