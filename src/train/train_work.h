/* SPDX-License-Identifier: BSD-3-Clause */
/** Settings and data of a training, and mill_train_team: a rank's copy of the network on a backend
 *  (kernels/train/train_ops.h), with room for a batch of models. */
#pragma once

#include "kernels/data/library.h"
#include "kernels/train/train_ops.h"
#include "src/ranks/mpi_context.h"

enum mill_train_schedule {
  MILL_TRAIN_COSINE = 0, /**< the rate falls from first to least as half a cosine over all epochs */
  MILL_TRAIN_PLATEAU /**< multiply the rate by `factor` when the validation loss stops falling */
};

typedef struct mill_train_settings {
  int n_hidden;                  /**< hidden layers, 1 .. MILL_MAX_LAYER - 1 */
  int width[MILL_MAX_LAYER - 1]; /**< neurons of each hidden layer, 1 .. MILL_MAX_WIDTH */
  int batch;                     /**< models in a step, all ranks together */
  int n_epoch;                   /**< most epochs */
  enum mill_train_schedule schedule;
  double rate, least_rate; /**< first and least learning rate; PLATEAU ends below the least */
  int patience;   /**< PLATEAU: the rate falls after this many epochs without a lower loss */
  double factor;  /**< PLATEAU: multiplies the rate, in (0, 1) */
  int stop_after; /**< stop after this many epochs without a lower loss; 0: never */
  /** decoupled weight decay of all parameters: a step multiplies them by 1 - rate * decay */
  double decay;
  enum mill_train_loss_kind loss;
  double huber; /**< delta of HUBER, in the unit of residuals */
  uint64_t seed;
  int n_thread;                        /**< threads of this rank; bits do not depend on it */
  enum mill_train_precision precision; /**< precision of matrix products on a GPU */
} mill_train_settings;

void mill_train_settings_init(mill_train_settings *settings);

/** Check the settings.  MILL_ERR_USAGE names the wrong one. */
int mill_train_settings_check(const mill_train_settings *settings);

/** Training data: models with labels and targets.
 *
 *  The loss of a model is sum_j rho(scale_j (out_j - target_j)) / n_norm.  The loss of a set is the
 *  mean of its models' losses plus a floor, the constant loss of what the targets leave out.
 *
 *  x [n][n_in]            mapped labels; the first n_train models train, the others validate
 *  scale [n_out]          above 0
 *  rows                   gives the targets of models, equal on all ranks; valid until the next
 *                         call
 *  weight [n_out][width]  initial last layer; width: of the last hidden layer
 *  bias [n_out]           initial last layer */
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

/** Return 1e-9 times the additions and multiplications of a training pass over n_model models. */
double mill_train_gflop(const mill_train_shape *shape, int n_model);

typedef struct mill_train_team {
  const mill_train_ops *ops;
  const mill_train_problem *problem;
  mill_train_net net;
  mill_train_work *work;
  int *model;                /**< [n_room] numbers of the models in the batch */
  const float **x, **target; /**< [n_room] pointers to labels and targets of these models */
  mill_train_rows rows;      /**< result of mill_train_team_rows */
  float *param;              /**< [n_param] copy made by mill_train_team_bind; else NULL */
} mill_train_team;

/** Return the most models at a time: a batch, or n if fewer. */
int mill_train_room(const mill_train_settings *settings, int n);

/** Create a rank's network with room for n_room models at a time. */
int mill_train_team_create(const mill_train_ops *ops, const mill_train_settings *settings,
                           const mill_train_problem *problem, int n_room, mill_train_team **out);
void mill_train_team_destroy(mill_train_team *team); /* NULL is allowed */
MILL_CLOSER(mill_train_team, mill_train_team_destroy)

/** Use a copy of param [n_param] as the network's parameters, to evaluate it, not to train it. */
int mill_train_team_bind(mill_train_team *team, const float *param);

/** Fill team->rows for the models numbered in team->model [n], with or without targets. */
int mill_train_team_rows(mill_train_team *team, int n, int with_target);

/** Compute the validation loss; ranks share the models.  Collective. */
int mill_train_team_validate(const mill_mpi *mpi, mill_train_team *team, double *loss);

/** Sum a number over ranks in rank order, so that its bits are reproducible.  Collective. */
int mill_train_sum_over_ranks(const mill_mpi *mpi, double mine, double *sum);

/** Each rank's share of the parameters. */
typedef struct mill_train_shares {
  int *start, *count; /**< [n_rank] first parameter and number of each share */
  /** [n_rank] first element and number of each rank's gradients in received */
  int *mine_start, *mine_count;
  float *received; /**< [n_rank][count of this rank] gradients for this rank's share */
} mill_train_shares;

/** shares: zeroed; clear them also after a failure. */
int mill_train_shares_create(const mill_mpi *mpi, size_t n_param, mill_train_shares *shares);
void mill_train_shares_clear(mill_train_shares *shares);
