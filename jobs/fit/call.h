/* SPDX-License-Identifier: BSD-3-Clause */
/** Data that every step of a fit needs: the fit's arguments, and data read before the inputs. */
#pragma once

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
  mill_fit_observer *observer; /**< NULL: none */
  double start_wall_s;
} mill_fit_call;

/** Data read before the inputs. */
typedef struct mill_fit_setup {
  mill_config config;
  mill_library library[MILL_MAX_LIBRARY];
  int n_library;
  /** This library stands for all: a shallow copy of library [0], which has all labels.  Its arms
   *  are cut to the wavelengths of all libraries; its hash is a digest of all hashes. */
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
