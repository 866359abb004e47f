/* SPDX-License-Identifier: BSD-3-Clause */
/** Set-up of a fit before it reads its inputs: settings, library, the table to start from, reasons
 *  to stop.
 *
 *  Every step of a fit is collective unless it says otherwise, and gives the same code on every
 * rank.
 */
#ifndef MILL_FIT_SET_UP_H
#define MILL_FIT_SET_UP_H

#include "io/catalog/prior_table.h"
#include "io/catalog/start_table.h"
#include "io/status/status_file.h"
#include "jobs/fit/fit.h"
#include "src/run/stop_watch.h"
#include "src/system/file_roles.h"

/** Arguments of a fit; borrowed. */
typedef struct mill_fit_call {
  mill_mpi *mpi;
  const mill_fit_options *options;
  const char *command;
  mill_fit_observer *observer; /**< NULL: there is none */
  double start_wall_s;
} mill_fit_call;

/** Data read before the inputs. */
typedef struct mill_fit_setup {
  mill_config config;
  mill_library library[MILL_MAX_LIBRARY];
  int n_library;
  /** The first library, which has the labels of all; of several with the wavelengths that all have,
   *  and the digest of all digests as hash.  It owns nothing. */
  mill_library lib;
  mill_start_table *start;  /**< NULL: none was given */
  mill_prior_table *priors; /**< likewise */
  int64_t n_prior;          /**< rows that have any of these */
  int arm_wanted[MILL_MAX_ARM];
  int library_came;  /**< with the program, as no --library names another */
  int start_library; /**< code of the library whose rows of the start table count; 0: all */
  mill_running running;
  char status_path[MILL_STATUS_PATH];
  char stop_file[MILL_STATUS_PATH + 8];
  mill_file_roles roles; /**< on rank 0 */
  mill_stop_watch *stop;
} mill_fit_setup;

/** Read the configuration and apply the options. */
int mill_fit_load_config(const mill_fit_call *call, mill_fit_setup *setup);

/** Check the outputs, open the log, read library and tables by star, agree with the other ranks. */
int mill_fit_set_up(const mill_fit_call *call, mill_fit_setup *setup);

/** Free what it holds.  Not collective. */
void mill_fit_setup_clear(mill_fit_setup *setup);

/* stopping.c */

/** From now on the job reacts to reasons to stop. */
int mill_fit_watch_stops(const mill_fit_call *call, mill_fit_setup *setup);

/** Between the steps before the first fit: MILL_ERR_STOPPED where a reason to stop came up. */
int mill_fit_agree_to_go_on(const mill_fit_call *call, const mill_fit_setup *setup,
                            const char *step);

/** Log a failure of this rank and tell the other ranks at once, since they may take long to finish.
 *  The failure stays this thread's last one.  Not collective. */
void mill_fit_tell_failure(const mill_fit_call *call, int err);

/** Pass on that this rank's share has ended early, by err or a signal; err stays this thread's
 *  last failure.  Not collective. */
void mill_fit_stop_others(const mill_fit_call *call, int err);

/** After a failure err too: MPI must not end with a message under way. */
int mill_fit_settle_stop(const mill_fit_call *call, mill_fit_setup *setup, int err);

#endif
