/* SPDX-License-Identifier: BSD-3-Clause */
/** The networks of `library train`: arm after arm, with checkpoints, progress and the table of
 *  losses. */
#ifndef MILL_TRAIN_NETWORKS_H
#define MILL_TRAIN_NETWORKS_H

#include "io/library/grid_file.h"
#include "kernels/data/library.h"
#include "src/train/train_arm.h"

/** Division of a grid file's good models into those that an emulator is made from and those left
 *  out to measure it. */
typedef struct mill_train_split {
  int n, n_train;
  int *model; /**< [n] rows of the grid file: n_train to learn, ascending, then those left out,
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

/** Fill the emulators of the library's arms, which are those of the grid file; from the checkpoint
 *  on where there is one.  Collective.  MILL_ERR_STOPPED: saved, the same call goes on. */
int mill_train_networks_run(const mill_train_networks *networks, mill_library *lib);

#endif
