/* SPDX-License-Identifier: BSD-3-Clause */
/** The job `starmill fit` (FITS spectra in, one HDF5 table of stellar parameters out) for
 *  callers other than main: `sample`, `bench`, tests. */
#pragma once

#include "jobs/options/options.h"
#include "kernels/backend.h"
#include "src/ranks/mpi_context.h"

/** The command line of a job that fits. */
typedef struct mill_fit_command_line {
  const char *name; /**< "starmill fit" */
  int (*parse)(int argc, char **argv, mill_fit_options *options);
  const mill_option_help *help;
} mill_fit_command_line;

/** Run a fit from a command line; returns the exit status. */
int mill_fit_main(int argc, char **argv, const mill_fit_command_line *line);

/** Costs of a run on this rank, in CPU seconds unless named wall. */
typedef struct mill_fit_meters {
  char backend[64]; /**< name of the backend */
  int n_thread, n_slot;

  /* once per run: start-up and end */
  double library_s; /**< reading the configuration and libraries, opening the log */
  double index_s;   /**< indexing the inputs */
  double create_s;  /**< opening the result file */
  double model_s;   /**< uploading the emulator, making the templates of the initial guess */
  double waveset_s; /**< making wavelength sets */
  double close_s;   /**< closing the result file */

  /* work on stars */
  double read_s;     /**< reader threads */
  double load_s;     /**< copying stars from the reader into slots */
  double put_s;      /**< handing results to the I/O thread */
  double run_wall_s; /**< wall seconds from the first star to the last row */
  double io_s;       /**< I/O thread */
  mill_timing timing;

  double cpu_s, wall_s; /**< whole process, from the start of mill_fit_run to its end */
} mill_fit_meters;

/** A caller that measures a run.  Threads call put in turn; mill_fit_meters has its time. */
typedef struct mill_fit_observer {
  void *context;
  /** Called after a star's result was handed over. */
  void (*put)(void *context, const mill_fit_result *result);
  int64_t n_row_limit;         /**< fit only the first rows of the catalog; 0: all */
  const mill_backend *instead; /**< backend used instead of the configured one; NULL: none */
  mill_fit_meters meters;      /**< out */
} mill_fit_observer;

/** Run a fit, with its summary on standard output unless options->quiet.
 *
 *  command      the command line, for the result file
 *  observer     NULL: none.  With an observer the run writes no status file and looks for no stop
 *               file
 *  exit_status  out: 0, or the exit status of a run that ended in good order but left rows unfitted
 *
 *  Collective over mpi.  Returns a code of kernels/base/error.h; the caller prints the message. */
int mill_fit_run(mill_mpi *mpi, const mill_fit_options *options, const char *command,
                 mill_fit_observer *observer, int *exit_status);
