/* SPDX-License-Identifier: BSD-3-Clause */
/** The checkpoint of `library train`: the state that a training needs to continue as if it had not
 *  stopped (HDF5; docs/use/formats.md, "Checkpoint of a training"). */
#ifndef MILL_TRAIN_FILE_H
#define MILL_TRAIN_FILE_H

#include "kernels/data/library.h"
#include "src/train/train_network.h"

/** Write the states of the arms under a temporary name, then path; a file that is there must be a
 *  checkpoint too.
 *
 *  identity  lines that must be the same when it goes on: what is trained, on what, how
 *  state     [n_arm] those without parameters have not begun
 *
 *  One process alone.  MILL_ERR_OUTPUT. */
int mill_train_file_write(const char *path, const char *identity, int n_arm,
                          const mill_train_state *state);

/** Hand the trained networks over to starmill/templates/train.py, which makes the library of them, in
 *  a file like the checkpoint.
 *
 *  lib    mean and std of the labels, emulators of the arms
 *  model  [n] rows of the grid file, of which the first n_train were learned
 *
 *  One process alone.  MILL_ERR_OUTPUT. */
int mill_trained_write(const char *path, const mill_library *lib, int n, int n_train,
                       const int *model);

/** The backend of its training, as its identity's line "backend: " names it; empty where there is
 *  no such file.  MILL_ERR_INPUT as below. */
int mill_train_file_backend(const char *path, size_t size, char *out);

/** Read it.
 *
 *  n_epoch  room in the table of epochs
 *  state    [MILL_MAX_ARM] zeroed before, cleared on failure
 *
 *  *found 0: there is no such file.  MILL_ERR_INPUT: it is none, is damaged, or the identity is
 *  another one, with the first line that differs. */
int mill_train_file_read(const char *path, const char *identity, int n_epoch, int *found,
                         mill_train_state *state);

#endif
