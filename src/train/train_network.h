/* SPDX-License-Identifier: BSD-3-Clause */
/** Training of a multilayer perceptron with SiLU (docs/science/numerics.md, "Training a network").
 *
 *  Ranks share each mini-batch, and threads share a rank's part.  Sums have a fixed order: the last
 *  bits of a network depend on the number of ranks, but not on the number of threads. */
#pragma once

#include "src/train/train_work.h"

/** One row of the table of losses: an epoch. */
typedef struct mill_train_epoch {
  double train;      /**< mean loss over the epoch's steps, each computed before its step */
  double validation; /**< loss of the models left out, at the end of the epoch */
  double rate, seconds;
} mill_train_epoch;

/** State of a training, complete for continuing it. */
typedef struct mill_train_state {
  int n_epoch;    /**< epochs done */
  int best_epoch; /**< epoch of the best parameters, from 1; 0: none yet */
  int n_wait;     /**< PLATEAU: epochs since the best loss or the learning rate last fell */
  int ended;      /**< 1: ended, by early stop, a plateau or the number of epochs */
  int64_t n_step;
  double rate, best_loss;
  size_t n_param;
  /** [n_param] parameters, Adam's two moments, best parameters; owned */
  float *param, *m, *v, *best;
  mill_train_epoch *epoch; /**< [n_epoch of the settings], owned */
} mill_train_state;

/** Initialise a state.  Hidden layers are random, uniform within +-1 / sqrt(n_in of the layer); the
 *  last layer is the problem's.  Clear the state also after a failure. */
int mill_train_begin(const mill_train_settings *settings, const mill_train_problem *problem,
                     mill_train_state *state);
void mill_train_state_clear(mill_train_state *state); /* NULL is allowed */

/** Callback on each rank after each epoch.  state has only this rank's share of the moments m and v
 *  (mill_train_gather).  A code other than MILL_OK, equal on all ranks, ends the training. */
typedef struct mill_train_watch {
  int (*after)(void *context, mill_train_state *state);
  void *context;
} mill_train_watch;

/** Train from the given state to the end.  Collective, with equal arguments.
 *  MILL_ERR_INPUT if the loss is not finite; the code of watch->after if this ends the training. */
int mill_train_run(const mill_mpi *mpi, const mill_train_ops *ops,
                   const mill_train_settings *settings, const mill_train_problem *problem,
                   const mill_train_watch *watch, mill_train_state *state);

/** Gather the distributed moments m and v on every rank.  Collective. */
int mill_train_gather(const mill_mpi *mpi, mill_train_state *state);

/** Compute the last hidden layer's outputs h [n][width of that layer] for models [n]. */
int mill_train_hidden(const mill_train_ops *ops, const mill_train_settings *settings,
                      const mill_train_problem *problem, const float *param, int n,
                      const int *model, float *h);

/** Solve the last layer of state->best by linear least squares over the training models; L2 only.
 *  Several ridges are tried; the best solution is kept if it lowers the validation loss.
 *  *before, *after: validation losses.  Collective. */
int mill_train_solve_last(const mill_mpi *mpi, const mill_train_ops *ops,
                          const mill_train_settings *settings, const mill_train_problem *problem,
                          mill_train_state *state, double *before, double *after);
