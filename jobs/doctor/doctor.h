/* SPDX-License-Identifier: BSD-3-Clause */
/** The job `starmill doctor`: checks that this machine is ready for a fit, and says what to fix. */
#ifndef MILL_DOCTOR_H
#define MILL_DOCTOR_H

#include "jobs/options/option_table.h"

/** argv[0] is the job's name.  Returns the exit status of the program. */
int mill_job_doctor(int argc, char **argv);

extern const mill_option_help mill_doctor_help;

#endif
