/* SPDX-License-Identifier: BSD-3-Clause */
/** The checkpoint of `library train`, with which a training continues as if it had not stopped
 *  (HDF5; docs/use/formats.md, "Checkpoint of a training"). */
#ifndef MILL_TRAIN_FILE_H
#define MILL_TRAIN_FILE_H

#include "kernels/data/library.h"
#include "src/train/train_network.h"

/** Write a checkpoint under a temporary name, and rename it to path; only a checkpoint is replaced.
 *
 *  identity          text that must be equal in a training that continues: what is trained, and how
 *  state    [n_arm]  an arm without parameters has not begun
 *
 *  One process alone.  MILL_ERR_OUTPUT. */
int mill_train_file_write(const char *path, const char *identity, int n_arm,
                          const mill_train_state *state);

/** Write the trained networks to a file, from which starmill/templates/train.py makes the library.
 *
 *  lib         mean and std of the labels, emulators of the arms
 *  model  [n]  rows of the grid file; the first n_train were learned, the others left out
 *
 *  One process alone.  MILL_ERR_OUTPUT. */
int mill_trained_write(const char *path, const mill_library *lib, int n, int n_train,
                       const int *model);

/** Backend of a checkpoint's training, from line "backend: " of its identity, into out [size];
 *  empty if there is no file.  MILL_ERR_INPUT as mill_train_file_read. */
int mill_train_file_backend(const char *path, size_t size, char *out);

/** Read a checkpoint.
 *
 *  n_epoch               most epochs of a training
 *  found                 out  0: there is no file
 *  state [MILL_MAX_ARM]  out  zeroed before, cleared on failure
 *
 *  MILL_ERR_INPUT: the file is no checkpoint, is damaged, or has another identity; the message
 *  gives the first line that differs. */
int mill_train_file_read(const char *path, const char *identity, int n_epoch, int *found,
                         mill_train_state *state);

#endif
