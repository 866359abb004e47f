/* SPDX-License-Identifier: BSD-3-Clause */
/** What is trained, and one rank's part of it: its network at work (kernels/train/train_ops.h) and
 *  the models that it takes to it. */
#ifndef MILL_TRAIN_WORK_H
#define MILL_TRAIN_WORK_H

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

/** Products of an epoch in 1e9 operations, those of all ranks together: 2 m k n for each. */
double mill_train_gflop(const mill_train_shape *shape, int n_model);

typedef struct mill_train_team {
  const mill_train_ops *ops;
  const mill_train_problem *problem;
  mill_train_net net;
  mill_train_work *work;
  int *model;                /**< [n_room] of the models at work */
  const float **x, **target; /**< [n_room] */
  mill_train_rows rows;      /**< result of mill_train_team_rows */
  float *param;              /**< [n_param] copy of mill_train_team_bind; else NULL */
} mill_train_team;

/** Models at most at a time, of n. */
int mill_train_room(const mill_train_settings *settings, int n);

/** For up to n_room models at a time. */
int mill_train_team_create(const mill_train_ops *ops, const mill_train_settings *settings,
                           const mill_train_problem *problem, int n_room, mill_train_team **out);
void mill_train_team_destroy(mill_train_team *team); /* NULL is allowed */

/** Parameters [n_param] that no step changes, in place of those before. */
int mill_train_team_bind(mill_train_team *team, const float *param);

/** rows of team->model [n], with targets or without. */
int mill_train_team_rows(mill_train_team *team, int n, int with_target);

/** Validation loss, of models that the ranks share.  Collective. */
int mill_train_team_validate(const mill_mpi *mpi, mill_train_team *team, double *loss);

/** The ranks' sums, added up in their order.  Collective. */
int mill_train_sum_over_ranks(const mill_mpi *mpi, double mine, double *sum);

/** The parameters' shares of the ranks. */
typedef struct mill_train_shares {
  int *start, *count;           /**< [n_rank] */
  int *mine_start, *mine_count; /**< [n_rank] of what the ranks send for this rank's share */
  float *received;              /**< [n_rank][count of this rank] */
} mill_train_shares;

int mill_train_shares_create(const mill_mpi *mpi, size_t n_param, mill_train_shares *shares);
void mill_train_shares_clear(mill_train_shares *shares);

#endif
