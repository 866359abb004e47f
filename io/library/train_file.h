/* SPDX-License-Identifier: BSD-3-Clause */
/** The checkpoint of `library train`: a stopped training continues from it with equal results. */
#pragma once

#include "kernels/data/library.h"
#include "src/train/train_network.h"

/** Write a checkpoint; an existing file is replaced only if it is a checkpoint.
 *
 *  identity           text of the training's data and settings
 *  state     [n_arm]  state of each arm's training; param NULL: not begun
 *
 *  One process alone.  MILL_ERR_OUTPUT. */
int mill_train_file_write(const char *path, const char *identity, int n_arm,
                          const mill_train_state *state);

/** Write the trained networks to a file, from which starmill/templates/train.py makes the library.
 *
 *  lib         mean and std of the labels, emulators of the arms
 *  model  [n]  rows of the grid file: first the n_train training models, then those held out
 *
 *  One process alone.  MILL_ERR_OUTPUT: the file cannot be written. */
int mill_trained_write(const char *path, const mill_library *lib, int n, int n_train,
                       const int *model);

/** Copy the name of the backend that trained a checkpoint to out [size].  If there is no file, out
 *  becomes empty.  MILL_ERR_INPUT: not a checkpoint. */
int mill_train_file_backend(const char *path, size_t size, char *out);

/** Read a checkpoint.
 *
 *  n_epoch                    largest number of epochs that the training may have
 *  found                 out  0: there is no file
 *  state [MILL_MAX_ARM]  out  zeroed before, cleared on failure
 *
 *  MILL_ERR_INPUT: not a checkpoint, damaged, or of another identity. */
int mill_train_file_read(const char *path, const char *identity, int n_epoch, int *found,
                         mill_train_state *state);
