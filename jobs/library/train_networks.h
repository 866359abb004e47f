/* SPDX-License-Identifier: BSD-3-Clause */
/** Trains the networks of `library train`, arm by arm; writes checkpoints, progress and losses. */
#pragma once

#include "io/files/lock_file.h"
#include "io/library/grid_file.h"
#include "src/train/train_arm.h"

/** A grid file's good models: those that train an emulator, and those left out to measure it. */
typedef struct mill_train_split {
  int n, n_train;
  /** [n] rows of the grid file, owned: first the n_train rows to train on, then the rows left out,
   *  each group in ascending order */
  int *model;
} mill_train_split;

/** Arguments of mill_train_networks_run; all borrowed. */
typedef struct mill_train_networks {
  const mill_mpi *mpi;
  const mill_train_ops *ops; /**< backend of this rank */
  const mill_train_arm_settings *settings;
  mill_grid_file *grid;
  const mill_grid_info *info;
  const mill_train_split *split;
  const double *mapped; /**< [split->n][n_label] labels in mapped coordinates */
  const char *checkpoint, *stop_file, *table;
  const mill_lock *lock; /**< of the checkpoint, held by rank 0 */
  double interval_s;     /**< seconds between checkpoints */
} mill_train_networks;

/** Train the emulator of each arm, and continue from the checkpoint if there is one.  lib must
 *  have the grid file's arms.  Collective.  After MILL_ERR_STOPPED the same call continues. */
int mill_train_networks_run(const mill_train_networks *networks, mill_library *lib);
