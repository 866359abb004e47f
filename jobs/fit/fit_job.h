/** A run of `starmill fit` as its steps share it, and the steps: one file each.
 *
 *  Every step is collective unless it says otherwise, and gives the same code on every rank.
 */
#ifndef MILL_FIT_STEPS_H
#define MILL_FIT_STEPS_H

#include "io/catalog/start_table.h"
#include "io/export/products.h"
#include "io/result/result_file.h"
#include "jobs/fit/balance.h"
#include "jobs/fit/fit.h"
#include "io/stars/inputs.h"
#include "jobs/fit/lsf_hint.h"
#include "jobs/fit/medium_hint.h"
#include "jobs/fit/model_rows.h"
#include "src/run/stop_watch.h"
#include "io/stars/work.h"
#include "io/status/status_board.h"
#include "io/status/status_file.h"
#include "io/result/result_look.h"
#include "kernels/base/clock.h"
#include "src/system/file_roles.h"

/** What is read before the inputs are. */
typedef struct mill_fit_setup {
  mill_config config;
  mill_library lib;
  mill_start_table *start; /**< NULL: none was given */
  int arm_wanted[MILL_MAX_ARM];
  int library_came;  /**< with the program, as no --library names another */
  char fit_hash[72]; /**< of the library of the fit that is sampled; empty: this is a fit */
  mill_running running;
  char status_path[MILL_STATUS_PATH];
  char stop_file[MILL_STATUS_PATH + 8];
  mill_file_roles roles; /**< on rank 0 */
} mill_fit_setup;

/** What computes, and with how much at once on this rank. */
typedef struct mill_fit_device {
  const mill_backend *backend;
  const char *name; /**< what all ranks fit on: the backend's, with cuda+cpu those of both */
  int n_thread, n_reader, n_slot;
  int has_gpu; /**< with cuda+cpu: this rank has one */
  char cpu[64], gpu[64],
      both[144]; /**< with cuda+cpu: the names, the same on all ranks; else empty */
} mill_fit_device;

/** What a run writes. */
typedef struct mill_fit_output {
  mill_existing existing; /**< on rank 0; once the result is open: only where it is continued */
  int outcome;            /**< of mill_result_open */
  mill_result_file *result;
  mill_model_rows models;
  mill_board *board; /**< while there is something to fit */
  mill_result_summary summary;
  mill_product_counts products;
} mill_fit_output;

typedef struct mill_fit_job {
  mill_mpi mpi;
  mill_fit_options options; /**< a copy of the caller's, which owns what it points to */
  const char *command;
  mill_fit_observer *observer; /**< NULL: there is none */
  mill_fit_meters meters;
  double start_wall_s;
  mill_fit_setup setup;
  mill_inputs inputs;
  mill_fit_device device;
  mill_fit_output out;
  mill_work *work; /**< while there is something to fit */
  mill_stop_watch *stop;
  mill_balance balance;
  int64_t n_put; /**< rows that this rank has finished */
  mill_velocity_counts velocities;
  mill_narrow_widths narrow;
} mill_fit_job;

/** CPU seconds of this thread; 0 where they are not wanted, for each question costs time. */
static inline double mill_fit_meter_s(const mill_fit_job *job)
{
  return job->observer ? mill_thread_cpu_s() : 0.0;
}

/* set_up.c */

/** Read the configuration; for mill_mpi_rank0_first. */
int mill_fit_load_config(void *job);

/** Check the outputs, open the log, read library and start table, agree with the other ranks. */
int mill_fit_set_up(mill_fit_job *job);

/* device.c */

/** All ranks take the backend of the configuration.  auto is a CPU until mill_fit_settle_device.
 *  Results are the same bit for bit only on one instruction set, so all ranks take the oldest
 *  one among them; GPUs must be of one kind. */
int mill_fit_agree_backend(mill_fit_job *job);

/** Once the number of rows is known: auto becomes what this run takes, also in the configuration
 *  that the result file keeps; slots and readers follow. */
int mill_fit_settle_device(mill_fit_job *job);

/** Rows that this rank takes before it has finished any.  Not collective. */
int64_t mill_fit_held_rows(const mill_fit_job *job);

/* rows.c */

/** Once the inputs are known: the mask of wavelengths, and which rows the start table has. */
int mill_fit_settle_rows(mill_fit_job *job);

/* output.c */

int mill_fit_open_output(mill_fit_job *job);

/** The models' file, the status and the work: for a run that has rows to fit. */
int mill_fit_open_work(mill_fit_job *job);

/** Write what was fitted, also when something failed, err: the code so far.  *is_settled: the
 *  ranks can still talk to each other. */
int mill_fit_close_output(mill_fit_job *job, int err, int *is_settled);

/* input_record.c */

/** Append what has become of the inputs to the table of inputs, where there is one and the result
 * is finished. */
int mill_fit_record_inputs(mill_fit_job *job);

/* output.c */

/** Write the last status, once it is known how the run has ended.  Not collective. */
void mill_fit_end_board(mill_fit_job *job, int code, int exit_status, int is_settled);

/* share.c */

/** Fit this rank's share of the rows.  Not collective: a failure here reaches the other ranks as
 *  a request to stop. */
int mill_fit_share(mill_fit_job *job);

/* stopping.c */

/** From now on the job hears of reasons to stop. */
int mill_fit_watch_stops(mill_fit_job *job);

/** Between the steps before the first fit: MILL_ERR_STOPPED where a reason to stop came up. */
int mill_fit_agree_to_go_on(mill_fit_job *job, const char *step);

/** Tell of a failure of this rank at once: the other ranks may take long to come to their ends.
 *  The failure stays this thread's last one.  Not collective. */
void mill_fit_tell_failure(mill_fit_job *job, int err);

/** Pass on that this rank's share has ended early, by err or a signal; err stays this thread's
 *  last failure.  Not collective. */
void mill_fit_stop_others(mill_fit_job *job, int err);

/** After a failure err too: MPI must not end with a message under way. */
int mill_fit_settle_stop(mill_fit_job *job, int err);

/* products.c */

/** Can --rvtab-dir have a file for each input?  Before anything is fitted; not collective. */
int mill_fit_check_products(const mill_fit_job *job);

/** The files of --rvtab-dir, where all rows are done.  A failure leaves the result whole. */
int mill_fit_write_products(mill_fit_job *job);

/* summary.c */

/** How the work was shared, and the summary on rank 0's standard output.  fit_s: wall seconds
 *  since the set-up. */
int mill_fit_print_summary(mill_fit_job *job, double fit_s);

#endif
