/* SPDX-License-Identifier: BSD-3-Clause */
/** The steps of a fit, in the order in which jobs/fit/fit.c calls them.
 *
 *  Unless said otherwise, every step is collective and returns the same code on every rank. */
#pragma once

#include "io/stars/reader.h"
#include "jobs/fit/hints.h"
#include "jobs/fit/output.h"
#include "kernels/base/clock.h"

/** A rank's counts and wall-clock seconds, for the summary. */
typedef struct mill_fit_tally {
  int64_t n_put; /**< rows finished */
  int arms;      /**< bits of the arms that got a spectrum */
  mill_reader_cost read;
  double fit_s;       /**< from the common start of fitting to this rank's last star */
  double read_wait_s; /**< waiting for the reader */
  double put_wait_s;  /**< handing over rows and models, which waits for the I/O thread */
  mill_velocity_counts velocities;
  mill_narrow_widths narrow;
  mill_width_use width;
  mill_fit_meters meters;
} mill_fit_tally;

/** Inputs and outputs of a rank's share of the fits; borrowed. */
typedef struct mill_fit_task {
  const mill_fit_call *call;
  const mill_fit_setup *setup;
  const mill_inputs *inputs;
  const mill_fit_device *device;
  mill_fit_output *out;
  mill_fit_tally *tally;
} mill_fit_task;

/** Return the CPU seconds of this thread, or 0 unless the run is observed: the clock costs time. */
static inline double mill_fit_meter_s(const mill_fit_task *task)
{
  return task->call->observer ? mill_thread_cpu_s() : 0.0;
}

/* ---- before the inputs are read ---- */

/** Compare program versions and options between ranks, before collective calls depend on them.
 *  Options that may_differ (the log, the paths of library and configuration) are not compared.
 *  Collective.  MILL_ERR_CONFIG names the ranks and the option; MILL_ERR_MEMORY, MILL_ERR_MPI. */
int mill_fit_same_options(const mill_mpi *mpi, const mill_option_table *table,
                          const mill_fit_options *options);

/** Compare libraries and effective settings between ranks, after the start table is read.
 *  Collective.  MILL_ERR_CONFIG names the ranks and the setting; MILL_ERR_MEMORY, MILL_ERR_MPI. */
int mill_fit_same_settings(const mill_mpi *mpi, const mill_config *config, const mill_library *lib);

/** Write the identity of a run: the text of mill_config_identity and, for `starmill sample`, its
 *  options.  The caller frees *identity by free(), also after a failure.  Codes of
 *  mill_config_identity; MILL_ERR_MEMORY. */
int mill_fit_identity(const mill_fit_options *options, const mill_config *config, char **identity);

/** Read the configuration and apply the options. */
int mill_fit_load_config(const mill_fit_call *call, mill_fit_setup *setup);

/** Check the outputs, open the log, read libraries and tables of starts and priors; check that
 *  the ranks' settings agree. */
int mill_fit_set_up(const mill_fit_call *call, mill_fit_setup *setup);

/** Free the set-up's memory.  Not collective. */
void mill_fit_setup_clear(mill_fit_setup *setup);

/* ---- with the list of inputs ---- */

/** Resolve wave_mask: auto, and count the rows with entries in the tables of starts and priors. */
int mill_fit_settle_rows(const mill_fit_call *call, mill_fit_setup *setup,
                         const mill_inputs *inputs);

/** Print the plan (--plan) on rank 0's standard output; no file is written.  MILL_ERR_MPI,
 *  MILL_ERR_MEMORY, MILL_ERR_LIBRARY, MILL_ERR_OUTPUT. */
int mill_fit_print_plan(const mill_fit_task *task);

/** If there are rows to fit: open models' file and status file, and divide work among the ranks. */
int mill_fit_open_work(const mill_fit_task *task);

/** Fit this rank's rows.  Not collective: after a failure other ranks are asked to stop. */
int mill_fit_share(const mill_fit_task *task);

/** If the result is finished, append each input's outcome to the table of inputs (if any). */
int mill_fit_record_inputs(const mill_fit_task *task);

/** Log how evenly the ranks worked; rank 0 prints the summary.  fit_s: wall s since the set-up. */
int mill_fit_print_summary(const mill_fit_task *task, double fit_s);

/* ---- stops and failures ---- */

/** Start the thread that watches for reasons to stop. */
int mill_fit_watch_stops(const mill_fit_call *call, mill_fit_setup *setup);

/** Fail with MILL_ERR_STOPPED if there is a reason to stop; called before the first star's fit.
 *  step: the time, for the message, such as "at the start". */
int mill_fit_agree_to_go_on(const mill_fit_call *call, const mill_fit_setup *setup,
                            const char *step);

/** Log this rank's failure, and stop the other ranks at once, since they may fit for long.
 *  Keeps the failure as this thread's last error.  Not collective. */
void mill_fit_tell_failure(const mill_fit_call *call, int err);

/** Ask the other ranks to stop, because this rank ended early by failure err or a signal.  Keeps
 *  err as this thread's last error.  Not collective. */
void mill_fit_stop_others(const mill_fit_call *call, int err);

/** End the watching thread and receive stop requests still under way, also after a failure err:
 *  MPI must not end before they have arrived. */
int mill_fit_settle_stop(const mill_fit_call *call, mill_fit_setup *setup, int err);
