/* SPDX-License-Identifier: BSD-3-Clause */
/** Options shared by `library train` and `bench`: hidden layers and device. */
#ifndef MILL_TRAIN_CHOICE_H
#define MILL_TRAIN_CHOICE_H

#include "src/train/train_network.h"

/** Neurons of the hidden layers of a text as 256,256,200, into n_hidden and width.
 *  MILL_ERR_USAGE names the option (without its dashes). */
int mill_train_read_hidden(const char *option, const char *text, mill_train_settings *net);

/** The words of --products, in the order of enum mill_train_precision; ends with NULL. */
extern const char *const mill_train_product_words[];

/** Functions of a training's device; MILL_WORD_AUTO is resolved by mill_backend_settle.
 *
 *  backend     enum mill_backend_word (src/run/backend_choice.h)
 *  checkpoint  from which it goes on where it is there
 *  mflop       millions of operations of a step of all ranks
 *  Collective; fails as mill_backend_settle and mill_train_find_ops do. */
int mill_train_choose_ops(const mill_mpi *mpi, int backend, const char *checkpoint, int64_t mflop,
                          int n_thread, const mill_train_ops **ops);

/** The functions of the CPU, or with is_gpu those of this rank's GPU, which every rank gets
 *  (src/run/backend_choice.h).  Collective; the same code on every rank: MILL_ERR_CONFIG,
 *  MILL_ERR_BACKEND, MILL_ERR_MEMORY or MILL_ERR_MPI. */
int mill_train_find_ops(const mill_mpi *mpi, int is_gpu, const mill_train_ops **ops);

#endif
