/* SPDX-License-Identifier: BSD-3-Clause */
/** Training of a multilayer perceptron with SiLU (docs/science/numerics.md, "Training a network").
 *
 *  Ranks share every mini-batch, threads the work of a rank.  Sums have a fixed order: the bits
 *  depend on the number of ranks, and on nothing else of how the work is shared.
 */
#ifndef MILL_TRAIN_NETWORK_H
#define MILL_TRAIN_NETWORK_H

#include "kernels/data/library.h"
#include "kernels/train/train_ops.h"
#include "src/ranks/mpi_context.h"

enum mill_train_schedule {
  MILL_TRAIN_COSINE = 0, /**< half a cosine from the first rate to the least over all epochs */
  MILL_TRAIN_PLATEAU     /**< less by `factor` when the validation loss has not become less */
};

typedef struct mill_train_settings {
  int n_hidden;                  /**< hidden layers, 1 .. MILL_MAX_LAYER - 1 */
  int width[MILL_MAX_LAYER - 1]; /**< of each, 1 .. MILL_MAX_WIDTH */
  int batch;                     /**< models of a step, of all ranks together */
  int n_epoch;                   /**< at most */
  enum mill_train_schedule schedule;
  double rate, least_rate; /**< learning rates; at a plateau below the least: the end */
  int patience;            /**< PLATEAU: epochs without a lower loss before the rate falls */
  double factor;           /**< PLATEAU: by which it falls, in (0, 1) */
  int stop_after;          /**< epochs without a lower loss that end the training; 0: none */
  double decay;            /**< decoupled weight decay of all parameters, times the rate */
  enum mill_train_loss_kind loss;
  double huber; /**< delta of HUBER, in units of the loss */
  uint64_t seed;
  int n_thread;                        /**< of this rank; the bits do not depend on it */
  enum mill_train_precision precision; /**< of a GPU */
} mill_train_settings;

void mill_train_settings_init(mill_train_settings *settings);

/** MILL_ERR_USAGE names the setting. */
int mill_train_settings_check(const mill_train_settings *settings);

/** Training data: targets of models with labels.
 *
 *  The loss of a model is sum_j rho(scale_j (out_j - target_j)) / n_norm, that of a set the mean
 *  over its models plus its floor, which no training changes (what the targets do not carry).
 *
 *  x      [n][n_in]    mapped labels, the first n_train models are learned, the others validate
 *  scale  [n_out]      > 0
 *  rows                targets of models, pointers that are valid until the next call; the same on
 *                      every rank
 *  weight [n_out][width], bias [n_out]  of the last layer to begin with, width that of the last
 *                      hidden one
 */
typedef struct mill_train_problem {
  int n_in, n_out, n, n_train;
  const float *x;
  const float *scale;
  double n_norm, train_floor, validation_floor;
  int (*rows)(void *context, int n, const int *model, const float **row);
  void *context;
  const float *weight, *bias;
} mill_train_problem;

void mill_train_shape_of(const mill_train_settings *settings, int n_in, int n_out,
                         mill_train_shape *shape);

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

/** Products of an epoch in 1e9 operations, those of all ranks together: 2 m k n for each. */
double mill_train_gflop(const mill_train_shape *shape, int n_model);

/** Solve the last layer of state->best by linear least squares over the models that are learned,
 *  where this lowers the validation loss; L2 only.  The ridge of those tried with the least
 *  validation loss is taken.  *before, *after: validation losses.  Collective. */
int mill_train_solve_last(const mill_mpi *mpi, const mill_train_ops *ops,
                          const mill_train_settings *settings, const mill_train_problem *problem,
                          mill_train_state *state, double *before, double *after);

#endif
