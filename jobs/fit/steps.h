/* SPDX-License-Identifier: BSD-3-Clause */
/** The steps of a fit, in the order in which jobs/fit/fit.c calls them, and their data.
 *
 *  Unless said otherwise, every step is collective and returns the same code on every rank. */
#pragma once

#include "io/catalog/prior_table.h"
#include "io/catalog/start_table.h"
#include "io/result/existing_result.h"
#include "io/stars/reader.h"
#include "io/status/status_board.h"
#include "jobs/fit/fit.h"
#include "jobs/fit/hints.h"
#include "kernels/base/clock.h"
#include "src/run/stop_watch.h"
#include "src/system/file_roles.h"

/** Arguments of a fit; borrowed. */
typedef struct mill_fit_call {
  mill_mpi *mpi;
  const mill_fit_options *options;
  const char *command;
  mill_fit_observer *observer; /**< NULL: none */
  double start_wall_s;
} mill_fit_call;

/** Data read before the inputs. */
typedef struct mill_fit_setup {
  mill_config config;
  mill_library library[MILL_MAX_LIBRARY];
  int n_library;
  /** A shallow copy of library [0], which has all labels, for steps that need one library.  Its
   *  arms keep the wavelengths that all libraries share; its hash is made of all hashes. */
  mill_library lib;
  mill_start_table *start;  /**< NULL: none was given */
  mill_prior_table *priors; /**< NULL: none was given */
  int64_t n_prior;          /**< number of rows with an entry in priors */
  int arm_wanted[MILL_MAX_ARM];
  int library_came; /**< number of shipped libraries in use; 0: libraries were given */
  char fitted[MILL_MAX_LIBRARY + 1][1024]; /**< libraries of the fit to sample; "": no more */
  int start_library; /**< use only start-table rows with this LIBRARY code; 0: all rows */
  mill_running running;
  char status_path[MILL_STATUS_PATH];
  char stop_file[MILL_STATUS_PATH + 8];
  mill_file_roles roles; /**< filled on rank 0 */
  mill_stop_watch *stop;
} mill_fit_setup;

/* ---- device: backend, threads, stars at once on this rank ---- */

typedef struct mill_fit_device {
  const mill_backend *backend;
  const char *name; /**< backend's name, the same on all ranks; with cuda+cpu equal to `both` */
  int n_thread, n_reader, n_slot;
  int has_gpu; /**< with auto and cuda+cpu: 1 if this rank has a GPU */
  char cpu[64], gpu[64],
      both[144]; /**< names of the backends, equal on all ranks; empty unless cuda+cpu */
} mill_fit_device;

/** Choose the configured backend; auto is left to mill_fit_settle_device.  A row must have the same
 *  bits on every rank: CPU ranks all use the oldest instruction set; GPUs must be of one kind. */
int mill_fit_find_device(const mill_fit_call *call, const mill_fit_setup *setup,
                         mill_fit_device *device);

/** Choose what depends on the number of rows: the backend if the setting is auto, then the numbers
 *  of slots and readers.  The backend replaces auto in the configuration that the result stores.
 *
 *  existing  result found at the output, on rank 0 */
int mill_fit_settle_device(const mill_fit_call *call, mill_fit_setup *setup,
                           const mill_existing *existing, int64_t n_row, mill_fit_device *device);

/** Rank 0: return the device that began the result which this run continues; NULL if none did.
 *  Other ranks: return NULL. */
const char *mill_fit_begun_on(const mill_fit_call *call, const mill_existing *existing);

/** Return how many rows this rank takes before it finishes its first row.  Not collective. */
int64_t mill_fit_held_rows(const mill_fit_device *device);

/* ---- outputs: result, models and status file ---- */

/** Writer of finished stars; arrays are owned, all else is borrowed. */
typedef struct mill_star_output {
  const mill_library *lib;
  const mill_inputs *inputs;
  mill_result_file *result;
  float *flux;              /**< [n_pix] one row of the models' file */
  double *wave;             /**< [n_pix] wavelengths of that row, if each row has its own */
  int n_pix;                /**< pixels of the arm with most pixels */
  mill_epoch_result *epoch; /**< [epoch_room] epoch results, one per exposure of a star */
  int64_t epoch_room;
} mill_star_output;

/** Hand a star's models, epochs (if it has any) and row to the I/O thread, which copies them.
 *  Returns the codes of mill_result_put_model and mill_result_put. */
int mill_star_output_put(mill_star_output *output, mill_star *star);

void mill_star_output_clear(mill_star_output *output);

typedef struct mill_fit_output {
  /** on rank 0: the result found at the output; set to zero unless the run continues it */
  mill_existing existing;
  int outcome; /**< outcome of mill_result_open */
  mill_result_file *result;
  mill_star_output star;
  /* set while there are rows to fit: */
  mill_board *board;
  mill_work *work;
  /* set at the end: */
  mill_result_summary summary;
} mill_fit_output;

/** Open the result; warn if only one of this run and the run that began it has --models. */
int mill_fit_open_output(const mill_fit_call *call, const mill_fit_setup *setup,
                         mill_inputs *inputs, const mill_fit_device *device, mill_fit_output *out);

/** Write the fitted rows, also after a failure err, and close the result; then end the exchange of
 *  work and of status between ranks.
 *
 *  is_settled  out  1: the exchange of status ended without failure */
int mill_fit_close_output(const mill_fit_call *call, mill_fit_output *out, int err,
                          int *is_settled);

/** Close the status file.  If is_settled (see mill_fit_close_output), first write the final status
 *  with the reason why the run ended.  Not collective. */
void mill_fit_end_board(mill_fit_output *out, int code, int exit_status, int is_settled);

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
  mill_segment_counts segments;
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

/** Check outputs and that the ranks' settings agree; open the log; read libraries and tables. */
int mill_fit_set_up(const mill_fit_call *call, mill_fit_setup *setup);

/** Free the set-up's memory.  Not collective. */
void mill_fit_setup_clear(mill_fit_setup *setup);

/* ---- with the list of inputs ---- */

/** Settle the key wave_mask if it is auto.  Count the rows in the tables of starts and priors. */
int mill_fit_settle_rows(const mill_fit_call *call, mill_fit_setup *setup,
                         const mill_inputs *inputs);

/** Print the plan (--plan) on rank 0's standard output; no file is written.  MILL_ERR_MPI,
 *  MILL_ERR_MEMORY, MILL_ERR_LIBRARY, MILL_ERR_OUTPUT. */
int mill_fit_print_plan(const mill_fit_task *task);

/** If there are rows to fit: open models' file and status file, and divide work among the ranks. */
int mill_fit_open_work(const mill_fit_task *task);

/** Fit this rank's rows.  Not collective: after a failure other ranks are asked to stop. */
int mill_fit_share(const mill_fit_task *task);

/** Log how evenly the ranks worked; rank 0 prints the summary.  fit_s: seconds since the set-up. */
int mill_fit_print_summary(const mill_fit_task *task, double fit_s);
