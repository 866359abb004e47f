/* SPDX-License-Identifier: BSD-3-Clause */
/** Training of a multilayer perceptron with SiLU (docs/science/numerics.md, "Training a network").
 *
 *  Ranks share each mini-batch, threads share a rank's part.  Sums have a fixed order: bits depend
 *  on the number of ranks, not on the number of threads.
 */
#ifndef MILL_TRAIN_NETWORK_H
#define MILL_TRAIN_NETWORK_H

#include "src/train/train_work.h"

/** One epoch of the table of losses. */
typedef struct mill_train_epoch {
  double train;      /**< mean loss over the epoch's steps, each taken before its step */
  double validation; /**< loss of the models left out, after the epoch */
  double rate, seconds;
} mill_train_epoch;

/** State of a training: all that is needed to continue it. */
typedef struct mill_train_state {
  int n_epoch;    /**< epochs done */
  int best_epoch; /**< 1 ...: epoch of the best parameters; 0: none yet */
  int n_wait;     /**< PLATEAU: epochs since the loss or the rate fell */
  int ended;      /**< 1: ended, by early stop, a plateau or the number of epochs */
  int64_t n_step;
  double rate, best_loss;
  size_t n_param;
  float *param, *m, *v, *best; /**< [n_param], owned */
  mill_train_epoch *epoch;     /**< [n_epoch of the settings], owned */
} mill_train_state;

/** Initialise a state: weights and biases of hidden layers uniform within 1 / sqrt(n_in), the last
 *  layer of the problem. */
int mill_train_begin(const mill_train_settings *settings, const mill_train_problem *problem,
                     mill_train_state *state);
void mill_train_state_clear(mill_train_state *state); /* NULL is allowed */

/** Called on each rank after each epoch, when m and v are distributed among ranks
 *  (mill_train_gather).  A code other than MILL_OK, the same on every rank, ends the training. */
typedef struct mill_train_watch {
  int (*after)(void *context, mill_train_state *state);
  void *context;
} mill_train_watch;

/** Train from the state until it has ended.  Collective, with equal arguments.  MILL_ERR_INPUT if
 *  the loss is not finite; the codes of `after`. */
int mill_train_run(const mill_mpi *mpi, const mill_train_ops *ops,
                   const mill_train_settings *settings, const mill_train_problem *problem,
                   const mill_train_watch *watch, mill_train_state *state);

/** Gather the distributed m and v on every rank.  Collective. */
int mill_train_gather(const mill_mpi *mpi, mill_train_state *state);

/** Loss of models [n], without floor, and its gradient; takes no step.
 *  param, gradient [n_param of mill_train_shape_of]. */
int mill_train_gradient(const mill_train_ops *ops, const mill_train_settings *settings,
                        const mill_train_problem *problem, int n, const int *model,
                        const float *param, float *gradient, double *loss);

/** Output of the last hidden layer for models [n]: h [n][its width]. */
int mill_train_hidden(const mill_train_ops *ops, const mill_train_settings *settings,
                      const mill_train_problem *problem, const float *param, int n,
                      const int *model, float *h);

/** Solve the last layer of state->best by linear least squares over the trained models; L2 only.
 *  Several ridges are tried; the solution of least validation loss is taken, or none if that does
 *  not fall.  *before, *after: validation losses.  Collective. */
int mill_train_solve_last(const mill_mpi *mpi, const mill_train_ops *ops,
                          const mill_train_settings *settings, const mill_train_problem *problem,
                          mill_train_state *state, double *before, double *after);

#endif
