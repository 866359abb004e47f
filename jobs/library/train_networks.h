/* SPDX-License-Identifier: BSD-3-Clause */
/** The networks of `library train`: arm after arm, with checkpoints, progress and the table of
 *  losses. */
#ifndef MILL_TRAIN_NETWORKS_H
#define MILL_TRAIN_NETWORKS_H

#include "io/library/grid_file.h"
#include "kernels/data/library.h"
#include "src/train/train_arm.h"

/** A grid file's good models: those that train an emulator, and those left out to measure it. */
typedef struct mill_train_split {
  int n, n_train;
  int *model; /**< [n] rows of the grid file: n_train to train on, then those left out; each part
                   ascending; owned */
} mill_train_split;

/** All borrowed. */
typedef struct mill_train_networks {
  const mill_mpi *mpi;
  const mill_train_ops *ops; /**< of this rank */
  const mill_train_arm_settings *settings;
  mill_grid_file *grid;
  const mill_grid_info *info;
  const mill_train_split *split;
  const double *mapped; /**< [split->n][n_label] labels in mapped coordinates */
  const char *checkpoint, *stop_file, *table;
  double interval_s; /**< seconds between checkpoints */
} mill_train_networks;

/** Train the emulator of each arm, from the checkpoint if there is one.  The library has the grid
 *  file's arms.  Collective.  MILL_ERR_STOPPED: saved; the same call continues. */
int mill_train_networks_run(const mill_train_networks *networks, mill_library *lib);

#endif
