/* SPDX-License-Identifier: BSD-3-Clause */
/** The checkpoint of `library train`, from which a stopped training continues with the same results
 *  (HDF5; docs/use/formats.md, "Checkpoint of a training"). */
#pragma once

#include "kernels/data/library.h"
#include "src/train/train_network.h"

/** Write a checkpoint to a temporary name, and rename it to path.  Replaces only a checkpoint.
 *
 *  identity          text of the training's data and settings; another identity cannot continue it
 *  state    [n_arm]  state of each arm's training; param NULL: not begun
 *
 *  One process alone.  MILL_ERR_OUTPUT. */
int mill_train_file_write(const char *path, const char *identity, int n_arm,
                          const mill_train_state *state);

/** Write the trained networks to a file, from which starmill/templates/train.py makes the library.
 *
 *  lib         mean and std of the labels, emulators of the arms
 *  model  [n]  rows of the grid file; the first n_train were trained on, the others held out
 *
 *  One process alone.  MILL_ERR_OUTPUT. */
int mill_trained_write(const char *path, const mill_library *lib, int n, int n_train,
                       const int *model);

/** Write the backend of a checkpoint's training (line "backend: " of its identity) to out [size];
 *  empty if there is no file.  MILL_ERR_INPUT as mill_train_file_read. */
int mill_train_file_backend(const char *path, size_t size, char *out);

/** Read a checkpoint.
 *
 *  n_epoch               most epochs of a training
 *  found                 out  0: there is no file
 *  state [MILL_MAX_ARM]  out  zeroed before, cleared on failure
 *
 *  MILL_ERR_INPUT: not a checkpoint, damaged, or another identity, whose first differing line the
 *  message gives. */
int mill_train_file_read(const char *path, const char *identity, int n_epoch, int *found,
                         mill_train_state *state);
