/* SPDX-License-Identifier: BSD-3-Clause */
/** Training of a multilayer perceptron with SiLU (docs/science/numerics.md, "Training a network").
 *
 *  Ranks share every mini-batch, threads the work of a rank.  Sums have a fixed order: the bits
 *  depend on the number of ranks, and on nothing else of how the work is shared.
 */
#ifndef MILL_TRAIN_NETWORK_H
#define MILL_TRAIN_NETWORK_H

#include "src/train/train_work.h"

/** One epoch of the table of losses. */
typedef struct mill_train_epoch {
  double train;      /**< mean loss over the epoch's steps, each before its step */
  double validation; /**< after the epoch */
  double rate, seconds;
} mill_train_epoch;

/** State of a training, sufficient to continue it. */
typedef struct mill_train_state {
  int n_epoch;    /**< done */
  int best_epoch; /**< 1 ...; the one whose parameters are kept; 0: none yet */
  int n_wait;     /**< PLATEAU: epochs since the loss or the rate fell */
  int ended;      /**< 1: by early stop, a plateau or the number of epochs */
  int64_t n_step;
  double rate, best_loss;
  size_t n_param;
  float *param, *m, *v, *best; /**< [n_param], owned */
  mill_train_epoch *epoch;     /**< [n_epoch of the settings], owned */
} mill_train_state;

/** The beginning: hidden layers uniform within 1 / sqrt(n_in), the last one as the problem says. */
int mill_train_begin(const mill_train_settings *settings, const mill_train_problem *problem,
                     mill_train_state *state);
void mill_train_state_clear(mill_train_state *state); /* NULL is allowed */

/** Called by every rank after every epoch; m and v are then distributed among ranks
 *  (mill_train_gather).  Anything but MILL_OK, the same on every rank, ends the training. */
typedef struct mill_train_watch {
  int (*after)(void *context, mill_train_state *state);
  void *context;
} mill_train_watch;

/** Train from the state on until it has ended.  Collective, with equal arguments.
 *  MILL_ERR_INPUT when the loss is not finite; what `after` returned. */
int mill_train_run(const mill_mpi *mpi, const mill_train_ops *ops,
                   const mill_train_settings *settings, const mill_train_problem *problem,
                   const mill_train_watch *watch, mill_train_state *state);

/** Gather the distributed m and v on every rank.  Collective. */
int mill_train_gather(const mill_mpi *mpi, mill_train_state *state);

/** Loss, without a floor, and its slope along every parameter for some models, without a step.
 *  param, gradient [n_param of mill_train_shape_of]. */
int mill_train_gradient(const mill_train_ops *ops, const mill_train_settings *settings,
                        const mill_train_problem *problem, int n, const int *model,
                        const float *param, float *gradient, double *loss);

/** Outputs of the hidden layers for models [n], h [n][width of the last]. */
int mill_train_hidden(const mill_train_ops *ops, const mill_train_settings *settings,
                      const mill_train_problem *problem, const float *param, int n,
                      const int *model, float *h);

/** Solve the last layer of state->best by linear least squares over the models that are learned,
 *  where this lowers the validation loss; L2 only.  The ridge of those tried with the least
 *  validation loss is taken.  *before, *after: validation losses.  Collective. */
int mill_train_solve_last(const mill_mpi *mpi, const mill_train_ops *ops,
                          const mill_train_settings *settings, const mill_train_problem *problem,
                          mill_train_state *state, double *before, double *after);

#endif
