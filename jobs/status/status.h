/* SPDX-License-Identifier: BSD-3-Clause */
/** The job `starmill status`: progress of a run, from its status file or its result. */
#ifndef MILL_STATUS_JOB_H
#define MILL_STATUS_JOB_H

#include "jobs/options/option_table.h"

/** Exit status of the program, for scripts. */
enum mill_status_exit {
  MILL_STATUS_EXIT_FINISHED = 0,
  MILL_STATUS_EXIT_RUNNING = 10,
  MILL_STATUS_EXIT_NONE = 11,      /**< there is nothing at that path */
  MILL_STATUS_EXIT_FAILED = 12,    /**< the last run ended with an error */
  MILL_STATUS_EXIT_INCOMPLETE = 75 /**< rows are left, the same command continues */
};

/** argv[0] is the job's name.  Without MPI.  Returns the exit status of the program. */
int mill_job_status(int argc, char **argv);

extern const mill_option_help mill_status_help;

#endif
