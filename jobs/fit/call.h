/* SPDX-License-Identifier: BSD-3-Clause */
/** What all steps of a fit have: how it was called, and what was read before its inputs.
 *
 *  Every step is collective unless it says otherwise, and gives the same code on every rank. */
#ifndef MILL_FIT_CALL_H
#define MILL_FIT_CALL_H

#include "io/catalog/prior_table.h"
#include "io/catalog/start_table.h"
#include "io/status/status_file.h"
#include "jobs/fit/observer.h"
#include "jobs/options/options.h"
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

#endif
