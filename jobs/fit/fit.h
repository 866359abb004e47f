/* SPDX-License-Identifier: BSD-3-Clause */
/** The job `starmill fit`: FITS spectra in, one HDF5 table of stellar parameters out. */
#ifndef MILL_FIT_JOB_H
#define MILL_FIT_JOB_H

#include "jobs/fit/observer.h"
#include "jobs/options/options.h"
#include "src/ranks/mpi_context.h"

/** argv[0] is the job's name.  Returns the exit status of the program. */
int mill_job_fit(int argc, char **argv);

/** The command line of a job that fits. */
typedef struct mill_fit_command_line {
  const char *name; /**< "starmill fit" */
  int (*parse)(int argc, char **argv, mill_fit_options *options);
  const mill_option_help *help;
} mill_fit_command_line;

/** mill_job_fit with another command line. */
int mill_fit_main(int argc, char **argv, const mill_fit_command_line *line);

/** Run a fit, with its summary on standard output unless options->quiet.
 *
 *  command      the command line, for the result file
 *  observer     NULL: there is none.  An observed run writes no status file and has no stop file
 *  exit_status  0, or that of a run that ended in good order with something left over
 *
 *  Collective over mpi.  The codes of kernels/base/error.h; the caller prints the message. */
int mill_fit_run(mill_mpi *mpi, const mill_fit_options *options, const char *command,
                 mill_fit_observer *observer, int *exit_status);

#endif
